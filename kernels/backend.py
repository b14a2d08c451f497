"""The seam between the engine and its back ends: spec in, step function out.

A back end takes a `DecoderSpec` and a source of weights, and gives a `Decoder` whose `step`
computes one engine step in one call: all layers, the KV writes, and the logits of the wanted rows.
It owns its weights' packing and its KV layout. The engine sees block numbers and token counts only.

Layout of one step, for requests A (decoding) and B (a chunk of prefill):

    token_ids        [ a57 | b16 b17 b18 b19 ]              num_tokens = 5
    positions        [  57 |  16  17  18  19 ]
    query_start_loc  [ 0     1               5 ]            request r owns rows [loc[r], loc[r+1])
    seq_lens         [ 58    20 ]                           tokens in KV once this step has written
    block_tables     [[ 3 9 4 7 ] [ 2 5 0 0 ]]              row r: blocks of request r, in order
    slot_mapping     [ 7·16+9 | 5·16+0 … 5·16+3 ]           where each row's K and V go
    logits_rows      [ 0 | 4 ]                              rows whose logits are wanted
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    import torch

    from kernels.spec import DecoderSpec

OnProgress: TypeAlias = Callable[[int, int], None]  # (bytes done, bytes in all)


@dataclass(frozen=True, slots=True)
class QuantizedTensor:
    """A matrix [out, in] in the blocks of its file format.

    `data` is uint8 [out, bytes per row]; `scheme` is the GGUF type name, for example "Q4_1".
    """

    scheme: str
    shape: tuple[int, int]
    data: torch.Tensor

    def dequantize(self) -> torch.Tensor:
        """The matrix as float32 [out, in]. Raises ValueError for an unknown scheme."""
        import torch
        from gguf.constants import GGMLQuantizationType
        from gguf.quants import dequantize

        try:
            kind = GGMLQuantizationType[self.scheme]
        except KeyError as error:
            raise ValueError(f"unknown quantisation scheme {self.scheme!r}") from error
        return torch.from_numpy(dequantize(self.data.numpy(), kind)).reshape(self.shape)


class WeightSource(Protocol):
    """Weights by their canonical names (`DecoderSpec.weight_shapes`)."""

    @property
    def total_bytes(self) -> int:
        """Bytes that `load` will read over all names."""
        ...

    def load(self, name: str) -> torch.Tensor | QuantizedTensor:
        """One weight, in the file's own type, [out, in] for matrices. Each is asked for once."""
        ...


@dataclass(frozen=True, slots=True)
class StepInputs:
    """One step's batch; see the module's picture. All tensors are int32 on the decoder's device."""

    token_ids: torch.Tensor  # [num_tokens]
    positions: torch.Tensor  # [num_tokens]
    slot_mapping: torch.Tensor  # [num_tokens]
    query_start_loc: torch.Tensor  # [num_requests + 1]
    seq_lens: torch.Tensor  # [num_requests]
    block_tables: torch.Tensor  # [num_requests, max_blocks], unused entries are 0
    logits_rows: torch.Tensor  # [num_logits]


@dataclass(frozen=True, slots=True)
class MemoryNeeds:
    """What a decoder will take, known before anything is loaded. All in bytes."""

    weights: int
    activations: int  # peak beside weights and KV, for a step of the largest size
    kv_per_block: int


class Decoder(Protocol):
    """A loaded model."""

    @property
    def weight_bytes(self) -> int:
        """Bytes the weights take as packed."""
        ...

    def allocate_kv(self, num_blocks: int, block_size: int) -> None:
        """Makes the KV pool, before the first step."""
        ...

    def step(self, inputs: StepInputs) -> torch.Tensor:
        """Computes one step; returns float32 logits [num_logits, vocab_size].

        A row's result depends on its own request's tokens only, bit for bit: neither on what else
        is in the batch nor on how a prompt was cut into chunks.
        """
        ...


class Backend(Protocol):
    """Makes decoders."""

    name: str

    def plan(
        self,
        spec: DecoderSpec,
        dtype: torch.dtype,
        *,
        block_size: int,
        max_num_batched_tokens: int,
        max_num_seqs: int,
    ) -> MemoryNeeds:
        """What `load` with the same arguments will take."""
        ...

    def load(
        self, spec: DecoderSpec, source: WeightSource, dtype: torch.dtype, on_progress: OnProgress
    ) -> Decoder:
        """Loads and packs the weights. `dtype` is that of activations, KV and dense weights."""
        ...
