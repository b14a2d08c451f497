"""Adapters in the reference decoder: what they add, to whose rows, and the same in any batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernels.backend import Precision
from kernels.lora import LoraAdapter, LowRank
from kernels.reference.backend import ReferenceBackend
from tests.kernels.decoder_specs import UNEVEN, UNEVEN_EVERYTHING
from tests.kernels.decoder_steps import DictSource, Run, random_weights
from tests.kernels.random_adapters import merged, random_adapter
from tests.support.marked_adapter import MarkedAdapter
from tests.support.thread_ranks import ThreadRanks

SPECS = {"plain": UNEVEN, "everything": UNEVEN_EVERYTHING}
PROMPT = [int(token) for token in np.random.default_rng(0).integers(321, size=70)]


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _load(spec, adapters=None, *, size=1, dtype="float32", weights=None):
    """A decoder, of several ranks where `size` says so, with adapters in their slots."""
    source = DictSource(random_weights(spec) if weights is None else weights)

    def load(collectives=None):
        backend = ReferenceBackend(torch.get_num_threads(), collectives)
        precision = Precision(dtype, weights="auto", kv_cache="auto")
        return backend.load(spec, source, precision, lambda done, total: None)

    decoder = load() if size == 1 else ThreadRanks(size, load)
    for slot, adapter in (adapters or {}).items():
        decoder.set_adapter(slot, decoder.pack_adapter(adapter))
    return decoder


def _greedy(run: Run, name: str, prompt: list[int], count: int) -> list[int]:
    tokens = [int(run.step((name, prompt))[name][-1].argmax())]
    while len(tokens) < count:
        tokens.append(int(run.step((name, tokens[-1:]))[name][-1].argmax()))
    return tokens


@pytest.mark.parametrize("size", [1, 2], ids=["alone", "ranks"])
@pytest.mark.parametrize("name", SPECS)
def test_an_adapter_is_as_if_it_were_built_into_the_weights(name, size) -> None:
    spec, adapter = SPECS[name], random_adapter(SPECS[name], seed=1)
    built_in = _load(spec, weights=merged(random_weights(spec), adapter))
    decoder = _load(spec, {3: adapter}, size=size)

    exact = Run(built_in).step(("a", PROMPT))["a"]
    ours = Run(decoder, {"a": 3}).step(("a", PROMPT))["a"]
    without = Run(decoder).step(("a", PROMPT))["a"]

    assert (ours - exact).norm() < 1e-5 * exact.norm()
    assert (without - exact).norm() > 0.2 * exact.norm()
    tokens = _greedy(Run(decoder, {"a": 3}), "a", PROMPT, 12)
    assert tokens == _greedy(Run(built_in), "a", PROMPT, 12)


@pytest.mark.parametrize("parts", [("v", "k"), ("o", "up"), ("gate", "down")])
def test_an_adapter_may_name_some_matrices_only(parts) -> None:
    adapter = random_adapter(UNEVEN_EVERYTHING, seed=2, rank=9, parts=parts)

    ours = Run(_load(UNEVEN_EVERYTHING, {0: adapter}), {"a": 0}).step(("a", PROMPT))["a"]

    built_in = _load(UNEVEN_EVERYTHING, weights=merged(random_weights(UNEVEN_EVERYTHING), adapter))
    exact = Run(built_in).step(("a", PROMPT))["a"]
    assert (ours - exact).norm() < 1e-5 * exact.norm()


def test_low_precision_errs_no_more_than_rounded_merged_weights_do() -> None:
    adapter = random_adapter(UNEVEN, seed=1)
    weights = merged(random_weights(UNEVEN), adapter)
    exact = Run(_load(UNEVEN, weights=weights)).step(("a", PROMPT))["a"]

    ours = Run(_load(UNEVEN, {0: adapter}, dtype="bfloat16"), {"a": 0}).step(("a", PROMPT))["a"]

    theirs = Run(_load(UNEVEN, weights=weights, dtype="bfloat16")).step(("a", PROMPT))["a"]
    assert (ours - exact).square().mean() <= 1.5 * (theirs - exact).square().mean()


@pytest.mark.parametrize(("dtype", "size"), [("float32", 1), ("bfloat16", 1), ("float32", 2)])
def test_each_request_has_its_own_adapter_whatever_the_batch(dtype, size) -> None:
    adapters = {
        0: random_adapter(UNEVEN, seed=3),
        1: random_adapter(UNEVEN, seed=4, rank=11, parts=("q", "v", "down")),
    }
    slots = {f"r{i}": i % 3 - 1 for i in range(12)}
    prompts = {name: PROMPT[: 4 + 5 * i] for i, name in enumerate(slots)}
    decoder, plain = (
        _load(UNEVEN, adapters, size=size, dtype=dtype),
        _load(UNEVEN, size=size, dtype=dtype),
    )
    alone = {
        name: Run(plain if slot < 0 else decoder, {name: slot}).step((name, prompts[name]))[name]
        for name, slot in slots.items()
    }

    together = Run(decoder, slots)
    first = together.step(*((name, tokens[:3]) for name, tokens in prompts.items()))
    rest = together.step(*((name, tokens[3:]) for name, tokens in reversed(prompts.items())))

    for name in slots:
        assert torch.equal(torch.cat((first[name], rest[name])), alone[name]), name


@pytest.mark.parametrize("num_threads", [2], indirect=True)
@pytest.mark.usefixtures("num_threads")
def test_more_rows_than_the_largest_tile_change_no_bit() -> None:
    down = random_adapter(UNEVEN, seed=1).matrices["layers.1.down"]
    decoder, tokens = _load(UNEVEN, {0: LoraAdapter({"layers.1.down": down})}), PROMPT * 9

    whole = Run(decoder, {"a": 0}).step(("a", tokens))["a"]

    run = Run(decoder, {"a": 0})
    parts = [run.step(("a", part))["a"] for part in (tokens[:1], tokens[1:290], tokens[290:])]
    assert torch.equal(torch.cat(parts), whole)


def test_a_slot_takes_another_adapter_and_is_refused_when_empty() -> None:
    first, second = random_adapter(UNEVEN, seed=5), random_adapter(UNEVEN, seed=6)
    decoder = _load(UNEVEN, {1: first})
    before = Run(decoder, {"a": 1}).step(("a", PROMPT))["a"]

    decoder.set_adapter(1, decoder.pack_adapter(second))
    after = Run(decoder, {"a": 1}).step(("a", PROMPT))["a"]
    decoder.set_adapter(1, None)

    assert not torch.equal(before, after)
    other_slot = Run(_load(UNEVEN, {0: second}), {"a": 0}).step(("a", PROMPT))["a"]
    assert torch.equal(after, other_slot)
    with pytest.raises(ValueError, match=r"adapters\[0\] is 1: the slot is empty"):
        Run(decoder, {"a": 1}).step(("a", PROMPT))


def test_what_does_not_fit_the_model_is_refused_by_name() -> None:
    decoder, fits = _load(UNEVEN, dtype="float16"), random_adapter(UNEVEN, seed=7)
    q = fits.matrices["layers.0.q"]

    for name, matrix, message in (
        ("layers.2.q", q, r"no matrix layers\.2\.q"),
        ("embed", q, "no matrix embed"),
        ("layers.1.o", LowRank(q.a[:, :5], q.b), r"matrices for layers\.1\.o are"),
        ("layers.0.q", LowRank(q.a, q.b * 1e6), r"layers\.0\.q have values .* in float16"),
    ):
        with pytest.raises(ValueError, match=message):
            decoder.pack_adapter(LoraAdapter({name: matrix}))
    with pytest.raises(TypeError, match="no MarkedAdapter"):
        decoder.set_adapter(0, MarkedAdapter(1))


def test_ranks_have_every_number_of_an_adapter_that_goes_with_their_weights() -> None:
    adapter = random_adapter(UNEVEN, seed=8)
    ranks = _load(UNEVEN, size=2)

    packed = [decoder.pack_adapter(adapter) for decoder in ranks.decoders]

    whole = _load(UNEVEN).pack_adapter(adapter)
    assert max(each.nbytes for each in packed) < whole.nbytes < sum(each.nbytes for each in packed)


def test_a_step_with_adapters_stays_within_the_planned_peak() -> None:
    run = Run(_load(UNEVEN, {0: random_adapter(UNEVEN, seed=9, rank=16)}), {"a": 0})
    tokens = (PROMPT * 5)[:300]  # more than are multiplied at once

    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        run.step(("a", tokens))

    in_use = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            in_use += event.nbytes()
            peak = max(peak, in_use)
    needs = ReferenceBackend(torch.get_num_threads()).plan(
        UNEVEN,
        DictSource({}),
        Precision("float32", "auto", "auto"),
        block_size=16,
        max_num_batched_tokens=300,
        max_num_seqs=8,
    )
    assert 0 < peak <= needs.activations
