"""The same seeded request gives the same tokens and the same log-probabilities, bit for bit.

Whatever else is in the batch, whatever the prefix cache holds, however the prompt is cut into
chunks, with or without preemption, streamed or not.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from tests.support.server import RunningServer, running_server

WORDS = ("river", "lantern", "harvest", "bridge", "engine", "letters", "bread", "road", "clock")


def _prompt(seed: int, num_words: int) -> str:
    return " ".join(WORDS[(seed * 7 + i * (seed + 3)) % len(WORDS)] for i in range(num_words))


def _request(seed: int, num_words: int, **sampling: object) -> dict:
    return {
        "prompt": _prompt(seed, num_words),
        "max_tokens": 20,
        "logprobs": 3,
        "seed": seed,
        "ignore_eos": True,
        "return_token_ids": True,
    } | sampling


REQUESTS = [
    _request(1, 1, temperature=0),
    _request(2, 15, temperature=1),
    _request(3, 16, temperature=0.8, top_p=0.9),
    _request(4, 17, temperature=1, top_k=20),
    _request(5, 90, temperature=0),
    _request(6, 150, temperature=1.2, min_p=0.02),
    _request(7, 280, temperature=0, repetition_penalty=1.3),
    _request(8, 40, temperature=1, presence_penalty=0.7, frequency_penalty=0.4, n=2),
]
OTHERS = [
    {"prompt": _prompt(100 + i, 5 + 9 * i), "max_tokens": 8 + i, "seed": i, "ignore_eos": True}
    for i in range(32)
]


def _essence(answer: dict) -> list[tuple]:
    """Everything about an answer that must not change, with floats as they came."""
    return [
        (choice["token_ids"], choice["text"], json.dumps(choice["logprobs"]))
        for choice in answer["choices"]
    ]


def _ask(server: RunningServer, request: dict) -> list[tuple]:
    answer = httpx.post(f"{server.url}/v1/completions", json=request, timeout=100)
    return _essence(answer.raise_for_status().json())


async def _ask_together(server: RunningServer, requests: list[dict]) -> list[list[tuple]]:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=server.url, timeout=100, limits=limits) as client:
        posts = [client.post("/v1/completions", json=request) for request in requests]
        answers = await asyncio.gather(*posts)
    return [_essence(answer.raise_for_status().json()) for answer in answers]


@pytest.fixture(scope="module")
def plain(smollm2_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory):
    log = tmp_path_factory.mktemp("plain") / "log"
    args = ("--max-model-len", "1024", "--max-num-seqs", "16", "--served-model-name", "m")
    with running_server(smollm2_checkpoint, *args, log=log) as server:
        yield server


@pytest.fixture(scope="module")
def alone(plain: RunningServer) -> list[list[tuple]]:
    """Each request's answer when nothing else runs and nothing is cached."""
    return [_ask(plain, request) for request in REQUESTS]


def test_with_a_warm_prefix_cache(plain: RunningServer, alone: list) -> None:
    hits = plain.metric("vllm:prefix_cache_hits_total")

    again = [_ask(plain, request) for request in REQUESTS]

    assert plain.metric("vllm:prefix_cache_hits_total") > hits
    assert again == alone


async def test_among_32_others(plain: RunningServer, alone: list) -> None:
    answers = await _ask_together(plain, OTHERS[:16] + REQUESTS + OTHERS[16:])

    assert answers[16 : 16 + len(REQUESTS)] == alone


def test_streamed(plain: RunningServer, alone: list) -> None:
    for request, expected in zip(REQUESTS, alone, strict=True):
        ids: dict[int, list[int]] = {}
        texts: dict[int, str] = {}
        with httpx.stream(
            "POST", f"{plain.url}/v1/completions", json=request | {"stream": True}, timeout=100
        ) as response:
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    for choice in json.loads(line[6:])["choices"]:
                        ids.setdefault(choice["index"], []).extend(choice.get("token_ids", []))
                        index = choice["index"]
                        texts[index] = texts.get(index, "") + choice["text"]

        assert [ids[i] for i in sorted(ids)] == [choice[0] for choice in expected]
        assert [texts[i] for i in sorted(texts)] == [choice[1] for choice in expected]


@pytest.mark.parametrize(
    "args",
    [
        ("--max-num-batched-tokens", "16", "--max-num-seqs", "16"),
        ("--max-num-batched-tokens", "64"),
        ("--max-num-batched-tokens", "512", "--no-enable-prefix-caching"),
        ("--threads", "1", "--block-size", "32"),
    ],
    ids=["chunks-16", "chunks-64", "chunks-512-no-cache", "one-thread-blocks-32"],
)
async def test_however_the_work_is_cut(
    smollm2_checkpoint: Path, tmp_path: Path, alone: list, args: tuple[str, ...]
) -> None:
    base = ("--max-model-len", "1024", "--served-model-name", "m")

    with running_server(smollm2_checkpoint, *base, *args, log=tmp_path / "log") as server:
        answers = await _ask_together(server, REQUESTS)

    assert answers == alone


async def test_with_a_pool_so_small_that_requests_are_preempted(
    smollm2_checkpoint: Path, tmp_path: Path, alone: list
) -> None:
    args = ("--max-model-len", "512", "--num-gpu-blocks-override", "34", "--served-model-name", "m")

    with running_server(smollm2_checkpoint, *args, log=tmp_path / "log") as server:
        answers = await _ask_together(server, REQUESTS + OTHERS[:8])
        preemptions = server.metric("vllm:num_preemptions_total")

    assert preemptions > 0
    assert answers[: len(REQUESTS)] == alone
