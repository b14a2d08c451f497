"""Steps of an encoder without its service."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from engine_svc.loader.encoder_directory import open_encoder
from kernels.encoder import Encoder, EncoderInputs
from kernels.reference.encoder_backend import ReferenceEncoderBackend


def load_encoder(path: Path) -> Encoder:
    """The encoder of a checkpoint, by the reference back end."""
    opened = open_encoder(path)
    backend = ReferenceEncoderBackend(torch.get_num_threads())
    return backend.load(opened.spec, opened.source, lambda _done, _total: None)


def encoder_inputs(
    inputs: Sequence[Sequence[int]], first_segments: Sequence[int] | None = None
) -> EncoderInputs:
    """A step over token ids; tokens from an input's `first_segments` on have type 1."""
    lengths = [len(tokens) for tokens in inputs]
    firsts = first_segments or lengths
    return EncoderInputs(
        token_ids=np.concatenate([np.asarray(tokens, dtype=np.int32) for tokens in inputs]),
        positions=np.concatenate([np.arange(n, dtype=np.int32) for n in lengths]),
        token_types=np.concatenate([
            (np.arange(n) >= first).astype(np.int32)
            for n, first in zip(lengths, firsts, strict=True)
        ]),
        input_starts=np.cumsum([0, *lengths]),
    )  # fmt: skip


def random_inputs(lengths: Sequence[int], vocab_size: int, seed: int = 0) -> list[list[int]]:
    """Inputs of so many tokens; 5 is above the ids of special tokens."""
    rng = np.random.default_rng(seed)
    return [rng.integers(5, vocab_size, length).tolist() for length in lengths]
