"""The real router with a sampler in it, for `tests.bench.router_cost` alone.

    python -m tests.bench.sampled_router COUNTS_FILE router MODEL … (arguments as of router_svc)

While the process uses the CPU, a timer of CPU time interrupts its main thread every millisecond,
and where that is counts as one sample. At SIGUSR1 counting begins, at the end it is written down.
"""

from __future__ import annotations

import atexit
import collections
import json
import signal
import sys
from pathlib import Path
from types import FrameType

_SECONDS = 0.001
_MAX_DEPTH = 12


def main() -> None:
    """Runs the router."""
    counts_file = Path(sys.argv.pop(1))
    counts: collections.Counter[str] = collections.Counter()

    def sample(_number: int, frame: FrameType | None) -> None:
        places = []
        while frame is not None and len(places) < _MAX_DEPTH:
            code = frame.f_code
            places.append(f"{code.co_filename}:{code.co_qualname}")
            frame = frame.f_back
        counts["|".join(places)] += 1

    def begin(_number: int, _frame: FrameType | None) -> None:
        counts.clear()
        signal.setitimer(signal.ITIMER_PROF, _SECONDS, _SECONDS)

    signal.signal(signal.SIGPROF, sample)
    signal.signal(signal.SIGUSR1, begin)
    atexit.register(lambda: counts_file.write_text(json.dumps(counts)))

    from router_svc.cli import main as router

    router()


if __name__ == "__main__":
    main()
