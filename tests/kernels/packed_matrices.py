"""The layout of kernels/cpu/src/matrix.h in numpy, written to be read: what the packer is tested
against and what the matrix kernels are tested with.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernels.cpu.matrix import BLOCK_ROWS, COL_UNIT, SUM_COLS, PackedMatrix, Rows

ZERO = {"int8": 128, "group8": 128, "group4": 8, "group4min": 0}


def pack_bfloat16(bits: NDArray[np.uint16]) -> PackedMatrix:
    """bfloat16 weights [rows, cols], as bits."""
    blocks = _blocks(bits)  # [num_blocks, 32, cols]
    num_blocks, _, cols = blocks.shape
    packed = blocks.reshape(num_blocks, BLOCK_ROWS, cols // 2, 2).transpose(0, 2, 1, 3)
    return _matrix("bfloat16", 0, cols, [packed])


def pack_int8(stored: NDArray[np.uint8], scales: NDArray[np.float32]) -> PackedMatrix:
    """Weights scale · (u - 128): u [rows, cols] and a scale per row."""
    blocks = _blocks(stored, fill=ZERO["int8"])
    return _matrix("int8", 0, blocks.shape[2], [_blocks(scales[:, None]), _quads(blocks)])


def pack_groups(
    format: str,
    group: int,
    stored: NDArray[np.uint8],
    scales: NDArray[np.float16],
    mins: NDArray[np.float16] | None = None,
) -> PackedMatrix:
    """Weights scale · (u - zero) or scale · u + min: u [rows, cols], the others
    [rows, cols / group].
    """
    blocks = _blocks(stored, fill=ZERO[format])
    num_blocks, _, cols = blocks.shape
    groups = blocks.reshape(num_blocks, BLOCK_ROWS, cols // group, group).transpose(0, 2, 1, 3)
    parts = [_per_group(scales, cols // group)]
    if mins is not None:
        parts.append(_per_group(mins, cols // group))
    if format == "group8":
        parts.append(_quads(groups))
    else:
        eights = groups.reshape(num_blocks, cols // group, BLOCK_ROWS, group // 8, 2, 4)
        pairs = eights[..., 0, :] | eights[..., 1, :] << 4  # [..., 32, group / 8, 4]
        parts.append(pairs.swapaxes(2, 3))
    return _matrix(format, group, cols, parts)


def weights(matrix: PackedMatrix) -> NDArray[np.float64]:
    """What a packed matrix stands for, [num_blocks * 32, cols]: the layout read back by index."""
    blocks = matrix.data.reshape(matrix.num_blocks, -1)
    out = np.empty((matrix.num_blocks, BLOCK_ROWS, matrix.cols))
    if matrix.format == "bfloat16":
        bits = blocks.view(np.uint16).reshape(matrix.num_blocks, -1, BLOCK_ROWS, 2)
        for k in range(matrix.cols):
            out[:, :, k] = from_bfloat16(bits[:, k // 2, :, k % 2])
        return out.reshape(-1, matrix.cols)
    if matrix.format == "int8":
        scales = blocks[:, : BLOCK_ROWS * 4].view(np.float32)
        stored = blocks[:, BLOCK_ROWS * 4 :].reshape(matrix.num_blocks, -1, BLOCK_ROWS, 4)
        for k in range(matrix.cols):
            out[:, :, k] = scales * (stored[:, k // 4, :, k % 4].astype(np.float64) - 128)
        return out.reshape(-1, matrix.cols)
    groups = blocks.reshape(matrix.num_blocks, matrix.cols // matrix.group, -1)
    scales = groups[:, :, : BLOCK_ROWS * 2].view(np.float16).astype(np.float64)
    has_min = matrix.format == "group4min"
    header = BLOCK_ROWS * (4 if has_min else 2)
    quads = groups[:, :, header:].reshape(matrix.num_blocks, groups.shape[1], -1, BLOCK_ROWS, 4)
    for k in range(matrix.cols):
        g, i = divmod(k, matrix.group)
        if matrix.format == "group8":
            stored = quads[:, g, i // 4, :, i % 4]
        else:
            pair = quads[:, g, i // 8, :, i % 4]
            stored = pair & 15 if i % 8 < 4 else pair >> 4
        out[:, :, k] = scales[:, g] * (stored.astype(np.float64) - ZERO[matrix.format])
        if has_min:
            out[:, :, k] += groups[:, g, BLOCK_ROWS * 2 : header].view(np.float16)
    return out.reshape(-1, matrix.cols)


def to_bfloat16(x: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bits of the nearest bfloat16 (ties to even) of finite numbers."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bfloat16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The numbers that bfloat16 bits stand for."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def int8_rows(values: NDArray[np.int8], scales: NDArray[np.float32]) -> Rows:
    """Rows of int8 activations with the sums that go with them."""
    sums = values.reshape(len(values), -1, SUM_COLS).sum(axis=2, dtype=np.int32)
    return Rows(int8=np.ascontiguousarray(values), scales=scales, sums=sums)


def _blocks(x: NDArray[np.generic], fill: int = 0) -> NDArray[np.generic]:
    """[rows, cols] as [num_blocks, 32, cols], both padded with `fill` (a lone column is not)."""
    rows, cols = x.shape
    pad = (-rows % BLOCK_ROWS, -cols % COL_UNIT if cols > 1 else 0)
    padded = np.pad(x, ((0, pad[0]), (0, pad[1])), constant_values=fill)
    return padded.reshape(-1, BLOCK_ROWS, padded.shape[1])


def _quads(x: NDArray[np.generic]) -> NDArray[np.generic]:
    """[..., 32, cols] as [..., cols / 4, 32, 4]."""
    return x.reshape(*x.shape[:-1], x.shape[-1] // 4, 4).swapaxes(-3, -2)


def _per_group(x: NDArray[np.float16], num_groups: int) -> NDArray[np.float16]:
    """[rows, groups] as [num_blocks, num_groups, 32], padded with zeros."""
    rows, groups = x.shape
    padded = np.pad(x, ((0, -rows % BLOCK_ROWS), (0, num_groups - groups)))
    return padded.reshape(-1, BLOCK_ROWS, num_groups).swapaxes(1, 2)


def _matrix(format: str, group: int, cols: int, parts: list[NDArray[np.generic]]) -> PackedMatrix:
    """Lays the parts of each block, or of each group of each block, end to end."""
    num_blocks = parts[0].shape[0]
    outer = parts[0].shape[:2] if group else (num_blocks,)
    as_bytes = [np.ascontiguousarray(part).view(np.uint8).reshape(*outer, -1) for part in parts]
    joined = np.concatenate(as_bytes, axis=-1).reshape(-1)
    return PackedMatrix(format, group, cols, num_blocks, _aligned(joined))


def _aligned(x: NDArray[np.uint8]) -> NDArray[np.uint8]:
    memory = np.empty(x.size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    memory[start : start + x.size] = x
    return memory[start : start + x.size]
