"""A row of a kernel's result has the same bits alone, in a batch and in chunks."""

from __future__ import annotations

import torch

from kernels.gpu.gemm import gemm, prove_row_tiles
from kernels.gpu.matrix_plan import ROW_TILES
from kernels.gpu.w4a16 import w4a16
from tests.gpu_check.attention_checks import attend
from tests.gpu_check.comparing import Comparison
from tests.gpu_check.device import Device
from tests.gpu_check.matrix_checks import SHAPES, random_fp8, random_matrix, random_w4
from tests.gpu_check.outcome import Findings, Skip
from tests.kernels.paged_batches import paged_batch

_ROWS = (1, 2, 7, 15, 16, 17, 63, 64, 65, 127, 128, 129, 300)


def check_products(device: Device, dtype: torch.dtype) -> Findings:
    """Rows of dense products, in the tiles that are proved on this card."""
    comparison = Comparison(dtype)
    shapes = [(70, 96)] if device.is_interpreted else SHAPES
    proved = ROW_TILES[:1]
    if not device.is_interpreted:
        proved = prove_row_tiles(shapes, dtype, device.torch_device)
    row_counts = (1, 17) if device.is_interpreted else _ROWS
    for num_out, num_in in shapes:
        weight = random_matrix(num_out, num_in, device).to(dtype)
        x = random_matrix(row_counts[-1], num_in, device, seed=2).mul(num_in**0.5).to(dtype)
        whole = gemm(x, weight, row_tiles=proved)
        for rows in row_counts:
            case = f"{rows} rows of [{num_out}, {num_in}]"
            comparison.equal(case, gemm(x[:rows], weight, row_tiles=proved), whole[:rows])
            last = gemm(x[-rows:], weight, row_tiles=proved)
            comparison.equal(f"the last {case}", last, whole[-rows:])
    return comparison.findings(f"row tiles {proved} of {ROW_TILES} are equal to each other")


def check_w4(device: Device, dtype: torch.dtype) -> Findings:
    """Rows of products with 4-bit weights, in the tiles that the dense proof leaves."""
    comparison = Comparison(dtype)
    num_out, num_in = (70, 128) if device.is_interpreted else (4096, 4096)
    proved = ROW_TILES[:1]
    if not device.is_interpreted:
        proved = prove_row_tiles([(num_out, num_in)], dtype, device.torch_device)
    weight = random_w4(num_out, num_in, 128, device, dtype)
    row_counts = (1, 17) if device.is_interpreted else _ROWS
    x = random_matrix(row_counts[-1], num_in, device, seed=2).mul(num_in**0.5).to(dtype)
    whole = w4a16(x, weight, row_tiles=proved)
    for rows in row_counts:
        comparison.equal(f"{rows} rows", w4a16(x[:rows], weight, row_tiles=proved), whole[:rows])
    return comparison.findings()


def check_fp8(device: Device, dtype: torch.dtype) -> Findings:
    """Rows that are rounded for products of float8, in the tiles that are proved in float8."""
    if not device.is_interpreted and not device.has_e4m3_products:
        raise Skip("needs compute capability 8.9")
    comparison = Comparison(dtype)
    shapes = [(70, 128)] if device.is_interpreted else SHAPES[1:5]
    proved = ROW_TILES[:1]
    if not device.is_interpreted:
        proved = prove_row_tiles(shapes, torch.float8_e4m3fn, device.torch_device)
    row_counts = (1, 17) if device.is_interpreted else _ROWS
    for num_out, num_in in shapes:
        matrix = random_fp8(num_out, num_in, num_in, device, rounds_rows=True)
        matrix.use_row_tiles(proved)
        x = random_matrix(row_counts[-1], num_in, device, seed=2).mul(num_in**0.5).to(dtype)
        whole = matrix(x)
        for rows in row_counts:
            case = f"{rows} rows of [{num_out}, {num_in}]"
            comparison.equal(case, matrix(x[:rows]), whole[:rows])
            comparison.equal(f"the last {case}", matrix(x[-rows:]), whole[-rows:])
    return comparison.findings(f"row tiles {proved} of {ROW_TILES} are equal to each other")


def check_attention(device: Device, dtype: torch.dtype) -> Findings:
    """Requests alone and together, in chunks, with and without programs that share rows."""
    comparison = Comparison(dtype)
    lengths = [(1, 1), (1, 300), (150, 150), (40, 700), (1, 1500)]
    if device.is_interpreted:
        lengths = [(1, 70), (5, 5)]
    head_dim, windows = (64, (None, 70)) if not device.is_interpreted else (16, (None,))
    for window in windows:
        batch = paged_batch(lengths, num_heads=8, num_kv_heads=2, head_dim=head_dim)
        how = {"window": window, "softcap": None}
        whole = attend(batch, device, dtype, shared=False, **how)
        comparison.equal("shared", attend(batch, device, dtype, shared=True, **how), whole)
        starts = batch.query_start_loc.tolist()
        for request, (query_len, _) in enumerate(lengths):
            rows = whole[starts[request] : starts[request + 1]]
            step = max(1, query_len // 3)
            for first in range(0, query_len, step):
                last = min(first + step, query_len)
                part = attend(
                    batch.rows(request, first, last), device, dtype, shared=last % 2 == 0, **how
                )
                comparison.equal(f"request {request} from {first}", part, rows[first:last])
    return comparison.findings()
