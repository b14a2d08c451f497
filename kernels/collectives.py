"""What ranks that share one decoder tell each other within a step.

Each rank holds a part of every matrix (`kernels.sharding`) and computes all rows of a step:

    sum      partial products of o and down, and rows of the embedding      the same on every rank
    gather   parts of the logits, by columns                                on rank 0, which picks
    share    what rank 0 picked, if the next step was begun without it      the same on every rank

A sum is taken in the order of the ranks, over terms rounded to their type as they were sent, and is
rounded once at its end. It depends neither on the batch nor on who came first, which an all-reduce
does not promise; it is also the same bits on every rank, so that all go on from equal rows.

A decoder is given its collectives and hands them on; there is no default group and no current rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Protocol

import torch
import torch.distributed as dist

try:
    from torch.distributed import all_gather_single as _all_gather
except ImportError:  # its name before torch 2.13
    from torch.distributed import all_gather_into_tensor as _all_gather

if TYPE_CHECKING:
    from collections.abc import Sequence


class Collectives(Protocol):
    """The ranks of one decoder as one of them sees them. Every rank makes the same calls."""

    @property
    def rank(self) -> int:
        """This rank's number, from 0."""
        ...

    @property
    def size(self) -> int:
        """How many ranks there are."""
        ...

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        """The sum over all ranks of x, which has one shape and type on all of them.

        Added up in float32 and in the order of ranks, then rounded once to x's type.
        """
        ...

    def gather(self, x: torch.Tensor, widths: Sequence[int]) -> torch.Tensor | None:
        """x [rows, widths[rank]] of all ranks side by side, [rows, sum(widths)], on rank 0.

        None on the others.
        """
        ...

    def share(self, x: torch.Tensor) -> None:
        """Puts rank 0's x, which is contiguous, into that of all others."""
        ...


class Single:
    """One rank that holds everything. Implements `Collectives`."""

    rank = 0
    size = 1

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        """x itself."""
        return x

    def gather(self, x: torch.Tensor, widths: Sequence[int]) -> torch.Tensor:  # noqa: ARG002 (the seam's)
        """x itself."""
        return x

    def share(self, x: torch.Tensor) -> None:
        """Nothing: nobody else is there."""


class Absent:
    """Ranks that are planned for and not there. Implements `Collectives`, but for its calls."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size

    def sum(self, x: torch.Tensor) -> NoReturn:  # noqa: ARG002 (the seam's)
        """Raises RuntimeError."""
        raise RuntimeError(f"the {self.size} ranks of a plan add nothing up")

    def gather(self, x: torch.Tensor, widths: Sequence[int]) -> NoReturn:  # noqa: ARG002 (the seam's)
        """Raises RuntimeError."""
        raise RuntimeError(f"the {self.size} ranks of a plan have nothing to gather")

    def share(self, x: torch.Tensor) -> NoReturn:  # noqa: ARG002 (the seam's)
        """Raises RuntimeError."""
        raise RuntimeError(f"the {self.size} ranks of a plan have nothing to share")


class Group:
    """Ranks in processes of their own, over gloo or NCCL. Implements `Collectives`.

    The tensors are on the device that the process group's back end takes. What torch raises when a
    peer is gone or silent for the group's timeout is a RuntimeError. NCCL raises nothing: its calls
    return once they are queued on the device, whose kernels then wait for the peer for ever, so
    that somebody else has to notice (`engine_svc.parallel.ranks`).

    NCCL's calls can be captured in a CUDA graph, if all ranks capture and replay the same ones in
    the same order; what is captured must have been called before.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self.rank = group.rank()
        self.size = group.size()

    def connect(self, device: torch.device) -> None:
        """Makes the connections and buffers that a first step on the device would make."""
        x = torch.zeros(1, self.size, device=device)
        self.sum(x)
        self.gather(x, [self.size] * self.size)
        self.share(x)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        """As `Collectives`."""
        parts = x.new_empty(self.size, *x.shape)
        _all_gather(parts.flatten(0, 1), x.contiguous(), group=self._group)
        if x.device.type != "cuda":
            return in_order(parts.unbind())
        from kernels.gpu.ordered_sum import sum_parts  # only GPUs need Triton

        return sum_parts(parts)

    def gather(self, x: torch.Tensor, widths: Sequence[int]) -> torch.Tensor | None:
        """As `Collectives`."""
        padded = torch.nn.functional.pad(x, (0, max(widths) - x.shape[1])).contiguous()
        if self.rank != 0:
            dist.gather(padded, None, group=self._group, group_dst=0)
            return None
        parts = [torch.empty_like(padded) for _ in widths]
        dist.gather(padded, parts, group=self._group, group_dst=0)
        return torch.cat([part[:, :width] for part, width in zip(parts, widths, strict=True)], 1)

    def share(self, x: torch.Tensor) -> None:
        """As `Collectives`."""
        dist.broadcast(x, group=self._group, group_src=0)


def in_order(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """The sum of tensors of one shape and type, first to last in float32, rounded once."""
    total = parts[0].to(torch.float32, copy=True)
    for part in parts[1:]:
        total += part
    return total.to(parts[0].dtype)
