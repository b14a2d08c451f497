"""One engine of a fleet, as the router sees it: its connection, its load, its circuit."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from router_svc.errors import ErrorKind
from router_svc.fleet.circuit import Circuit
from router_svc.fleet.failover import lacks_adapter
from router_svc.fleet.policies import Candidate
from router_svc.fleet.prefix_index import PrefixIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from router_svc.engines.channel import EngineChannel
    from router_svc.engines.info import EngineLoad
    from router_svc.errors import ApiError
    from router_svc.fleet.failover import AttemptStream
    from router_svc.generation_types import Adapter, GenerationRequest
    from router_svc.tracing.spans import AttemptSpan

# A report may have been under way when a request was sent: what it does not know of yet counts
# beside it for so long.
_REPORT_SECONDS = 0.2
# Work counts as recent for about so long.
_RECENT_SECONDS = 30.0
_TO_BLAME = (ErrorKind.UNAVAILABLE, ErrorKind.INTERNAL)


class RecentWork:
    """Tokens, of which those that lie back count less and less. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tokens = 0.0
        self._at = clock()

    @property
    def tokens(self) -> float:
        """What counts of them now."""
        now = self._clock()
        self._tokens *= math.exp((self._at - now) / _RECENT_SECONDS)
        self._at = now
        return self._tokens

    def add(self, tokens: int) -> None:
        """Adds tokens of this moment."""
        self._tokens = self.tokens + tokens


@dataclass(slots=True)
class _Dispatched:
    at: float
    tokens: int


class Member:
    """An engine that may be chosen while `channel` is ready and `circuit` allows it."""

    def __init__(self, channel: EngineChannel) -> None:
        self.channel = channel
        self.circuit = Circuit(time.monotonic)
        self.prefixes = PrefixIndex()
        self.leaving = False  # no longer discovered; finishes what it has
        self._recent: deque[_Dispatched] = deque()
        self._work = RecentWork()
        self._num_generated = 0  # of the channel's, counted as work

    @property
    def name(self) -> str:
        """Where the engine is reached, which names it in logs and metrics."""
        return self.channel.target

    @property
    def adapters(self) -> Mapping[str, Adapter]:
        """What it has, or had before it went away, by name."""
        return {} if self.channel.info is None else self.channel.info.adapters

    def has(self, adapter: Adapter | None) -> bool:
        """Whether it can apply an adapter, of that very version; to apply none is easy."""
        return adapter is None or self.adapters.get(adapter.name) == adapter

    @property
    def may_serve(self) -> bool:
        """Whether it can be sent a request, its circuit aside."""
        return self.channel.ready and not self.leaving

    def candidate(self, cached_tokens: int) -> Candidate:
        """What a policy gets to know."""
        load = self.channel.load
        generated, self._num_generated = self._num_generated, self.channel.num_generated
        self._work.add(self._num_generated - generated)
        return Candidate(
            engine=self.name,
            queued_tokens=load.num_uncomputed_tokens + self._not_yet_reported(load),
            num_running=load.num_running,
            cached_tokens=cached_tokens,
            kv_usage=1 - load.num_free_blocks / load.num_blocks if load.num_blocks else 0.0,
            ready_seconds=time.monotonic() - self.channel.ready_since,
            recent_tokens=self._work.tokens,
        )

    def submit(
        self,
        request: GenerationRequest,
        cached_tokens: int,
        hashes: Sequence[bytes],
        span: AttemptSpan | None = None,
    ) -> Attempt:
        """Starts an attempt on this engine; `hashes` name its prompt's blocks, `span` traces it."""
        self.prefixes.expect(hashes)
        tokens = len(request.prompt_token_ids) - cached_tokens
        self._recent.append(_Dispatched(time.monotonic(), tokens * request.n))
        self._work.add(tokens)
        self.circuit.begin()
        return Attempt(self, self.channel.submit(request), request.adapter, span)

    def _not_yet_reported(self, load: EngineLoad) -> int:
        while self._recent and self._recent[0].at < load.received_at - _REPORT_SECONDS:
            self._recent.popleft()
        return sum(each.tokens for each in self._recent)


class Attempt:
    """See `failover.Placement`."""

    def __init__(
        self,
        member: Member,
        stream: AttemptStream,
        adapter: Adapter | None = None,
        span: AttemptSpan | None = None,
    ) -> None:
        self._member = member
        self._adapter = adapter
        self._span = span
        self.stream = stream

    @property
    def engine(self) -> str:
        """The engine's name."""
        return self._member.name

    def ended(self, error: ApiError | None) -> None:
        """Counts for or against the engine."""
        if self._span is not None:
            self._span.ended(error)
        if error is not None and self._adapter is not None and lacks_adapter(error):
            self._member.channel.lacks(self._adapter)
        if error is not None and error.kind in _TO_BLAME and error.code != "draining":
            self._member.circuit.failed()
        elif error is not None and error.kind is ErrorKind.DEADLINE_EXCEEDED:
            self._member.circuit.gave_up()
        else:
            self._member.circuit.succeeded()
