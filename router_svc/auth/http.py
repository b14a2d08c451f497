"""Lets HTTP requests in by their key. Everything needs one but the paths that are listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.middleware import Middleware

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Receive, Scope, Send

    from router_svc.auth.keyring import KeyRing

PROBES = frozenset({"/health", "/ready", "/live", "/ping"})
"""Paths that say whether the server is well, and nothing else."""


class RequireKey:
    """ASGI middleware that decides before any route is looked for, and sets the state's tenant."""

    @classmethod
    def middleware(cls, keyring: KeyRing, open_paths: Collection[str]) -> Middleware:
        """The middleware as an application takes it."""
        return Middleware(cls, keyring=keyring, open_paths=open_paths)

    def __init__(self, app: ASGIApp, keyring: KeyRing, open_paths: Collection[str]) -> None:
        self._app = app
        self._keyring = keyring
        self._open_paths = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan" and not self._is_open(scope):
            # Raises what becomes a 401.
            scope["state"]["tenant"] = self._keyring.keys.authenticate(scope["headers"])
        await self._app(scope, receive, send)

    def _is_open(self, scope: Scope) -> bool:
        return scope.get("method") in ("GET", "HEAD") and scope["path"] in self._open_paths
