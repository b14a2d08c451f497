"""Writers of JSON values that need a check, called by the generated encoders."""

import math
from collections.abc import Iterable

import orjson

from router_svc.http import checks


def number(value: float, name: str) -> float:
    """The number; raises ApiError (500) if it is not finite, rather than sending null."""
    if not math.isfinite(value):
        raise checks.not_finite(name)
    return value


def numbers(values: Iterable[float], name: str) -> list[float]:
    """The numbers, under the same condition; a vector's are checked at C speed."""
    found = list(values)
    if not all(map(math.isfinite, found)):
        raise checks.not_finite(name)
    return found


def json_value(text: str) -> orjson.Fragment:
    """JSON text, placed in the answer as it stands; text that was never set is null."""
    return orjson.Fragment(text or "null")
