"""The flags of LoRA adapters, with vLLM's names, and how several values of one are written.

--lora-modules sql=/adapters/sql poet=/adapters/poet
--lora-modules sql=/adapters/sql --lora-modules '{"name": "poet", "path": "/adapters/poet"}'
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.flag_lists import Flags

_MODULES = "--lora-modules"
_IN_VARIABLE = re.compile(r"\{[^{}]*\}|\S+")


class _Module(click.types.StringParamType):
    """NAME=PATH or JSON, as it was given: the engine reads it."""

    name = "module"

    def split_envvar_value(self, rv: str) -> Sequence[str]:
        """The values of OCTAVO_LORA_MODULES; JSON may have spaces."""
        return _IN_VARIABLE.findall(rv)


LORA_FLAGS: Flags = (
    (
        "--enable-lora/--no-enable-lora",
        {"default": False, "help": "Take LoRA adapters, and keep memory for them."},
    ),
    (
        _MODULES,
        {
            "multiple": True,
            "type": _Module(),
            "metavar": "NAME=PATH …",
            "help": "Adapters to load at the start, directories as PEFT saves them; repeat it, or "
            'give several. Also as JSON: {"name": …, "path": …}.',
        },
    ),
    (
        "--max-loras",
        {
            "type": click.IntRange(1, 1024),
            "default": 8,
            "help": "Most adapters that are loaded together.",
        },
    ),
    (
        "--max-lora-rank",
        {
            "type": click.IntRange(1, 1024),
            "help": "Largest rank of an adapter. Default: the largest of --lora-modules, at least "
            "16.",
        },
    ),
    (
        "--lora-dir",
        {
            "type": click.Path(),
            "metavar": "DIR",
            "help": "Let operators load adapters from directories within DIR while the engine "
            "runs. Default: only --lora-modules are loaded.",
        },
    ),
)


class LoraCommand(click.Command):
    """A command with `LORA_FLAGS`, which takes several values after one --lora-modules."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses arguments as click does, once each value has a flag of its own."""
        return super().parse_args(ctx, _spread(args))


def _spread(args: Sequence[str]) -> list[str]:
    """Gives each value of --lora-modules a flag of its own.

    The first may be anything; those after it are values as long as they look like one.
    """
    spread: list[str] = []
    takes_more = False
    for arg in args:
        is_first = bool(spread) and spread[-1] == _MODULES
        takes_more = is_first or (takes_more and _is_module(arg))
        if is_first:
            spread[-1] = f"{_MODULES}={arg}"
        elif takes_more:
            spread.append(f"{_MODULES}={arg}")
        else:
            spread.append(arg)
    return spread


def _is_module(arg: str) -> bool:
    return not arg.startswith("-") and ("=" in arg or arg.startswith("{"))
