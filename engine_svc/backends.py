"""Which back end computes a model here. torch is imported only where the reference is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernels.backend import Backend, Precision
    from kernels.spec import DecoderSpec


def choose_backend(
    precision: Precision,  # noqa: ARG001 (decides once there is more than one)
    spec: DecoderSpec,  # noqa: ARG001 (likewise)
    threads: int,
) -> tuple[Backend, str | None]:
    """The fastest back end that has this model in this precision.

    With it comes a notice for the operator where a faster one has not, and why.
    """
    from kernels.reference.backend import ReferenceBackend

    return ReferenceBackend(threads), None
