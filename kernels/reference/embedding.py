"""Rows of the embedding table."""

from __future__ import annotations

import torch


def embedding(token_ids: torch.Tensor, table: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """table[token_ids] · scale: [rows], [vocab, hidden] → [rows, hidden], a new tensor.

    The scale is first rounded to the table's type, as the models that have one were trained.
    """
    rows = torch.nn.functional.embedding(token_ids, table)
    if scale != 1.0:
        rows.mul_(torch.tensor(scale, dtype=table.dtype))
    return rows
