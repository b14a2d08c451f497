"""Metrics that are computed from the engine's state when they are scraped, so that none can freeze
or drift, and that cost a step nothing but what the state keeps anyway."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from engine_svc.scheduling.queue_waits import WaitReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from engine_svc.engine import Load

LABELS = ("model_name", "engine")
"""Of every metric of an engine."""


@dataclass(frozen=True, slots=True)
class AdapterState:
    """Adapters that choices use, by name and separated by commas, and how many may be loaded."""

    most: int = 0
    running: str = ""
    waiting: str = ""


class StateCollector(Collector):
    """What the engine's state says by itself."""

    def __init__(
        self,
        labels: tuple[str, str],
        load: Callable[[], Load],
        send_seconds: Callable[[], float],
        cache_config: Mapping[str, str],
        adapters: Callable[[], AdapterState],
    ) -> None:
        self._labels = labels
        self._load = load
        self._send_seconds = send_seconds
        self._cache_config = cache_config
        self._adapters = adapters

    def collect(self) -> Iterable[Metric]:
        """The families."""
        load = self._load()
        yield from self._gauges(load)
        yield from self._counters(load)
        info = InfoMetricFamily("vllm:cache_config", "The KV cache.", labels=LABELS)
        info.add_metric(self._labels, dict(self._cache_config))
        yield info

    def _gauges(self, load: Load) -> Iterable[Metric]:
        used = (load.num_blocks - load.num_free_blocks) / max(1, load.num_blocks)
        for name, text, value in (
            ("vllm:num_requests_running", "Choices being computed.", load.num_running),
            ("vllm:num_requests_waiting", "Choices waiting.", load.num_waiting),
            ("vllm:kv_cache_usage_perc", "Share of KV blocks that running choices use.", used),
            ("vllm:gpu_cache_usage_perc", "Older name of vllm:kv_cache_usage_perc.", used),
        ):
            gauge = GaugeMetricFamily(name, text, labels=LABELS)
            gauge.add_metric(self._labels, value)
            yield gauge
        lora = GaugeMetricFamily(
            "vllm:lora_requests_info",
            "Adapters that choices use, by name in labels; the value is the time.",
            labels=(*LABELS, "max_lora", "running_lora_adapters", "waiting_lora_adapters"),
        )
        adapters = self._adapters()
        names = (str(adapters.most), adapters.running, adapters.waiting)
        lora.add_metric((*self._labels, *names), time.time())
        yield lora

    def _counters(self, load: Load) -> Iterable[Metric]:
        kernels = CounterMetricFamily(
            "octavo_kernel_cpu_seconds", "CPU time within the kernels' steps.", labels=LABELS
        )
        kernels.add_metric(self._labels, load.kernel_cpu_seconds)
        yield kernels
        phases = CounterMetricFamily(
            "octavo_step_phase_seconds",
            "Time of steps by phase; send runs beside the next step, on a thread of its own.",
            labels=(*LABELS, "phase"),
        )
        for phase, seconds in (
            ("schedule", load.phases.schedule),
            ("kernels", load.phases.kernels),
            ("sample", load.phases.sample),
            ("send", self._send_seconds()),
        ):
            phases.add_metric((*self._labels, phase), seconds)
        yield phases
        waits = CounterMetricFamily(
            "octavo_queue_wait_seconds",
            "Time that choices waited, summed over them, by what they waited for.",
            labels=(*LABELS, "reason"),
        )
        for reason, seconds in zip(WaitReason, load.queue_wait_seconds, strict=False):
            waits.add_metric((*self._labels, reason), seconds)
        yield waits
