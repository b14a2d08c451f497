"""Brings about what the alerts are for, on real servers, and writes down what Prometheus would see.

    python -m tests.helm.record_metrics [NAME …]    writes recorded/NAME.yaml, a minute each

Only series that an alert asks for are kept, with the labels that the chart's scraping gives them. A
scrape is taken every second and stands for one of every 15 seconds: the alerts' minutes would take
a quarter of an hour each. Counts, quantiles and gauges stay what they were; rates are a fifteenth.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import httpx
import promql_parser
import psutil
from octavo.cache_dir import default_cache_dir
from prometheus_client.parser import text_string_to_metric_families

from router_svc.model_store import DEFAULT_MODEL, PACKAGED_MODELS, fetch_packaged
from tests.clients.environment import client_python
from tests.helm.chart import ChartTool, Object, value_sets
from tests.helm.promql import selectors
from tests.support.held_service import held_service
from tests.support.server import RunningServer, running_server

RECORDED = Path(__file__).parent / "recorded"
SCRAPES = 64
HARM_AT = 12  # the scrape before which it begins
SECONDS_BETWEEN_SCRAPES = 1.0


@dataclass(frozen=True)
class Load:
    """Clients that ask again and again for so many tokens."""

    clients: int
    max_tokens: int
    pause: float = 0.0  # seconds between an answer and the next question


@dataclass
class Scene:
    """A server, who asks it, and the harm that is done at some of the scrapes."""

    server: RunningServer
    load: Load
    harm: dict[int, Callable[[], None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Record:
    """What is recorded: the words at the head of the file, engines, and how to start it."""

    text: str
    num_engines: int
    start: Callable[[Path], Iterator[Scene]]


def _serve(load: Load, *flags: str) -> Callable[[Path], Iterator[Scene]]:
    def start(directory: Path) -> Iterator[Scene]:
        with running_server(DEFAULT_MODEL, *flags, log=directory / "log") as server:
            yield Scene(server, load)

    return start


def _freezing(directory: Path) -> Iterator[Scene]:
    flags = ("--data-parallel-size", "2")
    with ExitStack() as stack:
        server = stack.enter_context(running_server(DEFAULT_MODEL, *flags, log=directory / "log"))
        engines = [
            child
            for child in psutil.Process(server.process.pid).children()
            if "engine_svc" in child.cmdline()
        ]
        for each in engines:
            stack.callback(each.send_signal, signal.SIGCONT)
        harm = {
            HARM_AT: lambda: engines[0].send_signal(signal.SIGSTOP),
            HARM_AT + 32: lambda: engines[1].send_signal(signal.SIGSTOP),
        }
        yield Scene(server, Load(clients=2, max_tokens=40), harm)


def _hanging(directory: Path) -> Iterator[Scene]:
    model = fetch_packaged(PACKAGED_MODELS[DEFAULT_MODEL], default_cache_dir())
    with held_service(model, directory) as service:
        yield Scene(
            service.routers[0],
            Load(clients=2, max_tokens=200),
            {HARM_AT: service.gate.hold},
        )


RECORDS = {
    "calm": Record(
        "octavo serve smollm2; one client, who pauses for a second after each short answer.",
        1,
        _serve(Load(clients=1, max_tokens=20, pause=1.0)),
    ),
    "overloaded": Record(
        "octavo serve smollm2 --max-num-seqs 2; 24 clients, each with the next request at once.",
        1,
        _serve(Load(clients=24, max_tokens=100), "--max-num-seqs", "2"),
    ),
    "preempting": Record(
        "octavo serve smollm2 --kv-cache-memory-bytes 50000000, which are 2,160 tokens; 8 clients\n"
        "who want 800 tokens each.",
        1,
        _serve(Load(clients=8, max_tokens=800), "--kv-cache-memory-bytes", "50000000"),
    ),
    "frozen": Record(
        "octavo serve smollm2 --data-parallel-size 2; 2 clients. One engine gets SIGSTOP before\n"
        f"scrape {HARM_AT} (of 0, 1, …), the other before scrape {HARM_AT + 32}.",
        2,
        _freezing,
    ),
    "hung": Record(
        "octavo engine with a decoder that a test holds (tests/support/held_engine.py), behind\n"
        f"octavo router; 2 clients. From scrape {HARM_AT} on (of 0, 1, …) no step ends.",
        1,
        _hanging,
    ),
}


async def record(scene: Scene, wanted: set[str]) -> dict[str, list[float | None]]:
    """Values of the wanted metrics' series at each scrape; None where a series was not there."""
    series: dict[str, list[float | None]] = {}
    names: dict[str, str] = {}
    async with (
        httpx.AsyncClient(base_url=scene.server.url, timeout=300) as client,
        _asking(client, scene.load),
    ):
        loop = asyncio.get_running_loop()
        began = loop.time()
        for index in range(SCRAPES):
            await asyncio.sleep(began + index * SECONDS_BETWEEN_SCRAPES - loop.time())
            if harm := scene.harm.get(index):
                harm()
            for labels, value in _samples((await client.get("/metrics")).text, wanted, names):
                values = series.setdefault(labels, [None] * index)
                values.append(value)
            for values in series.values():
                values += [None] * (index + 1 - len(values))
    return series


def _samples(text: str, wanted: set[str], names: dict[str, str]) -> Iterator[tuple[str, float]]:
    yield 'up{namespace="llm",job="octavo",pod="octavo-router-0"}', 1.0
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name not in wanted:
                continue
            labels = dict(sample.labels)
            if target := labels.get("target"):  # a socket of this machine
                labels["target"] = names.setdefault(target, f"engine-{len(names)}")
            scraped = {"namespace": "llm", "job": "octavo-engines"}
            if sample.name.startswith("octavo_router_"):
                scraped |= {"job": "octavo", "pod": "octavo-router-0"}
            pairs = ",".join(f'{name}="{value}"' for name, value in (scraped | labels).items())
            yield f"{sample.name}{{{pairs}}}", sample.value


@asynccontextmanager
async def _asking(client: httpx.AsyncClient, load: Load) -> AsyncIterator[None]:
    async def ask(number: int) -> None:
        count = 0
        while True:
            count += 1
            body = {
                "prompt": f"Story {number}, chapter {count}:",
                "max_tokens": load.max_tokens,
                "ignore_eos": True,
            }
            answer = await client.post("/v1/completions", json=body)
            await asyncio.sleep(load.pause if answer.is_success else 1.0)

    tasks = [asyncio.create_task(ask(number)) for number in range(load.clients)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def as_promtool_writes(values: list[float | None]) -> str:
    """Values as promtool reads them: `5x3` are four of 5; a series that ends is `stale` first."""
    words: list[str] = []
    for value, group in groupby(values):
        count = len(list(group))
        if value is None and words:
            words.append("stale")
            count -= 1
        if count:
            word = "_" if value is None else f"{value:.10g}"
            words.append(word if count == 1 else f"{word}x{count - (value is not None)}")
    return " ".join(words)


def wanted_metrics(rules: Object) -> set[str]:
    """Metrics that the chart's alerts ask for."""
    (group,) = rules["groups"]
    expressions = [promql_parser.parse(rule["expr"]) for rule in group["rules"]]
    return {each.name for expr in expressions for each in selectors(expr)} - {"up"}


def write(name: str, wanted: set[str]) -> None:
    """Runs a scene and writes its record."""
    made = RECORDS[name]
    with (
        tempfile.TemporaryDirectory() as directory,
        contextmanager(made.start)(Path(directory)) as scene,
    ):
        series = asyncio.run(record(scene, wanted))
    lines = [
        *(f"# {line}" for line in made.text.splitlines()),
        f"# Written by `make record-metrics`: {SCRAPES} scrapes of a real run, a second apart,",
        "# labelled as 15 seconds apart: time is stretched 15 times. Kept is what alerts ask for.",
        f"engines: {made.num_engines}",
        "series:",
    ]
    for labels, values in sorted(series.items()):
        lines += [f"  - series: '{labels}'", f'    values: "{as_promtool_writes(values)}"']
    RECORDED.mkdir(exist_ok=True)
    (RECORDED / f"{name}.yaml").write_text("\n".join(lines) + "\n")


def main(names: list[str]) -> None:
    """Records the named scenes, or all."""
    chart = ChartTool(client_python("helm"))
    rules = chart.render(value_sets()["monitoring"]).only("PrometheusRule")["spec"]
    chart.close()
    for name in names or RECORDS:
        print(f"{name}: {SCRAPES * SECONDS_BETWEEN_SCRAPES:g} s")
        write(name, wanted_metrics(rules))


if __name__ == "__main__":
    main(sys.argv[1:])
