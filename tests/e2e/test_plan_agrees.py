"""What `octavo plan` says before loading is what the engine has and reports after it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kernels.cpu.decoder import CpuDecoder
from tests.support.plan_model import plan
from tests.support.quantized_checkpoints import ONE_OF_EACH, quantize_checkpoint
from tests.support.run_engine import load, load_encoder
from tests.support.tiny_encoders import FAMILIES as ENCODER_FAMILIES
from tests.support.tiny_encoders import make_tiny_encoder
from tests.support.tiny_models import make_tiny

TOLERANCE = 0.02
DECODER_FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "ministral", "gemma3")
# Loaded anew, with a pool that does not depend on how much memory other tests leave free.
FLAGS = ("--no-packed-weights-cache", "--max-model-len=512", "--max-num-seqs=4")
PAGE = 4096


def _resident_bytes(address: int, size: int) -> int:
    """How much of a range of this process's memory is in memory: bit 63 of /proc/self/pagemap."""
    first, last = address // PAGE, -(-(address + size) // PAGE)
    with Path("/proc/self/pagemap").open("rb") as pagemap:
        pagemap.seek(first * 8)
        entries = struct.unpack(f"<{last - first}Q", pagemap.read((last - first) * 8))
    return PAGE * sum(entry >> 63 for entry in entries)


def _assert_agrees(model: Path, *args: str) -> None:
    planned = plan(model, *args)
    engine = load(model, *args)
    decoder = engine.executor._runner._decoder
    said = "\n".join(engine.model_info.summary)

    assert planned.fits
    assert decoder.weight_bytes == pytest.approx(planned.weight_bytes, rel=TOLERANCE)
    if isinstance(decoder, CpuDecoder):
        weights = decoder._weights
        resident = _resident_bytes(weights.buffer.ctypes.data, weights.buffer.nbytes)
        assert resident == pytest.approx(planned.weight_bytes, rel=TOLERANCE, abs=2 * PAGE)
        assert len(decoder._pool) == planned.kv.pool_bytes
    assert engine.model_info.num_blocks == planned.kv.num_blocks
    assert engine.model_info.max_model_len == planned.max_model_len
    assert planned.computation in said
    assert f"KV per token: {planned.kv.bytes_per_token:,} bytes = {planned.kv.arithmetic}" in said
    (full,) = (each for each in planned.lengths if each.tokens == planned.max_model_len)
    assert f"{full.tokens:,} tokens per request: {full.max_concurrency:.2f}x" in said


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--quantization=none",),
        ("--quantization=int8",),
        ("--quantization=int4", "--kv-cache-dtype=int8"),
    ],
    ids=" ".join,
)
def test_smollm2_in_q4_1(smollm2_gguf: Path, flags: tuple[str, ...]) -> None:
    _assert_agrees(smollm2_gguf, *FLAGS, *flags)


@pytest.mark.parametrize("weights", ["auto", "int8", "int4"])
def test_smollm2_in_bfloat16(smollm2_checkpoint: Path, weights: str) -> None:
    _assert_agrees(smollm2_checkpoint, *FLAGS, f"--quantization={weights}")


def test_gemma3_in_mixed_types(gemma3_gguf: Path) -> None:
    _assert_agrees(gemma3_gguf, *FLAGS)


@pytest.mark.parametrize("dtype", ["auto", "bfloat16"])
@pytest.mark.parametrize("family", DECODER_FAMILIES)
def test_every_family(family: str, dtype: str, tmp_path: Path) -> None:
    model = make_tiny(family, tmp_path / family)

    _assert_agrees(model, "--no-packed-weights-cache", "--max-num-seqs=4", f"--dtype={dtype}")


@pytest.mark.parametrize("method", ONE_OF_EACH)
def test_quantised_checkpoints_and_their_configuration_alone(method: str, tmp_path: Path) -> None:
    dense = make_tiny("llama", tmp_path / "dense", num_hidden_layers=2)
    quantize_checkpoint(dense, tmp_path / "model", ONE_OF_EACH[method])
    (tmp_path / "alone").mkdir()
    config = (tmp_path / "model" / "config.json").read_bytes()
    (tmp_path / "alone" / "config.json").write_bytes(config)
    flags = (*FLAGS, "--max-model-len=128", f"--quantization={method}", "--dtype=bfloat16")

    _assert_agrees(tmp_path / "model", *flags)

    whole, known = (plan(tmp_path / name, *flags) for name in ("model", "alone"))
    assert known.weight_bytes == whole.weight_bytes


def _assert_encoder_agrees(model: Path) -> None:
    planned, loaded = plan(model), load_encoder(model)

    assert planned.kv is None
    assert loaded.encoder.weight_bytes == pytest.approx(planned.weight_bytes, rel=TOLERANCE)
    assert loaded.max_step_tokens == planned.step_tokens
    assert loaded.model_info.max_model_len == planned.max_model_len
    assert planned.computation in loaded.model_info.summary


def test_minilm(minilm_checkpoint: Path) -> None:
    _assert_encoder_agrees(minilm_checkpoint)


@pytest.mark.parametrize("family", ENCODER_FAMILIES)
def test_every_encoder_family(family: str, tmp_path: Path) -> None:
    _assert_encoder_agrees(make_tiny_encoder(family, tmp_path / family))


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_classifiers(family: str, tmp_path: Path) -> None:
    _assert_encoder_agrees(make_tiny_encoder(family, tmp_path / family, num_labels=3))


def test_a_configuration_alone_gives_the_sizes_of_its_checkpoint(
    smollm2_checkpoint: Path, minilm_checkpoint: Path, tmp_path: Path
) -> None:
    for model in (smollm2_checkpoint, minilm_checkpoint):
        alone = tmp_path / model.name
        alone.mkdir()
        (alone / "config.json").write_bytes((model / "config.json").read_bytes())

        whole, known = plan(model), plan(alone)

        assert (whole.weights_at_hand, known.weights_at_hand) == (True, False)
        assert known.weight_bytes == whole.weight_bytes
        assert known.num_parameters == whole.num_parameters
