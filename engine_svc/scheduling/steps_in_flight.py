"""Steps that were planned and whose results are not known: one, or two where one runs ahead.

    step N     [ r17 | s3 s4 s5 ]     is being computed; it will pick r18 and s6
    step N+1   [ r18 | s6 ]           planned meanwhile: their positions are known, they are not

Tokens that are not known are the only thing that a step ahead is planned without. What they may
change is found out one step late, and undone by passing over what was computed too much:

- A stop token ended r with r18: N+1 computes r18 and picks r19 for nobody.
- r was cancelled, or its deadline passed, or r18 is none as its logits are not finite: the same.

Its blocks are free from that moment on, although a step in flight still writes to the last of them.
That is safe because steps are computed in order: whoever gets such a block has it in a later step,
and writes each slot before reading it. And nobody finds r's tokens there: a block becomes findable
when the results of the step that filled it are taken in, and steps in flight write behind those.

Who cannot do without the token is not worked around: the step ahead waits for it (`needs_results`),
all of it, so that nobody is computed less often than if no step ran ahead. So it does where blocks
run short: only a request that has nothing in flight is preempted, and so a key that leaves the
worker while its step is in flight never comes back.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_svc.batch import ScheduledBatch, ScheduledChunk
    from engine_svc.scheduling.request import Request


@dataclass(frozen=True, slots=True)
class StepInFlight:
    """A step, and how many of its chunks are decodes."""

    batch: ScheduledBatch
    num_decodes: int


class StepsInFlight:
    """The steps in flight, oldest first."""

    def __init__(self) -> None:
        self._steps: list[StepInFlight] = []

    def __len__(self) -> int:
        """How many there are."""
        return len(self._steps)

    def begin(self, batch: ScheduledBatch, num_decodes: int) -> None:
        """A step was planned."""
        self._steps.append(StepInFlight(batch, num_decodes))

    def oldest(self, batch: ScheduledBatch) -> StepInFlight:
        """The step of this plan. Raises RuntimeError if it is not the oldest in flight."""
        if not self._steps or self._steps[0].batch is not batch:
            raise RuntimeError(f"step {batch.step} is not in flight")
        return self._steps[0]

    def end(self) -> None:
        """Takes the oldest step out."""
        del self._steps[0]

    def check_none(self) -> None:
        """Raises RuntimeError if there is one."""
        if self._steps:
            raise RuntimeError(f"step {self._steps[0].batch.step} is still in flight")

    def only(self) -> ScheduledBatch:
        """The one step in flight. Raises RuntimeError if there is none, or another one."""
        if len(self._steps) != 1:
            raise RuntimeError(f"{len(self._steps)} steps are in flight, not one")
        return self._steps[0].batch


def needs_results(request: Request | None, chunk: ScheduledChunk) -> bool:
    """Whether what follows a chunk in flight depends on more than where its token will be.

    A grammar's mask, penalties, bad words and log-probabilities depend on the tokens before, or on
    whole rows of logits; so do guesses, which also leave open how many tokens a step brings.
    `request` is None if it has ended: then the worker may still have to read the logits that it
    asked for, unless the chunk awaited its token, which only those do that ask for none.
    """
    if request is None:
        return not chunk.awaits
    if request.wants_prompt_logprobs or chunk.draft_token_ids:
        return True
    return chunk.samples and (request.sampling.grammar is not None or not request.plain)


@contextmanager
def foreseen(
    batch: ScheduledBatch, running: dict[int, Request], max_model_len: int
) -> Iterator[None]:
    """While this lasts, running requests are as the step in flight will leave them.

    None of its tokens is taken for a stop token. Who certainly ends with it, by its length, is left
    without anything to compute.
    """
    chunks = [chunk for chunk in batch.chunks if chunk.key in running]
    for chunk in chunks:
        request = running[chunk.key]
        request.num_in_flight_tokens = chunk.num_tokens
        goes_on = chunk.samples and request.num_tokens_left(max_model_len) > 1
        request.num_awaited_tokens = int(goes_on)
    try:
        yield
    finally:
        for chunk in chunks:
            request = running[chunk.key]
            request.num_in_flight_tokens = request.num_awaited_tokens = 0
