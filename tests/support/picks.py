"""Rows that a decoder is to pick tokens from, written as a test reads best."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernels.backend import PickInputs


def picks_of(
    rows: Sequence[int] = (),
    *,
    temperature: float | Sequence[float] = 0.0,
    top_k: int | Sequence[int] = 0,
    top_p: float | Sequence[float] = 1.0,
    min_p: float | Sequence[float] = 0.0,
    draw: float | Sequence[float] = 0.0,
) -> PickInputs:
    """Picks from `rows`; each parameter is one for all rows, or one for each."""

    def column(value: float | Sequence[float], dtype: type) -> np.ndarray:
        return np.broadcast_to(np.asarray(value, dtype), len(rows)).copy()

    return PickInputs(
        rows=np.array(rows, dtype=np.int32),
        temperature=column(temperature, np.float64),
        top_k=column(top_k, np.int32),
        top_p=column(top_p, np.float64),
        min_p=column(min_p, np.float64),
        draw=column(draw, np.float64),
    )
