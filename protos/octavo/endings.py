"""The signals that end a server in good order."""

from __future__ import annotations

import signal


def ending_signals() -> tuple[signal.Signals, ...]:
    """Those to drain at: of a supervisor, of Ctrl-C, and of a terminal that has gone.

    Under nohup(1) the last is ignored, and stays so.
    """
    usual = signal.SIGTERM, signal.SIGINT
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return usual if is_ignored else (*usual, signal.SIGHUP)
