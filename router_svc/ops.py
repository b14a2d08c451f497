"""Routes for operators: health, liveness, version, metrics."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import TYPE_CHECKING, Protocol

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from router_svc.fleet.metrics import IN_FLIGHT
from router_svc.metrics import CONTENT_TYPE, merged_exposition, only_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from router_svc.fleet.fleet import Fleet
    from router_svc.metrics import Summing


class Readiness(Protocol):
    """Says whether a request would be served now."""

    @property
    def ready(self) -> bool: ...


def ops_routes(router: Readiness, fleets: Sequence[Fleet], summing: Summing) -> list[Route]:
    """The routes; none needs a key or a body.

    Readiness is this process's own; what `summing` gives is of all that share its ports.
    """

    async def health(_: Request) -> Response:
        if router.ready:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "not ready"}, 503, headers={"Retry-After": "1"})

    async def live(_: Request) -> Response:
        return JSONResponse({"status": "live"})

    async def show_version(_: Request) -> Response:
        return JSONResponse({"version": version("octavo")})

    async def load(_: Request) -> Response:
        families = [family for family in await summing() if family.name == IN_FLIGHT]
        values = [sample.value for family in families for sample in family.samples]
        count = int(sum(values))
        return JSONResponse({"requests_in_flight": count, "server_load": count})  # vLLM's name

    async def metrics(request: Request) -> Response:
        engines = asyncio.gather(*(fleet.metrics() for fleet in fleets))
        families, answers = await asyncio.gather(summing(), engines)
        expositions = [text for texts in answers for text in texts]
        if names := request.query_params.getlist("name[]"):
            families, expositions = only_named(families, expositions, frozenset(names))
        text = await asyncio.to_thread(merged_exposition, families, expositions)
        return Response(text, media_type=CONTENT_TYPE)

    return [
        Route("/health", health),
        Route("/ready", health),
        Route("/live", live),
        Route("/ping", live),
        Route("/version", show_version),
        Route("/load", load),
        Route("/metrics", metrics),
    ]
