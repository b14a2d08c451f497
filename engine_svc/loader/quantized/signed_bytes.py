"""The layouts of compressed-tensors with integer codes: pack-quantized and int-quantized.

    pack-quantized   weight_packed [out, in / 8]        a word: 8 inputs (4 of 8 bits), lowest first
                     weight_zero_point [out / 8, groups]  a word: 8 outputs
                     weight_shape [2]                   out, in
                     codes and zero points are stored plus half their range, as unsigned numbers
    int-quantized    weight [out, in] int8, weight_zero_point [out, groups] int8
    both             weight_scale [out, groups]         w = scale · (code - zero)

Format: https://github.com/vllm-project/compressed-tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine_svc.loader.quantized.linear import (
    FLOATS,
    Expected,
    coded_scheme,
    columns_of_groups,
    nibbles,
    num_groups,
)
from kernels.coded import CodedRows

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from engine_svc.loader.quantized.linear import Part
    from kernels.coded import Codes, Floats

_INT8_ZERO = 128
WHOLE = 0  # a group that is the whole matrix


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """pack-quantized."""

    bits: int  # 4 or 8
    group: int  # columns; -1 has all of a row in one, WHOLE all of the matrix
    symmetric: bool
    act_order: bool  # columns of a group are anywhere

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.bits} bit, {_group_label(self.group)}"

    codes = "weight_packed"

    @property
    def _codes_of_word(self) -> int:
        return 32 // self.bits

    def problem(self, shape: tuple[int, int]) -> str | None:
        """As `LinearFormat`."""
        return _group_problem(shape, self.group)

    def tensors(self, shape: tuple[int, int]) -> Mapping[str, Expected]:
        """As `LinearFormat`."""
        rows, cols = shape
        groups, per_word = num_groups(cols, self.group or -1), self._codes_of_word
        found = {
            "weight_packed": Expected(("I32",), ((rows, -(-cols // per_word)),)),
            "weight_scale": Expected(FLOATS, _scale_shapes(rows, groups, self.group)),
            "weight_shape": Expected(("I64", "I32"), ((2,),)),
            "weight_g_idx": Expected(("I32",), ((cols,),), optional=not self.act_order),
        }
        if not self.symmetric:
            shapes = (-(-rows // per_word), groups), (rows, groups)
            found["weight_zero_point"] = Expected(("I32", "I8"), shapes)
        return found

    def scheme(self, shape: tuple[int, int]) -> str:
        """As `LinearFormat`."""
        return coded_scheme(
            self.bits,
            shape[1],
            self.group or -1,
            symmetric=self.symmetric,
            ordered=not self.act_order,
        )

    def rows(
        self, parts: Mapping[str, Part], shape: tuple[int, int], start: int, stop: int
    ) -> CodedRows:
        """As `LinearFormat`."""
        stated = tuple(int(size) for size in parts["weight_shape"].ints())
        if stated != shape:
            raise ValueError(f"weight_shape says {list(stated)}, the model needs {list(shape)}")
        packed = parts["weight_packed"].words()[start:stop].reshape(stop - start, -1)
        codes = packed if self.bits == 8 else nibbles(packed)
        return CodedRows(
            codes=codes[:, : shape[1]],
            scales=_some_scales(parts["weight_scale"], shape[0], start, stop),
            zeros=self._zeros(parts.get("weight_zero_point"), shape[0], start, stop),
            groups=self._groups(parts.get("weight_g_idx"), shape[1]),
        )

    def _zeros(self, part: Part | None, num_rows: int, start: int, stop: int) -> Codes | int:
        middle = 1 << (self.bits - 1)
        if part is None or self.symmetric:
            return middle
        if part.dtype == "I8":  # as older versions wrote it
            signed = part.data.view(np.int8).reshape(part.shape)[start:stop]
            return (signed.astype(np.int16) + middle).astype(np.uint8)
        words = np.ascontiguousarray(part.words().swapaxes(0, 1))  # [groups, words, 4]
        packed = words.reshape(words.shape[0], -1)
        zeros = packed if self.bits == 8 else nibbles(packed)
        return np.ascontiguousarray(zeros[:, :num_rows][:, start:stop].T)

    def _groups(self, part: Part | None, cols: int) -> npt.NDArray[np.int32] | None:
        if not self.act_order or part is None:
            return columns_of_groups(cols, self.group or -1)
        groups = part.ints()
        if groups.min() < 0 or groups.max() >= num_groups(cols, self.group):
            raise ValueError(f"weight_g_idx names group {groups.max()}, beyond the scales")
        return groups.astype(np.int32)


@dataclass(frozen=True, slots=True)
class IntLinear:
    """int-quantized."""

    group: int  # columns; -1 has all of a row in one, WHOLE all of the matrix
    symmetric: bool

    @property
    def label(self) -> str:
        """For people."""
        return f"8 bit, {_group_label(self.group)}"

    codes = "weight"

    def problem(self, shape: tuple[int, int]) -> str | None:
        """As `LinearFormat`."""
        return _group_problem(shape, self.group)

    def tensors(self, shape: tuple[int, int]) -> Mapping[str, Expected]:
        """As `LinearFormat`."""
        rows, cols = shape
        shapes = _scale_shapes(rows, num_groups(cols, self.group or -1), self.group)
        found = {
            "weight": Expected(("I8",), (shape,)),
            "weight_scale": Expected(FLOATS, shapes),
        }
        if not self.symmetric:
            found["weight_zero_point"] = Expected(("I8",), shapes)
        return found

    def scheme(self, shape: tuple[int, int]) -> str:
        """As `LinearFormat`."""
        group = self.group or -1
        return coded_scheme(8, shape[1], group, symmetric=self.symmetric, ordered=True)

    def rows(
        self, parts: Mapping[str, Part], shape: tuple[int, int], start: int, stop: int
    ) -> CodedRows:
        """As `LinearFormat`."""
        codes = parts["weight"].data.reshape(shape)[start:stop] ^ np.uint8(_INT8_ZERO)
        zeros: Codes | int = _INT8_ZERO
        if not self.symmetric:
            part = parts["weight_zero_point"]
            unsigned = _by_row(part.data ^ np.uint8(_INT8_ZERO), shape[0])
            zeros = np.ascontiguousarray(unsigned[start:stop])
        return CodedRows(
            codes=codes,
            scales=_some_scales(parts["weight_scale"], shape[0], start, stop),
            zeros=zeros,
            groups=columns_of_groups(shape[1], self.group or -1),
        )


def _group_label(group: int) -> str:
    if group == WHOLE:
        return "one scale for a matrix"
    return "a scale for each output" if group == -1 else f"groups of {group}"


def _group_problem(shape: tuple[int, int], group: int) -> str | None:
    if group > 0 and shape[1] % group:
        return f"its {shape[1]} inputs are no multiple of the group_size {group}"
    return None


def _scale_shapes(rows: int, groups: int, group: int) -> tuple[tuple[int, ...], ...]:
    if group == WHOLE:
        return (1,), (), (1, 1)
    return ((rows, groups),) if groups > 1 else ((rows, 1), (rows,))


def _by_row(values: npt.NDArray[np.uint8], num_rows: int) -> npt.NDArray[np.uint8]:
    """[rows, groups] of a value for each row and group, or of one for all."""
    return (
        np.broadcast_to(values.reshape(-1, 1), (num_rows, 1))
        if values.size == 1
        else (values.reshape(num_rows, -1))
    )


def _some_scales(part: Part, num_rows: int, start: int, stop: int) -> Floats:
    values = part.floats()
    if values.size == 1:
        return np.full((stop - start, 1), values.reshape(-1)[0], np.float32)
    return np.ascontiguousarray(values.reshape(num_rows, -1)[start:stop])
