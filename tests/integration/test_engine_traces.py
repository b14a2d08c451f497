"""Spans of requests as the engine makes them: real sockets and the real loop, a scripted worker."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from contextlib import asynccontextmanager

import grpc
import pytest
from octavo.engine.v1 import engine_pb2 as pb

from tests.integration.test_engine_service import collect, request, serving
from tests.support.kept_spans import CALLER, KeptSpans, seconds
from tests.support.scripted_executor import ScriptedExecutor

GENERATE = "text_completion scripted"


@asynccontextmanager
async def traced(tmp_path, executor=None, **config):
    """A served engine that traces, and its spans."""
    spans = KeptSpans()
    async with serving(tmp_path, executor, tracing=spans.tracing, **config) as running:
        yield running, spans


async def test_a_request_is_a_span_below_its_callers_with_its_phases_as_children(tmp_path):
    async with traced(tmp_path) as (running, spans):
        asked = request(prompt=range(5, 25), traceparent=CALLER, attempt=1)
        await collect(running.engine.Generate(asked))

    found = spans.by_name()
    whole = found.pop(GENERATE)
    assert f"{whole.context.trace_id:032x}" in CALLER
    assert f"{whole.parent.span_id:016x}" in CALLER
    assert set(found) == {"queue", "prefill", "decode"}
    assert {child.parent.span_id for child in found.values()} == {whole.context.span_id}
    assert whole.start_time == found["queue"].start_time
    assert found["queue"].end_time == found["prefill"].start_time
    assert found["prefill"].end_time == found["decode"].start_time
    assert whole.end_time == found["decode"].end_time
    told = dict(whole.attributes)
    assert (
        told
        | {
            "gen_ai.operation.name": "text_completion",
            "gen_ai.provider.name": "octavo",
            "gen_ai.request.model": "scripted",
            "gen_ai.response.model": "scripted",
            "gen_ai.response.id": "r",
            "gen_ai.response.finish_reasons": ("length",),
            "gen_ai.usage.input_tokens": 20,
            "gen_ai.usage.output_tokens": 4,
            "gen_ai.usage.cache_read.input_tokens": 0,
            "octavo.request_id": "r",
            "octavo.attempt": 2,
            "octavo.engine.instance_id": "instance-1",
            "octavo.preemptions": 0,
            "octavo.outcome": "length",
        }
        == told
    )


async def test_choices_and_cached_tokens_add_up_in_one_span(tmp_path):
    async with traced(tmp_path) as (running, spans):
        for _ in range(2):
            await collect(running.engine.Generate(request(prompt=range(40), n=2)))

    last = [span for span in spans.all() if span.name == GENERATE][-1].attributes
    assert last["gen_ai.usage.input_tokens"] == 40
    assert last["gen_ai.usage.cache_read.input_tokens"] == 32
    assert last["gen_ai.usage.output_tokens"] == 8
    assert last["gen_ai.response.finish_reasons"] == ("length", "length")


async def test_a_preemption_is_an_event(tmp_path):
    executor = ScriptedExecutor()
    async with traced(tmp_path, executor, num_blocks=4, max_model_len=64) as (running, spans):
        executor.hold()
        calls = [
            running.engine.Generate(request((first,) * 17, 20, request_id=f"r{first}"))
            for first in (1, 2)
        ]
        await running.received(2)
        executor.release()
        await asyncio.gather(*map(collect, calls))

    wholes = [span for span in spans.all() if span.name == GENERATE]
    (preempted,) = [span for span in wholes if span.attributes["octavo.preemptions"]]
    assert [event.name for event in preempted.events] == ["preempted"]
    assert preempted.start_time < preempted.events[0].timestamp < preempted.end_time


async def test_a_deadline_in_the_queue_is_a_fault_and_has_no_further_phase(tmp_path):
    executor = ScriptedExecutor()
    async with traced(tmp_path, executor, max_num_seqs=1) as (running, spans):
        executor.hold()
        first = running.engine.Generate(request())
        await asyncio.to_thread(executor.wait_until_held)
        late = running.engine.Generate(request(timeout={"nanos": 50_000_000}, request_id="late"))
        await running.received(2)
        await asyncio.sleep(0.1)
        executor.release()
        with pytest.raises(grpc.aio.AioRpcError):
            await collect(late)
        await collect(first)

    wholes = {s.attributes["octavo.request_id"]: s for s in spans.all() if s.name == GENERATE}
    late = wholes["late"]
    children = [
        s.name for s in spans.all() if s.parent and s.parent.span_id == late.context.span_id
    ]
    assert children == ["queue"]
    assert late.attributes["octavo.outcome"] == "timeout"
    assert late.attributes["error.type"] == "deadline_exceeded"
    assert not late.status.is_ok
    assert seconds(late) >= 0.05


async def test_a_client_that_leaves_is_no_fault(tmp_path):
    executor = ScriptedExecutor()
    async with traced(tmp_path, executor) as (running, spans):
        executor.hold()
        call = running.engine.Generate(request())
        await asyncio.to_thread(executor.wait_until_held)
        call.cancel()
        await running.received(0)

    (whole,) = [span for span in spans.all() if span.name == GENERATE]
    assert whole.attributes["octavo.outcome"] == "cancel"
    assert "error.type" not in whole.attributes


async def test_a_refused_request_has_a_span_that_says_why_and_quotes_nothing(tmp_path):
    async with traced(tmp_path) as (running, spans):
        with pytest.raises(grpc.aio.AioRpcError):
            await collect(running.engine.Generate(request(prompt=(), traceparent=CALLER)))

    (whole,) = spans.all()
    assert f"{whole.parent.span_id:016x}" in CALLER
    assert whole.attributes["octavo.outcome"] == "refused"
    assert whole.attributes["error.type"] == "invalid_argument"
    assert whole.status.description is None


async def test_a_call_to_embed_is_traced_over_all_its_inputs(tmp_path):
    async with traced(tmp_path) as (running, spans):
        inputs = [pb.EmbedInput(token_ids=[1, 2, 3]), pb.EmbedInput(token_ids=[4, 5])]
        await running.engine.Embed(
            pb.EmbedRequest(
                request_id="e",
                task=pb.EMBED_TASK_EMBEDDING,
                inputs=inputs,
                traceparent=CALLER,
            )
        )

    found = spans.by_name()
    whole = found["embeddings scripted"]
    assert set(found) == {whole.name, "queue", "prefill"}
    assert f"{whole.parent.span_id:016x}" in CALLER
    assert whole.attributes["gen_ai.usage.input_tokens"] == 5
    assert whole.attributes["gen_ai.response.finish_reasons"] == ("stop", "stop")


@pytest.mark.parametrize("given", ["", "nonsense", "00-zz-01", "-" * 40])
async def test_what_is_no_traceparent_begins_a_trace_and_is_not_logged(tmp_path, caplog, given):
    caplog.set_level(logging.INFO, "octavo.engine.requests")
    async with traced(tmp_path) as (running, spans):
        await collect(running.engine.Generate(request(traceparent=given)))

    assert spans.by_name()[GENERATE].parent is None
    (line,) = caplog.records
    assert line.request_id == "r"
    assert "trace_id" not in vars(line)


async def test_what_a_caller_did_not_sample_is_not_traced_here(tmp_path):
    async with traced(tmp_path) as (running, spans):
        asked = request(traceparent=CALLER.removesuffix("01") + "00")
        await collect(running.engine.Generate(asked))

    assert spans.all() == []


def test_an_engine_that_does_not_trace_loads_nothing_of_opentelemetry():
    program = (
        "import sys, engine_svc.startup, engine_svc.startup_trace, engine_svc.service.server\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )

    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert ran.stdout.strip() == "[]"


async def test_log_lines_name_their_trace(tmp_path, caplog):
    caplog.set_level(logging.INFO, "octavo.engine.requests")
    async with serving(tmp_path) as running:  # whether it is traced here or not
        await collect(running.engine.Generate(request(traceparent=CALLER)))

    (line,) = caplog.records
    assert line.trace_id in CALLER
    assert line.request_id == "r"
