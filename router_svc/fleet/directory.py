"""Brings the engines that are found to the fleet whose model they serve.

sources ──targets──▶ Directory ──GetModelInfo──▶ which tokeniser? ──▶ Fleet.add(target)
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import grpc
from octavo.engine.v1 import engine_pb2 as pb
from octavo.engine.v1 import engine_pb2_grpc

from router_svc.engines.dialer import Dialer, explain_failure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from router_svc.fleet.discovery import Source
    from router_svc.fleet.fleet import Fleet

log = logging.getLogger(__name__)

_ASK_SECONDS = 2.0
_PAUSE_SECONDS = 0.5


class Directory:
    """Follows sources. `fleets` are by the SHA-256 of their model's tokeniser.

    With one fleet an engine goes straight to it, which finds out by itself whether it fits.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        fleets: Mapping[str, Fleet],
        dialer: Dialer | None = None,
    ) -> None:
        self._dialer = dialer or Dialer()
        self._sources = sources
        self._fleets = fleets
        self._found: dict[int, frozenset[str]] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Follows the sources until `close`."""
        self._tasks = [
            asyncio.create_task(self._follow(i, source)) for i, source in enumerate(self._sources)
        ]

    async def close(self) -> None:
        """Follows them no longer."""
        tasks = [*self._tasks, *self._asking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, number: int, source: Source) -> None:
        while True:
            try:
                async for targets in source.targets():
                    self._change(number, targets)
                return  # a source that never changes
            except Exception:  # a router that follows nobody any more would only be found out late
                log.exception("engines are looked for again, after a fault")
            await asyncio.sleep(_PAUSE_SECONDS)

    def _change(self, number: int, targets: frozenset[str]) -> None:
        before = self._all()
        self._found[number] = targets
        after = self._all()
        for target in sorted(after - before):
            log.info("engine %s was found", target)
            self._add(target)
        for target in sorted(before - after):
            log.info("engine %s is no longer there", target)
            self._remove(target)

    def _all(self) -> frozenset[str]:
        return frozenset().union(*self._found.values())

    def _add(self, target: str) -> None:
        if len(self._fleets) == 1:
            next(iter(self._fleets.values())).add(target)
        else:
            self._asking[target] = asyncio.create_task(self._assign(target))

    def _remove(self, target: str) -> None:
        if (asking := self._asking.pop(target, None)) is not None:
            asking.cancel()
        for fleet in self._fleets.values():
            fleet.remove(target)

    async def _assign(self, target: str) -> None:
        """Asks an engine for its model until it answers."""
        refused = False
        complaint: str | None = None
        while True:
            try:
                async with self._dialer.channel(target) as channel:
                    stub = engine_pb2_grpc.EngineStub(channel)
                    info = await stub.GetModelInfo(pb.GetModelInfoRequest(), timeout=_ASK_SECONDS)
                fleet = self._fleets.get(info.tokenizer_sha256)
                if fleet is not None:
                    fleet.add(target)
                    return
                if not refused:
                    log.error(
                        "engine %s is not used: this router has no model with the tokeniser of %s",
                        target,
                        info.source,
                    )
                refused = True  # another model may come to the same address
            except grpc.aio.AioRpcError as error:
                log.debug("engine %s does not answer yet: %s", target, error.details())
                last, complaint = complaint, await explain_failure(self._dialer, target, error)
                if complaint is not None and complaint != last:
                    log.error("engine %s cannot be used: %s", target, complaint)
            await asyncio.sleep(_PAUSE_SECONDS)
