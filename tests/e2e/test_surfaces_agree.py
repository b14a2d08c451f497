"""The same request gives the same answer over HTTP and gRPC, whole and streamed.

Random sets of parameters, a few with a real model and two hundred with a tiny one; nothing that one
side knows may be dropped by another.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from octavo.inference.v1 import inference_pb2 as pb

from tests.support.public_api import CHAT, COMPLETIONS, Answer, PublicApi

NUM_SETS, NUM_TINY_SETS = 16, 200
# Token ids below are those of every model here.
TOPICS = ("a small boat", "🙂🎉 访问", "counting: 1, 2, 3,", "def add(a, b):", "the")
OPTIONS: dict[str, tuple[Any, ...]] = {
    "temperature": (0, 0.3, 1, 1.7),
    "top_p": (0.5, 0.95, 1),
    "top_k": (-1, 0, 1, 40),
    "min_p": (0, 0.1),
    "presence_penalty": (-1, 0.5, 2),
    "frequency_penalty": (-0.5, 1),
    "repetition_penalty": (0.9, 1.3),
    "logit_bias": ({2: 4.5}, {100: 5, 28: -100}),
    "max_tokens": (1, 5, 12),
    "min_tokens": (0, 1),
    "n": (1, 2, 3),
    "stop": ([" a"], ["e", "ing"], ["."]),
    "stop_token_ids": ([28], [253, 30]),
    "include_stop_str_in_output": (True, False),
    "ignore_eos": (True, False),
    "skip_special_tokens": (True, False),
    "prompt_logprobs": (0, 3),
    "return_token_ids": (True,),
    "priority": (0,),
    "request_id": ("mine-1",),
    "bad_words": (["the", "a", "and of"],),
    "allowed_token_ids": (list(range(20, 250)),),
    "truncate_prompt_tokens": (2, -1),
    "return_tokens_as_token_ids": (True,),
}
CHAT_OPTIONS = OPTIONS | {"add_generation_prompt": (True, False), "add_special_tokens": (True,)}
COMPLETION_OPTIONS = OPTIONS | {
    "echo": (True, False),
    "logprobs": (0, 2, 5),
    "add_special_tokens": (True, False),
}


def random_request(seed: int) -> tuple[str, dict[str, Any]]:
    """A path and a body with about a third of all parameters set."""
    chooser = random.Random(seed)
    path = CHAT if seed % 2 else COMPLETIONS
    table = CHAT_OPTIONS if path == CHAT else COMPLETION_OPTIONS
    body: dict[str, Any] = {"seed": seed, "max_tokens": 8}
    for name, values in table.items():
        if chooser.random() < 0.35:
            body[name] = chooser.choice(values)
    topic = chooser.choice(TOPICS)
    if path == CHAT:
        body["messages"] = [{"role": "user", "content": f"Continue {topic}"}]
        if chooser.random() < 0.5:
            body |= {"logprobs": True, "top_logprobs": chooser.choice((0, 2))}
    else:
        body["prompt"] = chooser.choice((topic, [topic, "One"], [1, 193, 198], [[5, 6], [7]]))
    return path, body


def to_proto(path: str, body: dict[str, Any]) -> Message:
    """The gRPC request that means the same as the JSON body."""
    fields = dict(body)
    if path == CHAT:
        messages = [
            pb.ChatMessage(role=pb.ROLE_USER, content=pb.MessageContent(text=message["content"]))
            for message in fields.pop("messages")
        ]
        return pb.CreateChatCompletionRequest(messages=messages, **fields)
    return pb.CreateCompletionRequest(prompt=_prompt(fields.pop("prompt")), **fields)


def _prompt(prompt: str | list) -> pb.Prompt:
    match prompt:
        case str():
            return pb.Prompt(text=prompt)
        case [str(), *_]:
            return pb.Prompt(texts=pb.TextList(items=prompt))
        case [int(), *_]:
            return pb.Prompt(token_ids=pb.TokenIds(items=prompt))
    lists = [pb.TokenIds(items=ids) for ids in prompt]
    return pb.Prompt(token_ids_list=pb.TokenIdsList(items=lists))


def ask_everywhere(api: PublicApi, path: str, body: dict[str, Any]) -> dict[str, Answer]:
    """The four answers. Each has its own prefix cache, so that all four find it empty."""
    answers = {}
    salted = {
        surface: body | {"cache_salt": f"{body['seed']} {surface}"}
        for surface in ("HTTP", "HTTP stream", "gRPC", "gRPC stream")
    }
    answers["HTTP"] = api.whole(path, **salted["HTTP"])
    answers["HTTP stream"] = api.streamed(path, **salted["HTTP stream"])
    answers["gRPC"] = api.grpc_whole(to_proto(path, salted["gRPC"]))
    answers["gRPC stream"] = api.grpc_streamed(to_proto(path, salted["gRPC stream"]))
    return answers


def check_agreement(api: PublicApi, seeds: range) -> None:
    requests = [random_request(seed) for seed in seeds]

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda request: ask_everywhere(api, *request), requests))

    for (path, body), answers in zip(requests, results, strict=True):
        for surface, answer in answers.items():
            assert answer == answers["HTTP"], (path, body, surface)


def test_random_requests_are_answered_alike_on_every_surface(api: PublicApi) -> None:
    check_agreement(api, range(NUM_SETS))


def test_many_random_requests_are_answered_alike_on_every_surface(tiny: PublicApi) -> None:
    check_agreement(tiny, range(NUM_SETS, NUM_SETS + NUM_TINY_SETS))


WRONG = [
    {"max_tokens": -1},
    {"temperature": 3},
    {"top_p": 0},
    {"n": 129},
    {"logit_bias": {49152: 1}},
    {"stop": [""]},
    {"stop_token_ids": [50_000]},
    {"prompt": ""},
    {"prompt": [[5], [49152]]},
    {"min_tokens": 9},
    {"model": "other"},
    {"request_id": "a b"},
    {"prompt_logprobs": 21},
    {"stream_options": {"include_usage": True}},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_refusal_is_the_same_over_http_and_grpc(api: PublicApi, wrong: dict) -> None:
    body = {"prompt": "hi", "max_tokens": 4} | wrong

    error = api.post(COMPLETIONS, body).json()["error"]
    with pytest.raises(grpc.RpcError) as caught:
        api.grpc.CreateCompletion(to_proto(COMPLETIONS, body))

    assert caught.value.details() == error["message"]
    status = rpc_status.from_call(caught.value)
    violation = error_details_pb2.BadRequest()
    assert any(detail.Unpack(violation) for detail in status.details)
    assert violation.field_violations[0].field == error["param"]
