"""The engine as its clients see it: real sockets and the real loop, with a scripted worker."""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
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

from engine_svc.adapters.setup import AdapterSetup
from engine_svc.config import BatchConfig, RequestPolicy, ServiceConfig
from engine_svc.constraints.compiler import GrammarCompiler
from engine_svc.scheduling.kv_cache_manager import KVCacheManager
from engine_svc.scheduling.scheduler import Scheduler, SchedulerConfig
from engine_svc.service.server import EngineServer, ServingOptions
from engine_svc.service.submission import RequestLimits
from tests.support.scripted_executor import ScriptedExecutor, mixed_token, script

EOS = 2
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@dataclass
class Running:
    """A served engine and clients for it."""

    server: EngineServer
    executor: ScriptedExecutor
    channel: grpc.aio.Channel
    engine: engine_pb2_grpc.EngineStub
    telemetry: telemetry_pb2_grpc.TelemetryStub
    admin: admin_pb2_grpc.AdminStub
    health: health_pb2_grpc.HealthStub

    async def status(self, service=""):
        answer = await self.health.Check(health_pb2.HealthCheckRequest(service=service))
        return answer.status

    async def status_is(self, status):
        return await self.status() == status

    async def metric(self, name, **labels):
        """The value of a sample, summed over the labels that are not given."""
        answer = await self.telemetry.GetMetrics(telemetry_pb2.GetMetricsRequest())
        families = text_string_to_metric_families(answer.exposition.decode())
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    async def eventually(self, condition):
        """Waits for an async condition; the test's own timeout is the limit."""
        while True:
            if await condition():
                return
            await asyncio.sleep(0.005)

    async def received(self, num_choices):
        """Returns once so many choices have come in and not ended."""

        async def there():
            return self.server.engine.num_live_choices == num_choices

        await self.eventually(there)

    async def is_empty(self):
        """Whether no choice runs or waits and no block is in use."""
        gauges = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        return not any([await self.metric(f"vllm:{gauge}") for gauge in gauges])


@asynccontextmanager
async def serving(
    tmp_path: Path,
    executor: ScriptedExecutor | None = None,
    *,
    num_blocks=64,
    max_model_len=512,
    max_num_seqs=8,
    max_num_batched_tokens=64,
    max_num_queued_reqs=64,
    shutdown_timeout=5.0,
    stall_timeout=60.0,
    options: ServingOptions | None = None,
    tracing: Tracing | None = None,
    adapters: AdapterSetup | None = None,
    watch=lambda _on_lost: None,
):
    executor = executor or ScriptedExecutor()
    kv = KVCacheManager(num_blocks, 16)
    scheduler = Scheduler(
        SchedulerConfig(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=max_model_len,
            max_num_queued_reqs=max_num_queued_reqs,
            max_num_queued_tokens=1 << 20,
        ),
        kv,
    )
    loaded = SimpleNamespace(
        scheduler=scheduler,
        kv=kv,
        executor=executor,
        limits=RequestLimits(
            max_model_len=max_model_len,
            vocab_size=1000,
            eos_token_ids=frozenset({EOS}),
            max_logprobs=20,
            accepts_priority=True,
            tokenizer_sha256="tok",
            weights_version="w1",
        ),
        model_info=pb.GetModelInfoResponse(
            served_names=["scripted"],
            instance_id="instance-1",
            max_model_len=max_model_len,
            block_size=16,
            num_blocks=num_blocks,
            max_n=128,
        ),
        grammars=GrammarCompiler(tmp_path, 1000, frozenset({EOS})),
        adapters=adapters,
        watch=watch,
    )
    batch = BatchConfig(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        target_step_seconds=0.1,
        chunked_prefill=True,
        accepts_priority=True,
        max_num_queued_reqs=max_num_queued_reqs,
        max_num_queued_tokens=1 << 20,
        speculative_config=None,
    )
    service = ServiceConfig(
        listen=f"unix:{tmp_path / 'engine.sock'}",
        shutdown_timeout=shutdown_timeout,
        stall_timeout=stall_timeout,
    )
    policy = RequestPolicy(max_logprobs=20, seed=None)
    options = options or ServingOptions(upkeep_seconds=0.01)
    server = EngineServer(loaded, service, batch, policy, options, tracing)
    address = await server.start()
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            yield Running(
                server,
                executor,
                channel,
                engine_pb2_grpc.EngineStub(channel),
                telemetry_pb2_grpc.TelemetryStub(channel),
                admin_pb2_grpc.AdminStub(channel),
                health_pb2_grpc.HealthStub(channel),
            )
    finally:
        executor.release()
        await server.stop()


@pytest.fixture
async def engine(tmp_path):
    async with serving(tmp_path) as running:
        yield running


def request(prompt=(5, 6, 7), max_tokens=4, **fields):
    stopping = pb.StoppingParams(max_tokens=max_tokens, ignore_eos=True)
    return pb.GenerateRequest(
        **({"request_id": "r", "prompt_token_ids": prompt, "stopping": stopping} | fields)
    )


def holding_after_first_token():
    """A worker that stands still before a request's second token."""

    def pick(_prompt, output):
        if not output:
            executor.hold()
        return 8

    executor = ScriptedExecutor(pick)
    return executor


async def collect(call, events=None):
    """All events of a call up to its end, also added to `events`; raises the call's error."""
    events = [] if events is None else events
    while (event := await call.read()) is not grpc.aio.EOF:
        events.append(event)
    return events


def outputs(events):
    """Token ids by choice; asserts that positions neither repeat nor leave gaps."""
    found = {}
    for event in events:
        if event.WhichOneof("event") == "delta":
            tokens = found.setdefault(event.delta.choice, [])
            if tokens or event.delta.first_position == 0:
                assert event.delta.first_position == len(tokens)
            tokens += event.delta.token_ids
    return found


def finishes(events):
    return [event.finish for event in events if event.WhichOneof("event") == "finish"]


def scripted_output(prompt, count):
    output = []
    for _ in range(count):
        output.append(mixed_token(prompt, output))
    return output


def details(error, kind):
    """A detail of a call's error, from its trailing metadata."""
    status = Status()
    status.ParseFromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
    return unpacked(status, kind)


def unpacked(status, kind):
    message = kind()
    assert any(detail.Unpack(message) for detail in status.details)
    return message


async def refused(call):
    """The error that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await collect(call)
    return error.value


# One request


async def test_a_request_is_admitted_answered_and_finished(engine):
    events = await collect(engine.engine.Generate(request(max_tokens=4)))

    kinds = [event.WhichOneof("event") for event in events]
    assert kinds[0] == "admitted"
    assert kinds[-1] == "finish"
    assert set(kinds[1:-1]) == {"delta"}
    assert events[0].admitted.instance_id == "instance-1"
    assert outputs(events) == {0: scripted_output((5, 6, 7), 4)}
    (finish,) = finishes(events)
    assert finish.reason == pb.FINISH_REASON_LENGTH
    assert not finish.HasField("stop_token_id")
    assert (finish.usage.prompt_tokens, finish.usage.completion_tokens) == (3, 4)


async def test_an_end_token_ends_the_output_and_is_part_of_it(tmp_path):
    async with serving(tmp_path, ScriptedExecutor(script(8, 9, EOS, 10))) as engine:
        ending = request(stopping=pb.StoppingParams(max_tokens=9))
        events = await collect(engine.engine.Generate(ending))

    (finish,) = finishes(events)
    assert outputs(events) == {0: [8, 9, EOS]}
    assert finish.reason == pb.FINISH_REASON_STOP
    assert finish.stop_token_id == EOS


async def test_a_seed_is_reported_whether_given_or_made_up(engine):
    given = await collect(
        engine.engine.Generate(request(sampling=pb.SamplingParams(seed=2**64 - 1)))
    )
    drawn = [await collect(engine.engine.Generate(request())) for _ in range(2)]

    assert given[0].admitted.seed == 2**64 - 1
    assert drawn[0][0].admitted.seed != drawn[1][0].admitted.seed


async def test_choices_share_a_request_but_not_its_output(engine):
    events = await collect(engine.engine.Generate(request(n=3, max_tokens=5)))

    assert [event.WhichOneof("event") for event in events].count("admitted") == 1
    assert {choice: len(tokens) for choice, tokens in outputs(events).items()} == {0: 5, 1: 5, 2: 5}
    assert sorted(finish.choice for finish in finishes(events)) == [0, 1, 2]


async def test_logprobs_are_packed_position_by_position(engine):
    asked = request(
        prompt=[1, 2, 3], max_tokens=2, logprobs=pb.LogprobsParams(top_k=2, prompt_top_k=1), n=2
    )
    events = await collect(engine.engine.Generate(asked))

    (prompt,) = [e.prompt_logprobs for e in events if e.WhichOneof("event") == "prompt_logprobs"]
    assert prompt.first_position == 0
    assert math.isnan(prompt.logprobs.token_logprobs[0])
    assert list(prompt.logprobs.token_logprobs[1:]) == [-0.75, -1.0]
    assert len(prompt.logprobs.top_token_ids) == 3 * prompt.logprobs.top_k == 3
    for event in events:
        if event.WhichOneof("event") == "delta":
            block = event.delta.logprobs
            assert len(block.token_logprobs) == len(event.delta.token_ids)
            assert len(block.top_logprobs) == 2 * len(event.delta.token_ids)


async def test_a_prefix_that_was_computed_before_is_reported_as_cached(engine):
    prompt = list(range(40))
    first = await collect(engine.engine.Generate(request(prompt=prompt)))
    second = await collect(engine.engine.Generate(request(prompt=prompt)))

    assert finishes(first)[0].usage.cached_tokens == 0
    assert second[0].admitted.cached_tokens == 32
    assert finishes(second)[0].usage.cached_tokens == 32
    assert await engine.metric("vllm:prefix_cache_hits_total") == 32


async def test_a_flushed_cache_is_forgotten(engine):
    prompt = list(range(40))
    await collect(engine.engine.Generate(request(prompt=prompt)))

    flushed = await engine.admin.FlushCache(admin_pb2.FlushCacheRequest())
    again = await collect(engine.engine.Generate(request(prompt=prompt)))

    assert flushed.num_blocks == 2
    assert again[0].admitted.cached_tokens == 0


# Resume


async def test_a_resumed_request_goes_on_where_it_stood(engine):
    whole = scripted_output((5, 6, 7), 8)
    resumed = request(
        max_tokens=8, attempt=1, resume=[pb.ResumeChoice(choice=0, output_token_ids=whole[:3])]
    )
    events = await collect(engine.engine.Generate(resumed))

    deltas = [event.delta for event in events if event.WhichOneof("event") == "delta"]
    assert deltas[0].first_position == 3
    assert [token for delta in deltas for token in delta.token_ids] == whole[3:]
    assert finishes(events)[0].usage.completion_tokens == 8


async def test_a_resumed_choice_with_nothing_left_only_finishes(engine):
    complete = request(max_tokens=2, resume=[pb.ResumeChoice(output_token_ids=[8, 9])])
    events = await collect(engine.engine.Generate(complete))

    (finish,) = finishes(events)
    assert outputs(events) == {}
    assert finish.reason == pb.FINISH_REASON_LENGTH
    assert finish.usage.completion_tokens == 2


async def test_a_finished_choice_does_not_run_again(engine):
    resumed = request(
        n=2, max_tokens=3, resume=[pb.ResumeChoice(choice=0, output_token_ids=[1], finished=True)]
    )
    events = await collect(engine.engine.Generate(resumed))

    assert list(outputs(events)) == [1]


# Refusals


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"prompt": []}, "prompt_token_ids"),
        ({"prompt": [1] * 512}, "prompt_token_ids"),
        ({"prompt": [1, 1000]}, "prompt_token_ids[1]"),
        ({"lora": "a"}, "lora"),
        ({"constraint": pb.Constraint()}, "constraint"),
        ({"sampling": pb.SamplingParams(top_p=2.0)}, "sampling.top_p"),
    ],
)
async def test_a_bad_request_names_its_field(engine, fields, field):
    error = await refused(engine.engine.Generate(request(**fields)))

    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert details(error, BadRequest).field_violations[0].field == field
    assert await engine.metric("vllm:admission_rejections_total", reason="invalid") == 1


async def test_a_wrong_expectation_fails_before_anything_runs(engine):
    error = await refused(engine.engine.Generate(request(expect=pb.Expect(weights_version="w2"))))

    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert details(error, ErrorInfo).metadata["actual"] == "w1"
    assert engine.executor.batches == []


async def test_a_full_queue_refuses_and_says_when_to_come_back(tmp_path):
    async with serving(tmp_path, max_num_seqs=1, max_num_queued_reqs=1) as engine:
        engine.executor.hold()
        calls = [asyncio.create_task(collect(engine.engine.Generate(request())))]
        await asyncio.to_thread(engine.executor.wait_until_held)
        calls += [asyncio.create_task(collect(engine.engine.Generate(request()))) for _ in "ab"]
        await engine.received(3)
        engine.executor.release()
        results = await asyncio.gather(*calls, return_exceptions=True)

        (error,) = [result for result in results if isinstance(result, grpc.aio.AioRpcError)]
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert details(error, RetryInfo).retry_delay.ToMilliseconds() > 0
        assert await engine.metric("vllm:admission_rejections_total", reason="queue_full") == 1


# Ends before the end


async def test_a_cancelled_call_frees_its_blocks(engine):
    call = engine.engine.Generate(request(prompt=range(100), max_tokens=400))
    engine.executor.hold()
    reader = asyncio.create_task(collect(call))
    await asyncio.to_thread(engine.executor.wait_until_held)
    call.cancel()
    await engine.received(0)  # the cancel has arrived: the request must not finish before it
    engine.executor.release()
    await asyncio.gather(reader, return_exceptions=True)

    await engine.eventually(engine.is_empty)
    steps = len(engine.executor.batches)
    await asyncio.sleep(0.02)
    assert len(engine.executor.batches) == steps
    assert await engine.metric("vllm:request_success_total", finished_reason="abort") == 1


async def test_a_mass_abort_leaves_nothing_behind(engine):
    engine.executor.hold()
    prompts = [range(n, n + 30) for n in range(40)]
    calls = [engine.engine.Generate(request(prompt=p, max_tokens=400)) for p in prompts]
    await engine.received(40)
    for call in calls:
        call.cancel()
    await engine.received(0)
    engine.executor.release()

    await engine.eventually(engine.is_empty)
    assert await engine.metric("vllm:request_success_total", finished_reason="abort") == 40


async def test_a_deadline_in_the_queue_names_the_stage(tmp_path):
    async with serving(tmp_path, max_num_seqs=1) as engine:
        engine.executor.hold()
        first = engine.engine.Generate(request(max_tokens=400))
        await engine.received(1)
        late = request()
        late.timeout.FromMilliseconds(20)
        call = asyncio.create_task(refused(engine.engine.Generate(late)))
        await engine.received(2)
        await asyncio.sleep(0.03)
        engine.executor.release()
        error = await call
        first.cancel()

    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert details(error, ErrorInfo).metadata["stage"] == "queue"


async def test_a_deadline_while_decoding_ends_the_request_and_frees_it(tmp_path):
    async with serving(tmp_path, holding_after_first_token()) as engine:
        late = request(max_tokens=500)
        late.timeout.FromMilliseconds(100)
        kinds = []
        while not kinds:
            call = engine.engine.Generate(late)
            with suppress(grpc.aio.AioRpcError):  # its deadline passed before the first token
                kinds = [(await call.read()).WhichOneof("event") for _ in range(2)]
        await asyncio.sleep(0.1)
        engine.executor.release()
        error = await refused(call)
        await engine.eventually(engine.is_empty)

    assert kinds == ["admitted", "delta"]
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert details(error, ErrorInfo).metadata["stage"] == "decode"


async def test_the_calls_own_deadline_holds_in_the_engine(engine):
    engine.executor.hold()
    error = await refused(engine.engine.Generate(request(max_tokens=400), timeout=0.05))
    engine.executor.release()

    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await engine.eventually(engine.is_empty)


async def test_a_request_that_cannot_be_computed_fails_alone(engine):
    engine.executor.hold()
    engine.executor.fail(key=0)
    failing = asyncio.create_task(refused(engine.engine.Generate(request())))
    await engine.received(1)  # so that it has key 0
    healthy = asyncio.create_task(collect(engine.engine.Generate(request(prompt=[1, 1]))))
    await engine.received(2)
    engine.executor.release()

    assert (await failing).code() is grpc.StatusCode.INTERNAL
    assert outputs(await healthy) == {0: scripted_output((1, 1), 4)}
    assert await engine.is_empty()


async def test_a_step_that_raises_ends_its_requests_and_nothing_else(engine, caplog):
    engine.executor.raise_next(RuntimeError("secret internals"))
    error = await refused(engine.engine.Generate(request()))

    assert error.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in error.details()
    assert "secret internals" in caplog.text
    assert await engine.status() == SERVING
    assert await engine.is_empty()


async def test_steps_that_fail_one_after_another_end_the_engine(tmp_path):
    class Broken(ScriptedExecutor):
        def submit(self, batch):
            raise RuntimeError("broken")

    async with serving(tmp_path, Broken()) as engine:
        codes = [(await refused(engine.engine.Generate(request()))).code() for _ in range(3)]
        await engine.server.engine.failed.wait()
        last = await refused(engine.engine.Generate(request()))

        assert codes == [grpc.StatusCode.INTERNAL] * 2 + [grpc.StatusCode.UNAVAILABLE]
        assert last.code() is grpc.StatusCode.UNAVAILABLE
        await engine.eventually(lambda: engine.status_is(NOT_SERVING))


async def test_clients_are_told_of_a_lost_worker_though_a_step_waits_for_it(tmp_path):
    lose_worker = []
    async with serving(tmp_path, ScriptedExecutor(), watch=lose_worker.append) as engine:
        engine.executor.hold()  # as a GPU does that waits for the GPU of another rank
        call = asyncio.create_task(refused(engine.engine.Generate(request())))
        await asyncio.to_thread(engine.executor.wait_until_held)

        lose_worker[0]("rank 1 was killed by SIGKILL")

        assert (await call).code() is grpc.StatusCode.UNAVAILABLE
        assert engine.server.engine.failed.is_set()
        engine.executor.release()


# Slow clients


async def test_a_slow_client_gets_larger_messages_and_then_an_error(tmp_path):
    options = ServingOptions(max_unsent_tokens=100, upkeep_seconds=0.01)
    roomy = {"max_model_len": 4096, "num_blocks": 256}
    async with serving(tmp_path, ScriptedExecutor(script(8)), options=options, **roomy) as engine:
        asked = request(max_tokens=4000, logprobs=pb.LogprobsParams(top_k=20))
        call = engine.engine.Generate(asked)

        async def aborted():
            return await engine.metric("vllm:request_success_total", finished_reason="abort")

        await engine.eventually(aborted)
        assert await engine.is_empty()
        events = []
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await collect(call, events)

    deltas = [event.delta for event in events if event.HasField("delta")]
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "client too slow" in error.value.details()
    assert max(len(delta.token_ids) for delta in deltas) > 50  # what waited came as one


# Sessions


async def test_many_requests_over_one_session(engine):
    frames = [
        pb.SessionRequest(stream_id=n, submit=request(prompt=[n, 1, 2], max_tokens=10))
        for n in range(30)
    ]
    engine.executor.hold()
    running = asyncio.create_task(run_session(engine, frames))
    await engine.received(30)  # so that their steps are shared, however slowly they come
    engine.executor.release()
    messages, events = await running

    for n in range(30):
        assert outputs(events[n]) == {0: scripted_output((n, 1, 2), 10)}
        assert len(finishes(events[n])) == 1
    assert len(messages) < 30 * 10 / 3


async def run_session(engine, frames):
    """Sends frames and reads until each choice that was submitted has ended."""
    call = engine.engine.Session()
    for frame in frames:
        await call.write(frame)
    num_open = sum(max(1, frame.submit.n) for frame in frames)
    messages, events = [], {}
    while num_open:
        message = await call.read()
        messages.append(message)
        for stream_id, delta in runs_of(message):
            events.setdefault(stream_id, []).append(pb.GenerateResponse(delta=delta))
        for event in message.events:
            if event.WhichOneof("outcome") == "failure":
                events[event.stream_id] = event.failure
                num_open -= 1
                continue
            events.setdefault(event.stream_id, []).append(event.event)
            num_open -= event.event.WhichOneof("event") == "finish"
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    return messages, events


def runs_of(message):
    """The token runs of a message as deltas, with their stream ids."""
    runs, start = message.token_runs, 0
    fields = (runs.stream_ids, runs.choices, runs.first_positions, runs.num_tokens)
    for stream_id, choice, first, count in zip(*fields, strict=True):
        token_ids = runs.token_ids[start : start + count]
        yield stream_id, pb.Delta(choice=choice, first_position=first, token_ids=token_ids)
        start += count
    assert start == len(runs.token_ids)


async def test_plain_tokens_come_packed_to_those_who_accept_it(tmp_path):
    frame = pb.SessionRequest(stream_id=7, submit=request(max_tokens=20), accepts_token_runs=True)
    async with serving(tmp_path, holding_after_first_token()) as engine:
        call = engine.engine.Session()
        await call.write(frame)
        first = await call.read()
        engine.executor.release()
        runs, events = [], []
        while not events:
            message = await call.read()
            runs += runs_of(message)
            events += [event.event for event in message.events]
        call.cancel()

    # What is told before a token keeps its place before it, so the first token is an event.
    assert [event.event.WhichOneof("event") for event in first.events] == ["admitted", "delta"]
    assert {stream_id for stream_id, _ in runs} == {7}
    assert runs[0][1].first_position == 1
    assert [token_id for _, run in runs for token_id in run.token_ids] == [8] * 19
    assert [event.WhichOneof("event") for event in events] == ["finish"]


async def test_packed_or_not_the_tokens_are_the_same(engine):
    accepts = {"accepts_token_runs": True}
    logprobs = pb.LogprobsParams(top_k=1)
    frames = [
        pb.SessionRequest(stream_id=1, submit=request(max_tokens=20, n=2), **accepts),
        pb.SessionRequest(stream_id=2, submit=request(max_tokens=20)),
        pb.SessionRequest(stream_id=3, submit=request(max_tokens=20, logprobs=logprobs), **accepts),
    ]
    messages, events = await run_session(engine, frames)

    output = scripted_output((5, 6, 7), 20)
    assert outputs(events[1]) == {0: output, 1: output}
    assert outputs(events[2]) == outputs(events[3]) == {0: output}
    assert {stream_id for message in messages for stream_id, _ in runs_of(message)} <= {1}


async def test_a_refused_request_fails_alone_with_its_details(engine):
    frames = [
        pb.SessionRequest(stream_id=1, submit=request(prompt=[])),
        pb.SessionRequest(stream_id=2, submit=request()),
    ]
    _, events = await run_session(engine, frames)

    failure = events[1]
    status = Status.FromString(failure.status_details)
    assert failure.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert unpacked(status, BadRequest).field_violations[0].field == "prompt_token_ids"
    assert len(finishes(events[2])) == 1


async def test_a_cancelled_request_of_a_session_goes_silent_and_frees_its_blocks(engine):
    call = engine.engine.Session()
    engine.executor.hold()
    for n in (1, 2):
        await call.write(pb.SessionRequest(stream_id=n, submit=request(max_tokens=30)))
    await engine.received(2)
    await call.write(pb.SessionRequest(stream_id=1, cancel=pb.CancelFrame()))
    await engine.received(1)
    engine.executor.release()

    seen = set()
    finished = False
    while not finished:
        for event in (await call.read()).events:
            seen.add(event.stream_id)
            finished = event.event.WhichOneof("event") == "finish"
    assert seen == {2}
    await engine.eventually(engine.is_empty)
    call.cancel()


async def test_a_choice_can_be_cancelled_on_its_own(engine):
    call = engine.engine.Session()
    engine.executor.hold()
    await call.write(pb.SessionRequest(stream_id=1, submit=request(n=2, max_tokens=30)))
    await engine.received(2)
    await call.write(pb.SessionRequest(stream_id=1, cancel=pb.CancelFrame(choice=1)))
    await engine.received(1)
    first = await call.read()
    engine.executor.release()
    events = [event.event for event in first.events]
    while len(finishes(events)) < 2:
        events += [event.event for event in (await call.read()).events]
    call.cancel()

    reasons = {finish.choice: finish.reason for finish in finishes(events)}
    assert reasons == {0: pb.FINISH_REASON_LENGTH, 1: pb.FINISH_REASON_CANCELLED}
    assert set(outputs(events)) == {0}


@pytest.mark.parametrize("ending", ["half-close", "cancel"])
async def test_a_closed_session_aborts_what_is_left_of_it(engine, ending):
    call = engine.engine.Session()
    engine.executor.hold()
    for n in range(5):
        await call.write(pb.SessionRequest(stream_id=n, submit=request(max_tokens=400)))
    await engine.received(5)
    if ending == "cancel":
        call.cancel()
    else:
        await call.done_writing()
    await engine.received(0)
    engine.executor.release()

    await engine.eventually(engine.is_empty)
    assert await engine.metric("vllm:request_success_total", finished_reason="abort") == 5


async def test_a_stream_id_in_use_breaks_the_session(engine):
    call = engine.engine.Session()
    engine.executor.hold()
    for _ in range(2):
        await call.write(pb.SessionRequest(stream_id=7, submit=request()))
    error = await refused(call)

    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert details(error, BadRequest).field_violations[0].field == "stream_id"


async def test_steps_coalesce_for_a_session_that_does_not_read(tmp_path):
    roomy = {"max_model_len": 4096, "num_blocks": 256}
    async with serving(tmp_path, ScriptedExecutor(script(8)), **roomy) as engine:
        engine.executor.hold()
        call = engine.engine.Session()
        asked = request(max_tokens=1500, logprobs=pb.LogprobsParams(top_k=20))
        await call.write(pb.SessionRequest(stream_id=1, submit=asked))
        await engine.received(1)
        engine.executor.release()
        await engine.received(0)
        events, messages = [], 0
        while not finishes(events):
            messages += 1
            events += [event.event for event in (await call.read()).events]
        call.cancel()

    assert outputs(events) == {0: [8] * 1500}
    assert messages < 1500


# Operations


async def test_a_drain_finishes_what_runs_and_refuses_what_comes(engine):
    engine.executor.hold()
    running = asyncio.create_task(collect(engine.engine.Generate(request(max_tokens=20))))
    await engine.received(1)
    draining = engine.admin.Drain(admin_pb2.DrainRequest())
    await engine.eventually(lambda: engine.status_is(NOT_SERVING))
    late = await refused(engine.engine.Generate(request()))
    assert not draining.done()
    engine.executor.release()

    await draining
    assert outputs(await running) == {0: scripted_output((5, 6, 7), 20)}
    assert late.code() is grpc.StatusCode.UNAVAILABLE
    assert details(late, ErrorInfo).reason == "DRAINING"


async def test_a_stop_ends_streams_with_an_error_rather_than_silence(engine):
    engine.executor.hold()
    generate = asyncio.create_task(refused(engine.engine.Generate(request(max_tokens=400))))
    session = engine.engine.Session()
    await session.write(pb.SessionRequest(stream_id=1, submit=request(max_tokens=400)))
    await engine.received(2)
    stopping = asyncio.create_task(engine.server.stop())
    (event,) = (await session.read()).events
    engine.executor.release()
    await stopping

    assert (await generate).code() is grpc.StatusCode.UNAVAILABLE
    assert event.failure.code == grpc.StatusCode.UNAVAILABLE.value[0]


async def test_health_tells_idle_and_busy_from_hung(tmp_path):
    async with serving(tmp_path, stall_timeout=0.05) as engine:
        await asyncio.sleep(0.1)
        idle = await engine.status()
        engine.executor.hold()
        call = asyncio.create_task(collect(engine.engine.Generate(request())))
        await engine.eventually(lambda: engine.status_is(NOT_SERVING))
        loads = engine.telemetry.WatchLoads(telemetry_pb2.WatchLoadsRequest())
        stalled = await loads.read()
        refusal = await refused(engine.engine.Generate(request()))
        engine.executor.release()
        await call
        await engine.eventually(lambda: engine.status_is(SERVING))
        loads.cancel()

    assert idle == SERVING
    assert stalled.state == telemetry_pb2.ENGINE_STATE_STALLED
    assert details(refusal, ErrorInfo).reason == "OVERLOADED"


async def test_a_leaked_block_makes_health_fail(engine):
    kv = engine.server.engine._engine._kv
    kv.pool.allocate(1)  # taken by nobody
    await collect(engine.engine.Generate(request()))

    await engine.eventually(lambda: engine.status_is(NOT_SERVING))


async def test_every_service_has_a_health_of_its_own(engine):
    for service in ("Engine", "Telemetry", "Admin"):
        assert await engine.status(f"octavo.engine.v1.{service}") == SERVING


async def test_loads_are_pushed_as_they_change(tmp_path):
    async with serving(tmp_path, holding_after_first_token()) as engine:
        loads = engine.telemetry.WatchLoads(telemetry_pb2.WatchLoadsRequest())
        idle = await loads.read()
        call = engine.engine.Generate(request(prompt=range(20), max_tokens=480))
        while not (busy := await loads.read()).num_running:
            pass
        call.cancel()
        await engine.received(0)
        engine.executor.release()
        while (after := await loads.read()).num_running:
            pass
        loads.cancel()

    assert idle.state == telemetry_pb2.ENGINE_STATE_READY
    assert idle.num_free_blocks == idle.num_blocks == 64
    assert busy.num_free_blocks == 62
    assert after.num_free_blocks == 64


async def test_a_silent_request_is_told_that_it_is_alive(tmp_path):
    options = ServingOptions(heartbeat_seconds=0.02, upkeep_seconds=0.01)
    async with serving(tmp_path, options=options) as engine:
        engine.executor.hold()
        call = engine.engine.Generate(request())
        first = await call.read()
        engine.executor.release()
        rest = await collect(call)

    assert first.notice.kind == pb.Notice.KIND_HEARTBEAT
    assert len(finishes(rest)) == 1


async def test_a_preempted_request_is_told_and_completes_unchanged(tmp_path):
    async with serving(tmp_path, num_blocks=8, max_model_len=128) as engine:
        engine.executor.hold()
        calls = [
            asyncio.create_task(
                collect(engine.engine.Generate(request(prompt=[n, *range(30)], max_tokens=60)))
            )
            for n in range(3)
        ]
        await engine.received(3)
        engine.executor.release()
        results = await asyncio.gather(*calls)

        notices = [e.notice.kind for events in results for e in events if e.HasField("notice")]
        assert pb.Notice.KIND_PREEMPTED in notices
        assert await engine.metric("vllm:num_preemptions_total") == len(notices)
        for n, events in enumerate(results):
            assert outputs(events) == {0: scripted_output((n, *range(30)), 60)}


async def test_a_steps_phases_add_up_to_its_time(engine):
    await asyncio.gather(
        *(collect(engine.engine.Generate(request(request_id=f"r{i}"))) for i in range(4))
    )

    whole = await engine.metric("octavo_step_seconds_sum")
    parts = [
        await engine.metric("octavo_step_phase_seconds_total", phase=phase)
        for phase in ("schedule", "kernels", "sample")
    ]
    assert whole > 0
    assert sum(parts) == pytest.approx(whole)
    assert await engine.metric("octavo_step_phase_seconds_total", phase="send") > 0


async def test_counters_conserve(engine):
    answered = [request(prompt=[n, 1], max_tokens=5) for n in range(10)]
    for asked in answered:
        await collect(engine.engine.Generate(asked))
    for _ in range(3):
        await refused(engine.engine.Generate(request(prompt=[])))
    engine.executor.hold()
    cancelled = engine.engine.Generate(request(prompt=[3, 3, 3], max_tokens=400))
    await engine.received(1)
    cancelled.cancel()
    await engine.received(0)
    engine.executor.release()
    await engine.eventually(engine.is_empty)

    assert await engine.metric("vllm:request_success_total") == 11
    assert await engine.metric("vllm:request_success_total", finished_reason="length") == 10
    assert await engine.metric("vllm:admission_rejections_total") == 3
    assert await engine.metric("vllm:prompt_tokens_total") == 10 * 2
    assert await engine.metric("vllm:generation_tokens_total") >= 10 * 5
    assert await engine.metric("vllm:time_to_first_token_seconds_count") == 10
    assert await engine.metric("vllm:e2e_request_latency_seconds_count") == 11


async def test_the_services_describe_themselves(engine):
    stub = reflection_pb2_grpc.ServerReflectionStub(engine.channel)
    call = stub.ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    answer = await call.read()
    call.cancel()

    names = {service.name for service in answer.list_services_response.service}
    assert {"octavo.engine.v1.Engine", "grpc.health.v1.Health"} <= names


async def test_channelz_answers(engine):
    stub = channelz_pb2_grpc.ChannelzStub(engine.channel)

    answer = await stub.GetServers(channelz_pb2.GetServersRequest())

    assert answer.server


async def test_the_model_is_described(engine):
    info = await engine.engine.GetModelInfo(pb.GetModelInfoRequest())

    assert (info.served_names, info.max_n) == (["scripted"], 128)


# Embeddings of a model that generates; the scripted worker gives [sum of the tokens, their number]


def embed_request(*prompts, task=pb.EMBED_TASK_EMBEDDING, **fields):
    inputs = [pb.EmbedInput(token_ids=prompt) for prompt in prompts]
    return pb.EmbedRequest(task=task, inputs=inputs, **fields)


def vectors_of(answer):
    return [list(vector.values) for vector in answer.vectors]


async def test_inputs_are_embedded_in_their_order_and_nothing_is_sampled(engine):
    prompts = [[5] * 3, [7], [2] * 200]  # the last takes several steps

    answer = await engine.engine.Embed(embed_request(*prompts))

    assert vectors_of(answer) == [[15, 3], [7, 1], [400, 200]]
    assert answer.prompt_tokens == 204
    assert not any(chunk.samples for batch in engine.executor.batches for chunk in batch.chunks)
    assert await engine.metric("vllm:generation_tokens_total") == 0
    assert await engine.metric("vllm:request_success_total", finished_reason="stop") == 3
    await engine.eventually(engine.is_empty)


async def test_embeddings_and_answers_share_the_engine(engine):
    generating = collect(engine.engine.Generate(request((9, 9), max_tokens=20)))
    embedding = engine.engine.Embed(embed_request(*[[i] * i for i in range(1, 60)]))

    events, answer = await asyncio.gather(generating, embedding)

    assert outputs(events) == {0: scripted_output((9, 9), 20)}
    assert vectors_of(answer) == [[i * i, i] for i in range(1, 60)]


async def test_more_inputs_than_may_wait_are_taken_while_nothing_waits(tmp_path):
    async with serving(tmp_path, max_num_queued_reqs=4) as engine:
        answer = await engine.engine.Embed(embed_request(*[[3]] * 300))

    assert vectors_of(answer) == [[3, 1]] * 300


async def test_inputs_that_were_preempted_are_embedded_all_the_same(tmp_path):
    async with serving(tmp_path, num_blocks=10, max_model_len=160) as engine:
        prompts = [[i] * 150 for i in range(1, 6)]
        generating = collect(engine.engine.Generate(request((1, 2), max_tokens=100)))

        answer = await engine.engine.Embed(embed_request(*prompts))

        assert vectors_of(answer) == [[150 * i, 150] for i in range(1, 6)]
        assert outputs(await generating) == {0: scripted_output((1, 2), 100)}


async def test_a_cancelled_embedding_frees_its_blocks(engine):
    engine.executor.hold()
    call = engine.engine.Embed(embed_request([1] * 50, [2] * 50))
    await engine.received(2)

    call.cancel()
    engine.executor.release()

    await engine.received(0)
    await engine.eventually(engine.is_empty)


async def test_an_input_that_cannot_be_computed_fails_its_call(engine):
    engine.executor.fail(1)

    with pytest.raises(grpc.aio.AioRpcError) as error:
        await engine.engine.Embed(embed_request([1], [2], [3]))

    assert error.value.code() is grpc.StatusCode.INTERNAL
    await engine.eventually(engine.is_empty)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (embed_request([1] * 513), "inputs[0].token_ids: has 513 tokens, the model takes at most"),
        (embed_request([1], task=pb.EMBED_TASK_SCORE), "task: the loaded model has no classifier"),
        (embed_request(), "inputs: must be from 1 to 2048, not 0"),
    ],
)
async def test_what_cannot_be_embedded_is_named(engine, message, text):
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await engine.engine.Embed(message)

    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.value.details().startswith(text)
    assert await engine.metric("vllm:admission_rejections_total", reason="invalid") == 1


async def test_an_input_may_fill_the_whole_context(engine):
    answer = await engine.engine.Embed(embed_request([1] * 512))

    assert vectors_of(answer) == [[512, 512]]
