"""When an engine is left alone, and when a retry would only add to the trouble."""

from __future__ import annotations

from router_svc.fleet.circuit import Circuit, RetryBudget


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def failed(times: int) -> tuple[Circuit, Clock]:
    clock = Clock()
    circuit = Circuit(clock)
    for _ in range(times):
        circuit.failed()
    return circuit, clock


def test_one_bad_answer_evicts_nobody() -> None:
    circuit, _ = failed(2)

    assert circuit.state == "closed"


def test_failures_in_a_row_open_the_circuit() -> None:
    circuit, _ = failed(3)

    assert not circuit.allows


def test_a_success_between_failures_starts_the_count_again() -> None:
    circuit, _ = failed(2)
    circuit.succeeded()
    circuit.failed()

    assert circuit.allows


def test_after_a_pause_one_request_tries_the_engine() -> None:
    circuit, clock = failed(3)
    clock.now = 1.5

    assert circuit.state == "half_open"
    circuit.begin()
    assert not circuit.allows


def test_a_trial_that_succeeds_closes_the_circuit() -> None:
    circuit, clock = failed(3)
    clock.now = 1.5
    circuit.begin()

    circuit.succeeded()

    assert circuit.state == "closed"


def test_each_trial_that_fails_doubles_the_pause() -> None:
    circuit, clock = failed(3)
    clock.now = 1.5
    circuit.begin()
    circuit.failed()  # again 1 s, and 2 s from now on
    clock.now = 3.0
    circuit.begin()
    circuit.failed()

    clock.now = 4.5
    assert circuit.state == "open"
    clock.now = 5.5
    assert circuit.state == "half_open"


def test_a_new_process_starts_with_a_clean_record() -> None:
    circuit, _ = failed(5)

    circuit.reset()

    assert circuit.allows


def test_retries_are_a_share_of_requests_beyond_a_reserve() -> None:
    budget = RetryBudget(ratio=0.5, reserve=2)

    assert [budget.spend() for _ in range(3)] == [True, True, False]
    budget.earn()
    assert not budget.spend()
    budget.earn()
    assert budget.spend()


def test_a_request_whose_time_was_over_says_nothing_of_the_engine() -> None:
    circuit, clock = failed(3)
    clock.now += 1.0
    circuit.begin()

    circuit.gave_up()

    assert circuit.state == "half_open"
