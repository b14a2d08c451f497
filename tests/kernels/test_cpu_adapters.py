"""Adapters in the C++ decoder: what they add, to whose rows, and the same in any batch."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from kernels.backend import Precision
from kernels.cpu import library
from kernels.lora import LoraAdapter, LowRank
from kernels.reference.backend import ReferenceBackend
from tests.kernels.decoder_steps import DictSource, Run, random_weights
from tests.kernels.random_adapters import merged, random_adapter
from tests.kernels.test_cpu_decoder import EVERYTHING, PLAIN, TOLERANCES, _as_packed, _load, _tokens

pytestmark = pytest.mark.skipif(
    not library.available(), reason=f"no C++ kernels: {library.unavailable_reason()}"
)
ISAS = library.load().isas if library.available() else ()


def _adapted(spec, adapters: dict[int, LoraAdapter], **options):
    decoder = _load(spec, **options)
    for slot, adapter in adapters.items():
        decoder.set_adapter(slot, decoder.pack_adapter(adapter))
    return decoder


def _logits(decoder, tokens, slot: int) -> torch.Tensor:
    return Run(decoder, {"a": slot}).step(("a", tokens))["a"]


def _merged_logits(spec, weights: str, adapter: LoraAdapter, tokens) -> torch.Tensor:
    """Of the reference with the adapter built into its weights."""
    packed = {name: _as_packed(name, w, weights) for name, w in random_weights(spec).items()}
    precision = Precision("float32", "auto", "auto")
    source = DictSource(merged(packed, adapter))
    decoder = ReferenceBackend(2).load(spec, source, precision, lambda done, total: None)
    return Run(decoder).step(("a", tokens))["a"]


def _error(ours: torch.Tensor, exact: torch.Tensor) -> float:
    return float((ours - exact).square().mean().sqrt() / exact.square().mean().sqrt())


# Every instruction set adds alike to all formats: the best one does for the others.
@pytest.mark.parametrize(
    ("weights", "isa"), [*(("none", isa) for isa in ISAS), ("int8", None), ("int4", None)]
)
@pytest.mark.parametrize("spec", [PLAIN, EVERYTHING], ids=["plain", "everything"])
def test_an_adapter_is_as_if_it_were_built_into_the_weights(spec, weights, isa) -> None:
    adapter, tokens = random_adapter(spec, seed=1), _tokens(70)
    exact = _merged_logits(spec, weights, adapter, tokens)
    decoder = _adapted(spec, {2: adapter}, weights=weights, isa=isa)

    assert _error(_logits(decoder, tokens, slot=2), exact) < TOLERANCES[weights]
    assert _error(_logits(decoder, tokens, slot=-1), exact) > 0.2


@pytest.mark.parametrize("parts", [("q",), ("v", "k"), ("o",), ("up",), ("gate", "down")])
def test_an_adapter_may_name_some_matrices_only(parts) -> None:
    adapter, tokens = random_adapter(EVERYTHING, seed=2, rank=9, parts=parts), _tokens(40)

    ours = _logits(_adapted(EVERYTHING, {0: adapter}), tokens, slot=0)

    exact = _merged_logits(EVERYTHING, "none", adapter, tokens)
    assert _error(ours, exact) < TOLERANCES["none"]


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("weights", ["none", "int8"])
def test_each_request_has_its_own_adapter_whatever_the_batch(weights, num_threads) -> None:
    adapters = {0: random_adapter(PLAIN, seed=3), 1: random_adapter(PLAIN, seed=4, rank=11)}
    slots = {f"r{i}": i % 3 - 1 for i in range(12)}
    prompts = {name: _tokens(1 + 7 * i, seed=i) for i, name in enumerate(slots)}
    decoder = _adapted(PLAIN, adapters, weights=weights, num_threads=num_threads)
    plain = _load(PLAIN, weights=weights)
    alone = {}
    for name, slot in slots.items():
        run = Run(plain) if slot < 0 else Run(decoder, {name: slot})
        alone[name] = run.step((name, prompts[name]))[name]

    together = Run(decoder, slots)
    halves = [
        together.step(*((name, tokens[:cut]) for name, tokens in prompts.items() if tokens[:cut]))
        for cut in (3,)
    ]
    rest = together.step(*((name, tokens[3:]) for name, tokens in prompts.items() if tokens[3:]))

    for name in slots:
        rows = torch.cat([half[name] for half in (*halves, rest) if name in half])
        assert torch.equal(rows, alone[name]), name


def test_a_slot_takes_another_adapter_and_is_refused_when_empty() -> None:
    first, second = random_adapter(PLAIN, seed=5), random_adapter(PLAIN, seed=6)
    tokens = _tokens(10)
    decoder = _adapted(PLAIN, {1: first})
    before = _logits(decoder, tokens, slot=1)

    decoder.set_adapter(1, decoder.pack_adapter(second))
    after = _logits(decoder, tokens, slot=1)
    decoder.set_adapter(1, None)

    assert not torch.equal(before, after)
    assert torch.equal(after, _logits(_adapted(PLAIN, {0: second}), tokens, slot=0))
    for slot in (0, 1, 7):
        with pytest.raises(ValueError, match=rf"adapters\[0\] is {slot}: the slot is empty"):
            _logits(decoder, tokens, slot=slot)


def test_what_does_not_fit_the_model_is_refused_by_name() -> None:
    decoder, adapter = _load(PLAIN), random_adapter(PLAIN, seed=7)
    fits = adapter.matrices["layers.0.q"]
    infinite = dataclasses.replace(fits, b=np.full_like(fits.b, 3.4e38))

    for name, matrix, message in (
        ("layers.2.q", fits, "no matrix layers.2.q"),
        ("embed", fits, "no matrix embed"),
        ("layers.1.o", LowRank(fits.a[:, :5], fits.b), "matrices for layers.1.o are"),
        ("layers.0.q", infinite, "matrices for layers.0.q have values that are not finite"),
    ):
        with pytest.raises(ValueError, match=message):
            decoder.pack_adapter(LoraAdapter({name: matrix}))


def test_an_adapter_takes_two_bytes_an_element_but_for_padding() -> None:
    adapter = random_adapter(PLAIN, seed=8)
    elements = sum(m.a.size + m.b.size for m in adapter.matrices.values())

    packed = _load(PLAIN).pack_adapter(adapter)

    assert 2 * elements <= packed.nbytes < 1.05 * 2 * elements
