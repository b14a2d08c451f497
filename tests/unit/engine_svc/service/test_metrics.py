"""Metrics keep vLLM's names and labels; gauges follow the state they are given."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine_svc.engine import Load, StepSeconds
from engine_svc.sampling_params import SamplingParams
from engine_svc.scheduling.queue_waits import WaitReason
from engine_svc.scheduling.request import Request
from engine_svc.service.metrics import FINISHED_REASONS, EngineMetrics, one_two_five


class Engine:
    """A state to scrape, and the metrics over it."""

    def __init__(self):
        self.load = Load(num_blocks=100, num_free_blocks=100)
        self.metrics = EngineMetrics(
            model_name="m",
            engine="e",
            max_model_len=100,
            load=lambda: self.load,
            cache_config={"block_size": "16", "num_gpu_blocks": "100"},
        )

    def samples(self):
        families = text_string_to_metric_families(self.metrics.exposition().decode())
        return [sample for family in families for sample in family.samples]

    def value(self, name, **labels):
        (found,) = [
            sample.value
            for sample in self.samples()
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        return found


@pytest.fixture
def engine():
    return Engine()


def finished_request():
    request = Request(
        key=1,
        request_id="r",
        choice=0,
        prompt_token_ids=(1, 2, 3),
        sampling=SamplingParams(),
        arrival=10.0,
    )
    request.first_scheduled_at = 11.0
    request.first_token_at = 13.0
    return request


def test_gauges_are_computed_when_scraped(engine):
    assert engine.value("vllm:num_requests_running") == 0

    engine.load = Load(num_running=3, num_waiting=2, num_blocks=100, num_free_blocks=25)

    assert engine.value("vllm:num_requests_running") == 3
    assert engine.value("vllm:num_requests_waiting") == 2
    assert engine.value("vllm:kv_cache_usage_perc") == pytest.approx(0.75)
    assert engine.value("vllm:gpu_cache_usage_perc") == pytest.approx(0.75)


def test_every_sample_names_model_and_engine(engine):
    for sample in engine.samples():
        assert sample.labels["model_name"] == "m"
        assert sample.labels["engine"] == "e"


def test_the_cache_is_described_in_labels(engine):
    assert engine.value("vllm:cache_config_info", block_size="16", num_gpu_blocks="100") == 1


def test_a_step_is_counted_once(engine):
    engine.metrics.on_step(num_tokens=40, seconds=0.02, num_sampled=3, num_preempted=2)

    assert engine.value("vllm:generation_tokens_total") == 3
    assert engine.value("vllm:num_preemptions_total") == 2
    assert engine.value("vllm:iteration_tokens_total_count") == 1
    assert engine.value("vllm:iteration_tokens_total_sum") == 40


def test_a_steps_time_is_told_whole_and_by_phase(engine):
    engine.load = Load(phases=StepSeconds(schedule=1.0, kernels=5.0, sample=2.0))

    engine.metrics.on_step(num_tokens=40, seconds=0.02)
    engine.metrics.on_sent(0.5)

    assert engine.value("octavo_step_seconds_count") == 1
    assert engine.value("octavo_step_seconds_sum") == pytest.approx(0.02)
    for phase, seconds in {"schedule": 1, "kernels": 5, "sample": 2, "send": 0.5}.items():
        assert engine.value("octavo_step_phase_seconds_total", phase=phase) == seconds


def test_waiting_is_told_by_what_was_waited_for(engine):
    engine.load = Load(queue_wait_seconds=tuple(range(len(WaitReason))))

    for seconds, reason in enumerate(WaitReason):
        assert engine.value("octavo_queue_wait_seconds_total", reason=reason) == seconds


def test_without_adapters_the_label_sets_of_adapters_are_empty(engine):
    for state in ("running", "waiting"):
        labels = {f"{state}_lora_adapters": "", "max_lora": "0"}
        assert engine.value("vllm:lora_requests_info", **labels) > 0


def test_cached_tokens_are_hits_and_all_tokens_are_queries(engine):
    engine.metrics.on_admitted(num_prompt_tokens=50, num_cached_tokens=32)

    assert engine.value("vllm:prompt_tokens_total") == 50
    assert engine.value("vllm:prefix_cache_queries_total") == 50
    assert engine.value("vllm:prefix_cache_hits_total") == 32
    assert engine.value("vllm:prompt_tokens_cached_total") == 32


def test_the_time_between_tokens_has_two_names(engine):
    engine.metrics.on_tokens(0.02, 3)
    engine.metrics.on_tokens(0.025, 1)
    engine.metrics.on_tokens(0.04, 1)

    for name in ("inter_token_latency_seconds", "time_per_output_token_seconds"):
        assert engine.value(f"vllm:{name}_count") == 5
        assert engine.value(f"vllm:{name}_sum") == pytest.approx(0.125)
        assert engine.value(f"vllm:{name}_bucket", le="0.025") == 4
        assert engine.value(f"vllm:{name}_bucket", le="+Inf") == 5


def test_a_finished_choice_is_taken_apart_into_its_phases(engine):
    engine.metrics.on_finished(finished_request(), 7, "stop", now=20.0)

    for name, seconds in {
        "e2e_request_latency_seconds": 10,
        "request_queue_time_seconds": 1,
        "request_inference_time_seconds": 9,
        "request_prefill_time_seconds": 2,
        "request_decode_time_seconds": 7,
        "request_prompt_tokens": 3,
        "request_generation_tokens": 7,
    }.items():
        assert engine.value(f"vllm:{name}_sum") == seconds
    assert engine.value("vllm:request_success_total", finished_reason="stop") == 1


def test_a_choice_that_never_ran_has_only_waited(engine):
    request = finished_request()
    request.first_scheduled_at = request.first_token_at = None

    engine.metrics.on_finished(request, 0, "timeout", now=20.0)

    assert engine.value("vllm:request_queue_time_seconds_sum") == 10
    assert engine.value("vllm:request_inference_time_seconds_count") == 0


def test_reasons_are_there_before_anything_happened(engine):
    for reason in FINISHED_REASONS:
        assert engine.value("vllm:request_success_total", finished_reason=reason) == 0


def test_buckets_for_lengths_end_at_the_context():
    assert one_two_five(60) == (1, 2, 5, 10, 20, 50)
