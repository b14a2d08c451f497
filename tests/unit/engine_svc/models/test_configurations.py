"""Configurations are read in every shape that is in use, and what cannot be served is refused."""

from __future__ import annotations

import pytest
from transformers import Gemma3TextConfig, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from engine_svc.models.errors import ModelError
from engine_svc.models.registry import understand
from kernels.spec import RopeKind

SIZES = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "max_position_embeddings": 2048,
    **SIZES,
}


def spec_of(**config):
    return understand(LLAMA | config).spec


class TestShapes:
    """transformers turns an older configuration into its present shape; both must mean the same."""

    @pytest.mark.parametrize(
        ("kind", "old"),
        [
            (LlamaConfig, {"rope_theta": 500_000.0}),
            (
                LlamaConfig,
                {
                    "rope_theta": 500_000.0,
                    "max_position_embeddings": 131072,
                    "rope_scaling": {
                        "rope_type": "llama3",
                        "factor": 8.0,
                        "low_freq_factor": 1.0,
                        "high_freq_factor": 4.0,
                        "original_max_position_embeddings": 8192,
                    },
                },
            ),
            (LlamaConfig, {"rope_scaling": {"type": "linear", "factor": 2.0}}),
            (LlamaConfig, {"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
            (
                Qwen2Config,
                {
                    "rope_theta": 1e6,
                    "max_position_embeddings": 32768,
                    "rope_scaling": {"type": "yarn", "factor": 4.0},
                },
            ),
            (Qwen3Config, {"use_sliding_window": True, "max_window_layers": 1}),
            (MistralConfig, {"sliding_window": 4096, "rope_theta": 1e6}),
            (MistralConfig, {}),
            (
                Gemma3TextConfig,
                {
                    "rope_theta": 1e6,
                    "rope_local_base_freq": 5e3,
                    "sliding_window_pattern": 3,
                    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
                },
            ),
            (Gemma3TextConfig, {}),
        ],
    )
    def test_older_and_newer_give_the_same_spec(self, kind, old):
        newer = kind(**SIZES, **old).to_dict()
        older = SIZES | old | {"model_type": kind.model_type}

        assert understand(older).spec == understand(newer).spec

    def test_gemmas_published_text_part_needs_only_what_differs_from_the_defaults(self):
        """As google/gemma-3-4b-it has it."""
        published = {
            "architectures": ["Gemma3ForConditionalGeneration"],
            "model_type": "gemma3",
            "vision_config": {"hidden_size": 1152},
            "text_config": {
                "hidden_size": 2560,
                "intermediate_size": 10240,
                "model_type": "gemma3_text",
                "num_hidden_layers": 34,
                "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
                "sliding_window": 1024,
            },
        }

        understood = understand(published)

        spec = understood.spec
        assert (spec.vocab_size, spec.num_heads, spec.head_dim) == (262_208, 8, 256)
        assert [layer.window for layer in spec.layers[:6]] == [1024] * 5 + [None]
        assert spec.layers[5].rope.kind == RopeKind.LINEAR
        assert spec.layers[0].rope.theta == 10_000.0
        assert spec.max_position == 131_072
        assert understood.notices == ("the model also takes images; it is served for text only",)

    def test_layer_types_decide_over_a_window(self):
        config = LLAMA | {
            "model_type": "mistral",
            "architectures": ["MistralForCausalLM"],
            "sliding_window": 16,
            "layer_types": ["full_attention"] * 4,
        }

        assert {layer.window for layer in understand(config).spec.layers} == {None}

    @pytest.mark.parametrize(
        ("scaling", "expected"),
        [
            ({"type": "linear", "factor": 4.0}, 8192),
            ({"type": "yarn", "factor": 4.0}, 8192),
            ({"type": "dynamic", "factor": 4.0}, 2048),
            (None, 2048),
        ],
    )
    def test_scaling_stretches_the_length_except_where_it_is_not_served(self, scaling, expected):
        assert spec_of(rope_scaling=scaling).max_position == expected


class TestFamilies:
    def test_an_unknown_one_is_refused_with_the_known_ones(self):
        with pytest.raises(ModelError) as error:
            understand({"model_type": "mamba", "architectures": ["MambaForCausalLM"]})

        for known in ("'mamba'", "Llama (llama)", "Qwen2", "Qwen3", "Mistral", "Gemma 3"):
            assert known in str(error.value)

    def test_the_architecture_decides_where_there_is_no_type(self):
        assert understand({**LLAMA, "model_type": None}).family.name == "Llama"

    def test_a_model_with_another_purpose_is_refused(self):
        with pytest.raises(ModelError, match="'LlamaForSequenceClassification' is not supported"):
            spec_of(architectures=["LlamaForSequenceClassification"])


class TestRefusals:
    @pytest.mark.parametrize(
        ("config", "message"),
        [
            ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
            ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
            ({"hidden_act": "relu"}, "hidden_act 'relu' is not supported"),
            ({"num_local_experts": 8}, "mixture of experts"),
            ({"use_bidirectional_attention": True}, "attention to later tokens"),
            ({"rope_scaling": {"rope_type": "longrope", "factor": 4.0}}, "'longrope' is not supp"),
            ({"rope_scaling": {"rope_type": "default", "mrope_section": [1]}}, "'mrope_section'"),
            ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "needs low_freq_factor"),
            ({"rope_scaling": {"rope_type": "linear", "factor": "2"}}, "factor must be a positive"),
            ({"layer_types": ["chunked_attention"] * 4}, "'chunked_attention' is not supported"),
            ({"layer_types": ["full_attention"] * 3}, "layer_types must list 4 layers"),
            ({"layer_types": ["sliding_attention"] * 4}, "sliding_window is unset"),
            ({"num_key_value_heads": 3}, r"\(4\) is not a multiple of num_key_value_heads \(3\)"),
            ({"head_dim": 15}, "head_dim must be even, got 15"),
            ({"hidden_size": None}, "hidden_size is missing"),
            ({"hidden_size": 2**40}, f"hidden_size must be an integer from 1 to {2**31 - 1}"),
            ({"num_hidden_layers": 10**6}, "num_hidden_layers is 1000000, the limit is 1000"),
            ({"vocab_size": True}, "vocab_size must be an integer"),
            ({"rms_norm_eps": -1}, "rms_norm_eps must be a positive number"),
            ({"attention_bias": "yes"}, "attention_bias must be true or false"),
        ],
    )
    def test_what_would_change_the_result_is_refused_by_name(self, config, message):
        with pytest.raises(ModelError, match=message):
            spec_of(**config)

    def test_a_key_that_nothing_is_known_of_is_reported(self):
        config = LLAMA | {"new": 3, "sliding_window": 16, "unused": None, "use_cache": True}

        assert understand(config).notices == (
            "config.json: unknown keys are ignored: new, sliding_window",
        )
