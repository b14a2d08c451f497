"""How long choices waited, by what they waited for.

What stopped admission when a step was planned is what the waiting ones wait for, until the next
step is planned. So the books take one entry a step, however many wait, and the rate of a reason's
seconds is the mean number of choices that wait for it.
"""

from __future__ import annotations

from enum import StrEnum


class WaitReason(StrEnum):
    """What a waiting choice needs."""

    STEP = "step"  # it came while a step was being computed
    BATCH_FULL = "batch_full"  # a place: --max-num-seqs run
    NO_FREE_BLOCKS = "no_free_blocks"  # KV blocks for the next in turn
    TOKEN_BUDGET = "token_budget"  # tokens of a step: they were spent, or kept for who streams
    PREFIX_IN_PROGRESS = "prefix_in_progress"  # blocks that another choice is computing
    TURN = "turn"  # its turn: priority, fair share or a cached prefix put a later one first


class QueueWaits:
    """Sums of seconds waited. Times are of the scheduler's clock."""

    def __init__(self) -> None:
        """Nobody has waited yet."""
        self._seconds = dict.fromkeys(WaitReason, 0.0)
        self._reason = WaitReason.STEP
        self._num_overtaken = 0
        self._since = 0.0
        self._num_new = 0  # choices that came since then
        self._sum_arrivals = 0.0

    @property
    def seconds(self) -> tuple[float, ...]:
        """Seconds for each `WaitReason`, in their order."""
        return tuple(self._seconds.values())

    def arrived(self, at: float) -> None:
        """A choice joined the queue, having come at that time."""
        self._num_new += 1
        self._sum_arrivals += at

    def account(self, now: float, num_waiting: int) -> None:
        """Before a step is planned: adds the time since the last one for `num_waiting` choices."""
        num_new = min(self._num_new, num_waiting)
        if num_new:
            mean_arrival = self._sum_arrivals / self._num_new
            self._seconds[WaitReason.STEP] += num_new * max(now - mean_arrival, 0.0)
        num_before = num_waiting - num_new
        if num_before:
            elapsed = now - self._since
            num_overtaken = min(self._num_overtaken, num_before)
            self._seconds[WaitReason.TURN] += num_overtaken * elapsed
            self._seconds[self._reason] += (num_before - num_overtaken) * elapsed
        self._since, self._num_new, self._sum_arrivals = now, 0, 0.0

    def stopped_by(self, reason: WaitReason, num_overtaken: int) -> None:
        """A step was planned. `num_overtaken` choices came before the next in turn."""
        self._reason, self._num_overtaken = reason, num_overtaken
