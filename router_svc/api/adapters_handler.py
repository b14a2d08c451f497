"""Implements the public service of adapters, whichever way a call came."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from octavo.inference.v1 import adapters_pb2 as pb

from router_svc.api import params
from router_svc.errors import ApiError, ErrorKind, invalid
from router_svc.fleet import adapter_updates

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from router_svc.call_context import CallContext
    from router_svc.metrics import RouterMetrics
    from router_svc.models import Models
    from router_svc.served_model import ServedModel

log = logging.getLogger(__name__)

T = TypeVar("T")

_LOAD_SECONDS = 120.0
_UNLOAD_SECONDS = 600.0  # for the answers that use it to end


class Adapters:
    """The generated `AdaptersHandler` over the served models. Every call is counted."""

    def __init__(self, models: Models, metrics: RouterMetrics, *, allowed: bool) -> None:
        """`allowed`: whether clients may load and unload at all."""
        self._models = models
        self._metrics = metrics
        self._allowed = allowed
        self._changing: set[str] = set()  # names
        self._tasks: set[asyncio.Task[Any]] = set()

    async def load_lora_adapter(
        self, request: pb.LoadLoraAdapterRequest, context: CallContext
    ) -> pb.LoadLoraAdapterResponse:
        """See octavo.inference.v1.Adapters."""
        return await self._to_the_end(self._load(request, context))

    async def unload_lora_adapter(
        self, request: pb.UnloadLoraAdapterRequest, context: CallContext
    ) -> pb.UnloadLoraAdapterResponse:
        """See octavo.inference.v1.Adapters."""
        return await self._to_the_end(self._unload(request, context))

    async def _to_the_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Finishes, or undoes, what has begun, also when the client is gone."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        # A failure that nobody waits for any more is no fault of this program.
        if not task.cancelled() and isinstance(error := task.exception(), ApiError):
            log.info("adapters: %s", error.message)

    async def _load(
        self, request: pb.LoadLoraAdapterRequest, context: CallContext
    ) -> pb.LoadLoraAdapterResponse:
        name = request.lora_name
        with self._metrics.call("LoadLoraAdapter"), self._change(name):
            model = self._models.base_of(request)
            self._check_name(name, model)
            done = await adapter_updates.load(
                model.engine.members, name, request.lora_path, _seconds(context, _LOAD_SECONDS)
            )
            return pb.LoadLoraAdapterResponse(
                lora_name=name,
                model=model.base_name,
                version=done.adapter.version,
                rank=done.adapter.rank,
                engines=done.engines,
                not_reached=done.not_reached,
            )

    async def _unload(
        self, request: pb.UnloadLoraAdapterRequest, context: CallContext
    ) -> pb.UnloadLoraAdapterResponse:
        name = request.lora_name
        with self._metrics.call("UnloadLoraAdapter"), self._change(name):
            if request.HasField("model"):
                model = self._models.base_of(request)
            else:
                model = self._models.find(name)
                if model.adapter is None:
                    raise invalid("lora_name", f"{name!r} is a model and not an adapter")
            done = await adapter_updates.unload(
                model.engine.members, name, _seconds(context, _UNLOAD_SECONDS)
            )
            return pb.UnloadLoraAdapterResponse(
                lora_name=name,
                model=model.base_name,
                engines=done.engines,
                not_reached=done.not_reached,
            )

    @contextmanager
    def _change(self, name: str) -> Iterator[None]:
        """Lets one call at a time change an adapter: two could undo what the other did."""
        if not self._allowed:
            raise ApiError(
                ErrorKind.PERMISSION_DENIED,
                "adapters cannot be loaded or unloaded here: the router was started without"
                " --allow-lora-updates",
            )
        if name in self._changing:
            raise ApiError(
                ErrorKind.UNAVAILABLE, f"the adapter {name!r} is being loaded or unloaded"
            )
        self._changing.add(name)
        try:
            yield
        finally:
            self._changing.discard(name)

    def _check_name(self, name: str, model: ServedModel) -> None:
        """Raises ApiError for a name that would not reach the adapter."""
        for served, _ in self._models.named():
            if served == name:
                raise invalid("lora_name", f"{name!r} is the name of a model")
        for other in self._models.adapted():
            if other.name == name and other.engine is not model.engine:
                raise invalid("lora_name", f"{name!r} is an adapter of {other.base_name}")


def _seconds(context: CallContext, most: float) -> float:
    left = params.seconds_left(context)
    return most if left is None else min(most, left)
