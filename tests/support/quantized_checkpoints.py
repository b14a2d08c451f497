"""Writes quantised checkpoints in the layouts of AutoAWQ, AutoGPTQ, DeepSeek and llm-compressor.

Rounding is plain (to nearest, no calibration); what matters is where each bit goes. Every layout is
written from its definition, one word at a time, and says which values it means. It shares nothing
with the loader.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import orjson
import torch
from safetensors.torch import load_file, save_file

Tensors: TypeAlias = dict[str, torch.Tensor]
Config: TypeAlias = dict[str, Any]
DENSE_ENDS = ("embed_tokens.weight", "lm_head.weight", "norm.weight", "bias")


@dataclass(frozen=True)
class Matrix:
    """One quantised matrix: its tensors by their names after the module's, and what they mean."""

    tensors: Tensors
    meant: torch.Tensor  # [out, in] float32


@dataclass(frozen=True)
class Layout:
    """How matrices are written, and what config.json says of it."""

    write: Callable[[torch.Tensor], Matrix]
    config: Config
    ignored: tuple[str, ...] = field(default=())  # ends of modules' names that stay dense
    head: bool = False  # whether the head is quantised too


def quantize_checkpoint(dense: Path, out: Path, layout: Layout) -> Tensors:
    """Writes the single-file checkpoint `dense` to the directory `out`, quantised.

    Returns all weights that it means, in float32, by the names that they have in `dense`.
    """
    shutil.copytree(dense, out, ignore=shutil.ignore_patterns("*.safetensors"))
    tensors: Tensors = {}
    meant: Tensors = {}
    for name, weight in load_file(dense / "model.safetensors").items():
        module = name.removesuffix(".weight")
        is_head = layout.head and name == "lm_head.weight"
        if not is_head and (name.endswith(DENSE_ENDS) or module.endswith(layout.ignored or ("?",))):
            tensors[name] = weight
            meant[name] = weight.float()
            continue
        matrix = layout.write(weight.float())
        tensors |= {f"{module}.{part}": tensor for part, tensor in matrix.tensors.items()}
        meant[name] = matrix.meant
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        out / "model.safetensors",
        metadata={"format": "pt"},
    )
    path = out / "config.json"
    config = orjson.loads(path.read_bytes()) | {"quantization_config": layout.config}
    path.write_bytes(orjson.dumps(config, option=orjson.OPT_INDENT_2))
    return meant


@dataclass(frozen=True)
class Rounded:
    """Codes [out, in], scales and zero points [out, groups]: w = scale · (code - zero)."""

    codes: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor

    def meant(self, group_of: torch.Tensor) -> torch.Tensor:
        """The weights, by the group of each column."""
        scales = self.scales.float()[:, group_of]
        return scales * (self.codes - self.zeros[:, group_of]).float()


def round_groups(
    weight: torch.Tensor, group_of: torch.Tensor, bits: int, *, symmetric: bool, scale_type: Any
) -> Rounded:
    """To nearest, by the least and the largest weight of each group."""
    most, middle = 2**bits - 1, 2 ** (bits - 1)
    scales, zeros = [], []
    codes = torch.zeros(weight.shape, dtype=torch.int64)
    for group in range(int(group_of.max()) + 1):
        columns = group_of == group
        some = weight[:, columns]
        if symmetric:
            scale = some.abs().amax(1) / (middle - 0.5)
            zero = torch.full_like(scale, middle)
        else:
            low, high = some.amin(1).clamp(max=0), some.amax(1).clamp(min=0)
            scale = (high - low) / most
            zero = (-low / scale.clamp(min=1e-9)).round().clamp(0, most)
        scale = scale.clamp(min=1e-6).to(scale_type)
        codes[:, columns] = (
            ((some / scale.float()[:, None]).round() + zero[:, None]).clamp(0, most).long()
        )
        scales.append(scale)
        zeros.append(zero.long())
    return Rounded(codes, torch.stack(scales, 1), torch.stack(zeros, 1))


def _groups(num_in: int, group_size: int) -> torch.Tensor:
    return torch.arange(num_in) // (num_in if group_size == -1 else group_size)


def _words(values: torch.Tensor, bits: int) -> torch.Tensor:
    """[n, 32 / bits, …] to int32 [n, …]: the first value of each in the lowest bits."""
    places = bits * torch.arange(values.shape[1]).reshape(-1, *[1] * (values.dim() - 2))
    unsigned = (values.long() << places).sum(1)
    return torch.where(unsigned < 1 << 31, unsigned, unsigned - (1 << 32)).to(torch.int32)


def pack(values: torch.Tensor, bits: int, dim: int) -> torch.Tensor:
    """Neighbours along `dim` into words of 32 bits; what is missing in the last is zero."""
    per_word = 32 // bits
    moved = values.movedim(dim, 0)
    missing = -len(moved) % per_word
    padded = torch.cat((moved, torch.zeros(missing, *moved.shape[1:], dtype=moved.dtype)))
    return _words(padded.reshape(-1, per_word, *moved.shape[1:]), bits).movedim(0, dim)


def pack_awq(values: torch.Tensor) -> torch.Tensor:
    """[n, out] to [n, out / 8]: place i of a word has its output 0 2 4 6 1 3 5 7."""
    eights = values.reshape(len(values), -1, 8).movedim(2, 1)  # [n, 8, out / 8]
    return _words(eights[:, [0, 2, 4, 6, 1, 3, 5, 7]], 4)


def awq(group_size: int = 32, *, scale_type: Any = torch.float16, ignored: Any = ()) -> Layout:
    """AutoAWQ's GEMM."""

    def write(weight: torch.Tensor) -> Matrix:
        groups = _groups(weight.shape[1], group_size)
        rounded = round_groups(weight, groups, 4, symmetric=False, scale_type=scale_type)
        tensors = {
            "qweight": pack_awq(rounded.codes.T),
            "qzeros": pack_awq(rounded.zeros.T),
            "scales": rounded.scales.T,
        }
        return Matrix(tensors, rounded.meant(groups))

    config = {
        "quant_method": "awq",
        "bits": 4,
        "group_size": group_size,
        "version": "gemm",
        "zero_point": True,
        "modules_to_not_convert": list(ignored) or None,
    }
    return Layout(write, config, tuple(ignored))


def gptq(
    group_size: int = 32,
    *,
    bits: int = 4,
    sym: bool = True,
    desc_act: bool = False,
    version: int = 1,
    with_g_idx: bool = True,
    head: bool = False,
) -> Layout:
    """AutoGPTQ's; version 2 is GPTQModel's other one, whose zero points are not lowered."""

    def write(weight: torch.Tensor) -> Matrix:
        groups = _groups(weight.shape[1], group_size)
        if desc_act:
            shuffle = torch.randperm(len(groups), generator=torch.Generator().manual_seed(0))
            groups = groups[shuffle]
        rounded = round_groups(weight, groups, bits, symmetric=sym, scale_type=torch.float16)
        # GPTQModel takes one off each zero point of a word at once, with borrows between them.
        ones = sum(1 << place for place in range(0, 32, bits)) if version == 1 else 0
        tensors = {
            "qweight": pack(rounded.codes.T, bits, 0),
            "qzeros": pack(rounded.zeros.T, bits, 1) - ones,
            "scales": rounded.scales.T,
            "g_idx": groups.to(torch.int32),
        }
        if not with_g_idx:
            del tensors["g_idx"]
        return Matrix(tensors, rounded.meant(groups))

    config = {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": group_size,
        "sym": sym,
        "desc_act": desc_act,
        "damp_percent": 0.1,
        "checkpoint_format": "gptq" if version == 1 else "gptq_v2",
        "lm_head": head,
    }
    return Layout(write, config, head=head)


def fp8(block: tuple[int, int] | None = None, *, scale_name: str = "weight_scale") -> Layout:
    """One scale for each matrix, or one for each block, which DeepSeek calls its inverse."""

    def write(weight: torch.Tensor) -> Matrix:
        rows, cols = block or weight.shape
        scales = torch.zeros(-(-weight.shape[0] // rows), -(-weight.shape[1] // cols))
        stored = torch.zeros(weight.shape, dtype=torch.float8_e4m3fn)
        meant = torch.zeros_like(weight)
        for i in range(scales.shape[0]):
            for j in range(scales.shape[1]):
                part = (
                    slice(i * rows, (i + 1) * rows),
                    slice(j * cols, (j + 1) * cols),
                )
                scales[i, j] = weight[part].abs().max().clamp(min=1e-6) / 448
                stored[part] = (weight[part] / scales[i, j]).to(torch.float8_e4m3fn)
                meant[part] = stored[part].float() * scales[i, j]
        name, kept = scale_name, scales[0, 0]
        if block is not None:
            name, kept = "weight_scale_inv", scales
        return Matrix({"weight": stored, name: kept}, meant)

    config: Config = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3"}
    if block is not None:
        config["weight_block_size"] = list(block)
    return Layout(write, config)


def _compressed(
    write: Callable[[torch.Tensor], Matrix], layout: str, weights: Config, ignored: Any = ()
) -> Layout:
    activations = None if layout == "pack-quantized" else {"num_bits": 8, "dynamic": True}
    group = {
        "targets": ["Linear"],
        "weights": {"dynamic": False, "observer": "minmax", **weights},
        "input_activations": activations,
        "output_activations": None,
    }
    config = {
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
        "format": layout,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head", *ignored],
        "kv_cache_scheme": None,
    }
    return Layout(write, config, tuple(ignored))


def compressed_words(
    group_size: int = 32,
    *,
    bits: int = 4,
    symmetric: bool = True,
    act_order: bool = False,
    ignored: Any = (),
) -> Layout:
    """pack-quantized: weights only, in groups or (-1) with a scale for each output."""

    def write(weight: torch.Tensor) -> Matrix:
        groups = _groups(weight.shape[1], group_size)
        if act_order:
            shuffle = torch.randperm(len(groups), generator=torch.Generator().manual_seed(0))
            groups = groups[shuffle]
        rounded = round_groups(weight, groups, bits, symmetric=symmetric, scale_type=torch.bfloat16)
        tensors = {
            "weight_packed": pack(rounded.codes, bits, 1),
            "weight_scale": rounded.scales,
            "weight_shape": torch.tensor(weight.shape),
        }
        if not symmetric:
            tensors["weight_zero_point"] = pack(rounded.zeros, bits, 0)
        if act_order:
            tensors["weight_g_idx"] = groups.to(torch.int32)
        return Matrix(tensors, rounded.meant(groups))

    weights = {
        "num_bits": bits,
        "type": "int",
        "symmetric": symmetric,
        "strategy": "channel" if group_size == -1 else "group",
        "group_size": None if group_size == -1 else group_size,
        "actorder": "group" if act_order else None,
    }
    return _compressed(write, "pack-quantized", weights, ignored)


def compressed_int8(*, symmetric: bool = True) -> Layout:
    """int-quantized: int8 with a scale for each output."""

    def write(weight: torch.Tensor) -> Matrix:
        groups = _groups(weight.shape[1], -1)
        rounded = round_groups(weight, groups, 8, symmetric=symmetric, scale_type=torch.bfloat16)
        tensors = {
            "weight": (rounded.codes - 128).to(torch.int8),
            "weight_scale": rounded.scales,
        }
        if not symmetric:
            tensors["weight_zero_point"] = (rounded.zeros - 128).to(torch.int8)
        return Matrix(tensors, rounded.meant(groups))

    weights = {"num_bits": 8, "type": "int", "symmetric": symmetric, "strategy": "channel"}
    return _compressed(write, "int-quantized", weights)


def compressed_fp8() -> Layout:
    """float-quantized: fp8 with a scale for each output."""

    def write(weight: torch.Tensor) -> Matrix:
        scale = (weight.abs().amax(1, keepdim=True).clamp(min=1e-6) / 448).to(torch.bfloat16)
        stored = (weight / scale.float()).clamp(-448, 448).to(torch.float8_e4m3fn)
        return Matrix({"weight": stored, "weight_scale": scale}, stored.float() * scale.float())

    weights = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel"}
    return _compressed(write, "float-quantized", weights)


ONE_OF_EACH = {
    "awq": awq(),
    "gptq": gptq(desc_act=True),
    "fp8": fp8((48, 40)),
    "compressed-tensors": compressed_words(symmetric=False),
}
"""A layout of each method, by its name."""
