"""Which adapters are loaded, under which names and in which slots; on the event loop.

    load    name ─▶ read and pack (a worker thread) ─▶ SetAdapter(slot) ─▶ requests may name it
    unload  no new requests ─▶ its last one ends ─▶ SetAdapter(slot, None) ─▶ the slot is free

Adapters are loaded one at a time, so that only one is in memory beside its packed form. What has
begun goes on to its end, whoever asked for it and is no longer there.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from google.rpc.code_pb2 import Code
from octavo.engine.v1 import engine_pb2 as pb

from engine_svc.adapters.config import check_name
from engine_svc.adapters.peft_directory import WEIGHTS
from engine_svc.adapters.peft_fields import CONFIG
from engine_svc.adapters.served import ServedAdapter, not_loaded
from engine_svc.engine import SetAdapter
from engine_svc.models.errors import ModelError
from engine_svc.service import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from pathlib import Path

    from engine_svc.adapters.setup import AdapterSetup, LoadedAdapter
    from engine_svc.engine import Command
    from engine_svc.scheduling.request import RequestStatus
    from kernels.backend import PackedAdapter

log = logging.getLogger(__name__)

_T = TypeVar("_T")

_MAX_REASON = 500  # characters; what a file calls its tensors may be longer than gRPC's messages


class Adapters:
    """The adapters of an engine; of one that takes none, `setup` is None."""

    def __init__(
        self,
        setup: AdapterSetup | None,
        send: Callable[[Command], object],
        ends: Sequence[asyncio.Event],
        on_change: Callable[[], object],
    ) -> None:
        """`send` hands the engine a command, which it no longer answers once one of `ends` is set;
        `on_change` is called when requests may name other adapters."""
        self._setup = setup
        self._send = send
        self._ends = ends
        self._on_change = on_change
        self._by_name: dict[str, ServedAdapter] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}  # by name, those whose requests run yet
        self._emptying: set[ServedAdapter] = set()
        self._free_slots = list(range(setup.num_slots if setup else 0))
        self._loading = asyncio.Lock()
        self._tasks: set[asyncio.Task[object]] = set()
        self.revision = 0  # how often they have changed since the start
        for adapter in setup.loaded if setup else ():
            self._serve(adapter, self._free_slots.pop(0))

    def find(self, name: str, version: str) -> ServedAdapter | None:
        """The adapter of a request, None for no name; an empty version is any.

        Raises RequestError: INVALID_ARGUMENT, FAILED_PRECONDITION where it expects another version.
        """
        adapter = self._by_name.get(name)
        loaded = "" if adapter is None else adapter.version
        if version and version != loaded:
            raise errors.mismatch("expect.adapter_version", version, loaded)
        if adapter is None and name:
            raise not_loaded()
        return adapter

    def describe(self, info: pb.GetModelInfoResponse) -> pb.GetModelInfoResponse:
        """A copy of the information about a model, with the adapters of now."""
        described = pb.GetModelInfoResponse()
        described.CopyFrom(info)
        if self._setup is not None:
            described.max_adapters = self._setup.num_slots
            described.max_adapter_rank = self._setup.max_rank
            described.adapters.extend(
                self._by_name[name].message() for name in sorted(self._by_name)
            )
        return described

    def named(self, status: RequestStatus) -> str:
        """Names of adapters that have choices of this status, separated by commas."""
        adapters = (*self._by_name.values(), *self._emptying)
        return ",".join(sorted({adapter.name for adapter in adapters if adapter.has(status)}))

    @property
    def most(self) -> int:
        """Most adapters that are loaded together."""
        return self._setup.num_slots if self._setup else 0

    async def load(self, name: str, source: str) -> pb.Adapter:
        """Loads an adapter from a directory. Raises RequestError."""
        setup = self._setup
        if setup is None:
            raise _cannot("this engine takes no adapters (--enable-lora)", "ADAPTERS_DISABLED")
        if setup.directory is None:
            raise _cannot(
                "this engine loads adapters only when it starts (--lora-dir)",
                "NO_ADAPTER_DIRECTORY",
            )
        try:
            check_name(name, setup.served_names)
        except ValueError as error:
            raise errors.invalid("name", str(error)) from error
        return await self._to_the_end(self._load(setup, setup.directory, name, source))

    async def unload(self, name: str) -> None:
        """Lets an adapter go, and waits until none of its requests is left. Raises RequestError."""
        await self._to_the_end(self._unload(name))

    async def _unload(self, name: str) -> None:
        if name not in self._by_name:
            # It may be about to come, for a caller that has given up waiting and wants it undone.
            async with self._loading:
                pass
        adapter = self._by_name.pop(name, None)
        if adapter is not None:
            adapter.accepts = False
            self._leaving[name] = self._start(self._empty(adapter))
            self._changed()
        leaving = self._leaving.get(name)
        if leaving is None:
            message = "no adapter of this name is loaded"
            raise errors.refused(Code.NOT_FOUND, message, "ADAPTER_NOT_FOUND")
        await leaving

    async def _load(self, setup: AdapterSetup, root: Path, name: str, source: str) -> pb.Adapter:
        async with self._loading:
            if name not in self._by_name:
                self._check_room()
            try:
                loaded, packed = await asyncio.to_thread(_load_within, root, setup, name, source)
            except ModelError as error:
                raise errors.invalid("source", str(error)[:_MAX_REASON]) from error
            present = self._by_name.get(name)
            if present is not None and present.version == loaded.version:
                return present.message()
            if present is not None:
                raise errors.refused(
                    Code.ALREADY_EXISTS,
                    f"another adapter is loaded under this name, version {present.version}; unload "
                    "it first",
                    "ADAPTER_EXISTS",
                )
            self._check_room()
            slot = self._free_slots.pop(0)
            try:
                await self._set(slot, packed)
            except errors.RequestError:
                self._free_slots.insert(0, slot)
                raise
            adapter = self._serve(loaded, slot)
        for notice in loaded.notices:
            log.warning("adapter %s: %s", name, notice)
        log.info("%s", loaded.description)
        self._changed()
        return adapter.message()

    def _check_room(self) -> None:
        if not self._free_slots:
            raise errors.refused(
                Code.RESOURCE_EXHAUSTED,
                f"{self.most} adapters are loaded, as many as may be (--max-loras); unload one",
                "NO_ADAPTER_SLOT",
            )

    async def _empty(self, adapter: ServedAdapter) -> None:
        self._emptying.add(adapter)
        try:
            await adapter.idle()
            await self._set(adapter.slot, None)
            self._free_slots.append(adapter.slot)
            log.info("adapter %s is unloaded", adapter.name)
        finally:
            self._emptying.discard(adapter)
            if self._leaving.get(adapter.name) is asyncio.current_task():
                del self._leaving[adapter.name]

    def _serve(self, loaded: LoadedAdapter, slot: int) -> ServedAdapter:
        adapter = ServedAdapter(loaded.name, loaded.version, loaded.rank, loaded.source, slot)
        self._by_name[loaded.name] = adapter
        return adapter

    async def _set(self, slot: int, packed: PackedAdapter | None) -> None:
        """Changes a slot between steps. Raises RequestError if it did not work."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[bool] = loop.create_future()
        self._send(SetAdapter(slot, packed, lambda ok: loop.call_soon_threadsafe(_tell, done, ok)))
        ends = [asyncio.ensure_future(event.wait()) for event in self._ends]
        try:
            some: list[asyncio.Future[Any]] = [done, *ends]
            await asyncio.wait(some, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
        if not done.done():
            raise errors.draining()
        if not done.result():
            message = "the adapter's slot could not be changed; the engine's log says why"
            raise errors.refused(Code.INTERNAL, message, "ADAPTER_SLOT")

    def _changed(self) -> None:
        self.revision += 1
        self._on_change()

    async def _to_the_end(self, work: Coroutine[object, object, _T]) -> _T:
        return await asyncio.shield(self._start(work))

    def _start(self, work: Coroutine[object, object, _T]) -> asyncio.Task[_T]:
        """Runs what nobody may be waiting for any more when it ends."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_heard)
        return task


def _load_within(
    root: Path, setup: AdapterSetup, name: str, source: str
) -> tuple[LoadedAdapter, PackedAdapter]:
    """Loads an adapter from a directory within `root`, of which no part is a link out of it.

    Raises ModelError. What is outside is as good as not there.
    """
    try:
        directory = (root / source).resolve(strict=True)
        parts = [directory, *((directory / file).resolve() for file in (CONFIG, WEIGHTS))]
        within = directory.is_dir() and all(part.is_relative_to(root) for part in parts)
    except (OSError, ValueError, RuntimeError):  # none, no path, links in a circle
        within = False
    if not within:
        raise ModelError("must be an adapter's directory within the engine's --lora-dir")
    return setup.load(name, directory)


def _tell(done: asyncio.Future[bool], ok: bool) -> None:
    if not done.done():
        done.set_result(ok)


def _heard(task: asyncio.Task[object]) -> None:
    """Takes an error that nobody waits for, so that asyncio does not tell of it as forgotten."""
    if not task.cancelled():
        task.exception()


def _cannot(message: str, reason: str) -> errors.RequestError:
    return errors.refused(Code.FAILED_PRECONDITION, message, reason)
