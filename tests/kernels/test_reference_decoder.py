"""The reference decoder: as transformers computes it, and the same whatever the batch."""

from __future__ import annotations

import dataclasses

import gguf
import numpy as np
import pytest
import torch

from kernels.backend import NOT_FINITE, Precision, StoredTensor
from kernels.reference.backend import ReferenceBackend
from kernels.spec import Activation, DecoderSpec, LayerSpec, RopeKind, RopeSpec
from tests.kernels.decoder_specs import with_everything
from tests.kernels.decoder_steps import BLOCK_SIZE, DictSource, Run, random_weights
from tests.support.picks import picks_of
from tests.support.stored_tensors import values
from tests.support.tiny_models import tiny_model

DTYPES = ("float32", "bfloat16", "float16")

PLAIN = DecoderSpec(
    vocab_size=320,
    hidden_size=96,
    intermediate_size=208,
    num_heads=6,
    num_kv_heads=2,
    head_dim=16,
    layers=(LayerSpec(RopeSpec()),) * 2,
    norm_eps=1e-5,
    max_position=1024,
    attention_scale=0.25,
)
EVERYTHING = with_everything(
    PLAIN,
    LayerSpec(RopeSpec(), window=24),
    LayerSpec(RopeSpec(theta=1e6, kind=RopeKind.LINEAR, factor=8.0)),
    LayerSpec(RopeSpec(), window=5),
)
SPECS = {"plain": PLAIN, "everything": EVERYTHING}


def _backend() -> ReferenceBackend:
    return ReferenceBackend(torch.get_num_threads())


def _precision(dtype: str) -> Precision:
    return Precision(dtype, weights="auto", kv_cache="auto")


def _load(spec, weights, dtype="float32"):
    source = DictSource(weights)
    return _backend().load(spec, source, _precision(dtype), lambda done, total: None)


def _plan(spec, dtype, batched_tokens):
    return _backend().plan(
        spec,
        DictSource({}),
        _precision(dtype),
        block_size=BLOCK_SIZE,
        max_num_batched_tokens=batched_tokens,
        max_num_seqs=8,
    )


def _tokens(count: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 250, (count,), generator=generator).tolist()


# ── against transformers ──────────────────────────────────────────────────────────────────────────

# Canonical names of one layer, as transformers has them; every family here shares these.
_THEIRS = {
    "attn_norm": "input_layernorm.weight",
    "mlp_norm": "post_attention_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "q_bias": "self_attn.q_proj.bias",
    "k_bias": "self_attn.k_proj.bias",
    "v_bias": "self_attn.v_proj.bias",
    "o_bias": "self_attn.o_proj.bias",
    "q_norm": "self_attn.q_norm.weight",
    "k_norm": "self_attn.k_norm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
    "gate_bias": "mlp.gate_proj.bias",
    "up_bias": "mlp.up_proj.bias",
    "down_bias": "mlp.down_proj.bias",
}
_THEIRS_WITH_POST_NORMS = _THEIRS | {
    "post_attn_norm": "post_attention_layernorm.weight",
    "mlp_norm": "pre_feedforward_layernorm.weight",
    "post_mlp_norm": "post_feedforward_layernorm.weight",
}


def _family(name: str):
    """A tiny model of transformers, and the spec that should compute the same."""
    overrides = {"attention_bias": True, "mlp_bias": True} if name == "llama" else {}
    model = tiny_model(name, **overrides)
    config = model.config
    head_dim = getattr(config, "head_dim", None) or 16
    theta = config.rope_parameters.get("rope_theta")
    layers = (LayerSpec(RopeSpec(theta=theta or 0.0)),) * config.num_hidden_layers
    spec = DecoderSpec(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=head_dim,
        layers=layers,
        norm_eps=config.rms_norm_eps,
        max_position=config.max_position_embeddings,
        attention_scale=head_dim**-0.5,
        tied_head=config.tie_word_embeddings,
    )
    if name == "llama":
        return model, dataclasses.replace(spec, qkv_bias=True, output_bias=True, mlp_bias=True)
    if name == "qwen2":
        return model, dataclasses.replace(spec, qkv_bias=True)
    if name == "qwen3":
        return model, dataclasses.replace(spec, qk_norm=True)
    if name == "mistral":
        windowed = (LayerSpec(RopeSpec(theta=theta), window=config.sliding_window),)
        return model, dataclasses.replace(spec, layers=windowed * config.num_hidden_layers)
    local = LayerSpec(
        RopeSpec(theta=config.rope_parameters["sliding_attention"]["rope_theta"]),
        window=config.sliding_window,
    )
    whole = LayerSpec(RopeSpec(theta=config.rope_parameters["full_attention"]["rope_theta"]))
    return model, dataclasses.replace(
        spec,
        layers=tuple(
            local if kind == "sliding_attention" else whole for kind in config.layer_types
        ),
        activation=Activation.GELU_TANH,
        attention_scale=config.query_pre_attn_scalar**-0.5,
        qk_norm=True,
        post_norms=True,
        norm_offset=1.0,
        embedding_scale=config.hidden_size**0.5,
    )


def _weights_of(model, spec: DecoderSpec) -> dict[str, torch.Tensor]:
    theirs = model.state_dict()
    layer_names = _THEIRS_WITH_POST_NORMS if spec.post_norms else _THEIRS
    top = {
        "embed": "model.embed_tokens.weight",
        "final_norm": "model.norm.weight",
        "lm_head": "lm_head.weight",
    }
    found = {}
    for name in spec.weight_shapes():
        if name in top:
            found[name] = theirs[top[name]]
        else:
            _, index, kind = name.split(".")
            found[name] = theirs[f"model.layers.{index}.{layer_names[kind]}"]
    return found


FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "gemma3")


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_transformers(family) -> None:
    model, spec = _family(family)
    tokens = _tokens(70)
    with torch.inference_mode():
        theirs = model(torch.tensor([tokens])).logits[0]

    decoder = _load(spec, _weights_of(model, spec))

    ours = Run(decoder).step(("a", tokens))["a"]
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_low_precision_errs_no_more_than_transformers_does(family, dtype) -> None:
    model, spec = _family(family)
    tokens = _tokens(70)
    with torch.inference_mode():
        exact = model(torch.tensor([tokens])).logits[0]
        theirs = model.to(getattr(torch, dtype))(torch.tensor([tokens])).logits[0].float()

    ours = Run(_load(spec, _weights_of(model, spec), dtype)).step(("a", tokens))["a"]

    assert (ours - exact).square().mean() <= 1.3 * (theirs - exact).square().mean()


# ── whatever the batch ────────────────────────────────────────────────────────────────────────────


def _whole(decoder, tokens) -> torch.Tensor:
    return Run(decoder).step(("a", tokens))["a"]


@pytest.mark.parametrize("num_threads", [1, 2, 3], indirect=True)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SPECS)
def test_chunks_and_company_change_no_bit(num_threads, dtype, name) -> None:
    spec = SPECS[name]
    decoder = _load(spec, random_weights(spec), dtype)
    tokens = _tokens(140)
    alone = _whole(decoder, tokens)

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


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_any_number_of_neighbours_changes_no_bit(dtype) -> None:
    decoder = _load(PLAIN, random_weights(PLAIN), dtype)
    prompts = {f"r{i}": _tokens(1, seed=i) for i in range(70)}
    alone = {name: _whole(decoder, tokens) for name, tokens in prompts.items()}

    for count in range(1, 71):
        names = list(prompts)[70 - count :]
        together = Run(decoder).step(*((name, prompts[name]) for name in names))
        assert all(torch.equal(together[name], alone[name]) for name in names), count


def test_more_rows_than_the_largest_tile_change_no_bit() -> None:
    decoder = _load(PLAIN, random_weights(PLAIN))
    tokens = _tokens(600)

    whole = _whole(decoder, tokens)

    run = Run(decoder)
    parts = [run.step(("a", part))["a"] for part in (tokens[:555], tokens[555:])]
    assert torch.equal(torch.cat(parts), whole)


def test_a_step_may_ask_for_no_logits() -> None:
    decoder = _load(PLAIN, random_weights(PLAIN))
    run = Run(decoder)
    run.step(("a", _tokens(3)))

    inputs = run.inputs(("a", _tokens(2)), logits_rows=[])

    result = decoder.step(inputs)
    assert result.logits.shape == (0, PLAIN.vocab_size)
    assert result.token_ids.shape == (0,)


def test_tokens_are_picked_beside_logits() -> None:
    decoder = _load(PLAIN, random_weights(PLAIN))
    tokens = _tokens(9)
    logits = _whole(decoder, tokens)
    run = Run(decoder)
    picks = picks_of([8, 2, 5], temperature=[0.0, 1.0, 0.0], top_k=[0, 1, 0], draw=0.3)

    result = decoder.step(run.inputs(("a", tokens), logits_rows=[8, 3], picks=picks))

    assert result.token_ids.tolist() == logits[[8, 2, 5]].argmax(1).tolist()
    assert torch.equal(torch.from_numpy(result.logits), logits[[8, 3]])


def test_a_row_with_a_logit_that_is_not_finite_has_no_token() -> None:
    weights = random_weights(PLAIN)
    weights["lm_head"][5] = 3e38
    decoder = _load(PLAIN, weights)
    run = Run(decoder)

    result = decoder.step(run.inputs(("a", [7, 7]), logits_rows=[], picks=picks_of([1])))

    assert result.token_ids.tolist() == [NOT_FINITE]


# ── loading ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("tied", [False, True])
def test_the_plan_is_what_is_then_held(name, dtype, tied) -> None:
    spec = dataclasses.replace(SPECS[name], tied_head=tied)

    needs = _plan(spec, dtype, 64)

    assert needs.weights == _load(spec, random_weights(spec), dtype).weight_bytes
    assert needs.kv_per_block == (
        2
        * spec.num_layers
        * spec.num_kv_heads
        * BLOCK_SIZE
        * spec.head_dim
        * getattr(torch, dtype).itemsize
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SPECS)
def test_a_step_stays_within_the_planned_peak(name, dtype) -> None:
    spec = SPECS[name]
    run = Run(_load(spec, random_weights(spec), dtype))
    tokens = _tokens(512)
    activities = [torch.profiler.ProfilerActivity.CPU]

    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        run.step(("a", tokens))

    in_use = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            in_use += event.nbytes()
            peak = max(peak, in_use)
    assert 0 < peak <= _plan(spec, dtype, 512).activations


def test_every_weight_is_asked_for_once_and_progress_reaches_the_end() -> None:
    source, seen = DictSource(random_weights(EVERYTHING)), []

    _backend().load(
        EVERYTHING,
        source,
        _precision("float32"),
        lambda done, total: seen.append((done, total)),
    )

    assert sorted(source.asked) == sorted(EVERYTHING.weight_shapes())
    assert len(seen) == len(source.asked)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (source.total_bytes, source.total_bytes)


def test_a_wrong_shape_is_refused_with_the_name_and_both_shapes() -> None:
    weights = random_weights(PLAIN) | {"layers.1.down": torch.zeros(96, 200)}

    with pytest.raises(ValueError, match=r"layers\.1\.down has shape \[96, 200\].*\[96, 208\]"):
        _load(PLAIN, weights)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(torch.nan, "float32"), (torch.inf, "bfloat16"), (1e6, "float16")],
)
def test_a_weight_that_is_not_finite_is_refused_by_name(value, dtype) -> None:
    weights = random_weights(PLAIN)
    weights["layers.0.up"][7, 3] = value

    with pytest.raises(ValueError, match=r"layers\.0\.up has values that are not finite"):
        _load(PLAIN, weights, dtype)


def test_large_weights_are_not_taken_for_infinite_ones() -> None:
    weights = random_weights(PLAIN) | {"layers.0.up": torch.full((208, 96), 1e35)}

    assert _load(PLAIN, weights).weight_bytes > 0


@pytest.mark.parametrize("scheme", ["Q8_0", "Q4_1"])
def test_quantised_weights_compute_as_their_dequantised_values(scheme) -> None:
    kind = gguf.GGMLQuantizationType[scheme]
    packed = {}
    for name, weight in random_weights(PLAIN).items():
        if weight.ndim == 2 and weight.shape[1] % 32 == 0:
            data = gguf.quants.quantize(weight.numpy(), kind).ravel()
            packed[name] = StoredTensor(scheme, tuple(weight.shape), data)
        else:
            packed[name] = weight
    dense = {
        name: values(weight) if isinstance(weight, StoredTensor) else weight
        for name, weight in packed.items()
    }
    source, seen = DictSource(packed), []

    decoder = _backend().load(
        PLAIN, source, _precision("float32"), lambda done, total: seen.append(done)
    )

    tokens = _tokens(20)
    assert torch.equal(_whole(decoder, tokens), _whole(_load(PLAIN, dense), tokens))
    assert seen[-1] == source.total_bytes


def test_loading_leaves_the_mapped_file_as_it_is() -> None:
    source = DictSource(random_weights(EVERYTHING))
    before = {name: weight.data.copy() for name, weight in source.weights.items()}
    for weight in source.weights.values():
        weight.data.flags.writeable = False  # as a mapped file's

    decoder = _backend().load(EVERYTHING, source, _precision("float32"), lambda done, total: None)
    _whole(decoder, _tokens(20))

    assert all(np.array_equal(before[name], w.data) for name, w in source.weights.items())


@pytest.mark.parametrize(
    ("precision", "message"),
    [
        (Precision("float64", "auto", "auto"), "in float32, bfloat16, float16, not in float64"),
        (Precision("bfloat16", "int8", "auto"), "weights in bfloat16 only, not in int8"),
        (Precision("bfloat16", "none", "int8"), "KV cache in bfloat16 only, not in int8"),
    ],
)
def test_a_precision_that_torch_operations_lack_is_refused(precision, message) -> None:
    source = DictSource(random_weights(PLAIN))

    with pytest.raises(ValueError, match=message):
        _backend().load(PLAIN, source, precision, lambda done, total: None)

    assert source.asked == []


def test_the_description_names_torch_and_its_threads() -> None:
    assert "torch" in _backend().description
    assert f"{torch.get_num_threads()} threads" in _backend().description
