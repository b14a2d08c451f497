"""One of several router processes: it serves like one alone, and reports to its parent."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from router_svc.admission.shared_buckets import SharedBuckets
from router_svc.assembly import start_router
from router_svc.fleet.discovery import parse_source
from router_svc.processes.control import Control, ControlClosedError
from router_svc.processes.sums import from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prometheus_client import Metric

    from router_svc.engines.info import EngineInfo
    from router_svc.server import Router

_SUM_SECONDS = 5.0


async def run_worker(fd: int, params: Mapping[str, Any]) -> int:
    """Serves until it is told to stop, or its parent is gone; returns the exit code."""
    async with AsyncExitStack() as stack:
        orders: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        router: Router | None = None

        async def own_metrics() -> Any:
            return [] if router is None else to_json(router.families())

        async def sum_of_all() -> Iterable[Metric]:
            try:
                async with asyncio.timeout(_SUM_SECONDS):
                    return from_json(await control.ask())
            except (TimeoutError, ControlClosedError):  # the parent is ending
                return [] if router is None else router.families()

        def on_ready(target: str, info: EngineInfo) -> None:
            info = replace(info, adapters={})  # of which its parent needs none
            control.tell({"ready": target, "info": asdict(info)})

        control = await Control.over(
            socket.socket(fileno=fd), on_tell=orders.set_result, answer=own_metrics
        )
        parent = asyncio.create_task(control.run())
        stack.callback(parent.cancel)
        await asyncio.wait((orders, parent), return_when=asyncio.FIRST_COMPLETED)
        if not orders.done():
            return 1
        given = orders.result()
        router = await start_router(
            stack,
            [Path(path) for path in given["models"]],
            [parse_source(target) for target in given["targets"]],
            {**params, **given["ports"]},
            on_ready,
            summing=sum_of_all,
            new_bucket=SharedBuckets(given["limits_fd"]).bucket,
            replaces=given["replaces"],
        )
        control.tell({"listening": True})
        parent.add_done_callback(lambda task: None if task.cancelled() else router.stop())
        await router.run()
    return 0
