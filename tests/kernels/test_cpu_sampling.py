"""The C++ picks of tokens against their definition in numpy.

Both invert one cumulative distribution, but their sums round differently: where they differ, the
draw must lie within 1e-12 of the border between the two tokens.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from kernels.backend import NOT_FINITE, PickInputs
from kernels.cpu import library
from kernels.reference.sampling import pick_tokens

ISAS = library.require().isas
ROUNDING = 1e-12


class PickTokensArgs(ctypes.Structure):
    """OctavoPickTokens of kernels/cpu/src/abi.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("logits", "temperature", "top_k", "top_p")),
        *((name, ctypes.c_void_p) for name in ("min_p", "draw", "masks", "picked")),
        *((name, ctypes.c_int32) for name in ("num_rows", "vocab_size", "isa")),
    )


def pick(logits: npt.NDArray[np.float32], picks: PickInputs, isa: str) -> npt.NDArray[np.int32]:
    """The library's tokens for logits [num_rows, vocab_size]."""
    logits = np.ascontiguousarray(logits)
    picked = np.empty(len(logits), np.int32)
    arrays = (
        *(logits, picks.temperature, picks.top_k, picks.top_p, picks.min_p, picks.draw),
        *(picks.masks, picked),
    )
    args = PickTokensArgs(
        *(None if array is None else array.ctypes.data for array in arrays),
        *logits.shape,
        library.ISAS.index(isa),
    )
    assert library.require().handle.octavo_pick_tokens(ctypes.byref(args)) == 0
    return picked


def picks_of(
    num_rows: int,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    draw: float | npt.NDArray[np.float64] = 0.0,
) -> PickInputs:
    """One way to pick for all rows; draws may differ."""
    return PickInputs(
        rows=np.arange(num_rows, dtype=np.int32),
        temperature=np.full(num_rows, temperature),
        top_k=np.full(num_rows, top_k, dtype=np.int32),
        top_p=np.full(num_rows, top_p),
        min_p=np.full(num_rows, min_p),
        draw=np.zeros(num_rows) + draw,
    )


def interval(row: npt.NDArray[np.float32], picks: PickInputs, i: int, token: int) -> tuple:
    """The draws that give `token`, computed by sorting all tokens of row i."""
    order = np.argsort(-row, kind="stable")
    weights = np.exp((row.astype(np.float64) - row.max()) / picks.temperature[i])
    kept = order[: picks.top_k[i]] if 0 < picks.top_k[i] < row.size else order
    sums = np.cumsum(weights[kept])
    kept = kept[: np.searchsorted(sums, picks.top_p[i] * sums[-1]) + 1]
    kept = kept[weights[kept] >= picks.min_p[i]]
    assert token in kept
    ids = np.sort(kept)
    sums = np.cumsum(weights[ids]) / weights[ids].sum()
    at = int(np.searchsorted(ids, token))
    return (sums[at - 1] if at else 0.0), sums[at]


def assert_as_defined(logits: npt.NDArray[np.float32], picks: PickInputs, isa: str) -> None:
    """Every row gives the token of the definition, or its neighbour at a border."""
    found, expected = pick(logits, picks, isa), pick_tokens(logits, picks)
    for i in np.flatnonzero(found != expected):
        low, high = interval(logits[i], picks, i, int(found[i]))
        assert low - ROUNDING <= picks.draw[i] <= high + ROUNDING


def rows_like_a_model(num_rows: int, vocab_size: int, seed: int) -> npt.NDArray[np.float32]:
    """A few likely tokens above a broad rest, all rounded so that many are equal."""
    random = np.random.default_rng(seed)
    logits = random.normal(0.0, 2.5, (num_rows, vocab_size))
    peaks = random.integers(0, vocab_size, (num_rows, min(40, vocab_size)))
    np.put_along_axis(logits, peaks, random.normal(9.0, 3.0, peaks.shape), axis=1)
    return np.round(logits * 32).astype(np.float32) / 32


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("vocab_size", [1, 2, 15, 16, 127, 128, 129, 1000, 49_152])
def test_greedy_takes_the_lowest_id_of_the_maximum(isa: str, vocab_size: int) -> None:
    logits = rows_like_a_model(8, vocab_size, seed=vocab_size)
    logits[:, vocab_size // 2] = logits[:, -1] = logits.max(axis=1)

    by_temperature = pick(logits, picks_of(8, temperature=0.0), isa)
    by_top_k = pick(logits, picks_of(8, top_k=1, draw=0.99), isa)

    np.testing.assert_array_equal(by_temperature, logits.argmax(axis=1))
    np.testing.assert_array_equal(by_top_k, logits.argmax(axis=1))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("vocab_size", [1, 7, 128, 300, 5000, 49_152])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"temperature": 0.7},
        {"temperature": 30.0},
        {"top_k": 2},
        {"top_k": 50, "temperature": 1.5},
        {"top_k": 1700},
        {"top_k": 1 << 30},
        {"top_p": 0.9},
        {"top_p": 0.5, "temperature": 20.0},
        {"top_p": 1e-9},
        {"top_p": 0.999999},
        {"min_p": 0.05},
        {"min_p": 1.0},
        {"top_k": 40, "top_p": 0.8, "min_p": 0.02, "temperature": 1.2},
    ],
    ids=str,
)
def test_draws_are_those_of_the_definition(isa: str, vocab_size: int, how: dict) -> None:
    num_rows = 24
    logits = rows_like_a_model(num_rows, vocab_size, seed=vocab_size)
    draws = np.random.default_rng(5).random(num_rows)
    draws[0], draws[1] = 0.0, np.nextafter(1.0, 0.0)

    assert_as_defined(logits, picks_of(num_rows, draw=draws, **how), isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("how", [{"top_k": 100}, {"top_p": 0.25}, {"top_p": 0.25, "top_k": 640}])
def test_of_equal_tokens_the_lower_ids_are_kept(isa: str, how: dict) -> None:
    logits = np.zeros((64, 1000), dtype=np.float32)
    logits[:, ::3] = -0.0  # as large as 0
    draws = (np.arange(64) + 0.5) / 64
    picks = picks_of(64, draw=draws, **how)

    found = pick(logits, picks, isa)

    np.testing.assert_array_equal(found, pick_tokens(logits, picks))
    assert found.max() < 250


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("temperature", [1e-4, 1.0, 100.0, 1e30])
def test_extreme_logits_neither_overflow_nor_lose_the_likeliest(
    isa: str, temperature: float
) -> None:
    logits = rows_like_a_model(16, 700, seed=3)
    logits[:, 5] = -np.finfo(np.float32).max
    logits[:8, 600] = np.finfo(np.float32).max
    logits[8:] *= np.float32(1e-38)
    picks = picks_of(16, temperature=temperature, draw=np.linspace(0.0, 0.999, 16))

    assert_as_defined(logits, picks, isa)
    assert_as_defined(logits, replace(picks, top_p=np.full(16, 0.9)), isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("how", [{"temperature": 0.0}, {}, {"top_k": 5}, {"top_p": 0.5}], ids=str)
def test_a_row_that_is_not_finite_gives_no_token(isa: str, wrong: float, how: dict) -> None:
    logits = rows_like_a_model(4, 1001, seed=4)
    for row, token in enumerate((0, 517, 1000)):
        logits[row, token] = wrong

    found = pick(logits, picks_of(4, draw=0.5, **how), isa)

    assert found[:3].tolist() == [NOT_FINITE] * 3
    assert found[3] == pick_tokens(logits[3:], picks_of(1, draw=0.5, **how))[0]


def test_every_instruction_set_gives_the_same_token() -> None:
    logits = rows_like_a_model(64, 20_000, seed=6)
    picks = picks_of(64, temperature=1.3, top_p=0.97, draw=np.random.default_rng(7).random(64))

    by_isa = [pick(logits, picks, isa) for isa in ISAS]

    for found in by_isa[1:]:
        np.testing.assert_array_equal(found, by_isa[0])


def test_an_unknown_instruction_set_is_refused() -> None:
    args = PickTokensArgs(isa=99)

    assert library.require().handle.octavo_pick_tokens(ctypes.byref(args)) != 0


def masks_of(allowed: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    """Masks of `PickInputs` for allowed [num_rows, vocab_size]."""
    words = -(-allowed.shape[1] // 32)
    padded = np.zeros((len(allowed), 32 * words), np.uint8)
    padded[:, : allowed.shape[1]] = allowed
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint32)


def masked(picks: PickInputs, allowed: npt.NDArray[np.bool_]) -> PickInputs:
    rows = np.arange(len(allowed), dtype=np.int32)
    return replace(picks, masks=masks_of(allowed), mask_of=rows)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("share", [0.0005, 0.02, 0.5, 1.0])
@pytest.mark.parametrize("vocab_size", [70, 1000, 49_153])
@pytest.mark.parametrize(
    "how",
    [
        {"temperature": 0.0},
        {"temperature": 1.0},
        {"temperature": 1.5, "top_k": 40},
        {"temperature": 0.8, "top_p": 0.9},
        {"temperature": 1.0, "top_k": 300, "top_p": 0.7, "min_p": 0.01},
    ],
    ids=["greedy", "all", "top_k", "top_p", "everything"],
)
def test_only_tokens_that_a_mask_allows_are_picked(isa, share, vocab_size, how) -> None:
    rng = np.random.default_rng(vocab_size)
    num_rows = 12
    logits = rng.normal(0, 3, (num_rows, vocab_size)).astype(np.float32)
    allowed = rng.random(logits.shape) < share
    allowed[np.arange(num_rows), rng.integers(0, vocab_size, num_rows)] = True
    picks = masked(picks_of(num_rows, draw=rng.random(num_rows), **how), allowed)

    found = pick(logits, picks, isa)

    assert allowed[np.arange(num_rows), found].all()
    np.testing.assert_array_equal(found, pick_tokens(logits, picks))


@pytest.mark.parametrize("isa", ISAS)
def test_a_full_mask_changes_nothing(isa) -> None:
    logits = np.random.default_rng(3).normal(0, 3, (20, 5000)).astype(np.float32)
    picks = picks_of(20, top_p=0.95, draw=np.linspace(0, 0.999, 20))

    with_mask = pick(logits, masked(picks, np.ones(logits.shape, bool)), isa)

    np.testing.assert_array_equal(with_mask, pick(logits, picks, isa))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_mask_that_allows_nothing_or_nonsense_gives_no_token(isa, temperature) -> None:
    logits = np.zeros((3, 500), np.float32)
    allowed = np.zeros(logits.shape, bool)
    allowed[1, 7] = allowed[2, 7] = True
    logits[1, 7] = np.nan
    logits[2, 8] = np.nan  # not allowed, so nobody minds
    picks = masked(picks_of(3, temperature=temperature), allowed)

    found = pick(logits, picks, isa)

    assert found.tolist() == [NOT_FINITE, NOT_FINITE, 7]
    assert pick_tokens(logits, picks).tolist() == found.tolist()
