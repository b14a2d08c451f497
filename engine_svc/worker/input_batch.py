"""What the worker keeps of each request between steps, and the decoder's inputs made from it.

Requests live in rows of persistent arrays, so that a step is a gather over rows:

    row   token_ids                       block_tables
    0     [ p p p p o o o . . . . . ]     [ 3 9 . . ]      num_tokens 7
    1     [ . . . . . . . . . . . . ]     [ . . . . ]      free
    2     [ p p p p p p . . . . . . ]     [ 2 5 . . ]      num_tokens 6

The arrays are zero pages until a request writes them: their size costs address space, not memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from engine_svc.worker.sampler import SamplingState
from kernels.backend import StepInputs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from engine_svc.batch import NewRequest, ScheduledChunk
    from kernels.backend import PickInputs


@dataclass(slots=True)
class RequestState:
    """A request on the worker: where its arrays are, and how it samples."""

    row: int
    num_prompt_tokens: int
    num_tokens: int  # known: prompt and output
    sampling: SamplingState
    next_prompt_logprob: int  # first prompt position that is still to be reported
    num_blocks: int = 0
    adapter_slot: int = -1
    removed: bool = False  # its rows may be another's by now


class InputBatch:
    """The requests that the worker knows, by key.

    Every mistake in a plan that would make the decoder read or write another request's memory
    raises ValueError before the step.
    """

    def __init__(
        self, *, max_num_seqs: int, max_model_len: int, block_size: int, vocab_size: int
    ) -> None:
        self._block_size = block_size
        self._vocab_size = vocab_size
        # One more than max_model_len: the last step of a full context still records its token.
        self._token_ids = np.zeros((max_num_seqs, max_model_len + 1), dtype=np.int32)
        max_blocks = -(-(max_model_len + 1) // block_size)
        self._block_tables = np.zeros((max_num_seqs, max_blocks), dtype=np.int32)
        self._free_rows = list(range(max_num_seqs - 1, -1, -1))
        self._requests: dict[int, RequestState] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def __getitem__(self, key: int) -> RequestState:
        """The request's state. Raises ValueError if it is not here."""
        try:
            return self._requests[key]
        except KeyError:
            raise ValueError(f"request {key} is not among the worker's requests") from None

    def token_ids(self, key: int) -> npt.NDArray[np.int32]:
        """Prompt and output so far [num_tokens], as a view."""
        state = self[key]
        return self._token_ids[state.row, : state.num_tokens]

    def join(self, request: NewRequest, next_prompt_logprob: int) -> None:
        """Takes a request in."""
        if request.key in self._requests:
            raise ValueError(f"request {request.key} joins but is already here")
        num_prompt, num_output = len(request.prompt_token_ids), len(request.output_token_ids)
        if num_prompt + num_output >= self._token_ids.shape[1]:
            raise ValueError(
                f"request {request.key} joins with {num_prompt + num_output} tokens, more than the "
                f"limit of {self._token_ids.shape[1] - 1}"
            )
        if not self._free_rows:
            raise ValueError(f"request {request.key} joins but all {len(self)} rows are taken")
        row = self._free_rows.pop()
        self._token_ids[row, :num_prompt] = request.prompt_token_ids
        self._token_ids[row, num_prompt : num_prompt + num_output] = request.output_token_ids
        self._requests[request.key] = RequestState(
            row,
            num_prompt,
            num_prompt + num_output,
            SamplingState(
                request.sampling,
                request.choice,
                request.prompt_token_ids,
                request.output_token_ids,
                self._vocab_size,
            ),
            next_prompt_logprob,
            adapter_slot=request.adapter_slot,
        )
        self.append_blocks(request.key, request.block_ids)

    def remove(self, key: int) -> RequestState:
        """Lets a request go and returns its last state."""
        state = self[key]
        del self._requests[key]
        state.removed = True
        self._block_tables[state.row, : state.num_blocks] = 0
        self._free_rows.append(state.row)
        return state

    def append_blocks(self, key: int, block_ids: Sequence[int]) -> None:
        """Adds blocks at the end of a request's block table."""
        if not block_ids:
            return
        state = self[key]
        start, end = state.num_blocks, state.num_blocks + len(block_ids)
        if end > self._block_tables.shape[1]:
            raise ValueError(
                f"request {key} has {end} blocks, more than the limit of "
                f"{self._block_tables.shape[1]}"
            )
        self._block_tables[state.row, start:end] = block_ids
        state.num_blocks = end

    def append_token(self, key: int, token_id: int) -> None:
        """Records a token that was sampled."""
        state = self[key]
        self._token_ids[state.row, state.num_tokens] = token_id
        state.num_tokens += 1
        state.sampling.append(token_id)

    def write_drafts(self, key: int, draft_token_ids: Sequence[int]) -> None:
        """Lays guesses where the next tokens will be; they are not recorded as known."""
        state = self[key]
        start, end = state.num_tokens, state.num_tokens + len(draft_token_ids)
        if end > self._token_ids.shape[1]:
            raise ValueError(
                f"request {key} has guesses up to {end} tokens, more than the limit of "
                f"{self._token_ids.shape[1] - 1}"
            )
        self._token_ids[state.row, start:end] = draft_token_ids

    def fill(
        self,
        chunks: Sequence[ScheduledChunk],
        picks: PickInputs,
        logits_rows: Sequence[int],
        into: StepBuffers,
        hidden_rows: Sequence[int] = (),
        picked_before: Mapping[int, int] | None = None,
    ) -> StepInputs:
        """Writes one step's inputs into the buffers; they hold until the next call.

        `picked_before` has, for requests that await their last token, the pick that gives it.

        What is one number a request is worked out in Python: next to a decoder, whose weights push
        everything else out of the caches, each of numpy's functions costs more than a few numbers.
        """
        states = [self[chunk.key] for chunk in chunks]
        first = [chunk.first_position for chunk in chunks]
        ends = [chunk.first_position + chunk.num_tokens for chunk in chunks]
        for chunk, state, end in zip(chunks, states, ends, strict=True):
            self._check(chunk, state, end)
        bounds = [0, *accumulate(chunk.num_tokens for chunk in chunks)]
        rows = np.array([state.row for state in states])
        request_row, position = rows, np.array(first)
        if bounds[-1] > len(chunks):
            count = np.diff(bounds)
            request_row = np.repeat(rows, count)
            position = np.arange(bounds[-1]) + np.repeat(position - bounds[:-1], count)
        index, offset = np.divmod(position, self._block_size)
        slots = self._block_tables[request_row, index] * self._block_size + offset
        adapters = [state.adapter_slot for state in states]
        tables = self._block_tables[rows, : max(1, *(state.num_blocks for state in states))]
        return StepInputs(
            token_ids=into.token_ids.put(self._token_ids[request_row, position]),
            positions=into.positions.put(position),
            slot_mapping=into.slot_mapping.put(slots),
            query_start_loc=into.query_start_loc.put(bounds),
            seq_lens=into.seq_lens.put(ends),
            block_tables=into.block_tables.put(tables.ravel()).reshape(tables.shape),
            picks=picks,
            logits_rows=into.logits_rows.put(logits_rows),
            hidden_rows=np.array(hidden_rows, dtype=np.int32) if hidden_rows else None,
            adapters=np.array(adapters, dtype=np.int32) if max(adapters) >= 0 else None,
            picked=_sources(chunks, bounds, picked_before) if picked_before else None,
        )

    def _check(self, chunk: ScheduledChunk, state: RequestState, end: int) -> None:
        known = state.num_tokens + chunk.awaits + len(chunk.draft_token_ids)
        slots = state.num_blocks * self._block_size
        if end > known:
            reason = "reaches beyond its last known token"
        elif (chunk.samples or chunk.embeds) and end != known:
            reason = "samples or embeds without reaching its last known token"
        elif end > slots:
            reason = "has no block for some of its tokens"
        else:
            return
        raise ValueError(
            f"request {chunk.key} {reason}: the chunk ends at {end}, "
            f"{known} tokens are known and its blocks hold {slots}"
        )


def _sources(
    chunks: Sequence[ScheduledChunk], bounds: Sequence[int], picked_before: Mapping[int, int]
) -> npt.NDArray[np.int32]:
    """The pick that gives each row's token, or -1."""
    sources = np.full(bounds[-1], -1, dtype=np.int32)
    for chunk, end in zip(chunks, bounds[1:], strict=True):
        if chunk.awaits:
            sources[end - 1] = picked_before[chunk.key]
    return sources


class Int32Buffer:
    """An array that is refilled every step, always in the same memory."""

    def __init__(self, capacity: int) -> None:
        self._array = np.zeros(capacity, dtype=np.int32)

    def put(self, values: npt.NDArray[np.integer] | Sequence[int]) -> npt.NDArray[np.int32]:
        """Writes a row of values; returns them as a view. Raises ValueError if too many."""
        if len(values) > self._array.size:
            raise ValueError(
                f"a step needs {len(values)} entries in a buffer of {self._array.size}"
            )
        view = self._array[: len(values)]
        view[:] = values
        return view


class StepBuffers:
    """Room for the inputs of the largest step."""

    def __init__(
        self,
        *,
        max_num_batched_tokens: int,
        max_num_seqs: int,
        max_model_len: int,
        block_size: int,
    ) -> None:
        max_blocks = -(-(max_model_len + 1) // block_size)
        self.token_ids = Int32Buffer(max_num_batched_tokens)
        self.positions = Int32Buffer(max_num_batched_tokens)
        self.slot_mapping = Int32Buffer(max_num_batched_tokens)
        self.query_start_loc = Int32Buffer(max_num_seqs + 1)
        self.seq_lens = Int32Buffer(max_num_seqs)
        self.block_tables = Int32Buffer(max_num_seqs * max_blocks)
        self.logits_rows = Int32Buffer(max_num_batched_tokens)
