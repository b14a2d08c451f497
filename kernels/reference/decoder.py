"""A whole decoder step over the reference operations; the formulae are in `kernels.spec`.

rows            [ num_tokens | pad ]      all but attention works on rows that make whole tiles
qkv             [ q heads | k heads | v heads ]    one product; q and k are normed and turned as one

Of several ranks each has some of the heads, neurons and tokens (`kernels.sharding`). All have all
rows of x: what o, down and the embedding give is summed over the ranks, and rank 0 gathers logits.
Of an adapter each has what goes with its part of the matrices, and adds it before the sum.
"""

from __future__ import annotations

import math
import mmap
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from kernels.backend import StepResult
from kernels.lora import check_adapter
from kernels.reference.activation import gated_activation, softcap_
from kernels.reference.embedding import embedding
from kernels.reference.kv_cache_write import kv_cache_write
from kernels.reference.linear import HEAD_TILES, LAYER_TILES, RowTiles, prove_tiles
from kernels.reference.lora import AdapterPacker, AdapterSlots, check_finite
from kernels.reference.paged_attention import paged_attention
from kernels.reference.rms_norm import rms_norm
from kernels.reference.rope import rope, rope_table
from kernels.reference.sampling import pick_tokens

if TYPE_CHECKING:
    from kernels.backend import PackedAdapter, StepInputs
    from kernels.collectives import Collectives
    from kernels.lora import LoraAdapter
    from kernels.reference.lora import StepAdapters, TorchAdapter
    from kernels.reference.weights import DecoderWeights
    from kernels.sharding import Shard

    Factors = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True)
class _KVInputs:
    """Where a step's keys and values go and whose they are, over the memory of its `StepInputs`."""

    slot_mapping: torch.Tensor
    block_tables: torch.Tensor
    seq_lens: torch.Tensor
    query_start_loc: torch.Tensor

    @classmethod
    def of(cls, inputs: StepInputs) -> _KVInputs:
        return cls(
            torch.from_numpy(inputs.slot_mapping),
            torch.from_numpy(inputs.block_tables),
            torch.from_numpy(inputs.seq_lens),
            torch.from_numpy(inputs.query_start_loc),
        )


class ReferenceDecoder:
    """A loaded decoder. Implements `kernels.backend.Decoder`."""

    def __init__(
        self,
        shard: Shard,
        dtype: torch.dtype,
        weights: DecoderWeights,
        collectives: Collectives,
    ) -> None:
        """`shard` says what of a model the weights are."""
        self._shard = shard
        self._spec = spec = shard.spec
        self._vocabulary = shard.vocabulary
        self._collectives = collectives
        self._dtype = dtype
        self._weights = weights
        self._caches: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._packer = AdapterPacker(dtype)
        self._slots = AdapterSlots(torch.device("cpu"))
        with torch.inference_mode():
            self._ropes = {
                kind: rope_table(kind, spec.head_dim, spec.max_position, dtype)
                for kind in {layer.rope for layer in spec.layers}
            }
            shapes = {linear.shape for layer in weights.layers for linear in layer.linears}
            self._tiles = _common_tiles(
                prove_tiles(sorted(shapes), LAYER_TILES, dtype), collectives
            )
            self._head_tiles = prove_tiles([weights.head.shape], HEAD_TILES, dtype)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights as packed, with the rotary tables."""
        return self._weights.nbytes + sum(table.nbytes for table in self._ropes.values())

    def allocate_kv(self, num_blocks: int, block_size: int) -> None:
        """Makes the KV pool, all zero: what attention masks must be finite still."""
        spec = self._spec
        shape = (num_blocks, spec.num_kv_heads, block_size, spec.head_dim)
        self._caches = [
            (_lazy_zeros(shape, self._dtype), _lazy_zeros(shape, self._dtype)) for _ in spec.layers
        ]

    def pack_adapter(self, adapter: LoraAdapter) -> TorchAdapter:
        """This rank's part of an adapter. Raises ValueError as `Decoder` says, on all ranks."""
        check_adapter(self._shard.whole, adapter)
        check_finite(adapter, self._dtype)
        return self._packer.pack(self._spec, self._shard.adapter(adapter))

    def set_adapter(self, slot: int, adapter: PackedAdapter | None) -> None:
        """Puts an adapter into a slot, or empties it."""
        self._slots.put(slot, adapter)

    @torch.inference_mode()
    def step(self, inputs: StepInputs) -> StepResult:
        """Computes one step."""
        num_tokens = len(inputs.token_ids)
        pad = (0, self._tiles.padded(num_tokens) - num_tokens)
        token_ids = torch.nn.functional.pad(torch.from_numpy(inputs.token_ids), pad)
        positions = torch.nn.functional.pad(torch.from_numpy(inputs.positions), pad)
        factors = {kind: table.rows(positions) for kind, table in self._ropes.items()}
        kv = _KVInputs.of(inputs)
        adapters = self._slots.of_step(inputs)

        x = self._embed(token_ids)
        for index, layer in enumerate(self._spec.layers):
            self._attention(x, index, factors[layer.rope], kv, adapters)
            self._mlp(x, index, adapters)
        rows = np.concatenate((inputs.picks.rows, inputs.logits_rows))
        gathered = self._logits(x[torch.from_numpy(rows)])
        if gathered is None:
            return _nothing(self._vocabulary[-1].stop)
        logits = gathered.numpy()
        num_picks = len(inputs.picks.rows)
        hidden = None
        if inputs.hidden_rows is not None:
            wanted = x[torch.from_numpy(inputs.hidden_rows)]
            hidden = rms_norm(wanted, self._weights.final_norm, self._spec.norm_eps).float().numpy()
        return StepResult(
            pick_tokens(logits[:num_picks], inputs.picks), logits[num_picks:], hidden=hidden
        )

    def _embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Embeddings [rows, hidden] of tokens, each from the rank that has it."""
        scale = self._spec.embedding_scale
        if self._collectives.size == 1:
            return embedding(token_ids, self._weights.embed, scale)
        own = self._vocabulary[self._collectives.rank]
        index = token_ids - own.start
        elsewhere = (index < 0) | (index >= len(own))
        x = embedding(index.masked_fill(elsewhere, 0), self._weights.embed, scale)
        return self._collectives.sum(x.masked_fill_(elsewhere[:, None], 0.0))

    def _attention(
        self,
        x: torch.Tensor,
        index: int,
        factors: Factors,
        kv: _KVInputs,
        adapters: StepAdapters,
    ) -> None:
        """Adds a layer's attention to x [rows, hidden], and writes its keys and values."""
        spec, weights, cache = self._spec, self._weights.layers[index], self._caches[index]
        num_tokens = len(kv.slot_mapping)
        q_heads, qk_heads = spec.num_heads, spec.num_heads + spec.num_kv_heads
        h = rms_norm(x, weights.attn_norm, spec.norm_eps)
        qkv = adapters.add(index, "qkv", h, self._tiles.apply(weights.qkv, h))
        qkv = qkv.view(len(x), -1, spec.head_dim)
        qk, v = qkv[:, :qk_heads], qkv[:, qk_heads:]
        if weights.qk_norm is not None:
            qk = rms_norm(qk, weights.qk_norm, spec.norm_eps)
        qk = rope(qk, *factors)
        kv_cache_write(qk[:num_tokens, q_heads:], v[:num_tokens], *cache, kv.slot_mapping)
        attended = qk.new_zeros(len(x), q_heads * spec.head_dim)
        attended[:num_tokens] = paged_attention(
            qk[:num_tokens, :q_heads],
            *cache,
            kv.block_tables,
            kv.seq_lens,
            kv.query_start_loc,
            scale=spec.attention_scale,
            window=spec.layers[index].window,
            softcap=spec.attention_softcap,
        ).flatten(1)
        partial = adapters.add(index, "o", attended, self._tiles.apply(weights.o, attended))
        out = self._collectives.sum(partial)
        if weights.post_attn_norm is not None:
            out = rms_norm(out, weights.post_attn_norm, spec.norm_eps)
        x.add_(out)

    def _mlp(self, x: torch.Tensor, index: int, adapters: StepAdapters) -> None:
        """Adds a layer's gated MLP to x [rows, hidden]."""
        weights = self._weights.layers[index]
        h = rms_norm(x, weights.mlp_norm, self._spec.norm_eps)
        gate_up = adapters.add(index, "gate_up", h, self._tiles.apply(weights.gate_up, h))
        inner = gated_activation(self._spec.activation, gate_up)
        partial = adapters.add(index, "down", inner, self._tiles.apply(weights.down, inner))
        out = self._collectives.sum(partial)
        if weights.post_mlp_norm is not None:
            out = rms_norm(out, weights.post_mlp_norm, self._spec.norm_eps)
        x.add_(out)

    def _logits(self, x: torch.Tensor) -> torch.Tensor | None:
        """Float32 logits [rows, vocab] of rows of the residual stream, any number of them.

        None on ranks that only have a part of them to give.
        """
        logits = torch.empty(len(x), self._spec.vocab_size)
        size = self._head_tiles.largest
        for rows, out in zip(torch.split(x, size), torch.split(logits, size), strict=True):
            pad = self._head_tiles.padded(len(rows)) - len(rows)
            h = torch.nn.functional.pad(rows, (0, 0, 0, pad))
            h = rms_norm(h, self._weights.final_norm, self._spec.norm_eps)
            out.copy_(self._weights.head(h)[: len(rows)])
        if self._spec.logit_softcap is not None:
            softcap_(logits, self._spec.logit_softcap)
        return self._collectives.gather(logits, [len(ids) for ids in self._vocabulary])


def _common_tiles(tiles: RowTiles, collectives: Collectives) -> RowTiles:
    """The row counts that every rank has proved, so that all pad a step's rows alike."""
    proved = torch.tensor([float(size in tiles.sizes) for size in LAYER_TILES])
    counts = collectives.sum(proved).tolist()
    kept = (
        size for size, n in zip(LAYER_TILES, counts, strict=True) if round(n) == collectives.size
    )
    return RowTiles(tuple(kept) or (1,))


def _nothing(vocab_size: int) -> StepResult:
    """What ranks return that do not pick."""
    return StepResult(np.empty(0, dtype=np.int32), np.empty((0, vocab_size), dtype=np.float32))


def _lazy_zeros(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Zeros that take memory only as they are written; `torch.zeros` would touch every page now."""
    pages = mmap.mmap(-1, math.prod(shape) * dtype.itemsize)
    if sys.platform == "linux":
        pages.madvise(mmap.MADV_HUGEPAGE)  # blocks lie anywhere: fewer misses in the TLB
    return torch.frombuffer(pages, dtype=dtype).view(shape)
