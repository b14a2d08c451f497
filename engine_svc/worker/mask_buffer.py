"""Room for the token masks of one step, kept from step to step."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine_svc.constraints.grammar import num_words


class MaskBuffer:
    """Masks over a model's vocabulary, one bit a token."""

    def __init__(self, vocab_size: int) -> None:
        self._masks = np.zeros((0, num_words(vocab_size)), dtype=np.uint32)

    def room(self, count: int) -> npt.NDArray[np.uint32]:
        """Masks [count, num_words] with any content; they hold until the next call."""
        if count > len(self._masks):
            self._masks = np.zeros((count, self._masks.shape[1]), dtype=np.uint32)
        return self._masks[:count]
