"""A streamed chat through an engine that is killed: one trace, and what Prometheus makes of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import psutil
import pytest
from octavo.inference.v1 import inference_pb2 as pb
from octavo.inference.v1 import inference_pb2_grpc

from tests.support import plain_http
from tests.support.held_engine import Gate
from tests.support.held_service import running_process
from tests.support.otlp_receiver import OtlpReceiver, ReceivedSpan, otlp_receiver
from tests.support.scrape import by_label
from tests.support.server import READY_SECONDS, RunningServer, free_port

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
QUESTION = "Tell me of the sheets that a printer folds."
BODY = {
    "messages": [{"role": "user", "content": QUESTION}],
    "max_tokens": 60,
    "ignore_eos": True,
    "stream": True,
}
SERVER, CLIENT = 2, 3
ERROR = 2


@dataclass
class Traced:
    """A router over two engines whose steps a test holds, and where all three send their spans."""

    router: RunningServer
    engines: dict[str, tuple[psutil.Process, Gate]]  # by target
    receiver: OtlpReceiver

    def stream(self, headers: dict[str, str], *, kill: bool = False) -> str:
        """The text of a streamed chat; its engine is killed once a few words of it have come."""
        for _, gate in self.engines.values():
            if kill:
                gate.hold()
                gate.let_pass(8)
        text = ""
        with httpx.stream(
            "POST", f"{self.router.url}/v1/chat/completions", json=BODY, headers=headers, timeout=60
        ) as answer:
            for line in answer.iter_lines():
                if not line.startswith("data: {"):
                    continue
                text += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
                if kill and text.count(" ") >= 3:
                    kill = False
                    self._kill_the_engine_in_use()
        return text

    def call_of(self, request_id: str) -> ReceivedSpan:
        """The span of the call with that id, once it has come."""

        def found() -> list[ReceivedSpan]:
            return [
                span
                for span in self.receiver.spans
                if span.attributes.get("octavo.request_id") == request_id
                and span.service == "octavo-router"
                and span.kind == SERVER
            ]

        assert self.receiver.wait_for(lambda: bool(found()))
        (call,) = found()
        return call

    def _kill_the_engine_in_use(self) -> None:
        busy = by_label(self.router, "octavo_router_engine_requests_in_flight", "target")
        (target,) = [name for name, count in busy.items() if count]
        process, _ = self.engines.pop(target)
        process.send_signal(signal.SIGKILL)
        for _, gate in self.engines.values():
            gate.open()


@pytest.fixture(scope="module")
def traced(smollm2_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    """Killing an engine is for the last test that uses it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")  # milliseconds that spans are gathered
        patch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "500")
        with _traced(smollm2_checkpoint, tmp_path_factory.mktemp("traces")) as started:
            yield started


@contextmanager
def _traced(model: Path, directory: Path) -> Iterator[Traced]:
    with ExitStack() as stack:
        receiver = stack.enter_context(otlp_receiver())
        engines = {}
        for name in ("a", "b"):
            gate = Gate(directory / f"{name}.gate", create=True)
            gate.open()
            target = f"unix:{directory / name}.sock"
            command = [sys.executable, "-m", "tests.support.held_engine"]
            command += [str(directory / f"{name}.gate"), str(model), "--listen", target]
            command += ["--served-model-name=held", f"--otlp-traces-endpoint={receiver.endpoint}"]
            process = stack.enter_context(running_process(command, directory / f"{name}.log"))
            stack.callback(gate.open)  # so that the engine can end
            engines[target] = (psutil.Process(process.pid), gate)
        port, grpc_port = free_port(), free_port()
        command = [sys.executable, "-m", "router_svc", "router", str(model), "--log-format=json"]
        command += [f"--port={port}", f"--grpc-port={grpc_port}", "--routing-policy=round_robin"]
        command += [f"--engines={target}" for target in engines]
        command += [f"--otlp-traces-endpoint={receiver.endpoint}"]
        log = directory / "router.log"
        process = stack.enter_context(running_process(command, log))
        router = RunningServer(f"http://127.0.0.1:{port}", f"127.0.0.1:{grpc_port}", process, log)
        assert router.wait_until(lambda: _serves_both(router), READY_SECONDS), log.read_text()
        yield Traced(router, engines, receiver)


def _serves_both(router: RunningServer) -> bool:
    assert router.process.poll() is None, router.log.read_text()
    try:
        return router.metric("octavo_router_engine_ready") == 2
    except httpx.TransportError:
        return False


def test_lines_of_a_request_carry_its_ids_and_none_of_its_words(traced: Traced) -> None:
    trace = "0" * 31 + "1"
    traced.stream({"traceparent": f"00-{trace}-{PARENT}-01", "x-request-id": "logged"})

    def logged() -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in traced.router.log.read_text().splitlines()]
        return [line for line in lines if line.get("request_id") == "logged"]

    assert traced.router.wait_until(lambda: bool(logged()))
    (line,) = logged()
    assert line["logger"] == "octavo.router.requests"
    assert line["trace_id"] == trace
    assert line["span_id"] != PARENT  # the router's own span
    assert QUESTION not in traced.router.log.read_text()


MESSAGES = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 5}


@pytest.mark.parametrize(
    ("path", "body", "operation", "prefix"),
    [
        ("/v1/chat/completions", MESSAGES, "chat", "chatcmpl-"),
        ("/v1/messages", MESSAGES | {"model": "held"}, "chat", "msg_"),
        ("/v1/responses", {"input": QUESTION, "max_output_tokens": 5}, "chat", "resp_"),
        ("/v1/completions", {"prompt": ["a", "b"], "max_tokens": 5}, "text_completion", "cmpl-"),
    ],
)
def test_whichever_way_it_is_asked_for_an_answer_is_a_trace(
    traced: Traced, path: str, body: dict[str, Any], operation: str, prefix: str
) -> None:
    answer = plain_http.post(f"{traced.router.url}{path}", json=body).raise_for_status().json()

    call = traced.call_of(answer["id"].removeprefix(prefix))
    assert call.name == f"{operation} held"
    assert call.parent_id == ""
    assert call.attributes["gen_ai.response.id"] == answer["id"]
    usage = answer["usage"]
    read = usage.get("input_tokens", usage.get("prompt_tokens"))
    cached = usage.get("cache_read_input_tokens") or 0  # Anthropic counts them beside the others
    assert call.attributes["gen_ai.usage.input_tokens"] == read + cached
    attempts = [s for s in traced.receiver.named("attempt") if s.parent_id == call.span_id]
    assert len(attempts) == len(body.get("prompt", [""]))


def test_a_grpc_caller_is_the_parent_too(traced: Traced) -> None:
    metadata = (("traceparent", f"00-{'0' * 31}2-{PARENT}-01"), ("x-request-id", "by-grpc"))
    with grpc.insecure_channel(traced.router.grpc_target) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        request = pb.CreateCompletionRequest(prompt=pb.Prompt(text="a"), max_tokens=3)
        assert stub.CreateCompletion(request, metadata=metadata).choices

    call = traced.call_of("by-grpc")
    assert (call.trace_id, call.parent_id) == (f"{'0' * 31}2", PARENT)


def test_a_client_that_leaves_is_no_error(traced: Traced) -> None:
    body = BODY | {"max_tokens": 1500}
    for _, gate in traced.engines.values():
        gate.hold()
        gate.let_pass(4)
    try:
        url, headers = f"{traced.router.url}/v1/chat/completions", {"x-request-id": "left"}
        with httpx.stream("POST", url, json=body, headers=headers, timeout=60) as answer:
            next(line for line in answer.iter_lines() if "content" in line)
        call = traced.call_of("left")
    finally:
        for _, gate in traced.engines.values():
            gate.open()

    (attempt,) = (s for s in traced.receiver.named("attempt") if s.parent_id == call.span_id)
    for span in (call, attempt):
        assert (span.attributes["octavo.outcome"], span.status) == ("cancelled", 0)


def test_metrics_are_sent_and_shown(traced: Traced) -> None:
    traced.stream({})

    names = {f"gen_ai.server.{name}" for name in ("request.duration", "time_to_first_token")}
    names |= {"gen_ai.server.time_per_output_token"}
    assert traced.receiver.wait_for(lambda: names <= set(traced.receiver.metrics))
    (point, *_) = traced.receiver.metrics["gen_ai.server.request.duration"].histogram.data_points
    assert list(point.explicit_bounds)[:2] == [0.01, 0.02]
    assert {a.key for a in point.attributes} >= {"gen_ai.operation.name", "gen_ai.response.model"}
    for name in names:
        shown = name.replace(".", "_") + "_seconds_count"
        assert by_label(traced.router, shown, "gen_ai_response_model")["held"] >= 1


def test_prometheus_scrapes_what_promtool_accepts(traced: Traced, tmp_path: Path) -> None:
    prometheus, promtool = _program("prometheus"), _program("promtool")
    traced.stream({})
    metrics = plain_http.get(f"{traced.router.url}/metrics").raise_for_status().text
    own = "".join(line for line in metrics.splitlines(keepends=True) if "vllm:" not in line)
    host = traced.router.url.removeprefix("http://")
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "octavo", "static_configs": [{"targets": [host]}]}],
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    port = free_port()
    command = [prometheus, f"--config.file={tmp_path / 'prometheus.yml'}"]
    command += [
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]

    checked = subprocess.run([promtool, "check", "metrics"], input=own, text=True, check=False)
    with running_process(command, tmp_path / "prometheus.log"):
        found = traced.router.wait_until(lambda: _count_of_chats(port) >= 1)

    assert checked.returncode == 0
    assert found, (tmp_path / "prometheus.log").read_text()


def test_an_answer_over_a_killed_engine_is_one_trace_of_two_attempts(traced: Traced) -> None:
    undisturbed = traced.stream({})
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "the-killed-one"}

    text = traced.stream(headers, kill=True)

    assert text == undisturbed
    spans = traced.receiver.spans
    assert traced.receiver.wait_for(lambda: any(_is_root(span) for span in spans))
    ours = [s for s in spans if s.trace_id == TRACE and s.service == "octavo-router"]
    (call,) = [span for span in ours if _is_root(span)]
    children = [span for span in ours if span.parent_id == call.span_id]
    assert sorted(s.name for s in children) == ["attempt", "attempt", "route", "route", "tokenise"]
    assert len(ours) == 1 + len(children)
    lost, second = sorted(
        (s for s in children if s.name == "attempt"), key=lambda s: s.attributes["octavo.attempt"]
    )
    assert lost.kind == second.kind == CLIENT
    assert (lost.status, lost.message) == (ERROR, "the engine was lost")
    assert lost.attributes["error.type"] == "unavailable"
    assert second.attributes["octavo.outcome"] == "ok"
    assert second.links == (lost.span_id,)
    assert lost.links == ()
    assert second.attributes["octavo.engine"] != lost.attributes["octavo.engine"]
    assert second.attributes["octavo.attempt.resumed_tokens"] > 0
    _check_call(call)
    assert not [s for s in spans if QUESTION in str(s) or text[:30] in str(s)]
    assert traced.receiver.wait_for(lambda: _engine_spans_below(second, spans))


def _is_root(span: ReceivedSpan) -> bool:
    return (span.trace_id, span.parent_id) == (TRACE, PARENT)


def _check_call(call: ReceivedSpan) -> None:
    """The call's span, as the conventions want it."""
    assert (call.name, call.kind, call.status) == ("chat held", SERVER, 0)
    attributes = call.attributes
    assert attributes["gen_ai.operation.name"] == "chat"
    assert attributes["gen_ai.provider.name"] == "octavo"
    assert attributes["gen_ai.response.model"] == "held"
    assert attributes["gen_ai.response.id"] == "chatcmpl-the-killed-one"
    assert attributes["gen_ai.response.finish_reasons"] == ["length"]
    assert attributes["gen_ai.usage.output_tokens"] == BODY["max_tokens"]
    assert attributes["gen_ai.usage.input_tokens"] > 10
    assert attributes["gen_ai.usage.cache_read.input_tokens"] >= 0
    assert attributes["octavo.request_id"] == "the-killed-one"
    assert attributes["octavo.outcome"] == "ok"
    assert 0 < attributes["octavo.time_to_first_token"] < call.seconds


def _engine_spans_below(attempt: ReceivedSpan, spans: list[ReceivedSpan]) -> list[ReceivedSpan]:
    """What the engine itself told of an attempt, in the same trace."""
    theirs = [s for s in spans if s.service == "octavo-engine" and s.trace_id == TRACE]
    return [span for span in theirs if span.parent_id == attempt.span_id]


def _count_of_chats(port: int) -> float:
    query = 'sum(gen_ai_server_request_duration_seconds_count{gen_ai_operation_name="chat"})'
    url = f"http://127.0.0.1:{port}/api/v1/query"
    try:
        answer = httpx.get(url, params={"query": query}, timeout=2)
    except httpx.TransportError:
        return 0.0
    if answer.status_code != 200:  # it is starting
        return 0.0
    result = answer.json()["data"]["result"]
    return float(result[0]["value"][1]) if result else 0.0


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        assert not os.environ.get("CI"), f"{name} is missing: make system-deps installs it"
        pytest.skip(f"{name} is not installed; make system-deps installs it")
    return found
