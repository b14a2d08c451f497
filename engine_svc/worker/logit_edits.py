"""What a request's parameters change in its logits before a token is picked.

The order is that of `SamplingParams`: allowed ids, bias, repetition, frequency and presence
penalty, minimum length, bad words. The last two win over a bias, so that a request which favours an
end token still cannot end early.
All arithmetic is float32, as in transformers' logits processors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine_svc.worker.bad_words import BadWords

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from engine_svc.sampling_params import SamplingParams


class TokenCounts:
    """How often each token occurred; adding one and listing the distinct ones are both cheap."""

    def __init__(self, vocab_size: int) -> None:
        self._counts = np.zeros(vocab_size, dtype=np.int32)
        self._distinct = np.zeros(64, dtype=np.int64)
        self._num_distinct = 0

    def extend(self, token_ids: Sequence[int]) -> None:
        """Counts many tokens. Ids beyond the vocabulary have no logit and are ignored."""
        ids = np.asarray(token_ids, dtype=np.int64)
        ids, counts = np.unique(ids[ids < self._counts.size], return_counts=True)
        new = ids[self._counts[ids] == 0]
        self._counts[ids] += counts.astype(np.int32)
        self._remember(new)

    def add(self, token_id: int) -> None:
        """Counts one token, which is within the vocabulary."""
        if self._counts[token_id] == 0:
            self._remember(np.array([token_id], dtype=np.int64))
        self._counts[token_id] += 1

    def _remember(self, new: npt.NDArray[np.int64]) -> None:
        end = self._num_distinct + new.size
        if end > self._distinct.size:
            self._distinct = np.resize(self._distinct, max(end, 2 * self._distinct.size))
        self._distinct[self._num_distinct : end] = new
        self._num_distinct = end

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        """The distinct tokens [num_distinct], in no particular order."""
        return self._distinct[: self._num_distinct]

    @property
    def counts(self) -> npt.NDArray[np.int32]:
        """How often each of `ids` occurred."""
        return self._counts[self.ids]


class LogitEdits:
    """The edits of one request, and what it has seen so far.

    `num_outputs` counts the tokens sampled, those of earlier attempts included.
    """

    def __init__(
        self,
        params: SamplingParams,
        prompt_token_ids: Sequence[int],
        output_token_ids: Sequence[int],
        vocab_size: int,
    ) -> None:
        self._params = params
        self._allowed = _ids_within(params.allowed_token_ids, vocab_size)
        self._masked = _ids_within(params.masked_until_min_tokens, vocab_size)
        self._bias_ids = _ids_within(params.logit_bias, vocab_size)
        self._bias = np.array([params.logit_bias[i] for i in self._bias_ids.tolist()], np.float32)
        self.num_outputs = len(output_token_ids)
        self._seen: TokenCounts | None = None  # prompt and output
        self._output: TokenCounts | None = None
        if params.repetition_penalty != 1.0:
            self._seen = TokenCounts(vocab_size)
            self._seen.extend(prompt_token_ids)
            self._seen.extend(output_token_ids)
        if params.frequency_penalty != 0.0 or params.presence_penalty != 0.0:
            self._output = TokenCounts(vocab_size)
            self._output.extend(output_token_ids)
        self._bad_words: BadWords | None = None
        if params.bad_words:
            self._bad_words = BadWords(params.bad_words, output_token_ids, vocab_size)
        self._always_active = (
            bool(params.allowed_token_ids)
            or self._bias_ids.size > 0
            or self._seen is not None
            or self._output is not None
        )
        self._active_below = params.min_tokens if self._masked.size > 0 else 0  # output tokens

    @property
    def active(self) -> bool:
        """Whether `apply` changes anything now."""
        return (
            self._always_active
            or self.num_outputs < self._active_below
            or (self._bad_words is not None and self._bad_words.banned.size > 0)
        )

    def append(self, token_id: int) -> None:
        """Takes note of a token that was sampled."""
        self.num_outputs += 1
        if self._seen is not None:
            self._seen.add(token_id)
        if self._output is not None:
            self._output.add(token_id)
        if self._bad_words is not None:
            self._bad_words.append(token_id)

    def apply(self, row: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Logits row [vocab_size] after the edits, as a copy if there are any.

        -inf stands where a token must not be sampled.
        """
        if not self.active:
            return row
        params = self._params
        if params.allowed_token_ids:
            edited = np.full_like(row, -np.inf)
            edited[self._allowed] = row[self._allowed]
        else:
            edited = row.copy()
        edited[self._bias_ids] += self._bias
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # the sampler checks
            self._penalise(edited)
        if self.num_outputs < params.min_tokens:
            edited[self._masked] = -np.inf
        if self._bad_words is not None:
            edited[self._bad_words.banned] = -np.inf
        return edited

    def _penalise(self, row: npt.NDArray[np.float32]) -> None:
        params = self._params
        if self._seen is not None:
            ids, penalty = self._seen.ids, np.float32(params.repetition_penalty)
            values = row[ids]
            row[ids] = np.where(values < 0, values * penalty, values / penalty)
        if self._output is not None:
            ids, counts = self._output.ids, self._output.counts.astype(np.float32)
            row[ids] -= np.float32(params.frequency_penalty) * counts
            row[ids] -= np.float32(params.presence_penalty)


def _ids_within(token_ids: Iterable[int], vocab_size: int) -> npt.NDArray[np.int64]:
    """Ids that have a logit; a configuration may name end tokens that the model cannot produce."""
    return np.array([i for i in token_ids if i < vocab_size], dtype=np.int64)
