"""The processes of a running server."""

from __future__ import annotations

import psutil

from tests.support.server import RunningServer


def engine_of(server: RunningServer) -> psutil.Process:
    """The engine that `octavo serve` started."""
    children = psutil.Process(server.process.pid).children()
    (engine,) = [child for child in children if "engine_svc" in child.cmdline()]
    return engine
