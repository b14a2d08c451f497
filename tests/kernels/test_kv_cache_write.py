"""Writing keys and values into the paged cache: the reference by its formula, C++ against it."""

from __future__ import annotations

import pytest
import torch

from kernels.cpu.kv_cache_write import kv_cache_write as cpu_write
from kernels.reference.kv_cache_write import kv_cache_write as reference_write

NUM_BLOCKS, NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM = 5, 3, 16, 24
SLOTS = torch.tensor([17, 0, 79, 15, 16], dtype=torch.int32)


def empty_caches(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(2, NUM_BLOCKS, NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM, dtype=dtype)


def some_tokens(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, len(SLOTS), NUM_KV_HEADS, HEAD_DIM, generator=generator).to(dtype)


@pytest.mark.parametrize("write", [reference_write, cpu_write])
def test_each_token_goes_to_its_slot_and_nothing_else_changes(write) -> None:
    key, value = some_tokens()
    k_cache, v_cache = empty_caches()

    write(key, value, k_cache, v_cache, SLOTS)

    for token, slot in enumerate(SLOTS.tolist()):
        place = (slot // BLOCK_SIZE, slice(None), slot % BLOCK_SIZE)
        assert torch.equal(k_cache[place], key[token])
        assert torch.equal(v_cache[place], value[token])
        k_cache[place] = v_cache[place] = 0.0
    assert not k_cache.any()
    assert not v_cache.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cpu_is_the_reference_to_the_bit(dtype: torch.dtype) -> None:
    key, value = some_tokens(dtype)
    expected, result = empty_caches(dtype), empty_caches(dtype)

    reference_write(key, value, *expected, SLOTS)
    cpu_write(key, value, *result, SLOTS)

    assert torch.equal(result, expected)


def test_tokens_and_blocks_may_be_slices_of_larger_tensors() -> None:
    fused = some_tokens().transpose(0, 1).flatten(1, 2)  # key and value heads of a token in a row
    pool = empty_caches().transpose(0, 1).contiguous()  # keys and values of a block in a row
    expected = empty_caches()

    cpu_write(fused[:, :NUM_KV_HEADS], fused[:, NUM_KV_HEADS:], pool[:, 0], pool[:, 1], SLOTS)

    reference_write(*some_tokens(), *expected, SLOTS)
    assert torch.equal(pool.transpose(0, 1), expected)


@pytest.mark.parametrize("slot", [-1, NUM_BLOCKS * BLOCK_SIZE])
def test_a_slot_outside_of_the_cache_is_refused_before_anything_is_written(slot: int) -> None:
    caches = empty_caches()
    slots = SLOTS.clone()
    slots[3] = slot

    with pytest.raises(ValueError, match=rf"slot_mapping\[3\] is {slot}, the cache has 80 slots"):
        cpu_write(*some_tokens(), *caches, slots)

    assert not caches.any()


@pytest.mark.parametrize(
    ("key", "slots", "message"),
    [
        (some_tokens()[0].bfloat16(), SLOTS, "key is torch.bfloat16, the caches are torch.float32"),
        (some_tokens()[0][:, :2], SLOTS, r"key must have shape \[5, 3, 24\], got \[5, 2, 24\]"),
        (some_tokens()[0], SLOTS[:4], r"slot_mapping must have shape \[5\], got \[4\]"),
        (some_tokens()[0], SLOTS.long(), "slot_mapping must be contiguous int32"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(key, slots, message) -> None:
    with pytest.raises(ValueError, match=message):
        cpu_write(key, some_tokens()[1], *empty_caches(), slots)
