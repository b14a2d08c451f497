"""Adapters as clients and operators see them: real sockets and the real loop, a scripted worker."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from octavo.engine.v1 import admin_pb2, telemetry_pb2
from octavo.engine.v1 import engine_pb2 as pb

from engine_svc.adapters.peft_directory import BaseModel
from engine_svc.adapters.setup import AdapterSetup
from engine_svc.models.registry import understand
from engine_svc.worker.executor import WorkerLostError
from tests.integration.test_engine_service import (
    collect,
    details,
    finishes,
    outputs,
    refused,
    request,
    scripted_output,
    serving,
)
from tests.support.marked_adapter import mark
from tests.support.peft_files import make_adapter
from tests.support.scripted_executor import ScriptedExecutor

UNDERSTOOD = understand(
    {
        "model_type": "llama",
        "vocab_size": 1000,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
    }
)
PROMPT = (5, 6, 7)
LONG = tuple(range(3, 67))  # four blocks


def make(directory, *names, seed=0):
    """Adapters of these names, each with weights of its own."""
    for number, name in enumerate(names):
        make_adapter(directory / name, UNDERSTOOD.spec, seed=seed + number)


@asynccontextmanager
async def serving_adapters(tmp_path, executor=None, *, num_slots=2, directory=True, **options):
    """An engine that loads adapters from `tmp_path / "adapters"`."""
    root = tmp_path / "adapters"
    root.mkdir(exist_ok=True)
    setup = AdapterSetup(
        base=BaseModel(UNDERSTOOD.spec, UNDERSTOOD.family.name, ("tiny",)),
        served_names=("scripted",),
        num_slots=num_slots,
        max_rank=8,
        directory=root if directory else None,
        pack=mark,
    )
    async with serving(tmp_path, executor, adapters=setup, **options) as engine:
        yield engine


def load(engine, name, source=None):
    wanted = admin_pb2.LoadAdapterRequest(name=name, source=source or name)
    return engine.admin.LoadAdapter(wanted)


def unload(engine, name):
    return engine.admin.UnloadAdapter(admin_pb2.UnloadAdapterRequest(name=name))


async def info(engine):
    return await engine.engine.GetModelInfo(pb.GetModelInfoRequest())


async def code(call):
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value.code()


async def generate(engine, prompt=PROMPT, lora="", **fields):
    events = await collect(engine.engine.Generate(request(prompt=prompt, lora=lora, **fields)))
    return outputs(events)[0]


async def cached(engine, lora):
    """Tokens of the long prompt that are found in the cache."""
    events = await collect(engine.engine.Generate(request(prompt=LONG, lora=lora)))
    return finishes(events)[0].usage.cached_tokens


def marked_output(engine, slot, prompt=PROMPT, count=4):
    """What the scripted worker says by the adapter in a slot."""
    shift, output = engine.executor.adapters[slot].mark, []
    for _ in range(count):
        output.append((scripted_output_after(prompt, output) + shift) % 1000)
    return output


def scripted_output_after(prompt, output):
    return scripted_output((*prompt, *output), 1)[0]


async def test_requests_name_adapters_and_run_beside_those_that_do_not(tmp_path):
    make(tmp_path / "adapters", "a", "b")
    async with serving_adapters(tmp_path) as engine:
        loaded = (await load(engine, "a")).adapter
        await load(engine, "b")

        answers = await asyncio.gather(*(generate(engine, lora=name) for name in ("", "a", "b")))

        assert answers[0] == scripted_output(PROMPT, 4)
        assert answers[1:] == [marked_output(engine, 0), marked_output(engine, 1)]
        told = await info(engine)
        assert [adapter.name for adapter in told.adapters] == ["a", "b"]
        assert (told.max_adapters, told.max_adapter_rank) == (2, 8)
        assert told.adapters[0] == loaded
        source = str(tmp_path / "adapters" / "a")
        assert (loaded.rank, loaded.source, len(loaded.version)) == (4, source, 64)


async def test_a_name_that_no_adapter_has_is_refused(tmp_path):
    make(tmp_path / "adapters", "secret")
    async with serving_adapters(tmp_path) as engine:
        await load(engine, "secret")

        error = await refused(engine.engine.Generate(request(lora="other")))

        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert details(error, BadRequest).field_violations[0].field == "lora"
        assert "secret" not in error.details()


@pytest.mark.parametrize("name", ["a", "b", ""])
async def test_a_request_may_expect_a_version(name, tmp_path):
    make(tmp_path / "adapters", "a")
    async with serving_adapters(tmp_path) as engine:
        version = (await load(engine, "a")).adapter.version
        expect = pb.Expect(adapter_version="0" * 64 if name == "a" else version)

        error = await refused(engine.engine.Generate(request(lora=name, expect=expect)))

        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert details(error, ErrorInfo).metadata["field"] == "expect.adapter_version"
        expect = pb.Expect(adapter_version=version)
        assert len(await generate(engine, lora="a", expect=expect)) == 4


async def test_blocks_are_shared_by_version_and_never_between_adapters(tmp_path):
    root = tmp_path / "adapters"
    make(root, "a", "b")
    make(root, "a_again")
    async with serving_adapters(tmp_path, num_slots=3) as engine:
        for name in ("a", "b"):
            await load(engine, name)
        await load(engine, "copy", "a_again")  # other files with the same bytes

        found = [await cached(engine, name) for name in ("", "a", "b", "copy", "a", "")]

        assert found == [0, 0, 0, 48, 48, 48]


async def test_a_name_loaded_again_with_other_weights_finds_no_stale_cache(tmp_path):
    root = tmp_path / "adapters"
    make(root, "a")
    async with serving_adapters(tmp_path, num_slots=1) as engine:
        await load(engine, "a")
        before = await generate(engine, LONG, "a")
        assert await cached(engine, "a") == 48

        await unload(engine, "a")
        make(root, "a", seed=9)
        await load(engine, "a")

        assert await cached(engine, "a") == 0
        assert await generate(engine, LONG, "a") == marked_output(engine, 0, LONG) != before


async def test_unloading_refuses_new_requests_at_once_and_waits_for_running_ones(tmp_path):
    make(tmp_path / "adapters", "a")
    executor = ScriptedExecutor()
    async with serving_adapters(tmp_path, executor) as engine:
        await load(engine, "a")
        executor.hold()
        running = asyncio.ensure_future(generate(engine, lora="a", max_tokens=8))
        await engine.received(1)

        unloading = unload(engine, "a")
        await engine.eventually(lambda: no_adapters(engine))

        error = await refused(engine.engine.Generate(request(lora="a")))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert list(executor.adapters) == [0]
        executor.release()
        assert len(await running) == 8
        await unloading
        assert executor.adapters == {}
        assert await code(unload(engine, "a")) is grpc.StatusCode.NOT_FOUND


async def no_adapters(engine):
    return not (await info(engine)).adapters


async def test_a_slot_is_used_again_only_once_it_is_empty(tmp_path):
    make(tmp_path / "adapters", "a", "b")
    executor = ScriptedExecutor()
    async with serving_adapters(tmp_path, executor, num_slots=1) as engine:
        await load(engine, "a")
        executor.hold()
        call = engine.engine.Generate(request(lora="a", max_tokens=100))
        await engine.received(1)
        unloading = unload(engine, "a")
        await engine.eventually(lambda: no_adapters(engine))

        assert await code(load(engine, "b")) is grpc.StatusCode.RESOURCE_EXHAUSTED

        call.cancel()
        executor.release()
        await unloading
        await load(engine, "b")
        assert await generate(engine, lora="b") == marked_output(engine, 0)


async def test_loading_the_same_again_is_no_error_and_other_weights_are(tmp_path):
    root = tmp_path / "adapters"
    make(root, "a")
    async with serving_adapters(tmp_path) as engine:
        first, second = await asyncio.gather(load(engine, "a"), load(engine, "a"))
        assert first == second

        make(root, "a", seed=5)

        assert await code(load(engine, "a")) is grpc.StatusCode.ALREADY_EXISTS
        assert len(engine.executor.adapters) == 1


async def test_a_load_whose_caller_goes_away_is_finished(tmp_path):
    make(tmp_path / "adapters", "a")
    executor = ScriptedExecutor()
    async with serving_adapters(tmp_path, executor) as engine:
        executor.hold()
        running = asyncio.ensure_future(generate(engine))
        await engine.received(1)
        call = load(engine, "a")
        await engine.eventually(lambda: came_in(engine, "LoadAdapter"))
        call.cancel()
        executor.release()
        await running

        await engine.eventually(lambda: has_adapters(engine))

        assert await generate(engine, lora="a") == marked_output(engine, 0)


async def test_an_unload_undoes_a_load_that_its_caller_did_not_wait_for(tmp_path):
    make(tmp_path / "adapters", "a")
    executor = ScriptedExecutor()
    async with serving_adapters(tmp_path, executor) as engine:
        executor.hold()
        running = asyncio.ensure_future(generate(engine))
        await engine.received(1)
        call = load(engine, "a")
        await engine.eventually(lambda: came_in(engine, "LoadAdapter"))
        call.cancel()
        undoing = asyncio.ensure_future(unload(engine, "a"))
        await engine.eventually(lambda: came_in(engine, "UnloadAdapter"))
        executor.release()
        await running

        await undoing

        assert not await has_adapters(engine)
        assert executor.adapters == {}


async def came_in(engine, method):
    return await engine.metric("grpc_server_started_total", grpc_method=method)


async def has_adapters(engine):
    return bool((await info(engine)).adapters)


async def has_one_adapter(engine):
    return len((await info(engine)).adapters) == 1


class BreakingOnce(ScriptedExecutor):
    """Cannot take the first adapter."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def set_adapter(self, slot, adapter):
        error, self.error = self.error, None
        if error is not None:
            raise error
        super().set_adapter(slot, adapter)


async def test_a_slot_that_cannot_be_filled_costs_the_load_alone(tmp_path):
    make(tmp_path / "adapters", "a")
    executor = BreakingOnce(RuntimeError("secret internals"))
    async with serving_adapters(tmp_path, executor, num_slots=1) as engine:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await load(engine, "a")

        assert error.value.code() is grpc.StatusCode.INTERNAL
        assert "secret" not in error.value.details()
        assert await generate(engine) == scripted_output(PROMPT, 4)
        await load(engine, "a")
        assert await generate(engine, lora="a") == marked_output(engine, 0)


async def test_a_load_ends_with_an_engine_that_is_lost(tmp_path):
    make(tmp_path / "adapters", "a")
    async with serving_adapters(tmp_path, BreakingOnce(WorkerLostError("gone"))) as engine:
        assert await code(load(engine, "a")) is grpc.StatusCode.UNAVAILABLE


async def test_a_drained_engine_loads_nothing(tmp_path):
    make(tmp_path / "adapters", "a")
    async with serving_adapters(tmp_path) as engine:
        await engine.admin.Drain(admin_pb2.DrainRequest())

        assert await code(load(engine, "a")) is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("name", "source", "field"),
    [
        ("scripted", "a", "name"),
        ("", "a", "name"),
        ("a,b", "a", "name"),
        ("x", "absent", "source"),
        ("x", "../outside", "source"),
        ("x", "/etc", "source"),
        ("x", "link", "source"),
        ("x", "linked_weights", "source"),
        ("x", "a\0b", "source"),
        ("x", ".", "source"),
        ("x", "broken", "source"),
    ],
)
async def test_only_sound_adapters_within_the_directory_are_loaded(name, source, field, tmp_path):
    root = tmp_path / "adapters"
    make(root, "a", "broken", "linked_weights")
    make(tmp_path, "outside")
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "broken" / "adapter_config.json").write_text("{}")
    (root / "linked_weights" / "adapter_model.safetensors").unlink()
    (root / "linked_weights" / "adapter_model.safetensors").symlink_to(
        tmp_path / "outside" / "adapter_model.safetensors"
    )
    async with serving_adapters(tmp_path) as engine:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await load(engine, name, source)

        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert details(error.value, BadRequest).field_violations[0].field == field


async def test_a_reason_that_a_file_makes_long_still_arrives(tmp_path):
    make(tmp_path / "adapters", "a")
    header = b'{"%s": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}' % (b"x" * 50_000)
    weights = tmp_path / "adapters" / "a" / "adapter_model.safetensors"
    weights.write_bytes(len(header).to_bytes(8, "little") + header)
    async with serving_adapters(tmp_path) as engine:
        assert await code(load(engine, "a")) is grpc.StatusCode.INVALID_ARGUMENT


async def test_an_engine_without_a_directory_says_which_flag_it_wants(tmp_path):
    make(tmp_path / "adapters", "a")
    async with serving_adapters(tmp_path, directory=False) as engine:
        with pytest.raises(grpc.aio.AioRpcError, match="--lora-dir") as error:
            await load(engine, "a")
        assert error.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    async with serving(tmp_path) as engine:
        with pytest.raises(grpc.aio.AioRpcError, match="--enable-lora"):
            await load(engine, "a")


async def test_a_change_is_pushed_by_its_number(tmp_path):
    make(tmp_path / "adapters", "a")
    async with serving_adapters(tmp_path) as engine:
        loads = engine.telemetry.WatchLoads(telemetry_pb2.WatchLoadsRequest())
        first = await loads.read()

        await load(engine, "a")

        assert first.info_revision == 0
        while (await loads.read()).info_revision == 0:
            pass
        await unload(engine, "a")
        while (await loads.read()).info_revision == 1:
            pass


async def test_metrics_name_the_adapters_that_run_and_wait(tmp_path):
    make(tmp_path / "adapters", "a", "b")
    executor = ScriptedExecutor()
    async with serving_adapters(tmp_path, executor, max_num_seqs=1) as engine:
        for name in ("a", "b"):
            await load(engine, name)
        calls = [asyncio.ensure_future(generate(engine, lora="a", max_tokens=50))]
        executor.hold()
        await engine.received(1)
        executor.wait_until_held()
        calls.append(asyncio.ensure_future(generate(engine, lora="b")))
        await engine.received(2)

        labels = {"max_lora": "2", "running_lora_adapters": "a", "waiting_lora_adapters": "b"}
        assert await engine.metric("vllm:lora_requests_info", **labels) > 0
        calls.append(asyncio.ensure_future(unload(engine, "a")))
        await engine.eventually(lambda: has_one_adapter(engine))
        assert await engine.metric("vllm:lora_requests_info", **labels) > 0
        executor.release()
        await asyncio.gather(*calls)


async def test_every_choice_and_a_resumed_request_use_the_adapter(tmp_path):
    make(tmp_path / "adapters", "a")
    async with serving_adapters(tmp_path) as engine:
        await load(engine, "a")
        whole = marked_output(engine, 0)

        both = outputs(await collect(engine.engine.Generate(request(lora="a", n=2))))
        resume = [pb.ResumeChoice(choice=0, output_token_ids=whole[:2])]
        rest = await collect(engine.engine.Generate(request(lora="a", resume=resume)))

        assert both == {0: whole, 1: whole}
        tokens = [t for event in rest for t in event.delta.token_ids]
        assert tokens == whole[2:]


async def test_a_preempted_request_comes_back_with_its_adapter(tmp_path):
    make(tmp_path / "adapters", "a")
    prompts = [tuple(range(start, start + 30)) for start in (3, 103)]
    executor = ScriptedExecutor()
    async with serving_adapters(tmp_path, executor, num_blocks=6, max_model_len=80) as engine:
        await load(engine, "a")
        executor.hold()
        calls = [
            asyncio.ensure_future(generate(engine, prompt, "a", max_tokens=40))
            for prompt in prompts
        ]
        await engine.received(2)
        executor.release()

        answers = await asyncio.gather(*calls)

        assert await engine.metric("vllm:num_preemptions_total") > 0
        assert answers == [marked_output(engine, 0, prompt, 40) for prompt in prompts]
