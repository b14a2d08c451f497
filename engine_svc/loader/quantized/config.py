"""Reads `quantization_config` of a config.json: which method, and which matrices it has how.

What cannot be served is refused here by its key, before a weight is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_svc.loader.quantized.compressed_tensors import read_compressed_tensors
from engine_svc.loader.quantized.fields import Fields
from engine_svc.loader.quantized.fp8 import Fp8Linear
from engine_svc.loader.quantized.packed_words import AwqLinear, GptqLinear
from engine_svc.loader.quantized.rules import Quantization, Rule
from engine_svc.models.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_KEYS = ("quantization_config", "compression_config")


def read_quantization(config: Mapping[str, Any]) -> Quantization | None:
    """What a model's configuration says of its quantisation; None if it has none.

    Raises ModelError, naming the key, for what is not supported.
    """
    text = config.get("text_config") or {}
    for where in (config, text):
        for key in _KEYS:
            if found := where.get(key):
                return _read(Fields.of(found, key))
    return None


def _read(fields: Fields) -> Quantization:
    method = fields.text("quant_method", "none given")
    if method not in _METHODS:
        raise ModelError(
            f"{fields.where}: quant_method {method!r} is not supported; {', '.join(_METHODS)} are"
        )
    return _METHODS[method](fields)


def _awq(fields: Fields) -> Quantization:
    bits = fields.integer("bits", fields.get("w_bit", 4))
    layout = fields.text("version", fields.get("format", "gemm")).lower()
    if bits != 4:
        raise fields.refusal("bits", bits, "AWQ with 4 bits is")
    if layout != "gemm":
        raise fields.refusal("version", layout, "AWQ's gemm layout is")
    if not fields.flag("zero_point", default=True):
        raise fields.refusal("zero_point", False, "AWQ with zero points is")
    group = fields.group_size(fields.get("q_group_size", 128))
    return Quantization(
        method="awq",
        rules=(Rule(AwqLinear(group)),),
        ignored=fields.texts("modules_to_not_convert"),
    )


def _gptq(fields: Fields) -> Quantization:
    bits = fields.integer("bits")
    if bits not in (4, 8):
        raise fields.refusal("bits", bits, "GPTQ with 4 or 8 bits is")
    layout = fields.text("checkpoint_format", fields.get("format", "gptq")).lower()
    if layout not in ("gptq", "gptq_v2"):
        raise fields.refusal("checkpoint_format", layout, "gptq and gptq_v2 are")
    for key, neutral in (("is_marlin_format", False), ("pack_dtype", "int32"), ("adapter", None)):
        if (value := fields.get(key)) not in (None, neutral):
            raise fields.refusal(key, value, "GPTQ's own layout in int32 is")
    skipped = []
    for pattern, change in fields.mapping("dynamic").items():
        if not pattern.startswith("-:"):
            raise ModelError(
                f"{fields.where}: dynamic changes {change} for {pattern!r}; matrices quantised in "
                "several ways are not supported"
            )
        skipped.append("re:" + pattern.removeprefix("-:"))
    linear = GptqLinear(
        bits=bits,
        group=fields.group_size(128),
        symmetric=fields.flag("sym", default=True),
        act_order=fields.flag("desc_act", default=False),
        zeros_less_one=layout == "gptq",
    )
    return Quantization(
        method="gptq",
        rules=(Rule(linear),),
        ignored=(*fields.texts("modules_to_not_convert"), *skipped),
        head=fields.flag("lm_head", default=False),
    )


def _fp8(fields: Fields) -> Quantization:
    if (kind := fields.text("fmt", "e4m3")) != "e4m3":
        raise fields.refusal("fmt", kind, "e4m3 is")
    block = fields.get("weight_block_size")
    linear = Fp8Linear((0, 0) if block is None else fields.sizes("weight_block_size"))
    return Quantization(
        method="fp8",
        rules=(Rule(linear),),
        ignored=(*fields.texts("modules_to_not_convert"), *fields.texts("ignored_layers")),
    )


_METHODS: Mapping[str, Callable[[Fields], Quantization]] = {
    "awq": _awq,
    "gptq": _gptq,
    "fp8": _fp8,
    "compressed-tensors": read_compressed_tensors,
}
