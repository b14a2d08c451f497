"""The Python text of docs/clients.md does what it says there."""

from __future__ import annotations

import re
import sys

from tests.clients.environment import HERE
from tests.clients.running import run
from tests.support.server import RunningServer

DOCUMENT = HERE.parents[1] / "docs" / "clients.md"


def test_the_documented_python_streams_and_shows_the_field_at_fault(server: RunningServer) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)

    shown = run(sys.executable, "-c", program.replace("127.0.0.1:50051", server.grpc_target))

    assert "Tokyo" in shown
    assert shown.endswith("temperature\n")
