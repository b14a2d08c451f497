"""Float8 in its e4m3 form (OCP 8-bit floating point specification), as bytes: no infinity, one NaN.

    sign 1 | exponent 4, bias 7 | mantissa 3     largest 448, normal from 2⁻⁶, steps of 2⁻⁹ below

Bytes are made by integer arithmetic: the same everywhere, also where no instruction makes them
(before sm_89) and in Triton's interpreter, whose own conversion carries wrongly.
"""

from __future__ import annotations

from kernels.gpu.triton_types import constexpr, kernel, tl

E4M3_MAX = 448.0
_MAX = constexpr(E4M3_MAX)


@kernel()
def encode_e4m3(x: tl.tensor) -> tl.tensor:
    """Bytes of float32 values, rounded to nearest even; beyond ±448 they become ±448."""
    bits = x.to(tl.int32, bitcast=True)
    magnitude = tl.minimum(tl.abs(x), _MAX)
    magnitude_bits = magnitude.to(tl.int32, bitcast=True)
    # The upper three of 23 bits of mantissa stay; a carry runs into the exponent, as it should.
    rounded = (magnitude_bits + 0x7FFFF + ((magnitude_bits >> 20) & 1)) >> 20
    normal = rounded - ((127 - 7) << 3)
    # Neighbours of 2¹⁴ are 2⁻⁹ apart: the sum's last bits count the steps.
    steps = (magnitude + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
    code = tl.where(magnitude < 0.015625, steps, normal)
    code = tl.where(x != x, 0x7F, code)
    return (code | ((bits >> 24) & 0x80)).to(tl.uint8)


@kernel()
def decode_e4m3(codes: tl.tensor, DTYPE: tl.constexpr, HARDWARE: tl.constexpr) -> tl.tensor:
    """Values of bytes, exact in float16, bfloat16 and float32.

    HARDWARE: the device has an instruction for it (sm_89 and later)
    """
    if HARDWARE:
        return codes.to(tl.float8e4nv, bitcast=True).to(DTYPE)
    # Shifted into float16's places a number is 2⁸ times too small, for its bias of 15.
    wide = codes.to(tl.uint16)
    bits = ((wide & 0x80) << 8) | ((wide & 0x7F) << 7)
    bits = tl.where((wide & 0x7F) == 0x7F, 0x7E00, bits).to(tl.uint16)  # float16's NaN
    return (bits.to(tl.float16, bitcast=True) * 256.0).to(DTYPE)
