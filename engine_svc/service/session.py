"""The server's end of one `Session`: many requests over one stream, one message per step.

The reader submits and cancels as frames come; the writer sends whatever all requests have waiting,
in one message. While a message is on its way the next one grows, so a slow peer gets fewer and
larger messages, and no request waits for another's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from octavo.engine.v1 import engine_pb2 as pb

from engine_svc.service.errors import RequestError, internal, invalid
from engine_svc.service.output_stream import OutputStream, TokenRun, to_response

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator

    from engine_svc.service.admission import Admission
    from engine_svc.service.async_engine import AsyncEngine
    from engine_svc.service.live_request import LiveRequest

log = logging.getLogger(__name__)

# A message is cut off past this size: large parts (log-probabilities of long prompts) must not add
# up to more than a message may have.
_MESSAGE_BYTES = 4 << 20
_MAX_TOKEN_BYTES = 5  # as a varint
_MAX_RUN_BYTES = 30  # beside its tokens


@dataclass(slots=True)
class _Request:
    """A request of the stream; `live` is None if it was refused, or is being prepared."""

    stream: OutputStream
    accepts_token_runs: bool
    live: LiveRequest | None = None
    preparation: asyncio.Task[None] | None = None
    aborted: bool = False  # before it was live
    cancelled_choices: list[int] = field(default_factory=list)  # before the request was live


@dataclass(slots=True)
class _Runs:
    """A message's token runs, field by field."""

    stream_ids: list[int] = field(default_factory=list)
    choices: list[int] = field(default_factory=list)
    first_positions: list[int] = field(default_factory=list)
    num_tokens: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)

    def add(self, stream_id: int, run: TokenRun) -> int:
        """Adds a run; returns the most bytes that it can take."""
        self.stream_ids.append(stream_id)
        self.choices.append(run.choice)
        self.first_positions.append(run.first_position)
        self.num_tokens.append(len(run.token_ids))
        self.token_ids += run.token_ids
        return _MAX_RUN_BYTES + _MAX_TOKEN_BYTES * len(run.token_ids)

    def write(self, message: pb.TokenRuns) -> None:
        """Puts all runs into a message that has none."""
        message.stream_ids.extend(self.stream_ids)
        message.choices.extend(self.choices)
        message.first_positions.extend(self.first_positions)
        message.num_tokens.extend(self.num_tokens)
        message.token_ids.extend(self.token_ids)


class Session:
    """Requests of one stream by their stream ids."""

    def __init__(self, engine: AsyncEngine, admission: Admission, max_unsent_tokens: int) -> None:
        self._engine = engine
        self._admission = admission
        self._max_unsent_tokens = max_unsent_tokens
        self._requests: dict[int, _Request] = {}
        self._unsent: dict[int, None] = {}  # stream ids with events, the longest waiting first
        self._wake = asyncio.Event()
        self._ended = False

    async def read(self, frames: AsyncIterable[pb.SessionRequest]) -> None:
        """Takes frames until the peer closes. Raises RequestError if it breaks the protocol."""
        async for frame in frames:
            match frame.WhichOneof("frame"):
                case "submit":
                    self._start(frame.stream_id, frame.submit, frame.accepts_token_runs)
                case "cancel":
                    choice = frame.cancel.choice if frame.cancel.HasField("choice") else None
                    self._cancel(frame.stream_id, choice)
                case _:
                    raise invalid("frame", "must be submit or cancel")

    async def messages(self) -> AsyncIterator[pb.SessionResponse]:
        """Messages to send, until `end` or, once nothing is alive, the engine is closing."""
        while not self._ended:
            if self._unsent:
                started = time.perf_counter()
                message = self._next_message()
                self._engine.count_sending(time.perf_counter() - started)
                yield message
                continue
            if self._engine.closing.is_set() and not self._requests:
                return
            self._wake.clear()
            await self._wake.wait()

    def wake(self) -> None:
        """Lets `messages` look again whether it should end."""
        self._wake.set()

    def end(self) -> None:
        """Aborts every request that is still alive, and ends `messages`."""
        self._ended = True
        self._wake.set()
        for request in self._requests.values():
            self._abort(request)
        self._requests.clear()

    def _start(self, stream_id: int, submit: pb.GenerateRequest, accepts_token_runs: bool) -> None:
        if stream_id in self._requests:
            raise invalid("stream_id", f"{stream_id} is in use on this stream")

        def notify() -> None:
            if stream_id in self._requests:  # its peer has not asked for silence
                self._unsent[stream_id] = None
                self._wake.set()

        stream = OutputStream(notify, self._max_unsent_tokens)
        request = self._requests[stream_id] = _Request(stream, accepts_token_runs)
        if submit.HasField("constraint"):
            request.preparation = asyncio.create_task(self._prepare(request, submit))
            return
        try:
            request.live = self._engine.submit(self._admission.check(submit), stream, None)
        except RequestError as error:
            self._engine.refused(submit, error)
            stream.end(error)

    async def _prepare(self, request: _Request, submit: pb.GenerateRequest) -> None:
        """Starts a request whose constraint has to be compiled first."""
        try:
            submission = await self._admission.prepare(submit)
            if request.aborted:  # a task that is about to go on may pass over its cancellation
                return
            request.live = self._engine.submit(submission, request.stream, None)
        except RequestError as error:
            self._engine.refused(submit, error)
            request.stream.end(error)
        except Exception:
            log.exception("request %s could not be prepared", submit.request_id)
            request.stream.end(internal())
        else:
            for choice in request.cancelled_choices:
                self._engine.cancel(request.live, choice)

    def _cancel(self, stream_id: int, choice: int | None) -> None:
        request = self._requests.get(stream_id)
        if request is None:
            return
        if choice is None:
            if self._abort(request):
                # The peer has asked for silence: what still waits is not sent.
                self._drop(stream_id)
        elif request.live is not None:
            self._engine.cancel(request.live, choice)
        else:
            request.cancelled_choices.append(choice)

    def _abort(self, request: _Request) -> bool:
        """Ends a request that is alive or about to be; False if it was refused."""
        if request.live is not None:
            self._engine.cancel(request.live)
            return True
        request.aborted = True
        return request.preparation is not None and request.preparation.cancel()

    def _drop(self, stream_id: int) -> None:
        self._requests.pop(stream_id, None)
        self._unsent.pop(stream_id, None)

    def _next_message(self) -> pb.SessionResponse:
        message = pb.SessionResponse()
        runs = _Runs()
        size = 0
        while self._unsent and size < _MESSAGE_BYTES:
            stream_id = next(iter(self._unsent))
            del self._unsent[stream_id]
            request = self._requests[stream_id]
            events, error = request.stream.take()
            # Runs come before the events of their message, so they must be a request's first news.
            may_run = request.accepts_token_runs
            for event in events:
                if may_run and isinstance(event, TokenRun):
                    size += runs.add(stream_id, event)
                    continue
                may_run = False
                response = to_response(event)
                size += response.ByteSize()
                message.events.add(stream_id=stream_id, event=response)
            if error is not None:
                message.events.add(stream_id=stream_id, failure=to_failure(error))
            if request.stream.ended:
                self._drop(stream_id)
        if runs.stream_ids:
            runs.write(message.token_runs)
        return message


def to_failure(error: RequestError) -> pb.Failure:
    """A request's error as an event of its session."""
    status = error.status
    return pb.Failure(
        code=status.code, message=status.message, status_details=status.SerializeToString()
    )
