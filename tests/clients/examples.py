"""Runs the examples of one client and prints what they gave; needs the standard library alone."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from typing import Any


def show(*examples: Callable[[], Any]) -> None:
    """Prints one JSON object: each example's name with its result, or with how it failed."""
    results = {}
    for example in examples:
        try:
            results[example.__name__] = {"result": example()}
        except Exception:  # noqa: BLE001 -- whatever a client raises is this example's failure
            results[example.__name__] = {"failed": traceback.format_exc()}
    print(json.dumps(results))
