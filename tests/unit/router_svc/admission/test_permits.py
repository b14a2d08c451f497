"""What a tenant's limits let through, what they say when they do not, and how they change."""

from __future__ import annotations

from typing import Any

import pytest

from router_svc.admission.account import duration
from router_svc.admission.admission import Admission
from router_svc.admission.limits import Limits
from router_svc.admission.permit import Permit
from router_svc.errors import ApiError, ErrorKind

SECOND = 1_000_000_000


class Tenants:
    """An admission under a clock and limits of the test's."""

    def __init__(self, max_requests_in_flight: int = 0, **limits: Limits) -> None:
        self.now = 0
        self.limits: dict[str, Limits] = limits
        self.rejections: list[tuple[str, str]] = []
        self.admission = Admission(
            max_requests_in_flight,
            lambda: self.limits,
            on_rejected=lambda *rejection: self.rejections.append(rejection),
            clock=lambda: self.now,
        )

    def permit(self, tenant: str = "acme") -> Permit:
        return self.admission.permit(tenant)

    def headers(self, tenant: str = "acme") -> dict[str, str]:
        return dict(self.permit(tenant).headers())


def refused(call: Any, *args: Any, **options: Any) -> ApiError:
    """The error that it must raise."""
    with pytest.raises(ApiError) as caught:
        call(*args, **options)
    return caught.value


def test_requests_beyond_the_limit_are_told_exactly_when_to_come_back() -> None:
    tenants = Tenants(acme=Limits(requests_per_minute=2))
    for _ in range(2):
        tenants.permit().arrive()
    tenants.now += 1_500_000

    error = refused(tenants.permit().arrive)
    tenants.now += int(error.retry_after * SECOND)  # type: ignore[operator]
    tenants.permit().arrive()

    assert (error.kind, error.code) == (ErrorKind.RATE_LIMITED, "rate_limit_exceeded")
    assert error.retry_after == 29.999
    assert (b"retry-after", b"30") in error.headers()
    assert (b"retry-after-ms", b"29999") in error.headers()
    assert tenants.rejections == [("requests_per_minute", "acme")]


def test_one_tenants_limits_are_not_anothers() -> None:
    tenants = Tenants(acme=Limits(requests_per_minute=1), beta=Limits(requests_per_minute=1))
    tenants.permit("acme").arrive()

    for tenant in ("beta", "free", "free", ""):
        tenants.permit(tenant).arrive()

    assert refused(tenants.permit("acme").arrive).kind is ErrorKind.RATE_LIMITED
    assert tenants.headers("free") == {}


def test_what_an_answer_does_not_use_goes_back() -> None:
    tenants = Tenants(acme=Limits(tokens_per_minute=100))
    permit = tenants.permit()

    with permit:
        permit.reserve(20, 60, param="max_tokens")
        reserved = tenants.headers()["x-ratelimit-remaining-tokens"]
        permit.settle(20 + 5)

    assert reserved == "20"
    assert tenants.headers()["x-ratelimit-remaining-tokens"] == "75"


def test_of_a_request_that_never_ran_all_tokens_go_back() -> None:
    tenants = Tenants(acme=Limits(tokens_per_minute=100))
    permit = tenants.permit()

    with permit:
        permit.reserve(20, 60, param="max_tokens")

    assert tenants.headers()["x-ratelimit-remaining-tokens"] == "100"


def test_tokens_beyond_the_limit_say_when_and_of_what_there_is_too_little() -> None:
    tenants = Tenants(acme=Limits(tokens_per_minute=60))
    tenants.permit().reserve(20, 30, param="max_tokens")

    error = refused(tenants.permit().reserve, 10, 5, param="max_tokens")

    assert (error.kind, error.code, error.retry_after) == (
        ErrorKind.RATE_LIMITED,
        "rate_limit_exceeded",
        5.0,
    )
    assert "60 tokens a minute, of which 10 are left; the request may take 15" in error.message
    assert tenants.rejections == [("tokens_per_minute", "acme")]


def test_more_than_ever_is_there_is_the_clients_to_change() -> None:
    tenants = Tenants(acme=Limits(tokens_per_minute=60))

    answer = refused(tenants.permit().reserve, 20, 50, param="max_tokens")
    prompt = refused(tenants.permit().reserve, 61, 50, param="max_tokens")

    assert (answer.kind, answer.param) == (ErrorKind.INVALID_REQUEST, "max_tokens")
    assert (prompt.kind, prompt.param) == (ErrorKind.INVALID_REQUEST, None)
    assert (answer.code, answer.retry_after) == ("tokens_above_limit", None)
    assert "20 tokens of prompt and up to 50 of answer" in answer.message


def test_an_answer_that_the_context_alone_bounds_may_run_into_debt() -> None:
    tenants = Tenants(acme=Limits(tokens_per_minute=60))
    permit = tenants.permit()

    with permit:
        permit.reserve(20, 4000)
        permit.settle(20 + 100)

    assert tenants.headers()["x-ratelimit-remaining-tokens"] == "0"
    assert refused(tenants.permit().reserve, 1).retry_after == 61.0


def test_requests_at_once_are_bounded_for_a_tenant() -> None:
    tenants = Tenants(acme=Limits(concurrent_requests=1))

    with tenants.permit():
        error = refused(tenants.permit().arrive)
        refused(tenants.permit().__enter__)
    with tenants.permit():
        pass

    assert (error.code, error.retry_after) == ("rate_limit_exceeded", 1.0)
    assert tenants.rejections == [("concurrent_requests", "acme")] * 2


def test_requests_at_once_are_bounded_for_the_process() -> None:
    tenants = Tenants(2, acme=Limits(requests_per_minute=1))

    with tenants.permit("a"), tenants.permit("b"):
        error = refused(tenants.permit().arrive)
        in_flight = tenants.admission.num_in_flight

    assert (error.kind, error.code, in_flight) == (ErrorKind.RATE_LIMITED, "queue_full", 2)
    assert error.retry_after is not None
    assert tenants.admission.num_in_flight == 0
    assert tenants.headers()["x-ratelimit-remaining-requests"] == "1", "it was not counted"
    assert tenants.rejections == [("requests_in_flight", "acme")]


def test_headers_have_openais_names() -> None:
    tenants = Tenants(acme=Limits(requests_per_minute=60, tokens_per_minute=1000))
    permit = tenants.permit()
    permit.arrive()
    permit.reserve(100, 400, param="max_tokens")

    assert tenants.headers() == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "500",
        "x-ratelimit-reset-tokens": "30s",
    }


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (1, "1ms"),
        (20_000_000, "20ms"),
        (SECOND, "1s"),
        (8_640_000_000, "8.64s"),
        (60 * SECOND, "1m0s"),
        (361 * SECOND, "6m1s"),
        (3600 * SECOND, "1h0m0s"),
    ],
)
def test_durations_are_written_as_openai_does(nanoseconds: int, text: str) -> None:
    assert duration(nanoseconds) == text


def test_a_tenant_that_stays_keeps_what_it_used_when_limits_change() -> None:
    tenants = Tenants(acme=Limits(requests_per_minute=10, tokens_per_minute=100))
    tenants.permit().arrive()
    held = tenants.permit()
    with held:
        tenants.limits = {
            "acme": Limits(requests_per_minute=20, concurrent_requests=1),
            "new": Limits(requests_per_minute=5),
        }

        error = refused(tenants.permit().arrive)

    assert error.message == "This key may have 1 request(s) at once."
    assert tenants.headers() == {
        "x-ratelimit-limit-requests": "20",
        "x-ratelimit-remaining-requests": "19",
        "x-ratelimit-reset-requests": "3s",
    }
    assert tenants.headers("new")["x-ratelimit-remaining-requests"] == "5"


def test_limits_that_are_gone_bind_no_longer() -> None:
    tenants = Tenants(acme=Limits(requests_per_minute=1))
    tenants.permit().arrive()

    tenants.limits = {}

    tenants.permit().arrive()
    assert tenants.headers() == {}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "limits map some of requests_per_minute, tokens_per_minute, concurrent_requests"),
        ({}, "limits map some of"),
        ({"requests": 1}, "limits map some of"),
        ({"requests_per_minute": 0}, "requests_per_minute must be a whole number above 0"),
        ({"tokens_per_minute": "100"}, "tokens_per_minute must be"),
        ({"tokens_per_minute": 1.5}, "tokens_per_minute must be"),
        ({"concurrent_requests": True}, "concurrent_requests must be"),
    ],
)
def test_limits_that_mean_nothing_are_refused(given: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Limits.of(given)
