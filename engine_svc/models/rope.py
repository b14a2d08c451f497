"""Rotary settings of a configuration as a `RopeSpec`.

Two shapes are in use. The older has `rope_theta` and `rope_scaling` at the top; transformers 5 has
one `rope_parameters` that holds both. Meanings and defaults: transformers' modeling_rope_utils.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from engine_svc.models.errors import ModelError
from engine_svc.models.fields import Fields, checked_number
from kernels.spec import RopeKind, RopeSpec

DEFAULT_THETA = 10_000.0

_KNOWN_KEYS = {
    "type", "rope_type", "rope_theta", "factor", "low_freq_factor", "high_freq_factor",
    "original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor", "mscale",
    "mscale_all_dim", "truncate", "partial_rotary_factor", "finetuned",
}  # fmt: skip


def rope_parameters(fields: Fields) -> dict[str, Any]:
    """The settings of a model whose layers all rotate alike, in the newer shape."""
    scaling = fields.values.get("rope_scaling") or fields.values.get("rope_parameters") or {}
    if not isinstance(scaling, Mapping):
        raise ModelError(f"configuration: rope settings must be an object, got {scaling!r}")
    return {"rope_theta": fields.values.get("rope_theta") or DEFAULT_THETA} | dict(scaling)


def rope_spec(fields: Fields, parameters: Mapping[str, Any]) -> RopeSpec:
    """One layer kind's rotary embedding. Raises ModelError naming what is not supported."""
    if unknown := sorted(set(parameters) - _KNOWN_KEYS):
        raise ModelError(f"configuration: rope setting {unknown[0]!r} is not supported")
    if parameters.get("partial_rotary_factor", 1.0) not in (None, 1, 1.0):
        raise ModelError("configuration: partial_rotary_factor other than 1 is not supported")
    kind = rope_type(parameters)
    theta = _number(parameters, "rope_theta", DEFAULT_THETA)
    if kind in ("default", "dynamic"):  # see `is_dynamic`
        return RopeSpec(theta=theta)
    if kind not in {k.value for k in RopeKind}:
        known = ", ".join([*RopeKind, "dynamic"])
        raise ModelError(f"configuration: rope type {kind!r} is not supported (known: {known})")
    factor = _number(parameters, "factor", None)
    if kind == RopeKind.LINEAR:
        return RopeSpec(theta=theta, kind=RopeKind.LINEAR, factor=factor)
    original = (
        fields.optional_size("original_max_position_embeddings")
        or parameters.get("original_max_position_embeddings")
        or fields.size("max_position_embeddings")
    )
    original = int(checked_number("original_max_position_embeddings", original))
    if kind == RopeKind.LLAMA3:
        return RopeSpec(
            theta=theta,
            kind=RopeKind.LLAMA3,
            factor=factor,
            low_freq_factor=_number(parameters, "low_freq_factor", None),
            high_freq_factor=_number(parameters, "high_freq_factor", None),
            original_max_position=original,
        )
    return RopeSpec(
        theta=theta,
        kind=RopeKind.YARN,
        factor=factor,
        original_max_position=original,
        beta_fast=_number(parameters, "beta_fast", 32.0),
        beta_slow=_number(parameters, "beta_slow", 1.0),
        attention_factor=_yarn_attention_factor(parameters, factor),
        truncate=parameters.get("truncate", True) is not False,
    )


def rope_type(parameters: Mapping[str, Any]) -> str:
    """The kind by its name in the configuration."""
    return str(parameters.get("rope_type") or parameters.get("type") or "default")


def is_dynamic(fields: Fields) -> bool:
    """Whether the model's rotary base depends on how long the sequence has become.

    Up to the trained length nothing is scaled. Beyond it every new token changes the base of all
    earlier keys, so that what is cached would be wrong; such models are served up to that length.
    """
    settings = rope_parameters(fields)
    nested = [s for s in settings.values() if isinstance(s, Mapping)]
    return any(rope_type(s) == "dynamic" for s in [settings, *nested])


def max_position(fields: Fields, rope: RopeSpec) -> int:
    """Tokens that the model can tell apart: scaling stretches the length it was trained with."""
    trained = fields.size("max_position_embeddings")
    if rope.kind == RopeKind.LINEAR:
        return int(trained * rope.factor)
    if rope.kind == RopeKind.YARN:
        return max(trained, int(rope.original_max_position * rope.factor))
    return trained


def _number(parameters: Mapping[str, Any], key: str, default: float | None) -> float:
    value = parameters.get(key)
    if value is None and default is None:
        raise ModelError(f"configuration: rope type {rope_type(parameters)!r} needs {key}")
    return checked_number(key, default if value is None else value)


def _yarn_attention_factor(parameters: Mapping[str, Any], factor: float) -> float:
    """YaRN (arXiv 2309.00071) eq. 22, and its variant with two separate multipliers."""
    if parameters.get("attention_factor") is not None:
        return _number(parameters, "attention_factor", None)

    def magnitude(multiplier: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * multiplier * math.log(factor) + 1.0

    if parameters.get("mscale") and parameters.get("mscale_all_dim"):
        upper, lower = (_number(parameters, key, None) for key in ("mscale", "mscale_all_dim"))
        return magnitude(upper) / magnitude(lower)
    return magnitude(1.0)
