"""Paged attention: the reference against torch's own attention, the CPU kernels against it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from paged_batches import PagedBatch, paged_batch

from kernels.cpu import library
from kernels.cpu.paged_attention import paged_attention as cpu_attention
from kernels.reference.paged_attention import paged_attention as reference_attention

ISAS = library.require().isas
PLAIN = {"scale": 0.125, "window": None, "softcap": None}
# One query row alone, block edges, a split's edge, more than a split, and prefill beside decoding.
RAGGED = [(1, 1), (1, 15), (1, 16), (1, 17), (1, 512), (1, 513), (40, 40), (33, 600), (1, 1100)]


def tolerance(dtype: torch.dtype) -> dict[str, float]:
    if dtype == torch.bfloat16:  # 8 bits: results may round to neighbours, 2⁻⁸ apart
        return {"rtol": 2**-7, "atol": 1e-3}
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
    torch.testing.assert_close(result, expected, **tolerance(torch.float32))


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
@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(9, 3), (4, 4), (8, 2), (7, 1)])
def test_cpu_agrees_with_reference_for_every_number_of_query_rows(
    num_heads: int, num_kv_heads: int, isa: str
) -> None:
    for num_rows in range(1, 50):
        batch = paged_batch([(num_rows, num_rows)], num_heads=num_heads, num_kv_heads=num_kv_heads)

        result = cpu_attention(*batch.arguments(), **PLAIN, isa=isa)

        expected = reference_attention(*batch.arguments(), **PLAIN)
        torch.testing.assert_close(result, expected, **tolerance(torch.float32))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("block_size", [16, 32])
@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_dim"),
    [(3, 3, 64), (9, 3, 64), (8, 2, 80), (8, 1, 96), (3, 1, 128), (4, 1, 256), (7, 1, 72)],
)
def test_cpu_agrees_with_reference(
    num_heads: int, num_kv_heads: int, head_dim: int, block_size: int, dtype: torch.dtype, isa: str
) -> None:
    batch = paged_batch(
        RAGGED,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        block_size=block_size,
        dtype=dtype,
    )

    result = cpu_attention(*batch.arguments(), **PLAIN, isa=isa)

    expected = reference_attention(*batch.arguments(), **PLAIN)
    torch.testing.assert_close(result, expected, **tolerance(dtype))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("softcap", [None, 0.5, 30.0])
@pytest.mark.parametrize("window", [None, 1, 16, 100, 700])
def test_cpu_agrees_with_reference_on_windows_and_caps(
    window: int | None, softcap: float | None, isa: str
) -> None:
    batch = paged_batch(RAGGED, num_heads=4)
    how = {"scale": 0.2, "window": window, "softcap": softcap}

    result = cpu_attention(*batch.arguments(), **how, isa=isa)

    expected = reference_attention(*batch.arguments(), **how)
    torch.testing.assert_close(result, expected, **tolerance(torch.float32))


def test_query_and_cache_may_differ_in_dtype() -> None:
    batch = paged_batch(RAGGED, dtype=torch.float32, cache_dtype=torch.bfloat16)

    result = cpu_attention(*batch.arguments(), **PLAIN)

    expected = reference_attention(*batch.arguments(), **PLAIN)
    torch.testing.assert_close(result, expected, **tolerance(torch.float32))


def test_query_out_and_caches_may_be_slices_of_larger_tensors() -> None:
    batch = paged_batch(RAGGED)
    fused = torch.cat([batch.query, torch.full_like(batch.query, torch.nan)], dim=1)
    pool = torch.stack([batch.k_cache, batch.v_cache], dim=1)
    out = torch.zeros_like(fused)
    num_heads = batch.query.shape[1]
    sliced = replace(batch, query=fused[:, :num_heads], k_cache=pool[:, 0], v_cache=pool[:, 1])

    cpu_attention(*sliced.arguments(), **PLAIN, out=out[:, num_heads:])

    assert torch.equal(out[:, num_heads:], cpu_attention(*batch.arguments(), **PLAIN))
    assert not out[:, :num_heads].any()


def implementations() -> list[object]:
    def with_isa(isa: str):
        return pytest.param(lambda *args, **kwargs: cpu_attention(*args, **kwargs, isa=isa), id=isa)

    return [pytest.param(reference_attention, id="reference"), *map(with_isa, ISAS)]


@pytest.mark.parametrize("attention", implementations())
@pytest.mark.parametrize("window", [None, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_requests_bits_do_not_depend_on_its_batch(attention, window, dtype) -> None:
    batch = paged_batch(RAGGED, num_heads=9, num_kv_heads=3, dtype=dtype)
    how = PLAIN | {"window": window}

    together = attention(*batch.arguments(), **how)

    starts = batch.query_start_loc.tolist()
    for request, (query_len, _) in enumerate(RAGGED):
        alone = attention(*batch.rows(request, 0, query_len).arguments(), **how)
        assert torch.equal(alone, together[starts[request] : starts[request + 1]])


@pytest.mark.parametrize("attention", implementations())
@pytest.mark.parametrize("chunk", [1, 16, 50])
@pytest.mark.parametrize("window", [None, 90])
def test_a_rows_bits_do_not_depend_on_how_the_prompt_was_cut(attention, window, chunk) -> None:
    query_len = 120
    batch = paged_batch([(query_len, 590)], num_heads=9, num_kv_heads=3)
    how = PLAIN | {"window": window}

    whole = attention(*batch.arguments(), **how)

    for first in range(0, query_len, chunk):
        last = min(first + chunk, query_len)
        part = attention(*batch.rows(0, first, last).arguments(), **how)
        assert torch.equal(part, whole[first:last])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("lengths", [RAGGED, [(1, 3000)], [(60, 60)]])
def test_bits_do_not_depend_on_the_number_of_threads(lengths, isa) -> None:
    batch = paged_batch(lengths)

    results = [
        cpu_attention(*batch.arguments(), **PLAIN, isa=isa, num_threads=threads)
        for threads in (1, 2, 5)
    ]

    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("isa", ISAS)
def test_what_is_not_finite_is_not_hidden(isa: str) -> None:
    batch = paged_batch([(1, 600), (1, 600)])
    batch.k_cache[batch.block_tables[0, 2], :, 3] = torch.nan

    result = cpu_attention(*batch.arguments(), **PLAIN, isa=isa)

    assert result[0].isnan().all()
    assert result[1].isfinite().all()


def test_a_request_without_rows_is_passed_over() -> None:
    batch = paged_batch([(1, 20), (0, 5), (2, 30)])

    result = cpu_attention(*batch.arguments(), **PLAIN)

    expected = reference_attention(*batch.arguments(), **PLAIN)
    torch.testing.assert_close(result, expected, **tolerance(torch.float32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": torch.zeros(2, 4, 64)}, "4 query heads cannot share 3"),
        ({"query": torch.zeros(2, 6, 32)}, "query must have shape [2, 6, 64]"),
        (
            {"query": torch.zeros(2, 6, 64, dtype=torch.float16)},
            "query must be float32 or bfloat16",
        ),
        ({"query": torch.zeros(2, 64, 6).mT}, "each token of query must be contiguous"),
        ({"v_cache": torch.zeros(9, 3, 16, 64)}, "k_cache and v_cache must both be [num_blocks"),
        ({"v_cache": torch.zeros(8, 3, 64, 16).mT}, "blocks of k_cache and v_cache must be contig"),
        ({"seq_lens": torch.tensor([40])}, "seq_lens must be contiguous int32"),
        ({"seq_lens": torch.tensor([40, 1]).int()}, "seq_lens must have shape [1]"),
        ({"seq_lens": torch.tensor([49]).int()}, "seq_lens[0] is 49"),
        ({"seq_lens": torch.tensor([1]).int()}, "seq_lens[0] is 1"),
        ({"query_start_loc": torch.tensor([0, 3]).int()}, "query_start_loc[1] is 3"),
        ({"block_tables": torch.tensor([[0, 1, 8]]).int()}, "names block 8, the cache has 8"),
        ({"block_tables": torch.tensor([[0, -1, 2]]).int()}, "names block -1, the cache has 8"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(change, message) -> None:
    cache = torch.zeros(8, 3, 16, 64)
    batch = PagedBatch(
        torch.zeros(2, 6, 64),
        cache,
        cache,
        torch.tensor([[0, 1, 2]], dtype=torch.int32),
        torch.tensor([40], dtype=torch.int32),
        torch.tensor([0, 2], dtype=torch.int32),
    )

    with pytest.raises(ValueError, match=re.escape(message)):
        cpu_attention(*replace(batch, **change).arguments(), **PLAIN)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"window": 0}, "window must be at least 1, got 0"),
        ({"softcap": 0.0}, "softcap must be above 0, got 0.0"),
        ({"num_threads": 0}, "num_threads must be at least 1, got 0"),
        ({"isa": "sse9"}, "isa must be one of portable, avx2, avx512, got 'sse9'"),
        ({"out": torch.zeros(2, 6, 32)}, "out must have shape [2, 6, 64]"),
        (
            {"out": torch.zeros(2, 6, 64).bfloat16()},
            "out is torch.bfloat16, query is torch.float32",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(option, message) -> None:
    batch = paged_batch([(2, 20)])

    with pytest.raises(ValueError, match=re.escape(message)):
        cpu_attention(*batch.arguments(), **(PLAIN | option))
