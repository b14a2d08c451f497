"""What the quality benchmark measures is what transformers computes from the same checkpoint."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from tests.bench.quality import texts
from tests.bench.quality.figures import perplexity
from tests.bench.quality.reference import load_reference, reference_scores
from tests.bench.quality.scoring import Scores, cut, score, tokenize
from tests.support.server import RunningServer


def _windows(server: RunningServer, length: int, count: int) -> list[list[int]]:
    tokens = asyncio.run(tokenize(server.grpc_target, texts.code().content))
    return cut(tokens, length, count)


def _score(server: RunningServer, windows: list[list[int]]) -> Scores:
    return asyncio.run(score(server.grpc_target, windows, 1, len(windows), lambda: None))


def test_scores_are_those_of_transformers_in_float32(
    server: RunningServer, smollm2_checkpoint: Path
) -> None:
    windows = _windows(server, length=256, count=2)

    scores = _score(server, windows)

    expected = reference_scores(load_reference(smollm2_checkpoint), windows, lambda: None)
    assert scores.token_logprobs.shape == (2, 255)
    assert scores.token_logprobs == pytest.approx(expected.token_logprobs, abs=1e-3)
    assert np.array_equal(scores.top_ids, expected.top_ids)
    assert perplexity(scores) == pytest.approx(perplexity(expected), rel=1e-4)
