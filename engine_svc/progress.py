"""What a person sees while an engine starts: phases with their times, on stderr.

On a terminal long phases show a bar; elsewhere each phase is one plain line, as logs want it.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernels.backend import OnProgress

log = logging.getLogger("octavo.engine.start")


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase that has ended, well or by what it raised. `began` is in seconds since 1970."""

    name: str
    began: float
    seconds: float


class StartupPrinter:
    """Prints to stderr. `phases` are those that have ended."""

    def __init__(self, *, logs: bool = False) -> None:
        """`logs`: lines are log records, as where every line of stderr has to be JSON."""
        self.phases: list[Phase] = []
        self._logs = logs
        # Plain text: markup and highlighting would alter paths and names.
        self._console = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)

    def line(self, text: str) -> None:
        """One line as it is."""
        if self._logs:
            log.info("%s", text)
        else:
            with suppress(OSError):  # a full disk, or a reader who went, ends no engine
                self._console.print(text)

    def timed(self, name: str, seconds: float) -> None:
        """A phase that took `seconds` and ends now."""
        self._ended(name, seconds)
        self.line(f"{name:<18} {seconds:6.2f} s")

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Times what is done within; nothing is printed if it raises."""
        start = time.monotonic()
        try:
            yield
        except BaseException:
            self._ended(name, time.monotonic() - start)
            raise
        self.timed(name, time.monotonic() - start)

    @contextmanager
    def loading(self, name: str) -> Iterator[OnProgress]:
        """Like `phase`, with a bar for bytes on a terminal."""
        with self.phase(name):
            if self._console.is_terminal and not self._logs:
                columns = (TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn())
                with Progress(*columns, console=self._console, transient=True) as progress:
                    task = progress.add_task(name, total=None)
                    yield lambda done, total: progress.update(task, completed=done, total=total)
            else:
                yield lambda _done, _total: None

    def _ended(self, name: str, seconds: float) -> None:
        self.phases.append(Phase(name, time.time() - seconds, seconds))
