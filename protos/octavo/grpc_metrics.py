"""Counts the calls of a gRPC server under the names that gRPC's Prometheus libraries share.

    grpc_server_started_total{grpc_type, grpc_service, grpc_method}
    grpc_server_handled_total{…, grpc_code}      grpc_server_handling_seconds{…}

A stream counts once, when it ends, however much it carries: its messages pass with one more hop
between generators. Names and labels: https://github.com/grpc-ecosystem/go-grpc-middleware, its
provider for Prometheus.

As every request passes, what is no message of its method's type is refused here, too: grpc.aio
would tell its caller of Python's classes, and the log of a fault.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.message import DecodeError
from prometheus_client import Counter, Histogram

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping

    from google.protobuf.descriptor import MethodDescriptor
    from prometheus_client import CollectorRegistry

_SECONDS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_TYPES = {
    (False, False): "unary",
    (False, True): "server_stream",
    (True, False): "client_stream",
    (True, True): "bidi_stream",
}
# A caller whose deadline passes may hang up before the same moment has come here.
_EARLY_SECONDS = 0.1
# What a server has no method for, so that callers cannot make up series.
_UNKNOWN = ("unary", "unknown", "unknown")
_UNREADABLE = object()  # stands for bytes that are no message of the method
_REFUSAL = (grpc.StatusCode.INVALID_ARGUMENT, "the request is no message of this method's type")


class CountCalls(grpc.aio.ServerInterceptor):
    """Counts calls; the first of a server's interceptors, so that it sees what others refuse."""

    def __init__(
        self,
        registry: CollectorRegistry,
        services: Iterable[str],
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """`services` are full names from protos that are loaded; `labels` are added to all series.

        Raises KeyError for a service that no loaded proto declares.
        """
        more = dict(labels or {})
        names = (*more, "grpc_type", "grpc_service", "grpc_method")
        self._more = tuple(more.values())
        self._started = Counter(
            "grpc_server_started", "Calls that have begun.", names, registry=registry
        )
        self._handled = Counter(
            "grpc_server_handled",
            "Calls that have ended, by status.",
            (*names, "grpc_code"),
            registry=registry,
        )
        self._seconds = Histogram(
            "grpc_server_handling_seconds",
            "From a call's begin to its end; a stream's may be days.",
            names,
            buckets=_SECONDS,
            registry=registry,
        )
        self._methods = {
            f"/{name}/{method.name}": _described(name, method)
            for name in services
            for method in descriptor_pool.Default().FindServiceByName(name).methods
        }
        for values in self._methods.values():  # there before anybody has called
            self._started.labels(*self._more, *values)
            self._handled.labels(*self._more, *values, grpc.StatusCode.OK.name)

    async def intercept_service(
        self,
        continuation: Callable[
            [grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]
        ],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """The method's handler, counted; None, uncounted, where there is none."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        return self._counted(handler, self._methods.get(handler_call_details.method, _UNKNOWN))

    def _counted(
        self, handler: grpc.RpcMethodHandler[Any, Any], method: tuple[str, str, str]
    ) -> grpc.RpcMethodHandler[Any, Any]:
        kinds: dict[tuple[bool, bool], tuple[Any, Any]] = {
            (False, False): (handler.unary_unary, grpc.unary_unary_rpc_method_handler),
            (False, True): (handler.unary_stream, grpc.unary_stream_rpc_method_handler),
            (True, False): (handler.stream_unary, grpc.stream_unary_rpc_method_handler),
            (True, True): (handler.stream_stream, grpc.stream_stream_rpc_method_handler),
        }
        behaviour, made_by = kinds[
            bool(handler.request_streaming), bool(handler.response_streaming)
        ]
        counted: grpc.RpcMethodHandler[Any, Any] = made_by(
            self._watching(behaviour, method, reads_many=bool(handler.request_streaming)),
            request_deserializer=_reading(handler.request_deserializer),
            response_serializer=handler.response_serializer,
        )
        return counted

    def _watching(
        self, behaviour: Callable[..., Any], method: tuple[str, str, str], *, reads_many: bool
    ) -> Any:
        """The same, and the same kind of function: grpc.aio calls each kind its own way."""

        async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
            with self._call(method, context):
                request = await readable(request, context)
                async with aclosing(behaviour(request, context)) as messages:
                    async for message in messages:
                        yield message

        async def answer(request: Any, context: Any) -> Any:
            with self._call(method, context):
                request = await readable(request, context)
                return await behaviour(request, context)

        def blocking(request: Any, context: Any) -> Any:  # on a thread, and its context tells less
            with self._call(method, None):
                if request is _UNREADABLE:
                    context.abort(*_REFUSAL)
                return behaviour(request, context)

        async def readable(request: Any, context: Any) -> Any:
            if reads_many:
                return each_readable(request, context)
            if request is _UNREADABLE:
                await context.abort(*_REFUSAL)
            return request

        async def each_readable(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
            async for request in requests:
                if request is _UNREADABLE:
                    await context.abort(*_REFUSAL)
                yield request

        if inspect.isasyncgenfunction(behaviour):
            return stream
        return answer if inspect.iscoroutinefunction(behaviour) else blocking

    @contextmanager
    def _call(self, method: tuple[str, str, str], context: Any) -> Iterator[None]:
        labels = (*self._more, *method)
        self._started.labels(*labels).inc()
        began = time.perf_counter()
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._seconds.labels(*labels).observe(time.perf_counter() - began)
            self._handled.labels(*labels, _code(context, error)).inc()


def _reading(deserialize: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    """The same, but for bytes that cannot be read, which become _UNREADABLE."""
    if deserialize is None:
        return None

    def read(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError:
            return _UNREADABLE

    return read


def _described(service: str, method: MethodDescriptor) -> tuple[str, str, str]:
    kind = _TYPES[method.client_streaming, method.server_streaming]
    return kind, service, method.name


def _code(context: Any, error: BaseException | None) -> str:
    """The status that the caller gets."""
    told = None if context is None else context.code()
    if told is not None:
        return _name(told)
    if error is None:
        return grpc.StatusCode.OK.name
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        left = None if context is None else context.time_remaining()
        late = left is not None and left < _EARLY_SECONDS
        return (grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED).name
    return grpc.StatusCode.UNKNOWN.name


def _name(code: grpc.StatusCode | int) -> str:
    if isinstance(code, grpc.StatusCode):
        return code.name
    return next(each.name for each in grpc.StatusCode if each.value[0] == code)
