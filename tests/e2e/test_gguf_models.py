"""Real GGUF files, served as they are, give the greedy tokens of their own weights.

The reference is transformers in float32 over the dequantised weights. It reads each answer along
with its prompt, so every step is judged after the same tokens. A step whose two likeliest
tokens are close may go either way: within 1e-3 where Octavo computes in float32 too, within half a
logit where the kernels compute with the file's own integers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, Gemma3TextConfig, PreTrainedModel
from transformers.initialization import no_init_weights

from engine_svc.loader.open_model import open_model
from engine_svc.models.family import Family
from engine_svc.models.gemma3 import GEMMA3
from engine_svc.models.llama import LLAMA
from tests.support import plain_http
from tests.support.make_checkpoint import hf_weights
from tests.support.server import RunningServer, running_server

PRECISIONS = {  # flags, and how close in logits is close
    "float32": (("--dtype=float32", "--threads=1"), 1e-3),
    "as stored": ((), 0.5),
}
NUM_TOKENS = 32
PROMPTS = [
    "The capital of Japan is",
    "def fibonacci(n):\n",
    "Once upon a time, in a village by the sea, there lived",
    "Ingredients for the soup: two onions, three carrots,",
    "Grüße aus München! Das Wetter ist heute",
]
# As published for google/gemma-3-270m; it shares nothing with what Octavo reads from the file.
GEMMA3_270M = Gemma3TextConfig(
    vocab_size=262_144,
    hidden_size=640,
    intermediate_size=2048,
    num_hidden_layers=18,
    num_attention_heads=4,
    num_key_value_heads=1,
    head_dim=256,
    query_pre_attn_scalar=256,
    sliding_window=512,
    layer_types=[("sliding" if (i + 1) % 6 else "full") + "_attention" for i in range(18)],
    rope_parameters={
        "full_attention": {"rope_type": "default", "rope_theta": 1_000_000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
    },
    rms_norm_eps=1e-6,
    max_position_embeddings=32_768,
    tie_word_embeddings=True,
)


@pytest.fixture(scope="module", params=PRECISIONS.values(), ids=PRECISIONS)
def precision(request: pytest.FixtureRequest) -> tuple[tuple[str, ...], float]:
    return request.param


@pytest.fixture(scope="module")
def smollm2_server(smollm2_gguf: Path, precision, tmp_path_factory) -> Iterator[RunningServer]:
    with _served(smollm2_gguf, precision[0], tmp_path_factory.mktemp("smollm2")) as server:
        yield server


@pytest.fixture(scope="module")
def gemma3_server(gemma3_gguf: Path, precision, tmp_path_factory) -> Iterator[RunningServer]:
    with _served(gemma3_gguf, precision[0], tmp_path_factory.mktemp("gemma3")) as server:
        yield server


def _served(gguf: Path, flags: tuple[str, ...], directory: Path):
    args = ("--max-model-len=1024", "--max-num-seqs=8", "--served-model-name=m")
    return running_server(gguf, *args, *flags, log=directory / "log")


@pytest.fixture(scope="module")
def smollm2(smollm2_gguf: Path, smollm2_checkpoint: Path) -> PreTrainedModel:
    return _reference(smollm2_gguf, AutoConfig.from_pretrained(smollm2_checkpoint), LLAMA)


@pytest.fixture(scope="module")
def gemma3(gemma3_gguf: Path) -> PreTrainedModel:
    return _reference(gemma3_gguf, GEMMA3_270M, GEMMA3)


def _reference(gguf: Path, config, family: Family) -> PreTrainedModel:
    with no_init_weights():  # all are the file's
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    weights = hf_weights(open_model(gguf), family)
    left_out = model.load_state_dict(weights, strict=False)
    assert left_out.unexpected_keys == []
    assert left_out.missing_keys == ["lm_head.weight"]  # it is the embedding
    model.tie_weights()
    assert model.lm_head.weight is model.model.embed_tokens.weight
    return model


async def _complete(server: RunningServer, prompts: list) -> list[dict]:
    body = {"temperature": 0, "max_tokens": NUM_TOKENS, "return_token_ids": True}
    async with httpx.AsyncClient(base_url=server.url, timeout=100) as client:
        posts = [client.post("/v1/completions", json=body | {"prompt": p}) for p in prompts]
        answers = await asyncio.gather(*posts)
    return [answer.raise_for_status().json()["choices"][0] for answer in answers]


def _assert_greedy(model: PreTrainedModel, choice: dict, margin: float) -> None:
    prompt, output = choice["prompt_token_ids"], choice["token_ids"]
    with torch.inference_mode():
        rows = model(torch.tensor([prompt + output]), logits_to_keep=len(output) + 1).logits[0]
    logits = rows[:-1]
    best = logits.max(-1).values
    behind = best - logits.gather(-1, torch.tensor(output)[:, None])[:, 0]
    assert len(output) == NUM_TOKENS or choice["finish_reason"] == "stop"
    assert behind.max() < margin, f"step {behind.argmax()} of {output}"


async def test_smollm2_gives_the_tokens_of_its_own_weights(
    smollm2: PreTrainedModel, smollm2_server: RunningServer, precision
) -> None:
    choices = await _complete(smollm2_server, PROMPTS)

    for choice in choices:
        _assert_greedy(smollm2, choice, margin=precision[1])


async def test_gemma3_gives_the_tokens_of_its_own_weights(
    gemma3: PreTrainedModel, gemma3_server: RunningServer, precision
) -> None:
    beyond_the_window = [(7919 * i) % 200_000 + 1000 for i in range(540)]

    choices = await _complete(gemma3_server, [*PROMPTS, beyond_the_window])

    for choice in choices:
        _assert_greedy(gemma3, choice, margin=precision[1])
    assert choices[0]["prompt_token_ids"][0] == 2  # its tokeniser begins texts with <bos>
    assert "Tokyo" in choices[0]["text"]


def test_a_model_without_a_chat_template_says_so(gemma3_server: RunningServer) -> None:
    body = {"messages": [{"role": "user", "content": "Hello"}]}

    answer = plain_http.post(f"{gemma3_server.url}/v1/chat/completions", json=body)

    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == "messages"
    assert "no chat template" in error["message"]
    assert "/v1/completions" in error["message"]
