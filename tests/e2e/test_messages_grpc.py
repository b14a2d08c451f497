"""The service Messages over gRPC: the answers of HTTP, and errors with the same fields."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from octavo.inference.v1 import messages_pb2 as pb
from octavo.inference.v1 import messages_pb2_grpc

from tests.support import plain_http
from tests.support.server import RunningServer

TURN = pb.MessageTurn(
    role=pb.MESSAGE_ROLE_USER,
    content=pb.MessageTurnContent(text="What is the capital of Japan?"),
)
REQUEST = pb.CreateMessageRequest(messages=[TURN], max_tokens=16, temperature=0)


@pytest.fixture(scope="module")
def stub(server: RunningServer) -> Iterator[messages_pb2_grpc.MessagesStub]:
    with grpc.insecure_channel(server.grpc_target) as channel:
        yield messages_pb2_grpc.MessagesStub(channel)


def test_an_answer_is_that_of_http(
    stub: messages_pb2_grpc.MessagesStub, server: RunningServer
) -> None:
    body = {
        "messages": [{"role": "user", "content": TURN.content.text}],
        "max_tokens": 16,
        "temperature": 0,
    }

    answer = stub.CreateMessage(REQUEST)

    over_http = plain_http.post(f"{server.url}/v1/messages", json=body).json()
    assert [block.text.text for block in answer.content] == [over_http["content"][0]["text"]]
    assert answer.stop_reason == pb.MESSAGE_STOP_REASON_END_TURN
    assert answer.usage.output_tokens == over_http["usage"]["output_tokens"]


def test_a_stream_is_the_whole_answer(stub: messages_pb2_grpc.MessagesStub) -> None:
    whole = stub.CreateMessage(REQUEST)

    events = list(stub.StreamMessage(REQUEST))

    deltas = [e.content_block_delta.delta.text_delta.text for e in events]
    assert "".join(deltas) == whole.content[0].text.text
    assert events[0].message_start.message.model == "smollm2"
    assert events[-2].message_delta.delta.stop_reason == whole.stop_reason
    assert events[-1].WhichOneof("kind") == "message_stop"


def test_tokens_are_counted(stub: messages_pb2_grpc.MessagesStub) -> None:
    usage = stub.CreateMessage(REQUEST).usage

    counted = stub.CountMessageTokens(pb.CountMessageTokensRequest(messages=[TURN]))

    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (pb.CreateMessageRequest(stop_sequences=[""]), "stop_sequences[0]"),
        (pb.CreateMessageRequest(mcp_servers="[]"), "mcp_servers"),
        (pb.CreateMessageRequest(messages=[pb.MessageTurn()]), "messages[1].role"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_field_is_named(
    stub: messages_pb2_grpc.MessagesStub, change: pb.CreateMessageRequest, field: str
) -> None:
    request = pb.CreateMessageRequest()
    request.CopyFrom(REQUEST)
    request.MergeFrom(change)

    with pytest.raises(grpc.RpcError) as caught:
        stub.CreateMessage(request)

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    details = error_details_pb2.BadRequest()
    status = rpc_status.from_call(caught.value)
    assert status is not None
    assert any(detail.Unpack(details) for detail in status.details)
    assert details.field_violations[0].field == field
