"""Matrix products against float64, over few rows and many, in every type that has a kernel."""

from __future__ import annotations

import torch

from kernels.gpu.fp8_linear import Fp8Linear
from kernels.gpu.gemm import gemm
from kernels.gpu.quantization import RowFormat, quantise_rows
from kernels.gpu.w4_layout import dequantise_w4, pack_w4
from kernels.gpu.w4a16 import W4Weight, w4a16
from tests.gpu_check.comparing import Comparison
from tests.gpu_check.device import Device
from tests.gpu_check.outcome import Findings, Skip
from tests.support.coded_matrix import to_e4m3

# [out, in]: SmolLM2's, Qwen2.5's and Llama's layers, and sizes that fill no tile.
SHAPES = [(960, 576), (1536, 8960), (4096, 4096), (6144, 4096), (4096, 14336), (100, 200)]
ROWS = (1, 5, 16, 33, 64, 200)


def _cases(device: Device) -> list[tuple[tuple[int, int], tuple[int, ...]]]:
    if device.is_interpreted:
        return [((70, 96), (1, 17))]
    return [(shape, ROWS) for shape in SHAPES]


def random_matrix(num_out: int, num_in: int, device: Device, seed: int = 0) -> torch.Tensor:
    """Float32 weights on the device that keep rows at about one."""
    generator = torch.Generator(device.torch_device).manual_seed(seed)
    weight = torch.randn(num_out, num_in, generator=generator, device=device.torch_device)
    return weight * num_in**-0.5


def check_products(device: Device, dtype: torch.dtype) -> Findings:
    """x·Wᵀ + b in the type, and with float32 results."""
    comparison = Comparison(dtype)
    for (num_out, num_in), row_counts in _cases(device):
        weight = random_matrix(num_out, num_in, device).to(dtype)
        bias = random_matrix(1, num_out, device, seed=1)[0].to(dtype)
        x = random_matrix(max(row_counts), num_in, device, seed=2).mul(num_in**0.5).to(dtype)
        expected = x.double() @ weight.double().T + bias.double()
        for rows in row_counts:
            case = f"[{rows}, {num_in}] x [{num_out}, {num_in}]"
            comparison.near(case, gemm(x[:rows], weight, bias), expected[:rows])
        wide = gemm(x, weight, bias, out_dtype=torch.float32)
        comparison.near(f"float32 of {case}", wide, expected)
    return comparison.findings()


def check_coded_products(device: Device, code: torch.dtype) -> Findings:
    """Products of 8-bit codes with a scale for each row and output."""
    if code is torch.float8_e4m3fn and not device.has_e4m3_products:
        raise Skip("needs compute capability 8.9")
    # Hopper adds products of float8 with 14 bits or so; sums of int8 are exact.
    comparison = Comparison(torch.float32 if code is torch.int8 else torch.bfloat16)
    for (num_out, num_in), row_counts in _cases(device):
        limit = 127 if code is torch.int8 else 100
        weight = random_matrix(num_out, num_in, device).mul(num_in**0.5 * 30).clamp(-limit, limit)
        x = random_matrix(max(row_counts), num_in, device, seed=2).mul(num_in**0.5 * 30)
        x = x.clamp(-limit, limit)
        if code is torch.int8:
            weight, x = weight.round(), x.round()
        weight, x = weight.to(code), x.to(code)
        x_scales = torch.rand(len(x), device=device.torch_device) + 0.5
        w_scales = (torch.rand(num_out, device=device.torch_device) + 0.5) * num_in**-0.5 / 900
        expected = x.double() @ weight.double().T * x_scales[:, None].double() * w_scales.double()
        for rows in row_counts:
            result = gemm(
                x[:rows], weight, x_scales=x_scales[:rows], w_scales=w_scales,
                out_dtype=torch.float32,
            )  # fmt: skip
            comparison.near(f"[{rows}, {num_in}] x [{num_out}, {num_in}]", result, expected[:rows])
    return comparison.findings()


def random_fp8(
    num_out: int, num_in: int, group: int, device: Device, *, rounds_rows: bool, seed: int = 0
) -> Fp8Linear:
    """A matrix of e4m3 codes with a scale for so many columns."""
    codes, scales = to_e4m3(random_matrix(num_out, num_in, device, seed), group)
    return Fp8Linear(codes, scales, rounds_rows=rounds_rows)


def check_fp8(device: Device, dtype: torch.dtype) -> Findings:
    """Weights in float8 against the same written out, with rows that are rounded and that are not.

    Rounded rows are taken as our kernel rounds them, which another check compares.
    """
    shapes = [(70, 128)] if device.is_interpreted else SHAPES[2:5]
    row_counts = (3,) if device.is_interpreted else ROWS
    # Hopper adds products of float8 with 14 bits or so.
    comparison = Comparison(torch.float16 if dtype is torch.float32 else dtype)
    for num_out, num_in in shapes:
        x = random_matrix(max(row_counts), num_in, device, seed=2).mul(num_in**0.5).to(dtype)
        for group in (num_in, 64, 128):
            rounds = group == num_in and (device.is_interpreted or device.has_e4m3_products)
            for rounds_rows in {False, rounds}:
                matrix = random_fp8(num_out, num_in, group, device, rounds_rows=rounds_rows)
                codes = matrix.codes.double().unflatten(1, (-1, group))
                meant = (codes * matrix.scales[..., None].double()).flatten(1)
                rows = quantise_rows(x, RowFormat.FP8).dequantise() if rounds_rows else x
                expected = rows.double() @ meant.T
                kind = "rounded rows" if rounds_rows else "rows"
                for count in row_counts:
                    case = f"{count} {kind} x [{num_out}, {num_in}], groups of {group}"
                    comparison.near(case, matrix(x[:count]), expected[:count])
    return comparison.findings()


def random_w4(
    num_out: int, num_in: int, group: int, device: Device, dtype: torch.dtype
) -> W4Weight:
    """Random codes, zeros and scales, as a quantised layer might have."""
    on, groups = device.torch_device, num_in // group
    codes = torch.randint(0, 16, (num_out, num_in), device=on, dtype=torch.uint8)
    zeros = torch.randint(5, 11, (groups, num_out), device=on, dtype=torch.uint8)
    scales = (torch.rand(groups, num_out, device=on) + 0.5) * 0.2 * num_in**-0.5
    return pack_w4(codes, scales.to(dtype if dtype.itemsize == 2 else torch.float16), zeros)


def check_w4(device: Device, dtype: torch.dtype) -> Findings:
    """Weights of 4 bits against the same weights written out."""
    comparison = Comparison(dtype)
    for group in (32, 64, 128):
        for num_out, num_in in [(70, 128)] if device.is_interpreted else SHAPES[2:5]:
            weight = random_w4(num_out, num_in, group, device, dtype)
            dense = dequantise_w4(weight, dtype).double()
            row_counts = (3,) if device.is_interpreted else ROWS
            x = random_matrix(max(row_counts), num_in, device, seed=2).mul(num_in**0.5).to(dtype)
            expected = x.double() @ dense.T
            for rows in row_counts:
                case = f"[{rows}, {num_in}] x [{num_out}, {num_in}], groups of {group}"
                comparison.near(case, w4a16(x[:rows], weight), expected[:rows])
    return comparison.findings()
