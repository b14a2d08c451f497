"""Calls of a real grpc.aio server, of every kind and end, as they are counted."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2
from octavo.engine.v1 import engine_pb2 as pb
from octavo.grpc_metrics import CountCalls
from prometheus_client import CollectorRegistry

SERVICE = pb.DESCRIPTOR.services_by_name["Engine"].full_name


async def stream(requests, _context):
    async for request in requests:
        yield request


async def writes(_request, context):
    for _ in range(3):
        await context.write(b"x")


async def refuses(_request, context):
    await context.abort(grpc.StatusCode.NOT_FOUND, "not here")


async def fails(_request, _context):
    raise ValueError("its own fault")


async def waits(_request, _context):
    await asyncio.sleep(60)


def blocks(request, _context):
    return request


class Counted:
    """A server with one method, and its counts."""

    def __init__(self, registry, channel):
        self._registry = registry
        self.channel = channel

    def unary(self, method, **options):
        return self.channel.unary_unary(f"/{SERVICE}/{method}")(b"x", **options)

    def serves(self, method):
        return self.channel.unary_stream(f"/{SERVICE}/{method}")(b"x")

    def both_ways(self, method):
        return self.channel.stream_stream(f"/{SERVICE}/{method}")()

    def value(self, name, method, kind, **labels):
        all_labels = {"grpc_type": kind, "grpc_method": method, "grpc_service": SERVICE, "of": "t"}
        return self._registry.get_sample_value(f"grpc_server_{name}", all_labels | labels)

    async def number_handled(self, wanted, method, kind, **labels):
        """Calls that count as ended, once there are `wanted`, or after a while."""
        for _ in range(3000):  # an end may reach the client before it is counted
            if self.value("handled_total", method, kind, **labels) == wanted:
                break
            await asyncio.sleep(0.01)
        return self.value("handled_total", method, kind, **labels)

    async def handled(self, method, kind, code):
        """Whether the call counts as ended with that status, and as begun and timed once."""
        await self.number_handled(1, method, kind, grpc_code=code)
        assert self.value("started_total", method, kind) == 1
        assert self.value("handling_seconds_count", method, kind) == 1
        return self.value("handled_total", method, kind, grpc_code=code) == 1


@asynccontextmanager
async def serving(method, handler, *refusing):
    registry = CollectorRegistry()
    counting = CountCalls(registry, [SERVICE], {"of": "t"})
    server = grpc.aio.server(interceptors=[counting, *refusing])
    handlers = grpc.method_handlers_generic_handler(SERVICE, {method: handler})
    server.add_generic_rpc_handlers((handlers,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield Counted(registry, channel)
    finally:
        await server.stop(0)


async def test_a_stream_of_many_messages_is_one_call_and_counts_when_it_ends():
    async with serving("Session", grpc.stream_stream_rpc_method_handler(stream)) as counted:
        call = counted.both_ways("Session")
        for message in (b"1", b"2", b"3"):
            await call.write(message)
            assert await call.read() == message
        assert counted.value("started_total", "Session", "bidi_stream") == 1
        assert counted.value("handled_total", "Session", "bidi_stream", grpc_code="OK") == 0
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF

        assert await counted.handled("Session", "bidi_stream", "OK")


@pytest.mark.parametrize(
    ("behaviour", "code"), [(refuses, "NOT_FOUND"), (fails, "UNKNOWN"), (blocks, "OK")]
)
async def test_an_answer_counts_with_the_status_that_its_caller_got(behaviour, code):
    async with serving("GetModelInfo", grpc.unary_unary_rpc_method_handler(behaviour)) as counted:
        call = counted.unary("GetModelInfo")
        assert (await call.code()).name == code

        assert await counted.handled("GetModelInfo", "unary", code)


async def test_a_method_that_writes_for_itself_is_counted():
    async with serving("Generate", grpc.unary_stream_rpc_method_handler(writes)) as counted:
        assert [message async for message in counted.serves("Generate")] == [b"x"] * 3

        assert await counted.handled("Generate", "server_stream", "OK")


async def test_a_caller_that_leaves_cancels():
    begun = asyncio.Event()

    async def begins(request, context):
        begun.set()
        await waits(request, context)

    async with serving("Embed", grpc.unary_unary_rpc_method_handler(begins)) as counted:
        call = counted.unary("Embed", timeout=60)
        await begun.wait()
        call.cancel()

        assert await counted.handled("Embed", "unary", "CANCELLED")


async def test_a_deadline_that_passes_is_told_from_a_caller_that_leaves():
    begun = asyncio.Event()

    async def begins(request, context):
        begun.set()
        await waits(request, context)

    for seconds in (0.3, 3, 30):  # the first is enough, unless it passed on the way to the server
        async with serving("Embed", grpc.unary_unary_rpc_method_handler(begins)) as counted:
            code = await counted.unary("Embed", timeout=seconds).code()
            assert code.name == "DEADLINE_EXCEEDED"
            if begun.is_set():
                assert await counted.handled("Embed", "unary", "DEADLINE_EXCEEDED")
                break
    assert begun.is_set()


NO_MESSAGE = b"\xff\xff"  # a field's tag without an end


@pytest.mark.parametrize("behaviour", [refuses, blocks])
async def test_a_request_that_cannot_be_read_is_the_fault_of_its_caller(behaviour):
    handler = grpc.unary_unary_rpc_method_handler(behaviour, pb.EmbedRequest.FromString)
    async with serving("Embed", handler) as counted:
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await counted.channel.unary_unary(f"/{SERVICE}/Embed")(NO_MESSAGE)

        assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert refusal.value.details() == "the request is no message of this method's type"
        assert counted.value("started_total", "Embed", "unary") == 1


async def test_what_came_before_a_message_that_cannot_be_read_is_answered():
    handler = grpc.stream_stream_rpc_method_handler(
        stream, pb.SessionRequest.FromString, pb.SessionRequest.SerializeToString
    )
    async with serving("Session", handler) as counted:
        call = counted.both_ways("Session")
        await call.write(pb.SessionRequest(stream_id=1).SerializeToString())
        assert await call.read() == pb.SessionRequest(stream_id=1).SerializeToString()
        await call.write(NO_MESSAGE)

        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert await counted.handled("Session", "bidi_stream", "INVALID_ARGUMENT")


class Refusing(grpc.aio.ServerInterceptor):
    """Answers whatever is called, as one does that wants a key."""

    async def intercept_service(self, _continuation, _details):
        async def refuse(_requests, context):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "no key")

        return grpc.stream_stream_rpc_method_handler(refuse)


async def test_callers_cannot_make_up_series():
    handler = grpc.unary_unary_rpc_method_handler(blocks)
    async with serving("Embed", handler, Refusing()) as counted:
        for method in ("Embed", "MadeUp1", "MadeUp2"):
            await counted.unary(method).code()

        assert await counted.handled("Embed", "unary", "UNAUTHENTICATED")
        unknown = {"grpc_service": "unknown", "grpc_code": "UNAUTHENTICATED"}
        assert await counted.number_handled(2, "unknown", "unary", **unknown) == 2


def test_methods_are_there_before_anybody_called():
    registry = CollectorRegistry()
    health = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name

    CountCalls(registry, [health])

    labels = {"grpc_type": "unary", "grpc_service": health, "grpc_method": "Check"}
    assert registry.get_sample_value("grpc_server_started_total", labels) == 0
