"""Which tokens are the likeliest: a total order, by value and then by lower token id.

Everything here takes one row of logits. Partial sorts may order equal values as they like, so they
are used for values only; ids follow from comparisons with the smallest value kept. That makes the
result a function of the row alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


def top_values(row: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.float32]:
    """The `count` largest values of row [vocab_size], descending; all of them if it has fewer."""
    if count < row.size:
        row = np.partition(row, row.size - count)[row.size - count :]
    return np.sort(row)[::-1].copy()


def ids_down_to(
    row: npt.NDArray[np.float32], smallest: float | np.float32, count: int
) -> npt.NDArray[np.intp]:
    """Ids of the `count` largest values, ascending, given that `smallest` is the last of them."""
    ids = np.flatnonzero(row >= smallest)
    if ids.size > count:
        equal = np.flatnonzero(row[ids] == smallest)
        ids = np.delete(ids, equal[count - ids.size :])
    return ids


def likeliest_ids(row: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.intp]:
    """Ids of the `count` largest values, likeliest first, equal ones by lower id."""
    if count == 0:
        return np.zeros(0, dtype=np.intp)
    ids = ids_down_to(row, top_values(row, count)[-1], min(count, row.size))
    return ids[np.argsort(-row[ids], kind="stable")]


def rank(row: npt.NDArray[np.float32], token_id: int) -> int:
    """Place of a token in that order; 1 is the likeliest."""
    value = row[token_id]
    before = np.count_nonzero(row > value) + np.count_nonzero(row[:token_id] == value)
    return int(before) + 1
