"""The same windows scored by transformers in float32: what Octavo's figures are held against."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from tests.bench.quality.scoring import Scores

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from transformers import PreTrainedModel


def load_reference(checkpoint: Path) -> PreTrainedModel:
    """The checkpoint's model in float32, ready for scoring."""
    logging.disable_progress_bar()  # type: ignore[no-untyped-call] # one bar is enough
    return AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)


def reference_scores(
    model: PreTrainedModel, windows: Sequence[Sequence[int]], on_done: Callable[[], object]
) -> Scores:
    """Scores of windows of equal length, one at a time, without continuations."""
    logprobs, top_ids = [], []
    for window in windows:
        tokens = torch.tensor([window])
        with torch.inference_mode():
            rows = model(tokens).logits[0, :-1].double().log_softmax(-1)
        logprobs.append(rows.gather(1, tokens[0, 1:, None])[:, 0].numpy())
        top_ids.append(rows.argmax(-1).numpy())
        on_done()
    return Scores(np.array(logprobs), np.array(top_ids), continuations=None)
