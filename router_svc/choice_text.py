"""From one choice's tokens to its text: detokenise, look for stop strings, align tokens with text.

                  ┌ released ────────────┬ held back ───────┐
    text          │ The quick brown fox  │  jum             │   " jumps" may be forming
    tokens        │ The| quick| brown| fox│  j|um            │
                  └ in earlier deltas ───┴ pending ─────────┘

A token leaves with the delta that completes its text. Tokens that have no text of their own (part
of a character, a control token that is skipped) leave with the next one that has, or at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from router_svc.generation_types import (
    ChoiceDelta,
    EngineDelta,
    EngineFinish,
    EngineProtocolError,
    FinishReason,
    GenerationRequest,
    Logprob,
)
from router_svc.text.detokenizer import Detokenizer
from router_svc.text.stop import StopMatcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router_svc.text.tokenizer import Tokenizer


@dataclass(slots=True)
class _Pending:
    token_id: int
    logprob: Logprob | None
    begin: int  # offset of its text in the choice's text
    end: int | None = None  # None while its text is not complete


class ChoiceText:
    """The text of one choice, fed with the engine's events in order."""

    def __init__(self, index: int, request: GenerationRequest, tokenizer: Tokenizer) -> None:
        self._index = index
        self._min_tokens = request.min_tokens
        self._include_stop = request.include_stop
        self._stop_token_ids = frozenset(request.stop_token_ids)
        self._detokenizer = Detokenizer(
            tokenizer,
            skip_special_tokens=request.skip_special_tokens,
            shown=request.shown_special_ids,
        )
        self._matcher = StopMatcher(request.stop, include_stop=request.include_stop)
        self._pending: list[_Pending] = []
        self._num_ended = 0  # how many of the pending tokens have an end
        self._num_gone = 0  # tokens that are no longer pending
        self._num_tokens = 0
        self._length = 0  # code points detokenised
        self._released = 0  # code points handed out

    def add(self, event: EngineDelta | EngineFinish) -> ChoiceDelta | None:
        """What the event makes final, or None if nothing yet.

        Raises EngineProtocolError if positions have a gap or the engine's count differs.
        """
        if isinstance(event, EngineFinish):
            return self._finish(event)
        if event.first_position != self._num_tokens:
            raise EngineProtocolError(
                f"choice {self._index}: got tokens from position {event.first_position},"
                f" expected {self._num_tokens}"
            )
        text = ""
        for i, token_id in enumerate(event.token_ids):
            text += self._feed(token_id, event.logprobs[i] if event.logprobs else None)
            if self._matcher.matched is not None:
                return self._delta(text, FinishReason.STOP, self._matcher.matched)
        return self._delta(text) if text else None

    def _feed(self, token_id: int, logprob: Logprob | None) -> str:
        self._pending.append(_Pending(token_id, logprob, begin=self._length))
        early = self._num_tokens < self._min_tokens
        self._num_tokens += 1
        if token_id in self._stop_token_ids and not early and not self._include_stop:
            return ""  # the engine ends the choice with this token, and its text is not shown
        return self._pass_on(self._detokenizer.add(token_id), early)

    def _pass_on(self, piece: str, early: bool) -> str:
        self._length += len(piece)
        num_complete = self._detokenizer.num_complete - self._num_gone
        for pending in self._pending[self._num_ended : num_complete]:
            pending.end = self._length
        self._num_ended = num_complete
        return self._matcher.add(piece, skip=len(piece) if early else 0)

    def _finish(self, finish: EngineFinish) -> ChoiceDelta:
        if finish.completion_tokens != self._num_tokens:
            raise EngineProtocolError(
                f"choice {self._index}: the engine counts {finish.completion_tokens} tokens,"
                f" {self._num_tokens} arrived"
            )
        text = self._pass_on(self._detokenizer.flush(), early=self._num_tokens <= self._min_tokens)
        if self._matcher.matched is not None:
            return self._delta(text, FinishReason.STOP, self._matcher.matched)
        text += self._matcher.flush()
        own_stop = finish.stop_token_id in self._stop_token_ids
        return self._delta(text, finish.reason, finish.stop_token_id if own_stop else None)

    def _delta(
        self,
        text: str,
        finish_reason: FinishReason | None = None,
        stop_reason: str | int | None = None,
    ) -> ChoiceDelta:
        self._released += len(text)
        released = self._released
        count = len(self._pending) if finish_reason is not None else self._num_released()
        self._num_ended -= count
        self._num_gone += count
        token_ids: tuple[int, ...]
        offsets: tuple[int, ...]
        logprobs: tuple[Logprob, ...]
        # Tokens of a stop string that was cut off begin where the text ends.
        if count == 1:  # as nearly always
            only = self._pending.pop(0)
            token_ids, offsets = (only.token_id,), (min(only.begin, released),)
            logprobs = () if only.logprob is None else (only.logprob,)
        else:
            done, self._pending = self._pending[:count], self._pending[count:]
            token_ids = tuple(p.token_id for p in done)
            offsets = tuple(min(p.begin, released) for p in done)
            logprobs = tuple(p.logprob for p in done if p.logprob is not None)
        return ChoiceDelta(
            self._index, text, token_ids, logprobs, offsets, finish_reason, stop_reason
        )

    def _num_released(self) -> int:
        count = 0
        for pending in self._pending:
            if pending.end is None or pending.end > self._released:
                break
            count += 1
        return count


def prompt_offsets(
    ids: Sequence[int], text: str, tokenizer: Tokenizer, *, skip_special_tokens: bool
) -> list[int]:
    """Where the text of each token of a prompt begins in the prompt's text, in code points.

    Tokens that the tokeniser put around the text stand at its edges.
    """
    detokenizer = Detokenizer(tokenizer, skip_special_tokens=skip_special_tokens)
    offsets, whole = [], ""
    for token_id in ids:
        offsets.append(len(whole))
        whole += detokenizer.add(token_id)
    before = max(0, whole.find(text))
    return [min(max(0, offset - before), len(text)) for offset in offsets]
