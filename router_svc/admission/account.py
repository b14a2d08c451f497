"""What one tenant has used of its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router_svc.admission.bucket import Bucket

if TYPE_CHECKING:
    from collections.abc import Callable

    from router_svc.admission.limits import Limits

_MILLISECOND = 1_000_000  # nanoseconds


class Account:
    """The buckets and the requests in flight of a tenant with limits."""

    def __init__(self, tenant: str, limits: Limits, clock: Callable[[], int]) -> None:
        self.tenant = tenant
        self._clock = clock
        self.num_in_flight = 0
        self.requests: Bucket | None = None
        self.tokens: Bucket | None = None
        self.concurrent_requests: int | None = None
        self.set_limits(limits)

    def set_limits(self, limits: Limits) -> None:
        """Changes the limits; what was used stays used."""
        self.requests = self._resized(self.requests, limits.requests_per_minute)
        self.tokens = self._resized(self.tokens, limits.tokens_per_minute)
        self.concurrent_requests = limits.concurrent_requests

    def headers(self) -> list[tuple[str, str]]:
        """Limit, rest and time until the rest is all again, by OpenAI's names."""
        found = []
        for name, bucket in (("requests", self.requests), ("tokens", self.tokens)):
            if bucket is not None:
                found += [
                    (f"x-ratelimit-limit-{name}", str(bucket.limit)),
                    (f"x-ratelimit-remaining-{name}", str(bucket.remaining)),
                    (f"x-ratelimit-reset-{name}", duration(bucket.full_in)),
                ]
        return found

    def _resized(self, bucket: Bucket | None, limit: int | None) -> Bucket | None:
        if limit is None:
            return None
        if bucket is None:
            return Bucket(limit, self._clock)
        bucket.resize(limit)
        return bucket


def duration(nanoseconds: int) -> str:
    """A time to the next millisecond as OpenAI writes it, which is Go's way: 20ms, 1.5s, 6m0s."""
    milliseconds = -(-nanoseconds // _MILLISECOND)
    if 0 < milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    if hours:
        return f"{hours}h{minutes}m{seconds}"
    return f"{minutes}m{seconds}" if minutes else seconds
