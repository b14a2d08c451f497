"""Lets gRPC calls through by the limits, before their messages are read."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf import descriptor_pool
from octavo.http.v1 import options_pb2

from router_svc.auth.rpc import refusing, tenant_of_call
from router_svc.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from router_svc.admission.admission import Admission
    from router_svc.admission.permit import Permit

permit_of_call: ContextVar[Permit | None] = ContextVar("permit_of_call", default=None)
"""The permit of the call that the current task serves; see `auth.rpc.tenant_of_call`."""


class AdmitCall(grpc.aio.ServerInterceptor):
    """Stands behind the keys. What is a GET over HTTP does not count here either.

    A call takes its place only once its handler begins: one whose message cannot be read never
    gets there, and could not give the place back.
    """

    def __init__(self, admission: Admission, services: Iterable[str]) -> None:
        """`services` are the full names of the public services."""
        self._admission = admission
        self._methods = frozenset(name for each in services for name in _computing(each))

    async def intercept_service(
        self,
        continuation: Callable[
            [grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]
        ],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Passes the call on, or answers it with RESOURCE_EXHAUSTED."""
        if handler_call_details.method in self._methods:
            permit = self._admission.permit(tenant_of_call.get())
            try:
                permit.arrive()
            except ApiError as error:
                return refusing(error, permit.headers())
            permit_of_call.set(permit)
        return await continuation(handler_call_details)


def _computing(service: str) -> list[str]:
    methods = descriptor_pool.Default().FindServiceByName(service).methods
    return [
        f"/{service}/{method.name}"
        for method in methods
        if method.GetOptions().Extensions[options_pb2.http].WhichOneof("route") != "get"
    ]
