"""An adapter's directory, as PEFT saves it: adapter_config.json beside adapter_model.safetensors.

Everything is checked before it is used, and nothing in it is run. The version names the content: it
is the SHA-256 of the configuration's and the weights' digests.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine_svc.adapters.peft_config import parse_peft_config, read_config_bytes
from engine_svc.adapters.peft_names import check_targets, pairs_of
from engine_svc.loader.safetensors_files import SCHEMES
from engine_svc.loader.safetensors_header import read_header
from engine_svc.models.errors import ModelError
from kernels.backend import StoredTensor
from kernels.lora import LoraAdapter, LowRank, adapter_elements

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import BinaryIO

    from engine_svc.adapters.peft_names import Pair
    from engine_svc.loader.safetensors_header import TensorEntry
    from kernels.backend import Float32s
    from kernels.spec import DecoderSpec

WEIGHTS = "adapter_model.safetensors"
_PICKLE = "adapter_model.bin"
_MAX_HEADER_BYTES = 2 << 20  # as Python's objects a header takes up to thirty times as much
_MAX_ELEMENT_BYTES = 8
_UNCHANGED = ("st_ino", "st_size", "st_mtime_ns")  # of a file that was not touched


@dataclass(frozen=True, slots=True)
class BaseModel:
    """What an adapter has to fit."""

    spec: DecoderSpec
    family: str
    names: tuple[str, ...]  # by which an adapter may call it


@dataclass(frozen=True, slots=True)
class ReadAdapter:
    """An adapter as its files have it."""

    weights: LoraAdapter
    version: str  # hex
    rank: int
    notices: tuple[str, ...]


def read_adapter(directory: Path, base: BaseModel, max_rank: int) -> ReadAdapter:
    """Reads and checks an adapter.

    Raises ModelError, naming the field or tensor, for one that cannot be served or does not fit.
    """
    if not directory.is_dir():
        raise ModelError(f"{directory} is not a directory")
    raw = read_config_bytes(directory)
    config = parse_peft_config(raw)
    check_targets(config.target_modules, base.family)
    if config.max_rank > max_rank:
        raise ModelError(
            f"the adapter's rank {config.max_rank} is above --max-lora-rank {max_rank}"
        )
    path = _weights_file(directory)
    size_limit = _MAX_ELEMENT_BYTES * adapter_elements(base.spec, max_rank) + _MAX_HEADER_BYTES
    before = path.stat()
    if before.st_size > size_limit:
        raise ModelError(
            f"{WEIGHTS} has {before.st_size} bytes; an adapter of rank {max_rank} for this model "
            f"has less than {size_limit}"
        )
    digest = hashlib.sha256(hashlib.sha256(raw).digest() + _digest(path)).hexdigest()
    entries = read_header(path, _MAX_HEADER_BYTES)
    pairs = pairs_of(entries, base.family, base.spec.num_layers)
    shapes = base.spec.weight_shapes()
    matrices = {}
    with path.open("rb") as file:
        for name, pair in pairs.items():
            rank = config.ranks[pair.module]
            _check_shapes(pair, entries, rank, shapes[name])
            a, b = (_values(file, each, entries[each]) for each in (pair.a, pair.b))
            with np.errstate(over="ignore"):
                b *= np.float32(config.scale_of(pair.module, rank))
            _check_finite(b, f"{pair.b} times its scale")
            matrices[name] = LowRank(a, b)
    after = path.stat()
    if any(getattr(before, each) != getattr(after, each) for each in _UNCHANGED):
        raise ModelError(f"{WEIGHTS} was changed while it was read")
    adapter = LoraAdapter(matrices)
    notices = _other_base(config.base_model, base)
    return ReadAdapter(adapter, digest, adapter.rank, notices)


def _weights_file(directory: Path) -> Path:
    path = directory / WEIGHTS
    if path.is_file():
        return path
    if (directory / _PICKLE).exists():
        raise ModelError(
            f"{_PICKLE}: pickled weights can run code and are never loaded; save the adapter as "
            "safetensors"
        )
    raise ModelError(f"{directory.name} has no {WEIGHTS}")


def _digest(path: Path) -> bytes:
    """SHA-256 of a file, without holding it in memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _check_shapes(
    pair: Pair, entries: Mapping[str, TensorEntry], rank: int, shape: tuple[int, ...]
) -> None:
    """Raises ModelError for A and B that do not fit a matrix of this shape."""
    out, cols = shape
    found = entries[pair.a].shape
    if len(found) == 2 and found[0] != rank:
        raise ModelError(f"{pair.a} has rank {found[0]}, its configuration says {rank}")
    for name, wanted in ((pair.a, (rank, cols)), (pair.b, (out, rank))):
        if entries[name].shape != wanted:
            raise ModelError(
                f"{name} has shape {list(entries[name].shape)}, the model needs {list(wanted)}"
            )


def _values(file: BinaryIO, name: str, entry: TensorEntry) -> Float32s:
    """A matrix as float32. Raises ModelError for another type, or values that are not finite.

    It is read, not mapped: who cuts a mapped file short ends the process.
    """
    if entry.dtype not in SCHEMES:
        raise ModelError(f"{name} is stored as {entry.dtype}; {', '.join(SCHEMES)} are supported")
    file.seek(entry.begin)
    data = np.frombuffer(file.read(entry.num_bytes), dtype=np.uint8)
    if data.nbytes != entry.num_bytes:
        raise ModelError(f"{WEIGHTS} was changed while it was read")
    if entry.dtype == "F64":
        with np.errstate(over="ignore"):  # beyond float32 is infinite, and refused as that
            values = data.view(np.float64).astype(np.float32).reshape(entry.shape)
    else:
        values = StoredTensor(SCHEMES[entry.dtype], entry.shape, data).to_float32()
    _check_finite(values, name)
    return values


def _check_finite(values: Float32s, what: str) -> None:
    if not np.isfinite(values).all():
        raise ModelError(f"{what} has values that are not finite")


def _other_base(named: str, base: BaseModel) -> tuple[str, ...]:
    """A notice where the adapter names a model that the served one does not look like.

    Names are compared by their beginnings: "SmolLM2-135M-Instruct" may be served as "smollm2".
    """
    wanted = _last_part(named)
    names = [_last_part(name) for name in base.names]
    if not wanted or any(name.startswith(wanted) or wanted.startswith(name) for name in names):
        return ()
    return (f"it was made for {named[:200]}, by its own words",)


def _last_part(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2].lower()
