"""The router's own Prometheus metrics, and one exposition for router and engines together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from router_svc.tracing.observer import Observer
from router_svc.tracing.outcomes import outcome_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from router_svc.call_context import CallContext
    from router_svc.tracing.telemetry import Telemetry

CONTENT_TYPE = CONTENT_TYPE_LATEST

# The metrics of all processes behind one port.
Summing = Callable[[], Awaitable[Iterable[Metric]]]

_DURATIONS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_ROUTING = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30)
_CREATED = "_created"
_MAX_TENANTS = 200  # that have labels of their own


class RouterMetrics:
    """Counts calls of the public service; HTTP and gRPC callers alike."""

    def __init__(self, telemetry: Telemetry | None = None) -> None:
        """`telemetry`: what is sent by OTLP, if anything is."""
        self.registry = CollectorRegistry()
        self._observer = Observer(
            self.registry,
            None if telemetry is None else telemetry.tracing,
            None if telemetry is None else telemetry.meter,
        )
        self.idle = asyncio.Event()  # set while no call is being served
        self.idle.set()
        self._num_calls = 0
        self._requests = Counter(
            "octavo_router_requests",
            "Calls of the public API that have ended, by RPC and outcome.",
            ["rpc", "outcome"],
            registry=self.registry,
        )
        self._in_flight = Gauge(
            "octavo_router_requests_in_flight",
            "Calls of the public API that are being served.",
            ["rpc"],
            registry=self.registry,
        )
        self._http_answers = Counter(
            "octavo_router_http_answers",
            "HTTP answers, of refused bodies and unknown paths too, by route and status.",
            ["route", "status"],
            registry=self.registry,
        )
        self._duration = Histogram(
            "octavo_router_request_duration_seconds",
            "Time from a call's arrival to the last byte of its answer.",
            ["rpc"],
            buckets=_DURATIONS,
            registry=self.registry,
        )

        self._rejections = Counter(
            "octavo_router_rejections",
            "Calls that were refused by a limit, by the limit and the tenant; with very many "
            'tenants the later ones are "other".',
            ["reason", "tenant"],
            registry=self.registry,
        )
        self._tenants: set[str] = set()
        self._routing = Histogram(
            "octavo_router_time_to_route_seconds",
            "Time from a prompt that is ready to the engine that gets it, waits for one included.",
            buckets=_ROUTING,
            registry=self.registry,
        )

    def count_rejection(self, reason: str, tenant: str) -> None:
        """Counts a call that a limit refused."""
        if len(self._tenants) < _MAX_TENANTS:
            self._tenants.add(tenant)
        self._rejections.labels(reason, tenant if tenant in self._tenants else "other").inc()

    def observe_routing(self, seconds: float) -> None:
        """Notes how long it took to find an engine."""
        self._routing.observe(seconds)

    def count_answer(self, route: str, status: int) -> None:
        """Counts an HTTP answer; `route` is the declared path, "" for a path that is none."""
        self._http_answers.labels(route, str(status)).inc()

    @contextmanager
    def call(self, rpc: str) -> Iterator[None]:
        """Measures one call; its outcome is "ok", or the kind of error that leaves the block."""
        outcome = "ok"
        started = time.perf_counter()
        self._num_calls += 1
        self.idle.clear()
        in_flight = self._in_flight.labels(rpc)
        in_flight.inc()
        try:
            yield
        except BaseException as error:
            outcome = outcome_of(error)
            raise
        finally:
            self._num_calls -= 1
            if not self._num_calls:
                self.idle.set()
            in_flight.dec()
            self._requests.labels(rpc, outcome).inc()
            self._duration.labels(rpc).observe(time.perf_counter() - started)

    @contextmanager
    def generation(
        self, rpc: str, operation: str, model: str, context: CallContext
    ) -> Iterator[CallContext]:
        """As `call`, for one that makes something of `operation` (gen_ai.operation.name).

        It is traced, and goes on with the context that this gives; `model` is what was asked for.
        """
        with self.call(rpc), self._observer.watch(operation, model, context) as watched:
            yield watched


class _Families:
    """What `generate_latest` asks of a registry."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def merged_exposition(own: Iterable[Metric], engines: Iterable[bytes]) -> bytes:
    """The router's metrics and those of its engines, each family once, in the text format."""
    families: dict[str, Metric] = {family.name: family for family in own}
    for text in engines:
        for family in text_string_to_metric_families(text.decode()):
            # In the text format the times of creation are a family of their own; here they are not.
            created_of = family.name.removesuffix(_CREATED)
            if known := families.get(family.name) or families.get(created_of):
                known.samples.extend(family.samples)
            else:
                families[family.name] = family
    return generate_latest(_Families(families.values()))


def only_named(
    own: Iterable[Metric], engines: Iterable[bytes], names: Collection[str]
) -> tuple[list[Metric], list[bytes]]:
    """Of what `merged_exposition` takes the samples of these names, found without parsing texts.

    So whoever asks often for a few does not cost what a whole scrape does.
    """
    families = []
    for family in own:
        if samples := [sample for sample in family.samples if sample.name in names]:
            kept = Metric(family.name, family.documentation, family.type)
            kept.samples = samples
            families.append(kept)
    # HELP and TYPE name the family, which a sample's name may continue: "…_bucket".
    described = {*names, *(name.rpartition("_")[0] for name in names)}
    return families, [_lines_of(text.decode(), names, described).encode() for text in engines]


def _lines_of(exposition: str, names: Collection[str], described: Collection[str]) -> str:
    kept = []
    for line in exposition.splitlines(keepends=True):
        if line.startswith(("# HELP ", "# TYPE ")):
            is_kept = line.split(" ", 3)[2] in described
        else:
            is_kept = line.partition("{")[0].partition(" ")[0] in names
        if is_kept:
            kept.append(line)
    return "".join(kept)
