"""A whole decoder step in Triton; the formulae are in `kernels.spec`.

    upload ─▶ layers: norm ─▶ qkv ─▶ q/k norm, RoPE, KV write ─▶ attention ─▶ o ─▶ add, norm ─▶
              gate, up ─▶ act ∘ ─▶ down ─▶ add, and the next layer's norm        ─▶ hidden rows
    hidden rows ─▶ wanted ones ─▶ head ─▶ logits ─▶ picked tokens

A step that only decodes replays a captured graph of its layers (`kernels.gpu.graphs`); others
launch kernel by kernel. The bits are the same: no kernel's result for a row depends on the batch,
but for the vendor's products (`kernels.gpu.vendor_linear`).

Of several ranks each has some of the heads, neurons and tokens (`kernels.sharding`). All have all
rows of x: what o, down and the embedding give is summed over the ranks, in graphs too, and rank 0
gathers logits and picks; a step that was begun before those tokens were known begins by sharing
them. Each makes the calls of all others in their order, step by step.
Of an adapter each has what goes with its part of the matrices, and adds it before the sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from kernels.backend import AsyncDecoder
from kernels.gpu.activation import gated_activation
from kernels.gpu.begun_step import BegunGpuStep
from kernels.gpu.fp8_linear import Fp8Linear
from kernels.gpu.graphs import DecodeGraphs, graph_sizes, idle_step
from kernels.gpu.launch_table import attention_launch
from kernels.gpu.linear import GpuLinear, prove_linears
from kernels.gpu.lora import pack_on_device
from kernels.gpu.matrix_plan import ROW_TILES
from kernels.gpu.paged_attention import paged_attention, partial_sums
from kernels.gpu.picked_tokens import take_picked
from kernels.gpu.qk_norm_rope_cache_write import qk_norm_rope_cache_write
from kernels.gpu.rms_norm import add_rms_norm, rms_norm
from kernels.gpu.sampling import DevicePicks, pick_tokens
from kernels.gpu.step_buffers import StepBuffers
from kernels.gpu.vendor_linear import VendorLinear
from kernels.lora import check_adapter
from kernels.reference.activation import softcap_
from kernels.reference.embedding import embedding
from kernels.reference.lora import NO_ADAPTERS, AdapterSlots, check_finite
from kernels.reference.rope import RopeTable, rope_table

if TYPE_CHECKING:
    from kernels.backend import Float32s, Int32s, PackedAdapter, StepInputs, StepResult
    from kernels.collectives import Collectives
    from kernels.gpu.step_buffers import DeviceBatch
    from kernels.lora import LoraAdapter
    from kernels.reference.lora import StepAdapters, TorchAdapter
    from kernels.reference.weights import DecoderWeights
    from kernels.sharding import Shard

# Logits of more rows are computed, picked from and fetched in so many rows at a time.
LOGIT_ROWS = 256
# Requests whose long rows several programs share. More requests fill the device by themselves.
SHARING_REQUESTS = 16


class GpuDecoder(AsyncDecoder):
    """A loaded decoder on one device. Implements `kernels.backend.Decoder`."""

    def __init__(
        self,
        shard: Shard,
        dtype: torch.dtype,
        weights: DecoderWeights,
        device: torch.device,
        *,
        max_num_batched_tokens: int,
        max_num_seqs: int,
        kv_dtype: torch.dtype,
        collectives: Collectives,
        uses_graphs: bool = True,
    ) -> None:
        """`shard` says what of a model the weights are; only a GPU uses graphs."""
        self._shard = shard
        self._spec = spec = shard.spec
        self._vocabulary = shard.vocabulary
        self._dtype = dtype
        self._slots = AdapterSlots(device)
        self._collectives = collectives
        self._weights = weights
        self._device = device
        self._kv_dtype = kv_dtype
        self._max_num_seqs = max_num_seqs
        self._uses_graphs = uses_graphs and device.type == "cuda"
        self._max_num_batched_tokens = max_num_batched_tokens
        self._caches: list[tuple[torch.Tensor, torch.Tensor]] = []
        # Of an fp8 cache: 1, as nothing calibrated it. e4m3 holds up to 448.
        self._kv_scale = torch.ones(spec.num_kv_heads, device=device) if kv_dtype != dtype else None
        with torch.inference_mode():
            self._ropes = {
                kind: _on(rope_table(kind, spec.head_dim, spec.max_position, dtype), device)
                for kind in {layer.rope for layer in spec.layers}
            }
            linears = [weights.head, *(each for layer in weights.layers for each in layer.linears)]
            prove_linears(linears, dtype, device)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights as held, with the rotary tables."""
        return self._weights.nbytes + sum(table.nbytes for table in self._ropes.values())

    def pack_adapter(self, adapter: LoraAdapter) -> TorchAdapter:
        """This rank's part of an adapter. Raises ValueError as `Decoder` says, on all ranks."""
        check_adapter(self._shard.whole, adapter)
        check_finite(adapter, self._dtype)
        own = self._shard.adapter(adapter)
        return pack_on_device(self._spec, own, self._dtype, self._device)

    def set_adapter(self, slot: int, adapter: PackedAdapter | None) -> None:
        """Puts an adapter into a slot, or empties it."""
        self._slots.put(slot, adapter)

    @torch.inference_mode()
    def allocate_kv(self, num_blocks: int, block_size: int) -> None:
        """Makes the KV pool and the step's buffers, and captures graphs where there are any."""
        spec = self._spec
        shape = (num_blocks, spec.num_kv_heads, block_size, spec.head_dim)
        self._caches = [
            (
                torch.zeros(shape, dtype=self._kv_dtype, device=self._device),
                torch.zeros(shape, dtype=self._kv_dtype, device=self._device),
            )
            for _ in spec.layers
        ]
        max_blocks = min(-(-spec.max_position // block_size), num_blocks)
        max_tokens = max(self._max_num_batched_tokens, self._max_num_seqs)
        self._buffers = StepBuffers(
            self._device,
            max_tokens=max_tokens,
            max_requests=self._max_num_seqs,
            max_blocks=max_blocks,
        )
        self._max_seq_len = max_blocks * block_size
        self._partials = partial_sums(
            min(SHARING_REQUESTS, self._max_num_seqs),
            1,
            spec.num_heads,
            spec.head_dim,
            self._max_seq_len,
            launch=attention_launch(self._device, spec.head_dim),
            device=self._device,
        )
        if self._device.type == "cuda":
            self._compile(min(max_tokens, self._max_seq_len))
        sizes = graph_sizes(self._max_num_seqs) if self._uses_graphs else ()
        self._graphs = DecodeGraphs(sizes, self._layers)
        self._graphs.capture(self._buffers, self._max_seq_len)

    @torch.inference_mode()
    def _compile(self, most_rows: int) -> None:
        """Launches what steps of any size and way to pick need, for Triton to compile it.

        Otherwise the first long prompt, the first wide step and the first draw would wait for that,
        and all other requests with them.
        """
        logits = None
        for num_rows in ROW_TILES:
            step = idle_step(1, min(num_rows, most_rows))
            batch = self._buffers.upload(step, len(step.token_ids), 1)
            logits = self._head(self._layers(batch))
        if logits is None:
            return
        settings = torch.ones(4, 1, dtype=torch.float64, device=self._device)
        ints = torch.zeros(2, 1, dtype=torch.int32, device=self._device)
        every = ints.new_full((1, -(-logits.shape[1] // 32)), -1)
        for masks in (None, every):
            for greedy in (True, False):
                pick_tokens(logits[:1], DevicePicks(settings, ints, masks, greedy))

    def step(self, inputs: StepInputs) -> StepResult:
        """Computes one step."""
        return self.begin(inputs).result()

    @torch.inference_mode()
    def begin(self, inputs: StepInputs) -> BegunGpuStep:
        """Starts one step.

        Logits are computed when they are asked for: a step that has any is the last until then, and
        its hidden rows stay where they are.
        """
        num_tokens, num_requests = len(inputs.token_ids), len(inputs.seq_lens)
        adapters = self._slots.of_step(inputs)
        only_decodes = num_tokens == num_requests and not adapters.adapted
        size = self._graphs.size_for(num_requests) if only_decodes else None
        batch = self._buffers.upload(inputs, size or num_tokens, size or num_requests)
        if inputs.picked is not None:
            self._collectives.share(batch.picked[: int(inputs.picked.max()) + 1])
        hidden = self._layers(batch, adapters) if size is None else self._graphs.replay(size)
        wanted, logits_rows = inputs.hidden_rows, inputs.logits_rows.copy()
        return BegunGpuStep(
            self._pick(hidden, batch),
            None if wanted is None else hidden[self._to_device(wanted)].float(),
            lambda: self._logits_of(hidden, logits_rows),
        )

    def _layers(self, batch: DeviceBatch, adapters: StepAdapters = NO_ADAPTERS) -> torch.Tensor:
        """Normed hidden rows [num_rows, hidden], as the head takes them."""
        spec, weights, inner = self._spec, self._weights, self._spec.intermediate_size
        if batch.sources is not None:
            take_picked(batch.token_ids, batch.sources, batch.picked)
        x = self._embed(batch.token_ids)
        h = rms_norm(x, weights.layers[0].attn_norm, spec.norm_eps)
        norms = [layer.attn_norm for layer in weights.layers[1:]] + [weights.final_norm]
        for index, (held, next_norm) in enumerate(zip(weights.layers, norms, strict=True)):
            out = self._attention(h, index, batch, adapters)
            h = add_rms_norm(out, x, held.mlp_norm, spec.norm_eps, held.post_attn_norm)
            gate_up = adapters.add(index, "gate_up", h, held.gate_up(h))
            gated = gated_activation(spec.activation, gate_up[:, :inner], gate_up[:, inner:])
            out = self._collectives.sum(adapters.add(index, "down", gated, held.down(gated)))
            h = add_rms_norm(out, x, next_norm, spec.norm_eps, held.post_mlp_norm)
        return h

    def _embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Embeddings [rows, hidden] of tokens, each from the rank that has it."""
        table, scale = self._weights.embed, self._spec.embedding_scale
        if self._collectives.size == 1:
            return embedding(token_ids, table, scale)
        own = self._vocabulary[self._collectives.rank]
        index = token_ids - own.start
        elsewhere = (index < 0) | (index >= len(own))
        x = embedding(index.masked_fill(elsewhere, 0), table, scale)
        return self._collectives.sum(x.masked_fill_(elsewhere[:, None], 0.0))

    def _attention(
        self,
        h: torch.Tensor,
        index: int,
        batch: DeviceBatch,
        adapters: StepAdapters,
    ) -> torch.Tensor:
        """What a layer's attention adds to the rows, before its norm; writes keys and values."""
        spec, layer, held = self._spec, self._spec.layers[index], self._weights.layers[index]
        cache, table = self._caches[index], self._ropes[layer.rope]
        qkv = adapters.add(index, "qkv", h, held.qkv(h)).view(len(h), -1, spec.head_dim)
        qk_norm_rope_cache_write(
            qkv,
            batch.positions,
            table.cos,
            table.sin,
            *cache,
            batch.slot_mapping,
            num_heads=spec.num_heads,
            qk_norm=held.qk_norm,
            eps=spec.norm_eps,
            k_scale=self._kv_scale,
            v_scale=self._kv_scale,
        )
        attended = paged_attention(
            qkv[:, : spec.num_heads],
            *cache,
            batch.block_tables,
            batch.seq_lens,
            batch.query_start_loc,
            scale=spec.attention_scale,
            window=layer.window,
            softcap=spec.attention_softcap,
            max_query_len=batch.max_query_len,
            max_seq_len=batch.max_seq_len,
            partials=self._partials,
            k_scale=self._kv_scale,
            v_scale=self._kv_scale,
        )
        rows = attended.flatten(1)
        return self._collectives.sum(adapters.add(index, "o", rows, held.o(rows)))

    def _pick(self, hidden: torch.Tensor, batch: DeviceBatch) -> torch.Tensor | None:
        """Tokens of the rows that one is picked from; None if there are no such rows, and on ranks
        that only give their part."""
        count, picked = len(batch.pick_rows), None
        for start in range(0, count, LOGIT_ROWS):
            rows = slice(start, min(start + LOGIT_ROWS, count))
            logits = self._head(hidden[batch.pick_rows[rows]])
            if logits is not None:
                picked = batch.picked[:count]
                pick_tokens(logits, batch.picks.of_rows(rows), picked[rows])
        return picked

    @torch.inference_mode()
    def _logits_of(self, hidden: torch.Tensor, rows: Int32s) -> Float32s:
        """Float32 logits [len(rows), vocab_size] on the host; of no rows on ranks other than 0."""
        num_rows = len(rows) if self._collectives.rank == 0 else 0
        out = np.empty((num_rows, self._vocabulary[-1].stop), np.float32)
        for start in range(0, len(rows), LOGIT_ROWS):
            part = rows[start : start + LOGIT_ROWS]
            logits = self._head(hidden[self._to_device(part)])
            if logits is not None:
                torch.from_numpy(out[start : start + len(part)]).copy_(logits)
        return out

    def _head(self, hidden: torch.Tensor) -> torch.Tensor | None:
        """Float32 logits of normed rows; None on ranks that only have a part of them to give."""
        head = self._weights.head
        if isinstance(head, GpuLinear | Fp8Linear | VendorLinear):
            logits = head.float32(hidden)
        else:
            logits = head(hidden).float()
        if self._spec.logit_softcap is not None:
            softcap_(logits, self._spec.logit_softcap)
        return self._collectives.gather(logits, [len(ids) for ids in self._vocabulary])

    def _to_device(self, values: Int32s) -> torch.Tensor:
        rows = torch.from_numpy(values)
        if self._device.type == "cuda":
            rows = rows.pin_memory()  # else the copy may wait for the step before
        return rows.to(self._device, non_blocking=True)


def _on(table: RopeTable, device: torch.device) -> RopeTable:
    return RopeTable(table.cos.to(device), table.sin.to(device))
