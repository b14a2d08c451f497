"""adapter_config.json as PEFT writes it (huggingface/peft, `LoraConfig`).

It has to describe W + scale·B·A and nothing else, with

    scale = lora_alpha / r        or lora_alpha / sqrt(r) with use_rslora (arXiv:2312.03732)

`rank_pattern` and `alpha_pattern` give modules other values, by the ends of their names.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from engine_svc.models.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_T = TypeVar("_T")

CONFIG = "adapter_config.json"
_MAX_BYTES = 1 << 20
_MAX_RANK = 1 << 16
_MAX_PATTERNS = 4096  # each is held against each matrix
_MODULE = re.compile(r"[\w-]+(\.[\w-]+)*", re.ASCII)

# What would change the result, with the values that leave it off.
_REFUSED: dict[str, tuple[str, tuple[Any, ...]]] = {
    "use_dora": ("weights that are also scaled by magnitudes (DoRA)", (False,)),
    "bias": ("biases that were trained along", ("none",)),
    "lora_bias": ("biases of its matrices", (False,)),
    "modules_to_save": ("modules that were trained whole", ([],)),
    "fan_in_fan_out": ("transposed weights", (False,)),
    "layer_replication": ("layers that are used twice", ([],)),
    "trainable_token_indices": ("embeddings that were trained along", ([], {})),
    "target_parameters": ("parameters outside linear modules", ([],)),
    "alora_invocation_tokens": ("an adapter that begins in the middle of a prompt (aLoRA)", ([],)),
    "use_qalora": ("pooled inputs (QA-LoRA)", (False,)),
    "use_bdlora": ("block-diagonal matrices (BD-LoRA)", (False,)),
    "arrow_config": ("routing between adapters (Arrow)", ({},)),
}
# Ways to begin that leave the model's own weights as they are; the others take their matrices out
# of these, so that they fit the model only as it was changed.
_PLAIN_STARTS = (None, True, False, "gaussian", "eva", "orthogonal")
# Bear on training, on where tensors are (which the tensors say themselves), or on nothing.
_KNOWN = frozenset({
    "peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern",
    "base_model_name_or_path", "init_lora_weights", "target_modules", "exclude_modules",
    "layers_to_transform", "layers_pattern", "lora_dropout", "task_type", "inference_mode",
    "auto_mapping", "revision", "peft_version", "megatron_config", "megatron_core", "loftq_config",
    "eva_config", "corda_config", "lora_ga_config", "runtime_config", "qalora_group_size",
    "ensure_weight_tying",
})  # fmt: skip
_EMBEDDINGS = ("embed_tokens", "lm_head", "wte", "embed_out")


@dataclass(frozen=True, slots=True)
class PeftConfig:
    """What of an adapter its tensors do not say."""

    rank: int
    alpha: float
    rank_stabilised: bool
    ranks: Mapping[str, int]  # by the end of a module's name
    alphas: Mapping[str, float]
    target_modules: tuple[str, ...]  # names of modules, where they are listed
    base_model: str
    notices: tuple[str, ...]

    @property
    def max_rank(self) -> int:
        """The largest rank that it gives."""
        return max((self.rank, *self.ranks.values()))

    def rank_of(self, module: str) -> int:
        """The rank of a module's matrices, by its whole name."""
        return _by_pattern(self.ranks, module, self.rank)

    def scale_of(self, module: str) -> float:
        """What a module's B·A is multiplied by."""
        rank = self.rank_of(module)
        alpha = _by_pattern(self.alphas, module, self.alpha)
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
    if values.get("peft_type") != "LORA":
        raise _wrong("peft_type", f"is {_shown(values.get('peft_type'))}; only LORA is served")
    for key, (feature, neutral) in _REFUSED.items():
        value = values.get(key)
        if value is not None and not any(value == off for off in neutral):
            raise _wrong(key, f"is {_shown(value)}: {feature} cannot be served")
    start = values.get("init_lora_weights")
    if not any(start is plain or start == plain for plain in _PLAIN_STARTS):
        raise _wrong(
            "init_lora_weights",
            f"is {_shown(start)}: such an adapter fits the model only as its training began by "
            "changing it; save it with path_initial_model_for_weight_conversion",
        )
    if values.get("use_rslora") not in (None, False, True):
        raise _wrong("use_rslora", f"is {_shown(values['use_rslora'])}")
    known = _KNOWN | _REFUSED.keys()
    unknown = [k for k, v in values.items() if k not in known and v not in (None, False, [], {})]
    notices = []
    if unknown:
        notices.append(f"{CONFIG}: unknown keys are ignored: {', '.join(sorted(unknown)[:8])}")
    base = values.get("base_model_name_or_path")
    return PeftConfig(
        rank=_rank("r", values.get("r")),
        alpha=_alpha("lora_alpha", values.get("lora_alpha")),
        rank_stabilised=values.get("use_rslora") is True,
        ranks={key: _rank("rank_pattern", v) for key, v in _patterns(values, "rank_pattern")},
        alphas={key: _alpha("alpha_pattern", v) for key, v in _patterns(values, "alpha_pattern")},
        target_modules=_targets(values.get("target_modules")),
        base_model=base if isinstance(base, str) else "",
        notices=tuple(notices),
    )


def _targets(value: Any) -> tuple[str, ...]:
    """The modules that are listed; an expression that finds them says no more than the tensors."""
    names = tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()
    for name in names:
        if name.rpartition(".")[2] in _EMBEDDINGS:
            raise _wrong("target_modules", f"has {name}: embeddings and heads have no adapters")
    return names


def _patterns(values: Mapping[str, Any], key: str) -> list[tuple[str, Any]]:
    """Ends of modules' names with their values.

    PEFT takes them for regular expressions. Those that are names alone are read here: others could
    take forever to match.
    """
    given = values.get(key) or {}
    if not isinstance(given, dict):
        raise _wrong(key, "must be an object")
    if len(given) > _MAX_PATTERNS:
        raise _wrong(key, f"has {len(given)} names, more than {_MAX_PATTERNS}")
    found = []
    for pattern, value in given.items():
        name = pattern.removeprefix("^").removesuffix("$").replace("\\.", ".")
        if not _MODULE.fullmatch(name):
            raise _wrong(key, f"has {_shown(pattern)}, which is no name of modules")
        found.append((f"^{name}" if pattern.startswith("^") else name, value))
    return found


def _by_pattern(patterns: Mapping[str, _T], module: str, default: _T) -> _T:
    """The value of the first pattern that is the module's name or ends it, whole parts only."""
    for pattern, value in patterns.items():
        if f"^{module}" == pattern or module == pattern or module.endswith(f".{pattern}"):
            return value
    return default


def _rank(key: str, value: Any) -> int:
    if type(value) is not int or not 1 <= value <= _MAX_RANK:
        raise _wrong(key, f"has {_shown(value)}, which is no rank")
    return value


def _alpha(key: str, value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise _wrong(key, f"has {_shown(value)}, which is no number")
    return float(value)


def _shown(value: Any) -> str:
    """A value from the file, cut to what a message can hold."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def _wrong(key: str, message: str) -> ModelError:
    return ModelError(f"{CONFIG}: {key} {message}")
