"""Which matrices of a model are quantised, and how: rules by name, and what they leave alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_svc.models.errors import ModelError

if TYPE_CHECKING:
    from engine_svc.loader.quantized.linear import LinearFormat

_REGEX = "re:"
_LINEAR = "Linear"  # torch's class of all matrices but the embedding


@dataclass(frozen=True, slots=True)
class Rule:
    """Modules that are kept in one format; targets are names, `re:` patterns or the class."""

    format: LinearFormat
    targets: tuple[str, ...] = (_LINEAR,)


@dataclass(frozen=True, slots=True)
class Quantization:
    """How a checkpoint is quantised. Modules are named as in its files, without `.weight`."""

    method: str  # awq, gptq, fp8 or compressed-tensors
    rules: tuple[Rule, ...]
    ignored: tuple[str, ...] = ()  # modules that are dense
    head: bool = False  # whether the head is meant as well

    @property
    def label(self) -> str:
        """For people, for example "awq, 4 bit, groups of 128"."""
        formats = dict.fromkeys(rule.format.label for rule in self.rules)
        return f"{self.method}, {'; '.join(formats)}"

    def format_for(self, module: str) -> LinearFormat | None:
        """The format of a module's codes if it has any: of the rule that names it most closely."""
        for is_match in (_is_name, _is_pattern, _is_class):
            for rule in self.rules:
                if any(is_match(target, module) for target in rule.targets):
                    return rule.format
        return None

    def is_ignored(self, module: str) -> bool:
        """Whether the configuration leaves a module dense. Raises ModelError for a bad pattern."""
        return any(_is_part(text, module) or _is_pattern(text, module) for text in self.ignored)

    def expected(self, module: str, *, is_head: bool) -> LinearFormat | None:
        """The format that a module should have, None for dense, where there is no file to ask."""
        if self.is_ignored(module) or (is_head and not self.head):
            return None
        return self.format_for(module)


def _is_name(target: str, module: str) -> bool:
    return target == module


def _is_class(target: str, module: str) -> bool:  # noqa: ARG001 (all modules that are asked for)
    return target == _LINEAR


def _is_pattern(target: str, module: str) -> bool:
    if not target.startswith(_REGEX):
        return False
    try:
        return re.match(target.removeprefix(_REGEX), module) is not None
    except re.error as error:
        raise ModelError(f"quantization_config: {target!r} is no pattern: {error}") from error


def _is_part(text: str, module: str) -> bool:
    """Whether a name is the module, something that contains it, or the end of its name."""
    return f".{text}." in f".{module}."
