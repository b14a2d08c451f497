"""Attention's machine code in bfloat16, for each architecture and shape of the launch table."""

from __future__ import annotations

import pytest
from compile_checks import SM80, SM90, SM100, TARGETS, Compiled, Target, assert_fits, compile_for

from kernels.gpu import attention_splits, paged_attention
from kernels.gpu.launch_table import FOLDED_AT_A_TIME, attention_launch_of
from kernels.gpu.triton_types import next_power_of_2

PARTIALS = ("largest_ptr", "total_ptr", "summed_ptr")
SCALES = ("k_scale_ptr", "v_scale_ptr")
NUMBERS = ("max_splits", "num_requests", "tiles_per_request", "split_rows", "table_stride")


def compile_attention(
    target: Target,
    head_dim: int,
    *,
    group: int = 4,
    window: int = 0,
    softcap: bool = False,
    fp8: bool = False,
    shared: bool = False,
) -> Compiled:
    """The attention kernel as the launch table has it for a target."""
    launch = attention_launch_of(target.capability, head_dim)
    cache = "*u8" if fp8 else "*bf16"
    pointers = {
        "query_ptr": "*bf16",
        "out_ptr": "*bf16",
        "k_cache_ptr": cache,
        "v_cache_ptr": cache,
        "block_tables_ptr": "*i32",
        "seq_lens_ptr": "*i32",
        "query_start_loc_ptr": "*i32",
    }
    optional = {name: "*fp32" for name in PARTIALS if shared} | {
        name: "*fp32" for name in SCALES if fp8
    }
    strides = {"query_stride": "i32:16", "out_stride": "i32:16"}
    numbers = dict.fromkeys(NUMBERS, "i32") | {"scale": "fp32", "softcap": "fp32"}
    absent = dict.fromkeys({*PARTIALS, *SCALES} - set(optional))
    return compile_for(
        paged_attention._attend,
        pointers | optional | strides | numbers,
        absent
        | {
            "NUM_KV_HEADS": 8,
            "GROUP": group,
            "HEAD_DIM": head_dim,
            "DIMS": next_power_of_2(head_dim),
            "BLOCK_SIZE": 16,
            "WINDOW": window,
            "SOFTCAP": softcap,
            "FP8": fp8,
            "FP8_HARDWARE": launch.fp8_hardware,
            "SHARED": shared,
            "WIDE": False,
            "ROWS": launch.rows,
            "KEYS": launch.keys,
            "SPLIT": launch.split,
        },
        target,
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
    )


@pytest.mark.parametrize(
    ("target", "head_dim", "how"),
    [
        pytest.param(target, head_dim, how, id=f"sm_{target.capability}-{head_dim}-{name}")
        for target in TARGETS
        for head_dim, name, how in (
            (64, "Llama 3.2, SmolLM2", {"group": 3}),
            (128, "Llama 3, prefill", {}),
            (128, "Llama 3, decoding", {"shared": True}),
            (128, "Llama 3, float8", {"fp8": True}),
            (256, "Gemma 2", {"group": 2, "window": 4096, "softcap": True}),
        )
    ]
    + [pytest.param(SM80, 256, {"group": 8}, id="sm_80-256-Gemma 2B, one KV head")],
)
def test_it_multiplies_on_tensor_cores_and_spills_nothing(
    target: Target, head_dim: int, how: dict[str, object]
) -> None:
    compiled = compile_attention(target, head_dim, **how)

    assert_fits(compiled, target)
    assert compiled.tensor_core_instructions == {target.tensor_core_instruction}


def test_two_programs_of_a_hopper_multiprocessor_hide_each_others_latency() -> None:
    """Their registers fit beside each other, and so does their shared memory (1 KB more each)."""
    for shared in (False, True):
        compiled = compile_attention(SM90, 128, shared=shared)

        assert 2 * compiled.num_warps * 32 * compiled.registers <= 65_536
        assert 2 * (compiled.shared_bytes + 1024) <= 228 * 1024


def test_float8_is_converted_by_an_instruction_where_there_is_one() -> None:
    conversion = "cvt.rn.f16x2.e4m3x2"

    assert conversion in compile_attention(SM90, 128, fp8=True).ptx
    assert conversion in compile_attention(SM100, 128, fp8=True).ptx
    assert conversion not in compile_attention(SM80, 128, fp8=True).ptx


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"sm_{target.capability}")
def test_the_kernel_that_folds_compiles(target: Target) -> None:
    pointers = dict.fromkeys(("seq_lens_ptr", "query_start_loc_ptr"), "*i32")
    numbers = dict.fromkeys(("max_splits", "split_rows"), "i32") | {"out_stride": "i32:16"}

    compiled = compile_for(
        attention_splits.fold_partials,
        {"out_ptr": "*bf16"} | pointers | dict.fromkeys(PARTIALS, "*fp32") | numbers,
        {
            "v_scale_ptr": None,
            "GROUP": 4,
            "HEAD_DIM": 128,
            "DIMS": 128,
            "WINDOW": 0,
            "FP8": False,
            "SPLIT": 256,
            "UNROLLED": FOLDED_AT_A_TIME,
        },
        target,
        num_warps=1,
    )

    assert_fits(compiled, target)
