"""What the chart renders to: valid objects that fit together, and what operators have learnt."""

from __future__ import annotations

import base64
import json
from itertools import chain
from typing import Any

import pytest
import yaml
from octavo.inference.v1 import embeddings_pb2, inference_pb2, messages_pb2, responses_pb2

from router_svc.auth.keyring import KeyRing
from router_svc.cli import main
from router_svc.fleet.discovery import parse_source
from tests.helm.chart import CHART, ChartTool, Object, RefusedError, Rendered, value_sets

SETS = value_sets()
every_set = pytest.mark.parametrize("values", SETS.values(), ids=SETS)


@every_set
def test_lints_strictly(chart: ChartTool, values: Object) -> None:
    assert chart.lint(values) == []


@every_set
def test_every_object_is_valid(chart: ChartTool, values: Object) -> None:
    rendered = chart.render(values)

    assert rendered.faults == []
    names = [(each["kind"], each["metadata"]["name"]) for each in rendered.objects]
    assert len(names) == len(set(names))


@every_set
def test_parts_refer_to_parts_that_exist(chart: ChartTool, values: Object) -> None:
    assert list(dangling(chart.render(values))) == []


@every_set
def test_pods_are_confined(chart: ChartTool, values: Object) -> None:
    for spec in pod_specs(chart.render(values)):
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}


@every_set
def test_memory_is_what_was_asked_for_and_cores_have_no_limit(
    chart: ChartTool, values: Object
) -> None:
    for pod in chart.render(values).pods():
        for container in pod["spec"]["containers"]:
            resources = container["resources"]
            assert resources["limits"]["memory"] == resources["requests"]["memory"]
            assert "cpu" in resources["requests"]
            assert "cpu" not in resources["limits"]


@every_set
def test_pods_have_time_for_the_whole_drain(chart: ChartTool, values: Object) -> None:
    for pod in chart.render(values).pods():
        (container,) = pod["spec"]["containers"]
        drain = float(environment(container)["OCTAVO_SHUTDOWN_TIMEOUT"])
        pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]

        assert pod["spec"]["terminationGracePeriodSeconds"] > pause + drain


@every_set
def test_variables_and_arguments_are_flags_of_the_command(chart: ChartTool, values: Object) -> None:
    for spec in pod_specs(chart.render(values)):
        (container,) = spec["containers"]
        if container["command"][0] != "octavo":
            continue
        options = [
            each
            for each in main.commands[container["command"][1]].params
            if each.param_type_name == "option"
        ]
        flags = set(chain.from_iterable((*each.opts, *each.secondary_opts) for each in options))
        variables = {each.envvar for each in options} | {"OCTAVO_CACHE"}

        given = {name for name in environment(container) if name.startswith("OCTAVO_")}
        assert given <= variables
        arguments = {arg.partition("=")[0] for arg in container["args"] if arg.startswith("--")}
        assert arguments <= flags


def test_the_nodes_of_an_engine_run_one_command_and_are_told_where_they_meet(
    chart: ChartTool,
) -> None:
    (group,) = [
        each
        for each in chart.render(SETS["multi_node"]).objects
        if each["kind"] == "LeaderWorkerSet"
    ]
    template = group["spec"]["leaderWorkerTemplate"]
    pods = [template[f"{part}Template"]["spec"]["containers"][0] for part in ("leader", "worker")]

    for container in pods:
        told = environment(container)
        assert told["OCTAVO_NNODES"] == str(template["size"])
        assert told["OCTAVO_NODE_RANK"] == "$(LWS_WORKER_INDEX)"
        assert told["OCTAVO_MASTER_ADDR"] == "$(LWS_LEADER_ADDRESS)"
        assert told["OCTAVO_MASTER_PORT"].isdigit()
    leader, worker = pods
    assert leader["command"] == worker["command"] == ["octavo", "engine"]
    assert leader["args"] == worker["args"]
    assert "--tensor-parallel-size=16" in leader["args"]


@every_set
def test_pods_that_serve_download_nothing(chart: ChartTool, values: Object) -> None:
    rendered = chart.render(values)
    for pod in rendered.pods():
        assert "initContainers" not in pod["spec"]
        (container,) = pod["spec"]["containers"]
        assert environment(container)["HF_HUB_OFFLINE"] == "1"
        assert environment(container)["PIP_NO_INDEX"] == "1"


def test_without_values_there_is_a_router_an_engine_and_a_model(chart: ChartTool) -> None:
    rendered = chart.render({})

    assert rendered.only("Deployment")["spec"]["replicas"] == 1
    assert rendered.only("StatefulSet")["spec"]["replicas"] == 1
    assert rendered.container("engine")["args"][0] == "smollm2"
    assert (
        rendered.only("Job")["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    )
    assert rendered.kinds() == {
        "Deployment",
        "StatefulSet",
        "Job",
        "PersistentVolumeClaim",
        "Service",
        "ServiceAccount",
    }
    assert "http://octavo.llm.svc:8000/v1" in rendered.notes


def test_a_gpu_is_a_matter_of_a_few_lines(chart: ChartTool) -> None:
    on_cpu = chart.render({}).container("engine")
    on_gpu = chart.render(SETS["gpu"]).container("engine")

    changed = {name for name in on_cpu if on_cpu[name] != on_gpu[name]}
    assert changed == {"image", "resources"}
    assert on_gpu["resources"]["limits"] == {"memory": "64Gi", "nvidia.com/gpu": 1}


def test_probes_tell_started_ready_and_alive_apart(chart: ChartTool) -> None:
    rendered = chart.render({"engine": {"startupSeconds": 3600, "shutdownSeconds": 300}})
    engine, router = rendered.container("engine"), rendered.container("router")

    assert engine["startupProbe"]["grpc"] == {"port": 50061}
    assert seconds_of(engine["startupProbe"]) >= 3600
    # Health fails during a drain too: that must not restart an engine that still answers.
    assert seconds_of(engine["livenessProbe"]) > 300
    assert router["livenessProbe"]["httpGet"]["path"] == "/live"
    assert router["readinessProbe"]["httpGet"]["path"] == "/health"
    assert router["startupProbe"]["httpGet"]["path"] == "/live", "engines may load for long"


def test_routers_find_engines_by_the_headless_service(chart: ChartTool) -> None:
    rendered = chart.render({})
    target = environment(rendered.container("router"))["OCTAVO_ENGINES"]

    assert target == "dns:///octavo-engines.llm.svc:50061"
    parse_source(target)
    service = rendered.only("Service", "octavo-engines")["spec"]
    assert service["clusterIP"] == "None"
    assert service["ports"] == [
        {"name": "grpc", "port": 50061, "targetPort": "grpc", "appProtocol": "kubernetes.io/h2c"}
    ]


def test_discovery_by_kubernetes_may_read_endpoint_slices_and_no_more(chart: ChartTool) -> None:
    rendered = chart.render(SETS["kubernetes_discovery"])

    target = environment(rendered.container("router"))["OCTAVO_ENGINES"]
    assert target == "k8s:///llm/octavo-engines"
    parse_source(target)
    assert rendered.only("Role")["rules"] == [
        {
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "verbs": ["get", "list", "watch"],
        }
    ]
    pods = rendered.pods()
    tokens = {
        each["spec"]["serviceAccountName"]: each["spec"]["automountServiceAccountToken"]
        for each in pods
    }
    assert tokens == {"octavo-router": True, "octavo-engine": False}


def test_a_volume_for_one_node_brings_its_pods_together(chart: ChartTool) -> None:
    one_node = chart.render({})
    spread = chart.render({"model": {"volume": {"accessModes": ["ReadWriteMany"]}}})

    assert all("podAffinity" in each["spec"]["affinity"] for each in one_node.pods())
    assert all("topologySpreadConstraints" in each["spec"] for each in spread.pods())


def test_tenants_become_a_key_file_that_the_router_reads(chart: ChartTool, tmp_path: Any) -> None:
    rendered = chart.render(SETS["keys"])
    secret = rendered.only("Secret")["data"]
    file = tmp_path / "keys.yaml"
    file.write_bytes(base64.b64decode(secret["keys.yaml"]))

    KeyRing([], file)
    assert yaml.safe_load(file.read_text())["tenants"]["acme"] == ["sk-acme-1"]
    variables = environment(rendered.container("router"))
    assert variables["OCTAVO_API_KEY_FILE"] == "/etc/octavo/keys/keys.yaml"


@pytest.mark.parametrize("topology", ["split", "combined"])
def test_the_routers_page_can_be_switched_off(chart: ChartTool, topology: str) -> None:
    for shown, word in ((True, "true"), (False, "false")):
        specs = pod_specs(chart.render({"topology": topology, "router": {"page": shown}}))
        variables = [environment(each) for spec in specs for each in spec["containers"]]
        assert [each["OCTAVO_PAGE"] for each in variables if "OCTAVO_PAGE" in each] == [word]


def test_engines_metrics_are_taken_once_however_many_routers_there_are(chart: ChartTool) -> None:
    rendered = chart.render(SETS["keda"])
    (routers,) = rendered.only("ServiceMonitor")["spec"]["endpoints"]
    engines = rendered.only("ScrapeConfig")["spec"]

    assert routers["metricRelabelings"][0] | {"action": "keep"} == engines["metricRelabelings"][0]
    assert engines["staticConfigs"][0]["targets"] == ["octavo.llm.svc:8000"]
    (trigger,) = rendered.only("ScaledObject")["spec"]["triggers"]
    assert trigger["metadata"]["query"] == (
        'sum(vllm:num_requests_waiting{namespace="llm",job="octavo-engines"})'
    )


def test_router_and_engines_send_traces_to_one_collector_which_they_may_reach(
    chart: ChartTool,
) -> None:
    values = value_sets()["tracing"]
    rendered = chart.render(values)

    for name in ("router", "engine"):
        variables = {each["name"]: each.get("value") for each in rendered.container(name)["env"]}
        assert variables["OCTAVO_OTLP_TRACES_ENDPOINT"] == values["tracing"]["endpoint"]
    for name in ("octavo-router", "octavo-engine"):
        policy = rendered.only("NetworkPolicy", name)
        assert policy["spec"]["egress"][-1] == values["networkPolicy"]["egress"][0]
    untraced = chart.render({**values, "tracing": {}})
    assert "OCTAVO_OTLP_TRACES_ENDPOINT" not in str(untraced.objects)
    assert (
        values["networkPolicy"]["egress"][0]
        not in (untraced.only("NetworkPolicy", "octavo-engine")["spec"]["egress"])
    )


def test_grpc_routes_carry_every_public_service(chart: ChartTool) -> None:
    (rule,) = chart.render(SETS["gateway"]).only("GRPCRoute")["spec"]["rules"]
    routed = {match["method"]["service"] for match in rule["matches"]}

    modules = (embeddings_pb2, inference_pb2, messages_pb2, responses_pb2)
    public = {
        each.full_name for module in modules for each in module.DESCRIPTOR.services_by_name.values()
    }
    assert public <= routed


def test_ingress_does_not_buffer(chart: ChartTool) -> None:
    annotations = chart.render(SETS["ingress"]).only("Ingress", "octavo")["metadata"]["annotations"]

    assert annotations["nginx.ingress.kubernetes.io/proxy-buffering"] == "off"
    assert annotations["nginx.ingress.kubernetes.io/proxy-read-timeout"] == "3600"
    assert annotations["cert-manager.io/cluster-issuer"] == "letsencrypt"


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"replicas": 2}, "replicas"),
        ({"engine": {"replica": 2}}, "replica"),
        ({"engine": {"cpuLimit": 2}}, "cpuLimit"),
        ({"engine": {"memory": "lots"}}, "memory"),
        ({"engine": {"flags": {"listen": "0.0.0.0:1"}}}, "listen"),
        ({"router": {"flags": {"api-key": "sk-seen-by-all"}}}, "api-key"),
        ({"image": {"engine": {"repository": "octavo", "tag": "latest"}}}, "tag"),
        ({"engine": {"kind": "LeaderWorkerSet"}}, "ReadWriteMany"),
        (
            {
                "engine": {"kind": "LeaderWorkerSet", "groupSize": 2, "tensorParallelSize": 3},
                "model": {"volume": {"accessModes": ["ReadWriteMany"]}},
            },
            "multiple of engine.groupSize",
        ),
        ({"tls": {"engines": {"secretName": "a"}}}, "clientSecretName"),
        ({"gateway": {"enabled": True}}, "parentRefs"),
        (
            {
                "gateway": {
                    "enabled": True,
                    "parentRefs": [{"name": "g"}],
                    "inferencePool": {"enabled": True},
                }
            },
            "combined",
        ),
        ({"kserve": {"enabled": True}}, "storageUri"),
        ({"kserve": {"enabled": True}, "networkPolicy": {"enabled": True}}, "networkPolicy"),
        ({"auth": {"tenants": {"a": ["sk"]}}, "monitoring": {"scrape": True}}, "keySecret"),
        ({"autoscaling": {"engine": {"kind": "keda", "minReplicas": 9}}}, "maxReplicas"),
    ],
)
def test_values_that_make_no_sense_are_refused(
    chart: ChartTool, values: Object, reason: str
) -> None:
    with pytest.raises(RefusedError, match=reason):
        chart.render(values)


@pytest.mark.parametrize("name", ["1st", "v1.2", "a" * 53, "octavo-production", "x"])
def test_any_release_name_will_do(chart: ChartTool, name: str) -> None:
    everything = SETS["everything"] | {"fullnameOverride": "", "nameOverride": ""}
    rendered = chart.render(everything, name)

    assert rendered.faults == []
    for each in rendered.objects:
        if each["kind"] == "Service":
            assert each["metadata"]["name"][0].isalpha()
            assert len(each["metadata"]["name"]) <= 63
            assert "." not in each["metadata"]["name"]


def environment(container: Object) -> dict[str, str]:
    """The variables that have plain values."""
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def seconds_of(probe: Object) -> int:
    """How long a probe may fail before it counts."""
    return probe["periodSeconds"] * probe["failureThreshold"]


def pod_specs(rendered: Rendered) -> list[Object]:
    """Pods of what serves, and of jobs; what KServe makes of its objects."""
    specs = [pod["spec"] for pod in rendered.pods()]
    specs += [
        each["spec"]["template"]["spec"] for each in rendered.objects if each["kind"] == "Job"
    ]
    if "ServingRuntime" in rendered.kinds():
        predictor = rendered.only("InferenceService")["spec"]["predictor"]
        specs.append(rendered.only("ServingRuntime")["spec"] | predictor)
    return specs


def dangling(rendered: Rendered) -> Any:
    """References within the release that lead nowhere."""
    named = {(each["kind"], each["metadata"]["name"]) for each in rendered.objects}
    for pod in rendered.pods():
        spec = pod["spec"]
        if ("ServiceAccount", spec["serviceAccountName"]) not in named:
            yield f"service account {spec['serviceAccountName']}"
        volumes = {each["name"] for each in spec["volumes"]}
        for container in spec["containers"]:
            mounts = {each["name"] for each in container["volumeMounts"]}
            if mounts != volumes:
                yield f"volumes {mounts ^ volumes}"
        yield from (
            f"config map {each['configMap']['name']}"
            for each in spec["volumes"]
            if "configMap" in each and ("ConfigMap", each["configMap"]["name"]) not in named
        )
    labels = [pod["metadata"]["labels"] for pod in rendered.pods()]
    for each in rendered.objects:
        name, spec = each["metadata"]["name"], each.get("spec", {})
        selector = {
            "Service": lambda spec: spec["selector"],
            "NetworkPolicy": lambda spec: spec["podSelector"]["matchLabels"],
            "PodDisruptionBudget": lambda spec: spec["selector"]["matchLabels"],
            "InferencePool": lambda spec: spec["selector"]["matchLabels"],
        }.get(each["kind"])
        if selector and not any(selector(spec).items() <= pod.items() for pod in labels):
            yield f"{each['kind']} {name} selects nothing"
        target = spec.get("scaleTargetRef")
        if target and (target["kind"], target["name"]) not in named:
            yield f"{each['kind']} {name} scales nothing"
        if each["kind"] in ("HTTPRoute", "GRPCRoute"):
            for backend in spec["rules"][0]["backendRefs"]:
                if (backend.get("kind", "Service"), backend["name"]) not in named:
                    yield f"{each['kind']} {name} leads nowhere"


def test_values_file_is_what_its_schema_describes() -> None:
    """No value without a rule, so that no misspelt one is silently nothing."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(values) | {"global"} == set(schema["properties"])
