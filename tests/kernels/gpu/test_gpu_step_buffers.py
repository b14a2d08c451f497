"""A step's batch on its way to the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from kernels.backend import StepInputs
from kernels.gpu.step_buffers import StepBuffers
from tests.support.picks import picks_of


class Uploads(TorchFunctionMode):
    """Takes note of copies that nobody waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is torch.Tensor.copy_ and (kwargs or {}).get("non_blocking"):
            self.seen.append((args[0], args[1]))
        return func(*args, **(kwargs or {}))


def decodes(tables: list[list[int]]) -> StepInputs:
    """A decode of a request for each row of block tables."""
    count = len(tables)
    return StepInputs(
        token_ids=np.arange(count, dtype=np.int32),
        positions=np.arange(count, dtype=np.int32),
        slot_mapping=np.arange(count, dtype=np.int32),
        query_start_loc=np.arange(count + 1, dtype=np.int32),
        seq_lens=np.arange(1, count + 1, dtype=np.int32),
        block_tables=np.array(tables, dtype=np.int32),
        picks=picks_of(range(count)),
        logits_rows=np.empty(0, np.int32),
    )


def test_what_is_copied_to_the_device_is_contiguous_on_both_sides():
    # torch makes another copy on the host of what is not, and that one is not pinned.
    buffers = StepBuffers(torch.device("cpu"), max_tokens=8, max_requests=4, max_blocks=6)

    with Uploads() as uploads:
        buffers.upload(decodes([[3, 4], [1, 0]]), 4, 4)

    assert uploads.seen
    assert all(to.is_contiguous() and of.is_contiguous() for to, of in uploads.seen)


def test_block_tables_of_any_width_have_their_rows_where_kernels_look_for_them():
    buffers = StepBuffers(torch.device("cpu"), max_tokens=8, max_requests=4, max_blocks=6)
    buffers.upload(decodes([[9, 8, 7, 6], [5, 4, 3, 2]]), 2, 2)

    batch = buffers.upload(decodes([[3, 4], [1, 0]]), 4, 4)

    assert batch.block_tables.stride() == (6, 1)
    assert batch.block_tables[:2, :2].tolist() == [[3, 4], [1, 0]]
    assert batch.slot_mapping.tolist() == [0, 1, -1, -1]
