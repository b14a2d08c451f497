"""Types of flags that click does not have, or has with a gap."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import click

MAX_SOCKET_BYTES = 107
"""Of a Unix socket's path; unix(7): sun_path, less the null at its end."""

_HOST_PORT = re.compile(r"(?:[\w.-]+|\[[\w:.%]+\]):(\d{1,5})")


class FiniteRange(click.FloatRange):
    """A range of numbers. click's lets nan through, which is on neither side of a bound."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """See click.ParamType."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


class Name(click.types.StringParamType):
    """A text that is not empty, as what a script's variable holds may be."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """See click.ParamType."""
        if not str(value).strip():
            self.fail("must not be empty.", param, ctx)
        return str(value)


class FilePath(click.Path):
    """The path of a file; click takes an empty one for the working directory."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See click.ParamType."""
        if not str(value):
            self.fail("must name a file.", param, ctx)
        return super().convert(value, param, ctx)


class ListenAddress(click.types.StringParamType):
    """host:port or unix:/path: gRPC would take others for something, and listen elsewhere."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """See click.ParamType."""
        text = str(value)
        scheme, _, path = text.partition(":")
        if scheme == "unix":
            if not 0 < len(path.encode()) <= MAX_SOCKET_BYTES:
                said = f"{text!r} must have a path of at most {MAX_SOCKET_BYTES} bytes."
                self.fail(said, param, ctx)
            return text
        found = _HOST_PORT.fullmatch(text)
        if found is None or int(found[1]) > 65535:
            self.fail(f"{text!r} must be host:port, or unix:/path.", param, ctx)
        return text
