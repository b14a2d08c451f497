"""Rotary frequencies and rotation against transformers."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from kernels.reference.rope import rope, rope_table
from kernels.rope_frequencies import inverse_frequencies
from kernels.spec import RopeKind, RopeSpec

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
HEAD_DIM = 64

CASES = {
    "default": (RopeSpec(theta=100_000.0), {"rope_type": "default"}),
    "linear": (
        RopeSpec(theta=1e6, kind=RopeKind.LINEAR, factor=8.0),
        {"rope_type": "linear", "factor": 8.0},
    ),
    "llama3": (
        RopeSpec(
            theta=500_000.0,
            kind=RopeKind.LLAMA3,
            factor=32.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position=8192,
        ),
        {
            "rope_type": "llama3",
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    ),
    "yarn": (
        RopeSpec(
            theta=1e6,
            kind=RopeKind.YARN,
            factor=4.0,
            original_max_position=32_768,
            attention_factor=1.138629436111989,
        ),
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768},
    ),
    "yarn, as gpt-oss has it": (
        RopeSpec(
            theta=150_000.0,
            kind=RopeKind.YARN,
            factor=32.0,
            original_max_position=4096,
            attention_factor=1.25,
            truncate=False,
        ),
        {
            "rope_type": "yarn",
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "attention_factor": 1.25,
            "truncate": False,
        },
    ),
}


def _config(spec: RopeSpec, parameters: dict) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=4 * HEAD_DIM,
        num_attention_heads=4,
        max_position_embeddings=131_072,
        rope_parameters={"rope_theta": spec.theta, **parameters},
    )


def _random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("name", [name for name in CASES if name != "default"])
def test_frequencies_are_those_of_transformers(name) -> None:
    spec, parameters = CASES[name]

    theirs, attention_factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](
        _config(spec, parameters), device="cpu"
    )

    assert spec.attention_factor == pytest.approx(attention_factor)
    ours = torch.from_numpy(inverse_frequencies(spec, HEAD_DIM))
    torch.testing.assert_close(ours, theirs, rtol=5e-7, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_heads_turn_as_in_transformers(name, dtype) -> None:
    spec, parameters = CASES[name]
    positions = torch.tensor([0, 1, 17, 500, 2047], dtype=torch.int32)
    x = _random(5, 6, HEAD_DIM, dtype=dtype)
    theirs_of = LlamaRotaryEmbedding(_config(spec, parameters))
    cos, sin = theirs_of(x[None], positions[None].long())
    theirs, _ = apply_rotary_pos_emb(x.transpose(0, 1)[None], x.transpose(0, 1)[None], cos, sin)

    ours = rope(x, *rope_table(spec, HEAD_DIM, 2048, dtype).rows(positions))

    assert ours.dtype is dtype
    # Angles reach thousands: one unit of a frequency in float32 shows in the fourth decimal.
    tolerance = max(torch.finfo(dtype).eps, 3e-4)
    torch.testing.assert_close(ours, theirs[0].transpose(0, 1), rtol=tolerance, atol=4 * tolerance)


def test_the_default_form_is_the_same_to_the_bit() -> None:
    spec, parameters = CASES["default"]
    theirs_of = LlamaRotaryEmbedding(_config(spec, parameters))

    ours = rope_table(spec, HEAD_DIM, 2048, torch.float32)

    cos, sin = theirs_of(torch.zeros(1), torch.arange(2048)[None])
    assert torch.equal(torch.cat((ours.cos, ours.cos), 1), cos[0])
    assert torch.equal(torch.cat((ours.sin, ours.sin), 1), sin[0])


def test_position_zero_turns_nothing_and_lengths_are_kept() -> None:
    x = _random(2, 3, HEAD_DIM)
    table = rope_table(RopeSpec(), HEAD_DIM, 100, torch.float32)

    turned = rope(x, *table.rows(torch.tensor([0, 99])))

    assert torch.equal(turned[0], x[0])
    assert not torch.allclose(turned[1], x[1])
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))


@pytest.mark.parametrize("num_threads", [1, 2, 3], indirect=True)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_is_the_same_alone_and_in_any_batch(num_threads, dtype) -> None:
    table = rope_table(RopeSpec(), HEAD_DIM, 1024, dtype)
    qkv, positions = _random(512, 15, HEAD_DIM, dtype=dtype), torch.arange(512) + 100
    alone = torch.cat(
        [rope(qkv[i : i + 1, :12], *table.rows(positions[i : i + 1])) for i in range(512)]
    )

    for num_rows in (*range(1, 71), 512):
        rows = slice(512 - num_rows, 512)
        together = rope(qkv[rows, :12], *table.rows(positions[rows]))
        assert torch.equal(together, alone[rows]), num_rows
