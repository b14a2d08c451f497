"""What one tenant has used of its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from router_svc.admission.bucket import Bucket
    from router_svc.admission.limits import Limits
    from router_svc.admission.shared_buckets import SharedBucket

    AnyBucket: TypeAlias = Bucket | SharedBucket
    NewBucket: TypeAlias = Callable[[str, int], AnyBucket]

_MILLISECOND = 1_000_000  # nanoseconds


class Account:
    """The buckets and the requests in flight of a tenant with limits.

    `new_bucket` makes one of a name, of which there is no other, and a limit.
    """

    def __init__(self, tenant: str, limits: Limits, new_bucket: NewBucket) -> None:
        self.tenant = tenant
        self._new_bucket = new_bucket
        self.num_in_flight = 0
        self.requests: AnyBucket | None = None
        self.tokens: AnyBucket | None = None
        self.concurrent_requests: int | None = None
        self.set_limits(limits)

    def set_limits(self, limits: Limits) -> None:
        """Changes the limits; what was used stays used."""
        self.requests = self._resized("requests", self.requests, limits.requests_per_minute)
        self.tokens = self._resized("tokens", self.tokens, limits.tokens_per_minute)
        self.concurrent_requests = limits.concurrent_requests

    def headers(self) -> list[tuple[str, str]]:
        """Limit, rest and time until the rest is all again, by OpenAI's names."""
        found = []
        for name, bucket in (("requests", self.requests), ("tokens", self.tokens)):
            if bucket is not None:
                limit, remaining, full_in = bucket.standing
                found += [
                    (f"x-ratelimit-limit-{name}", str(limit)),
                    (f"x-ratelimit-remaining-{name}", str(remaining)),
                    (f"x-ratelimit-reset-{name}", duration(full_in)),
                ]
        return found

    def _resized(self, name: str, bucket: AnyBucket | None, limit: int | None) -> AnyBucket | None:
        if limit is None:
            return None
        if bucket is None:
            return self._new_bucket(f"{self.tenant}/{name}", limit)  # no tenant's name has a slash
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
