"""The immutable plan of one step, from scheduler to worker, and what comes back.

The worker keeps each request's tokens, block table and sampling state under its `key` between
steps, so a plan carries only what is new: requests that join, blocks that were appended, keys that
left. A preempted request leaves, and joins again later with its output so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import numpy.typing as npt

    from engine_svc.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A request that joins the worker in this step."""

    key: int  # unique among all requests the engine ever ran
    choice: int  # the random stream, with the seed
    prompt_token_ids: tuple[int, ...]
    output_token_ids: tuple[int, ...]  # of earlier attempts, or before a preemption
    sampling: SamplingParams
    block_ids: tuple[int, ...]  # cached prefix blocks; the rest is in the request's chunk
    adapter_slot: int = -1  # of its LoRA adapter; -1 is none


@dataclass(frozen=True, slots=True)
class ScheduledChunk:
    """Tokens [first_position, first_position + num_tokens) of one request, to be computed now.

    `samples` is set where the chunk reaches the request's last known token, so that the next token
    is sampled from its logits; `embeds` where that token's hidden state is wanted instead.
    `draft_token_ids` are guesses at what follows that token, and the chunk's last ones: each right
    guess brings one token more, and the first wrong one ends that. With `awaits` the last token is
    the one that the step before picks for this request, which nobody knows yet.
    """

    key: int
    first_position: int
    num_tokens: int
    new_block_ids: tuple[int, ...]  # appended to the request's block table before the step
    samples: bool
    draft_token_ids: tuple[int, ...] = ()
    embeds: bool = False
    awaits: bool = False


@dataclass(frozen=True, slots=True)
class ScheduledBatch:
    """One step: removals first, then joins, then the chunks in order, decodes before prefills."""

    step: int
    removed: tuple[int, ...]
    joined: tuple[NewRequest, ...]
    chunks: tuple[ScheduledChunk, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens computed in this step, over all requests."""
        return sum(chunk.num_tokens for chunk in self.chunks)


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probability and rank of one position's token, and the likeliest tokens there."""

    logprob: float
    rank: int  # 1 is the likeliest
    top_token_ids: tuple[int, ...]
    top_logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SampledToken:
    """A token sampled for one request."""

    key: int
    token_id: int
    logprobs: TokenLogprobs | None
    ends: bool = False  # with it the output is complete by its grammar


@dataclass(frozen=True, slots=True)
class PromptLogprobsPart:
    """Log-probabilities of prompt positions [first_position, first_position + len(entries))."""

    key: int
    first_position: int
    entries: tuple[TokenLogprobs, ...]


@dataclass(frozen=True, slots=True)
class Embedding:
    """The hidden state of a request's last token, [hidden_size], of length 1."""

    key: int
    vector: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """What a step produced: the tokens of each chunk that samples, in the chunks' order.

    `failed` holds the keys whose logits were not finite, with a message; they have no token.
    """

    tokens: tuple[SampledToken, ...]
    prompt_logprobs: tuple[PromptLogprobsPart, ...] = ()
    failed: tuple[tuple[int, str], ...] = ()
    embeddings: tuple[Embedding, ...] = ()
    cpu_seconds: float = 0.0  # that the back end's kernels took, where it counts them
    kernel_seconds: float = 0.0  # from the call of the back end to its return

    def by_key(self) -> dict[int, list[SampledToken]]:
        """The tokens of each request that has any."""
        tokens: dict[int, list[SampledToken]] = {}
        for token in self.tokens:
            tokens.setdefault(token.key, []).append(token)
        return tokens


def tokens_by_request(
    batch: ScheduledBatch, sampled: SampledTokens, failed: Mapping[int, str]
) -> dict[int, list[SampledToken]]:
    """A step's tokens by request. Raises RuntimeError if one has too few or too many."""
    tokens = sampled.by_key()
    for chunk in batch.chunks:
        count = len(tokens.get(chunk.key, ()))
        if chunk.samples and not count and chunk.key not in failed:
            raise RuntimeError(f"step {batch.step} brought no token for request {chunk.key}")
        if count > len(chunk.draft_token_ids) + 1:
            raise RuntimeError(f"step {batch.step} brought {count} tokens for request {chunk.key}")
    return tokens
