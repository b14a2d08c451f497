"""Where top-k and top-p cut a row: a pass of `kernels.gpu.sampling`.

Nothing is sorted. Candidates above a floor that surely keeps enough are copied side by side; then
the cut is the largest value v with

    top-k    as many as top_k of them at v or above
    top-p    a sum of weights at v or above of top_p of all (of those that top-k keeps)

found by halving the interval of float32 numbers that it must be in: at most 32 counts or sums.
Of tokens equal to v, those with the lowest ids are kept.
"""

from __future__ import annotations

import torch

from kernels.gpu.sampling_row import BLOCK, load_block, row_maximum, steepness, weights_of
from kernels.gpu.triton_types import constexpr, kernel, next_power_of_2, tl

_LOWEST = constexpr(-3.4028234663852886e38)  # the least float32
_BITS = constexpr(0x7FFFFFFF)
_LN2 = constexpr(0.6931471805599453)


@kernel()
def _key(value: tl.tensor) -> tl.tensor:
    """An int64 that orders as the float32 value does."""
    bits = value.to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) & _BITS)).to(tl.int64)


@kernel()
def _value(key: tl.tensor) -> tl.tensor:
    """The float32 of a key."""
    bits = key.to(tl.int32)
    return (bits ^ ((bits >> 31) & _BITS)).to(tl.float32, bitcast=True)


@kernel()
def _largest_with_count(
    values: tl.tensor, count: tl.tensor, least: tl.tensor, most: tl.tensor
) -> tl.tensor:
    """The largest number that `count` of the values [n] reach, if `least` is one."""
    low, high = _key(least), _key(most) + 1
    while high - low > 1:
        middle = low + (high - low) // 2
        enough = tl.sum((values >= _value(middle)).to(tl.int32), 0) >= count
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle)
    return _value(low)


@kernel()
def _tally(
    candidates_ptr: tl.tensor,  # [count]
    count: tl.tensor,
    value: tl.tensor,
    maximum: tl.tensor,
    steep: tl.tensor,
    WEIGHTS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> tl.tensor:
    """Candidates above value and equal to it; sums of the weights of those above, if WEIGHTS."""
    above = tl.zeros([BLOCK], tl.int32)
    equal = tl.zeros([BLOCK], tl.int32)
    weights = tl.zeros([BLOCK], tl.float64)
    for start in range(0, count, BLOCK):
        places = start + tl.arange(0, BLOCK)
        x = tl.load(candidates_ptr + places, mask=places < count, other=float("-inf"))
        above += (x > value).to(tl.int32)
        equal += (x == value).to(tl.int32)
        if WEIGHTS:
            weights += tl.where(x > value, weights_of(x, maximum, steep), 0.0)
    return tl.sum(above, 0), tl.sum(equal, 0), tl.sum(weights, 0)


@kernel(batch_dependent=("num_rows",))
def _find_cuts(
    logits_ptr: tl.tensor,  # [num_rows, vocab_size]
    floats_ptr: tl.tensor,  # [4, num_rows]
    ints_ptr: tl.tensor,  # [2, num_rows]
    masks_ptr: tl.tensor,  # [num_masks, num_words], or None
    maxima_ptr: tl.tensor,  # [num_rows, num_blocks]
    sums_ptr: tl.tensor,  # [num_rows, num_blocks], of rows with top-p alone
    candidates_ptr: tl.tensor,  # [num_rows, vocab_size] float32, overwritten
    cut_values_ptr: tl.tensor,  # [num_rows]
    cut_ids_ptr: tl.tensor,  # [num_rows]
    num_rows: tl.tensor,
    vocab_size: tl.tensor,
    stride: tl.tensor,
    num_words: tl.tensor,
    num_blocks: tl.tensor,
    BLOCK: tl.constexpr,
    NUM_BLOCKS: tl.constexpr,
) -> None:
    row = tl.program_id(0)
    temperature = tl.load(floats_ptr + row)
    top_p = tl.load(floats_ptr + num_rows + row)
    top_k = tl.load(ints_ptr + row)
    limits_count = (top_k > 0) & (top_k < vocab_size)
    maxima, maximum, bad = row_maximum(maxima_ptr, row, num_blocks, NUM_BLOCKS)
    cut_value = float("-inf")
    cut_id = vocab_size
    if (temperature > 0.0) & (limits_count | (top_p < 1.0)) & (bad == 0):
        steep = steepness(temperature)
        candidates_ptr += row.to(tl.int64) * vocab_size
        lowest = maximum * 0.0 + _LOWEST
        # As many blocks as top_k have a maximum of at least the top_k-th largest maximum.
        floor = lowest
        if limits_count & (top_k <= num_blocks):
            floor = tl.maximum(_largest_with_count(maxima, top_k, lowest, maximum), lowest)
        wanted = temperature * 0.0
        if limits_count == 0:
            blocks = tl.arange(0, NUM_BLOCKS)
            places = sums_ptr + row.to(tl.int64) * num_blocks + blocks
            wanted = tl.sum(tl.load(places, mask=blocks < num_blocks, other=0.0), 0) * top_p
            # Most nuclei end within the first thousandth of the likeliest token's weight.
            floor = tl.maximum((maximum - 10.0 * _LN2 * temperature).to(tl.float32), lowest)
        count = 0
        enough = 0
        while enough == 0:
            count = 0
            for block in range(num_blocks):
                if tl.load(maxima_ptr + row.to(tl.int64) * num_blocks + block) >= floor:
                    x, _, _ = load_block(
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
                    taken = (x >= floor).to(tl.int32)
                    places = count + tl.cumsum(taken, 0) - 1
                    tl.store(candidates_ptr + places, x, mask=taken == 1)
                    count += tl.sum(taken, 0)
            tl.debug_barrier()  # what other threads stored is read below
            enough = 1
            if (limits_count == 0) & (floor > lowest):
                just_below = _value(_key(floor) - 1)
                _, _, sum_above = _tally(
                    candidates_ptr, count, just_below, maximum, steep, True, BLOCK
                )
                if sum_above < wanted:
                    enough = 0
                    floor = lowest
                    tl.debug_barrier()  # all have read before others store again
        cut_value = floor
        num_equal = vocab_size
        if limits_count:
            low, high = _key(floor), _key(maximum) + 1
            while high - low > 1:
                middle = low + (high - low) // 2
                above, equal, _ = _tally(
                    candidates_ptr, count, _value(middle), maximum, steep, False, BLOCK
                )
                reached = above + equal >= top_k
                low = tl.where(reached, middle, low)
                high = tl.where(reached, high, middle)
            cut_value = _value(low)
            above, _, sum_above = _tally(
                candidates_ptr, count, cut_value, maximum, steep, True, BLOCK
            )
            num_equal = top_k - above
            wanted = sum_above + num_equal * weights_of(cut_value, maximum, steep)
            wanted *= top_p
        if top_p < 1.0:
            # At `least`, what top-k kept of it counts, and no more.
            least = cut_value
            num_least = num_equal
            low, high = _key(least), _key(maximum) + 1
            while high - low > 1:
                middle = low + (high - low) // 2
                value = _value(middle)
                _, equal, sum_above = _tally(
                    candidates_ptr, count, value, maximum, steep, True, BLOCK
                )
                weight = weights_of(value, maximum, steep)
                reached = sum_above + equal * weight >= wanted
                low = tl.where(reached, middle, low)
                high = tl.where(reached, high, middle)
            cut_value = _value(low)
            _, equal, sum_above = _tally(
                candidates_ptr, count, cut_value, maximum, steep, True, BLOCK
            )
            most = tl.where(cut_value == least, tl.minimum(equal, num_least), equal)
            weight = weights_of(cut_value, maximum, steep)
            needed = tl.ceil((wanted - sum_above) / tl.where(weight > 0.0, weight, 1.0))
            most = most.to(tl.float64)
            num_equal = tl.maximum(tl.minimum(needed, most), 1.0).to(tl.int32)
        # The id of the last of the equal ones that is kept.
        seen = 0
        for block in range(num_blocks):
            if (seen < num_equal) & (
                tl.load(maxima_ptr + row.to(tl.int64) * num_blocks + block) >= cut_value
            ):
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
                is_equal = (x == cut_value).to(tl.int32)
                is_last = (is_equal == 1) & (seen + tl.cumsum(is_equal, 0) == num_equal)
                cut_id = tl.minimum(cut_id, tl.min(tl.where(is_last, ids, vocab_size), 0))
                seen += tl.sum(is_equal, 0)
    tl.store(cut_values_ptr + row, cut_value)
    tl.store(cut_ids_ptr + row, cut_id)


def find_cuts(
    logits: torch.Tensor,
    floats: torch.Tensor,
    ints: torch.Tensor,
    masks: torch.Tensor | None,
    maxima: torch.Tensor,
    cut_values: torch.Tensor,
    cut_ids: torch.Tensor,
    sums: torch.Tensor,
) -> None:
    """Writes the cut of each row: -inf where all is kept. Arguments as the kernel has them."""
    num_rows, vocab_size = logits.shape
    num_blocks = maxima.shape[1]
    _find_cuts[(num_rows,)](
        logits,
        floats,
        ints,
        masks,
        maxima,
        sums,
        torch.empty(num_rows, vocab_size, dtype=torch.float32, device=logits.device),
        cut_values,
        cut_ids,
        num_rows,
        vocab_size,
        logits.stride(0),
        0 if masks is None else masks.shape[1],
        num_blocks,
        BLOCK=BLOCK,
        NUM_BLOCKS=next_power_of_2(num_blocks),
        num_warps=4,
    )
