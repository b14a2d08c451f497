"""What was measured, as it is kept in JSON, and the ratios that follow from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import orjson

from tests.bench.cpu.rows import Row


@dataclass(frozen=True, slots=True)
class Turn:
    """One measurement of one system. `value` is in the row's metric."""

    value: float
    speed: Mapping[str, float] = field(default_factory=dict)
    cpu: Mapping[str, Any] = field(default_factory=dict)
    is_disturbed: bool = False


@dataclass(slots=True)
class RowResult:
    """All turns of a row by system, in order of rounds, and why a system has none."""

    date: str
    turns: dict[str, list[Turn]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RowResult:
        """The inverse of dataclasses.asdict."""
        turns = {name: [Turn(**turn) for turn in turns] for name, turns in value["turns"].items()}
        return cls(value["date"], turns, dict(value["missing"]))


@dataclass(frozen=True, slots=True)
class Comparison:
    """The best system of each side, and how they compare."""

    ours: str
    ours_value: float  # median over rounds
    peer: str | None  # None where the row has no peers
    peer_value: float | None
    ratio: float  # of medians
    low: float  # least and greatest ratio of a single round
    high: float


def compare(row: Row, result: RowResult) -> Comparison | None:
    """None if a side has no measurement."""
    ours = _best(row, row.ours, result)
    if ours is None:
        return None
    our_values = [turn.value for turn in result.turns[ours]]
    if not row.peers:
        middle = median(our_values)
        return Comparison(ours, middle, None, None, middle, min(our_values), max(our_values))
    peer = _best(row, row.peers, result)
    if peer is None:
        return None
    peer_values = [turn.value for turn in result.turns[peer]]
    ratios = [a / b for a, b in zip(our_values, peer_values, strict=False) if b > 0]
    if not ratios:
        return None
    our_middle, peer_middle = median(our_values), median(peer_values)
    ratio = our_middle / peer_middle
    return Comparison(ours, our_middle, peer, peer_middle, ratio, min(ratios), max(ratios))


def _best(row: Row, names: Sequence[str], result: RowResult) -> str | None:
    medians = {
        name: median(turn.value for turn in result.turns[name])
        for name in names
        if result.turns.get(name)
    }
    if not medians:
        return None
    choose = min if row.metric.lower_is_better else max
    return choose(medians, key=medians.__getitem__)


@dataclass(slots=True)
class Campaign:
    """Everything that one JSON file holds."""

    machine: dict[str, Any]
    versions: dict[str, str]
    roof: list[dict[str, float | None]]
    threads: int
    rows: dict[str, RowResult] = field(default_factory=dict)
    systems: dict[str, dict[str, Any]] = field(default_factory=dict)  # start-up and memory

    def write(self, path: Path) -> None:
        """As JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2) + b"\n")

    @classmethod
    def read(cls, path: Path) -> Campaign:
        """What `write` wrote."""
        value = orjson.loads(path.read_bytes())
        value["rows"] = {name: RowResult.from_json(row) for name, row in value["rows"].items()}
        return cls(**value)
