"""Kernels that treat each row by itself: norms, activations, rotation, the cache, codes."""

from __future__ import annotations

import torch

from kernels.gpu.activation import gated_activation, gated_activation_quantised
from kernels.gpu.kv_cache_write import kv_cache_write
from kernels.gpu.qk_norm_rope_cache_write import qk_norm_rope_cache_write
from kernels.gpu.quantization import RowFormat, quantise_rows
from kernels.gpu.rms_norm import add_rms_norm, add_rms_norm_quantised, rms_norm
from kernels.reference.activation import gated_activation as reference_activation
from kernels.reference.kv_cache_write import kv_cache_write as reference_write
from kernels.reference.rms_norm import rms_norm as reference_norm
from kernels.reference.rope import rope, rope_table
from kernels.spec import Activation, RopeSpec
from tests.gpu_check.comparing import Comparison
from tests.gpu_check.device import Device
from tests.gpu_check.outcome import Findings

SIZES = (576, 896, 1536, 4096, 14336)
_EPS = 1e-5


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _sizes(device: Device) -> tuple[int, ...]:
    return SIZES if not device.is_interpreted else (96,)


def check_norms(device: Device, dtype: torch.dtype) -> Findings:
    """`rms_norm` and `add_rms_norm`, with and without the norm of what is added."""
    comparison, on = Comparison(dtype), device.torch_device
    for size in _sizes(device):
        x, residual = _random(9, size).to(dtype), _random(9, size, seed=1).to(dtype)
        scale, post = _random(size, seed=2).to(dtype), _random(size, seed=3).to(dtype)
        result = rms_norm(x.to(on), scale.to(on), _EPS)
        comparison.near(f"norm of {size}", result, reference_norm(x.float(), scale.float(), _EPS))
        for post_scale in (None, post):
            summed = residual.to(on)
            added = x if post_scale is None else reference_norm(x, post_scale, _EPS)
            expected_sum = residual + added
            result = add_rms_norm(
                x.to(on), summed, scale.to(on), _EPS,
                None if post_scale is None else post_scale.to(on),
            )  # fmt: skip
            comparison.near(f"sum of {size}", summed, expected_sum)
            # Of the sum that the kernel stored: its rounding is not to count twice.
            expected = reference_norm(summed.cpu().float(), scale.float(), _EPS)
            comparison.near(f"norm of a sum of {size}", result, expected)
    return comparison.findings()


def check_activations(device: Device, dtype: torch.dtype) -> Findings:
    """silu and gelu, times up."""
    comparison = Comparison(dtype)
    for size in _sizes(device):
        gate_up = _random(9, 2 * size).to(dtype)
        on_device = gate_up.to(device.torch_device)
        for kind in Activation:
            result = gated_activation(kind, on_device[:, :size], on_device[:, size:])
            expected = reference_activation(kind, gate_up.float().clone())
            comparison.near(f"{kind} of {size}", result, expected)
    return comparison.findings()


def check_codes(device: Device, dtype: torch.dtype) -> Findings:
    """Rows as int8 and e4m3, alone and made by the kernel before: within half a step."""
    comparison, on = Comparison(dtype), device.torch_device
    for size in _sizes(device):
        x = _random(9, size).to(dtype)
        scale = _random(size, seed=2).to(dtype)
        for format_ in RowFormat:
            rows = quantise_rows(x.to(on), format_)
            largest = x.float().abs().amax(1, keepdim=True)
            limit = 127.0 if format_ is RowFormat.INT8 else 448.0
            expected = x.float() * (limit / largest)
            codes = rows.codes.cpu().float()
            step = 0.501 if format_ is RowFormat.INT8 else expected.abs() / 16 + 2**-9
            off = ((codes - expected).abs() - step).max()
            comparison.near(f"{format_} of {size}", off.clamp(min=0), torch.zeros(()))
            gated = gated_activation_quantised(Activation.SILU, x.to(on), x.to(on), format_)
            apart = quantise_rows(gated_activation(Activation.SILU, x.to(on), x.to(on)), format_)
            comparison.equal(f"{format_} of silu", gated.stored, apart.stored)
            residual = torch.zeros_like(x, device=on)
            normed = add_rms_norm_quantised(x.to(on), residual, scale.to(on), _EPS, format_)
            apart = quantise_rows(rms_norm(x.to(on), scale.to(on), _EPS), format_)
            comparison.equal(f"{format_} of a norm", normed.stored, apart.stored)
    return comparison.findings()


def check_rotation(device: Device, dtype: torch.dtype) -> Findings:
    """Norms of heads, rotation and the write to the cache in one."""
    comparison, on = Comparison(dtype), device.torch_device
    shapes = [(9, 3, 64), (12, 2, 128), (32, 8, 128), (4, 1, 256), (5, 5, 80)]
    for num_heads, num_kv_heads, head_dim in shapes if not device.is_interpreted else shapes[:1]:
        table = rope_table(RopeSpec(theta=1e6), head_dim, 64, dtype)
        positions = torch.tensor([0, 1, 63, 17, 30], dtype=torch.int32)
        slots = torch.tensor([37, 2, 16, 5, 31], dtype=torch.int32)
        qkv = _random(5, num_heads + 2 * num_kv_heads, head_dim).to(dtype)
        qk_heads = num_heads + num_kv_heads
        for norm in (None, _random(qk_heads, head_dim, seed=4).to(dtype)):
            qk = qkv[:, :qk_heads]
            if norm is not None:
                qk = reference_norm(qk, norm, _EPS)
            turned = rope(qk, *table.rows(positions))
            expected = torch.zeros(2, 3, num_kv_heads, 16, head_dim, dtype=dtype)
            reference_write(turned[:, num_heads:], qkv[:, qk_heads:], *expected, slots)
            caches = torch.zeros_like(expected, device=on)
            result = qkv.to(on)
            qk_norm_rope_cache_write(
                result, positions.to(on), table.cos.to(on), table.sin.to(on), *caches,
                slots.to(on), num_heads=num_heads, eps=_EPS,
                qk_norm=None if norm is None else norm.to(on),
            )  # fmt: skip
            case = f"{num_heads}/{num_kv_heads} heads of {head_dim}"
            comparison.near(f"queries of {case}", result[:, :num_heads], turned[:, :num_heads])
            comparison.near(f"keys of {case}", caches[0], expected[0])
            comparison.equal(f"values of {case}", caches[1], expected[1])
    return comparison.findings()


def check_cache_write(device: Device, dtype: torch.dtype) -> Findings:
    """Keys and values lie where the reference puts them, bit for bit, in e4m3 too."""
    comparison, on = Comparison(dtype), device.torch_device
    key, value = _random(2, 6, 3, 64).to(dtype)
    slots = torch.tensor([0, 47, 16, 15, 8, 33], dtype=torch.int32)
    expected = torch.zeros(2, 3, 3, 16, 64, dtype=dtype)
    reference_write(key, value, *expected, slots)
    caches = torch.zeros_like(expected, device=on)
    kv_cache_write(key.to(on), value.to(on), *caches, slots.to(on))
    comparison.equal("the type itself", caches, expected)
    scale = torch.full((3,), 0.5)
    fp8 = torch.zeros(2, 3, 3, 16, 64, device=on, dtype=torch.float8_e4m3fn)
    kv_cache_write(
        key.to(on), value.to(on), *fp8, slots.to(on), k_scale=scale.to(on), v_scale=scale.to(on)
    )
    coded = (expected.float() / 0.5).to(torch.float8_e4m3fn)
    comparison.equal("e4m3", fp8.view(torch.uint8), coded.view(torch.uint8))
    return comparison.findings()
