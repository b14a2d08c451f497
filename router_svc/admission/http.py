"""Lets HTTP requests through by the limits, before their bodies are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.middleware import Middleware

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from router_svc.admission.admission import Admission
    from router_svc.admission.permit import Permit


class AdmitRequest:
    """ASGI middleware, inside of the keys. Whatever computes is a POST, and that is what counts."""

    @classmethod
    def middleware(cls, admission: Admission) -> Middleware:
        """The middleware as an application takes it."""
        return Middleware(cls, admission=admission)

    def __init__(self, app: ASGIApp, admission: Admission) -> None:
        self._app = app
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope["state"]
        permit = state["permit"] = self._admission.permit(state.get("tenant", ""))
        state["answer_headers"] = lambda: _headers(permit)
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        permit.arrive()  # raises what becomes a 429
        with permit:
            await self._app(scope, receive, send)


def _headers(permit: Permit) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in permit.headers()]
