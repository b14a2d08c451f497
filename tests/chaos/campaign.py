"""A run: the right answers first, then load and faults together, then peace and the books."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.chaos.client import Client, Delivery, ask, draw_delivery
from tests.chaos.faults import FaultLog, Faults
from tests.chaos.ledger import Ledger
from tests.chaos.processes import Cluster, Router, Samples, running_cluster, total
from tests.chaos.requests import Wanted, bad_inputs, catalogue

# 48 blocks of 16 tokens: about five of the longer requests, so that more of them preempt.
SMALL_POOL = ("--num-gpu-blocks-override", "48", "--max-model-len", "704")
_REQUEST_LINE = "octavo.router.requests: request_id="
_SETTLE_SECONDS = 30.0
_REPORT_SECONDS = 15.0


@dataclass(frozen=True)
class Plan:
    """How much. The run ends when both numbers are reached, or the time is up."""

    seed: int
    num_requests: int
    num_faults: int
    seconds: float
    num_clients: int = 10
    num_different: int = 150
    weights: dict[str, int] | None = None
    pause: tuple[float, float] = (0.3, 2.0)
    longest_freeze: float = 12.0
    think: float = 0.3  # longest pause of a client between two requests, in seconds


@dataclass
class Report:
    """What came of it."""

    ledger: Ledger
    faults: FaultLog
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def line(self) -> str:
        """The one line."""
        return (
            f"{self.ledger.sent:,} requests, {self.faults.count} faults, "
            f"{len(self.ledger.lost)} lost, {len(self.ledger.altered)} altered"
        )

    @property
    def everything(self) -> list[str]:
        """All that is wrong."""
        ledger = self.ledger
        return [
            *(f"LOST {each}" for each in ledger.lost),
            *(f"ALTERED {each}" for each in ledger.altered),
            *(f"NO FAULT EXCUSES {each}" for each in ledger.unexcused),
            *(f"FAULT {each}" for each in self.faults.problems),
            *self.problems,
        ]


async def run(model: Path, scratch: Path, plan: Plan) -> Report:
    """One run over its own processes, which it ends."""
    began = time.monotonic()
    wanted = [*catalogue(plan.seed, plan.num_different), *bad_inputs()]
    ledger = Ledger()
    async with running_cluster(
        model, scratch, num_engines=3, num_routers=2, args=SMALL_POOL
    ) as cluster:
        solo = await solo_answers(cluster.routers[0], wanted, ledger)
        print(f"  {len(solo)} solo answers after {time.monotonic() - began:.0f} s", flush=True)
        async with Client(cluster.routers, solo, ledger) as client:
            faults = await _storm(cluster, client, wanted, ledger, plan)
        report = Report(ledger, faults.log)
        report.problems += await check_books(cluster, ledger)
        report.problems += _check_logs(scratch, ledger)
    report.seconds = time.monotonic() - began
    return report


async def solo_answers(router: Router, wanted: list[Wanted], ledger: Ledger) -> dict[str, Any]:
    """Each request's answer while nothing else is asked and nothing is harmed."""
    solo: dict[str, Any] = {}
    async with httpx.AsyncClient(timeout=60) as http:
        for one in wanted:
            request_id = f"solo-{one.name}"
            solo[one.name] = answer = await ask(http, router.url, one, Delivery(), request_id)
            if one.bad != ("error" in answer):
                raise RuntimeError(f"{one}: {answer}")
            names = [] if one.bad else one.log_names(request_id)
            ledger.saw(router.process_name, "refused" if one.bad else "ok", names)
    return solo


async def _storm(
    cluster: Cluster, client: Client, wanted: list[Wanted], ledger: Ledger, plan: Plan
) -> Faults:
    rng = random.Random(plan.seed)
    good = [one for one in wanted if not one.bad]
    bad = [one for one in wanted if one.bad]
    heavy = [one for one in good if one.kind == "long"]
    stop = asyncio.Event()

    async def burst(size: int) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(size):
                own = random.Random(rng.random())
                group.create_task(client.send(heavy[number % len(heavy)], Delivery(), own))

    async def load(own: random.Random) -> None:
        while not stop.is_set():
            one = own.choice(bad) if own.random() < 0.04 else own.choice(good)
            await client.send(one, draw_delivery(own), own)
            await asyncio.sleep(own.random() * plan.think)

    # The faults have their own chance: how many requests there are changes none of them.
    chance = random.Random(plan.seed + 1)
    faults = Faults(
        cluster,
        chance,
        burst,
        ledger,
        weights=plan.weights,
        pause=plan.pause,
        longest_freeze=plan.longest_freeze,
    )
    clients = [
        asyncio.create_task(load(random.Random(rng.random()))) for _ in range(plan.num_clients)
    ]
    quiet = asyncio.Event()
    harm = asyncio.create_task(faults.run(quiet))
    await _until_done(ledger, faults, plan, [*clients, harm])
    quiet.set()
    await harm
    stop.set()
    await asyncio.gather(*clients)
    return faults


async def _until_done(
    ledger: Ledger, faults: Faults, plan: Plan, tasks: list[asyncio.Task[None]]
) -> None:
    began = told = time.monotonic()
    while time.monotonic() - began < plan.seconds:
        if ledger.sent >= plan.num_requests and faults.log.count >= plan.num_faults:
            return
        if ended := [task for task in tasks if task.done()]:
            ended[0].result()  # raises what ended it
        if time.monotonic() - told > _REPORT_SECONDS:
            told = time.monotonic()
            wrong = len(ledger.lost) + len(ledger.altered) + len(ledger.unexcused)
            wrong += len(faults.log.problems)
            now = f"{told - began:5.0f} s: {ledger.sent:6,} requests, {faults.log.count:4} faults"
            print(f"  {now}, {wrong} wrong", flush=True)
        await asyncio.sleep(0.1)


async def check_books(cluster: Cluster, ledger: Ledger) -> list[str]:
    """What is not as it was before the storm, and counts that do not add up."""
    problems = []
    await cluster.until_ready()
    for router in cluster.routers:
        left = await _until_idle(router, len(cluster.engines))
        problems += [
            f"{router.name}: {name} is {value:g} at the end" for name, value in left.items()
        ]
        for path in ("/health", "/ready", "/live"):
            if (status := await router.status(path)) != 200:
                problems.append(f"{router.name}: {path} is {status} at the end")
        seen = ledger.seen.get(router.process_name, Counter())
        problems += _uneven(router, await router.samples(), seen)
    if not ledger.balanced:
        problems.append("the ledger does not balance")
    return problems


async def _until_idle(router: Router, num_engines: int) -> dict[str, float]:
    """Gauges that are not zero although nothing is sent any more."""
    names = [f"vllm:{name}" for name in ("num_requests_running", "num_requests_waiting")]
    names += ["vllm:kv_cache_usage_perc", "octavo_router_requests_in_flight"]
    names += ["octavo_router_engine_requests_in_flight"]
    deadline = time.monotonic() + _SETTLE_SECONDS
    while True:
        samples = await router.samples()
        left = {name: value for name in names if (value := total(samples, name)) != 0}
        if total(samples, "octavo_router_engine_ready") != num_engines:
            left["octavo_router_engine_ready"] = total(samples, "octavo_router_engine_ready")
        if not left or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.1)


def _check_logs(scratch: Path, ledger: Ledger) -> list[str]:
    """Answers without their one line in the log of the router that gave them."""
    problems = []
    for process, names in ledger.logged.items():
        lines = (scratch / f"{process}.log").read_text().splitlines()
        ends = [line.split(_REQUEST_LINE)[1] for line in lines if _REQUEST_LINE in line]
        # One engine after another had a part in it, or was asked for one.
        ledger.outlived += sum("outcome=ok" in end and "," in end for end in ends)
        counts = Counter(end.split()[0] for end in ends)
        problems += [
            f"{process}: {name} has no line in its log" for name in names if not counts[name]
        ]
        problems += [f"{process}: {name} has {n} lines" for name, n in counts.items() if n > 1]
    return problems


def _uneven(router: Router, samples: Samples, seen: Counter[str]) -> list[str]:
    """Where a router's count of calls is not what its clients saw of this process."""

    def count(*outcomes: str) -> int:
        name = "octavo_router_requests_total"
        return int(sum(total(samples, name, outcome=outcome) for outcome in outcomes))

    problems = []
    # Who leaves at once may never have arrived, and who leaves late may have been answered.
    served, most = count("ok", "cancelled"), seen["ok"] + seen["cancelled"]
    if not seen["ok"] <= served <= most:
        problems.append(f"{served} calls answered or cancelled, clients saw {seen['ok']} to {most}")
    if (refused := _num_refused(samples)) != seen["refused"]:
        problems.append(f"{refused} calls refused, clients saw {seen['refused']}")
    if failed := count("internal"):
        problems.append(f"{failed} calls failed by a fault of its own")
    return [f"{router.process_name}: {problem}" for problem in problems]


def _num_refused(samples: Samples) -> int:
    """HTTP answers that blame the client for its request."""
    name = "octavo_router_http_answers_total"
    return int(sum(total(samples, name, status=status) for status in ("400", "404", "422")))
