"""The C++ decoder: close to the reference in every precision, and the same in any batch."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from kernels.backend import NOT_FINITE, Precision
from kernels.cpu import library
from kernels.cpu.backend import CpuBackend
from kernels.cpu.decoder import CpuDecoder
from kernels.cpu.weights import load_weights
from kernels.reference.backend import ReferenceBackend
from kernels.reference.quantization import int4_groups, int8_channels, rotated
from kernels.reference.sampling import pick_tokens
from kernels.spec import DecoderSpec, LayerSpec, RopeKind, RopeSpec
from tests.kernels.decoder_specs import with_everything
from tests.kernels.decoder_steps import BLOCK_SIZE, NUM_BLOCKS, DictSource, Run, random_weights
from tests.support.picks import picks_of

pytestmark = pytest.mark.skipif(
    not library.available(), reason=f"no C++ kernels: {library.unavailable_reason()}"
)

PLAIN = DecoderSpec(
    vocab_size=320,
    hidden_size=128,
    intermediate_size=192,
    num_heads=6,
    num_kv_heads=2,
    head_dim=16,
    layers=(LayerSpec(RopeSpec()),) * 2,
    norm_eps=1e-5,
    max_position=1024,
    attention_scale=0.25,
)
# Sizes that fill neither blocks nor vectors, and everything that a family may have.
EVERYTHING = with_everything(
    dataclasses.replace(PLAIN, vocab_size=333, hidden_size=104, intermediate_size=200, head_dim=24),
    LayerSpec(RopeSpec(), window=24),
    LayerSpec(RopeSpec(theta=1e6, kind=RopeKind.LINEAR, factor=8.0)),
    LayerSpec(RopeSpec(), window=5),
)
SPECS = {"plain": PLAIN, "everything": EVERYTHING}
WEIGHTS = ("none", "int8", "int4")
KV_DTYPES = ("bfloat16", "int8")
# Largest root mean square difference to float32, relative to that of the logits: what rounding the
# activations, to bfloat16 or to 8 bits, may cost.
TOLERANCES = {"none": 0.02, "int8": 0.04, "int4": 0.04}


def _load(spec: DecoderSpec, weights: str = "none", kv_dtype: str = "bfloat16", **options):
    return _load_weights(spec, random_weights(spec), weights, kv_dtype, **options)


def _load_weights(
    spec: DecoderSpec,
    weights: dict[str, torch.Tensor],
    precision: str = "none",
    kv_dtype: str = "bfloat16",
    num_threads: int = 2,
    isa: str | None = None,
) -> CpuDecoder:
    loaded = library.require()
    packed = load_weights(
        loaded,
        spec,
        DictSource(weights),
        Precision("bfloat16", precision, "auto"),
        lambda done, total: None,
        num_threads=2,
    )
    return CpuDecoder(loaded, spec, packed, num_threads=num_threads, kv_dtype=kv_dtype, isa=isa)


def _tokens(count: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 250, (count,), generator=generator).tolist()


def _whole(decoder: CpuDecoder, tokens: list[int]) -> torch.Tensor:
    return Run(decoder).step(("a", tokens))["a"]


# ── against the definition ────────────────────────────────────────────────────────────────────────


def _as_packed(name: str, weight: torch.Tensor, weights: str) -> torch.Tensor:
    """A weight with the values that are left of it in the precision it is packed in."""
    if weight.ndim == 1:
        return weight
    if weights == "none":
        return weight.bfloat16().float()
    rows, cols = weight.shape
    padded = np.zeros((rows, -(-cols // 64) * 64), np.float32)
    padded[:, :cols] = weight
    if weights == "int8" or name in ("embed", "lm_head"):
        values = rotated(int8_channels(rotated(padded)).dequantise())
    else:
        values = int4_groups(padded, 32).dequantise()
    return torch.from_numpy(values[:, :cols].copy())


def _reference_logits(spec: DecoderSpec, weights: str, tokens: list[int]) -> torch.Tensor:
    source = DictSource(
        {name: _as_packed(name, w, weights) for name, w in random_weights(spec).items()}
    )
    precision = Precision("float32", "auto", "auto")
    decoder = ReferenceBackend(2).load(spec, source, precision, lambda done, total: None)
    return _whole(decoder, tokens)


@pytest.mark.parametrize("isa", library.load().isas if library.available() else ())
@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", SPECS)
def test_logits_are_close_to_those_of_the_reference(name, weights, kv_dtype, isa) -> None:
    spec, tokens = SPECS[name], _tokens(70)
    exact = _reference_logits(spec, weights, tokens)

    ours = _whole(_load(spec, weights, kv_dtype, isa=isa), tokens)

    error = (ours - exact).square().mean().sqrt() / exact.square().mean().sqrt()
    assert error < TOLERANCES[weights]


# ── whatever the batch ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("isa", library.load().isas if library.available() else ())
@pytest.mark.parametrize("num_threads", [1, 2, 3])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(("name", "kv_dtype"), [("plain", "bfloat16"), ("everything", "int8")])
def test_chunks_and_company_change_no_bit(name, weights, kv_dtype, num_threads, isa) -> None:
    spec, tokens = SPECS[name], _tokens(140)
    alone = _whole(_load(spec, weights, kv_dtype, num_threads=1, isa=isa), tokens)
    decoder = _load(spec, weights, kv_dtype, num_threads=num_threads, isa=isa)

    one_by_one = Run(decoder)
    rows = [one_by_one.step(("a", [token]))["a"] for token in tokens[:20]]
    assert torch.equal(torch.cat(rows), alone[:20])

    in_company = Run(decoder)
    start, rows = 0, []
    for step, size in enumerate((3, 1, 40, 16, 1, 79)):
        others = [(f"o{i}", _tokens(1 + (i * step) % 9, seed=i)) for i in range(5 * step)]
        chunk = ("a", tokens[start : start + size])
        start += size
        rows.append(in_company.step(*others[: 2 * step], chunk, *others[2 * step :])["a"])
    assert torch.equal(torch.cat(rows), alone)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_any_number_of_neighbours_changes_no_bit(weights) -> None:
    decoder = _load(PLAIN, weights)
    prompts = {f"r{i}": _tokens(1, seed=i) for i in range(70)}
    alone = {name: _whole(decoder, tokens) for name, tokens in prompts.items()}

    for count in range(1, 71):
        names = list(prompts)[70 - count :]
        together = Run(decoder).step(*((name, prompts[name]) for name in names))
        assert all(torch.equal(together[name], alone[name]) for name in names), count


# ── picks ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_greedy_pick_is_the_likeliest_of_the_row_s_logits() -> None:
    decoder, tokens = _load(EVERYTHING), _tokens(50)
    logits = _whole(decoder, tokens)

    inputs = Run(decoder).inputs(
        ("a", tokens), picks=picks_of(rows=range(50), temperature=0.0), logits_rows=[]
    )

    assert decoder.step(inputs).token_ids.tolist() == logits.argmax(1).tolist()


def test_a_drawn_pick_follows_the_draw_through_the_row_s_distribution() -> None:
    decoder, tokens, draws = _load(PLAIN), _tokens(9), np.linspace(0.05, 0.95, 9)
    sums = torch.softmax(_whole(decoder, tokens).double(), 1).cumsum(1).numpy()
    expected = [int(np.searchsorted(row, draw)) for row, draw in zip(sums, draws, strict=True)]

    inputs = Run(decoder).inputs(
        ("a", tokens), picks=picks_of(rows=range(9), temperature=1.0, draw=draws), logits_rows=[]
    )

    assert decoder.step(inputs).token_ids.tolist() == expected


@pytest.mark.parametrize("spec", [PLAIN, EVERYTHING], ids=["plain", "everything"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_masked_pick_is_that_of_the_row_s_masked_logits(spec, temperature) -> None:
    decoder, tokens = _load(spec), _tokens(12)
    logits = _whole(decoder, tokens).numpy()
    bits = np.random.default_rng(8).random((2, spec.vocab_size)) < [[0.02], [0.5]]
    padded = np.pad(bits, ((0, 0), (0, -spec.vocab_size % 32)))
    masks = np.packbits(padded, axis=1, bitorder="little").view(np.uint32)
    draws = np.linspace(0.05, 0.95, 12)
    picks = dataclasses.replace(
        picks_of(rows=range(12), temperature=temperature, draw=draws),
        masks=masks,
        mask_of=np.array([-1, 0, 1] * 4, dtype=np.int32),
    )

    inputs = Run(decoder).inputs(("a", tokens), picks=picks, logits_rows=[])

    found = decoder.step(inputs).token_ids
    assert found.tolist() == pick_tokens(logits, picks).tolist()
    assert bits[0, found[1::3]].all()
    assert bits[1, found[2::3]].all()


@pytest.mark.parametrize(
    ("num_words", "mask", "message"),
    [
        (10, 1, r"mask_of\[0\] is 1: there is no such mask"),
        (11, 0, "have 11 words"),
    ],
)
def test_masks_that_do_not_fit_are_refused(num_words, mask, message) -> None:
    decoder = _load(PLAIN)
    picks = dataclasses.replace(
        picks_of(rows=[1]),
        masks=np.ones((1, num_words), dtype=np.uint32),
        mask_of=np.array([mask], dtype=np.int32),
    )

    with pytest.raises(ValueError, match=message):
        decoder.step(Run(decoder).inputs(("a", [1, 2]), picks=picks, logits_rows=[]))


def test_a_row_that_overflows_gives_no_token_and_harms_no_neighbour() -> None:
    weights = random_weights(PLAIN)
    # Only token 7 has anything in the first dimension, which the gated product takes to infinity.
    weights["embed"][:, 0] = 0.0
    weights["embed"][7, 0] = 1.0
    for i in range(PLAIN.num_layers):
        weights[f"layers.{i}.o"][0] = weights[f"layers.{i}.down"][0] = 0.0
        weights[f"layers.{i}.gate"][:, 0] = weights[f"layers.{i}.up"][:, 0] = 1e30
    decoder = _load_weights(PLAIN, weights)
    healthy = Run(decoder).inputs(("b", [1, 2, 3]), picks=picks_of(rows=[2]), logits_rows=[])
    expected = decoder.step(healthy).token_ids[0]

    inputs = Run(decoder).inputs(
        ("a", [7]), ("b", [1, 2, 3]), picks=picks_of(rows=[0, 3]), logits_rows=[]
    )

    assert expected != NOT_FINITE
    assert decoder.step(inputs).token_ids.tolist() == [NOT_FINITE, expected]


# ── inputs that would reach outside of the arrays ─────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("token_ids", PLAIN.vocab_size, r"token_ids\[0\] is 320: not in the vocabulary"),
        ("token_ids", -1, r"token_ids\[0\] is -1"),
        ("positions", -1, r"positions\[0\] is -1: negative"),
        ("slot_mapping", NUM_BLOCKS * BLOCK_SIZE, r"slot_mapping\[0\] is 4096: not in the pool"),
        ("query_start_loc", 1, r"query_start_loc\[1\] is 3"),
        ("seq_lens", 2, r"seq_lens\[0\] is 2"),
        ("seq_lens", 17, r"seq_lens\[0\] is 17"),
        ("block_tables", NUM_BLOCKS, r"block_tables\[0\] names block 256"),
        ("logits_rows", 3, r"wanted row 0 is 3: not a row of the step"),
    ],
)
def test_an_input_out_of_range_is_refused_before_anything_is_computed(
    field, value, message
) -> None:
    decoder = _load(PLAIN)
    run = Run(decoder)
    inputs = run.inputs(("a", [1, 2, 3]), logits_rows=[2])
    broken = getattr(inputs, field).copy()
    broken.flat[0] = value

    if field == "query_start_loc":
        broken[:] = [1, 4]
        message = r"query_start_loc\[1\] is 4"
    with pytest.raises(ValueError, match=message):
        decoder.step(dataclasses.replace(inputs, **{field: broken}))


def test_a_step_before_the_pool_exists_is_refused() -> None:
    decoder = _load(PLAIN)
    inputs = Run(_load(PLAIN)).inputs(("a", [1]), logits_rows=[0])

    with pytest.raises(ValueError, match="allocate_kv comes before the first step"):
        decoder.step(inputs)


# ── the back end ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kv_cache", ["auto", "int8"])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", SPECS)
def test_the_plan_is_what_is_then_held(name, weights, kv_cache) -> None:
    spec, precision = SPECS[name], Precision("bfloat16", weights, kv_cache)
    backend, source = CpuBackend(2), DictSource(random_weights(spec))

    needs = backend.plan(
        spec,
        source,
        precision,
        block_size=BLOCK_SIZE,
        max_num_batched_tokens=64,
        max_num_seqs=8,
    )

    decoder = backend.load(spec, source, precision, lambda done, total: None)
    assert decoder.weight_bytes == needs.weights
    elements = 2 * spec.num_layers * spec.num_kv_heads * BLOCK_SIZE * spec.head_dim
    assert needs.kv_per_block >= elements * (1 if kv_cache == "int8" else 2)


@pytest.mark.parametrize(
    ("precision", "spec", "block_size", "reason"),
    [
        (Precision("float32", "auto", "auto"), PLAIN, 16, "in bfloat16, not in float32"),
        (
            Precision("bfloat16", "auto", "auto"),
            dataclasses.replace(PLAIN, head_dim=20),
            16,
            "heads of a multiple of 8 up to 256, not of 20",
        ),
        (Precision("bfloat16", "auto", "auto"), PLAIN, 8, "multiple of 16 tokens, not of 8"),
        (Precision("bfloat16", "auto", "auto"), PLAIN, 16, None),
    ],
)
def test_what_it_cannot_compute_it_says(precision, spec, block_size, reason) -> None:
    found = CpuBackend.unsupported(spec, precision, block_size)

    assert (found is None) if reason is None else (reason in found)


def test_time_is_counted_by_part_of_the_step() -> None:
    decoder = _load(PLAIN)

    result = decoder.step(Run(decoder).inputs(("a", _tokens(40)), logits_rows=range(40)))

    seconds = decoder.phase_seconds

    assert all(value > 0 for name, value in seconds.items() if name != "pick")
    assert 0 < sum(seconds.values()) < 60
    assert result.cpu_seconds > 0
