"""Whose input is next: calls share the steps by tokens, so a long call does not hold up short ones.

Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996) within a priority. A call's tag is the
number of tokens that it was given; a new call starts at the tag that is being served, the least of
all. The least tag is served next, the earlier call among equals:

    A  [a a a a a a a a]     tags 0, 8, 16 …      steps take  a a B a C a a …
    B        [b]             tag 8 when it comes
    C           [c]          tag 16
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from engine_svc.encoding.call import ScheduledInput

if TYPE_CHECKING:
    from engine_svc.encoding.call import EncoderCall


class FairQueue:
    """The calls that have inputs no step has taken yet."""

    def __init__(self) -> None:
        """Makes an empty queue."""
        self._calls: dict[int, EncoderCall] = {}
        self._heap: list[tuple[int, int, int]] = []  # priority, tag, key; stale where the key is
        self._served: dict[int, int] = {}  # by priority: the tag that was served last
        self._num_inputs = 0

    @property
    def num_inputs(self) -> int:
        """Inputs that wait."""
        return self._num_inputs

    def add(self, call: EncoderCall) -> None:
        """Lets a call wait; keys rise with arrival and are never used again."""
        self._calls[call.key] = call
        self._num_inputs += len(call.inputs)
        heappush(self._heap, (call.priority, self._served.get(call.priority, 0), call.key))

    def remove(self, key: int) -> None:
        """Forgets what a call still has waiting. Unknown keys are ignored."""
        call = self._calls.pop(key, None)
        if call is not None:
            self._num_inputs -= call.num_waiting

    def take(self, max_tokens: int, max_inputs: int) -> list[ScheduledInput]:
        """The inputs of the next step, at least one if any waits.

        The first that does not fit ends the step, so that none waits for ever for a gap.
        """
        taken: list[ScheduledInput] = []
        room = max_tokens
        while self._heap and len(taken) < max_inputs:
            priority, tag, key = self._heap[0]
            call = self._calls.get(key)
            if call is None:
                heappop(self._heap)
                continue
            size = len(call.inputs[call.num_scheduled].token_ids)
            if taken and size > room:
                break
            heappop(self._heap)
            taken.append(ScheduledInput(call, call.num_scheduled))
            call.num_scheduled += 1
            room -= size
            self._num_inputs -= 1
            self._served[priority] = tag
            if call.num_waiting:
                heappush(self._heap, (priority, tag + size, key))
            else:
                del self._calls[key]
        if not self._calls:
            self._heap.clear()
            self._served.clear()
        return taken
