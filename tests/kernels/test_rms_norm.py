"""Root-mean-square norms against transformers' modules, and their rows' independence."""

from __future__ import annotations

import pytest
import torch
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from kernels.reference.rms_norm import norm_scale, rms_norm

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def _random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("module", "offset"), [(LlamaRMSNorm, 0.0), (Gemma3RMSNorm, 1.0)])
def test_norms_round_where_the_models_do(dtype, module, offset) -> None:
    x, weight = _random(5, 576, dtype=dtype), _random(576, dtype=dtype, seed=1)
    theirs = module(576, eps=1e-5).to(dtype)
    theirs.weight.data.copy_(weight)

    ours = rms_norm(x, norm_scale(weight, offset, dtype), 1e-5)

    assert ours.dtype is dtype
    assert torch.equal(ours, theirs(x).detach())


def test_each_head_has_its_own_scale() -> None:
    x, scale = _random(3, 6, 64), _random(6, 64, seed=1)

    ours = rms_norm(x, scale, 1e-6)

    heads = [rms_norm(x[:, i], scale[i], 1e-6) for i in range(6)]
    assert torch.equal(ours, torch.stack(heads, dim=1))


def test_the_input_is_left_alone() -> None:
    x = _random(3, 64)
    before = x.clone()

    rms_norm(x, torch.full((64,), 2.0), 1e-6)

    assert torch.equal(x, before)


@pytest.mark.parametrize("num_threads", [1, 2, 3], indirect=True)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [576, 896, 100])
def test_a_row_is_the_same_alone_and_in_any_batch(num_threads, dtype, size) -> None:
    x, scale = _random(512, size, dtype=dtype), _random(size, dtype=dtype, seed=1)
    alone = torch.cat([rms_norm(row, scale, 1e-5) for row in x.split(1)])

    for num_rows in (*range(1, 71), 512):
        rows = slice(512 - num_rows, 512)
        assert torch.equal(rms_norm(x[rows], scale, 1e-5), alone[rows]), num_rows


@pytest.mark.parametrize("num_threads", [1, 2, 3], indirect=True)
@pytest.mark.parametrize("dtype", DTYPES)
def test_heads_within_a_fused_projection_are_the_same_too(num_threads, dtype) -> None:
    qkv, scale = _random(300, 8, 64, dtype=dtype), _random(6, 64, dtype=dtype, seed=1)
    alone = torch.cat([rms_norm(row[:, :6], scale, 1e-6) for row in qkv.split(1)])

    for num_rows in (*range(1, 71), 300):
        assert torch.equal(rms_norm(qkv[:num_rows, :6], scale, 1e-6), alone[:num_rows]), num_rows
