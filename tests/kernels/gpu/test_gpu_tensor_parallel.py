"""A GPU decoder in parts, interpreted, over gloo: together the ranks compute the whole model.

rank 0   2 of 3 KV heads, 23 of 45 neurons, 41 of 81 tokens       picks
rank 1   1                22                40                    gives its part, picks nothing
"""

from __future__ import annotations

import dataclasses
import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from engine_svc.parallel import follower
from engine_svc.parallel.leader import LeadingAsyncDecoder
from engine_svc.parallel.step_wire import stop
from kernels.backend import BegunStep, Precision, StepInputs, StepResult
from kernels.coded import INT4
from kernels.collectives import Absent
from kernels.gpu.backend import GpuBackend
from kernels.reference.backend import ReferenceBackend
from kernels.spec import Activation, DecoderSpec, LayerSpec, RopeSpec
from tests.kernels.decoder_steps import BLOCK_SIZE, DictSource, Run, random_weights
from tests.kernels.gpu.gloo_ranks import GlooRanks
from tests.support.coded_matrix import coded
from tests.support.picks import picks_of

UNEVEN = DecoderSpec(
    vocab_size=81,
    hidden_size=64,
    intermediate_size=45,
    num_heads=6,
    num_kv_heads=3,
    head_dim=16,
    layers=(LayerSpec(RopeSpec()),),
    norm_eps=1e-5,
    max_position=128,
    attention_scale=0.25,
)
MODELS = {
    "llama, with every bias": dataclasses.replace(
        UNEVEN, qkv_bias=True, output_bias=True, mlp_bias=True
    ),
    "gemma3": dataclasses.replace(
        UNEVEN,
        layers=(LayerSpec(RopeSpec(), window=7), LayerSpec(RopeSpec(theta=1e6))),
        activation=Activation.GELU_TANH,
        tied_head=True,
        qk_norm=True,
        post_norms=True,
        norm_offset=1.0,
        embedding_scale=8.0,
        attention_softcap=20.0,
        logit_softcap=15.0,
    ),
}
EXACT = Precision("float32", weights="auto", kv_cache="auto")
PROMPT = [(7 * i) % 81 for i in range(17)]  # over two blocks of KV


def _backend(collectives=None) -> GpuBackend:
    return GpuBackend(
        torch.device("cpu"), max_num_batched_tokens=64, max_num_seqs=8, collectives=collectives
    )


def _load(spec: DecoderSpec, backend):
    source = DictSource(random_weights(spec))
    return backend.load(spec, source, EXACT, lambda _done, _total: None)


@contextmanager
def _ranks(spec: DecoderSpec) -> Iterator[GlooRanks]:
    with GlooRanks(2, lambda collectives: _load(spec, _backend(collectives))) as ranks:
        yield ranks


@pytest.mark.parametrize("spec", MODELS.values(), ids=MODELS)
def test_two_ranks_have_the_logits_of_the_whole_model(spec: DecoderSpec) -> None:
    whole = Run(_load(spec, ReferenceBackend(1)))
    with _ranks(spec) as ranks:
        parts = Run(ranks)
        # A prompt; a decode beside another prompt; decodes alone.
        for chunks in ([("a", PROMPT)], [("a", [5]), ("b", [3, 77])], [("b", [80]), ("a", [0])]):
            ours, theirs = parts.step(*chunks), whole.step(*chunks)
            for name, _ in chunks:
                torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=2e-4)


def test_rank_0_alone_picks_and_has_logits_of_the_whole_vocabulary() -> None:
    with _ranks(UNEVEN) as ranks:
        chunks = (("a", PROMPT[:2]), ("b", PROMPT[2:4]))
        inputs = Run(ranks).inputs(*chunks, logits_rows=[1, 3, 2], picks=picks_of([1, 3]))

        first, second = (ranks.step(inputs), ranks.results[1])

    assert first.logits.shape == (3, 81)
    assert first.token_ids.tolist() == first.logits[:2].argmax(axis=1).tolist()
    assert (len(second.token_ids), second.logits.shape) == (0, (0, 81))


class Wire:
    """What rank 0 tells reaches the other one. Stands in for `Ranks` at both ends."""

    def __init__(self) -> None:
        self._told: queue.SimpleQueue[np.ndarray] = queue.SimpleQueue()

    def tell(self, numbers: np.ndarray) -> None:
        self._told.put(numbers.copy())

    def hear(self, count: int) -> np.ndarray:
        numbers = self._told.get()
        assert len(numbers) == count
        return numbers

    def leave(self) -> None:
        """Nobody listens for losses."""


class InTurn:
    """Steps of one of `ranks`, each in its turn."""

    def __init__(self, ranks: GlooRanks, rank: int) -> None:
        self._ranks = ranks
        self._decoder = ranks.decoders[rank]

    def step(self, inputs: StepInputs) -> StepResult:
        with self._ranks.turn():
            return self._decoder.step(inputs)

    def begin(self, inputs: StepInputs) -> BegunStep:
        with self._ranks.turn():
            return self._decoder.begin(inputs)


def test_steps_begun_before_tokens_are_known_have_them_on_all_ranks() -> None:
    prompts = {"a": PROMPT[:6], "b": PROMPT[:2]}
    decoder = _load(UNEVEN, _backend())
    alone = Run(decoder)
    chunks, expected = list(prompts.items()), []
    for _ in range(4):
        last_rows = np.cumsum([len(tokens) for _, tokens in chunks]) - 1
        inputs = alone.inputs(*chunks, logits_rows=[], picks=picks_of(last_rows))
        expected.append(decoder.step(inputs).token_ids.tolist())
        chunks = [(name, [token]) for (name, _), token in zip(chunks, expected[-1], strict=True)]
        chunks.reverse()

    wire, found = Wire(), []
    with _ranks(UNEVEN) as ranks, ThreadPoolExecutor(1) as pool:
        run = Run(ranks)
        own, other = InTurn(ranks, 0), pool.submit(follower.compute, InTurn(ranks, 1), wire)
        leader = LeadingAsyncDecoder(own, own, wire)
        inputs = run.inputs(*prompts.items(), logits_rows=[], picks=picks_of([5, 7]))
        begun = leader.begin(inputs)
        for names in ("ba", "ab", "ba"):
            unknown = run.inputs(*((name, [0]) for name in names), logits_rows=[],
                                 picks=picks_of([0, 1]))  # fmt: skip
            where = np.array([1, 0], np.int32)  # each came in the other's place before
            then = leader.begin(dataclasses.replace(unknown, picked=where))
            found.append(begun.result().token_ids.tolist())
            begun = then
        found.append(begun.result().token_ids.tolist())
        wire.tell(stop())
        other.result(timeout=60)

    assert found == expected


def test_a_row_has_the_same_bits_alone_in_a_batch_and_in_chunks() -> None:
    with _ranks(UNEVEN) as ranks:
        alone = Run(ranks)
        whole, then = alone.step(("a", PROMPT[:6]))["a"], alone.step(("a", [5]))["a"]
        together = Run(ranks)
        first = together.step(("a", PROMPT[:4]), ("b", PROMPT[:2]))["a"]
        second = together.step(("b", [4]), ("a", PROMPT[4:6]))["a"]
        last = together.step(("b", [9]), ("a", [5]))["a"]

    assert torch.equal(torch.cat((first, second)), whole)
    assert torch.equal(last, then)


def test_the_plan_of_rank_0_is_what_it_then_holds() -> None:
    spec = MODELS["gemma3"]
    source = DictSource(random_weights(spec))
    sizes = {"block_size": BLOCK_SIZE, "max_num_batched_tokens": 64, "max_num_seqs": 8}

    needs = _backend(Absent(0, 2)).plan(spec, source, EXACT, **sizes)

    with _ranks(spec) as ranks:
        assert needs.weights == pytest.approx(ranks.decoders[0].weight_bytes, rel=0.02)
    assert needs.kv_per_block == 2 * 2 * 2 * 16 * 4 * BLOCK_SIZE  # of 2 heads, not of 3
    assert needs.activations < _backend().plan(spec, source, EXACT, **sizes).activations * 1.5


def test_4_bit_codes_stay_codes_on_ranks_that_have_whole_units_of_columns() -> None:
    # Of each of o and down a rank has 64 columns.
    spec = dataclasses.replace(UNEVEN, num_heads=8, num_kv_heads=2, intermediate_size=128)
    weights = {
        name: coded(shape, INT4, seed=len(name)) if len(shape) == 2 and "layers" in name else weight
        for (name, shape), weight in zip(
            spec.weight_shapes().items(), random_weights(spec).values(), strict=True
        )
    }

    def load(backend):
        return backend.load(spec, DictSource(weights), EXACT, lambda _done, _total: None)

    whole = Run(load(_backend()))
    with GlooRanks(2, lambda collectives: load(_backend(collectives))) as ranks:
        logits = Run(ranks).step(("a", PROMPT[:4]))["a"]
        sizes = [decoder.weight_bytes for decoder in ranks.decoders]

    torch.testing.assert_close(logits, whole.step(("a", PROMPT[:4]))["a"], rtol=1e-4, atol=2e-4)
    dense = sum(torch.Size(shape).numel() for shape in spec.weight_shapes().values()) * 4
    assert sum(sizes) < dense / 2  # embedding and head, 10 kB of float32 values, are not coded


def test_more_ranks_than_kv_heads_are_refused_before_anything_is_read() -> None:
    source = DictSource(random_weights(UNEVEN))

    with pytest.raises(ValueError, match="4 ranks are more than the model's 3 KV heads"):
        _backend(Absent(0, 4)).load(UNEVEN, source, EXACT, lambda _done, _total: None)

    assert source.asked == []
