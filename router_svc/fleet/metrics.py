"""What a fleet shows to Prometheus, computed from its state at each scrape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prometheus_client import Metric

    from router_svc.fleet.fleet import Fleet

IN_FLIGHT = "octavo_router_engine_requests_in_flight"
_STATES = ("closed", "open", "half_open")
_LABEL_LETTERS = 8  # of an instance id, as engines label their own metrics


class FleetCollector(Collector):
    """The engines of all fleets, and what became of requests whose engine was lost."""

    def __init__(self, fleets: Sequence[Fleet]) -> None:
        self._fleets = fleets

    def collect(self) -> Iterable[Metric]:
        """The families."""
        ready = GaugeMetricFamily(
            "octavo_router_engine_ready",
            "Whether an engine may be sent requests.",
            labels=["target"],
        )
        in_flight = GaugeMetricFamily(
            IN_FLIGHT,
            "Requests that were sent to an engine and have not ended.",
            labels=["target"],
        )
        circuit = GaugeMetricFamily(
            "octavo_router_engine_circuit",
            "1 for the state that an engine's circuit is in.",
            labels=["target", "state"],
        )
        cached = GaugeMetricFamily(
            "octavo_router_engine_known_blocks",
            "Blocks of an engine's prefix cache that the router knows of.",
            labels=["target"],
        )
        info = GaugeMetricFamily(
            "octavo_router_engine_info",
            "1 for the process that was last met at a target: `engine` is as in its own metrics.",
            labels=["target", "engine", "model_name"],
        )
        for member in (member for fleet in self._fleets for member in fleet.members):
            labels = [member.name]
            ready.add_metric(labels, float(member.may_serve))
            in_flight.add_metric(labels, member.channel.num_in_flight)
            cached.add_metric(labels, member.prefixes.num_stored)
            if (known := member.channel.info) is not None:
                engine = known.instance_id[:_LABEL_LETTERS]
                info.add_metric([*labels, engine, known.served_names[0]], 1.0)
            for state in _STATES:
                circuit.add_metric([*labels, state], float(member.circuit.state == state))
        yield from (ready, in_flight, circuit, cached, info)
        yield CounterMetricFamily(
            "octavo_router_retries",
            "Requests that were sent again before their first token.",
            value=sum(fleet.num_retries for fleet in self._fleets),
        )
        yield CounterMetricFamily(
            "octavo_router_failovers",
            "Answers that went on on another engine.",
            value=sum(fleet.num_failovers for fleet in self._fleets),
        )
