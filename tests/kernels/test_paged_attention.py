"""Paged attention: the reference against torch's own attention, the CPU kernels against it."""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from paged_batches import PagedBatch, paged_batch

from kernels.cpu import library
from kernels.cpu.kv_cache_write import KvCache
from kernels.cpu.paged_attention import paged_attention
from kernels.reference.paged_attention import paged_attention as reference_attention

if TYPE_CHECKING:
    from collections.abc import Callable

    Attention = Callable[..., torch.Tensor]

ISAS = library.require().isas
KV_DTYPES = tuple(library.KV_DTYPES)
PLAIN = {"scale": 0.125, "window": None, "softcap": None}
# One query row alone, block edges, edges of splits, more than a split, and prefill beside decoding.
RAGGED = [
    *((1, seq_len) for seq_len in (1, 15, 16, 17, 256, 257, 800)),
    *((40, 40), (33, 530), (5, 258)),
]


def cpu_attention(batch: PagedBatch, dtype: str = "bfloat16", **how: object) -> torch.Tensor:
    """The C++ kernels over a cache of this dtype."""
    return torch.from_numpy(paged_attention(*batch.cpu_arguments(dtype), **how))


def int8_rounded(batch: PagedBatch) -> PagedBatch:
    """The batch with the keys and values that an int8 cache has in place of its own.

    Keys are rounded in rotated form, where the rotation's run lengths are powers of two.
    """

    def rounded(cache: torch.Tensor) -> torch.Tensor:
        scale = cache.abs().amax(-1, keepdim=True) / 127
        return torch.round(cache * (1 / scale)) * scale

    rotation = key_rotation(batch.k_cache.shape[-1])
    keys = rounded(batch.k_cache @ rotation) @ rotation
    return replace(batch, k_cache=keys, v_cache=rounded(batch.v_cache))


def key_rotation(head_dim: int) -> torch.Tensor:
    """The symmetric matrix of rotation.h: Walsh-Hadamard over the largest runs that fit."""
    runs = []
    while head_dim > 0:
        order = head_dim.bit_length() - 1
        run = torch.ones(1, 1)
        for _ in range(order):
            run = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]]) / 2**0.5, run)
        runs.append(run)
        head_dim -= 2**order
    return torch.block_diag(*runs)


def expected_of(batch: PagedBatch, dtype: str, **how: object) -> torch.Tensor:
    """What a cache of this dtype allows at best."""
    stored = int8_rounded(batch) if dtype == "int8" else batch
    return reference_attention(*stored.arguments(), **how)


# Parameters stand such that instruction sets vary fastest: all of them are held against one result.
@functools.lru_cache(maxsize=2)
def ragged_case(
    dtype: str,
    *,
    num_heads: int,
    num_kv_heads: int = 2,
    head_dim: int = 64,
    block_size: int = 16,
    scale: float = 0.125,
    window: int | None = None,
    softcap: float | None = None,
) -> tuple[PagedBatch, torch.Tensor]:
    """The batch RAGGED and what attention over it gives."""
    batch = paged_batch(
        RAGGED,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        block_size=block_size,
    )
    return batch, expected_of(batch, dtype, scale=scale, window=window, softcap=softcap)


def tolerance(isa: str, dtype: str) -> dict[str, float]:
    """Beyond what the cache's dtype costs."""
    if dtype == "int8":  # queries have 15 bits and weights 14; a key may round to its neighbour
        return {"rtol": 1e-3, "atol": 2e-3}
    if isa == "avx512bf16":  # queries and weights are rounded to 8 bits, 2⁻⁹ at most
        return {"rtol": 2**-7, "atol": 8e-3}
    return {"rtol": 1e-5, "atol": 5e-6}


def dense_attention(batch: PagedBatch, request: int) -> torch.Tensor:
    """One request by torch's own attention over its gathered tokens."""
    start, end = batch.query_start_loc[request : request + 2].tolist()
    seq_len = int(batch.seq_lens[request])
    block_size = batch.k_cache.shape[2]
    blocks = batch.block_tables[request, : -(-seq_len // block_size)].long()
    keys, values = (
        cache[blocks].transpose(1, 2).flatten(0, 1)[:seq_len].transpose(0, 1)
        for cache in (batch.k_cache, batch.v_cache)
    )
    seen = torch.arange(seq_len) <= torch.arange(seq_len - (end - start), seq_len)[:, None]
    out = torch.nn.functional.scaled_dot_product_attention(
        batch.query[start:end].transpose(0, 1)[None],
        keys[None],
        values[None],
        attn_mask=seen,
        scale=PLAIN["scale"],
        enable_gqa=True,
    )
    return out[0].transpose(0, 1)


def test_reference_is_torchs_attention_over_each_requests_own_tokens() -> None:
    batch = paged_batch(RAGGED)

    result = reference_attention(*batch.arguments(), **PLAIN)

    expected = torch.cat([dense_attention(batch, r) for r in range(len(RAGGED))])
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=5e-6)


def test_reference_with_a_window_sees_the_last_tokens_only() -> None:
    batch = paged_batch([(3, 300)])
    far = replace(batch, v_cache=batch.v_cache.clone())
    last_block = batch.block_tables[0, 299 // 16]
    kept = batch.v_cache[last_block].clone()
    far.v_cache.fill_(1e6)
    far.v_cache[last_block] = kept

    # Positions 297 to 299 are queried; with a window of 9, the first token seen is 289.
    near_only = reference_attention(*far.arguments(), scale=0.125, window=9, softcap=None)

    same = reference_attention(*batch.arguments(), scale=0.125, window=9, softcap=None)
    assert torch.equal(near_only, same)


def test_reference_softcap_bounds_scores() -> None:
    batch = paged_batch([(1, 2)], num_heads=1, num_kv_heads=1, head_dim=8)
    # Scores of 1000 and -1000 become 2 and -2.
    batch.query.fill_(1.0)
    first_block = batch.block_tables[0, 0]
    batch.k_cache[first_block, 0, 0] = 125.0
    batch.k_cache[first_block, 0, 1] = -125.0
    batch.v_cache[first_block, 0, 0] = 1.0
    batch.v_cache[first_block, 0, 1] = 0.0

    result = reference_attention(*batch.arguments(), scale=1.0, window=None, softcap=2.0)

    torch.testing.assert_close(result, torch.sigmoid(torch.full((1, 1, 8), 4.0)))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", KV_DTYPES)
@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(9, 3), (4, 4), (7, 1)])
def test_cpu_agrees_with_reference_for_every_number_of_query_rows(
    num_heads: int, num_kv_heads: int, dtype: str, isa: str
) -> None:
    batch = paged_batch([(26, 30)], num_heads=num_heads, num_kv_heads=num_kv_heads)
    expected = expected_of(batch, dtype, **PLAIN)

    for num_rows in range(1, 27):
        result = cpu_attention(batch.rows(0, 0, num_rows), dtype, **PLAIN, isa=isa)

        torch.testing.assert_close(result, expected[:num_rows], **tolerance(isa, dtype))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", KV_DTYPES)
@pytest.mark.parametrize("block_size", [16, 48])
@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_dim"),
    [
        *((9, 3, 64), (14, 2, 64), (8, 2, 80), (8, 1, 96), (3, 1, 128), (4, 1, 256)),
        *((7, 1, 72), (2, 1, 8), (71, 1, 24)),
    ],
)
def test_cpu_agrees_with_reference(
    num_heads: int, num_kv_heads: int, head_dim: int, block_size: int, dtype: str, isa: str
) -> None:
    batch, expected = ragged_case(
        dtype,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        block_size=block_size,
        scale=head_dim**-0.5,
    )

    result = cpu_attention(batch, dtype, **PLAIN | {"scale": head_dim**-0.5}, isa=isa)

    torch.testing.assert_close(result, expected, **tolerance(isa, dtype))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", KV_DTYPES)
@pytest.mark.parametrize("softcap", [None, 0.5, 30.0])
@pytest.mark.parametrize("window", [None, 1, 16, 100, 700])
def test_cpu_agrees_with_reference_on_windows_and_caps(
    window: int | None, softcap: float | None, dtype: str, isa: str
) -> None:
    batch, expected = ragged_case(dtype, num_heads=4, window=window, softcap=softcap)

    result = cpu_attention(batch, dtype, **PLAIN | {"window": window, "softcap": softcap}, isa=isa)

    torch.testing.assert_close(result, expected, **tolerance(isa, dtype))


@pytest.mark.parametrize("isa", ISAS)
def test_an_int8_cache_costs_little(isa: str) -> None:
    batch = paged_batch([(20, 300), (1, 900)], num_heads=9, num_kv_heads=3)

    result = cpu_attention(batch, "int8", **PLAIN, isa=isa)

    exact = reference_attention(*batch.arguments(), **PLAIN)
    assert (result - exact).norm() < 0.015 * exact.norm()


@pytest.mark.parametrize("isa", ISAS)
def test_an_int8_cache_bears_a_dimension_of_keys_larger_than_the_others(isa: str) -> None:
    batch = paged_batch([(1, 300)])
    batch.k_cache[..., 7] += 100

    result = cpu_attention(batch, "int8", **PLAIN, isa=isa)

    exact = reference_attention(*batch.arguments(), **PLAIN)
    assert (result - exact).norm() < 0.1 * exact.norm()


@pytest.mark.parametrize("isa", ISAS)
def test_an_int8_cache_bears_weights_that_differ_by_far(isa: str) -> None:
    """A token that is seen most may have a value much smaller than one that is hardly seen."""
    batch = paged_batch([(1, 200)], num_heads=1, num_kv_heads=1)
    batch.k_cache[batch.block_tables[0, 3], :, 5] = batch.query[0] / 2  # a score of about 4
    batch.v_cache[batch.block_tables[0, 3], :, 5] /= 64
    batch.v_cache[batch.block_tables[0, 4], :, 6] *= 64

    result = cpu_attention(batch, "int8", **PLAIN, isa=isa)

    exact = reference_attention(*batch.arguments(), **PLAIN)
    assert (result - exact).norm() < 0.02 * exact.norm()


@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_query_and_out_may_be_slices_of_larger_arrays(dtype: str) -> None:
    batch = paged_batch(RAGGED)
    query, *others = batch.cpu_arguments(dtype)
    fused = np.concatenate([query, np.full_like(query, np.nan)], axis=1)
    out = np.zeros_like(fused)
    num_heads = query.shape[1]

    paged_attention(fused[:, :num_heads], *others, **PLAIN, out=out[:, num_heads:])

    np.testing.assert_array_equal(out[:, num_heads:], paged_attention(query, *others, **PLAIN))
    assert not out[:, :num_heads].any()


def implementations() -> list[object]:
    def of(isa: str, dtype: str) -> object:
        return pytest.param(
            lambda batch, **how: cpu_attention(batch, dtype, **how, isa=isa), id=f"{isa}-{dtype}"
        )

    def reference(batch: PagedBatch, **how: object) -> torch.Tensor:
        return reference_attention(*batch.arguments(), **how)

    return [
        pytest.param(reference, id="reference"),
        *(of(isa, dtype) for isa in ISAS for dtype in KV_DTYPES),
    ]


@pytest.mark.parametrize("attention", implementations())
@pytest.mark.parametrize("window", [None, 300])
def test_a_requests_bits_do_not_depend_on_its_batch(
    attention: Attention, window: int | None
) -> None:
    batch = paged_batch(RAGGED, num_heads=9, num_kv_heads=3)
    how = PLAIN | {"window": window}

    together = attention(batch, **how)

    starts = batch.query_start_loc.tolist()
    for request, (query_len, _) in enumerate(RAGGED):
        alone = attention(batch.rows(request, 0, query_len), **how)
        assert torch.equal(alone, together[starts[request] : starts[request + 1]])


@pytest.mark.parametrize("attention", implementations())
@pytest.mark.parametrize("chunk", [1, 16, 50])
@pytest.mark.parametrize("window", [None, 90])
def test_a_rows_bits_do_not_depend_on_how_the_prompt_was_cut(
    attention: Attention, window: int | None, chunk: int
) -> None:
    query_len = 60
    batch = paged_batch([(query_len, 290)], num_heads=9, num_kv_heads=3)
    how = PLAIN | {"window": window}

    whole = attention(batch, **how)

    for first in range(0, query_len, chunk):
        last = min(first + chunk, query_len)
        part = attention(batch.rows(0, first, last), **how)
        assert torch.equal(part, whole[first:last])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", KV_DTYPES)
@pytest.mark.parametrize("lengths", [RAGGED, [(1, 3000)], [(60, 60)], [(1, 20), (1, 2000)]])
def test_bits_do_not_depend_on_the_number_of_threads(
    lengths: list[tuple[int, int]], dtype: str, isa: str
) -> None:
    batch = paged_batch(lengths)

    results = [
        cpu_attention(batch, dtype, **PLAIN, isa=isa, num_threads=threads) for threads in (1, 2, 5)
    ]

    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", KV_DTYPES)
@pytest.mark.parametrize("what", ["query", "k_cache", "v_cache"])
@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_what_is_not_finite_is_not_hidden(what: str, number: float, dtype: str, isa: str) -> None:
    batch = paged_batch([(1, 600), (1, 600)], num_heads=2)
    if what == "query":
        batch.query[0, :, 3] = number
    else:
        getattr(batch, what)[batch.block_tables[0, 2], :, 3] = number

    result = cpu_attention(batch, dtype, **PLAIN, isa=isa)

    assert not result[0].isfinite().any(-1).all()
    assert result[1].isfinite().all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_scores_far_apart_leave_the_largest(dtype: str, isa: str) -> None:
    batch = paged_batch([(1, 300)])

    result = cpu_attention(batch, dtype, scale=1e4, window=None, softcap=None, isa=isa)

    expected = expected_of(batch, dtype, scale=1e4, window=None, softcap=None)
    torch.testing.assert_close(result, expected, rtol=2**-7, atol=1e-3)


def test_a_request_without_rows_is_passed_over() -> None:
    batch = paged_batch([(1, 20), (0, 5), (2, 30)])

    result = cpu_attention(batch, **PLAIN)

    expected = reference_attention(*batch.arguments(), **PLAIN)
    torch.testing.assert_close(result, expected, **tolerance("avx512bf16", "bfloat16"))


def small_call() -> dict[str, object]:
    """Two rows of a request of 40 tokens, by the names of the arguments."""
    return {
        "query": np.zeros((2, 6, 64), np.float32),
        "cache": KvCache(8, 3, 16, 64, "bfloat16"),
        "block_tables": np.array([[0, 1, 2]], np.int32),
        "seq_lens": np.array([40], np.int32),
        "query_start_loc": np.array([0, 2], np.int32),
        **PLAIN,
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": np.zeros((2, 4, 64), np.float32)}, "4 query heads cannot share 3"),
        ({"query": np.zeros((2, 6, 32), np.float32)}, "query must have shape [2, 6, 64]"),
        ({"query": np.zeros((2, 6, 64))}, "query must be float32"),
        (
            {"query": np.zeros((2, 64, 6), np.float32).transpose(0, 2, 1)},
            "each token of query must be contiguous",
        ),
        ({"seq_lens": np.array([40])}, "seq_lens must be contiguous int32"),
        ({"seq_lens": np.array([40, 1], np.int32)}, "seq_lens must have shape [1]"),
        ({"seq_lens": np.array([49], np.int32)}, "seq_lens[0] is 49"),
        ({"seq_lens": np.array([1], np.int32)}, "seq_lens[0] is 1"),
        ({"query_start_loc": np.array([0, 3], np.int32)}, "query_start_loc[1] is 3"),
        ({"block_tables": np.array([[0, 1, 8]], np.int32)}, "names block 8, the cache has 8"),
        ({"block_tables": np.array([[0, -1, 2]], np.int32)}, "names block -1, the cache has 8"),
        ({"window": 0}, "window must be at least 1, got 0"),
        ({"softcap": 0.0}, "softcap must be above 0, got 0.0"),
        ({"num_threads": 0}, "num_threads must be at least 1, got 0"),
        ({"isa": "sse9"}, "isa must be one of portable, avx2, avx512, avx512bf16, got 'sse9'"),
        ({"out": np.zeros((2, 6, 32), np.float32)}, "out must have shape [2, 6, 64]"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        paged_attention(**(small_call() | change))
