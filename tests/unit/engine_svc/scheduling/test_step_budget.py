import pytest

from engine_svc.scheduling.step_budget import StepBudget


def budget(**changes) -> StepBudget:
    return StepBudget(**({"target_seconds": 0.1, "floor_tokens": 16, "max_tokens": 512} | changes))


def test_unmeasured_prefill_gets_the_full_budget():
    assert budget().prefill_tokens == 512


def test_prefill_fills_what_decodes_leave_of_the_target():
    steps = budget()
    steps.observe(num_decodes=8, num_prefill_tokens=0, seconds=0.020)

    # 20 ms of decoding and 1 ms for each token of prefill
    steps.observe(num_decodes=8, num_prefill_tokens=100, seconds=0.120)

    assert steps.prefill_tokens == pytest.approx(80, abs=1)


def test_a_step_without_decodes_is_all_prefill():
    steps = budget()
    steps.observe(num_decodes=8, num_prefill_tokens=0, seconds=0.020)

    steps.observe(num_decodes=0, num_prefill_tokens=100, seconds=0.100)

    assert steps.prefill_tokens == pytest.approx(80, abs=1)


def test_a_fast_machine_gets_the_full_budget():
    steps = budget()
    steps.observe(0, 512, 0.001)

    assert steps.prefill_tokens == 512


def test_prefill_never_drops_below_the_floor():
    slow_prefill = budget()
    slow_prefill.observe(0, 10, 10.0)

    assert slow_prefill.prefill_tokens == 16


def test_beside_slow_decoding_prefill_may_take_as_long_again():
    slow_decode = budget()
    slow_decode.observe(num_decodes=32, num_prefill_tokens=0, seconds=0.2)

    # 200 ms of decoding, beyond the target of 100 ms, and 2 ms for each token of prefill
    slow_decode.observe(num_decodes=32, num_prefill_tokens=50, seconds=0.3)

    assert slow_decode.prefill_tokens == pytest.approx(100, abs=1)


def test_the_floor_is_not_above_the_whole_budget():
    steps = budget(floor_tokens=16, max_tokens=8)
    steps.observe(0, 8, 10.0)

    assert steps.prefill_tokens == 8


def test_steps_converge_on_the_target_even_from_a_slow_first_one():
    steps = budget()
    steps.observe(0, 512, 5.0)  # the first step also warms up

    for _ in range(40):
        num_tokens = steps.prefill_tokens
        seconds = 0.010 + 0.0005 * num_tokens
        steps.observe(4, num_tokens, seconds)

    assert seconds == pytest.approx(0.1, rel=0.05)


def test_a_step_that_costs_nothing_measurable_divides_nothing_by_zero():
    steps = budget()
    steps.observe(4, 16, 0.0)

    assert steps.prefill_tokens == 512


def test_step_seconds_are_smoothed():
    steps = budget()
    assert steps.step_seconds == 0.0
    steps.observe(1, 0, 0.010)
    steps.observe(1, 0, 0.020)

    assert 0.010 < steps.step_seconds < 0.020


def test_the_target_must_be_positive():
    with pytest.raises(ValueError, match="target_step_seconds must be above 0, got 0"):
        budget(target_seconds=0)
