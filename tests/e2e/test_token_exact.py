"""The real model gives transformers' greedy tokens in float32, over every surface.

The reference (tests/data/reference_greedy.json) was made by transformers in float32 from the same
checkpoint. A step whose two likeliest tokens are within 1e-3 of each other may go either way; none
of the reference's is that close.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import grpc
import httpx
import pytest
from octavo import LLM, SamplingParams
from octavo.inference.v1 import inference_pb2 as pb
from octavo.inference.v1 import inference_pb2_grpc

from tests.support.server import RunningServer

REFERENCE = json.loads((Path(__file__).parents[1] / "data/reference_greedy.json").read_text())
CASES = REFERENCE["cases"]
MAX_TOKENS = REFERENCE["max_new_tokens"]


def _body(case: dict) -> tuple[str, dict]:
    body = {"temperature": 0, "max_tokens": MAX_TOKENS, "return_token_ids": True}
    if case["kind"] == "chat":
        return "/v1/chat/completions", body | {"messages": case["messages"]}
    return "/v1/completions", body | {"prompt": case["prompt"]}


def _check(case: dict, answer: dict) -> None:
    choice = answer["choices"][0]
    prompt_ids = answer.get("prompt_token_ids") or choice["prompt_token_ids"]
    assert prompt_ids == case["prompt_token_ids"]
    assert choice["token_ids"] == case["output_token_ids"]
    assert choice["finish_reason"] == case["finish_reason"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_http_gives_the_reference_tokens(server: RunningServer, case: dict) -> None:
    path, body = _body(case)

    answer = httpx.post(server.url + path, json=body, timeout=60).json()

    _check(case, answer)


async def test_http_gives_the_reference_tokens_with_all_requests_at_once(
    server: RunningServer,
) -> None:
    async with httpx.AsyncClient(base_url=server.url, timeout=100) as client:
        posts = [client.post(path, json=body) for path, body in map(_body, CASES)]
        answers = await asyncio.gather(*posts)

    for case, answer in zip(CASES, answers, strict=True):
        _check(case, answer.json())


async def test_grpc_gives_the_reference_tokens_with_all_requests_at_once(
    server: RunningServer,
) -> None:
    async with grpc.aio.insecure_channel(server.grpc_target) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)

        async def stream(case: dict) -> tuple[list[int], str]:
            request = pb.CreateCompletionRequest(
                prompt=pb.Prompt(token_ids=pb.TokenIds(items=case["prompt_token_ids"])),
                temperature=0,
                max_tokens=MAX_TOKENS,
                return_token_ids=True,
            )
            ids, text = [], ""
            async for chunk in stub.StreamCompletion(request):
                ids += chunk.choices[0].token_ids
                text += chunk.choices[0].text
            return ids, text

        answers = await asyncio.gather(*(stream(case) for case in CASES))

    for case, (ids, text) in zip(CASES, answers, strict=True):
        assert ids == case["output_token_ids"]
        assert text == case["output_text"]


def test_the_offline_api_gives_the_reference_tokens(smollm2_checkpoint: Path) -> None:
    greedy = SamplingParams(temperature=0, max_tokens=MAX_TOKENS)

    with LLM(str(smollm2_checkpoint), dtype="float32", max_model_len=2048) as llm:
        prompts = [case["prompt_token_ids"] for case in CASES]
        outputs = llm.generate(prompts, greedy, show_progress=False)

    for case, output in zip(CASES, outputs, strict=True):
        assert output.outputs[0].token_ids == case["output_token_ids"]
        assert output.outputs[0].text == case["output_text"]
