"""How long choices waited, by what they waited for.

What stopped admission when a step was planned is what the waiting ones wait for, until the next
step is planned. So the books take one entry a step, however many wait, and the rate of a reason's
seconds is the mean number of choices that wait for it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from engine_svc.scheduling.request import RequestStatus

if TYPE_CHECKING:
    from engine_svc.scheduling.request import Request


class WaitReason(StrEnum):
    """What a waiting choice needs."""

    STEP = "step"  # it came while a step was being computed
    BATCH_FULL = "batch_full"  # a place: --max-num-seqs run
    NO_FREE_BLOCKS = "no_free_blocks"  # KV blocks for the next in turn
    TOKEN_BUDGET = "token_budget"  # tokens of a step: they were spent, or kept for who streams
    PREFIX_IN_PROGRESS = "prefix_in_progress"  # blocks that another choice is computing
    TURN = "turn"  # its turn: priority, fair share or a cached prefix put a later one first


class QueueWaits:
    """Sums of seconds waited, and what each request waited for most. Times are of the scheduler's
    clock."""

    def __init__(self) -> None:
        """Nobody has waited yet."""
        self._seconds = dict.fromkeys(WaitReason, 0.0)
        self._stopped = dict.fromkeys(WaitReason, 0.0)  # how long each stopped admission
        self._reason = WaitReason.STEP
        self._num_overtaken = 0
        self._since = 0.0
        self._new: list[Request] = []  # that came since then

    @property
    def seconds(self) -> tuple[float, ...]:
        """Seconds for each `WaitReason`, in their order."""
        return tuple(self._seconds.values())

    def arrived(self, request: Request) -> None:
        """A request joined the queue."""
        self._new.append(request)

    def account(self, now: float, num_waiting: int) -> None:
        """Before a step is planned: adds the time since the last one for `num_waiting` choices."""
        news = [request for request in self._new if request.status is RequestStatus.WAITING]
        num_before = num_waiting - len(news)
        if num_before:
            elapsed = now - self._since
            num_overtaken = min(self._num_overtaken, num_before)
            self._seconds[WaitReason.TURN] += num_overtaken * elapsed
            self._seconds[self._reason] += (num_before - num_overtaken) * elapsed
            self._stopped[self._reason] += elapsed
        if self._new:
            seen = tuple(self._stopped.values())
            for request in news:
                request.stopped_before = seen
                self._seconds[WaitReason.STEP] += max(now - request.arrival, 0.0)
            self._new.clear()
        self._since = now

    def stopped_by(self, reason: WaitReason, num_overtaken: int) -> None:
        """A step was planned. `num_overtaken` choices came before the next in turn."""
        self._reason, self._num_overtaken = reason, num_overtaken

    def main_reason(self, request: Request, now: float) -> WaitReason:
        """What stopped admission longest while a request waited, until `now`."""
        if not request.stopped_before:
            return WaitReason.STEP
        before = zip(self._stopped.items(), request.stopped_before, strict=True)
        waits = {reason: stopped - seen for (reason, stopped), seen in before}
        waits[self._reason] += now - self._since
        waits[WaitReason.STEP] = now - request.arrival - sum(waits.values())
        return max(waits, key=lambda reason: waits[reason])
