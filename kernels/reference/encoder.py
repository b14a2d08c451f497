"""A whole encoder step over torch's operations; the formulae are in `kernels.encoder`.

rows      [ num_tokens | pad ]            all but attention works on rows that make whole tiles
qkv       [ q heads | k heads | v heads ] one product
groups    inputs of equal length attend together: a group is [inputs, heads, length, head_dim]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn.functional import layer_norm, pad, scaled_dot_product_attention

from kernels.encoder import ClassifierSpec, ScoreActivation
from kernels.reference.linear import HEAD_TILES, LAYER_TILES, prove_tiles
from kernels.reference.pooling import pool

if TYPE_CHECKING:
    from kernels.backend import Float32s
    from kernels.encoder import EncoderInputs, EncoderSpec
    from kernels.reference.encoder_weights import EncoderLayerWeights, EncoderWeights, Norm
    from kernels.reference.linear import Linear


class ReferenceEncoder:
    """A loaded encoder in float32. Implements `kernels.encoder.Encoder`."""

    def __init__(self, spec: EncoderSpec, weights: EncoderWeights) -> None:
        self._spec = spec
        self._weights = weights
        with torch.inference_mode():
            shapes = {linear.shape for layer in weights.layers for linear in layer.linears}
            self._tiles = prove_tiles(sorted(shapes), LAYER_TILES, torch.float32)
            heads = sorted({linear.shape for linear in weights.head})
            self._head_tiles = prove_tiles(heads, HEAD_TILES, torch.float32)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights as packed."""
        return self._weights.nbytes

    @torch.inference_mode()
    def encode(self, inputs: EncoderInputs) -> Float32s:
        """What each input gives."""
        x = self._embed(inputs)
        groups = _groups(inputs.input_starts)
        for layer in self._weights.layers:
            x = self._layer(x, layer, groups)
        starts = inputs.input_starts.tolist()
        if isinstance(self._spec.output, ClassifierSpec):
            scores: Float32s = self._scores(self._spec.output, x[starts[:-1]]).numpy()
            return scores
        out = torch.empty(len(starts) - 1, self._spec.output_size)
        for row, start, stop in zip(out, starts[:-1], starts[1:], strict=True):
            row.copy_(pool(self._spec.output, x[start:stop]))
        vectors: Float32s = out.numpy()
        return vectors

    def _embed(self, inputs: EncoderInputs) -> torch.Tensor:
        """The residual stream [rows, hidden] before the first layer."""
        weights, num_tokens = self._weights, len(inputs.token_ids)
        padding = (0, self._tiles.padded(num_tokens) - num_tokens)
        x = weights.embed[pad(torch.from_numpy(inputs.token_ids), padding)]
        if weights.type_embed is not None:
            x += weights.type_embed[pad(torch.from_numpy(inputs.token_types), padding)]
        positions = torch.from_numpy(inputs.positions) + self._spec.first_position
        x += weights.position_embed[pad(positions, padding)]
        return self._norm(x, weights.embed_norm)

    def _layer(
        self, x: torch.Tensor, weights: EncoderLayerWeights, groups: list[torch.Tensor]
    ) -> torch.Tensor:
        """One layer over x [rows, hidden], which is overwritten."""
        num_heads, head_dim = self._spec.num_heads, self._spec.head_dim
        qkv = self._tiles.apply(weights.qkv, x).view(-1, 3, num_heads, head_dim)
        attended = x.new_zeros(len(x), num_heads, head_dim)
        for rows in groups:  # [inputs, length]
            q, k, v = qkv[rows].unbind(2)
            heads = scaled_dot_product_attention(
                q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
            )
            attended[rows] = heads.transpose(1, 2)
        x = self._norm(x.add_(self._tiles.apply(weights.o, attended.flatten(1))), weights.attn_norm)
        inner = self._tiles.apply(weights.up, x)  # the activation is part of the product
        return self._norm(x.add_(self._tiles.apply(weights.down, inner)), weights.mlp_norm)

    def _norm(self, x: torch.Tensor, norm: Norm) -> torch.Tensor:
        return layer_norm(x, x.shape[-1:], *norm, self._spec.norm_eps)

    def _scores(self, spec: ClassifierSpec, x: torch.Tensor) -> torch.Tensor:
        """The classifier's outputs [inputs, labels] for first rows x [inputs, hidden]."""
        head, out = self._weights.head
        scores = self._in_tiles(out, self._in_tiles(head, x))
        return scores.sigmoid() if spec.scores is ScoreActivation.SIGMOID else scores

    def _in_tiles(self, linear: Linear, x: torch.Tensor) -> torch.Tensor:
        rows = self._head_tiles.padded(len(x)) - len(x)
        return self._head_tiles.apply(linear, pad(x, (0, 0, 0, rows)))[: len(x)]


def _groups(input_starts: np.ndarray) -> list[torch.Tensor]:
    """Row numbers of inputs by their length: one tensor [inputs, length] for each length."""
    starts, lengths = input_starts[:-1], np.diff(input_starts)
    return [
        torch.from_numpy(starts[lengths == length][:, None] + np.arange(length))
        for length in np.unique(lengths)
    ]
