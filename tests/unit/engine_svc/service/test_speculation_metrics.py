"""Counters of guesses keep vLLM's names and labels."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from engine_svc.scheduling.step_outputs import Draft
from engine_svc.service.speculation_metrics import SpeculationMetrics


def test_guesses_are_counted_in_all_and_by_position() -> None:
    registry = CollectorRegistry()
    metrics = SpeculationMetrics(registry, model_name="m", engine="e")

    metrics.on_drafts([Draft(num_tokens=5, num_accepted=2), Draft(num_tokens=3, num_accepted=1)])
    metrics.on_drafts([Draft(num_tokens=1, num_accepted=0)])

    def value(name: str, **labels: str) -> float | None:
        labels |= {"model_name": "m", "engine": "e"}
        return registry.get_sample_value(f"vllm:spec_decode_{name}_total", labels)

    assert value("num_drafts") == 3
    assert value("num_draft_tokens") == 9
    assert value("num_accepted_tokens") == 3
    assert value("num_accepted_tokens_per_pos", position="0") == 2
    assert value("num_accepted_tokens_per_pos", position="1") == 1
    assert value("num_accepted_tokens_per_pos", position="2") is None
