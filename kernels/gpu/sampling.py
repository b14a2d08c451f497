"""Picks a token from each row of logits without asking the host: `kernels.reference.sampling`.

    grid           pass
    row × block    maxima of the blocks, masks applied; NaN for a block that is not finite
    row × block    sums of weights, where top-p needs the sum of a whole row
    row            the cut: the last value that top-k and top-p keep, and its last id
    row × block    sums of the weights that are kept
    row            the block, then the token, in which the sum passes draw · total

Greedy rows need the first and the last pass only, and a batch of greedy rows runs no other.

Weights are float64, with a relative error of 6e-16, as in the CPU's kernels; what differs from the
reference is the order of sums. So a token differs only where draw · total, or top-p · total, is
within rounding of a boundary between tokens, some 1e-15 of the total. Weights below 2^-1022 are 0.
No order depends on the batch: a row's token is a function of the row and its parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from kernels.gpu.sampling_cut import find_cuts
from kernels.gpu.sampling_row import (
    BLOCK,
    kept_weights,
    load_block,
    row_maximum,
    steepness,
)
from kernels.gpu.triton_types import kernel, next_power_of_2, tl

if TYPE_CHECKING:
    from kernels.backend import Float64s, Int32s, PickInputs

_WARPS = 4


@dataclass(frozen=True, slots=True)
class DevicePicks:
    """How a token is picked from each of some rows, on the device; see `PickInputs`."""

    floats: torch.Tensor  # [4, num_picks] float64: temperature, top_p, min_p, draw
    ints: torch.Tensor  # [2, num_picks] int32: top_k, and the row of masks or -1
    masks: torch.Tensor | None  # [num_masks, ceil(vocab_size / 32)] int32
    greedy: bool  # whether all rows are

    @classmethod
    def of(cls, picks: PickInputs, device: torch.device) -> DevicePicks:
        """Copies what the host has to a device."""
        floats, ints = np.stack(picked_floats(picks)), np.stack(picked_ints(picks))
        masks = None
        if picks.masks is not None and picks.mask_of is not None:
            words = torch.from_numpy(picks.masks.view(np.int32))
            masks = words.to(device, non_blocking=True)
        return cls(
            torch.from_numpy(floats).to(device, non_blocking=True),
            torch.from_numpy(ints).to(device, non_blocking=True),
            masks,
            not picks.temperature.any(),
        )

    def of_rows(self, rows: slice) -> DevicePicks:
        """Those of some rows, themselves if it is all; in memory of their own, as kernels want."""
        if rows == slice(0, self.floats.shape[1]):
            return self
        floats, ints = self.floats[:, rows].contiguous(), self.ints[:, rows].contiguous()
        return DevicePicks(floats, ints, self.masks, self.greedy)


def picked_floats(picks: PickInputs) -> tuple[Float64s, ...]:
    """Rows of `DevicePicks.floats`."""
    return picks.temperature, picks.top_p, picks.min_p, picks.draw


def picked_ints(picks: PickInputs) -> tuple[Int32s, ...]:
    """Rows of `DevicePicks.ints`."""
    return picks.top_k, np.full_like(picks.top_k, -1) if picks.mask_of is None else picks.mask_of


@kernel(batch_dependent=("num_rows",))
def _block_maxima(
    logits_ptr: tl.tensor,  # [num_rows, vocab_size]
    ints_ptr: tl.tensor,  # [2, num_rows]
    masks_ptr: tl.tensor,  # [num_masks, num_words], or None
    maxima_ptr: tl.tensor,  # [num_rows, num_blocks]
    num_rows: tl.tensor,
    vocab_size: tl.tensor,
    stride: tl.tensor,
    num_words: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    row, block = tl.program_id(0), tl.program_id(1)
    x, _, allowed = load_block(
        logits_ptr, ints_ptr, masks_ptr, row, block, num_rows, vocab_size, stride, num_words, BLOCK
    )
    faults = tl.sum((allowed & ~(tl.abs(x) < float("inf"))).to(tl.int32), 0)
    maximum = tl.where(faults > 0, float("nan"), tl.max(x, 0))
    tl.store(maxima_ptr + row.to(tl.int64) * tl.num_programs(1) + block, maximum)


@kernel(batch_dependent=("num_rows",))
def _block_sums(
    logits_ptr: tl.tensor,  # [num_rows, vocab_size]
    floats_ptr: tl.tensor,  # [4, num_rows]
    ints_ptr: tl.tensor,  # [2, num_rows]
    masks_ptr: tl.tensor,  # [num_masks, num_words], or None
    maxima_ptr: tl.tensor,  # [num_rows, num_blocks]
    cut_values_ptr: tl.tensor,  # [num_rows] float32
    cut_ids_ptr: tl.tensor,  # [num_rows] int32
    sums_ptr: tl.tensor,  # [num_rows, num_blocks] float64
    num_rows: tl.tensor,
    vocab_size: tl.tensor,
    stride: tl.tensor,
    num_words: tl.tensor,
    num_blocks: tl.tensor,
    WHOLE: tl.constexpr,  # sums of all weights, for those rows whose cut needs it
    BLOCK: tl.constexpr,
    NUM_BLOCKS: tl.constexpr,  # the next power of 2
) -> None:
    row, block = tl.program_id(0), tl.program_id(1)
    temperature = tl.load(floats_ptr + row)
    wanted = temperature > 0.0
    if WHOLE:
        top_k = tl.load(ints_ptr + row)
        limits_count = (top_k > 0) & (top_k < vocab_size)
        wanted = wanted & (tl.load(floats_ptr + num_rows + row) < 1.0) & (limits_count == 0)
    _maxima, maximum, bad = row_maximum(maxima_ptr, row, num_blocks, NUM_BLOCKS)
    if wanted & (bad == 0):
        x, ids, _ = load_block(
            logits_ptr,
            ints_ptr,
            masks_ptr,
            row,
            block,
            num_rows,
            vocab_size,
            stride,
            num_words,
            BLOCK,
        )
        if WHOLE:
            cut_value = float("-inf")
            cut_id = vocab_size
            min_p = temperature * 0.0
        else:
            cut_value = tl.load(cut_values_ptr + row)
            cut_id = tl.load(cut_ids_ptr + row)
            min_p = tl.load(floats_ptr + 2 * num_rows + row)
        weights = kept_weights(x, ids, maximum, steepness(temperature), cut_value, cut_id, min_p)
        tl.store(sums_ptr + row.to(tl.int64) * num_blocks + block, tl.sum(weights, 0))


@kernel(batch_dependent=("num_rows",))
def _pick(
    logits_ptr: tl.tensor,  # [num_rows, vocab_size]
    floats_ptr: tl.tensor,  # [4, num_rows]
    ints_ptr: tl.tensor,  # [2, num_rows]
    masks_ptr: tl.tensor,  # [num_masks, num_words], or None
    maxima_ptr: tl.tensor,  # [num_rows, num_blocks]
    cut_values_ptr: tl.tensor,  # [num_rows]
    cut_ids_ptr: tl.tensor,  # [num_rows]
    sums_ptr: tl.tensor,  # [num_rows, num_blocks]
    tokens_ptr: tl.tensor,  # [num_rows] int32
    num_rows: tl.tensor,
    vocab_size: tl.tensor,
    stride: tl.tensor,
    num_words: tl.tensor,
    num_blocks: tl.tensor,
    GREEDY: tl.constexpr,
    BLOCK: tl.constexpr,
    NUM_BLOCKS: tl.constexpr,
) -> None:
    row = tl.program_id(0)
    none = 2147483647
    maxima, maximum, bad = row_maximum(maxima_ptr, row, num_blocks, NUM_BLOCKS)
    blocks = tl.arange(0, NUM_BLOCKS)
    token = -1  # kernels.backend.NOT_FINITE
    temperature = tl.load(floats_ptr + row)
    if bad == 0:
        if GREEDY or temperature == 0.0:
            block = tl.min(tl.where(maxima == maximum, blocks, none), 0)
            x, ids, _ = load_block(
                logits_ptr,
                ints_ptr,
                masks_ptr,
                row,
                block,
                num_rows,
                vocab_size,
                stride,
                num_words,
                BLOCK,
            )
            token = tl.min(tl.where(x == maximum, ids, none), 0)
        else:
            places = sums_ptr + row.to(tl.int64) * num_blocks + blocks
            sums = tl.load(places, mask=blocks < num_blocks, other=0.0)
            target = tl.sum(sums, 0) * tl.load(floats_ptr + 3 * num_rows + row)
            passed = (tl.cumsum(sums, 0) > target) & (sums > 0.0)
            last = tl.max(tl.where(sums > 0.0, blocks, 0), 0)
            block = tl.minimum(tl.min(tl.where(passed, blocks, none), 0), last)
            before = tl.sum(tl.where(blocks < block, sums, 0.0), 0)
            x, ids, _ = load_block(
                logits_ptr,
                ints_ptr,
                masks_ptr,
                row,
                block,
                num_rows,
                vocab_size,
                stride,
                num_words,
                BLOCK,
            )
            weights = kept_weights(
                x,
                ids,
                maximum,
                steepness(temperature),
                tl.load(cut_values_ptr + row),
                tl.load(cut_ids_ptr + row),
                tl.load(floats_ptr + 2 * num_rows + row),
            )
            # Where rounding hides the place, it is the last token that has any weight.
            passed = (before + tl.cumsum(weights, 0) > target) & (weights > 0.0)
            last = tl.max(tl.where(weights > 0.0, ids, 0), 0)
            token = tl.minimum(tl.min(tl.where(passed, ids, none), 0), last)
    tl.store(tokens_ptr + row, token)


def pick_tokens(
    logits: torch.Tensor, picks: DevicePicks, out: torch.Tensor | None = None
) -> torch.Tensor:
    """A token for each row of logits [num_picks, vocab_size]: int32 [num_picks], on the device.

    They are written to `out`, if that is given. NOT_FINITE stands where the reference has it.
    Logits are of any floating type, and taken as float32. Raises ValueError for logits whose
    columns are not adjacent.
    """
    num_rows, vocab_size = logits.shape
    device = logits.device
    tokens = torch.empty(num_rows, dtype=torch.int32, device=device) if out is None else out
    if num_rows == 0:
        return tokens
    if logits.stride(1) != 1:
        raise ValueError(f"logits with strides {logits.stride()}")
    num_blocks = -(-vocab_size // BLOCK)
    num_words = 0 if picks.masks is None else picks.masks.shape[1]
    maxima = torch.empty(num_rows, num_blocks, dtype=torch.float32, device=device)
    sizes = (num_rows, vocab_size, logits.stride(0), num_words)
    grid = (num_rows, num_blocks)
    _block_maxima[grid](
        logits, picks.ints, picks.masks, maxima, *sizes, BLOCK=BLOCK, num_warps=_WARPS
    )
    cut_values = cut_ids = sums = None
    arguments = (logits, picks.floats, picks.ints, picks.masks, maxima)
    tail = {"BLOCK": BLOCK, "NUM_BLOCKS": next_power_of_2(num_blocks), "num_warps": _WARPS}
    if not picks.greedy:
        sums = torch.empty(num_rows, num_blocks, dtype=torch.float64, device=device)
        cut_values = torch.empty(num_rows, dtype=torch.float32, device=device)
        cut_ids = torch.empty(num_rows, dtype=torch.int32, device=device)
        cuts = (cut_values, cut_ids, sums)
        _block_sums[grid](*arguments, *cuts, *sizes, num_blocks, WHOLE=True, **tail)
        find_cuts(*arguments, *cuts)
        _block_sums[grid](*arguments, *cuts, *sizes, num_blocks, WHOLE=False, **tail)
    _pick[(num_rows,)](
        *arguments,
        cut_values,
        cut_ids,
        sums,
        tokens,
        *sizes,
        num_blocks,
        GREEDY=picks.greedy,
        **tail,
    )
    return tokens


def argmax(logits: torch.Tensor) -> torch.Tensor:
    """The likeliest token of each row, the lowest id among equals; see `pick_tokens`."""
    num_rows = logits.shape[0]
    floats = torch.zeros(4, num_rows, dtype=torch.float64, device=logits.device)
    ints = torch.full((2, num_rows), -1, dtype=torch.int32, device=logits.device)
    return pick_tokens(logits, DevicePicks(floats, ints, None, greedy=True))
