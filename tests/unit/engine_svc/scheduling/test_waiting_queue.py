import pytest

from engine_svc.sampling_params import SamplingParams
from engine_svc.scheduling.block_pool import IntegrityError
from engine_svc.scheduling.kv_cache_manager import PrefixProbe
from engine_svc.scheduling.request import Request
from engine_svc.scheduling.waiting_queue import (
    PATIENCE,
    REACH,
    WINDOW,
    AdmissionRound,
    WaitingQueue,
)


def make(serial: int, *, priority: int = 0, preemptions: int = 0) -> Request:
    request = Request(serial, "r", 0, (1, 2), SamplingParams(), 0.0, priority=priority)
    request.serial = serial
    request.num_preemptions = preemptions
    return request


def queue_of(*requests: Request) -> WaitingQueue:
    queue = WaitingQueue()
    for request in requests:
        queue.push(request)
    return queue


def admit_all(queue: WaitingQueue, cached=None, held=()) -> list[int]:
    """Keys in the order in which one round offers them, if each is admitted."""

    def probe(request: Request) -> PrefixProbe:
        return PrefixProbe((cached or {}).get(request.key, 0), request.key in held)

    offers, order = AdmissionRound(queue, probe), []
    while (request := offers.next()) is not None:
        queue.admit(request)
        order.append(request.key)
    return order


def test_priority_then_arrival():
    queue = queue_of(make(0, priority=1), make(1), make(2, priority=1), make(3))

    assert [request.key for request in queue] == [1, 3, 0, 2]
    assert admit_all(queue) == [1, 3, 0, 2]
    assert len(queue) == 0


def test_a_longer_cached_prefix_goes_first_within_a_priority_only():
    queue = queue_of(make(0), make(1), make(2), make(3, priority=1))

    assert admit_all(queue, cached={2: 5, 3: 9}) == [2, 0, 1, 3]


def test_only_the_first_few_are_compared():
    requests = [make(serial) for serial in range(WINDOW + 1)]

    assert admit_all(queue_of(*requests), cached={WINDOW: 9})[0] == 0


def test_preempted_requests_go_first_the_earliest_admitted_foremost():
    queue = queue_of(make(0), make(1, priority=-1))
    queue.push_front(make(6, preemptions=1))  # the last-come is preempted first
    queue.push_front(make(5, preemptions=1))

    assert admit_all(queue, cached={0: 9}) == [1, 5, 6, 0]


def test_who_waits_for_a_block_is_passed_over():
    queue = queue_of(make(0), make(1), make(2))

    assert admit_all(queue, held={0, 1}) == [2]
    assert len(queue) == 2


def test_an_admission_may_hold_back_the_next():
    queue, claimed = queue_of(make(0), make(1)), set()
    offers = AdmissionRound(queue, lambda request: PrefixProbe(0, request.key in claimed))

    first = offers.next()
    queue.admit(first)
    claimed.add(1)

    assert first.key == 0
    assert offers.next() is None


def test_after_enough_admissions_the_oldest_goes_first_whatever_it_is():
    old = make(0, priority=9)
    queue = queue_of(old, *(make(serial) for serial in range(1, PATIENCE + 5)))

    order = admit_all(queue, held={0})

    assert order.index(0) == PATIENCE
    assert queue.overdue is None


def test_a_preempted_request_counts_as_the_oldest():
    queue = queue_of(*(make(serial, priority=-1) for serial in range(PATIENCE + 5)))
    queue.push_front(make(1000, preemptions=1))

    assert admit_all(queue).index(1000) == PATIENCE


def test_one_round_looks_at_no_more_than_a_bounded_part_of_the_queue():
    queue = queue_of(*(make(serial) for serial in range(REACH + 10)))
    probed = []

    def probe(request: Request) -> PrefixProbe:
        probed.append(request.key)
        return PrefixProbe(0, being_computed=True)

    assert AdmissionRound(queue, probe).next() is None
    assert len(probed) == REACH


def test_tokens_are_counted_and_a_removed_request_is_gone():
    first, second = make(0), make(1)
    queue = queue_of(first, second)
    assert queue.num_tokens == 4

    queue.remove(first)

    assert (len(queue), queue.num_tokens) == (1, 2)
    assert first.key not in queue
    assert second.key in queue
    with pytest.raises(KeyError):
        queue.remove(first)


def test_integrity_names_a_request_that_waits_with_computed_tokens():
    request = make(0)
    queue = queue_of(request)
    queue.check_integrity()
    request.num_computed_tokens = 1

    with pytest.raises(IntegrityError, match="request 0 waits as WAITING with 1 computed tokens"):
        queue.check_integrity()


def test_integrity_compares_the_token_count_with_the_requests():
    request = make(0)
    queue = queue_of(request)
    request.output_token_ids.append(3)

    with pytest.raises(IntegrityError, match="the queue counts 2 tokens, its requests have 3"):
        queue.check_integrity()
