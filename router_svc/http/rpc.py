"""The gRPC twin of exchange.py: what the generated servicer is written against."""

import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from grpc import aio
from octavo.logs import request_fields

from router_svc.admission.permit import Permit
from router_svc.admission.rpc import permit_of_call
from router_svc.auth.rpc import tenant_of_call
from router_svc.call_context import CallContext
from router_svc.errors import ApiError, ErrorKind, abort
from router_svc.http import headers

_RequestT = TypeVar("_RequestT")
_ResponseT = TypeVar("_ResponseT")
_Context = aio.ServicerContext[Any, Any]

_logger = logging.getLogger(__name__)


async def reply(
    request: _RequestT,
    context: _Context,
    validate: Callable[[_RequestT], None],
    call: Callable[[_RequestT, CallContext], Awaitable[_ResponseT]],
) -> _ResponseT:
    """Validates and awaits the handler's answer; failures end the call with their status."""
    call_context = read_context(context)
    try:
        with call_context.permit:
            validate(request)
            await context.send_initial_metadata(_metadata(call_context))
            return await call(request, call_context)
    except ApiError as error:
        await abort(context, error)
    except Exception:
        _logger.exception(
            "request %s failed",
            call_context.request_id,
            extra=request_fields(call_context.request_id, call_context.traceparent),
        )
        await abort(context, ApiError(ErrorKind.INTERNAL))


async def stream(
    request: _RequestT,
    context: _Context,
    validate: Callable[[_RequestT], None],
    call: Callable[[_RequestT, CallContext], AsyncIterator[_ResponseT]],
) -> AsyncIterator[_ResponseT]:
    """Validates and passes the handler's items on; cancelling the call closes the iterator."""
    call_context = read_context(context)
    try:
        with call_context.permit:
            validate(request)
            await context.send_initial_metadata(_metadata(call_context))
            items = call(request, call_context)
            try:
                async for item in items:
                    yield item
            finally:
                if isinstance(items, AsyncGenerator):
                    await items.aclose()
    except ApiError as error:
        await abort(context, error)
    except Exception:
        _logger.exception(
            "request %s failed",
            call_context.request_id,
            extra=request_fields(call_context.request_id, call_context.traceparent),
        )
        await abort(context, ApiError(ErrorKind.INTERNAL))


def _metadata(context: CallContext) -> tuple[tuple[str, str], ...]:
    return ((headers.REQUEST_ID, context.request_id), *context.permit.headers())


def read_context(context: _Context) -> CallContext:
    """Request id, trace context, deadline and tenant of a gRPC call."""
    metadata = {
        str(key): value
        for key, value in context.invocation_metadata() or ()
        if isinstance(value, str)
    }
    remaining = context.time_remaining()
    return CallContext(
        request_id=headers.request_id(metadata.get(headers.REQUEST_ID, "")),
        traceparent=headers.traceparent(metadata.get(headers.TRACEPARENT, "")),
        deadline=None if remaining is None else time.monotonic() + remaining,
        tenant=tenant_of_call.get(),
        permit=permit_of_call.get() or Permit(),
    )
