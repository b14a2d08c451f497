"""What one rank of several holds, as tensor parallelism cuts a decoder.

    q k v gate up    their outputs    │ rank 0 │ rank 1 │ …         heads and neurons
    o down           their inputs     the same heads and neurons
    embed, head      the vocabulary   padded to a multiple of the ranks
    norms, biases of o and down       whole, on every rank

Source: Megatron-LM (arXiv:1909.08053). The engine itself runs on one rank so far.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine_svc.config import ConfigError

if TYPE_CHECKING:
    from kernels.spec import DecoderSpec

_FLAG = "--tensor-parallel-size"


def shard(spec: DecoderSpec, num_ranks: int) -> DecoderSpec:
    """The part of `spec` that one of `num_ranks` holds, the largest if they differ.

    KV heads that are fewer than the ranks are held by several. Raises ConfigError for a cut that
    would go through a head.
    """
    for count, what in (
        (spec.num_heads, "attention heads"),
        (spec.intermediate_size, "neurons of the MLP"),
    ):
        if count % num_ranks:
            raise ConfigError(f"{_FLAG} {num_ranks} does not divide the {count} {what}")
    more, fewer = max(spec.num_kv_heads, num_ranks), min(spec.num_kv_heads, num_ranks)
    if more % fewer:
        raise ConfigError(
            f"{_FLAG} {num_ranks} neither divides the {spec.num_kv_heads} KV heads nor is a "
            "multiple of them"
        )
    return replace(
        spec,
        num_heads=spec.num_heads // num_ranks,
        num_kv_heads=max(spec.num_kv_heads // num_ranks, 1),
        intermediate_size=spec.intermediate_size // num_ranks,
        vocab_size=-(-spec.vocab_size // num_ranks),
    )


def sharding_notices(spec: DecoderSpec, num_ranks: int) -> tuple[str, ...]:
    """What to know of the cut of `spec`."""
    if num_ranks == 1:
        return ()
    notices = [
        f"sizes are of one of {num_ranks} ranks; the engine runs on one rank so far, and has no "
        f"{_FLAG}"
    ]
    if num_ranks > spec.num_kv_heads:
        notices.append(
            f"{spec.num_kv_heads} KV heads do not divide among {num_ranks} ranks: "
            f"{num_ranks // spec.num_kv_heads} ranks hold a copy of each, so KV per token and rank "
            f"is that of {spec.num_kv_heads} ranks"
        )
    return tuple(notices)
