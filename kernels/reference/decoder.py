"""A whole decoder step over the reference operations; the formulae are in `kernels.spec`.

rows            [ num_tokens | pad ]      all but attention works on rows that make whole tiles
qkv             [ q heads | k heads | v heads ]    one product; q and k are normed and turned as one
"""

from __future__ import annotations

import math
import mmap
import sys
from typing import TYPE_CHECKING

import torch

from kernels.reference.activation import gated_activation, softcap_
from kernels.reference.embedding import embedding
from kernels.reference.kv_ops import TORCH, choose_kv_ops
from kernels.reference.linear import HEAD_TILES, LAYER_TILES, prove_tiles
from kernels.reference.rms_norm import rms_norm
from kernels.reference.rope import rope, rope_table

if TYPE_CHECKING:
    from kernels.backend import StepInputs
    from kernels.cpu.library import Library
    from kernels.reference.weights import DecoderWeights, LayerWeights
    from kernels.spec import DecoderSpec, LayerSpec

    Factors = tuple[torch.Tensor, torch.Tensor]


class ReferenceDecoder:
    """A loaded decoder. Implements `kernels.backend.Decoder`."""

    def __init__(
        self,
        spec: DecoderSpec,
        dtype: torch.dtype,
        weights: DecoderWeights,
        library: Library | None,
    ) -> None:
        """`library` has the C++ kernels to use where they fit, or is None."""
        self._spec = spec
        self._dtype = dtype
        self._weights = weights
        self._library = library
        self._kv_ops = TORCH
        self._caches: list[tuple[torch.Tensor, torch.Tensor]] = []
        with torch.inference_mode():
            self._ropes = {
                kind: rope_table(kind, spec.head_dim, spec.max_position, dtype)
                for kind in {layer.rope for layer in spec.layers}
            }
            shapes = {linear.shape for layer in weights.layers for linear in layer.linears}
            self._tiles = prove_tiles(sorted(shapes), LAYER_TILES, dtype)
            self._head_tiles = prove_tiles([weights.head.shape], HEAD_TILES, dtype)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights as packed, with the rotary tables."""
        return self._weights.nbytes + sum(table.nbytes for table in self._ropes.values())

    @property
    def row_tiles(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Row counts that proved to give equal bits: of the layers' products, of the head's."""
        return self._tiles.sizes, self._head_tiles.sizes

    def allocate_kv(self, num_blocks: int, block_size: int) -> None:
        """Makes the KV pool, all zero: what attention masks must be finite still."""
        spec = self._spec
        self._kv_ops = choose_kv_ops(self._library, spec, self._dtype, block_size)
        shape = (num_blocks, spec.num_kv_heads, block_size, spec.head_dim)
        self._caches = [
            (_lazy_zeros(shape, self._dtype), _lazy_zeros(shape, self._dtype)) for _ in spec.layers
        ]

    @torch.inference_mode()
    def step(self, inputs: StepInputs) -> torch.Tensor:
        """Computes one step; returns float32 logits [num_logits, vocab_size]."""
        pad = self._tiles.padded(len(inputs.token_ids)) - len(inputs.token_ids)
        token_ids = torch.nn.functional.pad(inputs.token_ids, (0, pad))
        positions = torch.nn.functional.pad(inputs.positions, (0, pad))
        factors = {kind: table.rows(positions) for kind, table in self._ropes.items()}

        x = embedding(token_ids, self._weights.embed, self._spec.embedding_scale)
        for layer, weights, cache in zip(
            self._spec.layers, self._weights.layers, self._caches, strict=True
        ):
            self._attention(x, layer, weights, cache, factors[layer.rope], inputs)
            self._mlp(x, weights)
        return self._logits(x[inputs.logits_rows])

    def _attention(
        self,
        x: torch.Tensor,
        layer: LayerSpec,
        weights: LayerWeights,
        cache: tuple[torch.Tensor, torch.Tensor],
        factors: Factors,
        inputs: StepInputs,
    ) -> None:
        """Adds the layer's attention to x [rows, hidden], and writes its keys and values."""
        spec = self._spec
        num_tokens = len(inputs.token_ids)
        q_heads, qk_heads = spec.num_heads, spec.num_heads + spec.num_kv_heads
        h = rms_norm(x, weights.attn_norm, spec.norm_eps)
        qkv = self._tiles.apply(weights.qkv, h).view(len(x), -1, spec.head_dim)
        qk, v = qkv[:, :qk_heads], qkv[:, qk_heads:]
        if weights.qk_norm is not None:
            qk = rms_norm(qk, weights.qk_norm, spec.norm_eps)
        qk = rope(qk, *factors)
        self._kv_ops.kv_cache_write(
            qk[:num_tokens, q_heads:], v[:num_tokens], *cache, inputs.slot_mapping
        )
        attended = qk.new_zeros(len(x), q_heads * spec.head_dim)
        attended[:num_tokens] = self._kv_ops.paged_attention(
            qk[:num_tokens, :q_heads],
            *cache,
            inputs.block_tables,
            inputs.seq_lens,
            inputs.query_start_loc,
            scale=spec.attention_scale,
            window=layer.window,
            softcap=spec.attention_softcap,
        ).flatten(1)
        out = self._tiles.apply(weights.o, attended)
        if weights.post_attn_norm is not None:
            out = rms_norm(out, weights.post_attn_norm, spec.norm_eps)
        x.add_(out)

    def _mlp(self, x: torch.Tensor, weights: LayerWeights) -> None:
        """Adds the layer's gated MLP to x [rows, hidden]."""
        h = rms_norm(x, weights.mlp_norm, self._spec.norm_eps)
        gate_up = self._tiles.apply(weights.gate_up, h)
        out = self._tiles.apply(weights.down, gated_activation(self._spec.activation, gate_up))
        if weights.post_mlp_norm is not None:
            out = rms_norm(out, weights.post_mlp_norm, self._spec.norm_eps)
        x.add_(out)

    def _logits(self, x: torch.Tensor) -> torch.Tensor:
        """Float32 logits [rows, vocab] of rows of the residual stream, any number of them."""
        logits = torch.empty(len(x), self._spec.vocab_size)
        size = self._head_tiles.largest
        for rows, out in zip(torch.split(x, size), torch.split(logits, size), strict=True):
            pad = self._head_tiles.padded(len(rows)) - len(rows)
            h = torch.nn.functional.pad(rows, (0, 0, 0, pad))
            h = rms_norm(h, self._weights.final_norm, self._spec.norm_eps)
            out.copy_(self._weights.head(h)[: len(rows)])
        if self._spec.logit_softcap is not None:
            softcap_(logits, self._spec.logit_softcap)
        return logits


def _lazy_zeros(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Zeros that take memory only as they are written; `torch.zeros` would touch every page now."""
    pages = mmap.mmap(-1, math.prod(shape) * dtype.itemsize)
    if sys.platform == "linux":
        pages.madvise(mmap.MADV_HUGEPAGE)  # blocks lie anywhere: fewer misses in the TLB
    return torch.frombuffer(pages, dtype=dtype).view(shape)
