"""Where inputs to embed go when an engine is full, and what is left of their time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import grpc
import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status
from prometheus_client import CollectorRegistry

from router_svc.call_context import CallContext
from router_svc.engines.encoder_types import EncoderInput, EncoderRequest, EncoderTask
from router_svc.errors import ApiError, ErrorKind
from router_svc.fleet.fleet import Fleet
from router_svc.tracing.observer import Observer
from tests.support.kept_spans import KeptSpans
from tests.support.scripted_encoder_engine import ScriptedEncoder, serve_encoder


def _packed(message: Message) -> Any:
    packed = Any()
    packed.Pack(message)
    return packed


DRAINING = Status(
    code=grpc.StatusCode.UNAVAILABLE.value[0],
    message="the engine is shutting down",
    details=[_packed(ErrorInfo(reason="DRAINING", domain="engine.octavo"))],
)
FULL = rpc_status.to_status(
    Status(code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], message="the queue is full")
)
REQUEST = EncoderRequest(task=EncoderTask.EMBED, request_id="r")


@pytest.fixture
async def two() -> AsyncIterator[tuple[Fleet, ScriptedEncoder, ScriptedEncoder]]:
    """A fleet of two engines."""
    engines = [ScriptedEncoder("abc"), ScriptedEncoder("abc")]
    fleet, servers = Fleet("abc"), []
    for engine in engines:
        server, target = await serve_encoder(engine)
        servers.append(server)
        fleet.add(target)
    while not all(member.may_serve for member in fleet.members):
        await fleet.wait_ready(0.05)
    yield fleet, *engines
    await fleet.close()
    for server in servers:
        await server.stop(0)


async def test_inputs_go_to_another_engine_when_one_is_full(
    two: tuple[Fleet, ScriptedEncoder, ScriptedEncoder],
) -> None:
    fleet, first, second = two
    first.refusal = FULL

    answers = [await fleet.embed(REQUEST, [EncoderInput([5])]) for _ in range(2)]

    assert [len(vectors) for vectors in answers] == [1, 1]
    assert len(second.calls) == 2


async def test_inputs_that_meet_a_drain_go_elsewhere_and_blame_nobody(
    two: tuple[Fleet, ScriptedEncoder, ScriptedEncoder],
) -> None:
    fleet, first, second = two
    first.refusal = rpc_status.to_status(DRAINING)

    for _ in range(8):
        assert len(await fleet.embed(REQUEST, [EncoderInput([5])])) == 1

    assert len(second.calls) == 8
    assert [member.circuit.state for member in fleet.members] == ["closed", "closed"]
    assert fleet.num_retries == 0


async def test_when_all_are_full_the_refusal_is_the_engines_own(
    two: tuple[Fleet, ScriptedEncoder, ScriptedEncoder],
) -> None:
    fleet, first, second = two
    first.refusal = second.refusal = FULL

    with pytest.raises(ApiError) as caught:
        await fleet.embed(REQUEST, [EncoderInput([5])])

    assert caught.value.kind is ErrorKind.RATE_LIMITED
    assert (len(first.calls), len(second.calls)) == (1, 1)


async def test_each_engine_that_is_asked_has_a_span_which_it_is_told_of(
    two: tuple[Fleet, ScriptedEncoder, ScriptedEncoder],
) -> None:
    fleet, first, second = two
    first.refusal = second.refusal = FULL
    kept = KeptSpans()
    observer = Observer(CollectorRegistry(), kept.tracing)

    with observer.watch("embeddings", "", CallContext("r")) as context:
        request = replace(REQUEST, call=context.call)
        with pytest.raises(ApiError):
            await fleet.embed(request, [EncoderInput([5])])

    asked, other, call = kept.all()
    assert asked.parent == other.parent == call.context
    assert [link.context for link in other.links] == [asked.context]
    assert {span.attributes["error.type"] for span in (asked, other)} == {"rate_limited"}
    told = {each.traceparent.split("-")[2] for each in (*first.calls, *second.calls)}
    assert told == {f"{span.context.span_id:016x}" for span in (asked, other)}
