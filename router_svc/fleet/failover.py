"""An answer that outlives its engine.

    engine A   admitted  t0 t1 t2 ✗ lost
    engine B                        resume [t0 t1 t2]  t3 t4 … finish
    client     started   t0 t1 t2                      t3 t4 … finish

What was sent of each choice is kept as token ids, and with the seed in use that is all there is to
an answer: another engine replays grammar, penalties and limits over it and goes on where the first
one stopped. Before the first token a request is simply sent again, out of a budget, so that an
outage does not become a storm.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from octavo.logs import request_fields

from router_svc.errors import ApiError, ErrorKind
from router_svc.generation_types import (
    EngineAdmitted,
    EngineDelta,
    EngineEvent,
    EngineFinish,
    EnginePromptLogprobs,
    EngineStream,
    GenerationRequest,
    ResumedChoice,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

log = logging.getLogger(__name__)
request_log = logging.getLogger("octavo.router.requests")

# A request whose engines are lost one after another may be what kills them.
MAX_LOST_ENGINES = 3
# Codes of errors that say that no engine will ever have what a request needs.
NOT_TO_COME = ("model_not_found", "adapter_replaced")
# What an engine gets to end a request by itself at its deadline.
_GRACE_SECONDS = 1.0
# So long an answer that has begun tries to get on where every engine's queue is full.
_FULL_SECONDS = 30.0


def lacks_adapter(error: ApiError) -> bool:
    """Whether a request with an adapter failed since its engine has it no longer."""
    if error.kind is ErrorKind.INVALID_REQUEST:
        return error.param == "lora"
    return error.kind is ErrorKind.FAILED_PRECONDITION


class AttemptStream(EngineStream, Protocol):
    """The events of one attempt."""

    def fail(self, error: ApiError) -> None:
        """Ends it with an error, whatever the engine does, once what came before was read."""
        ...


class Placement(Protocol):
    """One attempt: a stream on an engine that was chosen for it."""

    @property
    def engine(self) -> str:
        """Which engine."""
        ...

    @property
    def stream(self) -> AttemptStream:
        """The attempt's events."""
        ...

    def ended(self, error: ApiError | None) -> None:
        """Tells how the attempt ended; None is well, CANCELLED the client's own wish."""
        ...


class Placer(Protocol):
    """Chooses engines."""

    async def place(
        self, request: GenerationRequest, refused: frozenset[str], *, resumes: bool
    ) -> Placement:
        """Starts an attempt on an engine that is not among `refused`.

        To resume it may wait for an engine. Raises ApiError if there is none.
        """
        ...

    def may_retry(self) -> bool:
        """Takes one retry out of the budget; False if it is spent."""
        ...


@dataclass(slots=True)
class _Choice:
    token_ids: list[int] = field(default_factory=list)
    finished: bool = False


class FailoverStream:
    """The events of one request over all of its attempts, as if there were one."""

    def __init__(self, request: GenerationRequest, placer: Placer) -> None:
        self._request = request
        self._placer = placer
        self._deadline = None if request.timeout is None else time.monotonic() + request.timeout
        self._choices = [_Choice() for _ in range(request.n)]
        self._num_prompt_logprobs = 0
        self._seed: int | None = request.sampling.seed
        self._started = False
        self._placement: Placement | None = None
        self._cancelled = False
        self._engines: list[str] = []  # of each attempt
        self._outcome: str | None = None  # once it has failed
        self._is_logged = False
        self._first_progress = 0.0  # time.monotonic() of the first tokens
        self._last_progress = 0.0  # and of the last
        self.num_lost = 0  # engines that were lost under this request
        self._num_lacking = 0  # engines that turned out not to have its adapter

    def cancel(self, choice: int | None = None) -> None:
        """Aborts one choice, or the whole request."""
        if choice is None:
            self._cancelled = True
            self._log_end()
        else:
            self._choices[choice].finished = True
        if self._placement is not None:
            self._placement.stream.cancel(choice)
            if choice is None:
                self._end(None if self._is_finished else ApiError(ErrorKind.CANCELLED))

    async def __aiter__(self) -> AsyncIterator[EngineEvent]:
        refused: frozenset[str] = frozenset()
        attempt, failure = 0, None
        timer = self._start_timer()
        try:
            while not self._cancelled:
                placement = self._placement = await self._place(attempt, refused, failure)
                attempt += 1
                self._engines.append(placement.engine)
                try:
                    async for event in placement.stream:
                        if (news := self._take(event)) is not None:
                            yield news
                        # Looked at only when there is news of it: this runs for each token.
                        if isinstance(event, EngineFinish) and self._is_finished:
                            self._end(None)
                            return
                    self._end(None)
                    return  # the pipeline says what an early end means
                except ApiError as error:
                    self._end(error)
                    refused = self._after(error, placement.engine, refused)
                    failure = None if self._lacks_adapter(error) else error
        except ApiError as error:
            self._outcome = error.kind.name.lower()
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _start_timer(self) -> asyncio.TimerHandle | None:
        if self._deadline is None:
            return None
        left = max(0.0, self._deadline - time.monotonic()) + _GRACE_SECONDS
        return asyncio.get_running_loop().call_later(left, self._expire)

    def _expire(self) -> None:
        """Ends an attempt whose engine hangs: others end it themselves, and say at which stage."""
        if self._placement is not None:
            self._placement.stream.cancel()
            self._placement.stream.fail(ApiError(ErrorKind.DEADLINE_EXCEEDED))

    def _log_end(self) -> None:
        """One line for each request, whatever became of it."""
        if self._is_logged:
            return
        self._is_logged = True
        finished = self._is_finished
        if self._request.call is not None:
            self._request.call.generated(self._first_progress, self._last_progress)
        request_log.info(
            "request_id=%s outcome=%s prompt_tokens=%d completion_tokens=%d engines=%s",
            self._request.request_id,
            self._outcome or ("ok" if finished else "cancelled"),
            len(self._request.prompt_token_ids),
            sum(len(choice.token_ids) for choice in self._choices),
            ",".join(self._engines) or "none",
            extra=self._log_fields,
        )

    @property
    def _log_fields(self) -> dict[str, str]:
        return request_fields(self._request.request_id, self._request.traceparent)

    @property
    def _is_finished(self) -> bool:
        return all(choice.finished for choice in self._choices)

    @property
    def _is_under_way(self) -> bool:
        """Whether an engine had the request that is lost now: it waits for another."""
        return self._has_output or self.num_lost > 0

    @property
    def _has_output(self) -> bool:
        return any(choice.token_ids for choice in self._choices)

    async def _place(
        self, attempt: int, refused: frozenset[str], failure: ApiError | None
    ) -> Placement:
        request = self._next_request(attempt)
        try:
            return await self._placer.place(request, refused, resumes=self._is_under_way)
        except ApiError as nobody:
            if self._deadline is not None and time.monotonic() >= self._deadline:
                raise ApiError(ErrorKind.DEADLINE_EXCEEDED) from nobody
            if nobody.code in NOT_TO_COME:
                raise
            # That there is no other engine says less than why the last one did not do.
            raise (failure or nobody) from nobody

    def _end(self, error: ApiError | None) -> None:
        if self._placement is not None:
            self._placement.ended(error)
            self._placement = None

    def _after(self, error: ApiError, engine: str, refused: frozenset[str]) -> frozenset[str]:
        """Who must not be asked next. Raises the error where nobody can help."""
        if self._cancelled:
            raise error
        match error.kind:
            case _ if self._lacks_adapter(error):
                self._num_lacking += 1
                if self._num_lacking > MAX_LOST_ENGINES:
                    raise ApiError(ErrorKind.UNAVAILABLE) from error
                return refused | {engine}
            case ErrorKind.RATE_LIMITED if not self._is_under_way:
                return refused | {engine}  # full; another may have room
            case ErrorKind.RATE_LIMITED if error.code == "queue_full":
                # Nobody else can give the rest of what the client has begun to read.
                if time.monotonic() > self._last_progress + _FULL_SECONDS:
                    raise error
                return refused | {engine}
            case ErrorKind.UNAVAILABLE if error.code == "draining":
                return refused | {engine}
            case ErrorKind.UNAVAILABLE:
                self.num_lost += 1
                if self.num_lost > MAX_LOST_ENGINES:
                    raise error
                if not self._has_output and not self._placer.may_retry():
                    raise error
                log.info(
                    "request_id=%s attempt on engine %s ended (%s); %d tokens are kept",
                    self._request.request_id,
                    engine,
                    error.message,
                    sum(len(choice.token_ids) for choice in self._choices),
                    extra=self._log_fields,
                )
                return refused | {engine}
            case _:
                raise error

    def _lacks_adapter(self, error: ApiError) -> bool:
        return self._request.adapter is not None and lacks_adapter(error)

    def _next_request(self, attempt: int) -> GenerationRequest:
        """The request as the next engine gets it."""
        request = self._request
        if self._deadline is not None:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise ApiError(ErrorKind.DEADLINE_EXCEEDED)
            request = replace(request, timeout=left)
        if attempt == 0:
            return request
        resume = tuple(
            ResumedChoice(index, tuple(choice.token_ids), choice.finished)
            for index, choice in enumerate(self._choices)
            if choice.token_ids or choice.finished
        )
        sampling = replace(request.sampling, seed=self._seed)
        return replace(request, attempt=attempt, resume=resume, sampling=sampling)

    def _take(self, event: EngineEvent) -> EngineEvent | None:
        """Notes what an event adds, and gives what of it the client has not had yet."""
        match event:
            case EngineDelta():
                choice = self._choices[event.choice]
                if event.first_position == len(choice.token_ids):
                    choice.token_ids += event.token_ids
                    self._last_progress = time.monotonic()
                    if not self._first_progress:
                        self._first_progress = self._last_progress
                # A gap or a repeat is passed on: the pipeline names it and ends the request.
            case EngineFinish():
                self._choices[event.choice].finished = True
            case EngineAdmitted():
                self._seed = event.seed
                if self._started:
                    return None
                self._started = True
            case EnginePromptLogprobs():
                return self._take_prompt_logprobs(event)
        return event

    def _take_prompt_logprobs(self, event: EnginePromptLogprobs) -> EnginePromptLogprobs | None:
        # The attempt after one that ended within them begins again.
        had = self._num_prompt_logprobs - event.first_position
        if had < 0 or had >= len(event.entries):
            return None
        self._num_prompt_logprobs = event.first_position + len(event.entries)
        return replace(
            event, entries=event.entries[had:], first_position=event.first_position + had
        )
