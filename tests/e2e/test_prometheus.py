"""/metrics as Prometheus sees it: valid, complete, labelled, and moving with what is served."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support import plain_http
from tests.support.metric_names import ROOT, asked_for, described, families, readers, shown
from tests.support.scrape import by_label
from tests.support.server import RunningServer

GAUGES = {
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "vllm:cache_config_info",
    "vllm:lora_requests_info",
}
COUNTERS = {
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:num_preemptions_total",
    "vllm:request_success_total",
    "vllm:admission_rejections_total",
    "vllm:prompt_tokens_cached_total",
}
HISTOGRAMS = {
    "vllm:time_to_first_token_seconds",
    "vllm:inter_token_latency_seconds",
    "vllm:time_per_output_token_seconds",
    "vllm:e2e_request_latency_seconds",
    "vllm:request_queue_time_seconds",
    "vllm:request_inference_time_seconds",
    "vllm:request_prefill_time_seconds",
    "vllm:request_decode_time_seconds",
    "vllm:request_prompt_tokens",
    "vllm:request_generation_tokens",
    "vllm:iteration_tokens_total",
}
ROUTER = {
    "octavo_router_requests_total",
    "octavo_router_requests_in_flight",
    "octavo_router_request_duration_seconds_count",
    "octavo_router_http_answers_total",
}
# Dashboards and scalers expect vLLM's names, which promtool's style guide does not like.
CHOSEN_BY_VLLM = (
    ("vllm:", "metric names should not contain ':'"),
    ("vllm:iteration_tokens_total", 'non-counter metrics should not have "_total" suffix'),
)
BODY = {"prompt": "The quick brown fox", "max_tokens": 9, "ignore_eos": True, "temperature": 0}


@pytest.fixture(scope="module")
def served(server: RunningServer) -> RunningServer:
    """The server after a request, so that every metric has a sample."""
    plain_http.post(f"{server.url}/v1/completions", json=BODY).raise_for_status()
    assert server.wait_until(server.idle)
    return server


@pytest.fixture(scope="module")
def exposition(served: RunningServer) -> str:
    """All that is shown."""
    return _scrape(served)


def _scrape(server: RunningServer) -> str:
    return plain_http.get(f"{server.url}/metrics").raise_for_status().text


def test_promtool_accepts_the_metrics(served: RunningServer) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        assert not os.environ.get("CI"), "promtool is missing: make system-deps installs it"
        pytest.skip("promtool is not installed; make system-deps installs it")

    checked = subprocess.run(
        [promtool, "check", "metrics"],
        input=_scrape(served),
        capture_output=True,
        text=True,
        check=False,
    )

    complaints = [
        line
        for line in checked.stderr.splitlines()
        if not any(line.startswith(name) and line.endswith(why) for name, why in CHOSEN_BY_VLLM)
    ]
    assert complaints == []
    assert checked.returncode in (0, 3)  # 3: nothing is wrong, but the names are not to its taste


def test_every_metric_is_there_with_its_labels(served: RunningServer) -> None:
    samples = [s for f in text_string_to_metric_families(_scrape(served)) for s in f.samples]

    names = {sample.name for sample in samples}
    parts = {f"{name}_{part}" for name in HISTOGRAMS for part in ("bucket", "count", "sum")}
    assert GAUGES | COUNTERS | parts | ROUTER <= names
    engines = {s.labels.get("engine") for s in samples if s.name.startswith("vllm:")}
    assert {s.labels.get("model_name") for s in samples if s.name.startswith("vllm:")} == {
        "smollm2"
    }
    assert len(engines) == 1
    assert engines.isdisjoint({None, ""})
    (cache,) = [s.labels for s in samples if s.name == "vllm:cache_config_info"]
    assert cache["block_size"] == "16"
    assert int(cache["num_gpu_blocks"]) > 0


@pytest.mark.parametrize("reader", readers(), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_the_chart_and_the_docs_ask_for_is_there(exposition: str, reader: Path) -> None:
    assert asked_for(reader.read_text()) <= shown(exposition)


def test_what_asks_for_metrics_is_among_what_is_read() -> None:
    asking = {str(path.relative_to(ROOT)) for path in readers() if asked_for(path.read_text())}

    assert asking >= {
        "docs/metrics.md",
        "helm/files/octavo-dashboard.json",
        "helm/templates/monitoring.yaml",
        "helm/templates/scaling.yaml",
    }


def test_the_docs_describe_each_metric_with_its_type_and_labels(exposition: str) -> None:
    known = families(exposition)
    told = described()

    assert set(told) == set(known)
    for name, family in known.items():
        assert told[name].kind == family.type, name
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        of_engines = {"model_name", "engine"} if name.startswith("grpc_server_") else set()
        assert labels - of_engines == told[name].labels or not family.samples, name


def test_every_family_is_described_once(served: RunningServer) -> None:
    types = [line.split()[2] for line in _scrape(served).splitlines() if line.startswith("# TYPE")]

    assert len(types) == len(set(types))


def test_counters_move_by_what_was_served(served: RunningServer) -> None:
    watched = {
        "vllm:prompt_tokens_total",
        "vllm:generation_tokens_total",
        "vllm:prefix_cache_queries_total",
        "vllm:request_success_total",
        "octavo_router_requests_total",
        *(f"{name}_count" for name in HISTOGRAMS),
    }
    before = {name: served.metric(name) for name in watched}
    body = BODY | {"n": 2, "temperature": 1, "seed": 1, "cache_salt": "counters"}

    usage = plain_http.post(f"{served.url}/v1/completions", json=body).json()["usage"]

    assert served.wait_until(served.idle)
    moved = {name.removeprefix("vllm:"): served.metric(name) - before[name] for name in watched}
    assert usage["completion_tokens"] == 18
    assert moved.pop("prompt_tokens_total") == 2 * usage["prompt_tokens"]  # per choice
    assert moved.pop("prefix_cache_queries_total") == 2 * usage["prompt_tokens"]
    assert moved.pop("generation_tokens_total") == 18
    assert moved.pop("octavo_router_requests_total") == 1
    assert moved.pop("inter_token_latency_seconds_count") == 2 * 8
    assert moved.pop("time_per_output_token_seconds_count") == 2 * 8
    assert moved.pop("iteration_tokens_total_count") >= 9  # steps
    assert set(moved.values()) == {2}, moved  # all others count choices


async def test_gauges_show_the_present_state(served: RunningServer) -> None:
    body, states = BODY | {"max_tokens": 1500}, ("running", "waiting")
    async with httpx.AsyncClient(base_url=served.url, timeout=60) as client:
        posts = [asyncio.create_task(client.post("/v1/completions", json=body)) for _ in range(40)]
        full = await asyncio.to_thread(
            served.wait_until,
            lambda: [served.metric(f"vllm:num_requests_{n}") for n in states] == [32, 8],
        )
        used = served.metric("vllm:kv_cache_usage_perc")
        in_flight = served.metric("octavo_router_requests_in_flight")
        load = (await client.get("/load")).json()
        for post in posts:
            post.cancel()
        await asyncio.gather(*posts, return_exceptions=True)

    assert full
    assert 0 < used < 1
    assert in_flight == 40
    assert load == {"requests_in_flight": 40, "server_load": 40}
    assert served.wait_until(served.idle)
    assert served.wait_until(lambda: served.metric("octavo_router_requests_in_flight") == 0)


def test_answers_to_refused_bodies_and_unknown_paths_count(server: RunningServer) -> None:
    name = "octavo_router_http_answers_total"
    before = by_label(server, name, "status")

    plain_http.post(f"{server.url}/v1/completions", json={"prompt": "a", "temperature": "hot"})
    plain_http.get(f"{server.url}/no/such/path")

    after = by_label(server, name, "status")
    assert after["400"] == before.get("400", 0) + 1
    assert after["404"] == before.get("404", 0) + 1
    assert "/no/such/path" not in by_label(server, name, "route")
