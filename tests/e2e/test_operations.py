"""What operators see of a fleet: deaths, freezes, drains, and clients that leave."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import httpx
import pytest

from tests.chaos.leavers import leave_at_any_token
from tests.chaos.processes import MODEL, running_cluster, total
from tests.chaos.sse import event_data
from tests.chaos.timeline import BOUNDS, measure
from tests.support.public_api import COMPLETIONS
from tests.support.tiny_models import make_tiny

NUM_STREAMS = 8
LONG = {
    "model": MODEL,
    "prompt": "the",
    "ignore_eos": True,
    "stream": True,
    "return_token_ids": True,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny("llama", tmp_path_factory.mktemp("tiny"), max_position_embeddings=16_384)


async def test_a_router_knows_soon_and_serves_soon_again(model: Path, tmp_path: Path) -> None:
    # The waits have deadlines, generous ones since tests share their machine; see `measure`.
    timeline = await measure(model, tmp_path)

    assert timeline.problems == []
    assert set(timeline.seconds) == set(BOUNDS)


async def test_who_leaves_harms_nobody(model: Path, tmp_path: Path) -> None:
    ledger, problems = await leave_at_any_token(model, tmp_path, rounds=15, seed=3)

    assert (ledger.altered, ledger.lost, ledger.unexcused, problems) == ([], [], [], [])
    assert ledger.cancelled > 0
    assert ledger.answered > 0


async def _stream(http: httpx.AsyncClient, body: dict, begun: asyncio.Event) -> list[dict]:
    """Its events; the last is an error, or {} for [DONE]."""
    events = []
    async with http.stream("POST", COMPLETIONS, json=body) as response:
        async for data in event_data(response):
            events.append({} if data == b"[DONE]" else json.loads(data))
            begun.set()
    return events


async def _start(http: httpx.AsyncClient, max_tokens: int) -> list[asyncio.Task[list[dict]]]:
    begun = [asyncio.Event() for _ in range(NUM_STREAMS)]
    tasks = [
        asyncio.create_task(_stream(http, LONG | {"max_tokens": max_tokens, "seed": i}, event))
        for i, event in enumerate(begun)
    ]
    await asyncio.gather(*(event.wait() for event in begun))
    return tasks


def _ids(events: list[dict]) -> list[int]:
    choices = [choice for event in events if event for choice in event["choices"]]
    return [i for choice in choices for i in choice.get("token_ids") or ()]


async def test_an_engine_that_drains_hands_its_streams_over(model: Path, tmp_path: Path) -> None:
    async with (
        running_cluster(model, tmp_path, num_engines=2, gated=True) as cluster,
        httpx.AsyncClient(base_url=cluster.routers[0].url, timeout=60) as http,
    ):
        gates = [engine.gate for engine in cluster.engines]
        undisturbed = await asyncio.gather(*await _start(http, 600))
        for gate in gates:
            gate.hold()
        starting = asyncio.create_task(_start(http, 600))
        while not starting.done():  # slowly, so that none ends before the drain
            for gate in gates:
                if gate.is_spent:
                    gate.let_pass()
            await asyncio.sleep(0.05)
        streams = starting.result()
        samples = await cluster.routers[0].samples()
        in_flight = "octavo_router_engine_requests_in_flight"
        busiest = max(
            cluster.engines, key=lambda each: total(samples, in_flight, target=each.target)
        )

        drain = asyncio.create_task(busiest.drain())
        failovers = "octavo_router_failovers_total"
        async with asyncio.timeout(60):
            while not total(await cluster.routers[0].samples(), failovers):
                continue
        for gate in gates:
            gate.open()
        code = await drain
        during = await http.post(COMPLETIONS, json=LONG | {"max_tokens": 1, "stream": False})
        disturbed = await asyncio.gather(*streams)

    assert code == 0
    assert during.status_code == 200
    assert [_ids(events) for events in disturbed] == [_ids(events) for events in undisturbed]
    assert all(events[-1] == {} for events in disturbed)


async def test_answers_outlive_the_only_engine(model: Path, tmp_path: Path) -> None:
    async with (
        running_cluster(model, tmp_path, num_engines=1) as cluster,
        httpx.AsyncClient(base_url=cluster.routers[0].url, timeout=60) as http,
    ):
        (engine,), (router,) = cluster.engines, cluster.routers
        undisturbed = await asyncio.gather(*await _start(http, 1500))
        streams = await _start(http, 1500)

        # There is nobody to hand over to, so what runs may finish; a second signal ends it.
        engine.send(signal.SIGTERM)
        async with asyncio.timeout(60):
            while await router.status("/ready") != 503:
                continue
        refused = await http.post(COMPLETIONS, json=LONG | {"max_tokens": 1})
        engine.send(signal.SIGTERM)
        code = await engine.exit_code(60)
        engine.start()
        disturbed = await asyncio.gather(*streams)

    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) >= 1
    assert code == 0
    assert [_ids(events) for events in disturbed] == [_ids(events) for events in undisturbed]
