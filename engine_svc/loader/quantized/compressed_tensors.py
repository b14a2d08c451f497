"""The `quantization_config` of compressed-tensors, as llm-compressor writes it.

config_groups  {name: {targets, weights: {num_bits, type, strategy, …}, input_activations, …}}
Format: https://github.com/vllm-project/compressed-tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_svc.loader.quantized.fields import Fields
from engine_svc.loader.quantized.fp8 import Fp8Linear
from engine_svc.loader.quantized.rules import Quantization, Rule
from engine_svc.loader.quantized.signed_bytes import WHOLE, IntLinear, PackedLinear
from engine_svc.models.errors import ModelError

if TYPE_CHECKING:
    from engine_svc.loader.quantized.linear import LinearFormat

_PACKED, _INT, _FLOAT, _NAIVE = (
    "pack-quantized",
    "int-quantized",
    "float-quantized",
    "naive-quantized",
)


def read_compressed_tensors(fields: Fields) -> Quantization:
    """Raises ModelError, naming the key, for what is not supported."""
    status = fields.text("quantization_status", "compressed")
    if status != "compressed":
        raise fields.refusal("quantization_status", status, "compressed is")
    sparsity = fields.object("sparsity_config")
    if (kind := sparsity.text("format", "dense")) != "dense":
        raise sparsity.refusal("format", kind, "only dense weights are")
    if fields.object("transform_config").mapping("config_groups"):
        raise ModelError(f"{fields.where}: transform_config is set, but rotations are unsupported")
    groups = fields.object("config_groups")
    if not groups.values:
        raise ModelError(f"{fields.where}: config_groups is missing")
    rules = tuple(
        _rule(Fields.of(value, f"{groups.where}.{name}"), fields.get("format"))
        for name, value in groups.values.items()
    )
    return Quantization(
        method="compressed-tensors",
        rules=rules,
        ignored=fields.texts("ignore"),
        head=True,  # a Linear like others, unless it is ignored
    )


def _rule(group: Fields, layout: object) -> Rule:
    if group.get("output_activations") is not None:
        raise ModelError(f"{group.where}: output_activations are not supported")
    weights = group.object("weights")
    if not weights.values:
        raise ModelError(f"{group.where}: weights is missing; only quantised weights are supported")
    if weights.flag("dynamic", default=False):
        raise weights.refusal("dynamic", True, "weights have scales of their own in the file")
    weights_only = group.get("input_activations") is None
    format_ = _format(weights, group.get("format", layout), weights_only=weights_only)
    return Rule(format_, group.texts("targets"))


def _format(weights: Fields, layout: object, *, weights_only: bool) -> LinearFormat:
    kind, bits = weights.text("type", "int"), weights.integer("num_bits", 8)
    symmetric = weights.flag("symmetric", default=True)
    if kind == "float":
        if bits != 8 or layout not in (_FLOAT, _NAIVE) or not symmetric:
            raise _unsupported(weights, layout)
        return Fp8Linear(_block(weights), weights_only)
    if kind != "int":
        raise _unsupported(weights, layout)
    group = _group(weights)
    if layout == _PACKED and bits in (4, 8):
        order = weights.get("actorder")
        if order not in (None, False, True, "group", "weight", "static", "dynamic"):
            raise weights.refusal("actorder", order, "group and weight are")
        by_group = order in (True, "group", "dynamic")
        return PackedLinear(bits, group, symmetric, act_order=by_group and group > 0)
    if layout in (_INT, _NAIVE) and bits == 8:
        return IntLinear(group, symmetric)
    raise _unsupported(weights, layout)


def _strategy(weights: Fields) -> str:
    if (found := weights.get("strategy")) is not None:
        return str(found)
    size = weights.get("group_size")
    return "tensor" if size is None else "channel" if size == -1 else "group"


def _group(weights: Fields) -> int:
    strategy = _strategy(weights)
    if strategy == "group":
        return weights.group_size()
    if strategy in ("channel", "tensor"):
        return -1 if strategy == "channel" else WHOLE
    raise weights.refusal("strategy", strategy, "tensor, channel and group are")


def _block(weights: Fields) -> tuple[int, int]:
    strategy = _strategy(weights)
    if strategy == "block":
        return weights.sizes("block_structure")
    if strategy == "group":
        return 1, weights.group_size()
    if strategy in ("channel", "tensor"):
        return (1, 0) if strategy == "channel" else (0, 0)
    raise weights.refusal("strategy", strategy, "tensor, channel, group and block are")


def _unsupported(weights: Fields, layout: object) -> ModelError:
    told = ", ".join(f"{key} {weights.get(key)!r}" for key in ("type", "num_bits", "symmetric"))
    return ModelError(
        f"{weights.where}: {told} in format {layout!r} is not supported; int of 4 or 8 bits in "
        f"{_PACKED}, of 8 bits in {_INT} and symmetric float of 8 bits in {_FLOAT} are"
    )
