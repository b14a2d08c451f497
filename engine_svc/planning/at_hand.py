"""Opens whatever is at hand of a model: all of it, or only its configuration."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from engine_svc.loader.encoder_directory import OpenedEncoder, holds_encoder, open_encoder
from engine_svc.loader.open_model import open_model
from engine_svc.loader.opened import OpenedModel
from engine_svc.loader.quantized.config import read_quantization
from engine_svc.loader.sentence_files import read_max_length, read_pooling
from engine_svc.loader.special_tokens import read_json
from engine_svc.models.encoder_registry import encoder_family, understand_encoder
from engine_svc.models.errors import ModelError
from engine_svc.models.family import layer_names
from engine_svc.models.registry import understand

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from engine_svc.loader.quantized.rules import Quantization
    from engine_svc.models.encoder_family import EncoderFamily
    from engine_svc.models.registry import Understood

_WEIGHT_FILES = ("*.safetensors", "*.gguf", "*.bin")
_SCHEMES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
_ELEMENT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_NO_WEIGHTS = "no weights at hand: sizes follow from the configuration"


@dataclass(frozen=True, slots=True)
class AbsentWeights:
    """`WeightSource` of weights that are not there, all dense ones in one type."""

    dtype: str
    total_bytes: int  # that the weights would have
    coded: Mapping[str, str] = field(default_factory=dict)  # schemes of quantised ones

    def scheme(self, name: str) -> str:
        """The scheme that a weight would have."""
        return self.coded.get(name, _SCHEMES[self.dtype])

    def load(self, name: str) -> NoReturn:
        """Raises ModelError."""
        raise ModelError(f"{name} cannot be loaded: the model is known by its configuration only")


def open_at_hand(path: Path) -> OpenedModel | OpenedEncoder:
    """As the engine would open a model, or from its configuration where no weights are beside it.

    `path` is a directory, a .gguf file, or a configuration in a .json file. Raises ModelError.
    """
    if path.suffix == ".json" and path.is_file():
        if path.name != "config.json" or not _has_weights(path.parent):
            return _from_config(path)
        path = path.parent
    if path.is_dir() and (path / "config.json").is_file() and not _has_weights(path):
        return _from_config(path / "config.json")
    return open_encoder(path) if holds_encoder(path) else open_model(path)


def has_weights(opened: OpenedModel | OpenedEncoder) -> bool:
    """Whether the model could be loaded."""
    return not isinstance(opened.source, AbsentWeights)


def _has_weights(directory: Path) -> bool:
    return any(True for pattern in _WEIGHT_FILES for _ in directory.glob(pattern))


def _from_config(path: Path) -> OpenedModel | OpenedEncoder:
    config = read_json(path)
    family = encoder_family(config)
    return _decoder(config) if family is None else _encoder(family, config, path.parent)


def _decoder(config: Mapping[str, Any]) -> OpenedModel:
    understood = understand(config)
    spec = understood.spec
    dtype, notice = _dtype(config)
    quantization = read_quantization(config)
    quantized = "" if quantization is None else f", {quantization.label}"
    count = sum(math.prod(shape) for shape in spec.weight_shapes().values())
    source = _absent(understood, dtype, quantization)
    return OpenedModel(
        spec=spec,
        source=source,
        family=understood.family.name,
        format=f"configuration only, {dtype}{quantized}",
        dtype=dtype,
        eos_token_ids=frozenset(),
        bos_token_id=None,
        default_sampling={},
        max_position=spec.max_position,
        notices=(f"{_NO_WEIGHTS}{notice}", *understood.notices),
        tokenizer_sha256="",
        weights_version="",
        num_parameters=count,
        file_bytes=source.total_bytes,
        quantization=None if quantization is None else quantization.method,
    )


def _absent(understood: Understood, dtype: str, quantization: Quantization | None) -> AbsentWeights:
    """Weights of a checkpoint that is named and quantised as most are."""
    spec, coded, total = understood.spec, {}, 0
    names = {"embed": "model.embed_tokens.weight", "lm_head": "lm_head.weight"}
    names |= layer_names(spec, "model.layers.", understood.family.hf_layer_names)
    for name, shape in spec.weight_shapes().items():
        format_ = None
        if quantization is not None and len(shape) == 2 and name != "embed":
            module = names[name].removesuffix(".weight")
            format_ = quantization.expected(module, is_head=name == "lm_head")
        if format_ is None:
            total += math.prod(shape) * _ELEMENT_BYTES[dtype]
        else:
            rows, cols = shape
            coded[name] = format_.scheme((rows, cols))
            total += sum(part.num_bytes for part in format_.tensors((rows, cols)).values())
    return AbsentWeights(dtype, total, coded)


def _encoder(family: EncoderFamily, config: Mapping[str, Any], directory: Path) -> OpenedEncoder:
    pooling, _ = read_pooling(directory)
    spec = understand_encoder(family, config, pooling)
    count = sum(math.prod(shape) for shape in spec.weight_shapes().values())
    source = AbsentWeights("float32", count * _ELEMENT_BYTES["float32"])
    return OpenedEncoder(
        spec=spec,
        source=source,
        family=family.name,
        format="configuration only",
        max_len=min(read_max_length(directory) or spec.max_position, spec.max_position),
        notices=(_NO_WEIGHTS,),
        tokenizer_sha256="",
        weights_version="",
        num_parameters=count,
        file_bytes=source.total_bytes,
    )


def _dtype(config: Mapping[str, Any]) -> tuple[str, str]:
    """The type that the configuration says weights have, and a clause where it says none."""
    for values in (config, config.get("text_config") or {}):
        for key in ("dtype", "torch_dtype"):
            name = str(values.get(key)).removeprefix("torch.")
            if name in _SCHEMES:
                return name, ""
    return "bfloat16", ", which names no type, so bfloat16 is assumed"
