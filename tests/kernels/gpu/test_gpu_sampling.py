"""Picks on a GPU: the reference's tokens for the same logits and draws, interpreted; compiled."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from compile_checks import TARGETS, Compiled, Target, assert_fits, compile_for

from kernels.backend import PickInputs
from kernels.gpu import sampling, sampling_cut
from kernels.gpu.sampling import DevicePicks, argmax, pick_tokens
from kernels.gpu.sampling_row import BLOCK
from kernels.reference.sampling import pick_tokens as reference_picks
from tests.support.picks import picks_of

CPU = torch.device("cpu")
RNG_SEED = 7


def assert_same_tokens(logits: np.ndarray, picks: PickInputs) -> None:
    result = pick_tokens(torch.from_numpy(logits), DevicePicks.of(picks, CPU))

    assert result.dtype is torch.int32
    assert result.tolist() == reference_picks(logits, picks).tolist()


def some_logits(num_rows: int, vocab_size: int) -> np.ndarray:
    rng = np.random.default_rng(RNG_SEED)
    return (3 * rng.standard_normal((num_rows, vocab_size))).astype(np.float32)


def some_draws(count: int) -> list[float]:
    """Draws all over [0, 1), both ends among them."""
    rng = np.random.default_rng(RNG_SEED)
    return [0.0, 1 - 2**-53, *rng.random(count - 2)]


PARAMETERS = [
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 1.3, "min_p": 0.1},
    {"temperature": 0.7, "top_k": 20},
    {"temperature": 1.3, "top_p": 0.8},
    {"temperature": 1.0, "top_k": 40, "top_p": 0.9, "min_p": 0.01},
]


@pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
@pytest.mark.parametrize("vocab_size", [70, 1100])
def test_tokens_are_the_references(vocab_size, parameters):
    logits = some_logits(3, vocab_size)

    assert_same_tokens(logits, picks_of(range(3), draw=some_draws(3), **parameters))


@pytest.mark.parametrize("parameters", [PARAMETERS[1], PARAMETERS[2]], ids=str)
def test_tokens_are_the_references_for_many_draws(parameters):
    logits = np.repeat(some_logits(1, 1100), 50, axis=0)

    assert_same_tokens(logits, picks_of(range(50), draw=some_draws(50), **parameters))


@pytest.mark.parametrize(
    "parameters",
    [{"top_k": 33}, {"top_p": 0.6}, {"top_k": 33, "top_p": 0.6}, {"temperature": 0.0}],
    ids=str,
)
def test_of_equal_logits_the_lowest_ids_are_kept(parameters):
    logits = np.round(some_logits(3, 1100))

    assert_same_tokens(
        logits,
        picks_of(range(3), draw=[0.1, 0.5, 1 - 2**-53], **({"temperature": 1.0} | parameters)),
    )


@pytest.mark.parametrize("parameters", [{"top_p": 0.4}, {"top_p": 0.999999}, {"top_k": 1}], ids=str)
def test_all_equal_logits_are_cut_by_id_alone(parameters):
    logits = np.zeros((2, 10), np.float32)

    assert_same_tokens(logits, picks_of(range(2), temperature=1.0, draw=[0.3, 0.99], **parameters))


def test_rows_of_every_kind_share_a_batch():
    logits = some_logits(5, 1100)
    picks = picks_of(
        range(5),
        temperature=[0.0, 0.5, 1.0, 2.0, 1e-6],
        top_k=[0, 5, 0, 2000, 3],
        top_p=[0.1, 1.0, 0.5, 1.0, 0.9],
        min_p=[0.0, 0.2, 0.0, 0.05, 0.0],
        draw=[0.9, 0.4, 0.5, 0.6, 0.7],
    )

    assert_same_tokens(logits, picks)


@pytest.mark.parametrize("parameters", [{}, {"top_k": 7}, {"top_p": 0.7}], ids=str)
def test_masks_come_before_all_else(parameters):
    logits = some_logits(4, 1100)
    logits[0, 0] = math.nan  # masked: nobody's business
    rng = np.random.default_rng(RNG_SEED)
    masks = rng.integers(0, 2**32, (2, 35), dtype=np.uint32) & ~np.uint32(1)
    masks[1] = 0
    masks[1, 34] = 3 << 9  # two tokens of the last, ragged word
    picks = dataclasses.replace(
        picks_of(range(4), temperature=[1.0, 1.0, 1.0, 0.0], draw=some_draws(4), **parameters),
        masks=masks,
        mask_of=np.array([0, 1, -1, 1], np.int32),
    )

    assert_same_tokens(logits, picks)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_row_that_is_not_finite_has_no_token(value):
    logits = some_logits(4, 1100)
    logits[1, 1099] = logits[2, 3] = value

    assert_same_tokens(logits, picks_of(range(4), temperature=[1.0, 1.0, 0.0, 0.0], top_k=3))


def test_a_row_whose_mask_allows_nothing_has_no_token():
    picks = dataclasses.replace(
        picks_of(range(2), temperature=[0.0, 1.0]),
        masks=np.zeros((1, 2), np.uint32),
        mask_of=np.zeros(2, np.int32),
    )

    assert_same_tokens(some_logits(2, 50), picks)


def test_a_large_vocabulary_in_half_precision():
    logits = torch.from_numpy(some_logits(2, 49_152)).half()
    picks = picks_of(range(2), temperature=[0.0, 0.8], draw=0.77)

    result = pick_tokens(logits, DevicePicks.of(picks, CPU))

    assert result.tolist() == reference_picks(logits.float().numpy(), picks).tolist()


def test_argmax_takes_the_lowest_of_equals():
    logits = torch.zeros(2, 2000)
    logits[0, 1500:1502] = 1.0

    assert argmax(logits).tolist() == [1500, 0]


def test_no_rows_no_tokens():
    assert argmax(torch.zeros(0, 5)).tolist() == []


TYPES = {
    "logits_ptr": "*fp32",
    "floats_ptr": "*fp64",
    "ints_ptr": "*i32",
    "masks_ptr": "*i32",
    "maxima_ptr": "*fp32",
    "sums_ptr": "*fp64",
    "cut_values_ptr": "*fp32",
    "cut_ids_ptr": "*i32",
    "num_rows": "i32",
    "vocab_size": "i32:16",
    "stride": "i32:16",
    "num_words": "i32:16",
    "num_blocks": "i32:16",
}
CONSTANTS = {"BLOCK": BLOCK, "NUM_BLOCKS": 256}  # a vocabulary of 262,144


@pytest.mark.parametrize("target", TARGETS)
def test_the_cut_compiles_for_every_target(target: Target):
    types = TYPES | {"candidates_ptr": "*fp32"}

    assert_nearly_fits(compile_for(sampling_cut._find_cuts, types, CONSTANTS, target), target)


@pytest.mark.parametrize("target", TARGETS)
def test_weights_are_float64_with_all_their_digits(target: Target):
    compiled = compile_for(sampling._block_sums, TYPES, CONSTANTS | {"WHOLE": False}, target)

    assert_fits(compiled, target)
    assert "0d3FE62E42FEFA39F7" in compiled.ptx  # the logarithm of 2, not by way of float32


@pytest.mark.parametrize("target", TARGETS)
def test_the_pick_compiles_for_every_target(target: Target):
    types = TYPES | {"tokens_ptr": "*i32"}

    compiled = compile_for(sampling._pick, types, CONSTANTS | {"GREEDY": False}, target)

    assert_nearly_fits(compiled, target)


def assert_nearly_fits(compiled: Compiled, target: Target) -> None:
    """`assert_fits`, but for a few registers that calls put by: divisions of float64 are calls."""
    assert compiled.spilled_bytes <= 32
    assert_fits(dataclasses.replace(compiled, spilled_bytes=0), target)
