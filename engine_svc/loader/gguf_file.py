"""A GGUF file as a model: metadata to spec, tensors to canonical weights."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from gguf.constants import GGMLQuantizationType
from octavo.fingerprint import tokenizer_sha256, weights_version

from engine_svc.loader.checks import check_weights, some
from engine_svc.loader.gguf_config import config_from_gguf
from engine_svc.loader.gguf_header import GgufHeader, GgufTensor, read_gguf_header
from engine_svc.loader.opened import OpenedModel
from engine_svc.loader.special_tokens import token_ids
from engine_svc.models.errors import ModelError
from engine_svc.models.family import GGUF_LAYER_NAMES, layer_names
from engine_svc.models.fields import checked_number
from engine_svc.models.registry import understand
from kernels.backend import StoredTensor
from kernels.spec import DecoderSpec, RopeKind, RopeSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]

_DENSE = {
    GGMLQuantizationType.F32: "float32",
    GGMLQuantizationType.F16: "float16",
    GGMLQuantizationType.BF16: "bfloat16",
}
# Those that the gguf package can decode.
_QUANTISED = frozenset(
    GGMLQuantizationType[name]
    for name in (
        "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL",
        "IQ4_XS", "IQ3_XXS", "IQ3_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ1_S", "IQ1_M", "TQ1_0",
        "TQ2_0", "MXFP4",
    )
)  # fmt: skip

_SAMPLING_KEYS = {
    "temperature": "general.sampling.temp",
    "top_p": "general.sampling.top_p",
    "top_k": "general.sampling.top_k",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")

_ROPE_FREQS = "rope_freqs.weight"
# Llama 3.1's published values. A file keeps the factors that follow from them, not the values.
_LLAMA3 = RopeSpec(
    kind=RopeKind.LLAMA3, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position=8192
)


def open_gguf(path: Path) -> OpenedModel:
    """Reads and checks everything but the weights' values. Raises ModelError."""
    header = read_gguf_header(path)
    config, notices = config_from_gguf(header)
    understood = understand(config)
    data = np.memmap(path, mode="r").view(np.ndarray)
    spec = _with_llama3_rope(understood.spec, header, data)
    names = _names(spec)
    shapes = {name: tensor.shape for name, tensor in header.tensors.items()}
    wanted = {names[name]: shape for name, shape in spec.weight_shapes().items()}
    check_weights(wanted, shapes, path.name)
    if unused := sorted(header.tensors.keys() - wanted.keys() - {_ROPE_FREQS}):
        notices.append(f"{len(unused)} weights are not used: {some(unused)}")
    kind = _main_kind(header, names)
    tokens = {
        key: token_ids(header.metadata, f"tokenizer.ggml.{key}")
        for key in (*_END_KEYS, "bos_token_id")
    }
    return OpenedModel(
        spec=spec,
        source=GgufSource(
            path.name,
            data,
            header.tensors,
            names,
            interleaved_heads=_interleaved_heads(header, spec),
            norm_offset=spec.norm_offset,
        ),
        family=understood.family.name,
        format=f"GGUF, {kind.name}",
        dtype=_DENSE.get(kind, "float32"),
        eos_token_ids=frozenset(i for key in _END_KEYS for i in tokens[key]),
        bos_token_id=next(iter(tokens["bos_token_id"]), None),
        default_sampling=_sampling(header.metadata),
        max_position=spec.max_position,
        notices=(*understood.notices, *notices),
        tokenizer_sha256=tokenizer_sha256(path),
        weights_version=weights_version(path),
        num_parameters=sum(math.prod(shape) for shape in spec.weight_shapes().values()),
        file_bytes=path.stat().st_size,
    )


@dataclass(frozen=True, slots=True)
class GgufSource:
    """`WeightSource` over a verified file. Weights are views of the memory-mapped file, except:

    q and k of a llama file, whose rows llama.cpp reorders so that rotary pairs are neighbours, are
    put back (whole rows, so their blocks stay as they are); and norms that the family stores less
    an offset, to which llama.cpp has added it, have it taken off again, in float32.
    """

    file: str
    data: Bytes
    tensors: Mapping[str, GgufTensor]
    names: Mapping[str, str]  # canonical name → name in the file
    interleaved_heads: Mapping[str, int]  # heads of the weights whose rows are reordered, by part
    norm_offset: float

    def __post_init__(self) -> None:
        for name in self.names.values():
            kind, shape = self.tensors[name].kind, self.tensors[name].shape
            # Only matrices have blocks that belong to one row.
            if kind not in _DENSE and (kind not in _QUANTISED or len(shape) != 2):
                raise ModelError(
                    f"{self.file}: {name} {list(shape)} has the type {kind.name}, not supported"
                )

    @property
    def total_bytes(self) -> int:
        """Bytes that `load` will give over all names."""
        return sum(
            4 * math.prod(self.tensors[stored].shape)
            if self._has_offset(name)
            else self.tensors[stored].num_bytes
            for name, stored in self.names.items()
        )

    def scheme(self, name: str) -> str:
        """The `StoredTensor.scheme` of one weight, without reading it."""
        return "F32" if self._has_offset(name) else self.tensors[self.names[name]].kind.name

    def load(self, name: str) -> StoredTensor:
        """One weight by its canonical name, in the file's own type or blocks."""
        info = self.tensors[self.names[name]]
        data = self.data[info.offset : info.offset + info.num_bytes]
        heads = self.interleaved_heads.get(name.rpartition(".")[2])
        if heads is not None:
            rows = data.reshape(info.shape[0], -1)
            data = rows[_original_rows(info.shape[0], heads)].ravel()
        stored = StoredTensor(info.kind.name, info.shape, data)
        if self._has_offset(name):
            values = stored.to_float32() - np.float32(self.norm_offset)
            return StoredTensor("F32", info.shape, values.view(np.uint8))
        return stored

    def _has_offset(self, name: str) -> bool:
        return self.norm_offset != 0.0 and name.endswith("norm")


def _original_rows(num_rows: int, heads: int) -> npt.NDArray[np.int64]:
    """Where each row of a q or k projection lies in a llama file.

    A head's rows are [first half | second half] for us, and alternate between the halves there.
    """
    half = num_rows // heads // 2
    return np.arange(num_rows).reshape(heads, half, 2).transpose(0, 2, 1).ravel()


def _interleaved_heads(header: GgufHeader, spec: DecoderSpec) -> dict[str, int]:
    if header.metadata["general.architecture"] != "llama":
        return {}
    return {
        "q": spec.num_heads,
        "q_bias": spec.num_heads,
        "k": spec.num_kv_heads,
        "k_bias": spec.num_kv_heads,
    }


def _names(spec: DecoderSpec) -> dict[str, str]:
    names = {"embed": "token_embd.weight", "final_norm": "output_norm.weight"}
    if not spec.tied_head:
        names["lm_head"] = "output.weight"
    return names | layer_names(spec, "blk.", GGUF_LAYER_NAMES)


def _with_llama3_rope(spec: DecoderSpec, header: GgufHeader, data: Bytes) -> DecoderSpec:
    """Recognises Llama 3's rope scaling by its tensor of frequency divisors. Raises ModelError."""
    info = header.tensors.get(_ROPE_FREQS)
    if info is None:
        return spec
    divisors = data[info.offset : info.offset + info.num_bytes].view(np.float32)
    rope = replace(_LLAMA3, theta=spec.layers[0].rope.theta, factor=float(divisors.max()))
    expected = _llama3_divisors(rope, spec.head_dim)
    if info.kind != GGMLQuantizationType.F32 or not (
        divisors.shape == expected.shape and np.allclose(divisors, expected, rtol=1e-4)
    ):
        raise ModelError(f"{_ROPE_FREQS}: its rope scaling is not Llama 3's, and not supported")
    return replace(spec, layers=tuple(replace(layer, rope=rope) for layer in spec.layers))


def _llama3_divisors(rope: RopeSpec, head_dim: int) -> npt.NDArray[np.float64]:
    """By what Llama 3.1 divides rotary frequencies: fast ones by 1, slow ones by `factor`."""
    frequency = rope.theta ** -(np.arange(0, head_dim, 2) / head_dim)
    turns = rope.original_max_position * frequency / (2 * np.pi)  # over the trained length
    span = rope.high_freq_factor - rope.low_freq_factor
    smooth = np.clip((turns - rope.low_freq_factor) / span, 0, 1)
    return 1 / ((1 - smooth) / rope.factor + smooth)


def _main_kind(header: GgufHeader, names: Mapping[str, str]) -> GGMLQuantizationType:
    """The type of most parameters."""
    counts: Counter[GGMLQuantizationType] = Counter()
    for name in names.values():
        counts[header.tensors[name].kind] += math.prod(header.tensors[name].shape)
    return counts.most_common(1)[0][0]


def _sampling(metadata: Mapping[str, Any]) -> dict[str, float]:
    found = {}
    for key, stored in _SAMPLING_KEYS.items():
        value = metadata.get(stored)
        if value is not None:
            found[key] = 0.0 if value == 0 else checked_number(stored, value)
    return found
