"""An encoder's directory as Hugging Face and sentence-transformers lay it out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from octavo.fingerprint import tokenizer_sha256, weights_version

from engine_svc.loader.checks import check_weights
from engine_svc.loader.hf_directory import main_dtype, remote_code
from engine_svc.loader.safetensors_files import SafetensorsSource, read_files
from engine_svc.loader.sentence_files import read_max_length, read_pooling
from engine_svc.loader.special_tokens import read_json
from engine_svc.models.encoder_registry import encoder_family, is_classifier, understand_encoder
from engine_svc.models.errors import ModelError

if TYPE_CHECKING:
    from pathlib import Path

    from engine_svc.loader.safetensors_files import CheckpointFiles
    from engine_svc.models.encoder_family import EncoderFamily
    from kernels.backend import WeightSource
    from kernels.encoder import EncoderSpec

# What BERT's norms were called before, in checkpoints that are still about.
_OLD_NAMES = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}


@dataclass(frozen=True, slots=True)
class OpenedEncoder:
    """An encoder that is ready to be loaded by a back end."""

    spec: EncoderSpec
    source: WeightSource
    family: str
    format: str  # for people
    max_len: int  # tokens of the longest input, by default
    notices: tuple[str, ...]  # for the operator, at start-up
    tokenizer_sha256: str
    weights_version: str
    num_parameters: int
    file_bytes: int


def holds_encoder(path: Path) -> bool:
    """Whether `path` is a directory with an encoder. Raises ModelError for a damaged config."""
    if not path.is_dir():
        return False
    return encoder_family(read_json(path / "config.json")) is not None


def open_encoder(path: Path) -> OpenedEncoder:
    """Reads and checks everything but the weights' values. Raises ModelError."""
    config = read_json(path / "config.json")
    family = encoder_family(config)
    if family is None:
        raise ModelError(f"{path.name} has no encoder")
    pooling, notice = read_pooling(path)
    spec = understand_encoder(family, config, pooling)
    files = read_files(path)
    names = _resolve(family, spec, files)
    shapes = spec.weight_shapes()
    present = {name: entry.shape for name, entry in files.entries.items()}
    check_weights({names[name]: shape for name, shape in shapes.items()}, present, path.name)
    length = read_max_length(path) or spec.max_position
    count = len(set(files.file_of.values()))
    return OpenedEncoder(
        spec=spec,
        source=SafetensorsSource(files, names),
        family=family.name,
        format=f"safetensors, {count} file{'s' * (count > 1)}, {main_dtype(files, names)}",
        max_len=min(length, spec.max_position),
        notices=(
            *([notice] if notice and not is_classifier(family, config) else []),
            *(
                ["auto_map is ignored: code that comes with a model is never run"]
                if "auto_map" in config
                else []
            ),
            *remote_code(path),
        ),
        tokenizer_sha256=tokenizer_sha256(path),
        weights_version=weights_version(path),
        num_parameters=sum(math.prod(shape) for shape in shapes.values()),
        file_bytes=files.num_bytes,
    )


def _resolve(family: EncoderFamily, spec: EncoderSpec, files: CheckpointFiles) -> dict[str, str]:
    """Canonical names to those in the files, which may lack the family's prefix."""
    has_prefix = any(name.startswith(family.prefix) for name in files.entries)
    names = family.weight_names(spec, family.prefix if has_prefix else "")
    for name, stored in names.items():
        if stored in files.entries:
            continue
        for new, old in _OLD_NAMES.items():
            if stored.endswith(new) and stored.removesuffix(new) + old in files.entries:
                names[name] = stored.removesuffix(new) + old
    return names
