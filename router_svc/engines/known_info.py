"""What an engine says of itself, kept up to date over its connection."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import grpc
from octavo.engine.v1 import engine_pb2 as pb
from octavo.engine.v1 import engine_pb2_grpc

from router_svc.engines.info import EngineInfo, EngineMismatchError
from router_svc.engines.messages import to_info

if TYPE_CHECKING:
    from collections.abc import Callable

    from router_svc.generation_types import Adapter

log = logging.getLogger(__name__)

_ASK_SECONDS = 5.0
_RETRY_SECONDS = 1.0


class KnownInfo:
    """`current` is None before the engine was ever reached, and stays while it is away.

    `on_change` is called with each answer; `check` may refuse one by EngineMismatchError.
    """

    def __init__(
        self,
        target: str,
        tokenizer_sha256: str,
        check: Callable[[EngineInfo], None] | None = None,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        self.current: EngineInfo | None = None
        self.default_sampling = pb.SamplingParams()
        self._target = target
        self._tokenizer_sha256 = tokenizer_sha256
        self._check = check
        self._on_change = on_change
        self._revision = 0
        self._is_old = asyncio.Event()
        self._asking = asyncio.Lock()  # one at a time, so that no older answer comes last

    async def begin(self, channel: grpc.aio.Channel) -> EngineInfo:
        """Asks over a new connection, maybe to another process; raises as `ask` does."""
        self._revision = 0
        return await self.ask(channel)

    async def ask(self, channel: grpc.aio.Channel) -> EngineInfo:
        """Asks the engine. Raises EngineMismatchError, or grpc.aio.AioRpcError for no answer."""
        async with self._asking:
            stub = engine_pb2_grpc.EngineStub(channel)
            answer = await stub.GetModelInfo(pb.GetModelInfoRequest(), timeout=_ASK_SECONDS)
            return self._taken(answer)

    def _taken(self, answer: pb.GetModelInfoResponse) -> EngineInfo:
        if answer.tokenizer_sha256 != self._tokenizer_sha256:
            raise EngineMismatchError(
                f"its model {answer.source} has a tokeniser with SHA-256 {answer.tokenizer_sha256},"
                f" the router's has {self._tokenizer_sha256}"
            )
        info = to_info(answer)
        if self._check is not None:
            self._check(info)
        self.default_sampling = answer.default_sampling
        self._set(info)
        return info

    async def follow(self, channel: grpc.aio.Channel) -> None:
        """Asks again whenever the engine says, or is found, to have changed."""
        while True:
            await self._is_old.wait()
            self._is_old.clear()
            try:
                await self.ask(channel)
            except grpc.aio.AioRpcError as error:
                log.warning("engine %s does not say what has changed: %s", self._target,
                            error.details())  # fmt: skip
                await asyncio.sleep(_RETRY_SECONDS)
                self._is_old.set()

    def heard(self, revision: int) -> None:
        """The engine's load has told how often its answer has changed since it started."""
        if revision != self._revision:
            self._revision = revision
            self._is_old.set()

    def lacks(self, adapter: Adapter) -> None:
        """The engine has refused a request for an adapter: it is asked what it has instead."""
        if self.current is not None and self.current.adapters.get(adapter.name) == adapter:
            left = {n: each for n, each in self.current.adapters.items() if each != adapter}
            self._set(replace(self.current, adapters=left))
        self._is_old.set()

    def _set(self, info: EngineInfo) -> None:
        self.current = info
        if self._on_change is not None:
            self._on_change()
