"""The machine code of matrix products: tensor cores, shared memory, registers.

A row's bits stay the same over all numbers of rows only if tiles of all sizes multiply by one kind
of instruction. That is what is looked at here first; the bits themselves need a device.
"""

from __future__ import annotations

import pytest
import torch
from compile_checks import SM80, SM90, SM100, TARGETS, Compiled, Target, assert_fits, compile_for

from kernels.gpu import gemm, quantization, skinny_gemm, w4a16
from kernels.gpu.matrix_plan import ROW_TILES, SKINNY_ROWS, matrix_plan, tile_launch
from kernels.gpu.triton_types import tl

ARRAYS = {"*bf16": torch.bfloat16, "*fp8e4nv": torch.float8_e4m3fn, "*i8": torch.int8}
SIZES = {
    "num_rows": "i32",
    "num_out": "i32:16",
    "num_in": "i32:16",
    "segment": "i32:16",
    "x_stride": "i32:16",
}


def compile_product(target: Target, array: str, rows: int, group: int = 0) -> Compiled:
    """The product with a matrix of two segments in tiles of some rows, as it is launched.

    With a group, the matrix is e4m3 codes with a scale for so many columns.
    """
    tile = tile_launch(rows, (rows,))
    plan = matrix_plan(4096, 4096, ARRAYS[array])
    assert plan.num_segments == 2
    is_split = rows <= SKINNY_ROWS
    is_int8 = array == "*i8"
    sums = "*i32" if is_int8 else "*fp32"
    constants = {
        "SUM_TYPE": tl.int32 if is_int8 else tl.float32,
        "BLOCK_N": tile.block_n,
        "BLOCK_M": tile.rows,
        "BLOCK_K": plan.block_k,
        "WHOLE": True,
        "GROUP": group,
        "HARDWARE": target.capability >= 89,
    }
    if is_split:
        constants["IS_SUM"] = True
    else:
        constants |= {"NUM_SEGMENTS": 1 if is_int8 else 2, "TILE_GROUP": 8}
    types = SIZES | {
        "x_ptr": array,
        "w_ptr": "*u8" if group else array,
        "w_stride": "i32:16",
        "bias_ptr": "*bf16",
        "out_ptr": sums if is_split else "*bf16",
    }
    if group:
        constants["x_scales_ptr"] = None
        types["w_scales_ptr"] = "*fp32"
    elif array == "*bf16":
        constants |= {"x_scales_ptr": None, "w_scales_ptr": None}
    else:
        types |= {"x_scales_ptr": "*fp32", "w_scales_ptr": "*fp32"}
    return compile_for(
        skinny_gemm._segment_products if is_split else gemm._gemm,
        types,
        constants,
        target,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )


@pytest.mark.parametrize("rows", ROW_TILES)
@pytest.mark.parametrize("target", TARGETS)
def test_every_tile_multiplies_by_the_same_kind_of_instruction(target: Target, rows: int):
    compiled = compile_product(target, "*bf16", rows)

    assert_fits(compiled, target)
    assert compiled.tensor_core_instructions == {target.tensor_core_instruction}
    assert "cp.async" in compiled.ptx  # tiles are fetched ahead


@pytest.mark.parametrize(
    ("target", "array", "rows"),
    [
        (SM80, "*i8", 128),
        (SM90, "*fp8e4nv", 16),
        (SM90, "*fp8e4nv", 128),
        (SM100, "*fp8e4nv", 128),
    ],
)
def test_codes_are_multiplied_as_they_are(target: Target, array: str, rows: int):
    compiled = compile_product(target, array, rows)

    assert_fits(compiled, target)
    assert compiled.tensor_core_instructions == {target.tensor_core_instruction}


@pytest.mark.parametrize("size", [16_384, 53_248])
def test_the_longest_rows_are_rounded_within_registers(size: int):
    target = SM100  # where most are needed
    is_long = size > quantization.WHOLE_ROW
    compiled = compile_for(
        quantization._quantise_long_rows if is_long else quantization._quantise_rows,
        {
            "x_ptr": "*bf16",
            "codes_ptr": "*u8",
            "scales_ptr": "*fp32",
            "x_stride": "i32:16",
            "size": "i32:16",
        },
        {"BLOCK": quantization.LONG_BLOCK} if is_long else {"SIZE_BLOCK": size},
        target,
        num_warps=8 if is_long else quantization.row_warps(size),
    )

    assert_fits(compiled, target)


@pytest.mark.parametrize("rows", [16, 128])
@pytest.mark.parametrize("target", TARGETS)
def test_float8_weights_meet_16_bit_rows_by_the_same_kind_of_instruction(target: Target, rows: int):
    compiled = compile_product(target, "*bf16", rows, group=128)

    assert_fits(compiled, target)
    assert compiled.tensor_core_instructions == {target.tensor_core_instruction}
    assert ("e4m3x2" in compiled.ptx) == (target.capability >= 89)


@pytest.mark.parametrize("rows", [16, 128])
@pytest.mark.parametrize("target", TARGETS)
def test_4_bit_weights_are_multiplied_by_the_same_kind_of_instruction(target: Target, rows: int):
    tile = tile_launch(rows, (rows,))
    is_split = rows <= SKINNY_ROWS
    compiled = compile_for(
        w4a16._w4a16,
        SIZES
        | {
            "x_ptr": "*bf16",
            "codes_ptr": "*u8",
            "scales_ptr": "*fp16",
            "zeros_ptr": "*u8",
            "bias_ptr": "*bf16",
            "out_ptr": "*fp32" if is_split else "*bf16",
        },
        {
            "order_ptr": None,
            "GROUP": 128,
            "BLOCK_N": tile.block_n,
            "BLOCK_M": tile.rows,
            "NUM_SEGMENTS": 2,
            "SPLIT": is_split,
            "TILE_GROUP": 8,
        },
        target,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )

    assert_fits(compiled, target)
    assert compiled.tensor_core_instructions == {target.tensor_core_instruction}
