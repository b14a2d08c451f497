"""A request has the same bits alone, in a batch, in chunks, by a captured graph, and one step ahead
of the host."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from kernels.backend import AsyncDecoder, BegunStep, Decoder, WeightSource
from kernels.spec import DecoderSpec
from tests.gpu_check.comparing import Comparison
from tests.gpu_check.decoder_checks import gpu_decoder
from tests.gpu_check.device import Device
from tests.gpu_check.models import small_families
from tests.gpu_check.outcome import Findings
from tests.kernels.decoder_steps import DictSource, Run, random_weights
from tests.support.coded_matrix import Coded, coded_fp8
from tests.support.picks import picks_of


def check_decoder(device: Device, dtype: torch.dtype, family: str) -> Findings:
    """A request alone (decoding by graphs), in a batch of 64, chunked, and beside a prompt."""
    spec = small_families(tiny=device.is_interpreted)[family]
    return _check(device, dtype, spec, DictSource(random_weights(spec)))


def check_fp8_decoder(device: Device, dtype: torch.dtype) -> Findings:
    """The same of Llama with weights in float8; rows are rounded too in 16 bits, where it can."""
    spec = small_families(tiny=device.is_interpreted)["llama"]
    if device.is_interpreted:
        spec = dataclasses.replace(spec, layers=spec.layers[:1])
    weights: dict[str, torch.Tensor | Coded] = dict(random_weights(spec))
    for name, shape in spec.weight_shapes().items():
        if name.startswith("layers.") and len(shape) == 2:
            weights[name] = coded_fp8(weights[name], shape[1])
    return _check(device, dtype, spec, DictSource(weights))


def _check(device: Device, dtype: torch.dtype, spec: DecoderSpec, source: WeightSource) -> Findings:
    others, length = (3, 9) if device.is_interpreted else (63, 300)
    prompt = [(7 * i) % (spec.vocab_size - 1) for i in range(length)]
    decodes = [5, 11, 3]
    decoder = gpu_decoder(
        device, spec, source, dtype,
        max_num_batched_tokens=1024, max_num_seqs=others + 1,
    )  # fmt: skip
    alone = Run(decoder)
    rows = [alone.step(("a", prompt))["a"]]
    rows += [alone.step(("a", [token]))["a"] for token in decodes]

    comparison = Comparison(dtype)
    together = Run(decoder)
    crowd = {f"other {i}": [i % 71, (3 * i) % 71, 1, 2] for i in range(others)}
    together.step(*((name, tokens[:3]) for name, tokens in crowd.items()))
    cut = length // 3
    first = together.step(("other 0", [4]), ("a", prompt[:cut]))["a"]
    second = together.step(("a", prompt[cut:]), ("other 1", [4]))["a"]
    comparison.equal("a prompt in two chunks", torch.cat((first, second)), rows[0])
    crowded = [(name, tokens[3:]) for name, tokens in crowd.items()]
    middle = len(crowded) // 2
    result = together.step(*crowded[:middle], ("a", decodes[:1]), *crowded[middle:])["a"]
    comparison.equal(f"decoded with {others} others, by a graph", result, rows[1])
    # A step that does not only decode launches kernel by kernel.
    result = together.step(("a", decodes[1:2]), ("new", [1, 2, 3]))["a"]
    comparison.equal("decoded beside a prompt, without a graph", result, rows[2])
    result = together.step(("new", [4]), ("other 2", [8]), ("a", decodes[2:]))["a"]
    comparison.equal("decoded with 2 others, by a padded graph", result, rows[3])
    steps = 2 if device.is_interpreted else 24
    single, ahead = (_answers(decoder, spec.vocab_size, steps, ahead=each) for each in (0, 1))
    comparison.equal("tokens one step ahead of the host", ahead, single)
    return comparison.findings()


def _answers(decoder: Decoder, vocab_size: int, steps: int, *, ahead: int) -> torch.Tensor:
    """Tokens [steps, 3] that are drawn one after another, with so many steps ahead of the host."""
    assert isinstance(decoder, AsyncDecoder)
    run, names, count = Run(decoder), ("a", "b", "c"), np.arange(3, dtype=np.int32)
    chunks = [(name, [5, vocab_size // 2, 3][: i + 1]) for i, name in enumerate(names)]
    begun: list[BegunStep] = []
    answers: list[torch.Tensor] = []
    for step in range(steps):
        ends = np.cumsum([len(tokens) for _, tokens in chunks]) - 1
        picks = picks_of(ends.tolist(), temperature=1.0, draw=step / steps)
        inputs = run.inputs(*chunks, logits_rows=(), picks=picks)
        if ahead and step:
            inputs = dataclasses.replace(inputs, picked=count)
        begun.append(decoder.begin(inputs))
        if len(begun) > ahead:
            answers.append(torch.from_numpy(begun.pop(0).result().token_ids.copy()))
        known = [0, 0, 0] if ahead else answers[-1].tolist()
        chunks = [(name, [token]) for name, token in zip(names, known, strict=True)]
    answers += [torch.from_numpy(last.result().token_ids) for last in begun]
    return torch.stack(answers)
