"""Adapters that clients load into all engines, and out of them, through a router."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from octavo.inference.v1 import adapters_pb2 as pb
from octavo.inference.v1 import adapters_pb2_grpc

from router_svc.auth.keyring import KeyRing
from router_svc.edge import Edge
from tests.support.adapter_engine import answer
from tests.support.adapter_router import AdapterRouter, adapter_router, until

PATH = "/adapters/sql"


async def load(router: AdapterRouter, name: str = "sql", path: str = PATH, **more: Any) -> Any:
    """The answer to a wish to load."""
    body = {"lora_name": name, "lora_path": path, **more}
    return await router.http.post("/v1/load_lora_adapter", json=body)


async def unload(router: AdapterRouter, name: str = "sql", **more: Any) -> httpx.Response:
    """The answer to a wish to unload."""
    return await router.http.post("/v1/unload_lora_adapter", json={"lora_name": name, **more})


def put(router: AdapterRouter, *versions: str, path: str = PATH) -> None:
    """Puts an adapter of a version where each engine finds it; none where that is ""."""
    for engine, version in zip(router.engines, versions, strict=True):
        engine.files[path] = version


async def test_an_adapter_is_there_once_it_is_loaded_and_gone_once_it_is_unloaded(
    tmp_path: Path,
) -> None:
    async with adapter_router(tmp_path, {}, {}, allow=True) as router:
        put(router, "v1", "v1")

        loaded = await load(router)

        assert loaded.json() == {
            "object": "lora_adapter",
            "lora_name": "sql",
            "model": "base",
            "version": "v1",
            "rank": 8,
            "engines": router.targets,
            "not_reached": [],
        }
        assert await router.listed() == ["base", "sql"]
        completed = await router.complete("sql")
        assert completed.json()["choices"][0]["text"] == answer("v1", 5, 6)
        assert (await load(router)).json() == loaded.json()  # once more is no error

        unloaded = await unload(router)

        assert unloaded.json()["engines"] == router.targets
        assert await router.listed() == ["base"]
        assert (await router.complete("sql")).status_code == 404
        again = await unload(router)
        assert (again.status_code, again.json()["error"]["code"]) == (404, "model_not_found")


async def test_an_engine_that_cannot_load_leaves_none_with_the_adapter_that_had_not_got_it(
    tmp_path: Path,
) -> None:
    async with adapter_router(tmp_path, {"sql": "v1"}, {}, {}, allow=True) as router:
        put(router, "v1", "v1", "")

        refused = await load(router)

        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (400, "lora_update_failed")
        assert error["message"] == (
            f"the adapter 'sql' was not loaded: {router.targets[2]}: nothing at {PATH}"
        )
        assert [engine.adapters for engine in router.engines] == [{"sql": "v1"}, {}, {}]


async def test_a_long_name_leaves_room_for_the_reason(tmp_path: Path) -> None:
    async with adapter_router(tmp_path, {}, allow=True) as router:
        refused = await load(router, "名" * 500)

        assert refused.json()["error"]["message"].endswith(f"nothing at {PATH}")


async def test_a_load_that_fails_is_undone_also_for_a_client_that_has_gone(tmp_path: Path) -> None:
    async with adapter_router(tmp_path, {}, {}, allow=True) as router:
        put(router, "v1", "")
        router.engines[1].may_load.clear()
        loading = asyncio.create_task(load(router))
        await until(lambda: router.engines[0].adapters == {"sql": "v1"})

        assert (await load(router)).status_code == 503  # one at a time

        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
        router.engines[1].may_load.set()

        await until(lambda: router.engines[0].adapters == {})


async def test_what_another_router_loads_meanwhile_is_not_undone(tmp_path: Path) -> None:
    async with adapter_router(tmp_path, {}, allow=True) as router:
        engine = router.engines[0]
        put(router, "v1")
        engine.may_load.clear()
        loading = asyncio.create_task(load(router))
        await until(lambda: engine.loading)
        await engine.change({"sql": "v2"})
        engine.may_load.set()

        refused = await loading

        assert "it has another of this name" in refused.json()["error"]["message"]
        assert engine.adapters == {"sql": "v2"}


async def test_engines_with_other_files_at_the_path_have_none_of_them(tmp_path: Path) -> None:
    async with adapter_router(tmp_path, {}, {}, allow=True) as router:
        put(router, "v1", "v2")

        refused = await load(router)

        assert refused.status_code == 400
        expected = f"{router.targets[1]}: it has other files there than {router.targets[0]}"
        assert expected in refused.json()["error"]["message"]
        assert [engine.adapters for engine in router.engines] == [{}, {}]


STATUSES = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: 400,  # no room for more, however long one waits
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.UNIMPLEMENTED: 501,
}


async def test_the_status_says_whose_turn_it_is(tmp_path: Path) -> None:
    async with adapter_router(tmp_path, {}, allow=True) as router:
        for code, status in STATUSES.items():
            router.engines[0].load_failure = code, "no"

            refused = await load(router)

            assert refused.status_code == status, code
            assert router.targets[0] in refused.json()["error"]["message"]


async def test_an_engine_that_is_away_is_named_and_the_others_load(tmp_path: Path) -> None:
    async with adapter_router(tmp_path, {}, {}, allow=True) as router:
        put(router, "v1", "v1")
        await router.lose(0)

        loaded = (await load(router)).json()
        unloaded = (await unload(router)).json()

        for done in (loaded, unloaded):
            assert (done["engines"], done["not_reached"]) == (
                [router.targets[1]],
                [router.targets[0]],
            )
        await router.lose(1)
        assert (await load(router)).status_code == 503


async def test_what_stays_loaded_is_named_with_what_does_not(tmp_path: Path) -> None:
    async with adapter_router(tmp_path, {"sql": "v1"}, {"sql": "v1"}, allow=True) as router:
        router.engines[1].unload_failure = grpc.StatusCode.INTERNAL, "no"

        refused = await unload(router)

        assert refused.status_code == 500
        message = refused.json()["error"]["message"]
        assert message.startswith(f"the adapter 'sql' is still loaded: {router.targets[1]}: ")
        assert message.endswith(f"unloaded on {router.targets[0]}")
        assert (await router.asked("sql", 2)) == [0, 2]


async def test_with_several_models_the_model_is_said_and_no_name_is_taken_twice(
    tmp_path: Path,
) -> None:
    async with adapter_router(tmp_path, {"law": "v1"}, other={}, allow=True) as router:
        put(router, "v1", "v1")

        assert (await load(router)).json()["error"]["param"] == "model"
        for taken in ("law", "base", "other"):
            refused = await load(router, taken, model="other")
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "lora_name")
        assert (await load(router, model="other")).json()["engines"] == [router.targets[1]]

        assert (await unload(router)).json()["model"] == "other"
        assert (await unload(router, "base")).json()["error"]["param"] == "lora_name"


async def test_without_the_flag_nobody_loads_or_unloads(tmp_path: Path) -> None:
    async with adapter_router(tmp_path, {"sql": "v1"}) as router:
        put(router, "v1")

        for refused in (await load(router, "law"), await unload(router)):
            assert refused.status_code == 403
            assert "--allow-lora-updates" in refused.json()["error"]["message"]
        assert router.engines[0].adapters == {"sql": "v1"}


async def test_grpc_has_the_same_service_and_keys_hold_for_both(tmp_path: Path) -> None:
    edge = Edge(KeyRing(["sk-one"]))
    async with adapter_router(tmp_path, {}, edge=edge, allow=True) as router:
        put(router, "v1")
        assert (await load(router)).status_code == 401
        async with grpc.aio.insecure_channel(router.grpc_target) as channel:
            stub = adapters_pb2_grpc.AdaptersStub(channel)
            wish = pb.LoadLoraAdapterRequest(lora_name="sql", lora_path=PATH)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.LoadLoraAdapter(wish)
            key = (("authorization", "Bearer sk-one"),)
            loaded = await stub.LoadLoraAdapter(wish, metadata=key)

        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert list(loaded.engines) == router.targets
        assert router.engines[0].adapters == {"sql": "v1"}
