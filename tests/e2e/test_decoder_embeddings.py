"""Embeddings of models that generate: transformers' hidden states, the same bits in any company."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from tests.support.run_engine import embeddings, load
from tests.support.tiny_models import make_tiny

TEXTS = (
    "The sea is blue.",
    "An octavo is a sheet folded into sixteen pages.",
    "a",
    "How do I bake bread without an oven? " * 12,
)


def last_states(path: Path, prompts: list[list[int]]) -> list[np.ndarray]:
    """Normalised hidden states of the last tokens, in float32."""
    model = AutoModel.from_pretrained(path, dtype=torch.float32).eval()
    states = []
    for prompt in prompts:
        with torch.no_grad():
            last = model(torch.tensor([prompt])).last_hidden_state[0, -1]
        states.append(torch.nn.functional.normalize(last, dim=0).numpy())
    return states


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_in_float32_they_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    path = make_tiny(family, tmp_path)
    prompts = [[5, 9, 200], [7], list(range(10, 110))]

    found = embeddings(load(path, "--dtype", "float32"), prompts)

    np.testing.assert_allclose(found, last_states(path, prompts), rtol=0, atol=1e-5)


def test_smollm2_embeds_the_same_alone_together_cached_and_in_chunks(
    smollm2_checkpoint: Path,
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(smollm2_checkpoint)
    prompts = [tokenizer(text)["input_ids"] for text in TEXTS]
    engine = load(smollm2_checkpoint, "--max-model-len", "512")

    together = embeddings(engine, prompts)

    again = [embeddings(engine, [prompt])[0] for prompt in prompts]  # prefixes are cached now
    np.testing.assert_array_equal(again, together)
    small = load(smollm2_checkpoint, "--max-model-len", "512", "--max-num-batched-tokens", "48")
    np.testing.assert_array_equal(embeddings(small, prompts), together)
    for vector, expected in zip(together, last_states(smollm2_checkpoint, prompts), strict=True):
        assert np.dot(vector, expected) > 0.99  # bfloat16 beside float32
