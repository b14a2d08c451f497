"""Whatever values the schema lets through: the chart says no, or all that it renders is valid."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from tests.helm.chart import CHART, ChartTool, Object, RefusedError
from tests.helm.test_chart import dangling

SCHEMA = Draft7Validator(json.loads((CHART / "values.schema.json").read_text()))
NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,60}[a-z0-9])?", fullmatch=True)
NO_NAME_OR = st.just("") | NAMES
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
COUNT = st.integers(1, 1000)
QUANTITIES = st.from_regex(r"[1-9][0-9]{0,3}(Mi|Gi)", fullmatch=True)
CPUS = st.integers(1, 256) | st.from_regex(r"[1-9][0-9]{0,4}m?", fullmatch=True) | st.just(0.25)
FLAGS = st.dictionaries(
    st.sampled_from(
        ["max-model-len", "max-num-seqs", "speculative-config", "seed", "enable-prefix-caching"]
    ),
    st.booleans()
    | st.integers(0, 1 << 50)
    | st.floats(0, 1e6)
    | TEXT
    | st.lists(TEXT, min_size=1, max_size=3),
)
ENV = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["A", "HTTPS_PROXY"]), "value": TEXT}),
    max_size=2,
)
LABELS = st.dictionaries(st.sampled_from(["team", "example.com/tier"]), NAMES)


def _some(**values: st.SearchStrategy) -> st.SearchStrategy[Object]:
    return st.fixed_dictionaries({}, optional=values)


BOTH = {
    "replicas": st.integers(0, 1000),
    "cpu": CPUS,
    "memory": QUANTITIES,
    "flags": FLAGS,
    "env": ENV,
    "shutdownSeconds": st.integers(0, 86400),
    "preStopSeconds": st.integers(0, 3600),
    "podAnnotations": st.dictionaries(st.sampled_from(["a", "example.com/note"]), TEXT),
    "podLabels": LABELS,
    "nodeSelector": LABELS,
    "priorityClassName": NO_NAME_OR,
}
VALUES = _some(
    fullnameOverride=st.just("") | NAMES.map(lambda name: name[:40].rstrip("-")),
    topology=st.sampled_from(["split", "combined"]),
    mesh=st.sampled_from(["none", "istio", "linkerd"]),
    model=_some(
        name=st.sampled_from(["smollm2", "organisation/name"]),
        path=st.just("") | TEXT,
        servedNames=st.lists(TEXT, max_size=2),
        packedWeightsCache=st.booleans(),
        volume=_some(
            existingClaim=NO_NAME_OR,
            size=QUANTITIES,
            accessModes=st.sampled_from(
                [["ReadWriteOnce"], ["ReadWriteMany"], ["ReadOnlyMany", "ReadWriteOnce"]]
            ),
        ),
        download=_some(enabled=st.booleans(), env=ENV, deadlineSeconds=st.integers(60, 10**9)),
    ),
    engine=_some(
        kind=st.sampled_from(["StatefulSet", "Deployment", "LeaderWorkerSet"]),
        gpus=st.integers(0, 64),
        tensorParallelSize=st.integers(1, 64),
        groupSize=st.integers(1, 8),
        startupSeconds=st.integers(30, 86400),
        sharedMemory=QUANTITIES,
        **BOTH,
    ),
    router=_some(discovery=st.sampled_from(["dns", "kubernetes"]), **BOTH),
    service=_some(
        type=st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer"]),
        httpPort=st.integers(1, 65535),
        annotations=st.dictionaries(st.sampled_from(["a", "example.com/b"]), TEXT),
    ),
    auth=_some(
        tenants=st.dictionaries(TEXT, st.lists(TEXT, min_size=1, max_size=2), max_size=2),
        metricsOpen=st.booleans(),
    ),
    tls=_some(
        public=_some(secretName=NO_NAME_OR),
        engines=_some(secretName=NO_NAME_OR, clientSecretName=NO_NAME_OR),
    ),
    networkPolicy=_some(enabled=st.booleans()),
    podDisruptionBudget=_some(enabled=st.booleans(), maxUnavailable=COUNT | st.just("10%")),
    autoscaling=_some(
        engine=_some(
            kind=st.sampled_from(["none", "hpa", "keda"]), maxReplicas=COUNT, waitingPerEngine=COUNT
        ),
        router=_some(enabled=st.booleans(), maxReplicas=COUNT, cpuPercent=COUNT),
    ),
    monitoring=_some(
        scrape=st.booleans(),
        labels=LABELS,
        keySecret=_some(name=NO_NAME_OR),
        rules=_some(enabled=st.booleans(), firstTokenSeconds=st.floats(0.01, 1e4), guide=TEXT),
    ),
    tracing=_some(endpoint=st.sampled_from(["", "http://collector:4317", "https://otlp.example"])),
    dashboard=_some(
        enabled=st.booleans(),
        labels=LABELS,
        annotations=st.dictionaries(st.sampled_from(["a", "example.com/b"]), TEXT),
    ),
    ingress=_some(
        enabled=st.booleans(),
        grpcHost=st.sampled_from(["", "grpc.example.com", "*.example.com"]),
        tlsSecretName=NO_NAME_OR,
    ),
    gateway=_some(
        enabled=st.booleans(),
        grpc=st.booleans(),
        hostnames=st.lists(st.just("llm.example.com"), max_size=1),
        parentRefs=st.just([{"name": "edge"}]),
        inferencePool=_some(enabled=st.booleans(), endpointPicker=_some(name=NAMES)),
    ),
    kserve=_some(
        enabled=st.sampled_from([False, False, False, True]),
        storageUri=st.just("hf://organisation/name"),
        modelFile=NO_NAME_OR,
    ),
)


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(VALUES)
def test_no_values_render_an_invalid_object(chart: ChartTool, values: Object) -> None:
    allowed = SCHEMA.is_valid(values)
    try:
        rendered = chart.render(values)
    except RefusedError as error:
        reason = str(error)
    else:
        assert allowed
        assert rendered.faults == []
        assert list(dangling(rendered)) == []
        return
    # By the schema, or for a reason that the chart itself gives: never by a broken template.
    by_schema = "don't meet the specifications of the schema" in reason
    assert by_schema is not allowed
    assert by_schema or reason.startswith("execution error at"), reason
