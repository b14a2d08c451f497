"""The reference encoder: as transformers computes it, and the same whatever else is in the step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification

from kernels.encoder import Pooling, PoolingSpec
from kernels.reference.encoder_weights import planned_bytes
from kernels.reference.pooling import pool
from tests.support.encoder_steps import encoder_inputs, load_encoder, random_inputs
from tests.support.tiny_encoders import FAMILIES, make_tiny_encoder

MEAN = {"pooling_mode_mean_tokens": True}
LENGTHS = (7, 1, 33, 7, 2, 64, 19)
VOCAB = 96


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


def hidden_states(path: Path, tokens: list[int]) -> torch.Tensor:
    model = AutoModel.from_pretrained(path, attn_implementation="eager")
    with torch.no_grad():
        return model(torch.tensor([tokens])).last_hidden_state[0]


def test_an_embedding_is_the_mean_of_transformers_rows(family: str, tmp_path: Path) -> None:
    path = make_tiny_encoder(family, tmp_path, pooling=MEAN, normalize=False)
    inputs = random_inputs(LENGTHS, VOCAB)

    vectors = load_encoder(path).encode(encoder_inputs(inputs))

    expected = [hidden_states(path, tokens).mean(0).numpy() for tokens in inputs]
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_activations_are_those_of_transformers(activation: str, tmp_path: Path) -> None:
    path = make_tiny_encoder("bert", tmp_path, pooling=MEAN, hidden_act=activation)
    (tokens,) = random_inputs((21,), VOCAB)

    vectors = load_encoder(path).encode(encoder_inputs([tokens]))

    expected = torch.nn.functional.normalize(hidden_states(path, tokens).mean(0), dim=0)
    np.testing.assert_allclose(vectors[0], expected.numpy(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("num_labels", [1, 3])
def test_scores_of_pairs_are_those_of_transformers(
    family: str, num_labels: int, tmp_path: Path
) -> None:
    path = make_tiny_encoder(family, tmp_path, num_labels=num_labels)
    inputs = random_inputs(LENGTHS, VOCAB)
    firsts = [3, 1, 12, 7, 1, 40, 5] if family == "bert" else list(LENGTHS)

    scores = load_encoder(path).encode(encoder_inputs(inputs, firsts))

    model = AutoModelForSequenceClassification.from_pretrained(path, attn_implementation="eager")
    for tokens, first, score in zip(inputs, firsts, scores, strict=True):
        types = torch.tensor([[int(i >= first) for i in range(len(tokens))]])
        segments = {"token_type_ids": types} if family == "bert" else {}
        with torch.no_grad():
            logits = model(torch.tensor([tokens]), **segments).logits[0]
        expected = logits.sigmoid() if num_labels == 1 else logits
        np.testing.assert_allclose(score, expected.numpy(), rtol=0, atol=1e-5)


def test_an_input_gives_the_same_bits_alone_and_in_any_company(family: str, tmp_path: Path) -> None:
    encoder = load_encoder(make_tiny_encoder(family, tmp_path, pooling=MEAN))
    inputs = random_inputs((7, 1, 33, 7, 2, 64, 19, 7, 64, 64, 50), VOCAB)
    alone = [encoder.encode(encoder_inputs([tokens]))[0] for tokens in inputs]

    for size in (2, 3, 5, 11):
        for start in range(len(inputs) - size + 1):
            together = encoder.encode(encoder_inputs(inputs[start : start + size]))
            np.testing.assert_array_equal(together, alone[start : start + size])


@pytest.mark.parametrize("num_threads", [1, 3], indirect=True)
def test_bits_do_not_depend_on_company_with_other_numbers_of_threads(
    num_threads, tmp_path: Path
) -> None:
    encoder = load_encoder(make_tiny_encoder("bert", tmp_path, pooling=MEAN))
    inputs = random_inputs((33, 5, 33, 64, 5, 1), VOCAB)
    alone = [encoder.encode(encoder_inputs([tokens]))[0] for tokens in inputs]

    np.testing.assert_array_equal(encoder.encode(encoder_inputs(inputs)), alone)


def test_scores_give_the_same_bits_alone_and_in_any_company(tmp_path: Path) -> None:
    encoder = load_encoder(make_tiny_encoder("bert", tmp_path, num_labels=2))
    inputs = random_inputs([3] * 70, VOCAB)  # more than a tile of the classifier
    alone = [encoder.encode(encoder_inputs([tokens]))[0] for tokens in inputs]

    together = encoder.encode(encoder_inputs(inputs))

    np.testing.assert_array_equal(together, alone)


def test_the_planned_bytes_are_those_held(family: str, tmp_path: Path) -> None:
    from engine_svc.loader.encoder_directory import open_encoder

    path = make_tiny_encoder(family, tmp_path, num_labels=2)

    assert load_encoder(path).weight_bytes == planned_bytes(open_encoder(path).spec)


ROWS = torch.tensor([[1.0, -4.0], [3.0, 0.0], [2.0, 1.0]])


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (Pooling.CLS, [1.0, -4.0]),
        (Pooling.MAX, [3.0, 1.0]),
        (Pooling.MEAN, [2.0, -1.0]),
        (Pooling.MEAN_SQRT_LEN, [6.0 / 3**0.5, -3.0 / 3**0.5]),
        (Pooling.WEIGHTED_MEAN, [13.0 / 6.0, -1.0 / 6.0]),
        (Pooling.LAST_TOKEN, [2.0, 1.0]),
    ],
)
def test_poolings(mode: Pooling, expected: list[float]) -> None:
    np.testing.assert_allclose(pool(PoolingSpec((mode,), False), ROWS), expected, rtol=1e-6)


def test_several_poolings_stand_one_after_another_and_are_normalised_as_one() -> None:
    pooled = pool(PoolingSpec((Pooling.CLS, Pooling.LAST_TOKEN), True), ROWS)

    np.testing.assert_allclose(pooled, torch.tensor([1.0, -4.0, 2.0, 1.0]) / 22**0.5, rtol=1e-6)
