"""Harms a fleet for some minutes and keeps the books: python -m tests.chaos

Two routers and three engines with a tiny model, whose answers are as checkable as a large one's.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.campaign import Plan, Report, run
from tests.chaos.every_token import kill_at_every_token
from tests.chaos.leavers import leave_at_any_token
from tests.chaos.timeline import BOUNDS, measure
from tests.support.tiny_models import make_tiny

LEAVING_ROUNDS = 200


def main() -> int:
    """Runs it; the exit status is 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31), help="repeats a run")
    parser.add_argument("--requests", type=int, default=2000, help="at least so many")
    parser.add_argument("--faults", type=int, default=100, help="at least so many")
    parser.add_argument("--minutes", type=float, default=10.0, help="the storm's, at most")
    parser.add_argument("--keep", type=Path, help="directory for the logs; else a temporary one")
    parser.add_argument("--storm-only", action="store_true", help="leave the rest out")
    options = parser.parse_args()
    logging.getLogger("router_svc").setLevel(logging.ERROR)  # engines are lost on purpose
    plan = Plan(options.seed, options.requests, options.faults, options.minutes * 60)
    with tempfile.TemporaryDirectory(prefix="octavo-chaos-") as scratch:
        directory = options.keep or Path(scratch)
        directory.mkdir(parents=True, exist_ok=True)
        print(f"== Chaos, seed {plan.seed}", flush=True)
        return asyncio.run(_run(directory, plan, storm_only=options.storm_only))


async def _run(directory: Path, plan: Plan, *, storm_only: bool) -> int:
    model = make_tiny("llama", directory / "model", max_position_embeddings=1024)
    wrong: list[str] = []
    if not storm_only:
        wrong += await _timeline(model, _folder(directory, "timeline"))
        wrong += await _every_token(model, _folder(directory, "every-token"))
        wrong += await _leavers(model, _folder(directory, "leavers"), plan.seed)
    print("\n-- A storm", flush=True)
    report = await run(model, _folder(directory, "storm"), plan)
    wrong += report.everything
    if report.ledger.sent < plan.num_requests or report.faults.count < plan.num_faults:
        wrong.append("there was no time for all")
    _show(report)
    for problem in wrong:
        print(f"\nWRONG (seed {plan.seed}): {problem[:2000]}")
    print(f"\n{report.line} (seed {plan.seed}, {report.seconds:.0f} s)")
    return 1 if wrong else 0


def _folder(directory: Path, name: str) -> Path:
    folder = directory / name
    folder.mkdir()
    return folder


async def _timeline(model: Path, scratch: Path) -> Sequence[str]:
    print("\n-- Timeline of a router with one engine", flush=True)
    timeline = await measure(model, scratch)
    for what, seconds in timeline.seconds.items():
        mark = "  LATE" if what in timeline.late else ""
        print(f"  {what:<44} {seconds:>6.2f} s of {BOUNDS[what]:g} s{mark}")
    return [*timeline.problems, *(f"late: {what}" for what in timeline.late)]


async def _every_token(model: Path, scratch: Path) -> Sequence[str]:
    print("\n-- An engine dies after each token of 48", flush=True)
    began = time.monotonic()
    num_kills, altered = await kill_at_every_token(model, scratch)
    print(
        f"  {num_kills} deaths under plain, logprobs, JSON schema and tool call, "
        f"{len(altered)} altered ({time.monotonic() - began:.0f} s)"
    )
    return altered


async def _leavers(model: Path, scratch: Path, seed: int) -> Sequence[str]:
    print(f"\n-- {LEAVING_ROUNDS} rounds of eight streams, of which one to seven leave", flush=True)
    began = time.monotonic()
    ledger, problems = await leave_at_any_token(model, scratch, rounds=LEAVING_ROUNDS, seed=seed)
    print(
        f"  {ledger.cancelled} left, {ledger.answered} stayed, {len(ledger.lost)} lost, "
        f"{len(ledger.altered)} altered ({time.monotonic() - began:.0f} s)"
    )
    return [*problems, *ledger.lost, *ledger.altered, *ledger.unexcused]


def _show(report: Report) -> None:
    print(f"\n{report.ledger.table()}")
    for kind, count in sorted(report.faults.done.items()):
        print(f"  fault: {kind:<51} {count:>7}")
    print(f"  choices preempted in bursts {report.faults.num_preempted:>38}")
    for what, seconds in sorted(report.faults.slowest.items()):
        print(f"  longest {what:<50} {seconds:>5.1f} s")


if __name__ == "__main__":
    sys.exit(main())
