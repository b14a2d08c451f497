"""One call's way through the limits.

arrive()   at its headers   requests in flight, requests a minute      refused with 429
with …     its whole life   holds its place
reserve()  prompt known     prompt and longest answer, in tokens       refused with 429 or 400
settle()   its end          what it did not use goes back
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from router_svc.errors import ApiError, ErrorKind, invalid

if TYPE_CHECKING:
    from collections.abc import Callable

    from router_svc.admission.account import Account

_CODE = "rate_limit_exceeded"
_MILLISECOND = 1_000_000  # nanoseconds


class Gate:
    """Bounds the requests that a process serves at once; a `limit` of 0 is no bound."""

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        self.num_in_flight = 0

    @property
    def is_full(self) -> bool:
        """Whether one more would be too many."""
        return 0 < self.limit <= self.num_in_flight


class Permit:
    """What a call asks. Without arguments it allows anything.

    `on_rejected` hears why a call was refused.
    """

    def __init__(
        self,
        gate: Gate | None = None,
        account: Account | None = None,
        on_rejected: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        self._gate = gate or Gate()
        self._account = account
        self._on_rejected = on_rejected
        self._reserved = 0

    def arrive(self) -> None:
        """Counts the request. Raises ApiError (429) beyond a limit, and then counts nothing."""
        self._check_places()
        bucket = self._account.requests if self._account is not None else None
        if bucket is None:
            return
        if wait := bucket.try_take(1):
            self._on_rejected("requests_per_minute")
            raise _too_many(f"This key may send {bucket.limit} request(s) a minute.", wait)

    def __enter__(self) -> Permit:
        """Takes a place among the requests in flight. Raises ApiError (429) if there is none."""
        self._check_places()
        self._gate.num_in_flight += 1
        if self._account is not None:
            self._account.num_in_flight += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._gate.num_in_flight -= 1
        if self._account is not None:
            self._account.num_in_flight -= 1
        self.settle(0)  # unless that was done, nothing was computed

    def reserve(self, prompt_tokens: int, answer_tokens: int = 0, *, param: str = "") -> None:
        """Sets tokens aside for a prompt and the longest answer.

        `param` is the field that bounds the answer. Without one the answer is bounded by the
        context alone, and at most the whole limit is set aside: what it uses beyond is owed.
        Raises ApiError: 429 with the time until the tokens are there, 400 for more than ever are.
        """
        bucket = self._account.tokens if self._account is not None else None
        if bucket is None:
            return
        wanted = prompt_tokens + answer_tokens
        if wanted > bucket.limit:
            if param or prompt_tokens > bucket.limit:
                raise _too_large(prompt_tokens, answer_tokens, bucket.limit, param)
            wanted = bucket.limit
        if wait := bucket.try_take(wanted):
            self._on_rejected("tokens_per_minute")
            raise _too_many(
                f"This key may use {bucket.limit} tokens a minute, of which {bucket.remaining} are"
                f" left; the request may take {wanted}, its prompt and its longest answer.",
                wait,
            )
        self._reserved = wanted

    def settle(self, used: int) -> None:
        """Gives back what of the tokens set aside was not used; does nothing the second time."""
        bucket = self._account.tokens if self._account is not None else None
        if bucket is not None and self._reserved:
            bucket.give_back(self._reserved - used)
        self._reserved = 0

    def headers(self) -> list[tuple[str, str]]:
        """What a client gets to see of its limits; nothing without any."""
        return [] if self._account is None else self._account.headers()

    def _check_places(self) -> None:
        if self._gate.is_full:
            self._on_rejected("requests_in_flight")
            raise ApiError(
                ErrorKind.RATE_LIMITED,
                f"The server has all the {self._gate.limit} requests that it takes at once.",
                code="queue_full",
            )
        account = self._account
        if account is None or account.concurrent_requests is None:
            return
        if account.num_in_flight >= account.concurrent_requests:
            self._on_rejected("concurrent_requests")
            raise ApiError(
                ErrorKind.RATE_LIMITED,
                f"This key may have {account.concurrent_requests} request(s) at once.",
                code=_CODE,
            )


def _too_many(message: str, wait: int) -> ApiError:
    # No earlier than the time that is promised.
    seconds = math.ceil(wait / _MILLISECOND) / 1000
    return ApiError(ErrorKind.RATE_LIMITED, message, code=_CODE, retry_after=seconds)


def _too_large(prompt_tokens: int, answer_tokens: int, limit: int, param: str) -> ApiError:
    return invalid(
        param if prompt_tokens < limit else "",
        f"{prompt_tokens} tokens of prompt and up to {answer_tokens} of answer are more than the"
        f" {limit} that this key may use in a minute",
        "tokens_above_limit",
    )
