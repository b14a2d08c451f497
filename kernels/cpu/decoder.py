"""The decoder's step: one C++ call without the interpreter's lock. See src/decoder.h."""

from __future__ import annotations

import ctypes
import mmap
import sys
import weakref
from typing import TYPE_CHECKING

import numpy as np

from kernels.backend import StepResult
from kernels.cpu.adapters import CpuAdapter, LowRankArgs, pack_adapter
from kernels.cpu.library import ISAS, KV_DTYPES, Library
from kernels.rope_frequencies import inverse_frequencies
from kernels.spec import Activation

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernels.backend import PackedAdapter, StepInputs, UInt32s
    from kernels.cpu.weights import CpuWeights, MatrixView
    from kernels.lora import LoraAdapter
    from kernels.spec import DecoderSpec

_ACTIVATIONS = {Activation.SILU: 0, Activation.GELU_TANH: 1}  # OctavoActivation
_OUT_OF_MEMORY = 6
# OctavoPhase of src/abi.h
PHASES = (
    *("embed", "prepare", "qkv", "rope", "attention"),
    *("output", "gate_up", "down", "head", "pick"),
)


class MatrixArgs(ctypes.Structure):
    """OctavoMatrix of src/abi.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("block_bytes", ctypes.c_int64),
        *((name, ctypes.c_int32) for name in ("num_blocks", "cols", "group", "format")),
    )


class LayerArgs(ctypes.Structure):
    """OctavoLayer of src/abi.h."""

    _fields_ = (
        *((name, MatrixArgs) for name in ("qkv", "o", "gate_up", "down")),
        *((name, ctypes.c_void_p) for name in ("attn_norm", "q_norm", "k_norm")),
        *((name, ctypes.c_void_p) for name in ("post_attn_norm", "mlp_norm", "post_mlp_norm")),
        ("rope", ctypes.c_int32),
        ("window", ctypes.c_int32),
    )


class ConfigArgs(ctypes.Structure):
    """OctavoDecoderConfig of src/abi.h."""

    _fields_ = (
        ("layers", ctypes.c_void_p),
        ("head", MatrixArgs),
        ("embed", MatrixArgs),
        *((name, ctypes.c_void_p) for name in ("final_norm", "frequencies", "rope_scales")),
        *((name, ctypes.c_int32) for name in ("num_layers", "num_ropes", "vocab_size")),
        *((name, ctypes.c_int32) for name in ("hidden_size", "intermediate_size", "num_heads")),
        *((name, ctypes.c_int32) for name in ("num_kv_heads", "head_dim", "activation")),
        *((name, ctypes.c_int32) for name in ("num_threads", "isa")),
        *((name, ctypes.c_float) for name in ("norm_eps", "attention_scale", "attention_softcap")),
        *((name, ctypes.c_float) for name in ("logit_softcap", "embedding_scale")),
    )


class StepArgs(ctypes.Structure):
    """OctavoStep of src/abi.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("token_ids", "positions", "slot_mapping")),
        *((name, ctypes.c_void_p) for name in ("query_start_loc", "seq_lens", "block_tables")),
        *((name, ctypes.c_void_p) for name in ("pick_rows", "temperature", "top_k", "top_p")),
        *((name, ctypes.c_void_p) for name in ("min_p", "draw", "masks", "mask_of")),
        *((name, ctypes.c_void_p) for name in ("logits_rows", "hidden_rows", "adapters")),
        *((name, ctypes.c_void_p) for name in ("picked", "logits", "hidden")),
        *((name, ctypes.c_int32) for name in ("num_tokens", "num_requests", "max_blocks")),
        *((name, ctypes.c_int32) for name in ("num_picks", "num_logits", "num_masks")),
        ("num_hidden", ctypes.c_int32),
        ("cpu_seconds", ctypes.c_double),
        ("bad_index", ctypes.c_int64),
        ("bad_value", ctypes.c_int64),
    )


_MESSAGES: dict[int, Callable[[StepArgs], str]] = {  # OctavoStatus
    2: lambda args: f"query_start_loc[{args.bad_index + 1}] is {args.bad_value}: no end of rows",
    3: lambda args: f"seq_lens[{args.bad_index}] is {args.bad_value}: beyond its rows or blocks",
    4: lambda args: f"block_tables[{args.bad_index}] names block {args.bad_value}: not in the pool",
    5: lambda args: f"slot_mapping[{args.bad_index}] is {args.bad_value}: not in the pool",
    9: lambda args: f"token_ids[{args.bad_index}] is {args.bad_value}: not in the vocabulary",
    10: lambda args: f"positions[{args.bad_index}] is {args.bad_value}: negative",
    11: lambda args: f"wanted row {args.bad_index} is {args.bad_value}: not a row of the step",
    12: lambda _: "allocate_kv comes before the first step",
    13: lambda args: f"mask_of[{args.bad_index}] is {args.bad_value}: there is no such mask",
    14: lambda args: f"adapters[{args.bad_index}] is {args.bad_value}: the slot is empty",
}


def kv_block_bytes(library: Library, spec: DecoderSpec, kv_dtype: str, block_size: int) -> int:
    """Bytes of one KV block of `block_size` tokens, over all layers."""
    function = library.handle.octavo_kv_block_bytes
    function.argtypes, function.restype = 4 * (ctypes.c_int32,), ctypes.c_int64
    sizes = KV_DTYPES[kv_dtype], spec.num_kv_heads, block_size, spec.head_dim
    return spec.num_layers * int(function(*sizes))


def _declare(handle: ctypes.CDLL) -> None:
    decoder = ctypes.c_void_p
    handle.octavo_decoder_create.argtypes = (ctypes.POINTER(ConfigArgs),)
    handle.octavo_decoder_create.restype = decoder
    handle.octavo_decoder_destroy.argtypes = (decoder,)
    handle.octavo_decoder_destroy.restype = None
    handle.octavo_decoder_set_kv.argtypes = (decoder, ctypes.c_void_p, *3 * (ctypes.c_int32,))
    handle.octavo_decoder_set_kv.restype = None
    handle.octavo_decoder_set_adapter.argtypes = (
        *(decoder, ctypes.c_int32),
        ctypes.POINTER(LowRankArgs),
    )
    handle.octavo_decoder_step.argtypes = (decoder, ctypes.POINTER(StepArgs))
    handle.octavo_decoder_phase_seconds.argtypes = (decoder, ctypes.POINTER(ctypes.c_double))
    handle.octavo_decoder_phase_seconds.restype = None


class CpuDecoder:
    """A loaded decoder. Implements `kernels.backend.Decoder`."""

    def __init__(
        self,
        library: Library,
        spec: DecoderSpec,
        weights: CpuWeights,
        *,
        num_threads: int,
        kv_dtype: str,
        isa: str | None = None,
    ) -> None:
        """kv_dtype is a key of `KV_DTYPES`; isa is one of `library.isas`, by default the best.

        Raises MemoryError if there is none for its working memory.
        """
        self._spec = spec
        self._weights = weights  # C++ reads them in place
        self._handle = library.handle
        _declare(library.handle)
        self._library = library
        self._kv_dtype = kv_dtype
        self._pool: mmap.mmap | None = None
        self._adapters: dict[int, CpuAdapter] = {}  # by slot; C++ reads them in place
        ropes = list(dict.fromkeys(layer.rope for layer in spec.layers))
        frequencies = np.concatenate([inverse_frequencies(r, spec.head_dim) for r in ropes])
        scales = np.array([rope.attention_factor for rope in ropes], np.float32)
        layers = (LayerArgs * spec.num_layers)(
            *(
                self._layer(i, ropes.index(layer.rope), layer.window)
                for i, layer in enumerate(spec.layers)
            )
        )
        config = ConfigArgs(
            ctypes.addressof(layers),
            _matrix(weights.matrix("head")),
            _matrix(weights.matrix("head" if spec.tied_head else "embed")),
            self._norm("final_norm"),
            frequencies.ctypes.data,
            scales.ctypes.data,
            spec.num_layers,
            len(ropes),
            spec.vocab_size,
            spec.hidden_size,
            spec.intermediate_size,
            spec.num_heads,
            spec.num_kv_heads,
            spec.head_dim,
            _ACTIVATIONS[spec.activation],
            num_threads,
            ISAS.index(isa or library.isa),
            spec.norm_eps,
            spec.attention_scale,
            spec.attention_softcap or 0.0,
            spec.logit_softcap or 0.0,
            spec.embedding_scale,
        )
        self._decoder = library.handle.octavo_decoder_create(ctypes.byref(config))
        if not self._decoder:
            raise MemoryError("no memory for the decoder's working arrays")
        self._destroy = weakref.finalize(self, library.handle.octavo_decoder_destroy, self._decoder)

    def _layer(self, index: int, rope: int, window: int | None) -> LayerArgs:
        spec, prefix = self._spec, f"layers.{index}."
        return LayerArgs(
            *(_matrix(self._weights.matrix(prefix + n)) for n in ("qkv", "o", "gate_up", "down")),
            self._norm(prefix + "attn_norm"),
            self._norm(prefix + "q_norm") if spec.qk_norm else None,
            self._norm(prefix + "k_norm") if spec.qk_norm else None,
            self._norm(prefix + "post_attn_norm") if spec.post_norms else None,
            self._norm(prefix + "mlp_norm"),
            self._norm(prefix + "post_mlp_norm") if spec.post_norms else None,
            rope,
            window or 0,
        )

    def _norm(self, name: str) -> int:
        return int(self._weights.norm(name).ctypes.data)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights as packed."""
        return self._weights.nbytes

    @property
    def phase_seconds(self) -> dict[str, float]:
        """Wall time of all steps so far, by part of the step."""
        seconds = (ctypes.c_double * len(PHASES))()
        self._handle.octavo_decoder_phase_seconds(self._decoder, seconds)
        return dict(zip(PHASES, seconds, strict=True))

    def allocate_kv(self, num_blocks: int, block_size: int) -> None:
        """Makes the KV pool: zero pages that take memory as they are written."""
        per_block = kv_block_bytes(self._library, self._spec, self._kv_dtype, block_size)
        pool = mmap.mmap(-1, num_blocks * per_block)
        if sys.platform == "linux":
            pool.madvise(mmap.MADV_HUGEPAGE)  # blocks lie anywhere: fewer misses in the TLB
        base = ctypes.addressof(ctypes.c_char.from_buffer(pool))
        self._handle.octavo_decoder_set_kv(
            self._decoder, base, num_blocks, block_size, KV_DTYPES[self._kv_dtype]
        )
        self._pool = pool

    def pack_adapter(self, adapter: LoraAdapter) -> PackedAdapter:
        """An adapter in bfloat16, for `set_adapter`.

        Raises ValueError, naming the matrix, for one that does not fit the model or is not finite.
        """
        return pack_adapter(self._spec, adapter)

    def set_adapter(self, slot: int, adapter: PackedAdapter | None) -> None:
        """Puts an adapter into a slot or empties it. Raises MemoryError, TypeError for another
        decoder's."""
        if adapter is not None and not isinstance(adapter, CpuAdapter):
            raise TypeError(f"{type(adapter).__name__} is no adapter of this decoder")
        matrices = None if adapter is None else adapter.matrices
        if self._handle.octavo_decoder_set_adapter(self._decoder, slot, matrices):
            raise MemoryError(f"no memory for the adapter of slot {slot}")
        if adapter is None:
            self._adapters.pop(slot, None)
        else:
            self._adapters[slot] = adapter

    def _checked_masks(self, masks: UInt32s) -> int:
        """The number of masks. Raises ValueError for masks of another vocabulary."""
        words = -(-self._spec.vocab_size // 32)
        if masks.shape[1] != words:
            raise ValueError(f"masks have {masks.shape[1]} words, the vocabulary needs {words}")
        return len(masks)

    def step(self, inputs: StepInputs) -> StepResult:
        """Computes one step. Raises ValueError for inputs that do not fit, before any is computed,
        and MemoryError."""
        picks = inputs.picks
        token_ids = np.empty(len(picks.rows), np.int32)
        logits = np.empty((len(inputs.logits_rows), self._spec.vocab_size), np.float32)
        hidden = None
        if inputs.hidden_rows is not None:
            hidden = np.empty((len(inputs.hidden_rows), self._spec.hidden_size), np.float32)
        arrays = (
            *(inputs.token_ids, inputs.positions, inputs.slot_mapping, inputs.query_start_loc),
            *(inputs.seq_lens, inputs.block_tables, picks.rows, picks.temperature, picks.top_k),
            *(picks.top_p, picks.min_p, picks.draw, picks.masks, picks.mask_of),
            *(inputs.logits_rows, inputs.hidden_rows, inputs.adapters),
            *(token_ids, logits, hidden),
        )
        args = StepArgs(
            *(None if array is None else array.ctypes.data for array in arrays),
            len(inputs.token_ids),
            len(inputs.seq_lens),
            inputs.block_tables.shape[1],
            len(token_ids),
            len(logits),
            0 if picks.masks is None else self._checked_masks(picks.masks),
            0 if hidden is None else len(hidden),
        )
        status = self._handle.octavo_decoder_step(self._decoder, ctypes.byref(args))
        if status == _OUT_OF_MEMORY:
            raise MemoryError(f"no memory for a step of {len(inputs.token_ids)} tokens")
        if status:
            raise ValueError(_MESSAGES[status](args))
        return StepResult(token_ids, logits, args.cpu_seconds, hidden)


def _matrix(view: MatrixView) -> MatrixArgs:
    return MatrixArgs(
        view.address,
        view.bias_address,
        view.block_bytes,
        view.num_blocks,
        view.cols,
        view.group,
        view.format,
    )
