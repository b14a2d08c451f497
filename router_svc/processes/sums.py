"""The metrics of several processes as if they were one.

Counts of a process that died stay in the sum, which would otherwise go back; its gauges vanish.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import Metric

if TYPE_CHECKING:
    from collections.abc import Iterable

# A family as JSON: name, documentation, type, and samples of name, labels, value.
Family = list[Any]

_CREATED = "_created"  # when a series began: of several, the first


def to_json(families: Iterable[Metric]) -> list[Family]:
    """Families as they travel."""
    return [
        [
            family.name,
            family.documentation,
            family.type,
            [[sample.name, dict(sample.labels), sample.value] for sample in family.samples],
        ]
        for family in families
    ]


def from_json(families: Iterable[Family]) -> list[Metric]:
    """The same, as prometheus_client has them."""
    metrics = []
    for name, documentation, kind, samples in families:
        metric = Metric(name, documentation, kind)
        for sample_name, labels, value in samples:
            metric.add_sample(sample_name, labels, value)
        metrics.append(metric)
    return metrics


class Totals:
    """What is known of each process, and what is kept of those that are gone."""

    def __init__(self) -> None:
        self._known: dict[int, list[Family]] = {}
        self._kept: list[Family] = []

    def update(self, process: int, families: list[Family]) -> None:
        """A process tells its metrics."""
        self._known[process] = families

    def forget(self, process: int) -> None:
        """A process is gone."""
        families = self._known.pop(process, [])
        counts = [family for family in families if family[2] != "gauge"]
        self._kept = added([self._kept, counts])

    def sum(self) -> list[Family]:
        """All together."""
        return added([self._kept, *self._known.values()])


def added(parts: Iterable[Iterable[Family]]) -> list[Family]:
    """Families of several processes, sample by sample."""
    families: dict[str, Family] = {}
    values: dict[str, dict[tuple[str, ...], list[Any]]] = {}
    for part in parts:
        for name, documentation, kind, samples in part:
            family = families.setdefault(name, [name, documentation, kind, []])
            sums = values.setdefault(name, {})
            for sample_name, labels, value in samples:
                key = (sample_name, *(text for pair in sorted(labels.items()) for text in pair))
                if (known := sums.get(key)) is None:
                    sums[key] = [sample_name, labels, value]
                    family[3].append(sums[key])
                elif sample_name.endswith(_CREATED):
                    known[2] = min(known[2], value)
                else:
                    known[2] += value
    return list(families.values())
