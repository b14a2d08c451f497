"""adapter_config.json: fields that are served, refused, without effect, and those nobody knows."""

from __future__ import annotations

import orjson
import pytest

from engine_svc.adapters.peft_config import parse_peft_config
from engine_svc.models.errors import ModelError
from tests.support.peft_files import peft_config

# What `save_pretrained` writes for r, lora_alpha and target_modules, by version.
PEFT_0_5 = {
    "auto_mapping": None,
    "base_model_name_or_path": "tiny",
    "bias": "none",
    "fan_in_fan_out": False,
    "inference_mode": True,
    "init_lora_weights": True,
    "layers_pattern": None,
    "layers_to_transform": None,
    "lora_alpha": 8,
    "lora_dropout": 0.0,
    "modules_to_save": None,
    "peft_type": "LORA",
    "r": 4,
    "revision": None,
    "target_modules": ["v_proj", "q_proj"],
    "task_type": "CAUSAL_LM",
}
PEFT_0_9 = PEFT_0_5 | {
    "alpha_pattern": {},
    "loftq_config": {},
    "megatron_config": None,
    "megatron_core": "megatron.core",
    "rank_pattern": {},
    "use_dora": False,
    "use_rslora": False,
}
PEFT_0_13 = PEFT_0_9 | {"layer_replication": None}
PEFT_0_21 = PEFT_0_13 | {
    "alora_invocation_tokens": None,
    "arrow_config": None,
    "corda_config": None,
    "ensure_weight_tying": False,
    "eva_config": None,
    "exclude_modules": None,
    "kasa_config": None,
    "lora_bias": False,
    "lora_ga_config": None,
    "monteclora_config": None,
    "peft_version": "0.21.2",
    "qalora_group_size": 16,
    "target_parameters": None,
    "trainable_token_indices": None,
    "use_bdlora": None,
    "use_qalora": False,
    "velora_config": None,
}


def parse(config):
    return parse_peft_config(orjson.dumps(config))


def refusal(**changes):
    with pytest.raises(ModelError) as error:
        parse(PEFT_0_21 | changes)
    return str(error.value)


@pytest.mark.parametrize("written", [PEFT_0_5, PEFT_0_9, PEFT_0_13, PEFT_0_21])
def test_what_peft_writes_is_read(written):
    config = parse(written)

    assert config.ranks["model.layers.0.self_attn.q_proj"] == 4
    assert config.scale_of("model.layers.0.self_attn.q_proj", 4) == 2


@pytest.mark.parametrize(
    "without_effect",
    [
        {"lora_dropout": 0.5, "inference_mode": False, "revision": "main"},
        {"auto_mapping": {"base_model_class": "LlamaForCausalLM", "unsloth_fixed": True}},
        {"layers_to_transform": [1], "layers_pattern": "layers"},
        {"target_modules": r".*\.(q|v)_proj", "exclude_modules": r".*\.0\..*"},
        {"init_lora_weights": "eva", "eva_config": {"rho": 2.0, "tau": 0.99}},
        {"init_lora_weights": "mica"},
    ],
)
def test_what_bears_on_training_alone_is_passed_over(without_effect):
    assert parse(PEFT_0_21 | without_effect).scale_of("q_proj", 4) == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kasa_config", {"beta": 1e-4, "gamma": 1e-3}),
        ("monteclora_config", {"num_samples": 8}),
        ("velora_config", {"num_groups": 64}),
        ("use_bdlora", {"nblocks": 2}),
        ("arrow_config", {"top_k": 3}),
        ("use_qalora", True),
    ],
)
def test_what_changes_the_formula_is_refused_when_it_is_set(field, value):
    assert f"{field} is" in refusal(**{field: value})


@pytest.mark.parametrize("empty", [None, False, [], {}, ""])
def test_a_field_that_nobody_knows_may_be_there_empty(empty):
    assert parse(peft_config() | {"use_later_lora": empty}).ranks["q_proj"] == 4


@pytest.mark.parametrize("value", [True, 0, 0.0, 1, "tanh", [0], {"k": None}])
def test_a_field_that_nobody_knows_is_refused_by_its_name(value):
    message = refusal(use_later_lora=value)

    assert message.startswith("adapter_config.json: use_later_lora is ")
    assert "does not know what the field does" in message


@pytest.mark.parametrize(("written", "scale"), [(False, 2.0), (0, 2.0), (True, 4.0), (1, 4.0)])
def test_a_scale_is_rank_stabilised_whichever_way_that_is_written(written, scale):
    config = parse_peft_config(orjson.dumps(PEFT_0_9 | {"use_rslora": written}))

    assert config.scale_of("q_proj", 4) == scale
