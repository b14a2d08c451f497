"""Writers of JSON values that need a check, called by the generated encoders."""

import math

import orjson

from router_svc.http import checks


def number(value: float, name: str) -> float:
    """The number; raises ApiError (500) if it is not finite, rather than sending null."""
    if not math.isfinite(value):
        raise checks.not_finite(name)
    return value


def json_value(text: str) -> orjson.Fragment:
    """JSON text, placed in the answer as it stands."""
    return orjson.Fragment(text)
