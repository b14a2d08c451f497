"""Writing to the paged cache on a GPU: interpreted against the reference, and compiled."""

from __future__ import annotations

import pytest
import torch
from compile_checks import TARGETS, Target, assert_fits, compile_for

from kernels.gpu import kv_cache_write as module
from kernels.gpu.kv_cache_write import kv_cache_write
from kernels.reference.kv_cache_write import kv_cache_write as reference_write

NUM_BLOCKS, NUM_KV_HEADS, HEAD_DIM = 5, 3, 80
SLOTS = torch.tensor([17, 0, 79, 15, 16], dtype=torch.int32)


def some_tokens(dtype: torch.dtype) -> torch.Tensor:
    """Keys and values as slices of one row, [num_tokens, 2 · num_kv_heads, head_dim]."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(len(SLOTS), 2 * NUM_KV_HEADS, HEAD_DIM, generator=generator).to(dtype)


def empty_caches(dtype: torch.dtype, block_size: int = 16) -> torch.Tensor:
    """Two caches of zeros."""
    return torch.zeros(2, NUM_BLOCKS, NUM_KV_HEADS, block_size, HEAD_DIM).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("block_size", [16, 32])
def test_the_cache_is_as_the_reference_leaves_it(block_size: int, dtype: torch.dtype) -> None:
    key, value = some_tokens(dtype).split(NUM_KV_HEADS, 1)
    expected, result = empty_caches(dtype, block_size), empty_caches(dtype, block_size)

    kv_cache_write(key, value, *result, SLOTS)

    reference_write(key, value, *expected, SLOTS)
    assert torch.equal(result, expected)


def test_a_row_without_a_slot_is_not_written() -> None:
    key, value = some_tokens(torch.float32).split(NUM_KV_HEADS, 1)
    caches = empty_caches(torch.float32)

    kv_cache_write(key, value, *caches, torch.full_like(SLOTS, -1))

    assert not caches.any()


def test_a_float8_cache_holds_numbers_divided_by_their_heads_scale() -> None:
    key, value = (100 * some_tokens(torch.float32)).split(NUM_KV_HEADS, 1)
    k_scale, v_scale = torch.tensor([[0.5, 1.0, 3.0], [2.0, 0.25, 1.0]])
    expected, result = empty_caches(torch.float32), empty_caches(torch.float8_e4m3fn)

    kv_cache_write(key, value, *result, SLOTS, k_scale=k_scale, v_scale=v_scale)

    scaled = (x / scale[:, None] for x, scale in ((key, k_scale), (value, v_scale)))
    reference_write(*(x.clamp(-448, 448) for x in scaled), *expected, SLOTS)
    assert torch.equal(result.float(), expected.to(torch.float8_e4m3fn).float())


@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"sm_{target.capability}")
def test_it_compiles(target: Target, fp8: bool) -> None:
    cache = "*u8" if fp8 else "*bf16"
    pointers = {
        "key_ptr": "*bf16",
        "value_ptr": "*bf16",
        "k_cache_ptr": cache,
        "v_cache_ptr": cache,
        "slot_mapping_ptr": "*i32",
    }
    scales = {"k_scale_ptr": "*fp32", "v_scale_ptr": "*fp32"} if fp8 else {}
    absent = {} if fp8 else {"k_scale_ptr": None, "v_scale_ptr": None}
    sizes = {"NUM_KV_HEADS": 8, "HEAD_DIM": 128, "BLOCK_SIZE": 16, "HEADS": 8, "DIMS": 128}

    compiled = compile_for(
        module._write,
        pointers | scales | {"key_stride": "i32:16", "value_stride": "i32:16"},
        absent | sizes | {"FP8": fp8},
        target,
    )

    assert_fits(compiled, target)
    assert "ld.global.v4" in compiled.ptx  # 16 bytes at a time
