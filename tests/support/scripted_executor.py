"""A worker without a model, for tests of scheduler and engine: no torch, microseconds a step.

It keeps requests by the rules of `engine_svc.batch` and asserts that every plan follows them.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from engine_svc.batch import (
    Embedding,
    NewRequest,
    PromptLogprobsPart,
    SampledToken,
    SampledTokens,
    ScheduledBatch,
    ScheduledChunk,
    TokenLogprobs,
)
from tests.support.marked_adapter import MarkedAdapter

Pick = Callable[[Sequence[int], Sequence[int]], int]  # (prompt, output so far) -> next token


def mixed_token(prompt: Sequence[int], output: Sequence[int]) -> int:
    """A token below 1000 that depends on every token before it."""
    mix = 17
    for token_id in (*prompt, *output):
        mix = (mix * 31 + token_id) % 1_000_003
    return mix % 1000


def script(*token_ids: int) -> Pick:
    """Gives every request these tokens in turn, then the last one forever."""
    return lambda _prompt, output: token_ids[min(len(output), len(token_ids) - 1)]


def logprobs_of(token_id: int, top_k: int) -> TokenLogprobs:
    """What this worker reports of a token; every number is exact in float32."""
    tops = tuple(-(i + 1) / 4 for i in range(top_k))
    return TokenLogprobs(-(token_id % 8 + 1) / 4, token_id % 8 + 1, tuple(range(top_k)), tops)


@dataclass
class _Request:
    joined: NewRequest
    output: list[int]
    num_blocks: int
    next_prompt_logprob: int
    num_computed: int | None = field(default=None)  # None until the first chunk


class ScriptedExecutor:
    """Samples what `pick` says, plus the mark of the request's adapter. `batches` are the plans so
    far, `adapters` those in slots."""

    def __init__(self, pick: Pick = mixed_token, *, block_size: int = 16) -> None:
        self.batches: list[ScheduledBatch] = []
        self.closed = False
        self.adapters: dict[int, MarkedAdapter] = {}
        self._pick = pick
        self._block_size = block_size
        self._requests: dict[int, _Request] = {}
        self._reported: dict[int, int] = {}  # key to the next prompt position, also once removed
        self._failures: dict[int, str] = {}
        self._error: BaseException | None = None
        self._gate = threading.Event()
        self._gate.set()
        self._held = threading.Event()

    def hold(self) -> None:
        """Makes the next step wait for `release`."""
        self._held.clear()
        self._gate.clear()

    def wait_until_held(self, timeout: float = 60.0) -> None:
        """Returns once a step waits."""
        assert self._held.wait(timeout), "no step was submitted"

    def release(self) -> None:
        """Lets steps run."""
        self._gate.set()

    def fail(self, key: int, message: str = "logits are not finite") -> None:
        """Makes the request's next chunk fail."""
        self._failures[key] = message

    def raise_next(self, error: BaseException) -> None:
        """Makes the next step raise."""
        self._error = error

    def set_adapter(self, slot: int, adapter: MarkedAdapter | None) -> None:
        """Puts an adapter into a slot, or empties it."""
        if adapter is None:
            del self.adapters[slot]
        else:
            assert slot not in self.adapters, f"slot {slot} is taken"
            self.adapters[slot] = adapter

    def close(self) -> None:
        """Ends the worker, and a step that waits."""
        self.closed = True
        self.release()

    def submit(self, batch: ScheduledBatch) -> SampledTokens:
        """Computes one step."""
        assert not self.closed, "a step after close"
        self.batches.append(batch)
        self._held.set()
        self._gate.wait()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        for key in batch.removed:
            del self._requests[key]
        for request in batch.joined:
            self._join(request)
        tokens, parts, failed, embeddings = [], [], [], []
        for chunk in batch.chunks:
            self._compute(chunk)
            if chunk.key in self._failures:
                failed.append((chunk.key, self._failures.pop(chunk.key)))
                continue
            parts += self._prompt_logprobs(chunk)
            if chunk.samples:
                tokens.append(self._sample(chunk.key))
            if chunk.embeds:
                prompt = self._requests[chunk.key].joined.prompt_token_ids
                embeddings.append(Embedding(chunk.key, np.array([sum(prompt), len(prompt)])))
        return SampledTokens(tuple(tokens), tuple(parts), tuple(failed), tuple(embeddings))

    def _join(self, request: NewRequest) -> None:
        assert request.key not in self._requests, f"{request.key} joins twice"
        num_prompt, params = len(request.prompt_token_ids), request.sampling
        if params.prompt_logprobs is None or request.output_token_ids:
            first = num_prompt
        else:
            first = self._reported.get(request.key, min(params.prompt_logprobs_from, num_prompt))
        output, num_blocks = list(request.output_token_ids), len(request.block_ids)
        self._requests[request.key] = _Request(request, output, num_blocks, first)

    def _compute(self, chunk: ScheduledChunk) -> None:
        request = self._requests[chunk.key]
        start, end = chunk.first_position, chunk.first_position + chunk.num_tokens
        known = len(request.joined.prompt_token_ids) + len(request.output)
        if request.num_computed is None:
            assert start <= request.num_blocks * self._block_size, f"{chunk} skips tokens"
        else:
            assert start == request.num_computed, f"{chunk} does not go on where {start} ended"
        request.num_blocks += len(chunk.new_block_ids)
        assert start < end <= known, f"{chunk} goes beyond the {known} known tokens"
        assert end <= request.num_blocks * self._block_size, f"{chunk} has too few blocks"
        ends = chunk.samples or chunk.embeds
        assert not ends or end == known, f"{chunk} samples before token {known}"
        request.num_computed = end

    def _prompt_logprobs(self, chunk: ScheduledChunk) -> list[PromptLogprobsPart]:
        request = self._requests[chunk.key]
        prompt, top_k = request.joined.prompt_token_ids, request.joined.sampling.prompt_logprobs
        first = request.next_prompt_logprob
        end = min(chunk.first_position + chunk.num_tokens + 1, len(prompt))
        if top_k is None or first >= end:
            return []
        assert chunk.first_position < max(first, 1), f"{chunk} skips the prompt's position {first}"
        entries = [logprobs_of(prompt[at], top_k) for at in range(first, end)]
        if first == 0:
            entries[0] = TokenLogprobs(math.nan, 0, (0,) * top_k, (math.nan,) * top_k)
        self._reported[chunk.key] = request.next_prompt_logprob = end
        return [PromptLogprobsPart(chunk.key, first, tuple(entries))]

    def _sample(self, key: int) -> SampledToken:
        request = self._requests[key]
        token_id = self._pick(request.joined.prompt_token_ids, request.output)
        if request.joined.adapter_slot >= 0:
            token_id = (token_id + self.adapters[request.joined.adapter_slot].mark) % 1000
        request.output.append(token_id)
        top_k = request.joined.sampling.logprobs
        return SampledToken(key, token_id, None if top_k is None else logprobs_of(token_id, top_k))
