"""LoRA adapters on the device: what they add, to whose rows, and the same bits in any company."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch

from kernels.backend import Decoder
from kernels.lora import LoraAdapter
from tests.gpu_check.comparing import Comparison
from tests.gpu_check.decoder_checks import compared, gpu_decoder, logits_of, prompt_of
from tests.gpu_check.device import Device
from tests.gpu_check.models import small_families
from tests.gpu_check.outcome import Findings
from tests.kernels.decoder_steps import DictSource, Run, random_weights
from tests.kernels.random_adapters import merged, random_adapter


def check_adapters(device: Device, dtype: torch.dtype) -> Findings:
    """An adapter as if it were built in; requests with two of them and none, together and alone."""
    spec = small_families(tiny=device.is_interpreted)["llama"]
    tokens, weights = prompt_of(spec, tiny=device.is_interpreted), random_weights(spec)
    decoder = gpu_decoder(device, spec, DictSource(weights), dtype)
    every = random_adapter(spec, seed=1, rank=8)
    some = random_adapter(spec, seed=2, rank=16, parts=("q", "v", "down"))
    _load(device, decoder, {0: every, 1: some}, tokens)

    logits = logits_of(decoder, tokens, {"a": 0, "b": 0})
    near = compared(spec, dtype, tokens, logits, merged(weights, every))

    slots = {"every": 0, "none": -1, "some": 1}
    prompts = {name: tokens[: len(tokens) // (i + 1)] for i, name in enumerate(slots)}
    together = Run(decoder, slots)
    rows = [together.step(*prompts.items()), together.step(*((name, [7]) for name in slots))]
    comparison = Comparison(dtype)
    for name in slots:
        alone = Run(decoder, slots)
        for found, chunk in zip(rows, (prompts[name], [7]), strict=True):
            comparison.equal(name, found[name], alone.step((name, chunk))[name])
    return comparison.findings(near.note)


def _load(
    device: Device, decoder: Decoder, adapters: dict[int, LoraAdapter], tokens: list[int]
) -> None:
    """Fills slots. Packs beside steps, but for the interpreter, which has one thread."""
    if device.is_interpreted:
        packed = {slot: decoder.pack_adapter(adapter) for slot, adapter in adapters.items()}
    else:
        with ThreadPoolExecutor(len(adapters)) as pool:
            begun = {
                slot: pool.submit(decoder.pack_adapter, each) for slot, each in adapters.items()
            }
            logits_of(decoder, tokens)
            packed = {slot: each.result() for slot, each in begun.items()}
    for slot, adapter in packed.items():
        decoder.set_adapter(slot, adapter)
