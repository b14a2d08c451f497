"""Sums over ranks on a GPU: interpreted, the bits of the definition; and compiled."""

from __future__ import annotations

import pytest
import torch
from compile_checks import TARGETS, Target, assert_fits, compile_for

from kernels.collectives import in_order
from kernels.gpu import ordered_sum as module
from kernels.gpu.ordered_sum import sum_parts


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("shape", [(2, 1, 64), (3, 5, 577), (8, 0, 16)])
def test_it_has_the_bits_of_the_definition(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    parts = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)

    assert torch.equal(sum_parts(parts), in_order(list(parts)))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"sm_{target.capability}")
def test_it_compiles(target: Target) -> None:
    compiled = compile_for(
        module._sum_parts,
        {"parts_ptr": "*bf16", "out_ptr": "*bf16", "size": "i32:16"},
        {"RANKS": 8, "BLOCK": 1024},
        target,
    )

    assert_fits(compiled, target)
