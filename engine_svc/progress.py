"""What a person sees while an engine starts: phases with their times, on stderr.

On a terminal long phases show a bar; elsewhere each phase is one plain line, as logs want it.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernels.backend import OnProgress


class StartupPrinter:
    """Prints to stderr."""

    def __init__(self) -> None:
        # Plain text: markup and highlighting would alter paths and names.
        self._console = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)

    def line(self, text: str) -> None:
        """One line as it is."""
        self._console.print(text)

    def timed(self, name: str, seconds: float) -> None:
        """A phase that took `seconds`."""
        self.line(f"{name:<18} {seconds:6.2f} s")

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Times what is done within; nothing is printed if it raises."""
        start = time.monotonic()
        yield
        self.timed(name, time.monotonic() - start)

    @contextmanager
    def loading(self, name: str) -> Iterator[OnProgress]:
        """Like `phase`, with a bar for bytes on a terminal."""
        start = time.monotonic()
        if self._console.is_terminal:
            columns = (TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn())
            with Progress(*columns, console=self._console, transient=True) as progress:
                task = progress.add_task(name, total=None)
                yield lambda done, total: progress.update(task, completed=done, total=total)
        else:
            yield lambda _done, _total: None
        self.timed(name, time.monotonic() - start)
