"""Turns between tenants, by tokens rather than by requests: start-time fair queueing.

Each request starts, in virtual time, where its tenant's last one finishes, or now if the tenant was
idle; its length is its cost in tokens. Who starts first is served first, so that over time each
tenant with work gets the same number of tokens, and one that was idle neither saved anything up
nor has to wait for others' backlog.

    tenant A   [a1……][a2……][a3……]         A floods the queue
    tenant B         [b1]                  B comes later, starts now and goes before a2
    virtual now      ^

Source: Goyal, Vin, Cheng: Start-time Fair Queuing, SIGCOMM 1996.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine_svc.scheduling.request import Request

# Output counts as at most so much: a request may state a limit that it never reaches.
_MAX_OUTPUT_COST = 256
_MAX_TENANTS = 1024  # remembered; those that have nothing outstanding are forgotten first


class FairShare:
    """Virtual start times of requests."""

    def __init__(self) -> None:
        """Starts at virtual time 0 with every tenant idle."""
        self._now = 0.0
        self._finish: dict[str, float] = {}  # of each tenant's last request

    def start_of(self, request: Request) -> float:
        """The virtual start of a request that has come."""
        start = max(self._now, self._finish.get(request.tenant, 0.0))
        output = min(request.sampling.max_tokens, _MAX_OUTPUT_COST)
        self._finish[request.tenant] = start + request.num_prompt_tokens + output
        if len(self._finish) > _MAX_TENANTS:
            self._finish = {name: end for name, end in self._finish.items() if end > self._now}
        return start

    def served(self, start: float) -> None:
        """A request with this start was admitted."""
        self._now = max(self._now, start)
