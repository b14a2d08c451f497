"""Turns between tenants: by tokens, whoever floods the queue."""

from __future__ import annotations

from engine_svc.sampling_params import SamplingParams
from engine_svc.scheduling.request import Request
from engine_svc.scheduling.waiting_queue import WaitingQueue


class Arrivals:
    """Makes requests in order of arrival."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, tenant: str, prompt: int = 100, output: int = 100, **options) -> Request:
        request = Request(
            key=self._count,
            request_id=f"{tenant}{self._count}",
            choice=0,
            prompt_token_ids=tuple(range(prompt)),
            sampling=SamplingParams(max_tokens=output),
            arrival=0.0,
            tenant=tenant,
            **options,
        )
        request.serial = self._count
        self._count += 1
        return request


def served(queue: WaitingQueue, count: int | None = None) -> str:
    """The tenants of the next requests, in the order in which they are admitted."""
    order = ""
    while len(queue) and (count is None or len(order) < count):
        request = next(iter(queue))
        queue.admit(request)
        order += request.tenant
    return order


def test_a_tenant_that_floods_the_queue_takes_turns_with_the_others() -> None:
    arrive, queue = Arrivals(), WaitingQueue()
    for tenant in "aaaaabb":
        queue.push(arrive(tenant))

    assert served(queue) == "ababaaa"


def test_turns_are_by_tokens_and_not_by_requests() -> None:
    arrive, queue = Arrivals(), WaitingQueue()
    for _ in range(3):
        queue.push(arrive("a", prompt=300, output=100))  # 400 tokens each
    for _ in range(8):
        queue.push(arrive("b", prompt=50, output=50))  # 100 tokens each

    # By the time a has had two, b has had four times as many.
    order = served(queue, 9)
    assert order.count("a") == 2
    assert order.count("b") == 7


def test_one_tenant_alone_is_served_in_order_of_arrival() -> None:
    arrive, queue = Arrivals(), WaitingQueue()
    requests = [arrive("a", prompt=size) for size in (500, 1, 50)]
    for request in requests:
        queue.push(request)

    assert list(queue) == requests


def test_who_was_idle_saved_nothing_up() -> None:
    arrive, queue = Arrivals(), WaitingQueue()
    for _ in range(6):
        queue.push(arrive("a"))
    served(queue, 4)
    for _ in range(4):
        queue.push(arrive("b"))

    # Two of b's are due before the last two of a's, but not all four.
    assert served(queue, 4).count("a") == 2


def test_priority_comes_before_fairness() -> None:
    arrive, queue = Arrivals(), WaitingQueue()
    queue.push(arrive("b"))
    for _ in range(3):
        queue.push(arrive("a", priority=-1))

    assert served(queue) == "aaab"


def test_a_limit_that_is_never_reached_costs_no_turns() -> None:
    arrive, queue = Arrivals(), WaitingQueue()
    queue.push(arrive("a", output=1_000_000))
    queue.push(arrive("a"))
    for _ in range(4):
        queue.push(arrive("b"))

    assert "aba" in served(queue).replace("bb", "b")


def test_without_fairness_arrival_alone_counts() -> None:
    arrive, queue = Arrivals(), WaitingQueue(fair=False)
    for tenant in "aaabb":
        queue.push(arrive(tenant))

    assert served(queue) == "aaabb"
