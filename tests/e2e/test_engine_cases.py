"""What the engine promises to requests, seen over HTTP with the real model."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.server import RunningServer, running_server

LENGTHS = (31, 32, 33, 63, 64, 65, 97)  # around the step budget and the size of a block


@pytest.fixture(scope="module")
def narrow(
    smollm2_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """As `server`, with steps of 32 tokens and so few blocks that requests are preempted."""
    log = tmp_path_factory.mktemp("narrow") / "log"
    args = ("--max-model-len=512", "--num-gpu-blocks-override=44")
    steps = ("--max-num-batched-tokens=32", "--max-num-seqs=20")
    with running_server(smollm2_checkpoint, *args, *steps, log=log) as running:
        yield running


def _ids(count: int, seed: int) -> list[int]:
    return [1000 + (seed * 7919 + i * (seed + 131)) % 40_000 for i in range(count)]


def _complete(server: RunningServer, **body: object) -> dict:
    answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
    return answer.raise_for_status().json()


def _streamed(server: RunningServer, **body: object) -> list[dict]:
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60).raise_for_status()
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def test_prompt_logprobs_do_not_depend_on_what_was_asked_before(server: RunningServer) -> None:
    shared = _ids(40, seed=1)
    prompts = [shared + _ids(9, seed=seed) for seed in (2, 3, 4)]
    seen: list[set[str]] = [set(), set(), set()]

    for salt, order in enumerate(itertools.permutations(range(3))):
        for index in order:
            answer = _complete(
                server,
                prompt=prompts[index],
                prompt_logprobs=2,
                max_tokens=1,
                temperature=0,
                cache_salt=f"order {salt}",  # each order starts with nothing cached
            )
            seen[index].add(json.dumps(answer["choices"][0]["prompt_logprobs"]))

    assert [len(values) for values in seen] == [1, 1, 1]
    first, second = (json.loads(next(iter(values))) for values in seen[:2])
    assert len(first) == 49
    assert first[:40] == second[:40]
    assert first[41:] != second[41:]


@pytest.mark.parametrize("length", LENGTHS)
def test_chunks_of_a_prompt_give_its_logprobs_once_and_in_order(
    server: RunningServer, narrow: RunningServer, length: int
) -> None:
    body = {
        "prompt": _ids(length, seed=length),
        "echo": True,
        "logprobs": 1,
        "max_tokens": 2,
        "temperature": 0,
    }

    whole = _complete(server, **body)["choices"][0]
    chunked = _complete(narrow, **body)["choices"][0]
    chunks = [chunk["choices"][0] for chunk in _streamed(narrow, **body) if chunk["choices"]]

    logprobs = whole["logprobs"]["token_logprobs"]
    assert len(logprobs) == length + 2
    assert [i for i, value in enumerate(logprobs) if value is None] == [0]
    assert chunked == whole
    assert "".join(chunk["text"] for chunk in chunks) == whole["text"]
    assert len(chunks[0]["logprobs"]["tokens"]) >= length  # nothing before the prompt is done


async def test_choices_that_are_preempted_complete_as_if_they_were_not(
    server: RunningServer, narrow: RunningServer
) -> None:
    def body(seed: int) -> dict:
        text = f"Tell me a story about {seed} friends who " + "walk and walk and " * 12
        return {
            "messages": [{"role": "user", "content": text}],
            "n": 5,
            "seed": seed,
            "max_tokens": 40,
            "ignore_eos": True,
            "return_token_ids": True,
        }

    async def ask(of: RunningServer) -> list[list[list[int]]]:
        async with httpx.AsyncClient(base_url=of.url, timeout=100) as client:
            posts = [client.post("/v1/chat/completions", json=body(seed)) for seed in range(4)]
            answers = await asyncio.gather(*posts)
        return [[choice["token_ids"] for choice in a.json()["choices"]] for a in answers]

    undisturbed = await ask(server)
    crowded = await ask(narrow)

    assert narrow.metric("vllm:num_preemptions_total") > 0
    assert [len(choices) for choices in crowded] == [5] * 4
    assert len({tuple(ids) for choices in crowded for ids in choices}) == 20
    assert crowded == undisturbed
    assert narrow.wait_until(narrow.idle)


def test_cached_tokens_are_whole_blocks_and_never_the_whole_prompt(server: RunningServer) -> None:
    prompt = _ids(56, seed=11)  # three blocks and a half
    prompts = [prompt, prompt, prompt[:32] + _ids(30, seed=12), prompt[:32]]

    for salt in ("whole", "streamed"):
        hits = server.metric("vllm:prefix_cache_hits_total")
        queries = server.metric("vllm:prefix_cache_queries_total")
        usages = []
        for tokens in prompts:
            body = {"prompt": tokens, "max_tokens": 2, "cache_salt": salt}
            if salt == "whole":
                usages.append(_complete(server, **body)["usage"])
            else:
                usages.append(_streamed(server, **body)[-1]["usage"])

        cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
        assert cached == [0, 48, 32, 16]
        assert [usage["prompt_tokens"] for usage in usages] == [56, 56, 62, 32]
        assert server.metric("vllm:prefix_cache_hits_total") - hits == sum(cached)
        assert server.metric("vllm:prefix_cache_queries_total") - queries == 56 + 56 + 62 + 32
