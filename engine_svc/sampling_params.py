"""How a request samples and when it stops, in the engine's own terms (no proto, no torch)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine_svc.constraints.grammar import Grammar

# A failure that begins so is the doing of the request's own parameters, not of the engine.
UNSATISFIABLE = "the request's parameters leave no token to sample: "


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Neutral values are the defaults, so a field is off unless a request sets it.

    Logits pass, in this order: allowed_token_ids, logit_bias, repetition, frequency and presence
    penalty, minimum length, bad_words, grammar, temperature, top_k, top_p, min_p.
    """

    temperature: float = 1.0  # 0 is greedy
    top_k: int = 0  # 0 is all
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0  # over prompt and output
    frequency_penalty: float = 0.0  # over output
    presence_penalty: float = 0.0  # over output
    logit_bias: dict[int, float] = field(default_factory=dict)
    allowed_token_ids: tuple[int, ...] = ()  # empty is all
    bad_words: tuple[tuple[int, ...], ...] = ()  # runs that the output never contains
    seed: int = 0  # key of the counter-based generator, 0 <= seed < 2**64
    max_tokens: int = 1  # absolute, over all attempts
    min_tokens: int = 0
    stop_token_ids: frozenset[int] = frozenset()
    eos_token_ids: frozenset[int] = frozenset()  # the model's; empty with ignore_eos
    masked_until_min_tokens: frozenset[int] = frozenset()  # all that could end it too early
    grammar: Grammar | None = None  # that the output follows, whatever else is asked for
    logprobs: int | None = None  # top entries per output position
    prompt_logprobs: int | None = None  # top entries per prompt position
    prompt_logprobs_from: int = 0
