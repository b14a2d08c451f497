"""A histogram that costs a step next to nothing."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from engine_svc.service.metrics_state import LABELS

if TYPE_CHECKING:
    from collections.abc import Iterable


class StepHistogram(Collector):
    """A histogram for what every step counts: it takes many equal values at once, and without a
    lock, as only the event loop sees it. Shown under each of `names`."""

    def __init__(
        self, names: Iterable[str], text: str, labels: tuple[str, str], bounds: tuple[float, ...]
    ) -> None:
        self._names = tuple(names)
        self._text = text
        self._labels = labels
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """The value was seen `count` times."""
        self._counts[bisect_left(self._bounds, value)] += count
        self._sum += value * count

    def collect(self) -> Iterable[Metric]:
        """The family under each name."""
        ends = [*map(floatToGoString, self._bounds), "+Inf"]
        buckets = list(zip(ends, accumulate(self._counts), strict=True))
        for name in self._names:
            family = HistogramMetricFamily(name, self._text, labels=LABELS)
            family.add_metric(self._labels, buckets, self._sum)
            yield family
