"""What a check is and what came of it. Free of torch: the process that watches needs none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Section(StrEnum):
    """Parts of the run, in their order."""

    KERNELS = "kernels"
    DECODER = "decoder"
    INVARIANCE = "invariance"
    BENCHMARKS = "benchmarks"
    SERVING = "serving"


TITLES = {
    Section.KERNELS: "Each kernel against its reference",
    Section.DECODER: "Whole decoder steps against the reference",
    Section.INVARIANCE: "Equal bits whatever the batch",
    Section.BENCHMARKS: "Kernels against torch and the card's limits",
    Section.SERVING: "Serving",
}
# The share of the whole budget by whose end a section is over. What one leaves, the next has.
ENDS = {
    Section.KERNELS: 0.25,
    Section.DECODER: 0.4,
    Section.INVARIANCE: 0.5,
    Section.BENCHMARKS: 0.7,
    Section.SERVING: 1.0,
}
COLUMNS = {
    Section.BENCHMARKS: (
        "Kernel", "Shape", "µs", "torch µs", "torch / ours", "Bound by", "Share of the limit",
    ),
    Section.SERVING: (
        "Model", "What", "Streams", "Tokens/s", "ms per token", "Bound by", "Share of the limit",
    ),
}  # fmt: skip


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    FAILED = "FAILED"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Findings:
    """What a check has to say: a line, and rows of its section's table."""

    note: str = ""
    rows: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Outcome:
    """A check that has ended, with or without result."""

    section: Section
    name: str
    status: Status
    findings: Findings
    seconds: float = 0.0

    @property
    def is_failure(self) -> bool:
        """Whether something is wrong, and not just absent."""
        return self.status is Status.FAILED


@dataclass(frozen=True)
class Check:
    """Something to find out. `run` raises AssertionError, `Skip`, or anything else: a failure."""

    section: Section
    name: str
    run: Callable[[], Findings]


class Skip(Exception):  # noqa: N818 (an outcome, not an error)
    """Why a check cannot be made on this machine."""


class NoDeviceError(Exception):
    """There is nothing to check on; the message says what is missing."""
