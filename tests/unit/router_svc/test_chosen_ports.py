"""Port 0 means any free port; what was chosen is what the user is told."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from router_svc.assembly import say_ready
from router_svc.engines.info import EngineInfo
from router_svc.fleet.fleet import Fleet
from router_svc.processes.supervisor import Supervisor
from router_svc.served_model import ServedModel
from router_svc.server import Router, RouterConfig

FLAGS: dict[str, Any] = {
    "host": "127.0.0.1",
    "port": 0,
    "grpc_port": 0,
    "workers": 2,
    "ssl_certfile": None,
    "api_key": (),
    "api_key_file": None,
    "page": True,
    "log_format": "text",
}


async def test_a_router_tells_the_ports_that_it_listens_on() -> None:
    # No call gets as far as the model.
    model = ServedModel(Fleet(""), None, None, None)  # type: ignore[arg-type] -- see above
    router = Router(RouterConfig("127.0.0.1", 0, 0, 1 << 20, 1.0), [model])
    await router.start()

    ports = router.ports
    for port in ports.values():
        socket.create_connection(("127.0.0.1", port)).close()
    await router.close()

    assert ports.keys() == {"port", "grpc_port"}


async def test_so_does_the_parent_of_several() -> None:
    parent = Supervisor([Path("m")], ["a:1"], FLAGS, lambda *_: None)
    await parent.start()

    ports = parent.ports
    for port in ports.values():  # it keeps them for its workers
        with pytest.raises(OSError, match="Address already in use"):
            socket.create_server(("127.0.0.1", port))
    await parent.close()

    assert ports.keys() == {"port", "grpc_port"}


def test_the_start_up_lines_show_them(capsys: pytest.CaptureFixture[str]) -> None:
    info = EngineInfo(("m",), "/m", 64, 8, 1, 1, 0, 0)

    say_ready(info, {**FLAGS, "port": 8123, "grpc_port": 50123}, 1.0)

    said = capsys.readouterr().err
    assert said.count("http://127.0.0.1:8123/") == 4
    assert "gRPC  127.0.0.1:50123 " in said
