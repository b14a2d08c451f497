"""Picked tokens against the definition of sampling, and the same alone as in a batch."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from kernels.gpu.sampling import DevicePicks, pick_tokens
from kernels.reference.sampling import pick_tokens as reference_picks
from tests.gpu_check.device import Device
from tests.gpu_check.outcome import Findings
from tests.support.picks import picks_of

SETTINGS = {
    "greedy": {"temperature": 0.0},
    "plain": {"temperature": 1.0},
    "top-k": {"temperature": 0.8, "top_k": 20},
    "top-p": {"temperature": 1.3, "top_p": 0.9},
    "min-p": {"temperature": 1.0, "min_p": 0.05},
    "all": {"temperature": 0.7, "top_k": 50, "top_p": 0.8, "min_p": 0.02},
}


def check_sampling(device: Device) -> Findings:
    """Every setting on every row picks the reference's token; a row alone picks the same."""
    rows, vocab = (3, 60) if device.is_interpreted else (64, 128_256)
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(rows, vocab, generator=generator) * 3
    logits[1, 7] = torch.nan  # a fault, which is to stay in its row
    draws = torch.rand(rows, generator=generator, dtype=torch.float64).tolist()
    on_device = logits.to(device.torch_device)
    wrong = []
    names = ("greedy", "all") if device.is_interpreted else SETTINGS
    for name in names:
        setting = SETTINGS[name]
        picks = picks_of(range(rows), draw=draws, **setting)
        picked = pick_tokens(on_device, DevicePicks.of(picks, device.torch_device)).cpu().numpy()
        expected = reference_picks(logits.numpy(), picks)
        if differ := np.flatnonzero(picked != expected).tolist():
            wrong.append(f"{name}: rows {differ[:5]} ({len(differ)} of {rows}) are not its tokens")
        one = dataclasses.replace(
            picks,
            **{
                field.name: getattr(picks, field.name)[2:3]
                for field in dataclasses.fields(picks)
                if getattr(picks, field.name) is not None
            },
        )
        alone = pick_tokens(on_device[2:3], DevicePicks.of(one, device.torch_device))
        if int(alone[0]) != picked[2]:
            wrong.append(f"{name}: a row picks another token alone")
    assert not wrong, "; ".join(wrong)
    return Findings(f"{len(names)} settings over [{rows}, {vocab}]")
