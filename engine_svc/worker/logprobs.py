"""Log-probabilities as reported: of the model's distribution, before any sampling parameter.

They are computed row by row in float64 and rounded to float32 once, so a row's numbers depend on
that row alone, whatever else is in the batch and however many threads there are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from engine_svc.batch import TokenLogprobs
from kernels.reference.ranking import likeliest_ids, rank

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

# Rows looked at together: for a vocabulary of 262144, 64 take 16 MiB beside the logits.
ROWS_PER_SLICE = 64

_LOWEST = np.finfo(np.float32).min  # finite logits have finite log-probabilities


def no_logprobs(top_k: int) -> TokenLogprobs:
    """The entry of a prompt's first token, which nothing predicts: NaN and rank 0.

    It has as many places as other entries, so that entries pack into one array.
    """
    return TokenLogprobs(math.nan, 0, (0,) * top_k, (math.nan,) * top_k)


def token_logprobs(row: npt.NDArray[np.float32], token_id: int, top_k: int) -> TokenLogprobs:
    """Log-probability of a token under finite logits row [vocab_size], its rank, and the top_k.

    Equal logits rank by lower token id, here and among the likeliest. At most vocab_size likeliest.
    """
    maximum = np.float64(row.max())
    log_sum = np.log(np.exp(row.astype(np.float64) - maximum).sum())
    top_ids = likeliest_ids(row, min(top_k, row.size))
    wanted = np.append(top_ids, token_id)
    exact = row[wanted].astype(np.float64) - maximum - log_sum
    values = np.maximum(exact, _LOWEST).astype(np.float32).tolist()
    return TokenLogprobs(
        values[-1], rank(row, token_id), tuple(top_ids.tolist()), tuple(values[:-1])
    )


def rows_logprobs(
    logits: npt.NDArray[np.float32], token_ids: Sequence[int], top_k: int
) -> tuple[TokenLogprobs, ...] | None:
    """Entries for logits [num_rows, vocab_size] and the token after each.

    None if a logit is not finite. Holds no more than ROWS_PER_SLICE rows beside the logits.
    """
    entries: list[TokenLogprobs] = []
    for start in range(0, len(token_ids), ROWS_PER_SLICE):
        rows = logits[start : start + ROWS_PER_SLICE]
        if not np.isfinite(rows).all():
            return None
        following = token_ids[start : start + ROWS_PER_SLICE]
        entries += [
            token_logprobs(row, token_id, top_k)
            for row, token_id in zip(rows, following, strict=True)
        ]
    return tuple(entries)
