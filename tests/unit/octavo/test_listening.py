"""Why an address cannot be listened on."""

from __future__ import annotations

import socket
from pathlib import Path

from octavo.listening import is_answered, why_not


def test_a_port_that_another_process_has() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        reason = why_not(f"127.0.0.1:{holder.getsockname()[1]}")

    assert reason == "Address already in use"


def test_a_host_that_does_not_resolve() -> None:
    assert why_not("nowhere.invalid:1") == "Name or service not known"


def test_a_directory_that_is_not_there() -> None:
    assert why_not("unix:/nonexistent/engine.sock") == "No such file or directory"


def test_a_socket_is_answered_as_long_as_its_process_listens(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        while_it_listens = is_answered(f"unix:{path}"), why_not(f"unix:{path}")
    after = is_answered(f"unix:{path}")

    assert while_it_listens == (True, "Address already in use")
    assert path.exists()
    assert not after


def test_a_socket_whose_process_is_behind_with_its_connections_is_answered(tmp_path: Path) -> None:
    path = str(tmp_path / "engine.sock")
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as waiting:
        listener.bind(path)
        listener.listen(0)
        waiting.connect(path)

        assert is_answered(f"unix:{path}")
