"""The arithmetic of a plan, on published models and on memories that are too small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine_svc.config import ConfigError
from engine_svc.models.errors import ModelError
from engine_svc.planning.report import parse_lengths
from tests.support.plan_model import QWEN25_15B, plan

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@pytest.fixture
def qwen(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(QWEN25_15B))
    return path


def test_qwen25_takes_what_is_known_of_it(qwen: Path) -> None:
    pool = ("--kv-cache-memory-bytes", str(2 * GIB), "--memory=16GiB", "--lengths=4096")
    found = plan(qwen, *pool)

    (length,) = found.lengths
    assert found.kv.bytes_per_token == 28 * KIB
    assert found.kv.arithmetic == ("2 (K, V) × 28 layers × 2 KV heads × 128 elements × 2 bytes")
    assert length.kv_bytes == 112 * MIB
    assert length.max_concurrency == pytest.approx(18.29, abs=0.01)
    assert length.at_once == 18
    assert found.num_parameters == 1_543_714_304
    assert found.weight_bytes == pytest.approx(2 * found.num_parameters, rel=0.001)


def test_no_more_run_at_once_than_max_num_seqs(qwen: Path) -> None:
    found = plan(qwen, "--memory=64GiB", "--lengths=512", "--max-num-seqs=7")

    assert found.lengths[0].max_concurrency > 7
    assert found.lengths[0].at_once == 7


def test_lengths_beyond_the_context_are_told_apart(qwen: Path) -> None:
    found = plan(qwen, "--memory=16GiB", "--max-model-len=1024", "--lengths=4096,1024")

    assert [length.max_concurrency is None for length in found.lengths] == [False, True]


def test_int8_keys_and_values_take_half_and_their_scales(qwen: Path) -> None:
    found = plan(qwen, "--memory=16GiB", "--kv-cache-dtype=int8")

    assert found.kv.bytes_per_token == 2 * 28 * 2 * (128 + 4)
    assert found.kv.arithmetic.endswith("(128 elements × 1 byte + 4 of scale)")


def test_slots_of_adapters_are_planned_at_their_largest(qwen: Path) -> None:
    without = plan(qwen, "--memory=16GiB")
    found = plan(qwen, "--memory=16GiB", "--enable-lora", "--max-loras=4", "--max-lora-rank=32")

    q, kv, mlp = 2 * 1536, 1536 + 256, 1536 + 8960  # out and in of each matrix
    elements = 28 * 32 * (2 * q + 2 * kv + 3 * mlp)
    assert without.adapter_bytes == 0
    assert found.adapter_bytes == elements * (4 * 2 + 4)  # bfloat16, and one that is being read
    taken = found.weight_bytes + found.activation_bytes + found.adapter_bytes
    assert found.available_bytes - taken - found.kv.pool_bytes == found.left_bytes > 0


@pytest.mark.parametrize("memory", ["--memory=16GiB", "--gpu=H100"])
def test_a_rank_plans_slots_for_its_own_part_of_adapters(qwen: Path, memory: str) -> None:
    flags = (memory, "--dtype=bfloat16", "--enable-lora", "--max-lora-rank=32")
    by_loras = [
        plan(qwen, *flags, f"--max-loras={loras}", f"--tensor-parallel-size={ranks}").adapter_bytes
        for ranks in (1, 2)
        for loras in (4, 5)
    ]

    # Layers are cut in two, but the inputs of q, k, v, gate and up, and the outputs of o and down.
    whole, half = by_loras[1] - by_loras[0], by_loras[3] - by_loras[2]
    uncut = 28 * 7 * 32 * 1536 * 2  # layers x matrices x rank x width x bytes
    assert half - uncut == (whole - uncut) / 2


def test_adapters_that_do_not_fit_are_told_with_their_flag(qwen: Path) -> None:
    flags = ("--enable-lora", "--max-loras=1000", "--max-lora-rank=512")

    found = plan(qwen, "--memory=16GiB", *flags)

    assert not found.fits
    assert "of adapters" in found.problem
    assert "--max-loras" in found.problem


def _flags(found) -> list[str]:
    return [way.flags for way in found.ways]


def test_what_fits_needs_no_advice(qwen: Path) -> None:
    found = plan(qwen, "--memory=64GiB", "--max-model-len=4096")

    assert found.fits
    assert found.problem is None
    assert found.ways == ()


@pytest.mark.parametrize("memory", ["1200MiB", "3GiB", "3400MiB", "4GiB"])
@pytest.mark.parametrize("flags", [(), ("--max-model-len=32768",)], ids=" ".join)
def test_every_advice_does_what_it_says(qwen: Path, memory: str, flags: tuple[str, ...]) -> None:
    found = plan(qwen, f"--memory={memory}", *flags)

    assert found.ways
    for way in found.ways:
        args = {"--memory": memory}
        words = [*flags, *way.flags.replace("memory of ", "--memory ").split()]
        words = [word for word in words if word != "with"]
        if "--max-model-len" in words and flags:
            words.remove(flags[0])  # the advice is in its place
        args |= dict(zip(*[iter(" ".join(words).replace("=", " ").split())] * 2, strict=True))

        helped = plan(qwen, *(f"{flag}={value}" for flag, value in args.items()))

        assert helped.fits
        assert helped.max_model_len == way.max_model_len > found.max_model_len
        assert helped.kv.pool_tokens == way.pool_tokens
        assert helped.weight_bytes == way.weight_bytes


def test_a_context_that_does_not_fit_is_told_with_the_length_that_does(qwen: Path) -> None:
    found = plan(qwen, "--memory=4GiB", "--max-model-len=32768")

    assert not found.fits
    assert "one context of 32768 tokens needs 896.00 MiB" in found.problem
    assert "--max-model-len 29360" in _flags(found)
    assert "--kv-cache-dtype int8" in _flags(found)


def test_weights_that_do_not_fit_are_told_with_the_types_and_the_memory_that_do(
    qwen: Path,
) -> None:
    found = plan(qwen, "--memory=3GiB")

    assert not found.fits
    assert found.left_bytes < 0
    assert {"--quantization int8", "--quantization int4"} <= set(_flags(found))
    assert any(flags.startswith("memory of ") for flags in _flags(found))


def test_types_that_do_not_go_together_are_not_advised(qwen: Path) -> None:
    found = plan(qwen, "--memory=5GiB", "--dtype=float32")

    assert not found.fits
    assert "--dtype bfloat16" in _flags(found)
    assert not any("--quantization" in flags for flags in _flags(found))


def test_prompts_computed_whole_are_told_to_be_cut(qwen: Path) -> None:
    found = plan(qwen, "--memory=5GiB", "--no-enable-chunked-prefill")

    assert not found.fits
    assert "--enable-chunked-prefill" in _flags(found)


def test_a_pool_that_is_too_large_is_told_with_the_one_that_fits(qwen: Path) -> None:
    found = plan(qwen, "--memory=8GiB", "--num-gpu-blocks-override=60000")

    (advice,) = [flags for flags in _flags(found) if flags.startswith("--num-gpu-blocks")][:1]
    assert plan(qwen, "--memory=8GiB", advice.replace(" ", "=")).fits


def test_a_gpu_is_a_size_and_the_plan_says_so(qwen: Path) -> None:
    found = plan(qwen, "--gpu=h100")

    assert found.available_bytes == int(79 * GIB * 0.9)
    assert any("held in 16 bit" in notice for notice in found.notices)
    assert found.kv.bytes_per_token == 28 * KIB


@pytest.mark.parametrize(("block", "share"), [(None, 0.5), ([128, 128], 0.5), ([128, 96], 1.0)])
def test_a_gpu_holds_layers_in_fp8_as_they_are_where_it_can(
    qwen: Path, block: list[int] | None, share: float
) -> None:
    dense = plan(qwen, "--gpu=h100").weight_bytes
    how = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": block}
    qwen.write_text(json.dumps(QWEN25_15B | {"quantization_config": how}))

    found = plan(qwen, "--gpu=h100").weight_bytes

    layers = dense - 2 * 151_936 * 1536  # and the embedding, which is the head
    assert dense - found == pytest.approx((1 - share) * layers, rel=0.07, abs=1e6)


def test_a_gpu_that_is_too_small_is_told_with_a_larger_one_and_ranks(tmp_path: Path) -> None:
    sizes = {"num_hidden_layers": 80, "hidden_size": 8192, "intermediate_size": 28_672}
    heads = {"num_attention_heads": 64, "num_key_value_heads": 8, "tie_word_embeddings": False}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(QWEN25_15B | sizes | heads))

    found = plan(path, "--gpu=A100", "--max-model-len=8192")

    assert not found.fits
    assert "--gpu B200" in _flags(found)
    assert "--tensor-parallel-size 2" in _flags(found)
    assert plan(path, "--gpu=A100", "--max-model-len=8192", "--tensor-parallel-size=2").fits


def test_ranks_share_the_matrices_and_the_kv_heads(qwen: Path) -> None:
    in_torch = ("--memory=16GiB", "--dtype=float16")
    one = plan(qwen, *in_torch)
    two = plan(qwen, *in_torch, "--tensor-parallel-size=2")

    assert two.kv.bytes_per_token == one.kv.bytes_per_token // 2
    assert two.weight_bytes == pytest.approx(one.weight_bytes / 2, rel=0.02)


def test_kv_heads_that_do_not_divide_are_planned_for_the_rank_with_the_most(
    smollm2_gguf: Path,
) -> None:
    one = plan(smollm2_gguf, "--memory=16GiB", "--dtype=float32")
    two = plan(smollm2_gguf, "--memory=16GiB", "--dtype=float32", "--tensor-parallel-size=2")

    assert two.kv.bytes_per_token * 3 == one.kv.bytes_per_token * 2
    assert any("some have 2 of them, some 1" in notice for notice in two.notices)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--tensor-parallel-size=5",), "5 ranks are more than the model's 2 KV heads"),
        (("--gpu=H1000",), "known are .*H100.*--memory"),
        (("--gpu=H100", "--memory=1GiB"), "give one of them"),
        (("--memory=plenty",), "--memory 'plenty'"),
        (("--memory=0",), "--memory '0'"),
        (("--lengths=512,many",), "--lengths"),
        (("--max-model-len=200000",), "above the 131072 tokens"),
        (("--dtype=float32", "--quantization=int4"), "int4"),
    ],
)
def test_a_flag_that_cannot_be_is_named(qwen: Path, flags: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(qwen, *flags)


def test_lengths_are_sorted_and_told_once() -> None:
    assert parse_lengths(" 4096, 512,512") == (512, 4096)


def test_a_configuration_of_an_unknown_model_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "mamba"}))

    with pytest.raises(ModelError, match="mamba"):
        plan(path)


def test_a_configuration_beside_pickled_weights_is_refused_as_the_engine_would(qwen: Path) -> None:
    (qwen.parent / "pytorch_model.bin").touch()

    with pytest.raises(ModelError, match="never loaded"):
        plan(qwen)
