"""From the command line to the first answer, and from a signal to an empty process table."""

from __future__ import annotations

import contextlib
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
import torch

from tests.support import plain_http
from tests.support.processes import engine_of
from tests.support.server import RunningServer, free_port, launch, running_server
from tests.support.tiny_models import make_tiny

CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that is served as soon as the engine's modules are imported."""
    return make_tiny("llama", tmp_path_factory.mktemp("tiny"), dtype=torch.bfloat16)


def _engines(model: Path) -> list[psutil.Process]:
    """Engine processes of this model, whoever started them."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = process.cmdline()
            if "engine_svc" in command and str(model) in command:
                found.append(process)
    return found


def _until(condition: Callable[[], bool]) -> None:
    """Returns once the condition holds; the test's own timeout is the limit."""
    while not condition():
        time.sleep(0.05)


@contextmanager
def _command(log: Path, *args: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "router_svc", *args], stdout=sink, stderr=sink
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_start_up_says_what_is_served_and_how_to_try_it(server: RunningServer) -> None:
    said = server.log.read_text()

    phases = ["importing", "reading config", "planning memory", "loading weights"]
    phases += ["allocating KV", "warming up"]
    at = [re.search(rf"^{phase} +\d+\.\d\d s$", said, re.MULTILINE) for phase in phases]
    assert all(at), said
    shown = [
        *(match.group() for match in at if match),
        "model: smollm2 (Llama, safetensors, 1 file, bfloat16), 134.5 M parameters, 25",
        "KV pool: ",
        "Maximum concurrency for 2,048 tokens per request: ",
        "Ready in ",
        f"HTTP  {server.url}/v1",
        f"gRPC  {server.grpc_target}",
        f"Page  {server.url}/ ",
        "curl ",
    ]
    places = [said.index(text) for text in shown]
    assert places == sorted(places), said
    pool, concurrency = (
        float(re.search(pattern, said).group(1).replace(",", ""))
        for pattern in (r"= ([\d,]+) tokens\n", r"per request: (\d+\.\d\d)x")
    )
    assert concurrency == pytest.approx(pool / 2048, abs=0.01)


def test_the_line_to_try_works_as_it_stands(server: RunningServer) -> None:
    (line,) = [li for li in server.log.read_text().splitlines() if li.strip().startswith("curl ")]

    curl, url, header_flag, header, data_flag, data = shlex.split(line)
    name, value = header.split(": ")
    answer = httpx.post(url, headers={name: value}, content=data, timeout=60)

    assert (curl, header_flag, data_flag) == ("curl", "-H", "-d")
    assert "Tokyo" in answer.raise_for_status().json()["choices"][0]["message"]["content"]


def test_a_router_and_an_engine_that_are_started_alone_find_each_other(
    tiny: Path, tmp_path: Path
) -> None:
    port, engine_port = free_port(), free_port()
    url, target = f"http://127.0.0.1:{port}", f"127.0.0.1:{engine_port}"

    def health() -> int:
        with contextlib.suppress(httpx.TransportError):
            return plain_http.get(f"{url}/health").status_code
        return 0

    ports = (f"--port={port}", "--grpc-port=0")
    router_log, engine_log = tmp_path / "router", tmp_path / "engine"
    engines = f"--engines={target},unix:{tmp_path}/nobody.sock"
    with _command(router_log, "router", str(tiny), engines, *ports) as router:
        _until(lambda: health() != 0)
        alone = health()
        with _command(engine_log, "engine", str(tiny), "--listen", target) as engine:
            _until(lambda: health() == 200 or engine.poll() is not None)
            answer = plain_http.post(f"{url}/v1/chat/completions", json=CHAT)
            shown = re.search(r"gRPC  (127.0.0.1):(\d+) ", router_log.read_text())
            socket.create_connection(shown.groups()).close()
            engine.terminate()
            engine_code = engine.wait()
        _until(lambda: health() == 503)
        router.terminate()
        router_code = router.wait()

    assert alone == 503
    assert answer.raise_for_status().json()["usage"]["completion_tokens"] > 0
    assert (engine_code, router_code) == (0, 0)
    assert "Waiting for an engine" in router_log.read_text()
    assert "Ready in" in router_log.read_text()
    assert f"gRPC on {target}" in engine_log.read_text()


@pytest.mark.parametrize("flag", ["--port", "--grpc-port"])
def test_a_taken_port_is_a_clear_error_and_leaves_nothing_running(
    tiny: Path, tmp_path: Path, flag: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        other = "--grpc-port" if flag == "--port" else "--port"
        args = (f"{flag}={port}", f"{other}={free_port()}")
        with _command(tmp_path / "log", "serve", str(tiny), *args) as process:
            code = process.wait()

    said = (tmp_path / "log").read_text()
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in said
    assert "Address already in use\n" in said
    assert "Traceback" not in said
    _until(lambda: not _engines(tiny))


def test_a_taken_engine_address_is_a_clear_error(tiny: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        with _command(tmp_path / "log", "engine", str(tiny), "--listen", address) as process:
            code = process.wait()

    assert code == 1
    assert f"cannot listen on {address}: Address already in use" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGKILL])
def test_no_engine_outlives_its_server(tiny: Path, tmp_path: Path, number: signal.Signals) -> None:
    with running_server(tiny, log=tmp_path / "log") as server:
        engine = engine_of(server)
        socket_directory = Path(engine.cmdline()[engine.cmdline().index("--listen") + 1][5:]).parent

        server.process.send_signal(number)

        code = server.process.wait()
        _until(lambda: not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE)

    assert code == (-signal.SIGKILL if number == signal.SIGKILL else 0)
    if number != signal.SIGKILL:
        assert not socket_directory.exists()
        assert "starting it again" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_that_is_stopped_while_it_starts_leaves_no_engine(
    tiny: Path, tmp_path: Path, number: signal.Signals
) -> None:
    process, _, _ = launch(tiny, log=tmp_path / "log")
    _until(lambda: bool(_engines(tiny)))

    process.send_signal(number)
    process.wait()

    _until(lambda: not _engines(tiny))
    assert "Traceback" not in (tmp_path / "log").read_text()
