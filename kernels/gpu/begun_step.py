"""A step on its way from a device to the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from kernels.backend import StepResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernels.backend import Float32s, Int32s


class HostCopy:
    """A copy of a tensor that is being made on the host, after what its device has to do before."""

    def __init__(self, tensor: torch.Tensor) -> None:
        on_device = tensor.device.type == "cuda"
        self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=on_device)
        self._host.copy_(tensor, non_blocking=True)
        self._made: torch.cuda.Event | None = None
        if on_device:
            self._made = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch gives no types
            self._made.record()

    def wait(self) -> torch.Tensor:
        """The copy, once it is there. Other threads run meanwhile."""
        if self._made is not None:
            self._made.synchronize()
        return self._host


class BegunGpuStep:
    """Implements `kernels.backend.BegunStep`."""

    def __init__(
        self,
        picked: torch.Tensor | None,
        hidden: torch.Tensor | None,
        logits: Callable[[], Float32s],
    ) -> None:
        """`picked` [num_picks] and `hidden` [num_hidden, hidden] may be overwritten by later steps:
        they are copied. `logits` computes logits once they are asked for."""
        self._picked = None if picked is None else HostCopy(picked)
        self._hidden = None if hidden is None else HostCopy(hidden)
        self._logits = logits

    def result(self) -> StepResult:
        """Waits for the step, if it has anything to give."""
        logits = self._logits()
        no_tokens: Int32s = np.empty(0, np.int32)
        return StepResult(
            no_tokens if self._picked is None else self._picked.wait().numpy(),
            logits,
            hidden=None if self._hidden is None else self._hidden.wait().numpy(),
        )
