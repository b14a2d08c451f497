"""What is done to a cluster under load, drawn from a seed. One engine and one router are spared."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.chaos.ledger import Ledger
from tests.chaos.processes import MODEL, Child, Cluster, Engine, Router, total
from tests.chaos.requests import long_request
from tests.support.public_api import CHAT
from tests.support.server import free_port

_AT_ONCE = 2


@dataclass
class FaultLog:
    """What was done, and what did not go as it must."""

    done: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    slowest: dict[str, float] = field(default_factory=dict)  # seconds by what was waited for
    num_preempted: int = 0

    @property
    def count(self) -> int:
        """Faults so far."""
        return sum(self.done.values())

    def took(self, what: str, seconds: float) -> None:
        """Keeps the longest."""
        self.slowest[what] = max(seconds, self.slowest.get(what, 0.0))


class Faults:
    """Harms a cluster until told to stop; `burst` sends requests that are in the ledger too."""

    def __init__(
        self,
        cluster: Cluster,
        rng: random.Random,
        burst: Callable[[int], Awaitable[None]],
        ledger: Ledger,
        *,
        weights: dict[str, int] | None,
        pause: tuple[float, float],
        longest_freeze: float,
    ) -> None:
        """Seconds: `pause` from one fault to the next, at least and at most; `longest_freeze` is of
        an engine, which is given up after 7.5 s of silence. `weights`: how many of each kind in a
        round."""
        self._cluster = cluster
        self._rng = rng
        self._burst = burst
        self._ledger = ledger
        self._pause = pause
        self._longest_freeze = longest_freeze
        self.log = FaultLog()
        self._kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "kill -9 of an engine": self._kill_engine,
            "SIGSTOP and SIGCONT": self._freeze,
            "drain and restart of an engine": self._drain_engine,
            "connections reset": self._cut,
            "connections refused for a while": self._refuse,
            "silence on the line": self._silence,
            "engine moves to another address": self._move,
            "kill -9 of a router": self._kill_router,
            "drain and restart of a router": self._drain_router,
            "rolling restart of everything": self._roll,
            "more work than KV blocks": self._press,
            "half-open client": self._half_open,
            "client that reads nothing": self._deaf,
        }
        default = {"rolling restart of everything": 1, "SIGSTOP and SIGCONT": 6}
        self._weights = weights or {kind: default.get(kind, 5) for kind in self._kinds}

    async def run(self, stop: asyncio.Event) -> None:
        """One fault after the other, two at a time at most; those begun are waited for."""
        running: set[asyncio.Task[None]] = set()
        # Each kind once in every round, so that also a short run has seen them all.
        while not stop.is_set():
            for kind in self._round():
                if stop.is_set():
                    break
                if kind == "rolling restart of everything" or len(running) >= _AT_ONCE:
                    await asyncio.wait(running or {asyncio.create_task(asyncio.sleep(0))})
                running = {task for task in running if not task.done()}
                running.add(asyncio.create_task(self._do(kind)))
                if kind == "rolling restart of everything":
                    await asyncio.wait(running)
                await asyncio.sleep(self._rng.uniform(*self._pause))
        if running:
            await asyncio.wait(running)

    def _round(self) -> list[str]:
        kinds = [kind for kind, weight in self._weights.items() for _ in range(weight)]
        self._rng.shuffle(kinds)
        return kinds

    async def _do(self, kind: str) -> None:
        try:
            await self._kinds[kind]()
        except Exception as error:  # noqa: BLE001 -- a run goes on, and tells it at its end
            self.log.problems.append(f"{kind}: {type(error).__name__}: {error}")
        else:
            self.log.done[kind] += 1

    @asynccontextmanager
    async def _one_of(self, children: Sequence[Child], spare: int = 1) -> AsyncIterator[Child]:
        """One that no other fault has, once so many are left beside it."""
        while True:
            free = [child for child in children if not child.busy]
            if len(free) > spare:
                break
            await asyncio.sleep(0.05)
        child = self._rng.choice(free)
        child.busy = True
        try:
            yield child
        finally:
            child.busy = False

    @asynccontextmanager
    async def _an_engine(self) -> AsyncIterator[Engine]:
        async with self._one_of(self._cluster.engines) as engine:
            assert isinstance(engine, Engine)
            yield engine
            await self._cluster.until_ready(engines=[engine])

    async def _kill_engine(self) -> None:
        async with self._an_engine() as engine:
            await engine.kill()
            await asyncio.sleep(self._rng.random())
            await self._start(engine)

    async def _start(self, engine: Engine) -> None:
        began = time.monotonic()
        engine.start()
        await engine.said_ready()
        self.log.took("start of an engine", _since(began))
        await self._cluster.until_ready(engines=[engine])

    async def _freeze(self) -> None:
        async with self._an_engine() as engine:
            engine.send(signal.SIGSTOP)
            await asyncio.sleep(self._rng.uniform(0.5, self._longest_freeze))
            engine.send(signal.SIGCONT)

    async def _drain_engine(self) -> None:
        async with self._an_engine() as engine:
            await self._drain(engine)
            await self._start(engine)

    async def _drain(self, child: Child) -> None:
        began = time.monotonic()
        code = await child.drain()
        self.log.took(f"drain of {child.name[:-1]}s", _since(began))
        if code != 0:
            self.log.problems.append(f"{child.process_name} ended its drain with code {code}")

    async def _cut(self) -> None:
        async with self._an_engine() as engine:
            engine.proxy.cut()

    async def _refuse(self) -> None:
        async with self._an_engine() as engine:
            engine.proxy.refuse(refusing=True)
            await asyncio.sleep(self._rng.uniform(0.2, 4.0))
            engine.proxy.refuse(refusing=False)

    async def _silence(self) -> None:
        async with self._an_engine() as engine:
            engine.proxy.silence(silent=True)
            await asyncio.sleep(self._rng.uniform(0.5, self._longest_freeze))
            engine.proxy.silence(silent=False)

    async def _move(self) -> None:
        async with self._an_engine() as engine:
            await engine.kill()
            await engine.proxy.close()
            engine.proxy = type(engine.proxy)(free_port())
            await engine.proxy.start()
            self._cluster.tell_targets()
            await self._start(engine)

    async def _kill_router(self) -> None:
        async with self._a_router(self._cluster.routers) as router:
            await router.kill()

    async def _drain_router(self) -> None:
        async with self._a_router(self._cluster.routers) as router:
            await self._drain(router)

    @asynccontextmanager
    async def _a_router(self, routers: Sequence[Router], spare: int = 1) -> AsyncIterator[Router]:
        """A router that is ended in the block, and started after it."""
        async with self._one_of(routers, spare) as router:
            assert isinstance(router, Router)
            router.harmed = True
            yield router
            began = time.monotonic()
            router.start()
            await self._cluster.until_found(router)
            router.harmed = False
            self.log.took("start of a router", _since(began))

    async def _roll(self) -> None:
        """Each engine, then each router; no other fault is under way."""
        for engine in self._cluster.engines:
            engine.busy = True
            await self._drain(engine)
            await self._start(engine)
            engine.busy = False
        for router in self._cluster.routers:
            async with self._a_router([router], spare=0) as one:
                await self._drain(one)

    async def _press(self) -> None:
        """More choices at once than the pools hold: some are set aside and computed again."""
        before = await self._preemptions()
        await self._burst(self._rng.randint(24, 36))
        self.log.num_preempted += max(0, int(await self._preemptions() - before))

    async def _preemptions(self) -> float:
        router = next(each for each in self._cluster.routers if not each.busy)
        return total(await router.samples(), "vllm:num_preemptions_total")

    async def _half_open(self) -> None:
        """A body that does not come to its end, on a connection that stays."""
        head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        await self._raw(f'{head}content-length: 500\r\n\r\n{{"model": "{MODEL}", "mess')

    async def _deaf(self) -> None:
        """A stream that nobody reads; its end is a connection that just goes."""
        wanted = long_request(self._rng)
        body = json.dumps(wanted.body | {"model": MODEL, "stream": True, "n": 4, "seed": 1})
        head = f"POST {wanted.path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        process = await self._raw(f"{head}content-length: {len(body.encode())}\r\n\r\n{body}")
        self._ledger.saw(process, "cancelled")

    async def _raw(self, text: str) -> str:
        """Sends bytes to a router and goes away without a word some time later."""
        router = self._rng.choice([each for each in self._cluster.routers if not each.busy])
        process = router.process_name
        reader, writer = await asyncio.open_connection("127.0.0.1", router.port, limit=1024)
        writer.write(text.encode())
        await writer.drain()
        await asyncio.sleep(self._rng.uniform(1.0, 5.0))
        del reader
        writer.transport.abort()
        return process


def _since(began: float) -> float:
    return time.monotonic() - began
