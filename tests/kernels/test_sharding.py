"""A decoder in parts: what each rank holds, and that the parts together compute the whole."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from kernels.backend import Precision, StoredTensor
from kernels.coded import FP8, INT4, UINT4
from kernels.reference.backend import ReferenceBackend
from kernels.sharding import Shard, ShardedWeights, parts
from tests.kernels.decoder_specs import UNEVEN, UNEVEN_EVERYTHING
from tests.kernels.decoder_steps import DictSource, Run, random_weights
from tests.support.coded_matrix import coded
from tests.support.picks import picks_of
from tests.support.thread_ranks import ThreadRanks

SPECS = {"uneven": UNEVEN, "everything": UNEVEN_EVERYTHING}
PROMPT = [int(token) for token in np.random.default_rng(0).integers(321, size=70)]
OTHER = PROMPT[::-1][:9]


def _load(spec, size=1, dtype="float32"):
    source = DictSource(random_weights(spec))
    precision = Precision(dtype, weights="auto", kv_cache="auto")

    def load(collectives=None):
        backend = ReferenceBackend(torch.get_num_threads(), collectives)
        return backend.load(spec, source, precision, lambda done, total: None)

    return load() if size == 1 else ThreadRanks(size, load)


def test_parts_differ_by_one_and_the_first_are_larger() -> None:
    assert parts(3, 2) == (range(2), range(2, 3))
    assert parts(49152, 2) == (range(24576), range(24576, 49152))
    assert [len(part) for part in parts(11, 4)] == [3, 3, 3, 2]


def test_a_rank_has_whole_kv_heads_with_the_query_heads_that_read_them() -> None:
    first, second = (Shard(UNEVEN, rank, 2).spec for rank in range(2))

    assert (first.num_heads, first.num_kv_heads) == (4, 2)
    assert (second.num_heads, second.num_kv_heads) == (2, 1)
    assert first.hidden_size == second.hidden_size == UNEVEN.hidden_size
    assert first.intermediate_size + second.intermediate_size == UNEVEN.intermediate_size
    assert first.vocab_size + second.vocab_size == UNEVEN.vocab_size


def test_more_ranks_than_kv_heads_are_refused_with_both_numbers() -> None:
    with pytest.raises(ValueError, match="4 ranks are more than the model's 3 KV heads"):
        Shard(UNEVEN, 0, 4)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", SPECS)
def test_the_ranks_have_every_weight_once(name: str, size: int) -> None:
    spec = SPECS[name]
    whole = DictSource(random_weights(spec))
    ranks = [ShardedWeights(whole, Shard(spec, rank, size)) for rank in range(size)]

    for weight, shape in spec.weight_shapes().items():
        loaded = [rank.load(weight) for rank in ranks]
        assert [part.shape for part in loaded] == [
            rank.shard.spec.weight_shapes()[weight] for rank in ranks
        ]
        values = [part.to_float32() for part in loaded]
        together = values[0]
        if ranks[0].shard.rows(weight) is not None:
            together = np.concatenate(values)
        elif ranks[0].shard.columns(weight) is not None:
            together = np.concatenate(values, axis=1)
        elif weight.endswith(("o_bias", "down_bias")):
            together = sum(values)
        assert together.shape == shape
        assert np.array_equal(together, whole.load(weight).to_float32())


@pytest.mark.parametrize("rank", [0, 1])
def test_a_source_says_how_many_bytes_it_will_give(rank: int) -> None:
    own = ShardedWeights(_quantised(), Shard(UNEVEN, rank, 2))

    given = [own.load(name) for name in UNEVEN.weight_shapes()]

    assert own.total_bytes == sum(part.data.nbytes for part in given)
    assert [own.scheme(name) for name in UNEVEN.weight_shapes()] == [part.scheme for part in given]


def test_rows_of_blocks_stay_as_they_are_and_columns_are_decoded() -> None:
    whole = _quantised()
    own = ShardedWeights(whole, Shard(UNEVEN, 1, 2))

    q, down = own.load("layers.0.q"), own.load("layers.0.down")

    assert q.scheme == "Q8_0"
    assert np.array_equal(q.to_float32(), whole.load("layers.0.q").to_float32()[64:])
    assert down.scheme == "F32"
    assert np.array_equal(down.to_float32(), whole.load("layers.0.down").to_float32()[:, 53:])


@pytest.mark.parametrize(
    ("scheme", "group"), [(INT4, 32), (INT4, 96), (UINT4, 32), (UINT4, 96), (FP8, 96)]
)
def test_codes_stay_codes_in_rows_and_in_columns_of_whole_units(scheme: str, group: int) -> None:
    source = DictSource(random_weights(UNEVEN))
    q, o = coded((96, 96), scheme, group), coded((96, 96), scheme, group, seed=1)
    source.weights |= {"layers.0.q": q, "layers.0.o": o}
    first, second = (ShardedWeights(source, Shard(UNEVEN, rank, 2)) for rank in range(2))

    found = {
        (rank, name): own.load(f"layers.0.{name}")
        for rank, own in enumerate((first, second))
        for name in "qo"
    }

    # Of 96 columns the first rank has 64, which a GPU multiplies with as codes, the second 32.
    assert {key: part.scheme for key, part in found.items()} == {
        (0, "q"): scheme, (1, "q"): scheme, (0, "o"): scheme, (1, "o"): "F32",
    }  # fmt: skip
    assert second.scheme("layers.0.o") == "F32"
    rows = [found[rank, "q"].to_float32() for rank in range(2)]
    columns = [found[rank, "o"].to_float32() for rank in range(2)]
    assert np.array_equal(np.concatenate(rows), q.to_float32())
    assert np.array_equal(np.concatenate(columns, axis=1), o.to_float32())


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", SPECS)
def test_ranks_compute_what_one_computes(name: str, size: int) -> None:
    alone, together = Run(_load(SPECS[name])), Run(_load(SPECS[name], size))

    for chunk in (PROMPT, [7], [8]):
        expected = alone.step(("a", chunk))["a"]
        assert torch.allclose(together.step(("a", chunk))["a"], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_row_of_ranks_depends_on_its_own_request_alone(dtype: str) -> None:
    alone, mixed = (Run(_load(UNEVEN_EVERYTHING, 2, dtype)) for _ in range(2))

    whole = alone.step(("a", PROMPT))["a"]
    first = mixed.step(("a", PROMPT[:33]), ("b", OTHER))["a"]
    second = mixed.step(("b", [1]), ("c", OTHER), ("a", PROMPT[33:]))["a"]

    assert torch.equal(torch.cat((first, second)), whole)


def test_rank_0_picks_from_the_whole_vocabulary() -> None:
    run = Run(ranks := _load(UNEVEN, 2))
    inputs = run.inputs(("a", PROMPT), logits_rows=[69], picks=picks_of([69]))

    result = ranks.step(inputs)

    assert result.logits.shape == (1, UNEVEN.vocab_size)
    assert result.token_ids.tolist() == [int(result.logits[0].argmax())]


@pytest.mark.parametrize("name", SPECS)
def test_the_plan_of_rank_0_is_what_it_then_holds(name: str) -> None:
    from kernels.collectives import Absent

    spec = SPECS[name]
    needs = ReferenceBackend(1, Absent(0, 2)).plan(
        spec,
        DictSource(random_weights(spec)),
        Precision("float32", weights="auto", kv_cache="auto"),
        block_size=16,
        max_num_batched_tokens=64,
        max_num_seqs=8,
    )

    assert needs.weights == _load(spec, 2).decoders[0].weight_bytes
    assert needs.kv_per_block == 2 * spec.num_layers * 2 * 16 * spec.head_dim * 4


def _quantised() -> DictSource:
    """Weights whose matrices of a width that has whole blocks are in Q8_0."""
    weights: dict[str, torch.Tensor | StoredTensor] = dict(random_weights(UNEVEN))
    for name, shape in UNEVEN.weight_shapes().items():
        if len(shape) == 2 and shape[1] % 32 == 0:
            packed = gguf.quants.quantize(weights[name].numpy(), gguf.GGMLQuantizationType.Q8_0)
            weights[name] = StoredTensor("Q8_0", shape, packed.reshape(-1).view(np.uint8))
    return DictSource(weights)
