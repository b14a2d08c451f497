"""Endpoints of a Service, from an API server that speaks Kubernetes' list and watch."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import aclosing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from router_svc.fleet.kubernetes_endpoints import KubernetesService


def endpoint_slice(
    *addresses: str, name: str = "engines-a", ready: bool = True, **conditions: Any
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "models", "resourceVersion": "7"},
        "addressType": "IPv4",
        "ports": [{"name": "metrics", "port": 9000}, {"name": "grpc", "port": 50061}],
        "endpoints": [
            {"addresses": [address], "conditions": {"ready": ready, **conditions}}
            for address in addresses
        ],
    }


class ApiServer:
    """Lists what `slices` holds and sends what is put into `events` to whoever watches."""

    def __init__(self) -> None:
        self.slices: list[dict[str, Any]] = []
        self.events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.paths: list[str] = []
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                api.paths.append(self.path)
                if "watch=true" in self.path.lower():
                    self._watch()
                    return
                body = json.dumps(
                    {
                        "kind": "EndpointSliceList",
                        "metadata": {"resourceVersion": "7"},
                        "items": api.slices,
                    }
                ).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _watch(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                while (event := api.events.get()) is not None:
                    line = json.dumps(event).encode() + b"\n"
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    server = ApiServer()
    host, port = server.server.server_address[:2]
    cluster = {"name": "c", "cluster": {"server": f"http://{host}:{port}"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [cluster],
        "contexts": [context],
        "users": [{"name": "u", "user": {}}],
        "current-context": "x",
    }
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(kubeconfig))
    monkeypatch.setenv("KUBECONFIG", str(file))
    # Read when the client is imported, so it is set there too.
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(file))
    yield server
    server.events.put(None)
    server.server.shutdown()
    server.server.server_close()


async def test_ready_endpoints_are_found_by_the_grpc_port(api: ApiServer) -> None:
    leaving = endpoint_slice("10.0.0.3", name="b", terminating=True)
    starting = endpoint_slice("10.0.0.4", name="c", ready=False)
    api.slices = [endpoint_slice("10.0.0.1", "10.0.0.2"), leaving, starting]

    async with aclosing(KubernetesService("models", "engines").targets()) as targets:
        assert await anext(targets) == {"10.0.0.1:50061", "10.0.0.2:50061"}

    path = unquote(api.paths[0])
    assert path.startswith("/apis/discovery.k8s.io/v1/namespaces/models/endpointslices")
    assert "kubernetes.io/service-name=engines" in path


async def test_changes_come_by_the_watch(api: ApiServer) -> None:
    api.slices = [endpoint_slice("10.0.0.1")]
    async with aclosing(KubernetesService("models", "engines").targets()) as targets:
        await anext(targets)

        api.events.put({"type": "MODIFIED", "object": endpoint_slice("10.0.0.1", "10.0.0.9")})
        assert await anext(targets) == {"10.0.0.1:50061", "10.0.0.9:50061"}

        api.events.put({"type": "DELETED", "object": endpoint_slice("10.0.0.1")})
        assert await anext(targets) == set()


async def test_a_watch_that_ends_begins_with_a_new_list(api: ApiServer) -> None:
    api.slices = [endpoint_slice("10.0.0.1")]
    async with aclosing(KubernetesService("models", "engines").targets()) as targets:
        await anext(targets)

        api.slices = [endpoint_slice("10.0.0.2")]
        api.events.put(None)

        assert await anext(targets) == {"10.0.0.2:50061"}


async def test_a_named_port_is_used_where_one_is_wanted(api: ApiServer) -> None:
    api.slices = [endpoint_slice("10.0.0.1")]

    async with aclosing(KubernetesService("models", "engines", "metrics").targets()) as targets:
        assert await anext(targets) == {"10.0.0.1:9000"}


class OneLook(threading.Event):
    """Is set by the first pause."""

    def wait(self, timeout: float | None = None) -> bool:
        self.set()
        return True


@pytest.mark.usefixtures("api")
def test_without_a_cluster_the_log_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    location = "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION"
    monkeypatch.setattr(location, "/nonexistent/kubeconfig")

    KubernetesService("models", "engines")._follow(lambda _: None, OneLook())

    (message,) = caplog.messages
    assert "neither in a cluster" in message
