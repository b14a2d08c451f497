"""Runs the table: one server after another, each scoring the same windows of the same texts."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.bench.quality.figures import Agreement, Change, agreement, change, perplexity
from tests.bench.quality.scoring import Scores, ScoringError, cut, score, tokenize
from tests.support.server import running_server

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.bench.quality.rows import Row
    from tests.bench.quality.texts import Text


@dataclass(frozen=True, slots=True)
class Amount:
    """How much is scored. Lengths in tokens; num_windows of each text, all of it if None."""

    window_tokens: int
    output_tokens: int
    num_windows: int | None
    in_flight: int


@dataclass(frozen=True, slots=True)
class Cut:
    """A text as token ids, and the windows of it that are scored."""

    text: Text
    tokens: list[int]
    windows: list[list[int]]


@dataclass(frozen=True, slots=True)
class TextFigures:
    """One row's figures on one text; those against the baseline are None in its own row."""

    perplexity: float
    change: Change | None
    agreement: Agreement | None


@dataclass(frozen=True, slots=True)
class RowFigures:
    """What was measured of one server."""

    row: Row
    texts: dict[str, TextFigures]
    seconds_to_ready: float
    seconds: float


@dataclass(slots=True)
class Runner:
    """Measures row after row. The first row is the baseline and settles the windows."""

    texts: Sequence[Text]
    amount: Amount
    logs: Path
    on_progress: Callable[[int, int], object]  # windows done, windows in all
    cuts: list[Cut] = field(default_factory=list)
    baseline: dict[str, Scores] = field(default_factory=dict)

    def measure(self, row: Row) -> RowFigures:
        """Serves the row's model, has it score every window, and compares with the baseline.

        Raises RuntimeError with the server's log if it does not start, and ScoringError if it
        refuses a window or cuts the texts into other tokens than the first row did.
        """
        log = self.logs / f"{row.weights}-{row.kv_cache}.log"
        room = self.amount.window_tokens + self.amount.output_tokens
        started = time.perf_counter()
        with running_server(row.model, *row.flags, "--max-model-len", str(room), log=log) as server:
            ready = time.perf_counter()
            scores = asyncio.run(self._score(server.grpc_target))
            ended = time.perf_counter()
        return self._compared(row, scores, ready - started, ended - ready)

    def reference(self, row: Row) -> RowFigures:
        """The same of the row's checkpoint by transformers in float32, without a server."""
        from tests.bench.quality.reference import load_reference, reference_scores

        count = self._counter()
        started = time.perf_counter()
        model = load_reference(row.model)
        ready = time.perf_counter()
        scores = {cut.text.name: reference_scores(model, cut.windows, count) for cut in self.cuts}
        ended = time.perf_counter()
        return self._compared(row, scores, ready - started, ended - ready)

    def _compared(
        self, row: Row, scores: dict[str, Scores], seconds_to_ready: float, seconds: float
    ) -> RowFigures:
        first = not self.baseline
        if first:
            self.baseline = scores
        texts = {
            name: _figures(own, None if first else self.baseline[name])
            for name, own in scores.items()
        }
        return RowFigures(row, texts, seconds_to_ready, seconds)

    def _counter(self) -> Callable[[], object]:
        total = sum(len(cut.windows) for cut in self.cuts)
        done = itertools.count(1)
        self.on_progress(0, total)
        return lambda: self.on_progress(next(done), total)

    async def _score(self, grpc_target: str) -> dict[str, Scores]:
        tokens = [await tokenize(grpc_target, text.content) for text in self.texts]
        if not self.cuts:
            self.cuts = [
                Cut(text, ids, cut(ids, self.amount.window_tokens, self.amount.num_windows))
                for text, ids in zip(self.texts, tokens, strict=True)
            ]
        elif tokens != [text.tokens for text in self.cuts]:
            raise ScoringError("this server's tokeniser cuts the texts into other tokens")
        count = self._counter()
        return {
            text.text.name: await score(
                grpc_target,
                text.windows,
                self.amount.output_tokens,
                self.amount.in_flight,
                count,
            )
            for text in self.cuts
        }


def _figures(scores: Scores, baseline: Scores | None) -> TextFigures:
    if baseline is None:
        return TextFigures(perplexity(scores), None, None)
    return TextFigures(perplexity(scores), change(scores, baseline), agreement(scores, baseline))
