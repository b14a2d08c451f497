"""Lets gRPC calls in by their key. Everything needs one but the health service."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import grpc

from router_svc.errors import ApiError, abort

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from router_svc.auth.keyring import KeyRing

_OPEN_SERVICES = ("/grpc.health.v1.Health/",)

tenant_of_call: ContextVar[str] = ContextVar("tenant_of_call", default="")
"""The tenant of the call that the current task serves: grpc.aio runs an interceptor and the handler
in one task, and hands nothing else from the one to the other."""


class KeyInterceptor(grpc.aio.ServerInterceptor):
    """Decides before the method is looked for, so an unknown one needs a key too."""

    def __init__(self, keyring: KeyRing) -> None:
        self._keyring = keyring

    async def intercept_service(
        self,
        continuation: Callable[
            [grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]
        ],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Passes the call on, or answers it with UNAUTHENTICATED before its message is read."""
        if not handler_call_details.method.startswith(_OPEN_SERVICES):
            given = [
                (name.encode(), value if isinstance(value, bytes) else value.encode())
                for name, value in handler_call_details.invocation_metadata
            ]
            try:
                tenant_of_call.set(self._keyring.keys.authenticate(given))
            except ApiError as error:
                return refusing(error)
        return await continuation(handler_call_details)


def refusing(
    error: ApiError, metadata: Sequence[tuple[str, str]] = ()
) -> grpc.RpcMethodHandler[Any, Any]:
    """Answers any method with the error, and the initial metadata before it."""

    async def refuse(
        _requests: AsyncIterator[Any], context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        if metadata:
            await context.send_initial_metadata(tuple(metadata))
        await abort(context, error)

    # A handler of streams is called without waiting for a message, whatever the method is.
    return grpc.stream_stream_rpc_method_handler(refuse)
