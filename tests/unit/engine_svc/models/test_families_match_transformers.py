"""Every family gives transformers' logits, from a checkpoint that transformers wrote."""

from __future__ import annotations

import pytest
import torch

from engine_svc.loader.open_model import open_model
from tests.support.run_decoder import reference_logits
from tests.support.tiny_models import make_tokenizer, tiny_model

LENGTHS = (1, 8, 15, 16, 17, 33, 100)  # around a window and a block of 16, and far beyond

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
FULL = ["full_attention"] * 4

CASES = {
    "llama": ("llama", {}),
    "llama, tied": ("llama", {"tie_word_embeddings": True}),
    "llama, biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, a KV head for each head": ("llama", {"num_key_value_heads": 4}),
    "llama, one KV head": ("llama", {"num_key_value_heads": 1}),
    "llama, wide heads": ("llama", {"head_dim": 48}),
    "llama, llama3 rope": ("llama", {"rope_parameters": LLAMA3}),
    "llama, linear rope": (
        "llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}},
    ),
    "llama, other norm eps": ("llama", {"rms_norm_eps": 1e-2}),
    "qwen2": ("qwen2", {}),
    "qwen2, yarn": ("qwen2", {"rope_parameters": YARN}),
    "qwen2, yarn, all settings": (
        "qwen2",
        {
            "rope_parameters": YARN
            | {"beta_fast": 20.0, "beta_slow": 2.0, "truncate": False, "attention_factor": 1.3}
        },
    ),
    "qwen2, yarn, two multipliers": (
        "qwen2",
        {"rope_parameters": YARN | {"mscale": 0.7, "mscale_all_dim": 1.4}},
    ),
    "qwen2, window in later layers": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 2},
    ),
    "qwen2, window in all layers": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 0},
    ),
    "qwen2, window switched off": (
        "qwen2",
        {"use_sliding_window": False, "sliding_window": 16, "max_window_layers": 0},
    ),
    "qwen2, window but only full layers": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 16, "layer_types": FULL},
    ),
    "qwen3": ("qwen3", {}),
    "qwen3, tied, biases": ("qwen3", {"tie_word_embeddings": True, "attention_bias": True}),
    "qwen3, window by layer": (
        "qwen3",
        {
            "use_sliding_window": True,
            "sliding_window": 16,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
        },
    ),
    "mistral": ("mistral", {}),
    "mistral, no window": ("mistral", {"sliding_window": None}),
    "ministral, window but only full layers": ("ministral", {"layer_types": FULL}),
    "ministral, window by layer": (
        "ministral",
        {"layer_types": ["full_attention", "sliding_attention"] * 2},
    ),
    "gemma3": ("gemma3", {}),
    "gemma3, own head": ("gemma3", {"tie_word_embeddings": False}),
    "gemma3, capped logits": ("gemma3", {"final_logit_softcapping": 3.0}),
    "gemma3, scaled full layers": (
        "gemma3",
        {
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            }
        },
    ),
}


def prompts(vocab_size, lengths=LENGTHS):
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(vocab_size, (n,), generator=generator).tolist() for n in lengths]


def saved(model, out, **how):
    model.save_pretrained(out, **how)
    make_tokenizer().save_pretrained(out)
    return open_model(out)


def assert_same_logits(model, opened, asked, **theirs_alone):
    for prompt, ours in zip(asked, reference_logits(opened, asked), strict=True):
        with torch.inference_mode():
            theirs = model(torch.tensor([prompt]), **theirs_alone).logits[0]
        assert theirs.std() > 0.1, "logits that hardly differ would prove nothing"
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_transformers(case, tmp_path):
    family, overrides = CASES[case]
    model = tiny_model(family, **overrides)

    opened = saved(model, tmp_path)

    assert_same_logits(model, opened, prompts(opened.spec.vocab_size))


def test_gemma_caps_attention_scores(tmp_path):
    """transformers reads this setting but passes it on only when the caller repeats it."""
    model = tiny_model("gemma3", attn_logit_softcapping=2.0)

    opened = saved(model, tmp_path)

    asked = prompts(opened.spec.vocab_size)
    assert_same_logits(model, opened, asked, softcap=2.0)


def test_shards_give_the_same_logits(tmp_path):
    model = tiny_model("llama")

    opened = saved(model, tmp_path, max_shard_size="100KB")

    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert_same_logits(model, opened, prompts(opened.spec.vocab_size, (33,)))


def test_dynamic_rope_is_exact_up_to_the_trained_length(tmp_path):
    """A prompt shorter than the trained length, and one just as long."""
    dynamic = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0}
    model = tiny_model("llama", rope_parameters=dynamic, max_position_embeddings=64)

    opened = saved(model, tmp_path)

    assert opened.max_position == 64
    assert any("dynamic rope scaling" in notice for notice in opened.notices)
    assert_same_logits(model, opened, prompts(opened.spec.vocab_size, (33, 64)))


def test_gemma_rounds_its_embedding_scale_to_the_type_it_runs_in(tmp_path):
    """The root of the hidden size is no bfloat16, and a scale that is not rounded shows."""
    model = tiny_model("gemma3", hidden_size=48, num_attention_heads=4).to(torch.bfloat16)
    opened = saved(model, tmp_path)
    (asked,) = prompts(opened.spec.vocab_size, (33,))

    (ours,) = reference_logits(opened, [asked], "bfloat16")

    with torch.inference_mode():
        theirs = model(torch.tensor([asked])).logits[0].float()
    assert (ours - theirs).abs().mean() < 0.02
