"""What was sent and what came of it. A request that is in no column of the ledger is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Ledger:
    """Every request ends as one of: answered, refused, cancelled, lost."""

    sent: int = 0
    answered: int = 0
    refused: int = 0  # bad inputs, each with its own error
    cancelled: int = 0
    lost: list[str] = field(default_factory=list)
    altered: list[str] = field(default_factory=list)  # an answer, error or prefix that is another
    unexcused: list[str] = field(default_factory=list)  # failures that no fault explains
    outlived: int = 0  # answers for which more than one engine was asked
    retries: Counter[str] = field(default_factory=Counter)  # by reason; clients tried again
    by_kind: Counter[str] = field(default_factory=Counter)
    by_delivery: Counter[str] = field(default_factory=Counter)
    # By router process ("router0.2") and what its client saw: ok, refused, cancelled, failed.
    seen: dict[str, Counter[str]] = field(default_factory=dict)
    logged: dict[str, list[str]] = field(default_factory=dict)

    @property
    def balanced(self) -> bool:
        """Whether every request that was sent has come to exactly one end."""
        return self.sent == self.answered + self.refused + self.cancelled + len(self.lost)

    def saw(self, process: str, what: str, log_names: Iterable[str] = ()) -> None:
        """Notes what became of one attempt at one router process.

        `log_names`: what the lines in the process's log must be of that tell its good end.
        """
        self.seen.setdefault(process, Counter())[what] += 1
        self.logged.setdefault(process, []).extend(log_names)

    def table(self) -> str:
        """The whole, for people."""
        rows = [("requests sent", self.sent), ("  answered", self.answered)]
        rows += [("  refused: bad inputs", self.refused), ("  cancelled", self.cancelled)]
        rows += [("  lost", len(self.lost)), ("altered", len(self.altered))]
        rows += [("answers that outlived an engine, or found one full", self.outlived)]
        rows += [("failures that no fault excuses", len(self.unexcused))]
        rows += [(f"of kind {kind}", count) for kind, count in sorted(self.by_kind.items())]
        rows += [(f"delivered as {how}", count) for how, count in sorted(self.by_delivery.items())]
        rows += [(f"client retries: {why}", count) for why, count in self.retries.most_common()]
        return "\n".join(f"  {name:<58} {count:>7}" for name, count in rows)
