"""Whole decoder steps against the reference: logits of small models, tokens of a real one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from kernels.backend import Decoder, Precision, WeightSource
from kernels.gpu.backend import GpuBackend
from kernels.reference.backend import ReferenceBackend
from kernels.spec import DecoderSpec
from tests.gpu_check.comparing import name_of
from tests.gpu_check.device import Device
from tests.gpu_check.models import small_families, smollm2_file
from tests.gpu_check.outcome import Findings, Skip
from tests.kernels.decoder_steps import DictSource, Run, random_weights
from tests.support.picks import picks_of

# For float32; what a 16-bit type may add is what it adds to the reference.
_RELATIVE, _ABSOLUTE = 1e-4, 3e-4
_ROOM_OF_16_BITS = 2.0
_THREADS = 8

PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):",
    "Once upon a time, in a village by the sea,",
    "Water boils at",
    "1, 1, 2, 3, 5, 8,",
    "The quick brown fox",
    "Dear Sir or Madam,",
    "In 1969, two people",
    "A list of colours: red, green,",
    "The chemical symbol of gold is",
    "To be or not to be,",
    "SELECT name FROM users WHERE",
)
_NEW_TOKENS = 32


def gpu_decoder(
    device: Device,
    spec: DecoderSpec,
    source: WeightSource,
    dtype: torch.dtype,
    *,
    max_num_batched_tokens: int = 512,
    max_num_seqs: int = 64,
    batch_invariant: bool = True,
) -> Decoder:
    """The back end's decoder on the device."""
    backend = GpuBackend(
        device.torch_device,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        batch_invariant=batch_invariant,
    )
    return backend.load(spec, source, precision_of(dtype), lambda _done, _total: None)


def precision_of(dtype: torch.dtype) -> Precision:
    """Weights as stored, and a cache of the same type."""
    return Precision(name_of(dtype), weights="auto", kv_cache="auto")


def _reference(spec: DecoderSpec, source: WeightSource, dtype: torch.dtype) -> Decoder:
    threads = min(_THREADS, torch.get_num_threads())
    backend = ReferenceBackend(threads)
    return backend.load(spec, source, precision_of(dtype), lambda _done, _total: None)


def prompt_of(spec: DecoderSpec, *, tiny: bool) -> list[int]:
    """A prompt of more than one split of keys; a tiny one is for the interpreter."""
    return [(7 * i) % (spec.vocab_size - 1) for i in range(9 if tiny else 300)]


def steps_of(tokens: Sequence[int]) -> tuple[tuple[tuple[str, Sequence[int]], ...], ...]:
    """A prompt, a decode beside a chunk of another prompt, and decodes together and alone."""
    return (
        (("a", tokens),),
        (("a", [5]), ("b", tokens[:7])),
        (("b", [9]), ("a", [11])),
        (("a", [3]),),
    )


def logits_of(
    decoder: Decoder, tokens: Sequence[int], adapters: Mapping[str, int] | None = None
) -> torch.Tensor:
    """Of all rows of `steps_of`, whose requests may have adapters in slots."""
    run = Run(decoder, adapters)
    steps = [run.step(*chunks) for chunks in steps_of(tokens)]
    return torch.cat([step[name] for step in steps for name in sorted(step)])


def check_family(device: Device, dtype: torch.dtype, family: str) -> Findings:
    """The reference's logits in float32; in 16 bits as near to them as the reference in 16 bits."""
    spec = small_families(tiny=device.is_interpreted)[family]
    tokens = prompt_of(spec, tiny=device.is_interpreted)
    decoder = gpu_decoder(device, spec, DictSource(random_weights(spec)), dtype)
    return compared(spec, dtype, tokens, logits_of(decoder, tokens))


def check_vendor_products(device: Device, dtype: torch.dtype, family: str) -> Findings:
    """The same of a decoder whose products are cuBLAS's."""
    spec = small_families(tiny=device.is_interpreted)[family]
    tokens = prompt_of(spec, tiny=device.is_interpreted)
    source = DictSource(random_weights(spec))
    decoder = gpu_decoder(device, spec, source, dtype, batch_invariant=False)
    return compared(spec, dtype, tokens, logits_of(decoder, tokens))


def compared(
    spec: DecoderSpec,
    dtype: torch.dtype,
    tokens: Sequence[int],
    result: torch.Tensor,
    weights: dict[str, torch.Tensor] | None = None,
) -> Findings:
    """Holds the logits of `steps_of`, by `random_weights` or others, against the reference."""
    weights = weights or random_weights(spec)
    exact = logits_of(_reference(spec, DictSource(weights), torch.float32), tokens)
    assert result.isfinite().all(), "logits are not finite"
    if dtype is torch.float32:
        off = ((result - exact).abs() / (_ABSOLUTE + _RELATIVE * exact.abs())).max()
        assert off <= 1, f"{off:.1f} times the tolerance"
        return Findings(f"{len(exact)} rows, at most {off:.0%} of the tolerance")
    theirs = _distance(logits_of(_reference(spec, DictSource(weights), dtype), tokens), exact)
    ours = _distance(result, exact)
    assert ours <= _ROOM_OF_16_BITS * theirs + 1e-3, (
        f"{ours:.2%} from float32, where the reference in {name_of(dtype)} is {theirs:.2%} from it"
    )
    return Findings(f"{ours:.2%} from float32; the reference in {name_of(dtype)}: {theirs:.2%}")


def _distance(logits: torch.Tensor, exact: torch.Tensor) -> float:
    return float((logits - exact).norm() / exact.norm())


def check_tokens(device: Device, model: Path | None) -> Findings:
    """SmolLM2's greedy answers in float32 are the CPU reference's, token for token."""
    if device.is_interpreted:
        raise Skip("the interpreter would take hours")
    path = smollm2_file(model)
    from engine_svc.loader.open_model import open_model
    from router_svc.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(path)
    prompts = [
        tokenizer.encode(prompt, add_special_tokens=True, parse_special=False) for prompt in PROMPTS
    ]
    opened = open_model(path)
    gpu = gpu_decoder(device, opened.spec, opened.source, torch.float32)
    ours = _greedy(gpu, prompts)
    opened = open_model(path)
    theirs = _greedy(_reference(opened.spec, opened.source, torch.float32), prompts)
    unequal = [
        f"{PROMPTS[i]!r} from token {_first_difference(a, b)}"
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True))
        if a != b
    ]
    assert not unequal, f"{len(unequal)} of {len(prompts)} answers differ: {'; '.join(unequal[:3])}"
    return Findings(f"{len(prompts)} answers of {_NEW_TOKENS} tokens are equal")


def _first_difference(a: list[int], b: list[int]) -> int:
    return next(i for i, (ours, theirs) in enumerate(zip(a, b, strict=True)) if ours != theirs)


def _greedy(decoder: Decoder, prompts: list[list[int]]) -> list[list[int]]:
    """So many tokens of each answer, all prompts in one batch."""
    run = Run(decoder)
    answers: list[list[int]] = [[] for _ in prompts]
    fed = prompts
    for _ in range(_NEW_TOKENS):
        ends = torch.tensor([len(tokens) for tokens in fed]).cumsum(0) - 1
        chunks = [(str(i), tokens) for i, tokens in enumerate(fed)]
        inputs = run.inputs(*chunks, logits_rows=(), picks=picks_of(ends.tolist()))
        picked = decoder.step(inputs).token_ids.tolist()
        for answer, token in zip(answers, picked, strict=True):
            answer.append(token)
        fed = [[token] for token in picked]
    return answers
