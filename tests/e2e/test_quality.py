"""What the quality benchmark measures is what transformers computes from the same checkpoint."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from tests.bench.quality import texts
from tests.bench.quality.figures import change
from tests.bench.quality.reference import load_reference, reference_scores
from tests.bench.quality.scoring import Scores, cut, score, tokenize
from tests.support.server import RunningServer, running_server

NUM_WINDOWS, WINDOW_TOKENS = 4, 256


@pytest.fixture(scope="module")
def windows(float32_server: RunningServer) -> list[list[int]]:
    tokens = asyncio.run(tokenize(float32_server.grpc_target, texts.code().content))
    return cut(tokens, WINDOW_TOKENS, NUM_WINDOWS)


@pytest.fixture(scope="module")
def expected(smollm2_checkpoint: Path, windows: list[list[int]]) -> Scores:
    """Transformers' scores, in float32."""
    return reference_scores(load_reference(smollm2_checkpoint), windows, lambda: None)


def _score(server: RunningServer, windows: list[list[int]]) -> Scores:
    return asyncio.run(score(server.grpc_target, windows, 1, len(windows), lambda: None))


@pytest.fixture(scope="module")
def bf16(server: RunningServer, windows: list[list[int]]) -> Scores:
    return _score(server, windows)


def test_float32_scores_are_those_of_transformers(
    float32_server: RunningServer, windows: list[list[int]], expected: Scores
) -> None:
    scores = _score(float32_server, windows)

    assert scores.token_logprobs.shape == (NUM_WINDOWS, WINDOW_TOKENS - 1)
    assert scores.token_logprobs == pytest.approx(expected.token_logprobs, abs=1e-3)
    assert np.array_equal(scores.top_ids, expected.top_ids)


def test_bf16_perplexity_is_within_half_a_percent_of_float32(
    bf16: Scores, expected: Scores
) -> None:
    assert abs(change(bf16, expected).percent) < 0.5
    assert not np.array_equal(bf16.token_logprobs, expected.token_logprobs)


def test_int8_weights_change_perplexity_by_less_than_a_percent(
    smollm2_checkpoint: Path, windows: list[list[int]], bf16: Scores, tmp_path: Path
) -> None:
    flags = ("--quantization", "int8", "--max-model-len", str(WINDOW_TOKENS + 1))

    with running_server(smollm2_checkpoint, *flags, log=tmp_path / "log") as server:
        int8 = _score(server, windows)

    assert abs(change(int8, bf16).percent) < 1
    assert not np.array_equal(int8.token_logprobs, bf16.token_logprobs)
