"""Adapters as PEFT saves them: what is read from them, and what is refused by its name."""

from __future__ import annotations

import math
import random
import struct

import numpy as np
import pytest

from engine_svc.adapters.peft_directory import BaseModel, read_adapter
from engine_svc.models.errors import ModelError
from engine_svc.models.registry import understand
from tests.support.peft_files import PREFIX, peft_config, peft_tensors, write_peft

UNDERSTOOD = understand(
    {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "tie_word_embeddings": True,
    }
)
SPEC = UNDERSTOOD.spec
BASE = BaseModel(SPEC, UNDERSTOOD.family.name, ("tiny",))
Q0 = f"{PREFIX}0.self_attn.q_proj"


def read(directory, max_rank=16):
    return read_adapter(directory, BASE, max_rank)


def refusal(directory, max_rank=16):
    with pytest.raises(ModelError) as error:
        read(directory, max_rank)
    return str(error.value)


def test_matrices_come_by_the_decoder_s_names_with_the_scale_in_b(tmp_path):
    tensors = peft_tensors(SPEC, rank=4)

    found = read(write_peft(tmp_path, tensors, peft_config(rank=4, lora_alpha=6)))

    assert found.rank == 4
    assert found.notices == ()
    assert len(found.weights.matrices) == SPEC.num_layers * 7
    q = found.weights.matrices["layers.0.q"]
    assert np.array_equal(q.a, tensors[f"{Q0}.lora_A.weight"])
    assert np.array_equal(q.b, tensors[f"{Q0}.lora_B.weight"] * np.float32(1.5))


def test_the_scale_of_rank_stabilised_adapters_divides_by_the_root(tmp_path):
    tensors = peft_tensors(SPEC, rank=4)

    found = read(write_peft(tmp_path, tensors, peft_config(lora_alpha=6, use_rslora=True)))

    b = found.weights.matrices["layers.1.down"].b
    stored = tensors[f"{PREFIX}1.mlp.down_proj.lora_B.weight"]
    assert np.array_equal(b, stored * np.float32(6 / math.sqrt(4)))


def test_modules_may_have_ranks_and_scales_of_their_own(tmp_path):
    tensors = peft_tensors(SPEC, rank=4, parts=("q",)) | peft_tensors(SPEC, rank=2, parts=("v",))
    config = peft_config(
        lora_alpha=4,
        rank_pattern={"v_proj": 2},
        alpha_pattern={
            r"^model\.layers\.1\.self_attn\.v_proj": 10,
            r"layers.[0-3]\.self_attn\.(v|v_proj)": 4,
            "layers.0.self_attn.q_proj": 8,
            r"layers\.0\.self_attn\.q_proj": 100,
        },
    )

    found = read(write_peft(tmp_path, tensors, config)).weights.matrices

    scales = {"layers.0.q": 8 / 4, "layers.1.q": 4 / 4, "layers.0.v": 4 / 2, "layers.1.v": 10 / 2}
    for name, scale in scales.items():
        layer, part = name.split(".")[1:]
        stored = tensors[f"{PREFIX}{layer}.self_attn.{part}_proj.lora_B.weight"]
        assert np.array_equal(found[name].b, stored * np.float32(scale)), name


def test_layers_and_modules_that_have_no_tensors_are_left_alone(tmp_path):
    tensors = peft_tensors(SPEC, parts=("q", "v"))
    only = {name: value for name, value in tensors.items() if ".layers.1." in name}

    found = read(write_peft(tmp_path, only, peft_config(layers_to_transform=[1])))

    assert set(found.weights.matrices) == {"layers.1.q", "layers.1.v"}


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_types_become_float32(dtype, tmp_path):
    tensors = {name: value.astype(dtype) for name, value in peft_tensors(SPEC).items()}

    found = read(write_peft(tmp_path, tensors, peft_config(lora_alpha=4)))

    q = found.weights.matrices["layers.0.q"]
    assert q.a.dtype == q.b.dtype == np.float32
    assert np.array_equal(q.b, tensors[f"{Q0}.lora_B.weight"].astype(np.float32))


def test_names_with_the_adapter_s_own_name_in_them_are_read(tmp_path):
    tensors = {
        name.replace(".weight", ".default.weight"): value
        for name, value in peft_tensors(SPEC).items()
    }

    assert len(read(write_peft(tmp_path, tensors)).weights.matrices) == SPEC.num_layers * 7


def test_the_version_names_configuration_and_weights(tmp_path):
    tensors, others = peft_tensors(SPEC, seed=1), peft_tensors(SPEC, seed=2)

    first = read(write_peft(tmp_path / "a", tensors)).version
    same = read(write_peft(tmp_path / "b", tensors)).version
    weights = read(write_peft(tmp_path / "c", others)).version
    config = read(write_peft(tmp_path / "d", tensors, peft_config(lora_alpha=9))).version

    assert first == same
    assert len({first, weights, config}) == 3


@pytest.mark.parametrize(
    ("named", "is_other"),
    [("someone/other", True), ("someone/Tiny-1B-Instruct", False), ("/models/tiny/", False)],
)
def test_another_base_model_s_name_is_only_worth_a_notice(named, is_other, tmp_path):
    config = peft_config(base_model_name_or_path=named)

    notices = read(write_peft(tmp_path, peft_tensors(SPEC), config)).notices

    assert [named in notice for notice in notices] == [True] * is_other


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"peft_type": "LOHA"}, "peft_type is 'LOHA'"),
        ({"use_dora": True}, "use_dora"),
        ({"bias": "lora_only"}, "bias"),
        ({"lora_bias": True}, "lora_bias"),
        ({"modules_to_save": ["norm"]}, "modules_to_save"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out"),
        ({"layer_replication": [[0, 2]]}, "layer_replication"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights"),
        ({"init_lora_weights": "corda"}, "init_lora_weights"),
        ({"alora_invocation_tokens": [1, 2]}, "alora_invocation_tokens"),
        ({"trainable_token_indices": [3]}, "trainable_token_indices"),
        ({"target_parameters": ["mlp.experts"]}, "target_parameters"),
        ({"target_modules": ["q_proj", "lm_head"]}, "lm_head"),
        ({"target_modules": ["q_proj", "query_key_value"]}, "query_key_value"),
        ({"use_rslora": "true"}, "use_rslora is 'true'"),
        ({"r": 0}, "r has 0"),
        ({"r": "4"}, "r has '4'"),
        ({"lora_alpha": None}, "lora_alpha"),
        ({"rank_pattern": {"(a+)+": 2}}, "rank_pattern"),
        ({"rank_pattern": {f"m{i}": 2 for i in range(5000)}}, "5000 names"),
        ({"alpha_pattern": {"(?i)q_proj": 2}}, "alpha_pattern"),
        ({"alpha_pattern": {f"m{i}.*": 2 for i in range(65)}}, "65 regular expressions"),
        ({"r": 17, "lora_alpha": 1}, "rank 17 is above --max-lora-rank 16"),
        ({"rank_pattern": {"q_proj": 32}}, "rank 32 is above --max-lora-rank 16"),
        ({"r": 8}, "has rank 4, its configuration says 8"),
    ],
)
def test_what_its_configuration_asks_for_is_refused_by_name(changes, named, tmp_path):
    directory = write_peft(tmp_path, peft_tensors(SPEC), peft_config(**changes))

    assert named in refusal(directory)


@pytest.mark.parametrize(
    ("name", "shape", "named"),
    [
        ("base_model.model.lm_head.lora_A.weight", (4, 32), "embeddings and heads"),
        ("base_model.model.model.embed_tokens.lora_embedding_A", (4, 64), "embeddings and heads"),
        (f"{Q0}.lora_magnitude_vector", (32,), "DoRA"),
        (f"{PREFIX}0.self_attn.qkv_proj.lora_A.weight", (4, 32), "qkv_proj"),
        (f"{PREFIX}2.self_attn.q_proj.lora_A.weight", (4, 32), "the model has 2"),
        ("base_model.model.visual.layers.0.self_attn.q_proj.lora_A.weight", (4, 32), "visual"),
        ("model.layers.0.self_attn.q_proj.lora_A.weight", (4, 32), "no tensor of a LoRA adapter"),
        (f"{Q0}.base_layer.weight", (32, 32), "no tensor of a LoRA adapter"),
        (f"{Q0}.lora_A.default.weight", (4, 32), "for the same matrix"),
    ],
)
def test_tensors_that_have_no_place_are_refused_by_name(name, shape, named, tmp_path):
    tensors = peft_tensors(SPEC) | {name: np.ones(shape, np.float32)}

    assert named in refusal(write_peft(tmp_path, tensors))


def test_a_without_b_is_refused(tmp_path):
    tensors = peft_tensors(SPEC)
    del tensors[f"{Q0}.lora_B.weight"]

    assert f"{Q0}.lora_A.weight has no lora_B" in refusal(write_peft(tmp_path, tensors))


@pytest.mark.parametrize("shape", [(4, 31), (4,), (0, 32), (4, 32, 1)])
def test_wrong_shapes_are_refused(shape, tmp_path):
    tensors = peft_tensors(SPEC) | {f"{Q0}.lora_A.weight": np.ones(shape, np.float32)}

    assert f"{Q0}.lora_A.weight has" in refusal(write_peft(tmp_path, tensors))


def test_values_that_are_not_finite_are_refused(tmp_path):
    tensors = peft_tensors(SPEC)
    tensors[f"{Q0}.lora_B.weight"][3, 1] = np.nan

    assert f"{Q0}.lora_B.weight has values that are not finite" in refusal(
        write_peft(tmp_path / "nan", tensors)
    )
    tensors[f"{Q0}.lora_B.weight"][3, 1] = 3e38
    assert "times its scale" in refusal(write_peft(tmp_path / "scaled", tensors))


def test_integers_are_refused(tmp_path):
    tensors = peft_tensors(SPEC) | {f"{Q0}.lora_A.weight": np.ones((4, 32), np.int32)}

    assert "I32" in refusal(write_peft(tmp_path, tensors))


def test_pickles_are_never_read(tmp_path):
    directory = write_peft(tmp_path, peft_tensors(SPEC))
    (directory / "adapter_model.safetensors").rename(directory / "adapter_model.bin")

    assert "adapter_model.bin: pickled weights can run code" in refusal(directory)


@pytest.mark.parametrize(
    ("file", "content", "named"),
    [
        ("adapter_config.json", b"{", "is not JSON"),
        ("adapter_config.json", b"[]", "must hold an object"),
        ("adapter_config.json", b" " * (1 << 20) + b"{}", "more than 1048576 bytes"),
        ("adapter_model.safetensors", b"", "expected at least 8 bytes"),
        ("adapter_model.safetensors", struct.pack("<Q", 1 << 60), "its header takes"),
        ("adapter_model.safetensors", struct.pack("<Q", 2) + b"{}", "has no tensors"),
        (
            "adapter_model.safetensors",
            struct.pack("<Q", 1 << 21 | 1) + b" " * (1 << 21 | 1),
            "the limit is 2097152",
        ),
    ],
)
def test_files_that_lie_are_refused(file, content, named, tmp_path):
    directory = write_peft(tmp_path, peft_tensors(SPEC))
    (directory / file).write_bytes(content)

    assert named in refusal(directory)


@pytest.mark.parametrize("file", ["adapter_config.json", "adapter_model.safetensors"])
def test_whatever_is_in_a_file_it_is_read_or_refused(file, tmp_path):
    directory = write_peft(tmp_path, peft_tensors(SPEC, parts=("q",)))
    whole = (directory / file).read_bytes()
    draw = random.Random(7)
    refused = 0
    for _ in range(150):
        changed = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            changed[draw.randrange(min(len(whole), 700))] = draw.choice(b'[]{}",:019-ntf\\x')
        (directory / file).write_bytes(changed)
        try:
            read(directory)
        except ModelError:
            refused += 1

    assert refused > 50


def test_a_file_larger_than_any_such_adapter_is_not_read(tmp_path):
    directory = write_peft(tmp_path, peft_tensors(SPEC))
    with (directory / "adapter_model.safetensors").open("r+b") as file:
        file.truncate(1 << 30)  # sparse: it takes no room

    assert "has 1073741824 bytes" in refusal(directory)


def test_a_directory_of_something_else_is_refused(tmp_path):
    assert "adapter_config.json" in refusal(tmp_path)
    assert "is not a directory" in refusal(tmp_path / "absent")
