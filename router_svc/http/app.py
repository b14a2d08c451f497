"""The HTTP application: generated routes under one envelope of request ids and error bodies.

A request passes, from outside in: its id → other origins' rules → error bodies → keys → routes.
"""

from collections.abc import Callable, Iterable, Sequence
from importlib import resources

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Route
from starlette.types import Lifespan, Receive, Scope, Send

from router_svc.errors import ApiError
from router_svc.http.cors import CorsRules
from router_svc.http.envelope import ErrorBodies, RequestIds, on_api_error, on_http_exception
from router_svc.http.exchange import HttpSettings, send_json
from router_svc.http.service import Service


def build_app(
    services: Iterable[Service],
    *,
    settings: HttpSettings | None = None,
    extra_routes: Iterable[BaseRoute] = (),
    cors: CorsRules | None = None,
    middleware: Sequence[Middleware] = (),
    lifespan: Lifespan[Starlette] | None = None,
    on_answer: Callable[[str, int], None] = lambda _route, _status: None,
) -> Starlette:
    """The ASGI application that serves the services and /openapi.json.

    Whatever `extra_routes` and `middleware` raise gets the same error body; an authenticating
    middleware leaves the tenant in scope["state"]["tenant"]. `on_answer` hears of each answer's
    route, as it is declared ("" for a path that is none), and status.
    """
    settings = settings or HttpSettings()
    app = Starlette(
        routes=[
            *(route for service in services for route in service.routes(settings)),
            Route("/openapi.json", _openapi()),
            *extra_routes,
        ],
        middleware=[
            Middleware(RequestIds, on_answer=on_answer),
            *((cors.middleware(),) if cors is not None else ()),
            Middleware(ErrorBodies),
            *middleware,
        ],
        exception_handlers={HTTPException: on_http_exception, ApiError: on_api_error},
        lifespan=lifespan,
    )
    # A path with a slash too many is another path, not a redirect that drops the body.
    app.router.redirect_slashes = False
    return app


def _openapi() -> "_Document":
    text = resources.files("router_svc.gen").joinpath("openapi.json").read_bytes()
    return _Document(text)


class _Document:
    """Serves one JSON document."""

    def __init__(self, text: bytes) -> None:
        self._text = text

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await send_json(send, 200, self._text)
