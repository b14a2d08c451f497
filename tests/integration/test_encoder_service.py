"""Encoders as their clients see them: real sockets, the real loop, MiniLM or a scripted encoder."""

from __future__ import annotations

import asyncio
import base64
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import numpy as np
import orjson
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_health.v1 import health_pb2, health_pb2_grpc
from octavo.engine.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    engine_pb2_grpc,
    telemetry_pb2,
    telemetry_pb2_grpc,
)
from octavo.engine.v1 import (
    engine_pb2 as pb,
)
from octavo.tracing import Tracing
from prometheus_client.parser import text_string_to_metric_families

from engine_svc.config import BatchConfig, RequestPolicy, ServiceConfig
from engine_svc.encoder_startup import LoadedEncoder
from engine_svc.service.embedding import EmbedLimits
from engine_svc.service.server import EngineServer, ServingOptions
from tests.support.kept_spans import CALLER, KeptSpans
from tests.support.run_engine import load_encoder
from tests.support.scripted_encoder import ScriptedEncoder

REFERENCE = Path(__file__).parents[1] / "data" / "minilm_sentence_transformers.json"


class Running:
    """A served encoder and clients for it."""

    def __init__(self, server: EngineServer, channel: grpc.aio.Channel) -> None:
        self.server = server
        self.engine = engine_pb2_grpc.EngineStub(channel)
        self.telemetry = telemetry_pb2_grpc.TelemetryStub(channel)
        self.admin = admin_pb2_grpc.AdminStub(channel)
        self.health = health_pb2_grpc.HealthStub(channel)

    def embed(self, *inputs, timeout=None, **fields):
        """A call that is under way; inputs are lists of token ids."""
        return self.engine.Embed(request(*inputs, **fields), timeout=timeout)

    async def vectors(self, *inputs):
        return [np.array(v.values, np.float32) for v in (await self.embed(*inputs)).vectors]

    async def metric(self, name, **labels):
        answer = await self.telemetry.GetMetrics(telemetry_pb2.GetMetricsRequest())
        families = text_string_to_metric_families(answer.exposition.decode())
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    async def is_idle(self):
        names = ("vllm:num_requests_running", "vllm:num_requests_waiting")
        return self.server.engine.num_live_inputs == 0 and not any(
            [await self.metric(name) for name in names]
        )

    async def eventually(self, condition):
        """Waits for an async condition; the test's own timeout is the limit."""
        while True:
            if await condition():
                return
            await asyncio.sleep(0.005)

    async def received(self, num_inputs):
        async def there():
            return self.server.engine.num_live_inputs == num_inputs

        await self.eventually(there)


def request(*inputs, task=pb.EMBED_TASK_EMBEDDING, **fields) -> pb.EmbedRequest:
    return pb.EmbedRequest(
        task=task, inputs=[pb.EmbedInput(token_ids=tokens) for tokens in inputs], **fields
    )


def scripted(encoder: ScriptedEncoder, max_step_tokens: int = 16) -> LoadedEncoder:
    return LoadedEncoder(
        encoder=encoder,
        max_step_tokens=max_step_tokens,
        limits=EmbedLimits(
            task=pb.EMBED_TASK_EMBEDDING,
            max_model_len=16,
            vocab_size=1000,
            has_segments=True,
            accepts_priority=True,
            tokenizer_sha256="tok",
            weights_version="w1",
        ),
        model_info=pb.GetModelInfoResponse(
            served_names=["scripted"],
            instance_id="instance-1",
            max_model_len=16,
            embedding_size=3,
        ),
    )


@asynccontextmanager
async def serving(
    loaded: LoadedEncoder,
    tmp_path: Path,
    *,
    max_num_queued_reqs=64,
    stall_timeout=60.0,
    tracing: Tracing | None = None,
):
    address = f"unix:{tmp_path}/engine.sock"
    server = EngineServer(
        loaded,
        ServiceConfig(listen=address, shutdown_timeout=5.0, stall_timeout=stall_timeout),
        BatchConfig(
            max_num_seqs=32,
            max_num_batched_tokens=None,
            target_step_seconds=0.1,
            chunked_prefill=True,
            accepts_priority=True,
            max_num_queued_reqs=max_num_queued_reqs,
            max_num_queued_tokens=1 << 20,
            speculative_config=None,
        ),
        RequestPolicy(max_logprobs=0, seed=None),
        ServingOptions(upkeep_seconds=0.02),
        tracing,
    )
    await server.start()
    async with grpc.aio.insecure_channel(address) as channel:
        try:
            yield Running(server, channel)
        finally:
            encoder = loaded.encoder
            if isinstance(encoder, ScriptedEncoder):
                encoder.release()
            await server.stop()


@pytest.fixture
async def encoder():
    return ScriptedEncoder()


@pytest.fixture
async def running(encoder, tmp_path):
    async with serving(scripted(encoder), tmp_path) as running:
        yield running


async def failure(call) -> tuple[grpc.StatusCode, str, list[str]]:
    """Code, message and the kinds of details of a call that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error = caught.value
    metadata = dict(error.trailing_metadata() or ())
    status = Status.FromString(metadata.get("grpc-status-details-bin", b""))
    return error.code(), error.details(), [detail.type_url for detail in status.details]


def kinds(*messages) -> list[str]:
    return [f"type.googleapis.com/{message.DESCRIPTOR.full_name}" for message in messages]


async def test_results_come_in_the_order_of_the_inputs(running):
    answer = await running.embed([5, 6], [9], [1] * 16)

    assert [list(v.values) for v in answer.vectors] == [[11, 2, 0], [9, 1, 0], [16, 16, 0]]
    assert answer.prompt_tokens == 19


async def test_the_second_segment_has_token_type_one(running):
    message = pb.EmbedRequest(
        task=pb.EMBED_TASK_EMBEDDING,
        inputs=[pb.EmbedInput(token_ids=[1, 2, 3, 4], first_segment_tokens=3)],
    )

    answer = await running.engine.Embed(message)

    assert list(answer.vectors[0].values) == [10, 4, 1]


async def test_inputs_of_many_calls_share_a_step(running, encoder):
    encoder.hold()
    first = running.embed([1])
    await asyncio.to_thread(encoder.entered.acquire)
    others = [running.embed([2]), running.embed([3, 3])]
    await running.received(3)

    encoder.release()
    await asyncio.gather(first, *others)

    assert encoder.steps == [[[1]], [[2], [3, 3]]]


async def test_gauges_tell_what_runs_and_what_waits(running, encoder):
    encoder.hold()
    first = running.embed([1] * 16)
    await asyncio.to_thread(encoder.entered.acquire)
    others = running.embed([2], [3])
    await running.received(3)

    assert await running.metric("vllm:num_requests_running") == 1
    assert await running.metric("vllm:num_requests_waiting") == 2
    watched = running.telemetry.WatchLoads(telemetry_pb2.WatchLoadsRequest())
    load = await watched.read()
    assert (load.num_running, load.num_waiting, load.num_uncomputed_tokens) == (1, 2, 18)
    watched.cancel()
    encoder.release()
    await asyncio.gather(first, others)
    await running.eventually(running.is_idle)


async def test_counters_count_inputs_and_tokens(running):
    await running.embed([1, 2, 3], [4])
    await running.embed([5])

    assert await running.metric("vllm:prompt_tokens_total") == 5
    assert await running.metric("vllm:request_success_total", finished_reason="stop") == 3
    assert await running.metric("vllm:e2e_request_latency_seconds_count") == 3
    assert await running.metric("vllm:iteration_tokens_total_sum") == 5
    phases = await running.metric("octavo_step_phase_seconds_total")
    sending = await running.metric("octavo_step_phase_seconds_total", phase="send")
    steps = await running.metric("octavo_step_seconds_sum")
    assert phases - sending == pytest.approx(steps) != 0


async def test_a_call_is_a_span_below_its_callers(tmp_path):
    spans = KeptSpans()
    async with serving(scripted(ScriptedEncoder()), tmp_path, tracing=spans.tracing) as traced:
        await traced.embed([1, 2, 3], [4], request_id="e", traceparent=CALLER)
        with pytest.raises(grpc.aio.AioRpcError):
            await traced.embed([], request_id="refused")

    *children, whole, refused = spans.all()
    assert [child.name for child in children] == ["queue", "prefill"]
    assert {child.parent.span_id for child in children} == {whole.context.span_id}
    assert whole.name == "embeddings scripted"
    assert f"{whole.parent.span_id:016x}" in CALLER
    assert whole.attributes["gen_ai.usage.input_tokens"] == 4
    assert whole.attributes["octavo.outcome"] == "stop"
    assert refused.attributes["error.type"] == "invalid_argument"


async def test_a_cancelled_call_is_dropped_before_it_is_computed(running, encoder):
    encoder.hold()
    first = running.embed([1])
    await asyncio.to_thread(encoder.entered.acquire)
    gone = running.embed([2], [3])
    await running.received(3)

    gone.cancel()
    await running.received(1)
    encoder.release()
    await first

    assert encoder.steps == [[[1]]]
    assert await running.metric("vllm:request_success_total", finished_reason="abort") == 2
    await running.eventually(running.is_idle)


async def test_a_full_queue_says_when_to_come_again(encoder, tmp_path):
    async with serving(scripted(encoder), tmp_path, max_num_queued_reqs=3) as running:
        encoder.hold()
        taken = running.embed([1], [2])
        await running.received(2)

        code, message, details = await failure(running.embed([3], [4]))

        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert message == ("2 inputs wait or run and 2 more would exceed 3 (--max-num-queued-reqs)")
        assert details == kinds(ErrorInfo, RetryInfo)
        assert await running.metric("vllm:admission_rejections_total", reason="queue_full") == 1
        encoder.release()
        await taken


async def test_an_idle_engine_takes_a_call_larger_than_the_queue(encoder, tmp_path):
    async with serving(scripted(encoder), tmp_path, max_num_queued_reqs=3) as running:
        answer = await running.embed(*[[1]] * 100)

    assert len(answer.vectors) == 100


async def test_a_deadline_ends_a_waiting_call_in_the_engine(running, encoder):
    encoder.hold()
    first = running.embed([1])
    await asyncio.to_thread(encoder.entered.acquire)

    code, _, _ = await failure(running.embed([2], timeout=0.05))
    await running.received(1)
    encoder.release()
    await first

    assert code == grpc.StatusCode.DEADLINE_EXCEEDED
    assert encoder.steps == [[[1]]]


async def test_a_failed_step_ends_its_calls_and_no_other(running, encoder):
    code, message, _ = await failure(running.embed([1], [ScriptedEncoder.POISON]))

    assert code == grpc.StatusCode.INTERNAL
    assert message == "the engine failed to compute this request"
    assert len((await running.embed([1])).vectors) == 1
    assert await running.metric("vllm:request_success_total", finished_reason="error") == 2
    await running.eventually(running.is_idle)


async def test_a_result_that_is_not_finite_is_an_error_of_its_call_alone(running, encoder):
    encoder.hold()
    first = running.embed([1])
    await asyncio.to_thread(encoder.entered.acquire)
    bad, good = running.embed([ScriptedEncoder.NAN]), running.embed([2])
    await running.received(3)
    encoder.release()
    await first

    code, message, _ = await failure(bad)

    assert (code, message) == (
        grpc.StatusCode.INTERNAL,
        "the model's output for this request is not finite",
    )
    assert len((await good).vectors) == 1


async def test_an_encoder_that_always_fails_ends_the_engine(running):
    for _ in range(3):
        await failure(running.embed([ScriptedEncoder.POISON]))

    await running.server.engine.failed.wait()

    code, _, _ = await failure(running.embed([1]))
    assert code == grpc.StatusCode.UNAVAILABLE


async def test_a_step_without_progress_fails_health(encoder, tmp_path):
    async with serving(scripted(encoder), tmp_path, stall_timeout=0.05) as running:
        encoder.hold()
        call = running.embed([1])

        async def not_serving():
            answer = await running.health.Check(health_pb2.HealthCheckRequest())
            return answer.status == health_pb2.HealthCheckResponse.NOT_SERVING

        await running.eventually(not_serving)
        encoder.release()
        await call


async def test_a_drain_refuses_new_calls_and_finishes_what_runs(running, encoder):
    encoder.hold()
    first = running.embed([1])
    await asyncio.to_thread(encoder.entered.acquire)
    drain = asyncio.ensure_future(running.admin.Drain(admin_pb2.DrainRequest()))

    async def is_draining():
        return running.server.engine.is_draining

    await running.eventually(is_draining)
    code, _, details = await failure(running.embed([2]))
    assert code == grpc.StatusCode.UNAVAILABLE
    assert details == kinds(ErrorInfo, RetryInfo)
    assert not drain.done()

    encoder.release()

    assert len((await first).vectors) == 1
    await drain


async def test_stopping_ends_a_call_with_unavailable(encoder, tmp_path):
    async with serving(scripted(encoder), tmp_path) as running:
        encoder.hold()
        call = running.embed([1])
        await asyncio.to_thread(encoder.entered.acquire)
        stop = asyncio.ensure_future(running.server.stop())

        code, _, _ = await failure(call)
        encoder.release()
        await stop

    assert code == grpc.StatusCode.UNAVAILABLE


async def test_an_encoder_does_not_generate(running):
    code, message, _ = await failure(running.engine.Generate(pb.GenerateRequest()).read())

    assert code == grpc.StatusCode.UNIMPLEMENTED
    assert "does not generate" in message


async def test_an_encoder_has_no_sessions(running):
    code, _, _ = await failure(running.engine.Session(iter(())).read())

    assert code == grpc.StatusCode.UNIMPLEMENTED


async def test_what_is_refused_names_its_field(running):
    code, message, details = await failure(running.embed([1] * 17))

    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert message == "inputs[0].token_ids: has 17 tokens, the model takes at most 16"
    assert details == kinds(BadRequest)
    assert await running.metric("vllm:admission_rejections_total", reason="invalid") == 1


@pytest.fixture(scope="module")
def minilm(minilm_checkpoint) -> LoadedEncoder:
    return load_encoder(minilm_checkpoint)


def reference() -> list[tuple[list[int], np.ndarray]]:
    """Inputs with the vectors of sentence-transformers; the file says how they were made."""
    entries = orjson.loads(REFERENCE.read_bytes())["inputs"]
    return [
        (entry["token_ids"], np.frombuffer(base64.b64decode(entry["vector"]), "<f4"))
        for entry in entries
    ]


async def test_minilm_embeds_as_sentence_transformers_does(minilm, tmp_path):
    inputs, expected = zip(*reference(), strict=True)
    async with serving(minilm, tmp_path) as running:
        together = await running.vectors(*inputs)
        alone = [(await running.vectors(tokens))[0] for tokens in inputs]

    np.testing.assert_allclose(together, expected, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(together, alone)


async def test_minilm_tells_what_it_is(minilm, tmp_path):
    async with serving(minilm, tmp_path) as running:
        info = await running.engine.GetModelInfo(pb.GetModelInfoRequest())

    assert not info.generates
    assert (info.embedding_size, info.num_labels, info.max_model_len) == (384, 0, 256)
    assert len(info.tokenizer_sha256) == 64
    assert "embeddings: 384 elements, pooled by mean, normalised" in info.summary


async def test_many_clients_get_the_bits_of_one(minilm, tmp_path):
    inputs = [tokens for tokens, _ in reference()]
    async with serving(minilm, tmp_path) as running:
        alone = [(await running.vectors(tokens))[0] for tokens in inputs]

        async def client(number: int) -> None:
            for step in range(3):
                which = (number + step) % len(inputs)
                (vector,) = await running.vectors(inputs[which])
                np.testing.assert_array_equal(vector, alone[which])

        await asyncio.gather(*(client(number) for number in range(32)))

        await running.eventually(running.is_idle)
        done = await running.metric("vllm:request_success_total", finished_reason="stop")
        assert done == len(inputs) + 32 * 3
