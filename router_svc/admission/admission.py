"""The limits of all tenants, as one router process keeps to them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from router_svc.admission.account import Account
from router_svc.admission.bucket import Bucket
from router_svc.admission.permit import Gate, Permit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from router_svc.admission.account import NewBucket
    from router_svc.admission.limits import Limits


class Admission:
    """Makes a permit for each call.

    `limits` gives the limits of tenants by name, a new mapping whenever they change; tenants that
    stay keep what they have used. `on_rejected` hears the reason and the tenant of a refusal.
    `new_bucket` makes buckets that several processes share; without it they are this one's own.
    """

    def __init__(
        self,
        max_requests_in_flight: int = 0,
        limits: Callable[[], Mapping[str, Limits]] = dict,
        *,
        on_rejected: Callable[[str, str], None] = lambda _reason, _tenant: None,
        clock: Callable[[], int] = time.monotonic_ns,
        new_bucket: NewBucket | None = None,
    ) -> None:
        self._gate = Gate(max_requests_in_flight)
        self._limits = limits
        self._known: Mapping[str, Limits] = {}
        self._accounts: dict[str, Account] = {}
        self._on_rejected = on_rejected
        self._new_bucket = new_bucket or (lambda _name, limit: Bucket(limit, clock))

    @property
    def num_in_flight(self) -> int:
        """Requests that are being served."""
        return self._gate.num_in_flight

    def permit(self, tenant: str) -> Permit:
        """For one call of the tenant's."""
        if (limits := self._limits()) is not self._known:
            self._follow(limits)
        return Permit(
            self._gate,
            self._accounts.get(tenant),
            lambda reason: self._on_rejected(reason, tenant),
        )

    def _follow(self, limits: Mapping[str, Limits]) -> None:
        self._known = limits
        self._accounts = {
            tenant: self._accounts.get(tenant) or Account(tenant, each, self._new_bucket)
            for tenant, each in limits.items()
        }
        for tenant, account in self._accounts.items():
            account.set_limits(limits[tenant])
