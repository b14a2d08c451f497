"""Runs of tokens that an output must never contain.

Of each run the last token is banned while the others stand at the end of the output:

    bad words   [4 7 9]  [4 7 2]  [8]        output  … 3 4 7        banned now  2 8 9
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt


class BadWords:
    """Which tokens are banned after the output so far."""

    def __init__(
        self,
        runs: Iterable[tuple[int, ...]],
        output_token_ids: Sequence[int],
        vocab_size: int,
    ) -> None:
        """Runs have at least one token. A run with an id beyond the vocabulary never occurs."""
        possible = [run for run in runs if max(run) < vocab_size]
        self._always = {run[0] for run in possible if len(run) == 1}
        # Runs by the token before their last one: most outputs end with none of these.
        self._longer: dict[int, list[tuple[int, ...]]] = defaultdict(list)
        for run in possible:
            if len(run) > 1:
                self._longer[run[-2]].append(run)
        longest = max((len(run) for run in possible), default=1)
        self._end = deque(output_token_ids, maxlen=longest - 1)
        self.banned = self._find()

    def append(self, token_id: int) -> None:
        """Takes note of a token that was sampled."""
        self._end.append(token_id)
        if self._longer:
            self.banned = self._find()

    def _find(self) -> npt.NDArray[np.int64]:
        """The tokens [num_banned] that may not come next, in order of their ids."""
        ids = set(self._always)
        if self._end:
            end = tuple(self._end)
            for run in self._longer.get(end[-1], ()):
                if end[-len(run) + 1 :] == run[:-1]:
                    ids.add(run[-1])
        return np.array(sorted(ids), dtype=np.int64)
