"""Speeds that follow from what was seen of each request."""

from __future__ import annotations

import pytest

from tests.bench.cpu.samples import Sample, percentile, speed_of


def _sample(started: float, arrivals: list[float], *, prompt: int = 100) -> Sample:
    return Sample(started, arrivals, arrivals[-1], prompt, len(arrivals))


def test_a_stream_s_speed_counts_from_its_first_token() -> None:
    speed = speed_of([_sample(0.0, [1.0, 1.1, 1.2, 1.3])])

    assert speed.decode_tok_s == pytest.approx(10)
    assert speed.prefill_tok_s == pytest.approx(100)
    assert speed.ttft_p50_ms == pytest.approx(1000)
    assert speed.between_p50_ms == pytest.approx(100)


def test_throughput_counts_from_the_first_request_to_the_last_answer() -> None:
    speed = speed_of([_sample(0.0, [1.0, 2.0]), _sample(1.0, [2.0, 4.0])])

    assert speed.output_tok_s == pytest.approx(4 / 4)


def test_tokens_that_arrive_together_do_not_change_a_stream_s_speed() -> None:
    coalesced = Sample(0.0, [1.0, 1.4], 1.4, 100, completion_tokens=5)

    assert speed_of([coalesced]).decode_tok_s == pytest.approx(10)


def test_a_single_token_has_no_decode_speed() -> None:
    speed = speed_of([_sample(0.0, [0.5], prompt=1024)])

    assert speed.decode_tok_s == 0
    assert speed.prefill_tok_s == pytest.approx(2048)


def test_a_failure_is_no_measurement() -> None:
    failed = Sample(0.0, [], 1.0, error="HTTP 400: no such model")

    with pytest.raises(ValueError, match="HTTP 400: no such model"):
        speed_of([_sample(0.0, [1.0, 2.0]), failed])


def test_an_answer_without_text_is_no_measurement() -> None:
    with pytest.raises(ValueError, match="no text"):
        speed_of([Sample(0.0, [], 1.0)])


@pytest.mark.parametrize(("q", "value"), [(0, 1), (50, 2.5), (95, 3.85), (100, 4)])
def test_percentiles_lie_between_neighbours(q: float, value: float) -> None:
    assert percentile([4, 1, 3, 2], q) == pytest.approx(value)
