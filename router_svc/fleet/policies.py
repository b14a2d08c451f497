"""Which engine gets a request: pure functions from what is known to a ranking with reasons.

    policy         cost of an engine, in tokens to compute before this request's first one
    ──────────────────────────────────────────────────────────────────────────────────────
    round_robin    whose turn it is
    least_loaded   queued tokens + prompt
    prefix_aware   queued tokens + prompt − cached tokens
                     + ½ of the tokens that another has cached and this one has not
                     + ½ of the work it has done, of late, beyond the idlest

`queued_tokens` is what the engine last pushed plus what this router has sent since, so that a
burst between two reports spreads. An engine that is newer than others gets less for a while.

A hot prefix stays on one engine until waiting there, or what that engine has had to do more than
others, outweighs computing it anew and the place that a copy takes in another cache: the cap on
affinity is the load itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

# What a running choice costs others, in tokens a step: its share of each step until it ends.
_TOKENS_PER_RUNNING = 8
# What a copy of cached tokens costs besides computing it, per token: the place of something else in
# that engine's cache, which has to be computed again.
_COPY = 0.5
# How much of the work that an engine has done more than another is held against it: less than all,
# as a part of it is chance, and will even out without copies.
_BALANCE = 0.5
# Bounded by this times the prompt: more than a copy costs, so that a prefix does move in the end.
_MOST_BALANCE = 2.0
SLOW_START_SECONDS = 10.0
_LEAST_WEIGHT = 0.1


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is known of an engine that could take the request."""

    engine: str
    queued_tokens: int  # to be computed before a new request, own dispatches included
    num_running: int  # choices
    cached_tokens: int  # of this request's prompt
    kv_usage: float  # 0 to 1
    ready_seconds: float
    recent_tokens: float = 0.0  # computed and generated, of late


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate, its cost (the least is best) and why."""

    candidate: Candidate
    cost: float
    reason: str


Policy: TypeAlias = Callable[[Sequence[Candidate], int, int], list[Ranked]]
"""(candidates, prompt tokens, number of requests before this one) → best first."""


def round_robin(candidates: Sequence[Candidate], _prompt_tokens: int, turn: int) -> list[Ranked]:
    """Each in turn, whatever it has to do."""
    start = turn % max(1, len(candidates))
    order = [*candidates[start:], *candidates[:start]]
    return [Ranked(candidate, float(i), "its turn") for i, candidate in enumerate(order)]


def least_loaded(candidates: Sequence[Candidate], prompt_tokens: int, turn: int) -> list[Ranked]:
    """Who will be done soonest with what it has."""
    return _by_cost(candidates, prompt_tokens, turn, with_cache=False)


def prefix_aware(candidates: Sequence[Candidate], prompt_tokens: int, turn: int) -> list[Ranked]:
    """Who will be done soonest, as it need not compute what it has cached."""
    return _by_cost(candidates, prompt_tokens, turn, with_cache=True)


POLICIES: dict[str, Policy] = {
    "prefix_aware": prefix_aware,
    "least_loaded": least_loaded,
    "round_robin": round_robin,
}


def _by_cost(
    candidates: Sequence[Candidate], prompt_tokens: int, turn: int, *, with_cache: bool
) -> list[Ranked]:
    # Where all are new, nobody could take the part of one that starts slowly.
    all_new = all(each.ready_seconds < SLOW_START_SECONDS for each in candidates)
    ranked = []
    for candidate in candidates:
        waiting = candidate.queued_tokens + _TOKENS_PER_RUNNING * candidate.num_running
        own = prompt_tokens - (candidate.cached_tokens if with_cache else 0)
        reason = f"{waiting} tokens before it, {own} of its own"
        cost: float = waiting + own
        if with_cache:
            if candidate.cached_tokens:
                reason += f" ({candidate.cached_tokens} cached)"
            copies = _COPY * (max(c.cached_tokens for c in candidates) - candidate.cached_tokens)
            if copies:
                reason += f", {copies:.0f} for a copy of what another has"
            # Bounded by what this prompt is worth: one without a past would get all there is.
            ahead = candidate.recent_tokens - min(c.recent_tokens for c in candidates)
            ahead = min(_BALANCE * ahead, _MOST_BALANCE * prompt_tokens)
            if ahead >= 1:
                reason += f", {ahead:.0f} for work done"
            cost += copies + ahead
        weight = max(_LEAST_WEIGHT, min(1.0, candidate.ready_seconds / SLOW_START_SECONDS))
        if weight < 1 and not all_new:
            reason += f", slow start at {weight:.0%}"
            cost /= weight
        ranked.append(Ranked(candidate, cost, reason))
    # Among equals each gets its turn.
    start = turn % max(1, len(ranked))
    return sorted([*ranked[start:], *ranked[:start]], key=lambda each: each.cost)
