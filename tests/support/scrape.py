"""Reads a server's /metrics by label, as Prometheus does."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests.support import plain_http
from tests.support.server import RunningServer


def by_label(server: RunningServer, sample: str, label: str) -> dict[str, float]:
    """Values of a sample by one of its labels, for example "vllm:request_success_total"."""
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(plain_http.get(f"{server.url}/metrics").text):
        for one in family.samples:
            if one.name == sample:
                key = one.labels[label]
                values[key] = values.get(key, 0.0) + one.value
    return values
