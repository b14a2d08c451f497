"""best_of: more answers are sampled than returned, and the likeliest are chosen."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from router_svc.errors import invalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from octavo.inference.v1 import inference_pb2 as pb

    from router_svc.generation_types import Logprob


def num_samples(request: pb.CreateCompletionRequest, n: int, *, streamed: bool) -> int:
    """Answers to sample for each prompt, of which `n` are returned.

    Raises ApiError for fewer, and for more in a stream, which cannot wait to know the best.
    """
    samples = request.best_of if request.HasField("best_of") else n
    if samples < n:
        raise invalid("best_of", f"best_of ({samples}) is below n ({n})")
    if streamed and samples > n:
        raise invalid("best_of", "which answers are best is known at their end: not for streams")
    return samples


class Likelihoods:
    """How likely the tokens of each choice are."""

    def __init__(self) -> None:
        self._logprobs: defaultdict[int, list[float]] = defaultdict(list)

    def add(self, index: int, entries: Iterable[Logprob]) -> None:
        """Takes note of tokens of the choice with this index."""
        self._logprobs[index] += [entry.logprob for entry in entries]

    def best(
        self, choices: Sequence[pb.CompletionChoice], n: int, samples: int
    ) -> list[pb.CompletionChoice]:
        """The n choices of each prompt that are likeliest a token, the likeliest first.

        `choices` come `samples` a prompt, in the order of their indices; those returned are
        numbered anew.
        """
        if n == samples:
            return list(choices)
        best: list[pb.CompletionChoice] = []
        for first in range(0, len(choices), samples):
            ranked = sorted(choices[first : first + samples], key=self._mean, reverse=True)
            best += ranked[:n]
        for index, choice in enumerate(best):
            choice.index = index
        return best

    def _mean(self, choice: pb.CompletionChoice) -> float:
        logprobs = self._logprobs[choice.index]
        return math.fsum(logprobs) / max(1, len(logprobs))
