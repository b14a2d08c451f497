"""Adapters that requests may name, as the event loop knows them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from octavo.engine.v1 import engine_pb2 as pb

from engine_svc.service.errors import invalid

if TYPE_CHECKING:
    from engine_svc.scheduling.request import RequestStatus
    from engine_svc.service.errors import RequestError


class AdapterUser(Protocol):
    """A request that names an adapter, while it lives."""

    def has(self, status: RequestStatus) -> bool:
        """Whether a choice of it has this status."""
        ...


def not_loaded() -> RequestError:
    """INVALID_ARGUMENT for a name that no adapter has, or no longer."""
    return invalid("lora", "no adapter of this name is loaded")


@dataclass(slots=True, eq=False)
class ServedAdapter:
    """An adapter in a slot, from its loading until no request is left of it."""

    name: str
    version: str
    rank: int
    source: str
    slot: int
    accepts: bool = True
    _live: set[AdapterUser] = field(default_factory=set)
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """No request is alive yet."""
        self._idle.set()

    def take(self, live: AdapterUser) -> None:
        """A request begins. Raises RequestError once the adapter is being unloaded."""
        if not self.accepts:
            raise not_loaded()
        self._live.add(live)
        self._idle.clear()

    def let_go(self, live: AdapterUser) -> None:
        """All of a request's choices have ended, in the engine as well."""
        self._live.discard(live)
        if not self._live:
            self._idle.set()

    async def idle(self) -> None:
        """Returns once no request is alive."""
        await self._idle.wait()

    def has(self, status: RequestStatus) -> bool:
        """Whether a choice of any of its requests has this status."""
        return any(live.has(status) for live in self._live)

    def message(self) -> pb.Adapter:
        """As GetModelInfo gives it."""
        return pb.Adapter(name=self.name, version=self.version, rank=self.rank, source=self.source)
