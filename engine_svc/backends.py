"""Which back end computes a model here. torch is imported only where the reference is chosen."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

from engine_svc.config import ConfigError
from kernels.backend import Precision
from kernels.cpu.backend import CpuBackend

if TYPE_CHECKING:
    from kernels.backend import Backend
    from kernels.collectives import Collectives
    from kernels.cpu.weight_cache import WeightCache
    from kernels.encoder import EncoderBackend
    from kernels.gpu.backend import GpuBackend
    from kernels.spec import DecoderSpec

_SPINS = "1000"  # some 20 µs


def has_kernels(spec: DecoderSpec, block_size: int) -> bool:
    """Whether the C++ back end can run this model, in the type that it computes in."""
    bfloat16 = Precision("bfloat16", weights="auto", kv_cache="auto")
    return CpuBackend.unsupported(spec, bfloat16, block_size) is None


def choose_backend(
    spec: DecoderSpec,
    precision: Precision,
    *,
    block_size: int,
    threads: int,
    cache: WeightCache | None = None,
    collectives: Collectives | None = None,
) -> tuple[Backend, str | None]:
    """The fastest back end that has this model in this precision.

    `cache` is for its packed weights; `collectives` of several ranks make its decoders parts of the
    model. With it comes a notice for the operator where it is not the
    C++ one: why not. Raises ConfigError where torch is needed and not installed.
    """
    if collectives is None or collectives.size == 1:
        reason = CpuBackend.unsupported(spec, precision, block_size)
        if reason is None:
            return CpuBackend(threads, cache), None
    else:
        reason = f"the C++ kernels compute on one rank, not on {collectives.size}"
    _let_torch_sleep()
    try:
        from kernels.reference.backend import ReferenceBackend
    except ModuleNotFoundError as error:
        raise _without_torch(error, reason) from error
    notice = f"torch computes, which is several times slower: {reason}"
    return ReferenceBackend(threads, collectives), notice


def gpu_backend(
    *,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    batch_invariant: bool,
    uses_graphs: bool,
    collectives: Collectives | None = None,
) -> GpuBackend:
    """The back end for the current GPU, where `engine_svc.devices` says that it can be used.

    `collectives` of several ranks make its decoders parts of the model. Unless `batch_invariant`, a
    row's last bits may depend on the number of rows. Without graphs steps launch kernel by kernel.
    """
    from kernels.gpu.backend import GpuBackend
    from kernels.gpu.device import current_device

    return GpuBackend(
        current_device(),
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        collectives=collectives,
        batch_invariant=batch_invariant,
        uses_graphs=uses_graphs,
    )


def choose_encoder_backend(threads: int) -> EncoderBackend:
    """The back end for encoders. Raises ConfigError where torch is needed and not installed."""
    _let_torch_sleep()
    try:
        from kernels.reference.encoder_backend import ReferenceEncoderBackend
    except ModuleNotFoundError as error:
        raise _without_torch(error, "encoders have no C++ kernels") from error
    return ReferenceEncoderBackend(threads)


def prepare_torch(reason: str) -> None:
    """What comes before the first import of torch, which is needed for `reason`.

    Raises ConfigError where it is not installed.
    """
    _let_torch_sleep()
    if find_spec("torch") is None:
        raise _without_torch(ModuleNotFoundError(name="torch"), reason)


def _let_torch_sleep() -> None:
    """Has torch's threads wait for each other briefly and then sleep. Before torch is imported.

    By default they spin for milliseconds, and where router and clients want the same cores steps
    become five times slower. The variable is libgomp's; one that is set already stays.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)


def _without_torch(error: ModuleNotFoundError, reason: str) -> Exception:
    """What to raise for a module that is missing: advice if it is torch."""
    if error.name != "torch":
        return error
    return ConfigError(f"this needs torch, which is not installed (pip install torch): {reason}")
