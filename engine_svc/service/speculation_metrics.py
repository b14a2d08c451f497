"""Counters of guesses at next tokens, under vLLM's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import CollectorRegistry

    from engine_svc.scheduling.step_outputs import Draft


class SpeculationMetrics:
    """How many guesses were made, and how many were right."""

    def __init__(self, registry: CollectorRegistry, **labels: str) -> None:
        """Registers the counters; all of them carry `labels`."""
        self._labels = labels

        def counter(name: str, text: str, *more: str) -> Counter:
            return Counter(f"vllm:spec_decode_{name}", text, (*labels, *more), registry=registry)

        self._drafts = counter("num_drafts", "Rows of guesses that were verified.").labels(**labels)
        self._tokens = counter("num_draft_tokens", "Tokens guessed.").labels(**labels)
        self._accepted = counter("num_accepted_tokens", "Guesses that were right.").labels(**labels)
        self._accepted_at = counter(
            "num_accepted_tokens_per_pos", "Right guesses by their place in the row.", "position"
        )

    def on_drafts(self, drafts: Iterable[Draft]) -> None:
        """A step verified guesses."""
        for draft in drafts:
            self._drafts.inc()
            self._tokens.inc(draft.num_tokens)
            self._accepted.inc(draft.num_accepted)
            for position in range(draft.num_accepted):
                self._accepted_at.labels(**self._labels, position=str(position)).inc()
