"""A quantised checkpoint as a `WeightSource`: some matrices coded, all other weights dense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_svc.loader.quantized.linear import Part
from engine_svc.models.errors import ModelError
from kernels.coded import decoded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from engine_svc.loader.quantized.linear import LinearFormat
    from engine_svc.loader.quantized.rules import Quantization
    from engine_svc.loader.safetensors_files import (
        CheckpointFiles,
        MappedFiles,
        SafetensorsSource,
    )
    from kernels.backend import StoredTensor
    from kernels.coded import CodedRows, CodedTensor, Floats

_WEIGHT = ".weight"
_CODED_DTYPES = ("I8", "F8_E4M3")  # of codes that are called weight, like dense ones


@dataclass(frozen=True, slots=True)
class CodedLinear:
    """Where a coded matrix is: its format, and its tensors by the names that the format has."""

    format: LinearFormat
    shape: tuple[int, int]
    tensors: Mapping[str, str]


def find_coded(
    quantization: Quantization, weights: Iterable[str], files: CheckpointFiles
) -> dict[str, LinearFormat]:
    """Which of the matrices `weights`, named as if dense, the files have codes of.

    Raises ModelError for one that the configuration leaves dense.
    """
    found = {}
    for weight in weights:
        module = weight.removesuffix(_WEIGHT)
        format_ = quantization.format_for(module)
        entry = None if format_ is None else files.entries.get(f"{module}.{format_.codes}")
        if format_ is None or entry is None:
            continue
        if format_.codes == "weight" and entry.dtype not in _CODED_DTYPES:
            continue
        if quantization.is_ignored(module):
            raise ModelError(
                f"{files.file_of[f'{module}.{format_.codes}']}: {module} is quantised, but "
                "config.json has it among the modules that are not"
            )
        found[weight] = format_
    return found


def checked_linear(
    format_: LinearFormat, weight: str, shape: tuple[int, int], files: CheckpointFiles
) -> CodedLinear:
    """The tensors of a coded matrix. Raises ModelError naming the one that is missing or wrong."""
    module = weight.removesuffix(_WEIGHT)
    file = files.file_of[f"{module}.{format_.codes}"]
    if problem := format_.problem(shape):
        raise ModelError(f"{file}: {module} cannot be quantised as it is said to be: {problem}")
    tensors = {}
    for part, expected in format_.tensors(shape).items():
        names = [f"{module}.{name}" for name in (part, expected.other_name) if name is not None]
        name = next((name for name in names if name in files.entries), None)
        if name is None:
            if expected.optional:
                continue
            raise ModelError(
                f"{file}: {' or '.join(names)} is missing, which {module}.{format_.codes} needs"
            )
        entry = files.entries[name]
        if entry.dtype not in expected.dtypes:
            raise ModelError(
                f"{files.file_of[name]}: {name} is stored as {entry.dtype}, "
                f"not as {' or '.join(expected.dtypes)}"
            )
        if entry.shape not in expected.shapes:
            raise ModelError(
                f"{files.file_of[name]}: {name} has shape {list(entry.shape)}, the configuration "
                f"asks for {' or '.join(str(list(wanted)) for wanted in expected.shapes)}"
            )
        tensors[part] = name
    return CodedLinear(format_, shape, tensors)


@dataclass(frozen=True, slots=True)
class MappedCodes:
    """A `CodedTensor` in memory-mapped files."""

    linear: CodedLinear
    files: MappedFiles

    @property
    def scheme(self) -> str:
        """As `CodedTensor`."""
        return self.linear.format.scheme(self.linear.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """As `CodedTensor`."""
        return self.linear.shape

    @property
    def nbytes(self) -> int:
        """As `CodedTensor`."""
        return sum(self.files.entry(name).num_bytes for name in self.linear.tensors.values())

    def rows(self, start: int, stop: int) -> CodedRows:
        """As `CodedTensor`."""
        parts = {}
        for part, name in self.linear.tensors.items():
            entry = self.files.entry(name)
            parts[part] = Part(entry.dtype, entry.shape, self.files.bytes_of(name))
        try:
            return self.linear.format.rows(parts, self.linear.shape, start, stop)
        except ValueError as error:
            name = next(iter(self.linear.tensors.values()))
            module = name.rpartition(".")[0]
            raise ModelError(f"{self.files.file_of(name)}: {module}: {error}") from error

    def to_float32(self) -> Floats:
        """As `CodedTensor`."""
        return decoded(self)


@dataclass(frozen=True, slots=True)
class QuantizedSource:
    """`WeightSource` over verified files."""

    dense: SafetensorsSource
    coded: Mapping[str, CodedLinear]  # by canonical name

    @property
    def total_bytes(self) -> int:
        """Bytes that `load` will give over all names."""
        return self.dense.total_bytes + sum(self._coded(name).nbytes for name in self.coded)

    def scheme(self, name: str) -> str:
        """The scheme of one weight, without reading it."""
        return self._coded(name).scheme if name in self.coded else self.dense.scheme(name)

    def load(self, name: str) -> StoredTensor | CodedTensor:
        """One weight by its canonical name."""
        return self._coded(name) if name in self.coded else self.dense.load(name)

    def _coded(self, name: str) -> MappedCodes:
        return MappedCodes(self.coded[name], self.dense.mapped)
