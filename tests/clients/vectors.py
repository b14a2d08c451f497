"""What must hold of the embeddings that every client gets."""

from __future__ import annotations

import numpy as np


def check_embeddings(vectors: list[list[float]]) -> None:
    """Of a cat, a kitten and interest rates: the first two mean nearly the same."""
    array = np.array(vectors)
    assert array.shape == (3, 384)  # all-MiniLM-L6-v2
    assert np.allclose(np.linalg.norm(array, axis=1), 1, atol=1e-5)
    likeness = array @ array[0]
    assert likeness[1] > 0.5 > likeness[2]
