"""Harms a cluster for some minutes and keeps the books: python -m tests.chaos

Two routers and three engines with a tiny model, whose answers are as checkable as a large one's.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import tempfile
from pathlib import Path

from tests.chaos.campaign import Plan, Report, run
from tests.support.tiny_models import make_tiny


def main() -> int:
    """Runs it; the exit status is 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31), help="repeats a run")
    parser.add_argument("--requests", type=int, default=2000, help="at least so many")
    parser.add_argument("--faults", type=int, default=100, help="at least so many")
    parser.add_argument("--minutes", type=float, default=12.0, help="at most")
    parser.add_argument("--keep", type=Path, help="directory for the logs; else a temporary one")
    options = parser.parse_args()
    plan = Plan(options.seed, options.requests, options.faults, options.minutes * 60)
    with tempfile.TemporaryDirectory(prefix="octavo-chaos-") as scratch:
        directory = options.keep or Path(scratch)
        directory.mkdir(parents=True, exist_ok=True)
        print(f"== Chaos, seed {plan.seed}", flush=True)
        model = make_tiny("llama", directory / "model", max_position_embeddings=1024)
        report = asyncio.run(run(model, directory, plan))
    show(report, plan)
    return 1 if report.everything or report.faults.count < plan.num_faults else 0


def show(report: Report, plan: Plan) -> None:
    """The table, what was wrong, and the line."""
    print(f"\n{report.ledger.table()}")
    for kind, count in sorted(report.faults.done.items()):
        print(f"  fault: {kind:<51} {count:>7}")
    print(f"  choices preempted in bursts {report.faults.num_preempted:>38}")
    for what, seconds in sorted(report.faults.slowest.items()):
        print(f"  longest {what:<50} {seconds:>5.1f} s")
    for problem in report.everything:
        print(f"\nWRONG (seed {plan.seed}): {problem[:2000]}")
    print(f"\n{report.line} (seed {plan.seed}, {report.seconds:.0f} s)")


if __name__ == "__main__":
    sys.exit(main())
