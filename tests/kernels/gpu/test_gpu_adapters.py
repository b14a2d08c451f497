"""Adapters in the GPU's decoder, interpreted: what the reference adds, to the same rows."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from kernels.backend import Precision
from kernels.gpu.backend import GpuBackend
from kernels.lora import LoraAdapter, LowRank
from kernels.reference.backend import ReferenceBackend
from kernels.spec import DecoderSpec, LayerSpec, RopeSpec
from tests.kernels.decoder_steps import DictSource, Run, random_weights
from tests.kernels.gpu.gloo_ranks import GlooRanks
from tests.kernels.random_adapters import random_adapter

SPEC = DecoderSpec(
    vocab_size=40,
    hidden_size=32,
    intermediate_size=48,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    layers=(LayerSpec(RopeSpec()),),
    norm_eps=1e-5,
    max_position=64,
    attention_scale=0.25,
    qkv_bias=True,
)
EXACT = Precision("float32", weights="auto", kv_cache="auto")
ADAPTERS = {
    0: random_adapter(SPEC, seed=1),
    2: random_adapter(SPEC, seed=2, rank=17, parts=("q", "v", "down")),
}
SLOTS = {"a": 0, "b": -1, "c": 2}
STEPS = (
    (("a", [3, 1, 4]), ("b", [9, 2]), ("c", [6, 5])),
    (("a", [5]), ("b", [8]), ("c", [9])),
)


def _backend(collectives=None) -> GpuBackend:
    return GpuBackend(
        torch.device("cpu"), max_num_batched_tokens=64, max_num_seqs=8, collectives=collectives
    )


def _with_adapters(backend):
    decoder = backend.load(SPEC, DictSource(random_weights(SPEC)), EXACT, lambda *_: None)
    for slot, adapter in ADAPTERS.items():
        decoder.set_adapter(slot, decoder.pack_adapter(adapter))
    return decoder


def _all_logits(decoder) -> dict[str, torch.Tensor]:
    run = Run(decoder, SLOTS)
    steps = [run.step(*step) for step in STEPS]
    return {name: torch.cat([step[name] for step in steps]) for name in SLOTS}


@pytest.fixture(scope="module")
def reference() -> dict[str, torch.Tensor]:
    return _all_logits(_with_adapters(ReferenceBackend(threads=1)))


def test_two_ranks_have_the_reference_s_logits_for_each_adapter(reference) -> None:
    with GlooRanks(2, lambda collectives: _with_adapters(_backend(collectives))) as ranks:
        ours = _all_logits(ranks)

    for name, exact in reference.items():
        torch.testing.assert_close(ours[name], exact, rtol=1e-4, atol=2e-4)


def test_a_row_has_the_reference_s_logits_and_the_same_bits_alone_as_in_a_batch(reference) -> None:
    decoder = _with_adapters(_backend())

    together = _all_logits(decoder)

    for name, exact in reference.items():
        torch.testing.assert_close(together[name], exact, rtol=1e-4, atol=2e-4)
    for name, slot in SLOTS.items():
        alone = Run(decoder, {name: slot})
        tokens = [
            token for step in STEPS for each, chunk in step if each == name for token in chunk
        ]
        assert torch.equal(alone.step((name, tokens))[name], together[name]), name


def test_what_does_not_fit_the_model_is_refused_by_name() -> None:
    source = DictSource(random_weights(SPEC))
    decoder = _backend().load(SPEC, source, EXACT, lambda *_: None)
    q = ADAPTERS[0].matrices["layers.0.q"]
    infinite = LoraAdapter({"layers.0.q": dataclasses.replace(q, b=q.b * float("inf"))})

    with pytest.raises(ValueError, match=r"layers\.0\.q have values that are not finite"):
        decoder.pack_adapter(infinite)
    with pytest.raises(ValueError, match="no matrix layers"):
        decoder.pack_adapter(LoraAdapter({"layers.1.q": LowRank(q.a, q.b)}))
