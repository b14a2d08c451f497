"""Responses on the wire: the events' names, and gRPC beside HTTP."""

from __future__ import annotations

import json
from typing import Any

import grpc
import orjson
import pytest
from octavo.inference.v1 import responses_pb2 as pb
from octavo.inference.v1 import responses_pb2_grpc

from router_svc.gen.responses_encode import encode_response, encode_response_event
from tests.support.public_api import PublicApi
from tests.support.response_fold import fold

PATH = "/v1/responses"
BODY = {"input": "What is the capital of Japan?", "temperature": 0}
VOLATILE = {"id", "created_at", "completed_at", "usage"}


def frames(api: PublicApi, **body: Any) -> list[tuple[str, dict[str, Any]]]:
    """Name and data of each event of a stream."""
    with api.http.stream("POST", PATH, json=BODY | {"stream": True} | body) as response:
        raw = response.read().decode()
        assert response.status_code == 200, raw
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    pairs = []
    for frame in raw.removesuffix("\n\n").split("\n\n"):
        name, data = frame.split("\n")
        pairs.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return pairs


def settled(response: dict[str, Any]) -> dict[str, Any]:
    """What does not change from one answer to the next."""
    items = [{k: v for k, v in item.items() if k != "id"} for item in response["output"]]
    return {k: v for k, v in response.items() if k not in VOLATILE} | {"output": items}


def test_every_event_is_named_by_its_type(api: PublicApi) -> None:
    pairs = frames(api)

    assert [name for name, _ in pairs] == [data["type"] for _, data in pairs]
    assert pairs[0][0] == "response.created"
    assert pairs[-1][0] == "response.completed"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_output_tokens": 4},
        {"include": ["message.output_text.logprobs"], "top_logprobs": 3},
        {"temperature": 1, "seed": 7, "max_output_tokens": 40},
        {"instructions": "Answer in French.", "max_output_tokens": 20},
    ],
)
def test_the_stream_adds_up_to_the_whole(api: PublicApi, options: dict[str, Any]) -> None:
    whole = api.ok(PATH, **(BODY | options))

    streamed = fold(data for _, data in frames(api, **options))

    assert settled(streamed) == settled(whole)
    assert streamed["usage"]["output_tokens"] == whole["usage"]["output_tokens"]


def test_both_transports_give_the_same_answer(api: PublicApi) -> None:
    whole = api.ok(PATH, **BODY)
    request = pb.CreateResponseRequest(
        input=pb.ResponseInput(text=BODY["input"]), temperature=BODY["temperature"]
    )

    with grpc.insecure_channel(api.server.grpc_target) as channel:
        stub = responses_pb2_grpc.ResponsesStub(channel)
        over_grpc = _plain(encode_response(stub.CreateResponse(request)))
        events = [_plain(encode_response_event(e)) for e in stub.StreamResponse(request)]

    assert settled(over_grpc) == settled(whole)
    assert settled(fold(events)) == settled(whole)


def test_grpc_callers_have_the_same_limits(api: PublicApi) -> None:
    request = pb.CreateResponseRequest(input=pb.ResponseInput(text="Hi"), store=True)

    with (
        grpc.insecure_channel(api.server.grpc_target) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        responses_pb2_grpc.ResponsesStub(channel).CreateResponse(request)

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": [5]}, "input[0]"),
        ({"input": [{"type": 5}]}, "input[0].type"),
        ({"input": [{"type": "function_call_output", "call_id": "a", "output": "x"}]}, None),
        ({"input": "Hi", "stream_options": {"include_obfuscation": False}}, "stream_options"),
        ({"input": "Hi", "tool_choice": "required"}, "tool_choice"),
    ],
)
def test_a_bad_body_is_refused(api: PublicApi, body: dict[str, Any], param: str | None) -> None:
    error = api.refused(PATH, body)

    assert error["param"] == (param or "input[0].call_id")


def _plain(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value))
