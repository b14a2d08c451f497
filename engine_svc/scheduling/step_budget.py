"""How many tokens of prefill fit beside running streams, judged by how long steps took.

A step's time is modelled as

    seconds ≈ decode_seconds + prefill_tokens · seconds_per_prefill_token

Both terms are learned: the first from steps that only decode, the second from the rest of each
step with prefill. Whatever the model gets wrong ends up in the second term, so the budget corrects
itself: a step that took too long makes the next one smaller. It changes when tokens are computed,
never which.
"""

from __future__ import annotations

_DECAY = 0.8  # weight of the past at each new step; about the last five steps count


class StepBudget:
    """Sizes the prefill part of a step from measured times."""

    def __init__(self, target_seconds: float, floor_tokens: int, max_tokens: int) -> None:
        """Steps aim at `target_seconds`, with `floor_tokens` to `max_tokens` tokens of prefill.

        The floor keeps prefill going however slow the machine is. Raises ValueError if the target
        is not positive.
        """
        if target_seconds <= 0:
            raise ValueError(f"target_step_seconds must be above 0, got {target_seconds}")
        self._target = target_seconds
        self._floor = min(floor_tokens, max_tokens)
        self._max = max_tokens
        self._decode = _DecayedMean()
        self._prefill = _DecayedMean()
        self._step = _DecayedMean()

    @property
    def step_seconds(self) -> float:
        """Smoothed duration of a step, in seconds; 0 before the first."""
        return self._step.value or 0.0

    @property
    def prefill_tokens(self) -> int:
        """Most tokens of prefill for a step that also decodes."""
        per_token = self._prefill.value
        if per_token is None:
            return self._max
        decode = self._decode.value or 0.0
        # Where decoding alone comes near the target, or is beyond it, a stream may still slow down
        # to half its speed: else those who wait for their first token would starve behind it.
        spare = max(self._target - decode, decode)
        # Compared before dividing: an immeasurably small cost per token must not overflow.
        if spare >= self._max * per_token:
            return self._max
        return max(self._floor, int(spare / per_token))

    def observe(self, num_decodes: int, num_prefill_tokens: int, seconds: float) -> None:
        """Learns from a step's duration, in seconds."""
        self._step.add(seconds, 1)
        if num_prefill_tokens == 0:
            self._decode.add(seconds, 1)
            return
        decoding = (self._decode.value or 0.0) if num_decodes else 0.0
        self._prefill.add(max(seconds - decoding, 0.0), num_prefill_tokens)


class _DecayedMean:
    """Sum of amounts over sum of counts, both fading, so that large samples weigh more."""

    def __init__(self) -> None:
        self._amount = 0.0
        self._count = 0.0

    @property
    def value(self) -> float | None:
        return self._amount / self._count if self._count else None

    def add(self, amount: float, count: int) -> None:
        self._amount = self._amount * _DECAY + amount
        self._count = self._count * _DECAY + count
