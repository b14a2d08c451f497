"""Weights on their way from a file: the same bits as decoded as a whole, from a part at a time."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize

from kernels.backend import StoredTensor
from kernels.coded import UINT4, CodedTensor
from kernels.reference import weight_copy
from kernels.reference.weight_copy import copy_weight
from tests.support.coded_matrix import coded
from tests.support.stored_tensors import stored

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def gaussian(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("shape", [(70, 96), (70,)])
@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_dense_weights_have_the_bits_that_float32_rounds_to(
    shape: tuple[int, ...],
    source: torch.dtype,
    target: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(weight_copy, "_PART", 1000)  # ten rows: the last part has fewer values
    weight = stored(gaussian(*shape).to(source))

    assert torch.equal(copied(weight, target), as_a_whole(weight, target))


def blocks() -> StoredTensor:
    data = quantize(gaussian(70, 96).numpy(), GGMLQuantizationType.Q4_0)
    return StoredTensor("Q4_0", (70, 96), data.reshape(-1).view(np.uint8))


@pytest.mark.parametrize("weight", [coded((70, 96), UINT4), blocks()])
def test_codes_are_decoded_to_the_same_values_in_parts(
    weight: StoredTensor | CodedTensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_copy, "_PART", 1000)

    assert torch.equal(copied(weight, torch.bfloat16), as_a_whole(weight, torch.bfloat16))


@pytest.mark.parametrize("target", [torch.bfloat16, torch.float16])
def test_beside_the_file_the_host_has_a_part_of_a_weight(target: torch.dtype) -> None:
    weight = stored(torch.zeros(8192, 4096, dtype=torch.bfloat16))  # 64 MB, as float32 128
    out = torch.empty(weight.shape, dtype=target)  # stands for what is on a device

    tracemalloc.start()
    copy_weight(weight, out)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 40 << 20


def copied(weight: StoredTensor | CodedTensor, dtype: torch.dtype) -> torch.Tensor:
    out = torch.full(weight.shape, torch.nan, dtype=dtype)
    copy_weight(weight, out)
    return out


def as_a_whole(weight: StoredTensor | CodedTensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(weight.to_float32()).to(dtype)
