"""LoRA adapters for a GPU's products; `kernels.reference.lora` says what they add to a step.

`kernels.gpu.gemm` takes any number of rows, so an adapter's rows need no padding. A step of
requests with adapters launches kernel by kernel: captured graphs are of steps without.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch

from kernels.gpu.linear import GpuLinear, prove_linears
from kernels.reference.lora import TorchAdapter, lay_out

if TYPE_CHECKING:
    from kernels.lora import LoraAdapter
    from kernels.spec import DecoderSpec


@torch.inference_mode()
def pack_on_device(
    spec: DecoderSpec, adapter: LoraAdapter, dtype: torch.dtype, device: torch.device
) -> TorchAdapter:
    """An adapter that fits the spec, on the device. Any thread may pack while steps run."""
    linears: list[GpuLinear] = []

    def linear(weight: torch.Tensor) -> GpuLinear:
        linears.append(GpuLinear(weight.to(device, dtype)))
        return linears[-1]

    # A thread has a current GPU of its own, on which Triton launches.
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        layers = lay_out(spec, adapter, linear, linear)
        prove_linears(linears, dtype, device)
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()  # whichever stream steps run on
    return TorchAdapter(layers, tiles=None)
