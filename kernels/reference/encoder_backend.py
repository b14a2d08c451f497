"""The back end for encoders that plain torch makes, in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kernels.encoder import EncoderNeeds
from kernels.reference.encoder import ReferenceEncoder
from kernels.reference.encoder_weights import load_weights, planned_bytes
from kernels.reference.linear import LAYER_TILES, RowTiles

if TYPE_CHECKING:
    from kernels.backend import OnProgress, WeightSource
    from kernels.encoder import EncoderSpec

_ELEMENT_BYTES = 4


class ReferenceEncoderBackend:
    """Makes `ReferenceEncoder`s. Implements `kernels.encoder.EncoderBackend`."""

    def __init__(self, threads: int) -> None:
        """Sets the number of threads that torch uses, in the whole process."""
        torch.set_num_threads(threads)

    @property
    def description(self) -> str:
        """One line for the start-up print."""
        return (
            f"torch {torch.__version__}, matrices in row tiles of proved equality, "
            f"{torch.get_num_threads()} threads"
        )

    def plan(self, spec: EncoderSpec, *, max_num_tokens: int) -> EncoderNeeds:
        """What `load` will take, and a step of so many tokens."""
        rows = RowTiles(LAYER_TILES).padded(max_num_tokens)
        hidden, inner = spec.hidden_size, spec.intermediate_size
        # x and its sum; qkv, its rows in order, what is attended, twice; or the MLP's inner rows.
        per_row = 3 * hidden + max(3 * hidden + 3 * hidden + 2 * hidden, inner + hidden)
        widest = max(spec.vocab_size * hidden, 3 * hidden * hidden, hidden * inner)
        return EncoderNeeds(
            weights=planned_bytes(spec),
            activations=_ELEMENT_BYTES * max(rows * per_row, 2 * widest),
        )

    def load(
        self, spec: EncoderSpec, source: WeightSource, on_progress: OnProgress
    ) -> ReferenceEncoder:
        """Loads and packs the weights. Raises ValueError that names a wrong one."""
        return ReferenceEncoder(spec, load_weights(spec, source, on_progress))
