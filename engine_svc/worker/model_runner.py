"""Runs one planned step on the decoder: state, inputs, tokens, log-probabilities.

What a step is asked for, with A decoding, B decoding with log-probabilities, and C prefilling with
prompt log-probabilities (row i of a prompt predicts the token at position i + 1):

    rows          [ a57 | b31 | c16 c17 c18 c19 ]
    picks.rows    [ a57 ]                            the decoder picks a58
    logits_rows   [ b31 | c16 c17 c18 c19 ]          rows that sample first, then rows of prompts
    used for        b32   c17 c18 c19 c20

With guesses g58 and g59, A has the rows a57 g58 g59, and a token is picked from each: a58 always
counts, the next one if g58 was right, the third if both were.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine_svc.batch import Embedding, PromptLogprobsPart, SampledToken, SampledTokens
from engine_svc.worker.input_batch import InputBatch, StepBuffers
from engine_svc.worker.logprobs import no_logprobs, rows_logprobs, token_logprobs
from engine_svc.worker.mask_buffer import MaskBuffer
from engine_svc.worker.sampler import NOT_FINITE, pick_inputs, sample
from kernels.backend import NOT_FINITE as NO_TOKEN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from engine_svc.batch import NewRequest, ScheduledBatch, ScheduledChunk, TokenLogprobs
    from engine_svc.worker.input_batch import RequestState
    from engine_svc.worker.sampler import SamplingState
    from kernels.backend import Decoder, PackedAdapter, PickInputs

# Requests removed halfway through their prompt log-probabilities are remembered in case they were
# preempted and come back. This is far above what can wait, and bounds what cancelled ones leave.
_MAX_REMEMBERED = 65_536


@dataclass(frozen=True, slots=True)
class _PromptRows:
    """Prompt positions of one request that this step reports, and where their logits come from."""

    key: int
    first_position: int
    has_first_token: bool  # position 0 is among them; it has no logits
    token_ids: list[int]  # the tokens that the rows predict
    rows: range  # of the step
    top_k: int


class ModelRunner:
    """One device's worker: keeps requests between steps and computes what a plan asks for."""

    def __init__(
        self,
        decoder: Decoder,
        *,
        vocab_size: int,
        block_size: int,
        max_num_seqs: int,
        max_model_len: int,
        max_num_batched_tokens: int,
    ) -> None:
        """The decoder's KV pool is allocated. max_model_len counts prompt and output tokens."""
        self._decoder = decoder
        self._batch = InputBatch(
            max_num_seqs=max_num_seqs,
            max_model_len=max_model_len,
            block_size=block_size,
            vocab_size=vocab_size,
        )
        self._buffers = StepBuffers(
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=max_num_seqs,
            max_model_len=max_model_len,
            block_size=block_size,
        )
        self._masks = MaskBuffer(vocab_size)
        self._half_reported: dict[int, int] = {}  # key to its next prompt position

    def execute(self, plan: ScheduledBatch) -> SampledTokens:
        """Computes one step. Raises ValueError if the plan does not fit the state or the limits."""
        for key in plan.removed:
            self._remove(key)
        for request in plan.joined:
            self._batch.join(request, self._first_prompt_logprob(request))
        for chunk in plan.chunks:
            self._batch.append_blocks(chunk.key, chunk.new_block_ids)
            if chunk.draft_token_ids:
                self._take_drafts(chunk)
        if not plan.chunks:
            return SampledTokens(())

        failed: dict[int, str] = {}
        prompts: list[_PromptRows] = []
        last_rows: dict[int, int] = {}  # of requests that sample, in the plan's order
        plain: list[ScheduledChunk] = []
        others: list[int] = []
        embedded: dict[int, int] = {}  # rows of requests whose hidden state is wanted
        end = 0
        for chunk in plan.chunks:
            start, end = end, end + chunk.num_tokens
            state = self._batch[chunk.key]
            if (rows := self._prompt_rows(chunk, state, start, failed)) is not None:
                prompts.append(rows)
            if chunk.embeds:
                embedded[chunk.key] = end - 1
            if not chunk.samples:
                continue
            last_rows[chunk.key] = end - 1
            if state.sampling.plain:
                plain.append(chunk)
            else:
                others.append(chunk.key)
        logits_rows = [last_rows[key] for key in others]
        for prompt in prompts:
            logits_rows += prompt.rows
        picks = self._pick_inputs(plain, last_rows, failed)
        hidden_rows = tuple(embedded.values())
        inputs = self._batch.fill(plan.chunks, picks, logits_rows, self._buffers, hidden_rows)
        started = time.perf_counter()
        result = self._decoder.step(inputs)
        kernel_seconds = time.perf_counter() - started
        embeddings = tuple(_embeddings(embedded, result.hidden, failed))
        parts = self._report_prompts(prompts, result.logits[len(others) :], failed)
        tokens = dict(self._picked(plain, result.token_ids.tolist(), failed))
        if others:
            tokens |= self._sampled(others, result.logits[: len(others)], failed)
        ordered = tuple(
            token for key in last_rows for token in self._recorded(key, tokens.get(key, ()), failed)
        )
        return SampledTokens(
            ordered,
            tuple(parts),
            tuple(failed.items()),
            embeddings,
            result.cpu_seconds,
            kernel_seconds,
        )

    def set_adapter(self, slot: int, adapter: PackedAdapter | None) -> None:
        """Puts a packed LoRA adapter into a slot, or empties it; between steps only."""
        self._decoder.set_adapter(slot, adapter)

    def _pick_inputs(
        self,
        plain: Sequence[ScheduledChunk],
        last_rows: dict[int, int],
        failed: dict[int, str],
    ) -> PickInputs:
        """What the decoder picks: a token after the last known one, and after each guess.

        Adds to `failed` whose grammar can say no more.
        """
        rows: list[int] = []
        states: list[SamplingState] = []
        guessed: list[int] = []
        for chunk in plain:
            num_drafts = len(chunk.draft_token_ids)
            rows += range(last_rows[chunk.key] - num_drafts, last_rows[chunk.key] + 1)
            states += [self._batch[chunk.key].sampling] * (num_drafts + 1)
            guessed += range(num_drafts + 1)
        if all(state.matcher is None for state in states):
            return pick_inputs(rows, states, guessed)
        return pick_inputs(rows, states, guessed, *self._masks_of(plain, failed))

    def _masks_of(
        self, plain: Sequence[ScheduledChunk], failed: dict[int, str]
    ) -> tuple[npt.NDArray[np.uint32], list[int]]:
        """The masks [num_masks, num_words] of a step, and for each picked row its mask or -1."""
        sizes = [
            0 if self._batch[chunk.key].sampling.matcher is None else 1 + len(chunk.draft_token_ids)
            for chunk in plain
        ]
        masks = self._masks.room(sum(sizes))
        mask_of: list[int] = []
        start = 0
        for chunk, size in zip(plain, sizes, strict=True):
            sampling = self._batch[chunk.key].sampling
            if sampling.matcher is None:
                mask_of += [-1] * (1 + len(chunk.draft_token_ids))
                continue
            mask_of += range(start, start + size)
            sampling.matcher.fill_after(
                chunk.draft_token_ids,
                masks[start : start + size],
                may_end=bool(sampling.params.eos_token_ids),
            )
            if sampling.matcher.error is not None:
                failed[chunk.key] = sampling.matcher.error
            start += size
        return masks, mask_of

    def _take_drafts(self, chunk: ScheduledChunk) -> None:
        if not (chunk.samples and self._batch[chunk.key].sampling.plain):
            raise ValueError(f"request {chunk.key} has guesses, but its tokens are not just picked")
        self._batch.write_drafts(chunk.key, chunk.draft_token_ids)

    def _remove(self, key: int) -> None:
        state = self._batch.remove(key)
        if (
            state.sampling.params.prompt_logprobs is not None
            and state.next_prompt_logprob < state.num_prompt_tokens
        ):
            if len(self._half_reported) == _MAX_REMEMBERED:
                del self._half_reported[next(iter(self._half_reported))]
            self._half_reported[key] = state.next_prompt_logprob

    def _first_prompt_logprob(self, request: NewRequest) -> int:
        """The first prompt position to report; the prompt's length if there is none (any more)."""
        params, num_prompt = request.sampling, len(request.prompt_token_ids)
        # Output exists only once the whole prompt was computed, and so was reported.
        if params.prompt_logprobs is None or request.output_token_ids:
            return num_prompt
        return self._half_reported.pop(request.key, min(params.prompt_logprobs_from, num_prompt))

    def _prompt_rows(
        self, chunk: ScheduledChunk, state: RequestState, start: int, failed: dict[int, str]
    ) -> _PromptRows | None:
        """What the chunk, whose rows begin at `start` in the step, can report of its prompt."""
        first, top_k = state.next_prompt_logprob, state.sampling.params.prompt_logprobs
        if top_k is None:
            return None
        end = min(chunk.first_position + chunk.num_tokens + 1, state.num_prompt_tokens)
        if first >= end:
            return None
        predicted = max(first, 1)
        if chunk.first_position >= predicted and predicted < end:
            failed[chunk.key] = (
                f"the log-probabilities of prompt position {predicted} are lost: the step starts "
                f"at position {chunk.first_position}, but they come from the position before theirs"
            )
            return None
        offset = start - chunk.first_position - 1
        return _PromptRows(
            chunk.key,
            first,
            first == 0,
            self._batch.token_ids(chunk.key)[predicted:end].tolist(),
            range(predicted + offset, end + offset),
            top_k,
        )

    def _report_prompts(
        self, prompts: list[_PromptRows], logits: npt.NDArray[np.float32], failed: dict[int, str]
    ) -> list[PromptLogprobsPart]:
        parts, start = [], 0
        for prompt in prompts:
            rows = logits[start : start + len(prompt.rows)]
            start += len(prompt.rows)
            entries = rows_logprobs(rows, prompt.token_ids, prompt.top_k)
            if entries is None:
                failed[prompt.key] = NOT_FINITE
                continue
            if prompt.has_first_token:
                entries = (no_logprobs(prompt.top_k), *entries)
            self._batch[prompt.key].next_prompt_logprob += len(entries)
            parts.append(PromptLogprobsPart(prompt.key, prompt.first_position, entries))
        return parts

    def _picked(
        self, plain: Sequence[ScheduledChunk], token_ids: list[int], failed: dict[int, str]
    ) -> Iterator[tuple[int, list[SampledToken]]]:
        """Tokens that the decoder picked and that count, by key; adds to `failed` who has none."""
        start = 0
        for chunk in plain:
            picked = token_ids[start : start + len(chunk.draft_token_ids) + 1]
            start += len(picked)
            if picked[0] == NO_TOKEN:
                failed.setdefault(chunk.key, NOT_FINITE)
            elif chunk.key not in failed:
                tokens = _accepted(picked, chunk.draft_token_ids)
                yield chunk.key, [SampledToken(chunk.key, token_id, None) for token_id in tokens]

    def _recorded(
        self, key: int, tokens: Sequence[SampledToken], failed: dict[int, str]
    ) -> Iterator[SampledToken]:
        """A request's tokens as they are taken note of, up to one that completes its grammar."""
        for token in tokens:
            self._batch.append_token(key, token.token_id)
            matcher = self._batch[key].sampling.matcher
            if matcher is None:
                yield token
            elif matcher.error is not None:
                failed[key] = matcher.error
                return
            elif matcher.ended:
                yield SampledToken(key, token.token_id, token.logprobs, ends=True)
                return
            else:
                yield token

    def _sampled(
        self, keys: Sequence[int], logits: npt.NDArray[np.float32], failed: dict[int, str]
    ) -> Iterator[tuple[int, list[SampledToken]]]:
        """Tokens sampled here, by key; adds to `failed` those that have none."""
        states = [self._batch[key] for key in keys]
        picks = sample(logits, [state.sampling for state in states])
        for i, (key, state) in enumerate(zip(keys, states, strict=True)):
            if i in picks.failures:
                failed[key] = picks.failures[i]
            elif key not in failed:
                token_id = picks.token_ids[i]
                logprobs = _logprobs(logits[i], token_id, state)
                yield key, [SampledToken(key, token_id, logprobs)]


def _embeddings(
    keys: Iterable[int], hidden: npt.NDArray[np.float32] | None, failed: dict[int, str]
) -> Iterator[Embedding]:
    """Hidden states [len(keys), hidden_size] at length 1; adds to `failed` who has none."""
    if hidden is None:
        return
    for key, row in zip(keys, hidden, strict=True):
        length = math.sqrt(np.square(row, dtype=np.float64).sum())
        if not 0.0 < length < math.inf:
            failed[key] = NOT_FINITE
            continue
        yield Embedding(key, row / np.float32(length))


def _accepted(picked: list[int], drafts: tuple[int, ...]) -> list[int]:
    """Of the tokens picked from a request's rows, those whose row follows right guesses only.

    A row without a token ends them: the next step meets it again, as it would have come to it
    without guesses.
    """
    count = 1
    while count <= len(drafts) and picked[count - 1] == drafts[count - 1]:
        count += 1
    return [token_id for token_id in picked[:count] if token_id != NO_TOKEN]


def _logprobs(
    row: npt.NDArray[np.float32], token_id: int, state: RequestState
) -> TokenLogprobs | None:
    top_k = state.sampling.params.logprobs
    return None if top_k is None else token_logprobs(row, token_id, top_k)
