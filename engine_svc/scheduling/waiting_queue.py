"""Requests that wait, and the order in which they are offered for admission.

The order is priority, then turns between tenants (fair_share.py), then arrival, except that

- a preempted request goes to the front of its priority, as it has lost time already;
- among the first few of a priority, the one with the longest cached prefix goes first, while that
  prefix is still there;
- one whose next block a running request is computing is passed over until the block is there;
- every PATIENCE admissions the oldest of all goes first whatever it is, so that nobody starves.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from engine_svc.scheduling.block_pool import IntegrityError
from engine_svc.scheduling.fair_share import FairShare
from engine_svc.scheduling.request import RequestStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine_svc.scheduling.kv_cache_manager import PrefixProbe
    from engine_svc.scheduling.request import Request

    _Entry: TypeAlias = tuple[int, tuple[float, int], Request]

WINDOW = 8  # requests compared by cached prefix
REACH = 128  # requests looked at in one step, so that a burst of thousands does not delay it
PATIENCE = 32  # admissions that may overtake the oldest request


class WaitingQueue:
    """Waiting requests in order."""

    def __init__(self, *, fair: bool = True) -> None:
        """Makes an empty queue; unless it is `fair`, tenants make no difference."""
        # Entries are (priority, rank, request). Ranks differ, so requests are never compared.
        self._order: list[_Entry] = []
        self._by_age: OrderedDict[int, _Entry] = OrderedDict()
        self._shares = FairShare() if fair else None
        self._front_rank = -1
        self._num_tokens = 0
        self._num_overtakes = 0

    def __len__(self) -> int:
        """Requests waiting."""
        return len(self._order)

    def __iter__(self) -> Iterator[Request]:
        """Requests by priority, then rank."""
        return (request for _, _, request in self._order)

    def __contains__(self, key: object) -> bool:
        """Whether the request with this key waits."""
        return key in self._by_age

    @property
    def num_tokens(self) -> int:
        """Known tokens of all waiting requests."""
        return self._num_tokens

    @property
    def overdue(self) -> Request | None:
        """The oldest request, once enough others were admitted before it."""
        return self._oldest() if self._num_overtakes >= PATIENCE and self._order else None

    def num_older(self, next_one: Request | None = None) -> int:
        """How many came before the next in turn (the first in order, unless it is given): 0 to
        REACH."""
        if not self._order:
            return 0
        key = (next_one or self._order[0][2]).key
        oldest = list(islice(self._by_age, REACH))
        return oldest.index(key) if key in oldest else len(oldest)

    def push(self, request: Request) -> None:
        """Appends a request to its priority."""
        start = 0.0 if self._shares is None else self._shares.start_of(request)
        self._insert(request, (start, request.serial))

    def push_front(self, request: Request) -> None:
        """Puts a preempted request before all others of its priority."""
        self._insert(request, (-math.inf, self._front_rank))
        self._by_age.move_to_end(request.key, last=False)
        self._front_rank -= 1

    def remove(self, request: Request) -> None:
        """Takes a request out that will not run. Raises KeyError if it does not wait."""
        entry = self._by_age.pop(request.key)
        del self._order[bisect_left(self._order, entry)]
        self._num_tokens -= request.num_tokens

    def admit(self, request: Request) -> None:
        """Takes a request out that will run. Raises KeyError if it does not wait."""
        self._num_overtakes = 0 if request is self._oldest() else self._num_overtakes + 1
        if self._shares is not None:
            _, (start, _), _ = self._by_age[request.key]
            self._shares.served(start)
        self.remove(request)

    def check_integrity(self) -> None:
        """Raises IntegrityError if the books contradict each other or a request is not waiting."""
        if self._order != sorted(self._by_age.values(), key=lambda entry: entry[:2]):
            raise IntegrityError(
                f"the queue is out of order, or its {len(self._order)} places "
                f"do not match its {len(self._by_age)} requests"
            )
        num_tokens = sum(request.num_tokens for request in self)
        if num_tokens != self._num_tokens:
            raise IntegrityError(
                f"the queue counts {self._num_tokens} tokens, its requests have {num_tokens}"
            )
        for request in self:
            if request.status is not RequestStatus.WAITING or request.num_computed_tokens:
                raise IntegrityError(
                    f"request {request.key} waits as {request.status.name} "
                    f"with {request.num_computed_tokens} computed tokens"
                )

    def _oldest(self) -> Request:
        return next(iter(self._by_age.values()))[2]

    def _insert(self, request: Request, rank: tuple[float, int]) -> None:
        entry = (request.priority, rank, request)
        insort(self._order, entry)
        self._by_age[request.key] = entry
        self._num_tokens += request.num_tokens


class AdmissionRound:
    """One step's walk over the queue: who may be admitted next, given who just was."""

    def __init__(self, queue: WaitingQueue, probe: Callable[[Request], PrefixProbe]) -> None:
        """Starts at the front. `probe` looks a request up in the prefix cache."""
        self._queue = queue
        self._probe = probe
        self._rest = iter(list(islice(queue, REACH)))  # a copy, as admissions change the queue
        self._peeked: Request | None = next(self._rest, None)
        self._window: list[tuple[Request, int]] = []  # with the number of cached blocks

    def next(self) -> Request | None:
        """The request to admit now; None if all are passed over. It stays in the queue."""
        overdue = self._queue.overdue
        if overdue is not None:
            return overdue
        while True:
            self._fill_window()
            if not self._window:
                return None
            best = self._best()
            request, _ = self._window.pop(best)
            # An admission since it was probed may have claimed its next block.
            if request.key in self._queue and not self._probe(request).being_computed:
                return request

    def _fill_window(self) -> None:
        while self._peeked is not None and len(self._window) < WINDOW:
            request = self._peeked
            if self._window and self._window[0][0].priority != request.priority:
                return
            self._peeked = next(self._rest, None)
            if request.key not in self._queue:
                continue
            probe = self._probe(request)
            if not probe.being_computed:
                self._window.append((request, probe.num_cached_blocks))

    def _best(self) -> int:
        if self._window[0][0].num_preemptions:
            return 0
        return max(range(len(self._window)), key=lambda index: self._window[index][1])
