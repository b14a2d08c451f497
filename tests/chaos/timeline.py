"""How long until a router knows what became of its only engine, and until it serves again."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.chaos.processes import MODEL, Cluster, Router, running_cluster, total
from tests.support.public_api import CHAT, COMPLETIONS

# Seconds that each may take; see `Timeline.took` for crowded machines.
BOUNDS = {
    "not ready after the engine's death": 2.0,
    "503 to a chat while there is no engine": 1.0,
    "traffic after a new engine is ready": 5.0,
    "not ready after the engine froze": 10.0,
    "traffic after the engine thawed": 5.0,
    "blocks free after a cancel": 1.0,
}
PATIENCE = 20.0  # times a bound are waited at most: tests run where others compute too
_POLL_SECONDS = 0.02


@dataclass
class Timeline:
    """What was measured, in seconds, and what should not have been seen."""

    seconds: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def late(self) -> list[str]:
        """What took longer than its bound."""
        return [what for what, seconds in self.seconds.items() if seconds > BOUNDS[what]]

    async def until(self, what: str, began: float, holds: Callable[[], Awaitable[bool]]) -> None:
        """Waits for a condition. Raises TimeoutError after PATIENCE times its bound."""
        while not await holds():
            if time.monotonic() - began > PATIENCE * BOUNDS[what]:
                raise TimeoutError(f"{what}: not within {PATIENCE * BOUNDS[what]:g} s")
            await asyncio.sleep(_POLL_SECONDS)
        self.seconds[what] = time.monotonic() - began


async def measure(model: Path, scratch: Path) -> Timeline:
    """Death, freeze and cancel, in turn, under one router that is never started again."""
    timeline = Timeline()
    async with running_cluster(model, scratch, num_engines=1) as cluster:
        async with httpx.AsyncClient(timeout=60, base_url=cluster.routers[0].url) as http:
            await _cancel(cluster.routers[0], http, timeline)
            await _death(cluster, http, timeline)
            await _freeze(cluster, http, timeline)
        if cluster.routers[0].starts != 1 or not cluster.routers[0].alive:
            timeline.problems.append("the router has ended")
    return timeline


async def _cancel(router: Router, http: httpx.AsyncClient, timeline: Timeline) -> None:
    body = {"model": MODEL, "prompt": "the", "max_tokens": 900, "ignore_eos": True, "n": 4}

    async def running() -> float:
        return total(await router.samples(), "vllm:kv_cache_usage_perc")

    call = asyncio.create_task(http.post(COMPLETIONS, json=body))
    async with asyncio.timeout(60):
        while not await running():
            if call.done():  # before it was seen to run: once more
                call = asyncio.create_task(http.post(COMPLETIONS, json=body))
    call.cancel()

    async def free() -> bool:
        return await running() == 0

    await timeline.until("blocks free after a cancel", time.monotonic(), free)


async def _death(cluster: Cluster, http: httpx.AsyncClient, timeline: Timeline) -> None:
    (engine,), (router,) = cluster.engines, cluster.routers

    async def not_ready() -> bool:
        return await router.status("/health") == 503

    engine.send(signal.SIGKILL)
    await timeline.until("not ready after the engine's death", time.monotonic(), not_ready)
    began = time.monotonic()

    async def refused() -> bool:
        answer = await _chat(http)
        if int(answer.headers.get("retry-after", 0)) < 1:
            timeline.problems.append("a chat without an engine is not told when to come again")
        return answer.status_code == 503

    await timeline.until("503 to a chat while there is no engine", began, refused)
    if await router.status("/live") != 200:
        timeline.problems.append("the router does not live without an engine")
    engine.start()
    ready = await engine.said_ready()
    await timeline.until("traffic after a new engine is ready", ready, lambda: _serves(http))


async def _freeze(cluster: Cluster, http: httpx.AsyncClient, timeline: Timeline) -> None:
    (engine,), (router,) = cluster.engines, cluster.routers

    async def not_ready() -> bool:
        return await router.status("/health") == 503

    engine.send(signal.SIGSTOP)
    await timeline.until("not ready after the engine froze", time.monotonic(), not_ready)
    engine.send(signal.SIGCONT)
    thawed = time.monotonic()
    await timeline.until("traffic after the engine thawed", thawed, lambda: _serves(http))


async def _chat(http: httpx.AsyncClient) -> httpx.Response:
    messages = [{"role": "user", "content": "hello"}]
    return await http.post(CHAT, json={"model": MODEL, "messages": messages, "max_tokens": 2})


async def _serves(http: httpx.AsyncClient) -> bool:
    return (await _chat(http)).status_code == 200
