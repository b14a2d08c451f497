"""Codes of 4 or 8 bits packed into 32-bit words: AWQ's GEMM layout, and GPTQ's.

    AWQ     qweight [in, out / 8]       a word: 8 outputs, in the order 0 2 4 6 1 3 5 7
            qzeros  [groups, out / 8]   likewise
    GPTQ    qweight [in / 8, out]       a word: 8 inputs (4 of 8 bits), in order, lowest bits first
            qzeros  [groups, out / 8]   a word: 8 outputs; in the older of two versions the word is
                                        0x11111111 less (0x01010101 of 8 bits), borrows and all
            g_idx   [in]                the group of each input
    both    scales  [groups, out]       w = scale · (code - zero)

AWQ: arXiv 2306.00978 and AutoAWQ's packing. GPTQ: arXiv 2210.17323 and AutoGPTQ's; its versions
are told apart in GPTQModel's documentation as checkpoint_format gptq and gptq_v2.
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

_AWQ_CODES = 8  # of a word
_AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)  # where output i stands in its word


@dataclass(frozen=True, slots=True)
class AwqLinear:
    """A matrix as AutoAWQ keeps it: 4 bits, with zero points."""

    group: int  # columns; -1 has all in one

    @property
    def label(self) -> str:
        """For people."""
        return f"4 bit, {_groups_label(self.group)}"

    codes = "qweight"

    def problem(self, shape: tuple[int, int]) -> str | None:
        """As `LinearFormat`."""
        rows, cols = shape
        if rows % _AWQ_CODES:
            return f"its {rows} outputs are no multiple of {_AWQ_CODES}"
        if self.group != -1 and cols % self.group:
            return f"its {cols} inputs are no multiple of the group_size {self.group}"
        return None

    def tensors(self, shape: tuple[int, int]) -> Mapping[str, Expected]:
        """As `LinearFormat`."""
        rows, cols = shape
        groups = num_groups(cols, self.group)
        return {
            "qweight": Expected(("I32",), ((cols, rows // _AWQ_CODES),)),
            "qzeros": Expected(("I32",), ((groups, rows // _AWQ_CODES),)),
            "scales": Expected(FLOATS, ((groups, rows),)),
        }

    def scheme(self, shape: tuple[int, int]) -> str:
        """As `LinearFormat`."""
        return coded_scheme(4, shape[1], self.group, symmetric=False, ordered=True)

    def rows(
        self,
        parts: Mapping[str, Part],
        shape: tuple[int, int],  # noqa: ARG002 (that of the parts, which were checked)
        start: int,
        stop: int,
    ) -> CodedRows:
        """As `LinearFormat`."""
        return CodedRows(
            codes=_awq_outputs(parts["qweight"].words(), start, stop),
            scales=_some_scales(parts["scales"], start, stop),
            zeros=_awq_outputs(parts["qzeros"].words(), start, stop),
        )


@dataclass(frozen=True, slots=True)
class GptqLinear:
    """A matrix as AutoGPTQ and GPTQModel keep it."""

    bits: int  # 4 or 8
    group: int  # columns; -1 has all in one
    symmetric: bool
    act_order: bool  # columns of a group are anywhere
    zeros_less_one: bool  # version 1

    @property
    def label(self) -> str:
        """For people."""
        order = ", desc_act" if self.act_order else ""
        return f"{self.bits} bit, {_groups_label(self.group)}{order}"

    codes = "qweight"

    @property
    def _codes_of_word(self) -> int:
        return 32 // self.bits

    def problem(self, shape: tuple[int, int]) -> str | None:
        """As `LinearFormat`."""
        for count, what in zip(shape, ("outputs", "inputs"), strict=True):
            if count % self._codes_of_word:
                return f"its {count} {what} are no multiple of {self._codes_of_word}"
        return None

    def tensors(self, shape: tuple[int, int]) -> Mapping[str, Expected]:
        """As `LinearFormat`."""
        rows, cols = shape
        groups, per_word = num_groups(cols, self.group), self._codes_of_word
        return {
            "qweight": Expected(("I32",), ((cols // per_word, rows),)),
            "qzeros": Expected(("I32",), ((groups, rows // per_word),), optional=self.symmetric),
            "scales": Expected(FLOATS, ((groups, rows),)),
            "g_idx": Expected(("I32",), ((cols,),), optional=not self._scattered),
        }

    def scheme(self, shape: tuple[int, int]) -> str:
        """As `LinearFormat`."""
        return coded_scheme(
            self.bits,
            shape[1],
            self.group,
            symmetric=self.symmetric,
            ordered=not self._scattered,
        )

    @property
    def _scattered(self) -> bool:
        return self.act_order and self.group != -1

    def rows(
        self, parts: Mapping[str, Part], shape: tuple[int, int], start: int, stop: int
    ) -> CodedRows:
        """As `LinearFormat`."""
        words = np.ascontiguousarray(parts["qweight"].words()[:, start:stop].swapaxes(0, 1))
        packed = words.reshape(stop - start, -1)
        return CodedRows(
            codes=packed if self.bits == 8 else nibbles(packed),
            scales=_some_scales(parts["scales"], start, stop),
            zeros=self._zeros(parts.get("qzeros"), start, stop),
            groups=self._groups(parts.get("g_idx"), shape[1]),
        )

    def _zeros(self, part: Part | None, start: int, stop: int) -> Codes | int:
        middle = 1 << (self.bits - 1)
        if part is None:
            return middle
        words = part.words()
        if self.zeros_less_one and not self.symmetric:
            ones = np.uint32(0x01010101 if self.bits == 8 else 0x11111111)
            words = (words.view(np.uint32) + ones).view(np.uint8)
        packed = words.reshape(part.shape[0], -1)
        stored = packed if self.bits == 8 else nibbles(packed)
        if not self.symmetric:
            return np.ascontiguousarray(stored[:, start:stop].T)
        # Writers differ in whether they took the one off; sym says which value is meant.
        if not ((stored == middle).all() or (stored == middle - 1).all()):
            raise ValueError(f"qzeros has zero points other than the {middle} that sym stands for")
        return middle

    def _groups(self, part: Part | None, cols: int) -> npt.NDArray[np.int32] | None:
        regular = columns_of_groups(cols, self.group)
        if part is None or self.group == -1:
            return regular
        groups = part.ints()
        if self.act_order:
            if groups.min() < 0 or groups.max() >= num_groups(cols, self.group):
                raise ValueError(f"g_idx names group {groups.max()}, beyond the scales")
            return groups.astype(np.int32)
        if not np.array_equal(groups, np.arange(cols) // self.group):
            raise ValueError("g_idx has columns out of order, which desc_act does not say")
        return regular


def _groups_label(group: int) -> str:
    return "a scale for each output" if group == -1 else f"groups of {group}"


def _some_scales(part: Part, start: int, stop: int) -> Floats:
    """[groups, out] to [some out, groups]."""
    return np.ascontiguousarray(part.floats()[:, start:stop].T)


def _awq_outputs(words: npt.NDArray[np.uint8], start: int, stop: int) -> Codes:
    """Outputs `start` to `stop` of AWQ's words [n, out / 8, 4 bytes]: [some out, n]."""
    first, last = start // _AWQ_CODES, -(-stop // _AWQ_CODES)
    codes = nibbles(words[:, first:last])  # [n, some words, 8]
    outputs = codes[..., _AWQ_PLACES].reshape(len(words), -1)
    offset = first * _AWQ_CODES
    return np.ascontiguousarray(outputs[:, start - offset : stop - offset].T)
