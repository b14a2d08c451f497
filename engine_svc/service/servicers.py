"""The engine's gRPC services: thin, each method says what it is and calls what does it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from octavo.engine.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    engine_pb2,
    engine_pb2_grpc,
    telemetry_pb2,
    telemetry_pb2_grpc,
)

from engine_svc.service.embedding import EmbedSubmission
from engine_svc.service.errors import RequestError, draining
from engine_svc.service.output_stream import OutputStream, to_response
from engine_svc.service.request_story import valid_traceparent
from engine_svc.service.session import Session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from engine_svc.adapters.registry import Adapters
    from engine_svc.service.admission import Admission
    from engine_svc.service.async_engine import AsyncEngine
    from engine_svc.service.embedding import EmbedAdmission
    from engine_svc.service.health import EngineHealth
    from engine_svc.service.metrics import EngineMetrics
    from engine_svc.service.served_engine import ServedEngine

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_STATUS_KEY = "grpc-status-details-bin"  # where google.rpc.Status travels; grpc_status reads it
_MIN_LOAD_INTERVAL = 0.05
_MAX_LOAD_INTERVAL = 1.0


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: RequestError) -> NoReturn:
    """Ends a call with the error's status and details."""
    status = error.status
    await context.abort(
        _CODES[status.code], status.message, ((_STATUS_KEY, status.SerializeToString()),)
    )


def deadline_of(context: grpc.aio.ServicerContext[Any, Any]) -> float | None:
    """When a call's own deadline passes, on the engine's clock."""
    remaining = context.time_remaining()
    return None if remaining is None else time.monotonic() + remaining


class EngineServicer(engine_pb2_grpc.EngineServicer):
    """octavo.engine.v1.Engine."""

    def __init__(
        self,
        engine: AsyncEngine,
        admission: Admission,
        embed_admission: EmbedAdmission,
        model_info: engine_pb2.GetModelInfoResponse,
        adapters: Adapters,
        max_unsent_tokens: int,
    ) -> None:
        self._engine = engine
        self._admission = admission
        self._embed_admission = embed_admission
        self._model_info = model_info
        self._adapters = adapters
        self._max_unsent_tokens = max_unsent_tokens

    async def Generate(  # noqa: N802 -- gRPC's name
        self,
        request: engine_pb2.GenerateRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[engine_pb2.GenerateResponse]:
        """One request; ending the call aborts it."""
        wake = asyncio.Event()
        stream = OutputStream(wake.set, self._max_unsent_tokens)
        deadline = deadline_of(context)
        try:
            submission = await self._admission.prepare(request)
            live = self._engine.submit(submission, stream, deadline)
        except RequestError as refusal:
            self._engine.refused(request, refusal)
            await abort(context, refusal)
        try:
            while True:
                events, error = stream.take()
                for event in events:
                    yield to_response(event)
                if error is not None:
                    await abort(context, error)
                if stream.ended and not stream.has_unsent:
                    return
                wake.clear()
                if not stream.has_unsent:
                    await wake.wait()
        finally:
            self._engine.cancel(live)

    async def Session(  # noqa: N802 -- gRPC's name
        self,
        request_iterator: AsyncIterator[engine_pb2.SessionRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[engine_pb2.SessionResponse]:
        """Many requests; ending the call aborts all that are left."""
        session = Session(self._engine, self._admission, self._max_unsent_tokens)
        reader = asyncio.create_task(session.read(request_iterator))
        closing = asyncio.create_task(self._engine.closing.wait())
        closing.add_done_callback(lambda _: session.wake())
        reader.add_done_callback(lambda _: session.end())
        try:
            async for message in session.messages():
                yield message
            if reader.done():
                reader.result()
        except RequestError as error:
            await abort(context, error)
        finally:
            session.end()
            reader.cancel()
            closing.cancel()
            await asyncio.gather(reader, closing, return_exceptions=True)

    async def Embed(  # noqa: N802 -- gRPC's name
        self,
        request: engine_pb2.EmbedRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> engine_pb2.EmbedResponse:
        """The hidden state of each input's last token; ending the call aborts it."""
        wake = asyncio.Event()
        stream = OutputStream(wake.set, self._max_unsent_tokens)
        try:
            inputs = self._embed_admission.check(request)
            submission = EmbedSubmission(
                request.request_id,
                inputs,
                request.priority,
                request.tenant,
                valid_traceparent(request.traceparent),
            )
            live = self._engine.submit(submission, stream, deadline_of(context))
        except RequestError as refusal:
            self._engine.refused(request, refusal)
            await abort(context, refusal)
        try:
            while not stream.ended:
                wake.clear()
                stream.take()  # what runs and ends tells nothing here
                await wake.wait()
            _, error = stream.take()
            if error is not None:
                await abort(context, error)
        finally:
            self._engine.cancel(live)
        vectors = [live.vectors[number].tolist() for number in submission.choices]
        return engine_pb2.EmbedResponse(
            vectors=[engine_pb2.EmbedVector(values=vector) for vector in vectors],
            prompt_tokens=sum(len(item.token_ids) for item in inputs),
        )

    async def GetModelInfo(  # noqa: N802 -- gRPC's name
        self,
        request: engine_pb2.GetModelInfoRequest,  # noqa: ARG002 -- it has no fields
        context: grpc.aio.ServicerContext[Any, Any],  # noqa: ARG002 -- gRPC's signature
    ) -> engine_pb2.GetModelInfoResponse:
        """The model and the limits, fixed since start-up, and the adapters of now."""
        return self._adapters.describe(self._model_info)


class TelemetryServicer(telemetry_pb2_grpc.TelemetryServicer):
    """octavo.engine.v1.Telemetry."""

    def __init__(
        self,
        engine: ServedEngine,
        health: EngineHealth,
        metrics: EngineMetrics,
        adapters: Adapters,
        instance_id: str,
    ) -> None:
        self._engine = engine
        self._health = health
        self._metrics = metrics
        self._adapters = adapters
        self._instance_id = instance_id

    async def WatchLoads(  # noqa: N802 -- gRPC's name
        self,
        request: telemetry_pb2.WatchLoadsRequest,  # noqa: ARG002 -- it has no fields
        context: grpc.aio.ServicerContext[Any, Any],  # noqa: ARG002 -- gRPC's signature
    ) -> AsyncIterator[telemetry_pb2.WatchLoadsResponse]:
        """The load at once, then when it changed and every second, at most 20 times a second."""
        changed = self._engine.watch()
        try:
            while not self._engine.closing.is_set():
                changed.clear()
                yield self._current_load()
                await asyncio.sleep(_MIN_LOAD_INTERVAL)
                try:
                    async with asyncio.timeout(_MAX_LOAD_INTERVAL - _MIN_LOAD_INTERVAL):
                        await changed.wait()
                except TimeoutError:
                    continue
        finally:
            self._engine.unwatch(changed)

    async def WatchKvEvents(  # noqa: N802 -- gRPC's name
        self,
        request: telemetry_pb2.WatchKvEventsRequest,
        context: grpc.aio.ServicerContext[Any, Any],  # noqa: ARG002 -- gRPC's signature
    ) -> AsyncIterator[telemetry_pb2.WatchKvEventsResponse]:
        """What the caller has missed of the prefix cache's changes, then each of them."""
        events = self._engine.kv_events.watch(
            request.epoch, request.after_sequence, self._engine.closing
        )
        async for event in events:
            yield event

    async def GetMetrics(  # noqa: N802 -- gRPC's name
        self,
        request: telemetry_pb2.GetMetricsRequest,  # noqa: ARG002 -- it has no fields
        context: grpc.aio.ServicerContext[Any, Any],  # noqa: ARG002 -- gRPC's signature
    ) -> telemetry_pb2.GetMetricsResponse:
        """Everything that is counted, and the gauges as of now."""
        return telemetry_pb2.GetMetricsResponse(exposition=self._metrics.exposition())

    def _current_load(self) -> telemetry_pb2.WatchLoadsResponse:
        load = self._engine.load
        return telemetry_pb2.WatchLoadsResponse(
            instance_id=self._instance_id,
            state=self._health.state,
            num_running=load.num_running,
            num_waiting=load.num_waiting,
            num_uncomputed_tokens=load.num_uncomputed_tokens,
            num_free_blocks=load.num_free_blocks,
            num_blocks=load.num_blocks,
            step_seconds=load.step_seconds,
            info_revision=self._adapters.revision,
        )


class AdminServicer(admin_pb2_grpc.AdminServicer):
    """octavo.engine.v1.Admin."""

    def __init__(self, engine: ServedEngine, health: EngineHealth, adapters: Adapters) -> None:
        self._engine = engine
        self._health = health
        self._adapters = adapters

    async def Drain(  # noqa: N802 -- gRPC's name
        self,
        request: admin_pb2.DrainRequest,  # noqa: ARG002 -- it has no fields
        context: grpc.aio.ServicerContext[Any, Any],  # noqa: ARG002 -- gRPC's signature
    ) -> admin_pb2.DrainResponse:
        """Refuses new requests and answers once none is left."""
        self._engine.start_draining()
        await self._health.refresh()
        await self._engine.drained()
        return admin_pb2.DrainResponse()

    async def FlushCache(  # noqa: N802 -- gRPC's name
        self,
        request: admin_pb2.FlushCacheRequest,  # noqa: ARG002 -- it has no fields
        context: grpc.aio.ServicerContext[Any, Any],  # noqa: ARG002 -- gRPC's signature
    ) -> admin_pb2.FlushCacheResponse:
        """Forgets what the prefix cache keeps for nobody."""
        return admin_pb2.FlushCacheResponse(num_blocks=await self._engine.flush_cache())

    async def LoadAdapter(  # noqa: N802 -- gRPC's name
        self,
        request: admin_pb2.LoadAdapterRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> admin_pb2.LoadAdapterResponse:
        """Loads an adapter; goes on where the caller does not wait for it."""
        try:
            if self._engine.is_draining:
                raise draining()
            adapter = await self._adapters.load(request.name, request.source)
        except RequestError as error:
            await abort(context, error)
        return admin_pb2.LoadAdapterResponse(adapter=adapter)

    async def UnloadAdapter(  # noqa: N802 -- gRPC's name
        self,
        request: admin_pb2.UnloadAdapterRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> admin_pb2.UnloadAdapterResponse:
        """Lets an adapter go; goes on where the caller does not wait for it."""
        try:
            await self._adapters.unload(request.name)
        except RequestError as error:
            await abort(context, error)
        return admin_pb2.UnloadAdapterResponse()
