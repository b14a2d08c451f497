"""Writing keys and values into the paged cache: the reference by its formula, C++ by what it does.

What C++ writes is private to it; that it is read as it was written is shown by the tests of
attention.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernels.cpu.kv_cache_write import KvCache, kv_cache_write
from kernels.cpu.library import KV_DTYPES
from kernels.reference.kv_cache_write import kv_cache_write as reference_write

NUM_BLOCKS, NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM = 5, 3, 16, 24
SLOTS = torch.tensor([17, 0, 79, 15, 16], dtype=torch.int32)


def some_tokens() -> torch.Tensor:
    """Keys and values, [2, num_tokens, num_kv_heads, head_dim]."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, len(SLOTS), NUM_KV_HEADS, HEAD_DIM, generator=generator)


def empty_cache(dtype: str) -> KvCache:
    return KvCache(NUM_BLOCKS, NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_reference_puts_each_token_in_its_slot_and_changes_nothing_else(dtype: torch.dtype) -> None:
    key, value = some_tokens().to(dtype)
    k_cache, v_cache = torch.zeros(2, NUM_BLOCKS, NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM, dtype=dtype)

    reference_write(key, value, k_cache, v_cache, SLOTS)

    for token, slot in enumerate(SLOTS.tolist()):
        place = (slot // BLOCK_SIZE, slice(None), slot % BLOCK_SIZE)
        assert torch.equal(k_cache[place], key[token])
        assert torch.equal(v_cache[place], value[token])
        k_cache[place] = v_cache[place] = 0.0
    assert not k_cache.any()
    assert not v_cache.any()


@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_tokens_have_bytes_of_their_own(dtype: str) -> None:
    """Two neighbours share 32 bits of the cache, and one is often written long before the other."""
    cache = KvCache(1, 1, BLOCK_SIZE, HEAD_DIM, dtype)
    row = np.full((1, 1, HEAD_DIM), 1.5, np.float32)
    written = np.zeros(cache.data.shape, np.int64)

    for slot in range(BLOCK_SIZE):
        cache.data.fill(0)
        kv_cache_write(row, row, cache, np.array([slot], np.int32))
        written += cache.data != 0

    assert written.max() == 1


@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_a_slot_keeps_the_last_token_written(dtype: str) -> None:
    key, value = some_tokens().numpy()
    once, twice = empty_cache(dtype), empty_cache(dtype)

    kv_cache_write(key, value, once, SLOTS.numpy())
    kv_cache_write(value * 100, key * 100, twice, SLOTS.numpy())
    kv_cache_write(key, value, twice, SLOTS.numpy())

    np.testing.assert_array_equal(once.data, twice.data)


@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_tokens_may_be_slices_of_larger_arrays(dtype: str) -> None:
    key, value = some_tokens().numpy()
    fused = np.concatenate([key, value], axis=1)  # key and value heads of a token in a row
    expected, result = empty_cache(dtype), empty_cache(dtype)

    kv_cache_write(fused[:, :NUM_KV_HEADS], fused[:, NUM_KV_HEADS:], result, SLOTS.numpy())

    kv_cache_write(key, value, expected, SLOTS.numpy())
    np.testing.assert_array_equal(result.data, expected.data)


def test_an_int8_cache_is_about_half_as_large() -> None:
    wide, narrow = (KvCache(1, 3, 16, 64, dtype).data.nbytes for dtype in ("bfloat16", "int8"))

    assert wide == 2 * 2 * 3 * 16 * 64
    assert narrow == wide // 2 + 2 * 4 * 3 * 16  # a scale per token and head, of K and of V


@pytest.mark.parametrize("slot", [-1, NUM_BLOCKS * BLOCK_SIZE])
def test_a_slot_outside_of_the_cache_is_refused_before_anything_is_written(slot: int) -> None:
    cache = empty_cache("bfloat16")
    slots = SLOTS.numpy().copy()
    slots[3] = slot

    with pytest.raises(ValueError, match=rf"slot_mapping\[3\] is {slot}, the cache has 80 slots"):
        kv_cache_write(*some_tokens().numpy(), cache, slots)

    assert not cache.data.any()


@pytest.mark.parametrize(
    ("key", "slots", "message"),
    [
        (some_tokens()[0].double(), SLOTS, "key must be float32, got float64"),
        (some_tokens()[0][:, :2], SLOTS, r"key must have shape \[5, 3, 24\], got \[5, 2, 24\]"),
        (some_tokens()[0], SLOTS[:4], r"slot_mapping must have shape \[5\], got \[4\]"),
        (some_tokens()[0], SLOTS.long(), "slot_mapping must be contiguous int32"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    key: torch.Tensor, slots: torch.Tensor, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        kv_cache_write(key.numpy(), some_tokens()[1].numpy(), empty_cache("int8"), slots.numpy())


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((1, 1, 16, 12, "bfloat16"), "head_dim must be a multiple of 8 up to 256, got 12"),
        ((1, 1, 16, 264, "bfloat16"), "head_dim must be a multiple of 8 up to 256, got 264"),
        ((1, 1, 8, 64, "bfloat16"), "block_size must be a multiple of 16, got 8"),
        ((1, 1, 16, 64, "fp8"), "dtype must be one of bfloat16, int8, got 'fp8'"),
    ],
)
def test_a_cache_that_no_layout_has_is_refused(sizes: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KvCache(*sizes)
