"""What a decoder's results mean for each request: tokens, embeddings, and who has none."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from engine_svc.batch import Embedding, SampledToken
from engine_svc.worker.logprobs import token_logprobs
from engine_svc.worker.sampler import NOT_FINITE, sample
from kernels.backend import NOT_FINITE as NO_TOKEN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from engine_svc.batch import ScheduledChunk, TokenLogprobs
    from engine_svc.worker.input_batch import RequestState


def picked_tokens(
    plain: Sequence[ScheduledChunk], token_ids: list[int], failed: dict[int, str]
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


def sampled_tokens(
    states: Mapping[int, RequestState], logits: npt.NDArray[np.float32], failed: dict[int, str]
) -> Iterator[tuple[int, list[SampledToken]]]:
    """Tokens sampled here, by key; adds to `failed` those that have none."""
    picks = sample(logits, [state.sampling for state in states.values()])
    for i, (key, state) in enumerate(states.items()):
        if i in picks.failures:
            failed[key] = picks.failures[i]
        elif key not in failed:
            token_id = picks.token_ids[i]
            logprobs = _logprobs(logits[i], token_id, state)
            yield key, [SampledToken(key, token_id, logprobs)]


def unit_embeddings(
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
