"""The seam between the engine and its back ends: spec in, step function out.

A back end takes a `DecoderSpec` and a source of weights, and gives a `Decoder` whose `step`
computes one engine step in one call: all layers, the KV writes, and what comes of the wanted rows,
a token that is picked or logits. It owns its weights' packing and its KV layout, and whatever
memory it needs on its device. The engine sees block numbers, token counts and host arrays only;
this module needs no torch, and neither does an engine whose back end has none.

Layout of one step, for requests A (decoding) and B (a chunk of prefill):

    token_ids        [ a57 | b16 b17 b18 b19 ]              num_tokens = 5
    positions        [  57 |  16  17  18  19 ]
    query_start_loc  [ 0     1               5 ]            request r owns rows [loc[r], loc[r+1])
    seq_lens         [ 58    20 ]                           tokens in KV once this step has written
    block_tables     [[ 3 9 4 7 ] [ 2 5 0 0 ]]              row r: blocks of request r, in order
    slot_mapping     [ 7·16+9 | 5·16+0 … 5·16+3 ]           where each row's K and V go
    picks.rows       [ 0 ]                                  rows that a token is picked from
    logits_rows      [ 4 ]                                  rows whose logits are wanted
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from kernels.coded import CodedTensor
    from kernels.lora import LoraAdapter
    from kernels.spec import DecoderSpec

    Int32s: TypeAlias = npt.NDArray[np.int32]
    UInt32s: TypeAlias = npt.NDArray[np.uint32]
    Float32s: TypeAlias = npt.NDArray[np.float32]
    Float64s: TypeAlias = npt.NDArray[np.float64]

OnProgress: TypeAlias = Callable[[int, int], None]  # (bytes done, bytes in all)

# In place of a token, where a logit of its row (of those that its mask allows) is NaN or infinite,
# or its mask allows none.
NOT_FINITE = -1


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A weight as its file has it, often a view of the mapped file.

    `scheme` is the GGUF name of the type: "F32", "F16" and "BF16" for dense ones, and for example
    "Q4_1" for rows of quantised blocks. `shape` counts elements, [out, in] for matrices; `data` is
    uint8, flat, rows one after another.
    """

    scheme: str
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8]

    @property
    def nbytes(self) -> int:
        """Bytes of the data."""
        return self.data.nbytes

    def to_float32(self) -> Float32s:
        """The values, as a new array of `shape`. Raises ValueError for an unknown scheme."""
        if self.scheme == "F32":
            return self.data.view(np.float32).reshape(self.shape).copy()
        if self.scheme == "F16":
            return self.data.view(np.float16).reshape(self.shape).astype(np.float32)
        if self.scheme == "BF16":
            wide = self.data.view(np.uint16).astype(np.uint32)
            wide <<= np.uint32(16)
            return wide.view(np.float32).reshape(self.shape)
        # Only here: dense weights need no gguf.
        from gguf.constants import GGMLQuantizationType
        from gguf.quants import dequantize

        try:
            kind = GGMLQuantizationType[self.scheme]
        except KeyError as error:
            raise ValueError(f"unknown quantisation scheme {self.scheme!r}") from error
        rows = self.data.reshape(self.shape[0], -1)
        values: Float32s = dequantize(rows, kind).reshape(self.shape)
        return values


class WeightSource(Protocol):
    """Weights by their canonical names (`DecoderSpec.weight_shapes`)."""

    @property
    def total_bytes(self) -> int:
        """Bytes that `load` will read over all names."""
        ...

    def scheme(self, name: str) -> str:
        """The scheme of one weight, a `StoredTensor`'s or `CodedTensor`'s, without reading it."""
        ...

    def load(self, name: str) -> StoredTensor | CodedTensor:
        """One weight. Each is asked for once. Only matrices are coded."""
        ...


@dataclass(frozen=True, slots=True)
class PickInputs:
    """Rows that one token each is picked from, and how; see `kernels.reference.sampling`.

    Arrays are [num_picks]. Rows whose logits are first edited go through `logits_rows` instead.

    Masks allow a row some tokens only: token t if bit t % 32 of word t // 32 is set. They narrow
    what is picked from, and come before all else; a row without one may give any token.
    """

    rows: Int32s
    temperature: Float64s  # 0 takes the likeliest token, the lowest id among equals
    top_k: Int32s  # 0 is all
    top_p: Float64s
    min_p: Float64s
    draw: Float64s  # uniform in [0, 1); unused at temperature 0
    masks: UInt32s | None = None  # [num_masks, ceil(vocab_size / 32)], C-contiguous; None has none
    mask_of: Int32s | None = None  # each row's mask, or -1; None with `masks`


@dataclass(frozen=True, slots=True)
class StepInputs:
    """One step's batch; see the module's picture. Arrays are contiguous int32 on the host."""

    token_ids: Int32s  # [num_tokens]
    positions: Int32s  # [num_tokens]
    slot_mapping: Int32s  # [num_tokens]
    query_start_loc: Int32s  # [num_requests + 1]
    seq_lens: Int32s  # [num_requests]
    block_tables: Int32s  # [num_requests, max_blocks], unused entries are 0
    picks: PickInputs
    logits_rows: Int32s  # [num_logits]
    hidden_rows: Int32s | None = None  # [num_hidden], rows whose hidden states are wanted
    # [num_requests]: the slot of each request's adapter, or -1; None where no request has one.
    adapters: Int32s | None = None
    # [num_tokens]: which pick of the step that was begun before gives a row's token, or -1 where
    # token_ids has it; None where all of them have. Only an `AsyncDecoder` takes such steps.
    picked: Int32s | None = None


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step computed. The arrays hold until the decoder's next step."""

    token_ids: Int32s  # [num_picks], NOT_FINITE where there is none
    logits: Float32s  # [num_logits, vocab_size]
    cpu_seconds: float = 0.0  # CPU time of the step on all threads, where the back end counts it
    hidden: Float32s | None = None  # [num_hidden, hidden_size], as the head takes them: normed


@dataclass(frozen=True, slots=True)
class MemoryNeeds:
    """What a decoder will take, known before anything is loaded. All in bytes."""

    weights: int
    activations: int  # peak beside weights and KV, for a step of the largest size
    kv_per_block: int
    adapters: int = 0  # of all slots, as the engine reckons them: a back end plans without


class PackedAdapter(Protocol):
    """A LoRA adapter as a decoder multiplies with it."""

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        ...


class Decoder(Protocol):
    """A loaded model."""

    @property
    def weight_bytes(self) -> int:
        """Bytes the weights take as packed."""
        ...

    def allocate_kv(self, num_blocks: int, block_size: int) -> None:
        """Makes the KV pool, before the first step."""
        ...

    def pack_adapter(self, adapter: LoraAdapter) -> PackedAdapter:
        """An adapter in the form that steps take. May be called on any thread, also during a step.

        Raises ValueError, naming the matrix, for one that does not fit the model or is not finite.
        """
        ...

    def set_adapter(self, slot: int, adapter: PackedAdapter | None) -> None:
        """Puts what `pack_adapter` gave into a slot, or empties it. Between steps only.

        Slots are numbers from 0 on, up to the most adapters that are loaded together.
        """
        ...

    def step(self, inputs: StepInputs) -> StepResult:
        """Computes one step.

        A row's result depends on its own request's tokens only, bit for bit: neither on what else
        is in the batch nor on how a prompt was cut into chunks.
        """
        ...


class BegunStep(Protocol):
    """A step that a device computes, or has computed."""

    def result(self) -> StepResult:
        """Waits for the step and returns what it computed, once. The arrays are the caller's."""
        ...


class AsyncDecoder(ABC):
    """A `Decoder` that computes while its host goes on; it says so by deriving from this.

    Steps are computed one after another in the order in which they were begun, whether their
    results are asked for or not. So a step reads what those before it wrote, and writes where they
    have read.
    """

    @abstractmethod
    def begin(self, inputs: StepInputs) -> BegunStep:
        """Starts one step and returns at once; the inputs' arrays may be used again then.

        At most one other step may be held whose result was not asked for, and that one must have
        no `logits_rows`.
        """


@dataclass(frozen=True, slots=True)
class Precision:
    """How a decoder computes. Each back end refuses, by ValueError, what it cannot do."""

    dtype: str  # of activations and dense weights: "float32", "bfloat16" or "float16"
    weights: str  # "auto" (quantised files as they are, else dtype), "none", "int8" or "int4"
    kv_cache: str  # "auto" (dtype) or "int8"


class Backend(Protocol):
    """Makes decoders."""

    name: str

    @property
    def description(self) -> str:
        """One line for the start-up print."""
        ...

    def plan(
        self,
        spec: DecoderSpec,
        source: WeightSource,
        precision: Precision,
        *,
        block_size: int,
        max_num_batched_tokens: int,
        max_num_seqs: int,
    ) -> MemoryNeeds:
        """What `load` with the same arguments will take. Reads no weight."""
        ...

    def load(
        self,
        spec: DecoderSpec,
        source: WeightSource,
        precision: Precision,
        on_progress: OnProgress,
    ) -> Decoder:
        """Loads and packs the weights."""
        ...
