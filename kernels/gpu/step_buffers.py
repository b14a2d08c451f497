"""One step's batch on the device, always at the same addresses, as captured graphs want it.

Steps one ahead need no second set of them: on the device copies come after the step before, and on
the host they are waited for before they are overwritten.

All copies are of memory that is contiguous on both sides. Others torch makes by way of arrays of
its own, of which the one on the host is not pinned: such a copy may wait for the step before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from kernels.gpu.sampling import DevicePicks, picked_floats, picked_ints

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from kernels.backend import Int32s, PickInputs, StepInputs


@dataclass(frozen=True, slots=True)
class DeviceBatch:
    """`StepInputs` on the device; rows and requests beyond the step's own are padding.

    A row of padding has slot -1, so that nothing is written for it, and belongs to no request.
    """

    token_ids: torch.Tensor  # [num_rows]
    positions: torch.Tensor  # [num_rows]
    slot_mapping: torch.Tensor  # [num_rows]
    query_start_loc: torch.Tensor  # [num_requests + 1]
    seq_lens: torch.Tensor  # [num_requests]
    block_tables: torch.Tensor  # [num_requests, max_blocks]
    max_query_len: int
    max_seq_len: int
    sources: torch.Tensor | None  # [num_rows], see `StepInputs.picked`; None where all are known
    picked: torch.Tensor  # room for the tokens of the largest step's picks, and the last step's now
    pick_rows: torch.Tensor  # [num_picks]
    picks: DevicePicks


class StepBuffers:
    """Device memory for the largest step, with pinned memory on the host to copy it from."""

    def __init__(
        self, device: torch.device, *, max_tokens: int, max_requests: int, max_blocks: int
    ) -> None:
        self._device = device
        self._rows = self._pair(4, max_tokens)
        self._loc = self._pair(max_requests + 1)
        self._lens = self._pair(max_requests)
        self._tables = torch.zeros(max_requests, max_blocks, dtype=torch.int32, device=device)
        # Rows of them as wide as a step needs, on their way to the rows that kernels read.
        self._narrow_tables = self._pair(max_requests * max_blocks)
        self._pick_ints = self._pair(3 * max_tokens)
        self._pick_floats = self._pair(4 * max_tokens, dtype=torch.float64)
        self._picked = torch.zeros(max_tokens, dtype=torch.int32, device=device)
        # Marks the end of a step's copies; until then the host's side may not be written again.
        self._copied: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch gives no types

    def upload(self, inputs: StepInputs, num_rows: int, num_requests: int) -> DeviceBatch:
        """Copies a step, padded to so many rows and requests.

        Waits for the last step's copies and no more, which are made when the step before that one
        is computed.
        """
        if self._copied is not None:
            self._copied.synchronize()
        num_tokens, own = len(inputs.token_ids), len(inputs.seq_lens)
        host, rows = self._rows
        rows_view = host.numpy()[:, :num_rows]
        rows_view[:, num_tokens:] = ((0,), (0,), (-1,), (-1,))
        sources = -1 if inputs.picked is None else inputs.picked
        for row, values in zip(
            rows_view,
            (inputs.token_ids, inputs.positions, inputs.slot_mapping, sources),
            strict=True,
        ):
            row[:num_tokens] = values
        for host_row, row_there in zip(host, rows, strict=True):
            row_there[:num_rows].copy_(host_row[:num_rows], non_blocking=True)
        loc = self._fill(self._loc, inputs.query_start_loc, num_requests + 1, num_tokens)
        lens = self._fill(self._lens, inputs.seq_lens, num_requests, 0)
        width = inputs.block_tables.shape[1]
        narrow = self._copy(self._narrow_tables, own, width, inputs.block_tables)
        self._tables[:own, :width].copy_(narrow)
        pick_rows, picks = self._upload_picks(inputs.picks)
        if self._copied is not None:
            self._copied.record()
        return DeviceBatch(
            token_ids=rows[0, :num_rows],
            positions=rows[1, :num_rows],
            slot_mapping=rows[2, :num_rows],
            query_start_loc=loc,
            seq_lens=lens,
            block_tables=self._tables[:num_requests],
            max_query_len=int(np.diff(inputs.query_start_loc).max()),
            max_seq_len=int(inputs.seq_lens.max()),
            sources=None if inputs.picked is None else rows[3, :num_rows],
            picked=self._picked,
            pick_rows=pick_rows,
            picks=picks,
        )

    def _upload_picks(self, picks: PickInputs) -> tuple[torch.Tensor, DevicePicks]:
        """The rows that tokens are picked from, and how."""
        count = len(picks.rows)
        floats = self._copy(self._pick_floats, 4, count, picked_floats(picks))
        ints = self._copy(self._pick_ints, 3, count, (*picked_ints(picks), picks.rows))
        masks = None
        if picks.masks is not None:
            words = torch.from_numpy(picks.masks.view(np.int32))
            if self._device.type == "cuda":
                words = words.pin_memory()  # which is kept until it was copied
            masks = words.to(self._device, non_blocking=True)
        greedy = not picks.temperature.any()
        return ints[2], DevicePicks(floats, ints[:2], masks, greedy)

    def _copy(
        self,
        pair: tuple[torch.Tensor, torch.Tensor],
        num_rows: int,
        width: int,
        rows: Sequence[npt.NDArray[np.generic]] | npt.NDArray[np.generic],
    ) -> torch.Tensor:
        """Rows of one width, one after another in the buffer's memory: [num_rows, width]."""
        host, device = (each[: num_rows * width] for each in pair)
        host.numpy().reshape(num_rows, width)[:] = rows
        return device.copy_(host, non_blocking=True).view(num_rows, width)

    def _fill(
        self, pair: tuple[torch.Tensor, torch.Tensor], values: Int32s, size: int, padding: int
    ) -> torch.Tensor:
        host, device = pair
        host.numpy()[: len(values)] = values
        host.numpy()[len(values) : size] = padding
        return device[:size].copy_(host[:size], non_blocking=True)

    def _pair(
        self, *shape: int, dtype: torch.dtype = torch.int32
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The same array on the host and on the device."""
        pinned = self._device.type == "cuda"
        return (
            torch.zeros(shape, dtype=dtype, pin_memory=pinned),
            torch.zeros(shape, dtype=dtype, device=self._device),
        )
