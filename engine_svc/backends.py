"""Which back end computes a model here. torch is imported only where the reference is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.cpu.backend import CpuBackend

if TYPE_CHECKING:
    from kernels.backend import Backend, Precision
    from kernels.cpu.weight_cache import WeightCache
    from kernels.spec import DecoderSpec


def choose_backend(
    spec: DecoderSpec,
    precision: Precision,
    *,
    block_size: int,
    threads: int,
    cache: WeightCache | None = None,
) -> tuple[Backend, str | None]:
    """The fastest back end that has this model in this precision.

    `cache` is for its packed weights. With it comes a notice for the operator where it is not the
    C++ one: why not.
    """
    reason = CpuBackend.unsupported(spec, precision, block_size)
    if reason is None:
        return CpuBackend(threads, cache), None
    from kernels.reference.backend import ReferenceBackend

    return ReferenceBackend(threads), f"torch computes, which is several times slower: {reason}"
