"""The same seeded request gives the same tokens and the same log-probabilities, bit for bit.

Whatever else is in the batch, whatever the prefix cache holds, however the prompt is cut into
chunks, with or without preemption, streamed or not.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
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
NUM_OTHERS = 32
OTHERS = [_request(100 + i, 2 + 3 * i, max_tokens=700) for i in range(NUM_OTHERS)]
PRECISIONS = {
    "bf16": ("--dtype=bfloat16",),
    "int8": ("--quantization=int8", "--kv-cache-dtype=int8"),
}


def _essence(answer: dict) -> list[tuple]:
    """Everything about an answer that must not change, with floats as they came."""
    return [
        (choice["token_ids"], choice["text"], json.dumps(choice["logprobs"], sort_keys=True))
        for choice in answer["choices"]
    ]


def _ask(server: RunningServer, request: dict) -> list[tuple]:
    answer = httpx.post(f"{server.url}/v1/completions", json=request, timeout=200)
    return _essence(answer.raise_for_status().json())


def _client(server: RunningServer) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=server.url, timeout=200, limits=limits)


async def _ask_together(server: RunningServer, requests: list[dict]) -> list[list[tuple]]:
    async with _client(server) as client:
        posts = [client.post("/v1/completions", json=request) for request in requests]
        answers = await asyncio.gather(*posts)
    return [_essence(answer.raise_for_status().json()) for answer in answers]


async def _stream(client: httpx.AsyncClient, request: dict) -> list[tuple]:
    """The answer as `_essence` has it, put together from the chunks of a stream."""
    joined: dict[int, dict] = {}
    body = request | {"stream": True}
    async with client.stream("POST", "/v1/completions", json=body) as response:
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            for part in json.loads(line.removeprefix("data: "))["choices"]:
                whole = joined.setdefault(
                    part["index"], {"text": "", "token_ids": [], "logprobs": {}}
                )
                whole["text"] += part["text"]
                whole["token_ids"] += part.get("token_ids") or []
                for key, values in (part["logprobs"] or {}).items():
                    whole["logprobs"].setdefault(key, []).extend(values)
    return _essence({"choices": [joined[index] for index in sorted(joined)]})


@contextmanager
def _server(model: Path, directory: Path, *args: str) -> Iterator[RunningServer]:
    base = ["--served-model-name=m", *(() if "--threads=1" in args else ("--threads=2",))]
    with running_server(model, *base, *args, log=directory / "log") as server:
        yield server


@pytest.fixture(scope="module", params=PRECISIONS.values(), ids=PRECISIONS)
def precision(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The flags that every server of a test has."""
    return request.param


@pytest.fixture(scope="module")
def plain(
    smollm2_checkpoint: Path,
    tmp_path_factory: pytest.TempPathFactory,
    precision: tuple[str, ...],
) -> Iterator[RunningServer]:
    args = ("--max-model-len", "1024", "--max-num-seqs", "48", "--kv-cache-memory-bytes=800000000")
    directory = tmp_path_factory.mktemp("plain")
    with _server(smollm2_checkpoint, directory, *args, *precision) as server:
        yield server


@pytest.fixture(scope="module")
def alone(plain: RunningServer) -> list[list[tuple]]:
    """Each request's answer when nothing else runs and nothing is cached."""
    return [_ask(plain, request) for request in REQUESTS]


def test_the_kernels_compute(plain: RunningServer) -> None:
    assert ": C++ (" in plain.log.read_text()


def test_with_a_warm_prefix_cache(plain: RunningServer, alone: list) -> None:
    hits = plain.metric("vllm:prefix_cache_hits_total")

    again = [_ask(plain, request) for request in REQUESTS]

    assert plain.metric("vllm:prefix_cache_hits_total") > hits
    assert again == alone


async def test_streamed_all_at_once(plain: RunningServer, alone: list) -> None:
    async with _client(plain) as client:
        answers = await asyncio.gather(*(_stream(client, request) for request in REQUESTS))

    assert answers == alone


async def test_among_32_others(plain: RunningServer, alone: list) -> None:
    order = random.Random(0)
    async with _client(plain) as client:
        others = [asyncio.create_task(_stream(client, request)) for request in OTHERS]
        try:
            assert await asyncio.to_thread(
                plain.wait_until, lambda: _num_running(plain) == NUM_OTHERS, 60.0
            )

            for _ in range(2):
                shuffled = order.sample(list(enumerate(REQUESTS)), len(REQUESTS))
                answers = await _ask_together(plain, [request for _, request in shuffled])
                assert answers == [alone[index] for index, _ in shuffled]

            assert _num_running(plain) == NUM_OTHERS  # all along
        finally:
            for other in others:
                other.cancel()
            await asyncio.gather(*others, return_exceptions=True)


def _num_running(server: RunningServer) -> float:
    return server.metric("vllm:num_requests_running")


@pytest.mark.parametrize(
    "args",
    [
        ("--max-num-batched-tokens=16", "--max-num-seqs=16"),
        ("--max-num-batched-tokens=64", "--no-enable-prefix-caching", "--threads=1"),
        ("--max-num-batched-tokens=512", "--target-step-seconds=10", "--block-size=32"),
    ],
    ids=["chunks-of-16", "chunks-of-64-no-cache-one-thread", "chunks-of-512-blocks-of-32"],
)
async def test_however_the_work_is_cut(
    smollm2_checkpoint: Path,
    tmp_path: Path,
    alone: list,
    precision: tuple[str, ...],
    args: tuple[str, ...],
) -> None:
    base = ("--max-model-len=1024", "--kv-cache-memory-bytes=200000000")

    with _server(smollm2_checkpoint, tmp_path, *base, *args, *precision) as server:
        answers = await _ask_together(server, REQUESTS)

    assert answers == alone


async def test_with_a_pool_so_small_that_requests_are_preempted(
    smollm2_checkpoint: Path, tmp_path: Path, alone: list, precision: tuple[str, ...]
) -> None:
    args = ("--max-model-len=512", "--num-gpu-blocks-override=34")
    rivals = [request | {"max_tokens": 40} for request in OTHERS[:8]]

    with _server(smollm2_checkpoint, tmp_path, *args, *precision) as server:
        answers = await _ask_together(server, REQUESTS + rivals)
        preemptions = server.metric("vllm:num_preemptions_total")

    assert preemptions > 0
    assert answers[: len(REQUESTS)] == alone
