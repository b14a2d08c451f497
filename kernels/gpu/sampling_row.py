"""What the passes of `kernels.gpu.sampling` share: blocks of a row, its maximum, its weights."""

from __future__ import annotations

from kernels.gpu.triton_types import constexpr, kernel, tl

BLOCK = 1024  # logits of a program; the order of sums follows from it

# 2^f = 1 + f · (c0 + c1·f + …) on [-0.5, 0.5], by interpolation at Chebyshev nodes: those of the
# CPU's sampling kernels.
_C0 = constexpr(float.fromhex("0x1.62e42fefa39f7p-1"))
_C1 = constexpr(float.fromhex("0x1.ebfbdff82c590p-3"))
_C2 = constexpr(float.fromhex("0x1.c6b08d7044119p-5"))
_C3 = constexpr(float.fromhex("0x1.3b2ab6fba385fp-7"))
_C4 = constexpr(float.fromhex("0x1.5d87fe908f88ap-10"))
_C5 = constexpr(float.fromhex("0x1.4309130378460p-13"))
_C6 = constexpr(float.fromhex("0x1.ffcb76789860fp-17"))
_C7 = constexpr(float.fromhex("0x1.62bfe46117445p-20"))
_C8 = constexpr(float.fromhex("0x1.b6571de2f2351p-24"))
_C9 = constexpr(float.fromhex("0x1.e5e9f548e5725p-28"))
_LOG2_E = constexpr(1.4426950408889634)
_ROUND = constexpr(6755399441055744.0)  # 1.5 · 2^52: the nearest integer is in a sum's low bits
_LEAST = constexpr(-1022.0)


@kernel()
def load_block(
    logits_ptr: tl.tensor,  # [num_rows, vocab_size]
    ints_ptr: tl.tensor,  # [2, num_rows]
    masks_ptr: tl.tensor,  # [num_masks, num_words], or None
    row: tl.tensor,
    block: tl.tensor,
    num_rows: tl.tensor,
    vocab_size: tl.tensor,
    stride: tl.tensor,
    num_words: tl.tensor,
    BLOCK: tl.constexpr,
) -> tl.tensor:
    """Float32 logits of a block, -inf where there is none or it is masked; ids; which count."""
    ids = block * BLOCK + tl.arange(0, BLOCK)
    allowed = ids < vocab_size
    x = tl.load(logits_ptr + row.to(tl.int64) * stride + ids, mask=allowed, other=float("-inf"))
    if masks_ptr is not None:
        mask = tl.load(ints_ptr + num_rows + row)
        words = masks_ptr + mask.to(tl.int64) * num_words + ids // 32
        word = tl.load(words, mask=allowed & (mask >= 0), other=-1)
        allowed = allowed & (((word >> (ids % 32)) & 1) == 1)
    return tl.where(allowed, x.to(tl.float32), float("-inf")), ids, allowed


@kernel()
def row_maximum(
    maxima_ptr: tl.tensor,  # [num_rows, num_blocks]
    row: tl.tensor,
    num_blocks: tl.tensor,
    NUM_BLOCKS: tl.constexpr,
) -> tl.tensor:
    """The maxima of a row's blocks [NUM_BLOCKS], the largest, and whether there is no token."""
    blocks = tl.arange(0, NUM_BLOCKS)
    places = maxima_ptr + row.to(tl.int64) * num_blocks + blocks
    maxima = tl.load(places, mask=blocks < num_blocks, other=float("-inf"))
    faults = tl.sum((maxima != maxima).to(tl.int32), 0)
    maximum = tl.max(maxima, 0)
    return maxima, maximum, ((faults > 0) | (maximum == float("-inf"))).to(tl.int32)


@kernel()
def steepness(temperature: tl.tensor) -> tl.tensor:
    """What `weights_of` multiplies differences with; finite however low the temperature."""
    steep = _LOG2_E / temperature
    return tl.where(steep < 1e300, steep, 1e300)


@kernel()
def weights_of(x: tl.tensor, maximum: tl.tensor, steep: tl.tensor) -> tl.tensor:
    """exp((x - maximum) / temperature) in float64: exactly 1 at the maximum, 0 for -inf."""
    exponent = (x.to(tl.float64) - maximum.to(tl.float64)) * steep
    counts = exponent >= _LEAST
    exponent = tl.where(counts, exponent, 0.0)
    shifted = exponent + _ROUND
    f = exponent - (shifted - _ROUND)
    p = f * _C9 + _C8
    p = p * f + _C7
    p = p * f + _C6
    p = p * f + _C5
    p = p * f + _C4
    p = p * f + _C3
    p = p * f + _C2
    p = p * f + _C1
    p = p * f + _C0
    p = p * f + 1.0
    bits = p.to(tl.int64, bitcast=True) + (shifted.to(tl.int64, bitcast=True) << 52)
    return tl.where(counts, bits.to(tl.float64, bitcast=True), 0.0)


@kernel()
def kept_weights(
    x: tl.tensor,
    ids: tl.tensor,
    maximum: tl.tensor,
    steep: tl.tensor,
    cut_value: tl.tensor,
    cut_id: tl.tensor,
    min_p: tl.tensor,
) -> tl.tensor:
    """Weights of the tokens down to the cut, and 0 for those below it or of less than min_p."""
    weights = weights_of(x, maximum, steep)
    kept = (x > cut_value) | ((x == cut_value) & (ids <= cut_id))
    return tl.where(kept & (weights >= min_p), weights, 0.0)
