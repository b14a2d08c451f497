"""The safetensors files of a directory, single or in shards, as one set of tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from engine_svc.loader.checks import some
from engine_svc.loader.safetensors_header import TensorEntry, read_header
from engine_svc.models.errors import ModelError
from kernels.backend import StoredTensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

# The scheme that weights of each stored type are given in.
SCHEMES = {"F64": "F32", "F32": "F32", "F16": "F16", "BF16": "BF16"}


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """Verified files: every tensor with the file that holds it."""

    directory: Path
    file_of: Mapping[str, str]
    entries: Mapping[str, TensorEntry]

    @property
    def num_bytes(self) -> int:
        """Bytes of all files on disk."""
        return sum((self.directory / f).stat().st_size for f in set(self.file_of.values()))


def read_files(directory: Path) -> CheckpointFiles:
    """Checks all headers and the index. Raises ModelError naming the file that is wrong."""
    if (directory / SINGLE).is_file():
        entries = read_header(directory / SINGLE)
        return CheckpointFiles(directory, dict.fromkeys(entries, SINGLE), entries)
    if (directory / INDEX).is_file():
        return _read_shards(directory)
    pickles = sorted(p.name for p in directory.glob("*.bin"))
    if pickles:
        raise ModelError(
            f"{some(pickles)}: pickled weights can run code and are never loaded; "
            "convert the model to safetensors"
        )
    raise ModelError(f"{directory.name} has neither {SINGLE} nor {INDEX}")


def _read_shards(directory: Path) -> CheckpointFiles:
    file_of = _weight_map(directory / INDEX)
    entries: dict[str, TensorEntry] = {}
    for shard in sorted(set(file_of.values())):
        if Path(shard).name != shard:
            raise ModelError(f"{INDEX}: {shard!r} is not a file name")
        if not (directory / shard).is_file():
            raise ModelError(f"{INDEX} names the shard {shard}, which is missing")
        inside = read_header(directory / shard)
        listed = {name for name, file in file_of.items() if file == shard}
        if absent := sorted(listed - inside.keys()):
            raise ModelError(f"{shard} lacks tensors that {INDEX} places there: {some(absent)}")
        if extra := sorted(inside.keys() - listed):
            raise ModelError(f"{shard} holds tensors that {INDEX} does not list: {some(extra)}")
        entries |= inside
    return CheckpointFiles(directory, file_of, entries)


def _weight_map(path: Path) -> dict[str, str]:
    try:
        index: Any = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise ModelError(f"{path.name} is not JSON: {error}") from error
    files = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(files, dict) or not all(isinstance(f, str) for f in files.values()):
        raise ModelError(f"{path.name}: weight_map must map tensor names to file names")
    return files


@dataclass(frozen=True, slots=True)
class MappedFiles:
    """Tensors of verified files as they are there, each file mapped when it is first asked for."""

    files: CheckpointFiles
    _mapped: dict[str, npt.NDArray[np.uint8]] = field(default_factory=dict)

    def entry(self, name: str) -> TensorEntry:
        """Type, shape and place of a tensor."""
        return self.files.entries[name]

    def file_of(self, name: str) -> str:
        """The file that has a tensor."""
        return self.files.file_of[name]

    def bytes_of(self, name: str) -> npt.NDArray[np.uint8]:
        """A tensor's bytes, flat: a view of the mapped file."""
        file, entry = self.file_of(name), self.entry(name)
        if file not in self._mapped:
            path = self.files.directory / file
            self._mapped[file] = np.memmap(path, mode="r").view(np.ndarray)
        return self._mapped[file][entry.begin : entry.end]


@dataclass(slots=True)
class SafetensorsSource:
    """`WeightSource` over verified files.

    Weights are views of the memory-mapped files, but for F64, which becomes F32.
    """

    files: CheckpointFiles
    names: Mapping[str, str]  # canonical name → name in the files
    mapped: MappedFiles = field(init=False)

    def __post_init__(self) -> None:
        self.mapped = MappedFiles(self.files)
        for name in self.names.values():
            dtype = self.files.entries[name].dtype
            if dtype not in SCHEMES:
                raise ModelError(
                    f"{self.files.file_of[name]}: {name} is stored as {dtype}; "
                    f"{', '.join(SCHEMES)} are supported"
                )

    @property
    def total_bytes(self) -> int:
        """Bytes that `load` will give over all names."""
        entries = [self.files.entries[name] for name in self.names.values()]
        return sum(
            4 * math.prod(entry.shape) if entry.dtype == "F64" else entry.num_bytes
            for entry in entries
        )

    def scheme(self, name: str) -> str:
        """The `StoredTensor.scheme` of one weight, without reading it."""
        return SCHEMES[self.files.entries[self.names[name]].dtype]

    def load(self, name: str) -> StoredTensor:
        """One weight by its canonical name, in the file's own type."""
        stored = self.names[name]
        entry, data = self.mapped.entry(stored), self.mapped.bytes_of(stored)
        if entry.dtype == "F64":
            data = data.view(np.float64).astype(np.float32).view(np.uint8)
        return StoredTensor(self.scheme(name), entry.shape, data)
