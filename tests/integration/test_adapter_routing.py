"""LoRA adapters behind one router: what is listed, who is asked, and what becomes of a loss."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from octavo.block_hashes import block_hashes
from openai import AsyncOpenAI

from tests.support.adapter_engine import PIECES, AdapterEngine, answer, served
from tests.support.adapter_router import AdapterRouter, adapter_router, until

USER = [{"role": "user", "content": "hello"}]


def text_of(response: httpx.Response) -> str:
    """What a completion says."""
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["text"]


def error_of(response: httpx.Response) -> tuple[int, str | None]:
    """Status and code of an error."""
    return response.status_code, response.json()["error"]["code"]


class Streamed:
    """An answer of "sql" to "hello", read as it comes."""

    def __init__(self, router: AdapterRouter, length: int) -> None:
        self.text = ""
        self.error: str | None = None
        self._body = {"model": "sql", "prompt": "hello", "max_tokens": length, "stream": True}
        self._task = asyncio.create_task(self._read(router.http))

    async def _read(self, http: httpx.AsyncClient) -> None:
        async with http.stream("POST", "/v1/completions", json=self._body) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    event = json.loads(line.removeprefix("data: "))
                    if "error" in event:
                        self.error = event["error"]["message"]
                    else:
                        self.text += event["choices"][0]["text"]

    async def has(self, length: int) -> None:
        """Returns once so much of it has come."""
        await until(lambda: len(self.text) >= length)

    async def end(self) -> str:
        """The whole text, once it has ended."""
        async with asyncio.timeout(60):
            await self._task
        return self.text


@pytest.fixture
async def router(tmp_path: Path) -> AsyncIterator[AdapterRouter]:
    """One engine that has "sql" and one that has not."""
    async with adapter_router(tmp_path, {"sql": "v1"}, {}) as found:
        yield found


async def test_models_and_adapters_are_listed_together_as_the_openai_client_reads_them(
    tmp_path: Path,
) -> None:
    async with adapter_router(
        tmp_path, {"sql": "v1"}, {"chat": "v1"}, other={"law": "v1"}
    ) as found:
        async with AsyncOpenAI(base_url=f"{found.url}/v1", api_key="none") as client:
            models = {model.id: model.model_dump() async for model in client.models.list()}
            answered = await client.chat.completions.create(
                model="law", messages=USER, max_tokens=4
            )

        assert list(models) == ["base", "other", "chat", "sql", "law"]
        assert [each.get("parent") for each in models.values()] == [
            None, None, "base", "base", "other",
        ]  # fmt: skip
        assert models["sql"]["root"] == "/adapters/sql"
        assert models["sql"]["max_model_len"] == models["base"]["max_model_len"] == 4096
        alone = (await found.http.get("/v1/models/sql")).json()
        assert alone == {key: value for key, value in models["sql"].items() if value is not None}
        assert answered.choices[0].message.content == answer("v1", 5, 4)
        assert answered.model == "law"


async def test_requests_for_an_adapter_go_to_engines_that_have_it(tmp_path: Path) -> None:
    async with adapter_router(tmp_path, {"sql": "v1"}, {"sql": "v1"}, {}) as router:
        assert await router.asked("sql", 6) == [3, 3, 0]
        assert sum(await router.asked("base", 6)) == 6

        assert text_of(await router.complete("sql")) == answer("v1", 5, 6)
        sent = router.engines[0].submitted[0]
        assert (sent.lora, sent.expect.adapter_version) == ("sql", "v1")
        assert error_of(await router.complete("law")) == (404, "model_not_found")


TAKES_ADAPTERS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": USER, "max_tokens": 4},
    "/v1/completions": {"prompt": "hello", "max_tokens": 4},
    "/v1/responses": {"input": "hello", "max_output_tokens": 16},
    "/v1/messages": {"messages": USER, "max_tokens": 4},
    "/tokenize": {"prompt": "hello"},
    "/detokenize": {"tokens": [1, 2]},
    "/v1/chat/completions/render": {"messages": USER},
    "/v1/messages/count_tokens": {"messages": USER},
}
TAKES_MODELS_ONLY: dict[str, dict[str, Any]] = {
    "/v1/embeddings": {"input": "hello"},
    "/rerank": {"query": "hello", "documents": ["a"]},
    "/v1/score": {"text_1": "a", "text_2": "b"},
}


async def test_every_api_takes_an_adapters_name_or_says_that_it_does_not(
    router: AdapterRouter,
) -> None:
    for path, body in TAKES_ADAPTERS.items():
        response = await router.http.post(path, json={"model": "sql", **body})

        assert response.status_code == 200, f"{path}: {response.text}"
        assert response.json().get("model", "sql") == "sql"

    for path, body in TAKES_MODELS_ONLY.items():
        response = await router.http.post(path, json={"model": "sql", **body})

        assert response.status_code == 400, path
        assert response.json()["error"]["param"] == "model"
        assert "sql is a LoRA adapter" in response.json()["error"]["message"]

    metrics = (await router.http.get("/metrics")).text
    assert 'gen_ai_request_model="sql",gen_ai_response_model="sql"' in metrics


async def test_the_route_of_a_prompt_is_explained_for_its_adapter(router: AdapterRouter) -> None:
    response = await router.http.post("/explain_route", json={"model": "sql", "prompt": "hello"})

    first, last = response.json()["candidates"]
    assert [first["engine"], last["engine"]] == router.targets
    assert (first["may_serve"], last["may_serve"]) == (True, False)
    assert last["reason"] == "does not have the adapter"


async def test_prefixes_are_looked_for_by_the_adapters_version(tmp_path: Path) -> None:
    prompt = "hello" * 20
    async with adapter_router(
        tmp_path, {"sql": "v1"}, {"sql": "v1"}, policy="prefix_aware"
    ) as router:
        ids = [PIECES.index(letter) for letter in prompt]
        blocks = block_hashes(ids, 16, cache_salt="", lora="v1")
        await router.engines[1].tell_cached(b"".join(blocks))
        cached = router.fleets[0].members[1].prefixes
        await until(lambda: cached.num_stored == 6)

        asked = {"model": "sql", "prompt": prompt}
        response = await router.http.post("/explain_route", json=asked)
        base = await router.http.post("/explain_route", json=asked | {"model": "base"})

    first, last = response.json()["candidates"]
    assert first["engine"] == router.targets[1]
    assert (first["cached_tokens"], last["cached_tokens"]) == (96, 0)
    assert {each["cached_tokens"] for each in base.json()["candidates"]} == {0}


async def test_another_version_is_used_only_once_the_first_one_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with adapter_router(tmp_path, {"sql": "v1"}, {"sql": "v2"}) as router:
        assert await router.asked("sql", 4) == [4, 0]
        (complaint,) = [each for each in caplog.records if each.levelno == logging.ERROR]
        assert router.targets[1] in complaint.message
        assert "version v2, the engines in use v1" in complaint.message

        await router.lose(0)

        assert text_of(await router.complete("sql")) == answer("v2", 5, 6)


async def test_what_engines_load_and_unload_is_known_at_once_and_disturbs_nobody(
    tmp_path: Path,
) -> None:
    async with adapter_router(tmp_path, {"sql": "v1"}) as router:
        (engine,) = router.engines
        engine.hold_after = 2
        streamed = Streamed(router, 6)
        await streamed.has(2)

        await engine.change({"sql": "v1", "chat": "v1"})
        adapters = router.fleets[0].adapters
        await until(lambda: adapters.find("chat") is not None)
        assert await router.listed() == ["base", "chat", "sql"]
        await engine.change({"sql": "v1"})
        await until(lambda: adapters.find("chat") is None)
        assert error_of(await router.complete("chat")) == (404, "model_not_found")

        engine.go_on.set()
        assert await streamed.end() == answer("v1", 5, 6)


async def test_an_engine_that_lost_its_adapter_unheard_is_asked_again_and_another_answers(
    tmp_path: Path,
) -> None:
    async with adapter_router(tmp_path, {"sql": "v1"}, {"sql": "v1"}) as router:
        first, second = router.engines
        await first.change({}, tell=False)

        for _ in range(4):
            assert text_of(await router.complete("sql")) == answer("v1", 5, 6)
        assert len(first.submitted) == 1
        await until(lambda: first.num_asked == 2)

        await second.change({"sql": "v2"}, tell=False)
        assert error_of(await router.complete("sql"))[0] in (404, 503)  # whether asked again yet
        await until(lambda: router.fleets[0].adapters.find("sql") is not None)
        assert text_of(await router.complete("sql")) == answer("v2", 5, 6)
        assert [member.circuit.state for member in router.fleets[0].members] == ["closed"] * 2


async def test_an_answer_goes_on_where_the_adapter_is(tmp_path: Path) -> None:
    async with adapter_router(tmp_path, {"sql": "v1"}, {}, {"sql": "v2"}, {"sql": "v1"}) as router:
        first, without, wrong, second = router.engines
        first.hold_after = 3
        streamed = Streamed(router, 8)
        await streamed.has(3)

        await router.servers[0].stop(0)

        assert await streamed.end() == answer("v1", 5, 8)
        assert (len(without.submitted), len(wrong.submitted), len(second.submitted)) == (0, 0, 1)
        assert list(second.submitted[0].resume[0].output_token_ids) == [
            PIECES.index(letter) for letter in answer("v1", 5, 3)
        ]


@pytest.mark.parametrize("adapters", [{"sql": "v1"}, {"sql": "v2"}, {}])
async def test_an_answer_waits_for_its_only_engine_and_goes_on_if_that_has_the_adapter_still(
    tmp_path: Path, adapters: dict[str, str]
) -> None:
    async with adapter_router(tmp_path, {"sql": "v1"}, {}) as router:
        router.engines[0].hold_after = 3
        streamed = Streamed(router, 8)
        await streamed.has(3)
        await router.lose(0)

        assert await router.listed() == ["base", "sql"]
        waiting = await router.complete("sql")
        assert error_of(waiting) == (503, None)
        assert waiting.headers["retry-after"] == "1"
        assert (await router.complete("base")).status_code == 200

        restarted = AdapterEngine(
            router.fleets[0].members[0].channel.info.tokenizer_sha256, adapters
        )
        async with served(restarted, int(router.targets[0].rpartition(":")[2])):
            text = await streamed.end()

            if adapters == {"sql": "v1"}:
                assert (text, streamed.error) == (answer("v1", 5, 8), None)
            else:
                assert text == answer("v1", 5, 3)
                assert "the adapter 'sql'" in streamed.error
                # What the engine has is known a moment before it has said that it serves.
                await until(lambda: router.fleets[0].members[0].may_serve)
                assert (await router.complete("sql")).status_code == (200 if adapters else 404)


async def test_a_name_belongs_to_a_model_first_and_then_to_who_came_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with adapter_router(
        tmp_path, {"sql": "v1", "other": "v9"}, other={"sql": "v5"}
    ) as router:
        response = await router.complete("other")
        assert (text_of(response), response.json()["model"]) == (answer("", 5, 6), "other")
        assert text_of(await router.complete("sql")) == answer("v1", 5, 6)
        assert await router.listed() == ["base", "other", "sql"]
        assert [each.message for each in caplog.records if each.levelno == logging.ERROR] == [
            "the adapter other of base is not used: a model has this name",
            "the adapter sql of other is not used: base has another of this name",
        ]

        await router.engines[0].change({})
        await until(lambda: router.fleets[0].adapters.find("sql") is None)

        assert text_of(await router.complete("sql")) == answer("v5", 5, 6)


async def test_an_answer_stays_on_an_engine_that_drains_if_no_other_has_its_adapter(
    tmp_path: Path,
) -> None:
    async with adapter_router(tmp_path, {"sql": "v1"}, {"sql": "v2"}) as router:
        router.engines[0].hold_after = 3
        streamed = Streamed(router, 6)
        await streamed.has(3)

        await router.engines[0].drain()
        await until(lambda: router.fleets[0].members[0].channel.draining)
        router.engines[0].go_on.set()

        assert (await streamed.end(), streamed.error) == (answer("v1", 5, 6), None)
        assert router.fleets[0].num_failovers == 0
