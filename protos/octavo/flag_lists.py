"""Flags as data: declared once, parsed by every command that has them, and handed on to a child.

Each flag is also read from `OCTAVO_<NAME>`; the command line wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])

Flags: TypeAlias = tuple[tuple[str, dict[str, Any]], ...]
"""One entry per flag: its declaration, then what click.option takes."""


def environment_name(declaration: str) -> str:
    """The variable that a flag is read from where the command line does not have it."""
    return "OCTAVO_" + declaration.split("/")[0].lstrip("-").replace("-", "_").upper()


def _keywords(declaration: str, settings: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {"show_default": settings.get("default") is not None}
    if not settings.get("hidden"):
        shown |= {"envvar": environment_name(declaration), "show_envvar": True}
    return shown | settings


def with_flags(flags: Flags, command: _Command) -> _Command:
    """Decorates a click command with flags; each but a hidden one is read from its variable too."""
    for declaration, settings in reversed(flags):
        command = click.option(declaration, **_keywords(declaration, settings))(command)
    return command


def arguments(flags: Flags, params: Mapping[str, Any]) -> list[str]:
    """The arguments that make another process parse `params` again.

    Keys are click's parameter names; absent and None values are left out, and so are keys that are
    not of these flags.
    """
    words: list[str] = []
    for declaration, settings in flags:
        option = click.Option([declaration], **_keywords(declaration, settings))
        value = params.get(option.name or "")
        if value is None:
            continue
        if option.is_flag:
            words += option.opts if value else option.secondary_opts
        elif option.multiple:
            words += [f"{declaration}={item}" for item in value]
        else:
            words.append(f"{declaration}={value}")
    return words
