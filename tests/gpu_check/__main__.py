"""Checks and measures the GPU path on this machine: python -m tests.gpu_check

Exit status: 0 if all is well, 1 if anything failed, 2 without a GPU.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from tests.gpu_check.outcome import NoDeviceError, Outcome, Section
from tests.gpu_check.report import Lines, markdown, summary, tables
from tests.gpu_check.supervisor import Job, Supervisor
from tests.gpu_check.worker import work

_INTERPRETED = (Section.KERNELS, Section.DECODER, Section.INVARIANCE)


def main() -> int:
    """Runs it."""
    options = _options()
    # Triton is told before anything imports it; the workers inherit it.
    os.environ.pop("TRITON_INTERPRET", None)
    if options.interpret:
        os.environ["TRITON_INTERPRET"] = "1"
    default = _INTERPRETED if options.interpret else tuple(Section)
    sections = tuple(Section(name) for name in options.sections) or default
    job = Job(work, (options.interpret, sections, options.model))
    start = time.monotonic()
    lines, outcomes = Lines(), list[Outcome]()

    def show(outcome: Outcome) -> None:
        lines(outcome)
        outcomes.append(outcome)

    try:
        supervisor = Supervisor(job, options.budget_seconds, show)
    except NoDeviceError as error:
        print(f"gpu-check has no GPU to check: {error}.")
        print("docs/gpu.md says what to install; --interpret tests the script itself on a CPU.")
        return 2
    print("\n".join(supervisor.description), flush=True)
    interrupted = False
    try:
        supervisor.run()
    except KeyboardInterrupt:
        interrupted = True
        print("\ninterrupted; what was found until then:")
    seconds = time.monotonic() - start
    print(tables(outcomes))
    print(f"\n{summary(outcomes)}")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(markdown(supervisor.description, outcomes, seconds), encoding="utf-8")
    print(f"{seconds:.0f} s; the report is in {options.output}")
    return int(interrupted or any(outcome.is_failure for outcome in outcomes))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget-seconds", type=float, default=480.0, help="for all of it")
    parser.add_argument(
        "--interpret", action="store_true",
        help="checks of tiny shapes by Triton's interpreter on a CPU: tests this script",
    )  # fmt: skip
    parser.add_argument(
        "--sections", nargs="*", default=(), metavar="SECTION", choices=list(Section),
        help=f"only these of {', '.join(Section)}",
    )  # fmt: skip
    parser.add_argument("--model", type=Path, help="SmolLM2's directory or .gguf file")
    parser.add_argument(
        "--output", type=Path, default=Path(os.environ.get("OUT", "build")) / "gpu-check.md",
        help="the report; default: gpu-check.md in $OUT, or in build/",
    )  # fmt: skip
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
