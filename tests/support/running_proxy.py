"""Runs a proxy in front of the two routers of a held service, as its configuration file says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.support import plain_http
from tests.support.held_service import HeldService, running_process
from tests.support.server import free_port


@dataclass(frozen=True)
class Proxy:
    """A proxy in front of both routers."""

    url: str  # http://host:port
    grpc_target: str


@contextmanager
def running_proxy(
    command: list[str], config: Path, service: HeldService, directory: Path
) -> Iterator[Proxy]:
    """Runs `command` in `directory` with a copy of the configuration there, from ready on.

    The copy has free ports, and those of the routers, in place of the ones that a reader expects.
    """
    http, grpc = free_port(), free_port()
    ports = {"8080": str(http), "50050": str(grpc)}
    for number, router in enumerate(service.routers):
        ports[str(8000 + number)] = router.url.rsplit(":", 1)[1]
        ports[str(50051 + number)] = router.grpc_target.rsplit(":", 1)[1]
    text = re.sub(r"(?<=[: ])\d{4,5}\b", lambda m: ports.get(m[0], m[0]), config.read_text())
    (directory / config.name).write_text(text)
    log = directory / "log"
    with running_process(command, log, cwd=directory) as process:
        proxy = Proxy(f"http://127.0.0.1:{http}", f"127.0.0.1:{grpc}")
        router = service.routers[0]
        assert router.wait_until(lambda: process.poll() is not None or _passes(proxy))
        assert process.poll() is None, log.read_text()
        yield proxy


def _passes(proxy: Proxy) -> bool:
    try:
        return plain_http.get(f"{proxy.url}/health").status_code == 200
    except httpx.TransportError:
        return False
