"""A whole step of the GPU back end, interpreted: the reference's logits, and equal bits.

One small model has what each family has: Llama's plain layers, Qwen2's biases, Qwen3's norms of
heads, Mistral's window, Gemma's post-norms, scaled embedding and two kinds of rope.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from kernels.backend import NOT_FINITE, Precision
from kernels.gpu.backend import GpuBackend
from kernels.gpu.decoder import GpuDecoder
from kernels.gpu.sampling import DevicePicks, pick_tokens
from kernels.reference.backend import ReferenceBackend
from kernels.spec import Activation, DecoderSpec, LayerSpec, RopeKind, RopeSpec
from tests.kernels.decoder_steps import BLOCK_SIZE, DictSource, Run, random_weights
from tests.support.picks import picks_of

LLAMA = DecoderSpec(
    vocab_size=80,
    hidden_size=64,
    intermediate_size=96,
    num_heads=6,
    num_kv_heads=2,
    head_dim=16,
    layers=(LayerSpec(RopeSpec(kind=RopeKind.LLAMA3, factor=8.0, original_max_position=64)),) * 2,
    norm_eps=1e-5,
    max_position=128,
    attention_scale=0.25,
)
FAMILIES = {
    "llama": LLAMA,
    "llama_tied": dataclasses.replace(LLAMA, tied_head=True),
    "qwen2": dataclasses.replace(LLAMA, qkv_bias=True),
    "qwen3": dataclasses.replace(LLAMA, qk_norm=True),
    "mistral": dataclasses.replace(LLAMA, layers=(LayerSpec(RopeSpec(), window=9),) * 2),
    "gemma3": dataclasses.replace(
        LLAMA,
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
PROMPT = [(7 * i) % 79 for i in range(37)]  # over two blocks of KV and two tiles of rows


def _backend() -> GpuBackend:
    return GpuBackend(torch.device("cpu"), max_num_batched_tokens=64, max_num_seqs=8)


def _gpu(spec: DecoderSpec, precision: Precision = EXACT, **weights: torch.Tensor) -> GpuDecoder:
    source = DictSource(random_weights(spec) | weights)
    return _backend().load(spec, source, precision, lambda _done, _total: None)


def _reference(spec: DecoderSpec):
    backend = ReferenceBackend(threads=1)
    return backend.load(spec, DictSource(random_weights(spec)), EXACT, lambda _done, _total: None)


@pytest.mark.parametrize("spec", FAMILIES.values(), ids=FAMILIES)
def test_a_prompt_and_a_decode_have_the_reference_s_logits(spec: DecoderSpec) -> None:
    gpu, reference = Run(_gpu(spec)), Run(_reference(spec))

    for tokens in (PROMPT, [5]):
        torch.testing.assert_close(
            gpu.step(("a", tokens))["a"], reference.step(("a", tokens))["a"], rtol=1e-4, atol=2e-4
        )


def test_a_row_has_the_same_bits_alone_in_a_batch_and_in_chunks() -> None:
    decoder = _gpu(FAMILIES["gemma3"])
    alone = Run(decoder)
    whole = alone.step(("a", PROMPT))["a"]
    next_alone = alone.step(("a", [5]))["a"]

    together = Run(decoder)
    together.step(("b", PROMPT[:19]))
    first = together.step(("a", PROMPT[:17]), ("b", [3]))["a"]
    second = together.step(("b", [4]), ("a", PROMPT[17:]))["a"]
    next_together = together.step(("b", [9]), ("a", [5]), ("c", [1, 2, 3]))["a"]

    assert torch.equal(torch.cat((first, second)), whole)
    assert torch.equal(next_together, next_alone)


def test_tokens_are_picked_where_they_are_wanted() -> None:
    decoder = _gpu(LLAMA)
    chunks = (("a", PROMPT[:5]), ("b", PROMPT[5:8]))
    inputs = Run(decoder).inputs(*chunks, logits_rows=[4, 7], picks=picks_of([4, 7]))

    result = decoder.step(inputs)

    assert result.token_ids.tolist() == result.logits.argmax(axis=1).tolist()


@pytest.mark.filterwarnings("ignore:overflow encountered")  # which is what is tested
@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.filterwarnings("ignore:All-NaN slice encountered")
def test_a_row_that_is_not_finite_gives_no_token_and_harms_no_other() -> None:
    chunks = (("a", [79]), ("b", [3]))
    decoder = _gpu(LLAMA)
    inputs = Run(decoder).inputs(*chunks, logits_rows=[])
    hidden = decoder.step(dataclasses.replace(inputs, hidden_rows=np.array([0], np.int32))).hidden
    head = random_weights(LLAMA)["lm_head"]
    head[5] = torch.from_numpy(hidden[0] / (hidden[0] @ hidden[0]) * 3e38 * 2)  # overflows for "a"
    decoder = _gpu(LLAMA, lm_head=head)
    inputs = Run(decoder).inputs(*chunks, logits_rows=[1], picks=picks_of([0, 1]))

    result = decoder.step(inputs)

    assert result.token_ids.tolist() == [NOT_FINITE, int(result.logits[0].argmax())]


def test_what_is_compiled_before_serving_is_every_way_to_pick_and_leaves_no_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launched: list[tuple[int, bool, bool]] = []

    def pick(logits: torch.Tensor, picks: DevicePicks) -> torch.Tensor:
        launched.append((logits.shape[1], picks.masks is not None, picks.greedy))
        return pick_tokens(logits, picks)

    decoder = _gpu(dataclasses.replace(LLAMA, layers=LLAMA.layers[:1]))
    decoder.allocate_kv(4, BLOCK_SIZE)
    monkeypatch.setattr("kernels.gpu.decoder.pick_tokens", pick)

    decoder._compile(16)

    assert set(launched) == {(80, masks, greedy) for masks in (0, 1) for greedy in (0, 1)}
    assert not any(cache.any() for pair in decoder._caches for cache in pair)


def test_keys_and_values_in_fp8_change_little() -> None:
    fp8 = Precision("float32", weights="auto", kv_cache="fp8")

    coarse = Run(_gpu(LLAMA, fp8)).step(("a", PROMPT))["a"]
    exact = Run(_gpu(LLAMA)).step(("a", PROMPT))["a"]

    assert not torch.equal(coarse, exact)
    assert torch.nn.functional.cosine_similarity(coarse, exact).min() > 0.99


def test_hidden_rows_are_those_that_the_head_takes() -> None:
    decoder = _gpu(LLAMA)
    inputs = Run(decoder).inputs(("a", PROMPT[:6]), logits_rows=[5])

    result = decoder.step(dataclasses.replace(inputs, hidden_rows=np.array([5], np.int32)))

    assert result.hidden is not None
    head = random_weights(LLAMA)["lm_head"].numpy()
    np.testing.assert_allclose(result.hidden @ head.T, result.logits, rtol=1e-4, atol=1e-4)


def test_more_rows_than_logits_are_held_for_have_the_same_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    picks = picks_of([0, 2, 3], temperature=[0.0, 2.0, 1.5], draw=[0.1, 0.9, 0.4])
    decoder = _gpu(LLAMA)
    inputs = Run(decoder).inputs(("a", PROMPT[:4]), logits_rows=(), picks=picks)
    together = decoder.step(inputs).token_ids.copy()

    monkeypatch.setattr("kernels.gpu.decoder.LOGIT_ROWS", 2)

    assert decoder.step(inputs).token_ids.tolist() == together.tolist()
    assert len(set(together.tolist())) > 1


@pytest.mark.parametrize(
    ("precision", "word"),
    [
        (Precision("float64", "auto", "auto"), "float64"),
        (Precision("bfloat16", "int4", "auto"), "int4"),
        (Precision("bfloat16", "auto", "int8"), "int8"),
    ],
)
def test_a_precision_without_kernels_is_refused_before_anything_is_read(
    precision: Precision, word: str
) -> None:
    backend = _backend()
    source = DictSource(random_weights(LLAMA))

    with pytest.raises(ValueError, match=word):
        backend.plan(
            LLAMA, source, precision, block_size=BLOCK_SIZE, max_num_batched_tokens=64,
            max_num_seqs=8,
        )  # fmt: skip

    assert source.asked == []


def test_the_plan_is_what_is_held() -> None:
    backend = _backend()
    spec = FAMILIES["gemma3"]
    source = DictSource(random_weights(spec))

    needs = backend.plan(
        spec, source, EXACT, block_size=BLOCK_SIZE, max_num_batched_tokens=64, max_num_seqs=8
    )

    decoder = backend.load(spec, source, EXACT, lambda _done, _total: None)
    assert needs.weights == pytest.approx(decoder.weight_bytes, rel=0.02)
    kv = 2 * 2 * 2 * 16 * 4 * BLOCK_SIZE  # K and V, layers, heads, elements, bytes
    assert needs.kv_per_block == kv
