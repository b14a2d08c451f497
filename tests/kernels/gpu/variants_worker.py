"""Which variants of kernels launches need, found where nothing is interpreted; no GPU is there.

A variant is what Triton compiles by itself: by types, constants, and which integers are 1 or
multiples of 16.
"""

from __future__ import annotations

import itertools
from collections import Counter
from unittest.mock import patch

import torch

_SIZE = 96
_VOCABULARY = 3000
_HEADS, _HEAD_DIM, _BLOCK = 6, 64, 16


class _Target:
    """A driver of a GPU that is not there, with a number of its own: nothing is compiled for it."""

    _numbers = itertools.count()

    def __init__(self) -> None:
        self._number = next(self._numbers)

    def get_current_target(self) -> object:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return self._number

    def get_current_stream(self, _device: int) -> int:
        return 0


def variants(kind: str, row_counts: tuple[int, ...]) -> dict[str, int]:
    """How many variants of each kernel these numbers of rows need in all."""
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    found: Counter[str] = Counter()
    run = JITFunction.run

    def note(
        self: JITFunction, key: str, _signature: object, device: int, *_rest: object
    ) -> object:
        found[self.__name__] += 1
        self.device_caches[device][0][key] = self
        return self

    def only_bind(self: JITFunction, *args: object, grid: object, **options: object) -> object:
        return run(self, *args, grid=grid, **options | {"warmup": True})

    driver.set_active(_Target())  # for good: nothing else in this process launches
    with (
        patch.object(JITFunction, "run", only_bind),
        patch.object(JITFunction, "_do_compile", note),
    ):
        for num_rows in row_counts:
            _LAUNCHES[kind](num_rows)
    return dict(found)


def _dense(num_rows: int) -> None:
    from kernels.gpu.gemm import gemm

    gemm(_rows(num_rows, 1100), torch.empty(256, 1100, dtype=torch.bfloat16))


def _four_bits(num_rows: int) -> None:
    from kernels.gpu.w4_layout import pack_w4
    from kernels.gpu.w4a16 import w4a16

    codes = torch.zeros(256, 1024, dtype=torch.uint8)
    w4a16(_rows(num_rows, 1024), pack_w4(codes, torch.zeros(8, 256, dtype=torch.bfloat16)))


def _by_row(num_rows: int) -> None:
    from kernels.gpu.activation import silu_mul
    from kernels.gpu.picked_tokens import take_picked
    from kernels.gpu.quantization import RowFormat, quantise_rows
    from kernels.gpu.rms_norm import add_rms_norm

    x, numbers = _rows(num_rows, _SIZE), torch.zeros(num_rows, dtype=torch.int32)
    add_rms_norm(x, x.clone(), x[0], 1e-5)
    silu_mul(x)
    quantise_rows(x, RowFormat.FP8)
    take_picked(numbers, numbers, numbers)


def _attention(num_rows: int) -> None:
    """Decodes, then the same beside a prompt."""
    from kernels.gpu.launch_table import attention_launch_of
    from kernels.gpu.paged_attention import paged_attention, partial_sums
    from kernels.gpu.qk_norm_rope_cache_write import qk_norm_rope_cache_write

    launch, longest = attention_launch_of(90, _HEAD_DIM), 4096
    room = partial_sums(
        16, 1, _HEADS, _HEAD_DIM, longest, launch=launch, device=torch.device("cpu")
    )
    caches = [torch.zeros(4, 2, _BLOCK, _HEAD_DIM, dtype=torch.bfloat16) for _ in "kv"]
    angles = torch.zeros(8, _HEAD_DIM // 2, dtype=torch.bfloat16)
    numbers = torch.zeros(num_rows + 200, dtype=torch.int32)
    for beside in (0, 200):
        total = num_rows + beside
        qkv = _rows(total, (_HEADS + 4) * _HEAD_DIM).view(total, -1, _HEAD_DIM)
        qk_norm_rope_cache_write(
            qkv, numbers, angles, angles, *caches, numbers, num_heads=_HEADS, qk_norm=None, eps=1e-5
        )
        paged_attention(
            qkv[:, :_HEADS], *caches, torch.zeros(num_rows + 1, 256, dtype=torch.int32),
            numbers[: num_rows + 1], numbers[: num_rows + 2], scale=0.125, window=None,
            softcap=None, max_query_len=max(beside, 1), max_seq_len=longest, partials=room,
            launch=launch,
        )  # fmt: skip


def _draws(num_rows: int) -> None:
    from kernels.gpu.sampling import DevicePicks, pick_tokens

    floats = torch.ones(4, num_rows, dtype=torch.float64)
    ints = torch.zeros(2, num_rows, dtype=torch.int32)
    masks = torch.zeros(num_rows, -(-_VOCABULARY // 32), dtype=torch.int32)
    picks = DevicePicks(floats, ints, masks, greedy=False)
    pick_tokens(torch.zeros(num_rows, _VOCABULARY), picks)


_LAUNCHES = {
    "dense": _dense,
    "four bits": _four_bits,
    "by row": _by_row,
    "attention": _attention,
    "draws": _draws,
}


def _rows(num_rows: int, size: int) -> torch.Tensor:
    return torch.zeros(num_rows, size, dtype=torch.bfloat16)
