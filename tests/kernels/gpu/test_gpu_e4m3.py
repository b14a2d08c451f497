"""Float8 numbers by integer arithmetic, against torch's, and by the one instruction there is."""

from __future__ import annotations

import pytest
import torch
from compile_checks import SM80, SM90, compile_for

from kernels.gpu import e4m3
from kernels.gpu.e4m3 import decode_e4m3, encode_e4m3
from kernels.gpu.triton_types import kernel, tl

CODES = torch.arange(256).to(torch.uint8)


@kernel()
def _encode(x_ptr: tl.tensor, codes_ptr: tl.tensor, SIZE: tl.constexpr) -> None:
    place = tl.arange(0, SIZE)
    tl.store(codes_ptr + place, encode_e4m3(tl.load(x_ptr + place)))


@kernel()
def _decode(
    codes_ptr: tl.tensor, x_ptr: tl.tensor, SIZE: tl.constexpr, HARDWARE: tl.constexpr
) -> None:
    place = tl.arange(0, SIZE)
    values = decode_e4m3(tl.load(codes_ptr + place), x_ptr.dtype.element_ty, HARDWARE)
    tl.store(x_ptr + place, values)


def encoded(x: torch.Tensor) -> torch.Tensor:
    codes = torch.zeros(len(x), dtype=torch.uint8)
    _encode[(1,)](x, codes, SIZE=len(x))
    return codes


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_every_byte_is_the_number_that_torch_reads(dtype: torch.dtype) -> None:
    values = torch.zeros(256, dtype=dtype)

    _decode[(1,)](CODES, values, SIZE=256, HARDWARE=False)

    torch.testing.assert_close(
        values, CODES.view(torch.float8_e4m3fn).to(dtype), rtol=0, atol=0, equal_nan=True
    )


def test_every_number_and_the_middles_between_become_torchs_byte() -> None:
    numbers = CODES[:127].view(torch.float8_e4m3fn).float()
    middles = (numbers[1:] + numbers[:-1]) / 2
    positive = torch.cat([numbers, middles, middles.nextafter(torch.tensor(0.0)), torch.ones(5)])
    x = torch.cat([positive, -positive, torch.zeros(1024 - 2 * len(positive))])

    assert torch.equal(encoded(x), x.to(torch.float8_e4m3fn).view(torch.uint8))


def test_what_is_too_large_becomes_the_largest_and_nan_stays_nan() -> None:
    x = torch.tensor([449.0, 1e30, -500.0, torch.inf, -torch.inf, torch.nan, 448.0, -448.0])

    values = encoded(x).view(torch.float8_e4m3fn).float()

    limit = e4m3.E4M3_MAX
    expected = torch.tensor([limit, limit, -limit, limit, -limit, torch.nan, limit, -limit])
    torch.testing.assert_close(values, expected, equal_nan=True)


def test_hopper_reads_it_by_an_instruction_and_ampere_without() -> None:
    pointers = {"codes_ptr": "*u8", "x_ptr": "*bf16"}

    hopper = compile_for(_decode, pointers, {"SIZE": 1024, "HARDWARE": True}, SM90)
    ampere = compile_for(_decode, pointers, {"SIZE": 1024, "HARDWARE": False}, SM80)

    assert "cvt.rn.f16x2.e4m3x2" in hopper.ptx
    assert "cvt.rn.f16x2.e4m3x2" not in ampere.ptx
