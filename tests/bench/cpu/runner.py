"""Measures rows: every round lets each system work once, in turn, on the same prompts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime

from tests.bench.cpu.catalogue import Catalogue
from tests.bench.cpu.machine import CpuUse, Roof
from tests.bench.cpu.pool import Key, Pool
from tests.bench.cpu.results import RowResult, Turn
from tests.bench.cpu.rows import KERNELS, ROOF, WEIGHTS, Row
from tests.bench.cpu.samples import speed_of
from tests.bench.cpu.systems import NotAvailableError
from tests.bench.cpu.weights import step_weight_bytes
from tests.bench.cpu.work import Work, WorkMaker

MAX_FOREIGN_SHARE = 0.04
ATTEMPTS = 4
PAUSE_SECONDS = 5.0

# Counted by Octavo's engine: CPU seconds of all threads inside kernels.
KERNEL_SECONDS = "octavo_kernel_cpu_seconds_total"


@dataclass(slots=True)
class Runner:
    """Runs rows on the systems of a catalogue."""

    catalogue: Catalogue
    roof: Roof
    rounds: int
    say: Callable[[str], None]
    pool: Pool = field(init=False)
    _makers: dict[str, WorkMaker] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pool = Pool(self.catalogue.system, self._maker, self.say)

    def run(self, row: Row, later: Sequence[Row]) -> Iterator[RowResult]:
        """One row: what is known of it after each turn, which is always the same object.

        Systems that a later row needs are kept running.
        """
        result = RowResult(datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))
        yield result
        missing = self.pool.want(_keys(row), [key for other in later for key in _keys(other)])
        result.missing = {name: reason for (name, _), reason in missing.items()}
        systems = [name for name in (*row.ours, *row.peers) if name not in result.missing]
        for number in range(self.rounds):
            work = self._maker(row.model).make(row.shape, f"{row.name}/{number}")
            # The order turns round, so that a machine that slows down or heats up favours nobody.
            for name in systems if number % 2 == 0 else systems[::-1]:
                if name in result.missing:
                    continue
                try:
                    turn = self._quiet_turn(row, name, work)
                except (NotAvailableError, ValueError) as error:
                    result.missing[name] = str(error)
                    self.say(f"{row.name} {name}: {error}")
                    continue
                result.turns.setdefault(name, []).append(turn)
                flag = " (disturbed)" if turn.is_disturbed else ""
                label = f"{turn.value:.4g} {row.metric.unit}{flag}"
                self.say(f"{row.name} round {number + 1}/{self.rounds} {name}: {label}")
                yield result

    def _quiet_turn(self, row: Row, name: str, work: Work) -> Turn:
        """Tries again while other processes took CPU time; gives the last try in any case."""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(PAUSE_SECONDS)
                # Other prompts: the first ones are in prefix caches now.
                work = self._maker(row.model).make(row.shape, f"{work.prompts[0][:12]}/{attempt}")
            turn = self._turn(row, name, work)
            if not turn.is_disturbed:
                break
        return turn

    def _turn(self, row: Row, name: str, work: Work) -> Turn:
        if name == ROOF:
            return Turn(self.roof.read_gb_s(self.catalogue.threads))
        key = (name, row.model)
        before = self._kernel_seconds(row, key)
        samples, use = self.pool.turn(key, work)
        after = self._kernel_seconds(row, key)
        speed = asdict(speed_of(samples))
        return Turn(
            self._value(row, key, speed, use, after - before),
            speed,
            asdict(use),
            is_disturbed=use.foreign_share > MAX_FOREIGN_SHARE,
        )

    def _value(
        self, row: Row, key: Key, speed: dict[str, float], use: CpuUse, kernel_seconds: float
    ) -> float:
        if row.metric is KERNELS:
            return kernel_seconds / (use.by_process["engine"] + use.by_process["router"])
        if row.metric is WEIGHTS:
            return speed["decode_tok_s"] * self._weight_bytes(key) / 1e9
        return speed[row.metric.key]

    def _weight_bytes(self, key: Key) -> float:
        precision = key[0].split("-")[1]
        return step_weight_bytes(self.catalogue.model_dir(key[1]), precision)

    def _kernel_seconds(self, row: Row, key: Key) -> float:
        if row.metric is not KERNELS:
            return 0.0
        seconds = self.pool.metric(key, KERNEL_SECONDS)
        if seconds is None:
            raise ValueError(f"the engine has no metric {KERNEL_SECONDS}")
        return seconds

    def _maker(self, model: str) -> WorkMaker:
        if model not in self._makers:
            self._makers[model] = WorkMaker(self.catalogue.model_dir(model))
        return self._makers[model]


def _keys(row: Row) -> list[Key]:
    return [(name, row.model) for name in (*row.ours, *row.peers) if name != ROOF]
