"""LoRA adapters made up for tests, and the weights that they amount to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from kernels.lora import LoraAdapter, LowRank, adapted_names

if TYPE_CHECKING:
    from collections.abc import Collection

    from kernels.spec import DecoderSpec


def random_adapter(
    spec: DecoderSpec, seed: int, rank: int = 4, parts: Collection[str] | None = None
) -> LoraAdapter:
    """An adapter of all matrices, or of those of some parts, that changes logits a good deal.

    Ranks go up by one from part to part, so that none is another's by accident.
    """
    generator = np.random.default_rng(seed)
    shapes = spec.weight_shapes()
    matrices = {}
    for number, name in enumerate(adapted_names(spec)):
        if parts is not None and name.rpartition(".")[2] not in parts:
            continue
        (out, cols), own = shapes[name], rank + number % 7
        a = generator.standard_normal((own, cols), np.float32) * cols**-0.5
        b = generator.standard_normal((out, own), np.float32) * own**-0.5
        matrices[name] = LowRank(a, b)
    return LoraAdapter(matrices)


def merged(weights: dict[str, torch.Tensor], adapter: LoraAdapter) -> dict[str, torch.Tensor]:
    """The weights W + B·A of a model that has the adapter built in."""
    added = {name: torch.from_numpy(m.b @ m.a) for name, m in adapter.matrices.items()}
    return {name: weight + added.get(name, 0.0) for name, weight in weights.items()}
