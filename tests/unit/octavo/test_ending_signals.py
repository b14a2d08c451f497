"""Which signals end a server in good order."""

from __future__ import annotations

import signal

import pytest
from octavo.endings import ending_signals


@pytest.mark.parametrize(
    ("handler", "ends"), [(signal.SIG_DFL, True), (signal.SIG_IGN, False)], ids=["", "nohup"]
)
def test_a_terminal_that_goes_ends_a_server_unless_nohup_started_it(
    monkeypatch: pytest.MonkeyPatch, handler: signal.Handlers, ends: bool
) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda _: handler)

    assert (signal.SIGHUP in ending_signals()) is ends
