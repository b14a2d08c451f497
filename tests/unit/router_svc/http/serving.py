"""An ASGI application on a real port."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn

from router_svc.http.protocol import LimitedProtocol


@contextmanager
def served(app: Any, protocol: type[LimitedProtocol] = LimitedProtocol) -> Iterator[httpx.Client]:
    """A client of the application on a real port, served the way Octavo serves it."""
    config = uvicorn.Config(app, port=0, log_level="critical", http=protocol, loop="uvloop")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started and thread.is_alive():
        thread.join(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()
