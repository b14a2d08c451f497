"""Runs one planned step on the decoder: state, inputs, tokens, log-probabilities.

What a step is asked for, with A decoding, B decoding with log-probabilities, and C prefilling with
prompt log-probabilities (row i of a prompt predicts the token at position i + 1):

    rows          [ a57 | b31 | c16 c17 c18 c19 ]
    picks.rows    [ a57 ]                            the decoder picks a58
    logits_rows   [ b31 | c16 c17 c18 c19 ]          rows that sample first, then rows of prompts
    used for        b32   c17 c18 c19 c20

With guesses g58 and g59, A has the rows a57 g58 g59, and a token is picked from each: a58 always
counts, the next one if g58 was right, the third if both were.

A decoder that computes by itself may get a step before the results of the last one are taken in:
a57 is then the token of a pick of that step, and goes from there to its row on the device.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_svc.batch import PromptLogprobsPart, SampledToken, SampledTokens
from engine_svc.worker.input_batch import InputBatch, StepBuffers
from engine_svc.worker.logprobs import no_logprobs, rows_logprobs
from engine_svc.worker.mask_buffer import MaskBuffer
from engine_svc.worker.sampler import NOT_FINITE, pick_inputs
from engine_svc.worker.step_results import picked_tokens, sampled_tokens, unit_embeddings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from engine_svc.batch import NewRequest, ScheduledBatch, ScheduledChunk
    from engine_svc.worker.input_batch import RequestState
    from engine_svc.worker.sampler import SamplingState
    from kernels.backend import Decoder, PackedAdapter, PickInputs, StepInputs, StepResult

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


@dataclass(frozen=True, slots=True)
class PreparedStep:
    """A step's inputs, and what its results are for."""

    inputs: StepInputs
    prompts: list[_PromptRows]
    sampling: dict[int, RequestState]  # requests that sample, in the plan's order
    plain: list[ScheduledChunk]  # of those, whose tokens the decoder picks
    others: list[int]  # and the keys of those that need logits
    embedded: list[int]  # keys of requests whose hidden state is wanted
    failed: dict[int, str]


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
        self._last_plain: list[ScheduledChunk] = []  # whose tokens the last step picks

    def execute(self, plan: ScheduledBatch) -> SampledTokens:
        """Computes one step. Raises ValueError if the plan does not fit the state or the limits."""
        step = self.prepare(plan)
        if step is None:
            return SampledTokens(())
        started = time.perf_counter()
        result = self._decoder.step(step.inputs)
        return self.complete(step, result, time.perf_counter() - started)

    def prepare(self, plan: ScheduledBatch) -> PreparedStep | None:
        """Takes a plan in; None if nothing is computed. The inputs hold until the next call.

        Raises ValueError if the plan does not fit the state or the limits.
        """
        for key in plan.removed:
            self._remove(key)
        for request in plan.joined:
            self._batch.join(request, self._first_prompt_logprob(request))
        for chunk in plan.chunks:
            self._batch.append_blocks(chunk.key, chunk.new_block_ids)
            if chunk.draft_token_ids:
                self._take_drafts(chunk)
        if not plan.chunks:
            return None

        failed: dict[int, str] = {}
        prompts: list[_PromptRows] = []
        sampling: dict[int, RequestState] = {}
        last_rows: dict[int, int] = {}
        plain: list[ScheduledChunk] = []
        others: list[int] = []
        awaiting: list[ScheduledChunk] = []
        embedded: dict[int, int] = {}
        end = 0
        for chunk in plan.chunks:
            start, end = end, end + chunk.num_tokens
            state = self._batch[chunk.key]
            if (rows := self._prompt_rows(chunk, state, start, failed)) is not None:
                prompts.append(rows)
            if chunk.embeds:
                embedded[chunk.key] = end - 1
            if chunk.awaits:
                awaiting.append(chunk)
            if not chunk.samples:
                continue
            sampling[chunk.key] = state
            last_rows[chunk.key] = end - 1
            if state.sampling.plain:
                plain.append(chunk)
            else:
                others.append(chunk.key)
        logits_rows = [last_rows[key] for key in others]
        for prompt in prompts:
            logits_rows += prompt.rows
        picks = self._pick_inputs(plain, last_rows, failed)
        inputs = self._batch.fill(
            plan.chunks,
            picks,
            logits_rows,
            self._buffers,
            tuple(embedded.values()),
            self._picked_before(awaiting) if awaiting else {},
        )
        self._last_plain = plain
        return PreparedStep(inputs, prompts, sampling, plain, others, list(embedded), failed)

    def complete(
        self, step: PreparedStep, result: StepResult, kernel_seconds: float
    ) -> SampledTokens:
        """What a prepared step produced, with its tokens taken note of; once, and in order.

        Of requests that were removed since it was prepared nothing is noted.
        """
        failed, num_others = step.failed, len(step.others)
        embeddings = tuple(unit_embeddings(step.embedded, result.hidden, failed))
        parts = self._report_prompts(step.prompts, result.logits[num_others:], failed)
        tokens = dict(picked_tokens(step.plain, result.token_ids.tolist(), failed))
        if step.others:
            states = {key: step.sampling[key] for key in step.others}
            tokens |= sampled_tokens(states, result.logits[:num_others], failed)
        ordered = tuple(
            token
            for key, state in step.sampling.items()
            for token in self._recorded(key, state, tokens.get(key, ()), failed)
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

    def _picked_before(self, awaiting: Sequence[ScheduledChunk]) -> dict[int, int]:
        """For each request whose last token is not known, the pick of the last step that gives it.

        Raises ValueError where none does, or where more is needed than that pick.
        """
        picks, num_picks = {}, 0
        for chunk in self._last_plain:
            # How many tokens guesses brought is known from the results only.
            if not chunk.draft_token_ids:
                picks[chunk.key] = num_picks
            num_picks += 1 + len(chunk.draft_token_ids)
        for chunk in awaiting:
            sampling = self._batch[chunk.key].sampling
            needed = chunk.draft_token_ids or sampling.matcher is not None or not sampling.plain
            if needed or chunk.key not in picks:
                raise ValueError(f"request {chunk.key} awaits a token that it needs to know")
        return {chunk.key: picks[chunk.key] for chunk in awaiting}

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
            if not chunk.draft_token_ids:
                rows.append(last_rows[chunk.key])
                states.append(self._batch[chunk.key].sampling)
                guessed.append(chunk.awaits)  # the token before it is not taken note of yet
                continue
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

    def _recorded(
        self, key: int, state: RequestState, tokens: Sequence[SampledToken], failed: dict[int, str]
    ) -> Iterator[SampledToken]:
        """A request's tokens as they are taken note of, up to one that completes its grammar."""
        if state.removed:
            yield from tokens
            return
        matcher = state.sampling.matcher
        for token in tokens:
            self._batch.append_token(key, token.token_id)
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
