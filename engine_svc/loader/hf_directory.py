"""A model directory as Hugging Face lays it out: JSON settings beside safetensors."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from octavo.fingerprint import tokenizer_sha256, weights_version

from engine_svc.loader.checks import check_weights, some
from engine_svc.loader.opened import OpenedModel
from engine_svc.loader.quantized.config import read_quantization
from engine_svc.loader.quantized.source import (
    CodedLinear,
    QuantizedSource,
    checked_linear,
    find_coded,
)
from engine_svc.loader.safetensors_files import (
    SCHEMES,
    CheckpointFiles,
    SafetensorsSource,
    read_files,
)
from engine_svc.loader.special_tokens import read_json, special_tokens
from engine_svc.models.errors import ModelError
from engine_svc.models.family import layer_names
from engine_svc.models.fields import checked_number
from engine_svc.models.registry import understand

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping
    from pathlib import Path

    from engine_svc.loader.quantized.rules import Quantization
    from engine_svc.models.family import Family
    from kernels.backend import WeightSource
    from kernels.spec import DecoderSpec

_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
SAMPLING_KEYS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")

# Where the decoder stands in a checkpoint: by itself, bare, or inside a model that also sees.
_PREFIXES = ("model.", "", "language_model.model.", "model.language_model.")
_HEADS = ("lm_head.weight", "language_model.lm_head.weight")
# Buffers that old versions saved; they follow from the configuration.
_HARMLESS_SUFFIXES = (".rotary_emb.inv_freq", ".masked_bias", ".attn.bias")
# Scales of what is rounded while it is computed, which the back ends do by scales of their own.
_COMPUTED_SCALES = (".input_scale", ".activation_scale", ".output_scale", ".input_zero_point",
                    ".k_scale", ".v_scale", ".q_scale", ".kv_scale")  # fmt: skip
_VISION = ("vision_tower.", "multi_modal_projector.", "model.vision_tower.",
           "model.multi_modal_projector.")  # fmt: skip


def open_directory(path: Path) -> OpenedModel:
    """Reads and checks everything but the weights' values. Raises ModelError."""
    config = read_json(path / "config.json")
    if not config:
        raise ModelError(f"{path.name} has no config.json, so it is not a model directory")
    generation = read_json(path / "generation_config.json")
    understood = understand(config)
    quantization = read_quantization(config)
    files = read_files(path)
    found = _resolve(understood.family, understood.spec, files, quantization)
    spec = found.spec
    text_config = config.get("text_config") or {}
    special = special_tokens(path, (generation, config, text_config))
    dtype = main_dtype(files, found.dense)
    quantized = "" if quantization is None else f", {quantization.label}"
    count = len(set(files.file_of.values()))
    return OpenedModel(
        spec=spec,
        source=found.source(files),
        family=understood.family.name,
        format=f"safetensors, {count} file{'s' * (count > 1)}, {dtype}{quantized}",
        dtype=dtype,
        eos_token_ids=special.eos_ids,
        bos_token_id=special.bos_id,
        default_sampling=_sampling(generation),
        max_position=spec.max_position,
        notices=(
            *understood.notices,
            *found.notices,
            *remote_code(path),
            *_unexpected(files, found.tensors),
        ),
        tokenizer_sha256=tokenizer_sha256(path),
        weights_version=weights_version(path),
        num_parameters=sum(math.prod(shape) for shape in spec.weight_shapes().values()),
        file_bytes=files.num_bytes,
        quantization=None if quantization is None else quantization.method,
    )


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where a checkpoint keeps what is not in a layer."""

    prefix: str
    head: str

    @classmethod
    def of(cls, present: Container[str]) -> _Layout:
        for prefix in _PREFIXES:
            if f"{prefix}norm.weight" in present:
                break
        else:
            prefix = _PREFIXES[0]
        return cls(prefix, next((h for h in _HEADS if h in present), _HEADS[0]))


@dataclass(frozen=True, slots=True)
class _Resolved:
    """Canonical names, and what the files have for them."""

    spec: DecoderSpec
    dense: Mapping[str, str]  # names in the files
    coded: Mapping[str, CodedLinear]
    notices: tuple[str, ...]

    @property
    def tensors(self) -> set[str]:
        """The names in the files of all that is used."""
        coded = (name for linear in self.coded.values() for name in linear.tensors.values())
        return {*self.dense.values(), *coded}

    def source(self, files: CheckpointFiles) -> WeightSource:
        """Gives the weights."""
        dense = SafetensorsSource(files, self.dense)
        return QuantizedSource(dense, self.coded) if self.coded else dense


def _resolve(
    family: Family, spec: DecoderSpec, files: CheckpointFiles, quantization: Quantization | None
) -> _Resolved:
    """Canonical names to those in the files; the head is tied or not by what the files hold."""
    modules = {name.rpartition(".")[0] for name in files.entries}
    coded = {}
    if quantization is not None:
        coded = find_coded(quantization, [f"{module}.weight" for module in modules], files)
    present = files.entries.keys() | coded.keys()
    layout = _Layout.of(present)
    embed, head = f"{layout.prefix}embed_tokens.weight", layout.head
    notices = []
    if spec.tied_head and head in present:
        if embed not in present:
            embed = head  # either may have been the one that was saved
        elif embed in coded or head in coded or not _same(files, embed, head):
            spec = replace(spec, tied_head=False)
            notices.append(
                f"tie_word_embeddings is set but {head} differs from {embed}: both are used"
            )
    names = {"embed": embed, "final_norm": f"{layout.prefix}norm.weight"}
    names |= layer_names(spec, f"{layout.prefix}layers.", family.hf_layer_names)
    if not spec.tied_head:
        names["lm_head"] = head
        if head not in present:
            raise ModelError(
                f"{files.directory.name}: {head} is missing, and tie_word_embeddings does not say "
                "that the embedding takes its place"
            )
    shapes = spec.weight_shapes()
    linears = {
        name: checked_linear(coded[names[name]], names[name], (shape[0], shape[1]), files)
        for name, shape in shapes.items()
        if names[name] in coded and len(shape) == 2
    }
    dense = {name: names[name] for name in shapes if name not in linears}
    if quantization is None:
        _refuse_unnamed_codes(dense.values(), files)
    shapes_in_files = {name: entry.shape for name, entry in files.entries.items()}
    wanted = {stored: shapes[name] for name, stored in dense.items()}
    check_weights(wanted, shapes_in_files, files.directory.name)
    return _Resolved(spec, dense, linears, tuple(notices))


def _refuse_unnamed_codes(weights: Iterable[str], files: CheckpointFiles) -> None:
    for weight in weights:
        for codes in ("qweight", "weight_packed"):
            name = f"{weight.removesuffix('.weight')}.{codes}"
            if weight not in files.entries and name in files.entries:
                raise ModelError(
                    f"{files.file_of[name]}: {name} is quantised, but config.json has no "
                    "quantization_config that says how"
                )


def _same(files: CheckpointFiles, first: str, second: str) -> bool:
    """Whether two tensors hold the same values."""
    source = SafetensorsSource(files, {first: first, second: second})
    one, other = source.load(first), source.load(second)
    if one.shape != other.shape:
        return False
    if one.scheme == other.scheme:
        return np.array_equal(one.data, other.data)
    return np.array_equal(one.to_float32(), other.to_float32())


def main_dtype(files: CheckpointFiles, names: Mapping[str, str]) -> str:
    """The type of most bytes."""
    sizes: Counter[str] = Counter()
    for name in names.values():
        sizes[files.entries[name].dtype] += files.entries[name].num_bytes
    return _DTYPES[SCHEMES[sizes.most_common(1)[0][0]]]


def _sampling(generation: Mapping[str, Any]) -> dict[str, float]:
    """The sampling defaults that generation_config.json sets; zero is a value."""
    found = {}
    for key in SAMPLING_KEYS:
        value = generation.get(key)
        if value is not None:
            found[key] = 0.0 if value == 0 else checked_number(key, value)
    return found


def _unexpected(files: CheckpointFiles, used: set[str]) -> list[str]:
    unused = [
        name
        for name in sorted(files.entries.keys() - used - set(_HEADS))
        if not name.endswith(_HARMLESS_SUFFIXES) and not name.startswith(_VISION)
    ]
    scales = [name for name in unused if name.endswith(_COMPUTED_SCALES)]
    unused = [name for name in unused if not name.endswith(_COMPUTED_SCALES)]
    notices = [f"{len(unused)} weights are not used: {some(unused)}"] if unused else []
    if scales:
        notices.append(
            f"{len(scales)} scales of activations or KV cache are not used, as both get their own "
            f"while they are computed: {some(scales)}"
        )
    return notices


def remote_code(path: Path) -> list[str]:
    """Notices for files that name code of the model's own, which is never run."""
    named = [
        name
        for name in ("tokenizer_config.json", "preprocessor_config.json", "processor_config.json")
        if "auto_map" in read_json(path / name)
    ]
    return [f"{name}: auto_map is ignored" for name in named]
