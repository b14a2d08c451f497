"""GGUF files give the weights of the models they were made from."""

from __future__ import annotations

import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize

from engine_svc.loader.open_model import open_model
from engine_svc.models.errors import ModelError
from kernels.spec import RopeKind
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.tiny_models import make_tokenizer, tiny_model

FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "gemma3")
# A GGUF file does not say these, so that only their usual values can be had.
IMPLIED = {"gemma3": {"query_pre_attn_scalar": 32, "layer_types": None}}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def save_directory(model, out):
    """The same model as safetensors, opened: the truth that a GGUF is compared with."""
    model.save_pretrained(out)
    make_tokenizer().save_pretrained(out)
    return open_model(out)


def as_if_quantised(values, kind):
    """What a matrix becomes by way of `kind`; vectors are kept in float32."""
    return values if values.ndim == 1 else dequantize(quantize(values, kind), kind)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_float32_file_has_the_spec_and_weights_of_the_directory(family, tmp_path):
    model = tiny_model(family, **IMPLIED.get(family, {}))
    expected = save_directory(model, tmp_path / "hf")

    opened = open_model(write_tiny_gguf(model, tmp_path / "tiny.gguf"))

    assert opened.spec == expected.spec
    for name, shape in opened.spec.weight_shapes().items():
        weight = opened.source.load(name)
        assert (weight.scheme, weight.shape) == ("F32", shape)
        original = expected.source.load(name).to_float32()
        np.testing.assert_allclose(weight.to_float32(), original, rtol=0, atol=3e-7)


@pytest.mark.parametrize("name", ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_matrices_come_in_the_blocks_of_the_file(family, name, tmp_path):
    kind = GGMLQuantizationType[name]
    model = tiny_model(family)
    expected = save_directory(model, tmp_path / "hf")

    opened = open_model(write_tiny_gguf(model, tmp_path / "tiny.gguf", kind))

    assert opened.format == f"GGUF, {name}"
    for weight_name, shape in opened.spec.weight_shapes().items():
        weight = opened.source.load(weight_name)
        assert (weight.scheme, weight.shape) == (name if len(shape) == 2 else "F32", shape)
        assert opened.source.scheme(weight_name) == weight.scheme
        original = as_if_quantised(expected.source.load(weight_name).to_float32(), kind)
        assert np.array_equal(weight.to_float32(), original), weight_name


@pytest.mark.parametrize("name", ["Q4_K", "Q5_K", "Q6_K", "Q3_K", "IQ4_NL"])
def test_types_that_can_only_be_decoded_come_in_their_blocks(name, tmp_path, monkeypatch):
    """The gguf package has no encoder for these, so the file holds random blocks."""
    kind = GGMLQuantizationType[name]
    block, block_bytes = GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(0)

    def random_blocks(value, _):
        blocks = rng.integers(0, 60, (value.shape[0], value.shape[1] // block * block_bytes))
        return blocks.astype(np.uint8)

    monkeypatch.setattr("tests.support.tiny_gguf.quantize", random_blocks)
    model = tiny_model("qwen2", hidden_size=256, intermediate_size=256, num_hidden_layers=1)
    path = write_tiny_gguf(model, tmp_path / "tiny.gguf", kind)

    opened = open_model(path)
    weight = opened.source.load("layers.0.down")

    assert weight.scheme == name
    expected = dequantize(weight.data.reshape(256, -1), kind)
    assert weight.to_float32().shape == (256, 256)
    assert np.array_equal(weight.to_float32(), expected, equal_nan=True)


def test_biases_of_a_llama_file_are_reordered_like_their_rows(tmp_path):
    model = tiny_model("llama", attention_bias=True, mlp_bias=True)
    expected = save_directory(model, tmp_path / "hf")

    opened = open_model(write_tiny_gguf(model, tmp_path / "tiny.gguf"))

    assert opened.spec == expected.spec
    for name in ("layers.1.q_bias", "layers.1.k_bias", "layers.1.v_bias", "layers.1.down_bias"):
        found, original = opened.source.load(name), expected.source.load(name)
        assert np.array_equal(found.to_float32(), original.to_float32())


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_weights_are_views_of_the_file_unless_they_must_change(family, tmp_path):
    model = tiny_model(family, **IMPLIED.get(family, {}))
    opened = open_model(write_tiny_gguf(model, tmp_path / "tiny.gguf"))
    changed = {"llama": (".q", ".k"), "gemma3": ("norm",)}[family]

    weights = {name: opened.source.load(name) for name in opened.spec.weight_shapes()}

    for name, weight in weights.items():
        mapped = np.shares_memory(weight.data, opened.source.data)
        assert mapped is not name.endswith(changed), name
        assert weight.data.flags.writeable is not mapped
    assert sum(weight.data.nbytes for weight in weights.values()) == opened.source.total_bytes


def test_llama3_rope_is_recognised_by_its_divisors(tmp_path):
    model = tiny_model("llama", rope_parameters=LLAMA3_ROPE, max_position_embeddings=131072)

    opened = open_model(write_tiny_gguf(model, tmp_path / "tiny.gguf"))

    rope = opened.spec.layers[0].rope
    assert (rope.kind, rope.theta) == (RopeKind.LLAMA3, 500_000.0)
    assert rope.factor == pytest.approx(32.0, rel=1e-6)


def test_other_divisors_are_refused(tmp_path):
    other = LLAMA3_ROPE | {"high_freq_factor": 7.0}
    model = tiny_model("llama", rope_parameters=other, max_position_embeddings=131072)

    with pytest.raises(ModelError, match=r"rope_freqs\.weight"):
        open_model(write_tiny_gguf(model, tmp_path / "tiny.gguf"))


def test_a_tied_file_has_no_head_of_its_own(tmp_path):
    model = tiny_model("llama", tie_word_embeddings=True)

    opened = open_model(write_tiny_gguf(model, tmp_path / "tiny.gguf"))

    assert opened.spec.tied_head
    assert "lm_head" not in opened.spec.weight_shapes()


def test_every_id_that_ends_a_turn_is_an_eos(tmp_path):
    model = tiny_model("llama")
    path = write_tiny_gguf(
        model, tmp_path / "tiny.gguf", tokenizer__ggml__eot_token_id=7,
        tokenizer__ggml__eom_token_id=9,
    )  # fmt: skip

    opened = open_model(path)

    assert opened.eos_token_ids == {make_tokenizer().eos_token_id, 7, 9}
    assert opened.bos_token_id == make_tokenizer().bos_token_id


def test_one_part_of_a_split_file_is_refused(tmp_path):
    path = write_tiny_gguf(tiny_model("llama"), tmp_path / "tiny.gguf", split__count=3)

    with pytest.raises(ModelError, match="one of 3 parts"):
        open_model(path)


def test_metadata_that_is_not_understood_is_reported(tmp_path):
    path = write_tiny_gguf(tiny_model("llama"), tmp_path / "tiny.gguf", llama__new_feature=1)

    assert any("llama.new_feature" in notice for notice in open_model(path).notices)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("llama__expert_count", 8, "mixture of experts"),
        ("llama__rope__dimension_count", 8, "rope.dimension_count is 8"),
    ],
)
def test_features_that_are_not_supported_are_refused(key, value, message, tmp_path):
    path = write_tiny_gguf(tiny_model("llama"), tmp_path / "tiny.gguf", **{key: value})

    with pytest.raises(ModelError, match=message):
        open_model(path)
