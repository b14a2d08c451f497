"""Has one engine load a LoRA adapter, or let it go."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import grpc
from octavo.engine.v1 import admin_pb2 as pb
from octavo.engine.v1 import admin_pb2_grpc

from router_svc.engines.info import EngineMismatchError
from router_svc.errors import ApiError, ErrorKind, from_grpc_status

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from router_svc.engines.channel import EngineChannel
    from router_svc.engines.info import EngineInfo

T = TypeVar("T")

_STATUS_KEY = "grpc-status-details-bin"


async def info_of(engine: EngineChannel) -> EngineInfo:
    """What the engine says of itself now. Raises ApiError."""
    info = await _answer_of(engine.ask_again())
    if info is None:
        raise _lost()
    return info


async def load_adapter(engine: EngineChannel, name: str, source: str, seconds: float) -> None:
    """Returns once the engine has it and the router knows. Raises ApiError."""
    stub = admin_pb2_grpc.AdminStub(_connection(engine))
    await _answer_of(
        stub.LoadAdapter(pb.LoadAdapterRequest(name=name, source=source), timeout=seconds)
    )
    await info_of(engine)


async def unload_adapter(engine: EngineChannel, name: str, seconds: float) -> None:
    """Returns once the engine has it no longer and the router knows. Raises ApiError.

    It is no error if the engine never had it.
    """
    stub = admin_pb2_grpc.AdminStub(_connection(engine))
    try:
        await _answer_of(stub.UnloadAdapter(pb.UnloadAdapterRequest(name=name), timeout=seconds))
    except ApiError as error:
        if error.kind is not ErrorKind.NOT_FOUND:
            raise
    await info_of(engine)


def _connection(engine: EngineChannel) -> grpc.aio.Channel:
    if engine.connection is None:
        raise _lost()
    return engine.connection


async def _answer_of(call: Awaitable[T]) -> T:
    # A connection that is closed cancels its calls, which must not look like the caller's own end.
    answer = asyncio.ensure_future(_awaited(call))
    try:
        await asyncio.wait((answer,))
        if answer.cancelled():
            raise _lost()
        return answer.result()
    except EngineMismatchError as error:
        raise ApiError(ErrorKind.UNAVAILABLE, str(error)) from error
    except grpc.aio.AioRpcError as error:
        details = dict(error.trailing_metadata() or ()).get(_STATUS_KEY, b"")
        raise from_grpc_status(error.code().value[0], error.details() or "", details) from error
    finally:
        answer.cancel()


async def _awaited(call: Awaitable[T]) -> T:
    return await call


def _lost() -> ApiError:
    return ApiError(ErrorKind.UNAVAILABLE, "the engine was lost")
