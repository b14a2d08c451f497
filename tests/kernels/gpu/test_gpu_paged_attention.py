"""Paged attention on a GPU, interpreted: against the reference, and bit for bit against itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from paged_batches import PagedBatch, paged_batch

from kernels.gpu import paged_attention as module
from kernels.gpu.launch_table import INTERPRETED
from kernels.gpu.paged_attention import PartialSums, paged_attention, partial_sums
from kernels.reference.paged_attention import paged_attention as reference_attention

CPU = torch.device("cpu")
SPLIT = INTERPRETED.split
# (query_len, seq_len): one row, at edges of tiles and splits; a prompt; a chunk of a longer one.
RAGGED = [(1, 1), (1, SPLIT), (1, SPLIT + 1), (9, 9), (7, 2 * SPLIT + 3)]
PLAIN = {"window": None, "softcap": None}
# Beyond rounding of the result: weights are rounded to float16 before they meet values.
TOLERANCE = {
    torch.float32: {"rtol": 1e-5, "atol": 5e-6},
    torch.float16: {"rtol": 2**-9, "atol": 2e-3},
}


def gpu_attention(
    batch: PagedBatch,
    *,
    dtype: torch.dtype = torch.float32,
    rows_per_request: int = 0,
    **how: object,
) -> torch.Tensor:
    """The interpreted kernels; with partial sums for requests of at most so many rows."""
    query, k_cache, v_cache, *indices = batch.arguments()
    lengths = batch.query_start_loc.diff()
    max_seq_len = int(batch.seq_lens.max())
    partials = None
    if rows_per_request:
        partials = dirty_partial_sums(batch, rows_per_request, max_seq_len)
    return paged_attention(
        query.to(dtype),
        k_cache.to(dtype),
        v_cache.to(dtype),
        *indices,
        scale=query.shape[2] ** -0.5,
        max_query_len=int(lengths.max()),
        max_seq_len=max_seq_len,
        partials=partials,
        **how,
    )


def dirty_partial_sums(batch: PagedBatch, rows_per_request: int, max_seq_len: int) -> PartialSums:
    """As another layer might have left them."""
    _, num_heads, head_dim = batch.query.shape
    sums = partial_sums(
        len(batch.seq_lens),
        rows_per_request,
        num_heads,
        head_dim,
        max_seq_len,
        launch=INTERPRETED,
        device=CPU,
    )
    for tensor in (sums.largest, sums.total, sums.summed):
        tensor.fill_(torch.nan)
    return sums


def expected_of(batch: PagedBatch, **how: object) -> torch.Tensor:
    return reference_attention(*batch.arguments(), scale=batch.query.shape[2] ** -0.5, **how)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_dim", "block_size"),
    [
        (2, 2, 64, 16),
        (4, 2, 80, 32),
        (6, 2, 96, 16),
        (4, 1, 128, 32),
        (5, 1, 64, 16),
        (6, 1, 80, 16),
        (7, 1, 64, 32),
        (8, 1, 256, 16),
    ],
)
def test_it_agrees_with_the_reference(
    num_heads: int, num_kv_heads: int, head_dim: int, block_size: int, dtype: torch.dtype
) -> None:
    batch = paged_batch(
        RAGGED,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        block_size=block_size,
    )

    result = gpu_attention(batch, dtype=dtype, **PLAIN)

    torch.testing.assert_close(result.float(), expected_of(batch, **PLAIN), **TOLERANCE[dtype])


@pytest.mark.parametrize("softcap", [None, 0.5])
@pytest.mark.parametrize("window", [None, 1, 40, SPLIT + 1])
def test_it_agrees_with_the_reference_on_windows_and_caps(
    window: int | None, softcap: float | None
) -> None:
    batch = paged_batch(RAGGED, num_heads=4, num_kv_heads=1)
    how = {"window": window, "softcap": softcap}

    result = gpu_attention(batch, **how)

    torch.testing.assert_close(result, expected_of(batch, **how), **TOLERANCE[torch.float32])


@pytest.mark.parametrize(
    ("rows_per_request", "sharers", "window"), [(1, 5, None), (1, 2, 70), (7, 5, 70), (7, 3, None)]
)
def test_rows_that_programs_share_have_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, rows_per_request: int, sharers: int, window: int | None
) -> None:
    batch = paged_batch([*RAGGED, (1, 5 * SPLIT)], num_heads=3, num_kv_heads=1)
    how = {"window": window, "softcap": None}
    tiles = 1 if rows_per_request == 1 else 3  # 7 rows at any place in tiles of 5
    programs = len(batch.seq_lens) * tiles * sharers
    monkeypatch.setattr(module, "SHARED_PROGRAMS", programs)

    shared = gpu_attention(batch, rows_per_request=rows_per_request, **how)

    assert torch.equal(shared, gpu_attention(batch, **how))


@pytest.mark.parametrize("window", [None, 70])
def test_a_requests_bits_do_not_depend_on_its_batch(window: int | None) -> None:
    batch = paged_batch(RAGGED, num_heads=3, num_kv_heads=1)
    how = {"window": window, "softcap": None}

    together = gpu_attention(batch, rows_per_request=1, **how)

    starts = batch.query_start_loc.tolist()
    for request, (query_len, _) in enumerate(RAGGED):
        alone = gpu_attention(batch.rows(request, 0, query_len), **how)
        assert torch.equal(alone, together[starts[request] : starts[request + 1]])


@pytest.mark.parametrize("chunk", [1, 7])
@pytest.mark.parametrize("window", [None, 30])
def test_a_rows_bits_do_not_depend_on_how_the_prompt_was_cut(
    window: int | None, chunk: int
) -> None:
    query_len = 19
    batch = paged_batch([(query_len, SPLIT + 60)], num_heads=3, num_kv_heads=1)
    how = {"window": window, "softcap": None}

    whole = gpu_attention(batch, **how)

    for first in range(0, query_len, chunk):
        last = min(first + chunk, query_len)
        part = gpu_attention(batch.rows(0, first, last), rows_per_request=1, **how)
        assert torch.equal(part, whole[first:last])


def test_a_float8_cache_is_read_as_the_numbers_it_stands_for() -> None:
    batch = paged_batch(RAGGED, num_heads=6, num_kv_heads=2)
    k_scale, v_scale = torch.tensor([[0.5, 0.03], [2.0, 0.25]])
    k_codes, v_codes = (
        (cache / scale[:, None, None]).to(torch.float8_e4m3fn)
        for cache, scale in ((batch.k_cache, k_scale), (batch.v_cache, v_scale))
    )
    stored = replace(
        batch,
        k_cache=k_codes.float() * k_scale[:, None, None],
        v_cache=v_codes.float() * v_scale[:, None, None],
    )

    result = paged_attention(
        batch.query,
        k_codes,
        v_codes,
        batch.block_tables,
        batch.seq_lens,
        batch.query_start_loc,
        scale=batch.query.shape[2] ** -0.5,
        max_query_len=9,
        max_seq_len=int(batch.seq_lens.max()),
        partials=dirty_partial_sums(batch, 1, int(batch.seq_lens.max())),
        k_scale=k_scale,
        v_scale=v_scale,
        **PLAIN,
    )

    torch.testing.assert_close(result, expected_of(stored, **PLAIN), rtol=1e-5, atol=1e-5)


def test_query_and_out_may_be_slices_of_larger_tensors() -> None:
    batch = paged_batch(RAGGED, num_heads=3, num_kv_heads=1)
    fused = torch.cat([batch.query, torch.full_like(batch.query, torch.nan)], 1)
    out = torch.zeros_like(fused)

    gpu_attention(replace(batch, query=fused[:, :3]), out=out[:, 3:], **PLAIN)

    assert torch.equal(out[:, 3:], gpu_attention(batch, **PLAIN))
    assert not out[:, :3].any()


def test_padding_of_a_captured_batch_is_left_out() -> None:
    """A graph that was captured for four requests, of which two are there."""
    batch = paged_batch([(1, 20), (1, SPLIT + 2)], num_heads=3, num_kv_heads=1)
    padded = PagedBatch(
        torch.cat([batch.query, torch.full_like(batch.query, torch.nan)]),
        batch.k_cache,
        batch.v_cache,
        torch.cat([batch.block_tables, torch.zeros_like(batch.block_tables)]),
        torch.cat([batch.seq_lens, torch.zeros_like(batch.seq_lens)]),
        torch.tensor([0, 1, 2, 2, 2], dtype=torch.int32),
    )
    out = torch.zeros_like(padded.query)

    gpu_attention(padded, rows_per_request=1, out=out, **PLAIN)

    assert torch.equal(out[:2], gpu_attention(batch, **PLAIN))
    assert not out[2:].any()


@pytest.mark.filterwarnings("ignore:All-NaN slice encountered")  # the interpreter's numpy
@pytest.mark.parametrize("what", ["query", "k_cache", "v_cache"])
def test_what_is_not_finite_is_not_hidden(what: str) -> None:
    batch = paged_batch([(1, SPLIT + 9), (1, SPLIT + 9)], num_heads=2)
    if what == "query":
        batch.query[0, :, 3] = torch.nan
    else:
        getattr(batch, what)[batch.block_tables[0, 2], :, 3] = torch.nan

    result = gpu_attention(batch, rows_per_request=1, **PLAIN)

    assert not result[0].isfinite().any(-1).all()
    assert result[1].isfinite().all()


def test_partial_sums_that_are_too_short_are_refused() -> None:
    batch = paged_batch([(1, SPLIT + 1)])
    sums = dirty_partial_sums(batch, 1, SPLIT)

    with pytest.raises(ValueError, match="partial sums of 1 splits cannot hold 2"):
        paged_attention(
            *batch.arguments(),
            scale=0.125,
            max_query_len=1,
            max_seq_len=SPLIT + 1,
            partials=sums,
            **PLAIN,
        )


def test_heads_that_cannot_be_shared_are_refused() -> None:
    batch = paged_batch([(1, 1)], num_heads=4, num_kv_heads=3)

    with pytest.raises(ValueError, match="4 query heads cannot share 3 key-value heads"):
        gpu_attention(batch, **PLAIN)
