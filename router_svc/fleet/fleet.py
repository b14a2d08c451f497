"""The engines that serve one model. To the pipeline a fleet is one engine that does not die."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import grpc

from router_svc.engines.channel import EngineChannel
from router_svc.engines.info import EngineMismatchError
from router_svc.engines.pace import Pace
from router_svc.errors import ApiError, ErrorKind
from router_svc.fleet.adapters import AdapterBook
from router_svc.fleet.circuit import RetryBudget
from router_svc.fleet.failover import FailoverStream
from router_svc.fleet.kv_follower import follow_kv_events
from router_svc.fleet.member import Member
from router_svc.fleet.policies import POLICIES
from router_svc.fleet.prefix_index import prompt_hashes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from router_svc.engines.dialer import Dialer
    from router_svc.engines.encoder_types import EncoderInput, EncoderRequest
    from router_svc.engines.info import EngineInfo
    from router_svc.fleet.member import Attempt
    from router_svc.fleet.policies import Ranked
    from router_svc.generation_types import Adapter, GenerationRequest

log = logging.getLogger(__name__)

# An answer that has begun waits for so long for another engine; a new request does not wait.
RESUME_SECONDS = 30.0
_POLL_SECONDS = 0.05
# With fewer engines than this share allowed by their circuits, circuits are not believed: what
# fails everywhere is rarely the engines' fault.
_PANIC_SHARE = 0.5


class Fleet:
    """Engines by target. `tokenizer_sha256` is of the model whose text side the router has."""

    def __init__(
        self,
        tokenizer_sha256: str,
        *,
        policy: str = "prefix_aware",
        move_on_drain: bool = True,
        dialer: Dialer | None = None,
        pace: Pace | None = None,
        on_ready: Callable[[str, EngineInfo], None] | None = None,
    ) -> None:
        self._tokenizer_sha256 = tokenizer_sha256
        self.policy = policy
        self._dialer = dialer
        self._pace = pace or Pace()
        self._wants_prefixes = asyncio.Event()
        self._on_ready = on_ready
        self._members: dict[str, Member] = {}
        self.adapters = AdapterBook(lambda: self.members)
        self.on_info: Callable[[], None] = lambda: None  # an engine has told what it has
        self._forgetting: set[asyncio.Task[None]] = set()
        self._move_on_drain = move_on_drain
        self._budget = RetryBudget()
        self._turn = 0
        self._info: EngineInfo | None = None
        self._closed: ApiError | None = None
        self.on_routed: Callable[[float], None] = lambda _seconds: None
        self.num_retries = 0
        self.num_failovers = 0

    @property
    def members(self) -> Sequence[Member]:
        """All engines, those that cannot serve included."""
        return list(self._members.values())

    @property
    def info(self) -> EngineInfo | None:
        """What the engines say of the model; None until one was reached."""
        return self._info

    @property
    def ready(self) -> bool:
        """Whether a request would find an engine now."""
        return any(member.may_serve for member in self._members.values())

    @property
    def num_in_flight(self) -> int:
        """Requests that are under way on all engines."""
        return sum(member.channel.num_in_flight for member in self._members.values())

    def add(self, target: str) -> None:
        """Connects to an engine, and stays connected to it."""
        if target in self._members:
            self._members[target].leaving = False
            return
        channel = EngineChannel(
            target,
            self._tokenizer_sha256,
            dialer=self._dialer,
            pace=self._pace,
            check=self._check,
            on_ready=lambda info: self._say_ready(target, info),
            on_info=lambda: self._take_info(member),
            on_load=lambda: self._move_from(member),
            follow=lambda connection: follow_kv_events(
                connection, member.prefixes, self._wants_prefixes
            ),
        )
        member = self._members[target] = Member(channel)
        if len(self._members) > 1 and self.policy == "prefix_aware":
            self._wants_prefixes.set()  # of a single engine there is nothing to choose
        channel.start()

    def remove(self, target: str) -> None:
        """Sends an engine nothing more, and forgets it once it has finished what it has."""
        member = self._members.get(target)
        if member is not None and not member.leaving:
            member.leaving = True
            task = asyncio.create_task(self._forget(member))
            self._forgetting.add(task)
            task.add_done_callback(self._forgetting.discard)

    async def wait_ready(self, seconds: float) -> EngineInfo | None:
        """What the engines say of the model once one is ready, or None after `seconds`."""
        deadline = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < deadline:
            if self.ready:
                return self._info
            await asyncio.sleep(_POLL_SECONDS)
        return None

    async def metrics(self) -> list[bytes]:
        """The Prometheus metrics of each engine that answers, in the order of `members`."""
        members = self.members
        answers = await asyncio.gather(
            *(member.channel.metrics() for member in members), return_exceptions=True
        )
        expositions = []
        for member, answer in zip(members, answers, strict=True):
            if isinstance(answer, grpc.aio.AioRpcError):
                log.warning("no metrics from engine %s: %s", member.name, answer.details())
                expositions.append(b"")
            elif isinstance(answer, asyncio.CancelledError):  # by the channel, as it closed
                expositions.append(b"")
            elif isinstance(answer, BaseException):
                raise answer
            else:
                expositions.append(answer)
        return expositions

    async def close(self) -> None:
        """Ends all connections; what runs on them fails."""
        await asyncio.gather(*(member.channel.close() for member in self._members.values()))

    def submit(self, request: GenerationRequest) -> FailoverStream:
        """Starts a request; see `generation_types.EngineClient`."""
        self._budget.earn()
        return FailoverStream(request, self)

    async def place(
        self, request: GenerationRequest, refused: frozenset[str], *, resumes: bool
    ) -> Attempt:
        """See `failover.Placer`."""
        asked_at, began = time.perf_counter(), time.time_ns()
        spans = None if request.call is None else request.call.spans
        try:
            ranking, hashes = await self._ranking(request, refused, resumes=resumes)
        except ApiError as error:
            if spans is not None:
                spans.routed(began, self.policy, error=error)
            raise
        self._turn += 1
        if request.attempt:
            self.num_failovers += bool(request.resume)
            self.num_retries += not request.resume
        best = ranking[0].candidate
        member = self._members[best.engine]
        span = None
        if spans is not None:
            spans.routed(began, self.policy, best, len(ranking))
            span = spans.attempt(request, member.name, member.channel.info)
            request = replace(request, traceparent=span.traceparent)
        attempt = member.submit(request, best.cached_tokens, hashes, span)
        self.on_routed(time.perf_counter() - asked_at)
        return attempt

    async def _ranking(
        self, request: GenerationRequest, refused: frozenset[str], *, resumes: bool
    ) -> tuple[list[Ranked], list[bytes]]:
        """The engines that could take a request, at least one, and the names of its blocks."""
        loop = asyncio.get_running_loop()
        patience = RESUME_SECONDS if resumes else 0.0
        if request.timeout is not None:
            patience = min(patience, request.timeout)
        deadline = loop.time() + patience
        while True:
            if self._closed is not None:
                raise self._closed
            adapter = request.adapter
            hashes = self._hashes(request.prompt_token_ids, request.cache_salt, adapter)
            ranking = self.rank(len(request.prompt_token_ids), hashes, refused, adapter)
            if ranking:
                return ranking, hashes
            if adapter is not None and (missing := self.adapters.missing(adapter)) is not None:
                raise missing
            if loop.time() >= deadline:
                having = "" if adapter is None else f" that has the adapter {adapter.name!r}"
                raise ApiError(ErrorKind.UNAVAILABLE, f"no engine{having} is ready")
            # One that came back is as good as another.
            refused = frozenset()
            await asyncio.sleep(_POLL_SECONDS)

    def may_retry(self) -> bool:
        """See `failover.Placer`."""
        return self._budget.spend()

    def rank(
        self,
        prompt_tokens: int,
        hashes: Sequence[bytes],
        refused: frozenset[str] = frozenset(),
        adapter: Adapter | None = None,
    ) -> list[Ranked]:
        """The engines that could take a prompt whose blocks have these names, best first."""
        allowed = self._allowed(refused, adapter)
        block_size = 0 if self._info is None else self._info.block_size
        candidates = [
            member.candidate(member.prefixes.num_cached(hashes) * block_size) for member in allowed
        ]
        return POLICIES[self.policy](candidates, prompt_tokens, self._turn)

    def _allowed(
        self, refused: frozenset[str] | set[str], adapter: Adapter | None = None
    ) -> list[Member]:
        there = [
            member
            for member in self._members.values()
            if member.may_serve and member.name not in refused and member.has(adapter)
        ]
        allowed = [member for member in there if member.circuit.allows]
        return there if len(allowed) < _PANIC_SHARE * len(there) else allowed

    def explain(
        self, token_ids: Sequence[int], cache_salt: str, adapter: Adapter | None = None
    ) -> list[tuple[Member, Ranked | None]]:
        """Every engine, best first, with what speaks for it; those that cannot serve come last."""
        hashes = self._hashes(token_ids, cache_salt, adapter)
        ranking = self.rank(len(token_ids), hashes, adapter=adapter)
        ranked = [(self._members[each.candidate.engine], each) for each in ranking]
        chosen = {member.name for member, _ in ranked}
        return [*ranked, *((m, None) for m in self._members.values() if m.name not in chosen)]

    def _hashes(
        self, token_ids: Sequence[int], cache_salt: str, adapter: Adapter | None
    ) -> list[bytes]:
        if not self._wants_prefixes.is_set() or self._info is None:
            return []
        version = "" if adapter is None else adapter.version
        return prompt_hashes(token_ids, self._info.block_size, cache_salt, version)

    async def embed(
        self, request: EncoderRequest, inputs: Iterable[EncoderInput]
    ) -> list[Sequence[float]]:
        """One vector an input, in their order.

        Sent again if its engine is lost, and to another if it is full or drains, all before the
        deadline.
        """
        self._budget.earn()
        inputs = list(inputs)
        loop = asyncio.get_running_loop()
        deadline = None if request.timeout is None else loop.time() + request.timeout
        refused: set[str] = set()
        refusal: ApiError | None = None
        while True:
            allowed = self._allowed(refused)
            if not allowed:
                raise refusal or ApiError(ErrorKind.UNAVAILABLE, "no engine is ready")
            self._turn += 1
            member = min(allowed, key=lambda each: each.channel.num_in_flight)
            if deadline is not None:
                request = replace(request, timeout=max(0.0, deadline - loop.time()))
            try:
                vectors = await self._embed_on(member, request, inputs)
            except ApiError as error:
                if error.kind is ErrorKind.RATE_LIMITED or error.code == "draining":
                    refused.add(member.name)
                    refusal = error
                    continue
                if error.kind is not ErrorKind.UNAVAILABLE or not self._budget.spend():
                    raise
                member.circuit.failed()
                self.num_retries += 1
            else:
                member.circuit.succeeded()
                return vectors

    async def _embed_on(
        self, member: Member, request: EncoderRequest, inputs: Sequence[EncoderInput]
    ) -> list[Sequence[float]]:
        if request.call is None or request.call.spans is None:
            return await member.channel.embed(request, inputs)
        with request.call.spans.attempt(request, member.name, member.channel.info) as span:
            traced = replace(request, traceparent=span.traceparent)
            return await member.channel.embed(traced, inputs)

    def fail_all(self, error: ApiError) -> None:
        """Ends every request with an error, and whatever comes after; for the router's own end."""
        self._closed = error
        for member in self._members.values():
            member.channel.fail_all(error)

    async def _forget(self, member: Member) -> None:
        while member.leaving and member.channel.num_in_flight:  # noqa: ASYNC110 -- it may come back
            await asyncio.sleep(_POLL_SECONDS)
        if member.leaving and self._members.get(member.name) is member:
            del self._members[member.name]
            await member.channel.close()

    def _say_ready(self, target: str, info: EngineInfo) -> None:
        self._members[target].circuit.reset()
        if self._on_ready is not None:
            self._on_ready(target, info)

    def _move_from(self, member: Member) -> None:
        """Takes answers off an engine that drains, or whose steps hang, if there is another."""
        if member.channel.stalled:
            error = ApiError(ErrorKind.UNAVAILABLE, "the engine's steps hang")
        elif self._move_on_drain and member.channel.draining:
            error = ApiError(ErrorKind.UNAVAILABLE, "the engine is draining", code="draining")
        else:
            return
        others = [o for o in self._members.values() if o is not member and o.may_serve]
        if member.channel.num_in_flight and others:
            member.channel.fail_all(
                error, lambda adapter: any(other.has(adapter) for other in others)
            )

    def _take_info(self, member: Member) -> None:
        self.adapters.check(member)
        self.on_info()

    def _check(self, info: EngineInfo) -> None:
        """Refuses an engine whose weights are not those of the others."""
        others = [
            member.channel.info
            for member in self._members.values()
            if member.channel.in_use and member.channel.info is not None
        ]
        for other in others:
            if other.weights_version != info.weights_version:
                raise EngineMismatchError(
                    f"its weights have the version {info.weights_version}, those of the engines in"
                    f" use {other.weights_version}"
                )
        self._info = info
