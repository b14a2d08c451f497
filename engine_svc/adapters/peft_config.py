"""adapter_config.json as PEFT writes it (huggingface/peft, `LoraConfig`).

It has to describe W + scale·B·A and nothing else, with

    scale = lora_alpha / r        or lora_alpha / sqrt(r) with use_rslora (arXiv:2312.03732)

`rank_pattern` and `alpha_pattern` give modules other values, by the ends of their names. Which
modules were adapted is what the tensors say: patterns of `target_modules` and the like find them
when the training begins, and are not needed any more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import orjson

from engine_svc.adapters.module_patterns import is_name, matcher
from engine_svc.adapters.peft_fields import CONFIG, check_fields, shown, wrong
from engine_svc.models.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_T = TypeVar("_T")

_MAX_BYTES = 1 << 20
_MAX_RANK = 1 << 16
_MAX_NAMES = 4096  # each is held against each matrix
_MAX_EXPRESSIONS = 64  # the same, and slower
_EMBEDDINGS = ("embed_tokens", "lm_head", "wte", "embed_out")


class ByModule(Generic[_T]):
    """A value, with others for the modules that patterns mean; of several, the first."""

    def __init__(self, default: _T, others: Sequence[tuple[Callable[[str], bool], _T]]) -> None:
        self._default = default
        self._others = others

    def __getitem__(self, module: str) -> _T:
        """The value of a module, by its whole name."""
        found = (value for matches, value in self._others if matches(module))
        return next(found, self._default)

    def values(self) -> list[_T]:
        """All that there are."""
        return [self._default, *(value for _, value in self._others)]


@dataclass(frozen=True, slots=True)
class PeftConfig:
    """What of an adapter its tensors do not say."""

    ranks: ByModule[int]
    alphas: ByModule[float]
    rank_stabilised: bool
    target_modules: tuple[str, ...]  # names of modules, where they are listed
    base_model: str

    @property
    def max_rank(self) -> int:
        """The largest rank that it gives."""
        return max(self.ranks.values())

    def scale_of(self, module: str, rank: int) -> float:
        """What a module's B·A of this rank is multiplied by."""
        alpha = self.alphas[module]
        return alpha / math.sqrt(rank) if self.rank_stabilised else alpha / rank


def read_peft_config(directory: Path) -> PeftConfig:
    """Reads an adapter's configuration. Raises ModelError naming the field that is not served."""
    return parse_peft_config(read_config_bytes(directory))


def read_config_bytes(directory: Path) -> bytes:
    """The file as it is. Raises ModelError where there is none, or more than one would be."""
    path = directory / CONFIG
    if not path.is_file():
        raise ModelError(f"{directory.name} has no {CONFIG}, so it is not an adapter's directory")
    with path.open("rb") as file:
        raw = file.read(_MAX_BYTES + 1)
    if len(raw) > _MAX_BYTES:
        raise ModelError(f"{CONFIG} has more than {_MAX_BYTES} bytes")
    return raw


def parse_peft_config(raw: bytes) -> PeftConfig:
    """The same of the file's bytes."""
    try:
        values = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ModelError(f"{CONFIG} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ModelError(f"{CONFIG} must hold an object")
    check_fields(values)
    if values.get("use_rslora") not in (None, False, True):
        raise wrong("use_rslora", f"is {shown(values['use_rslora'])}")
    base = values.get("base_model_name_or_path")
    return PeftConfig(
        ranks=_by_module(values, "r", "rank_pattern", _rank),
        alphas=_by_module(values, "lora_alpha", "alpha_pattern", _alpha),
        rank_stabilised=bool(values.get("use_rslora")),
        target_modules=_targets(values.get("target_modules")),
        base_model=base if isinstance(base, str) else "",
    )


def _targets(value: Any) -> tuple[str, ...]:
    """The modules that are listed; an expression that finds them says no more than the tensors."""
    names = tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()
    for name in names:
        if name.rpartition(".")[2] in _EMBEDDINGS:
            raise wrong("target_modules", f"has {name}: embeddings and heads have no adapters")
    return names


def _by_module(
    values: Mapping[str, Any], key: str, patterns: str, read: Callable[[str, Any], _T]
) -> ByModule[_T]:
    """The value of `key`, with those that modules have by `patterns`."""
    given = values.get(patterns) or {}
    if not isinstance(given, dict):
        raise wrong(patterns, "must be an object")
    num_expressions = sum(not is_name(pattern) for pattern in given)
    for count, most, what in (
        (len(given), _MAX_NAMES, "names"),
        (num_expressions, _MAX_EXPRESSIONS, "regular expressions"),
    ):
        if count > most:
            raise wrong(patterns, f"has {count} {what}, more than {most}")
    others = []
    for pattern, value in given.items():
        try:
            matches = matcher(pattern)
        except ValueError as error:
            raise wrong(patterns, f"has {shown(pattern)}, which is not taken: {error}") from error
        others.append((matches, read(patterns, value)))
    return ByModule(read(key, values.get(key)), others)


def _rank(key: str, value: Any) -> int:
    if type(value) is not int or not 1 <= value <= _MAX_RANK:
        raise wrong(key, f"has {shown(value)}, which is no rank")
    return value


def _alpha(key: str, value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise wrong(key, f"has {shown(value)}, which is no number")
    return float(value)
