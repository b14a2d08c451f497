"""Encoders' directories: what is read of them and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from engine_svc.config import ConfigError
from engine_svc.loader.encoder_directory import holds_encoder, open_encoder
from engine_svc.models.errors import ModelError
from kernels.encoder import ClassifierSpec, EncoderActivation, Pooling, ScoreActivation
from tests.support.run_engine import load_encoder
from tests.support.tiny_encoders import FAMILIES, make_tiny_encoder
from tests.support.tiny_models import make_tiny

MEAN = {"pooling_mode": "mean"}


def edit_config(path: Path, **changes) -> Path:
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | changes))
    return path


@pytest.fixture
def embedder(tmp_path: Path) -> Path:
    return make_tiny_encoder("bert", tmp_path / "m", pooling=MEAN, max_length=40)


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    return make_tiny_encoder("bert", tmp_path / "m", num_labels=1)


def test_minilm_is_read_with_its_sentence_files(minilm_checkpoint: Path) -> None:
    opened = open_encoder(minilm_checkpoint)

    assert (opened.family, opened.max_len, opened.spec.max_position) == ("BERT", 256, 512)
    assert opened.spec.output_size == 384
    assert opened.notices == ()


@pytest.mark.parametrize("family", FAMILIES)
def test_an_encoder_is_told_from_a_decoder(family: str, tmp_path: Path) -> None:
    assert holds_encoder(make_tiny_encoder(family, tmp_path / "encoder"))
    assert not holds_encoder(make_tiny("llama", tmp_path / "decoder"))


def test_the_longest_input_is_as_the_author_has_it(embedder: Path) -> None:
    assert open_encoder(embedder).max_len == 40


def test_roberta_has_fewer_positions_than_rows(tmp_path: Path) -> None:
    opened = open_encoder(make_tiny_encoder("roberta", tmp_path))

    assert (opened.spec.num_positions, opened.spec.max_position) == (66, 64)


@pytest.mark.parametrize(("family", "hidden"), [("bert", "tanh"), ("distilbert", "relu")])
def test_a_classifier_has_its_labels(family: str, hidden: str, tmp_path: Path) -> None:
    opened = open_encoder(make_tiny_encoder(family, tmp_path, num_labels=3))

    expected = ClassifierSpec(3, EncoderActivation(hidden), ScoreActivation.NONE)
    assert opened.spec.output == expected
    assert opened.notices == ()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ScoreActivation.SIGMOID),
        (
            {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}},
            ScoreActivation.NONE,
        ),
        (
            {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"},
            ScoreActivation.NONE,
        ),
    ],
)
def test_a_single_label_goes_through_a_sigmoid_unless_told_otherwise(
    changes: dict, expected: ScoreActivation, classifier: Path
) -> None:
    output = open_encoder(edit_config(classifier, **changes)).spec.output

    assert isinstance(output, ClassifierSpec)
    assert output.scores is expected


def test_norms_may_have_their_old_names(embedder: Path) -> None:
    file = embedder / "model.safetensors"
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): weight
        for name, weight in load_file(file).items()
    }
    save_file(old, file)

    assert open_encoder(embedder).spec.output.modes == (Pooling.MEAN,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is set"),
        ({"is_decoder": True}, "is_decoder is set"),
        ({"hidden_act": "silu"}, "hidden_act 'silu' is not supported"),
        ({"num_attention_heads": 5}, r"hidden_size \(48\) is not a multiple"),
        ({"num_hidden_layers": 1001}, "1001 layers, the limit is 1000"),
        ({"architectures": ["BertForTokenClassification"]}, "BertForTokenClassification"),
        ({"hidden_size": 96}, "has shape"),
        ({"num_hidden_layers": 4}, "weights are missing"),
        ({"sentence_transformers": {"activation_fn": "torch.nn.Softmax"}}, "Softmax"),
        ({"id2label": {}}, "num_labels must be from 1 to 65536, got 0"),
    ],
)
def test_what_is_not_served_is_named(changes: dict, message: str, classifier: Path) -> None:
    with pytest.raises(ModelError, match=message):
        open_encoder(edit_config(classifier, **changes))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--dtype", "bfloat16"), "--dtype bfloat16: encoders compute in float32 only"),
        (("--quantization", "int8"), "--quantization int8"),
        (("--kv-cache-dtype", "int8"), "--kv-cache-dtype int8"),
        (("--kv-cache-memory-bytes", "1000000"), "encoders have no KV cache"),
        (("--num-gpu-blocks-override", "10"), "encoders have no KV cache"),
        (("--speculative-config", '{"method": "ngram"}'), "--speculative-config"),
        (("--max-model-len", "67"), "--max-model-len 67 is above the 66 tokens"),
        (("--max-num-batched-tokens", "39"), "39 is below the 40 tokens of the longest"),
    ],
)
def test_flags_that_an_encoder_cannot_follow_are_refused(
    flags: tuple[str, str], message: str, embedder: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_encoder(embedder, *flags)


def test_a_classifier_says_what_it_gives(classifier: Path) -> None:
    info = load_encoder(classifier, "--max-model-len", "32").model_info

    assert (info.embedding_size, info.num_labels, info.max_model_len) == (0, 1, 32)
    assert "scores: 1 label, activation sigmoid" in info.summary


def test_a_weight_that_is_not_finite_is_named(embedder: Path) -> None:
    file = embedder / "model.safetensors"
    weights = load_file(file)
    weights["encoder.layer.1.output.dense.weight"][0, 0] = float("nan")
    save_file(weights, file)

    with pytest.raises(ModelError, match=r"layers\.1\.down has values that are not finite"):
        load_encoder(embedder)
