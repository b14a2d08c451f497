"""What health, telemetry, administration and the server ask of an engine, whatever it computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

    from engine_svc.engine import Load
    from engine_svc.service.kv_events import KvEventLog


class ServedEngine(Protocol):
    """The event loop's side of an engine."""

    closing: asyncio.Event  # long-lived calls end themselves
    failed: asyncio.Event  # the engine's loop has ended by a fault
    kv_events: KvEventLog  # of its prefix cache; stays empty where there is none

    def start(self) -> None:
        """Starts the engine; its reports come to the running event loop."""
        ...

    @property
    def load(self) -> Load:
        """The engine's state."""
        ...

    @property
    def is_draining(self) -> bool:
        """Whether new requests are refused for good."""
        ...

    @property
    def is_broken(self) -> bool:
        """Whether the engine's books are wrong or its loop has ended."""
        ...

    @property
    def is_stalled(self) -> bool:
        """Whether the engine makes no progress with what it has to do."""
        ...

    async def flush_cache(self) -> int:
        """Forgets the prefix cache; returns the number of blocks."""
        ...

    def start_draining(self) -> None:
        """Refuses new requests from now on."""
        ...

    async def drained(self) -> None:
        """Returns once no request is alive."""
        ...

    def end_all(self) -> None:
        """Ends every request with UNAVAILABLE."""
        ...

    def stop(self, timeout: float) -> bool:
        """Ends the engine's thread; False if it did not end within `timeout` seconds."""
        ...

    def watch(self) -> asyncio.Event:
        """An event that is set whenever the load may have changed, until `unwatch`."""
        ...

    def unwatch(self, event: asyncio.Event) -> None:
        """Forgets an event of `watch`."""
        ...

    def send_heartbeats(self, quiet_seconds: float) -> None:
        """Tells clients that have heard nothing for so long that their requests live."""
        ...
