"""Quantised checkpoints answer: as their dequantised weights do, and through a real engine."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from safetensors.torch import save_file

from engine_svc.config import ConfigError
from tests.support.plan_model import plan
from tests.support.public_api import MODEL, PublicApi
from tests.support.quantized_checkpoints import ONE_OF_EACH, quantize_checkpoint
from tests.support.run_engine import greedy_tokens, load
from tests.support.server import running_server
from tests.support.tiny_models import make_tiny

PROMPTS = ([5, 6, 7, 8, 9], [40, 41, 42])
FLAGS = ("--no-packed-weights-cache", "--max-model-len=128", "--max-num-seqs=2")


@pytest.fixture(scope="module")
def dense(tmp_path_factory) -> Path:
    return make_tiny("llama", tmp_path_factory.mktemp("dense") / "model", num_hidden_layers=2)


def write_meant(dense: Path, meant, out: Path) -> Path:
    """The dequantised weights as a checkpoint of float32."""
    out.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (out / name).write_bytes((dense / name).read_bytes())
    save_file(meant, out / "model.safetensors", metadata={"format": "pt"})
    return out


@pytest.mark.parametrize("method", ["awq", "fp8"])
def test_in_float32_tokens_are_those_of_the_dequantised_model(method, dense, tmp_path):
    meant = quantize_checkpoint(dense, tmp_path / "quantised", ONE_OF_EACH[method])
    dequantised = write_meant(dense, meant, tmp_path / "dequantised")

    found, expected = (
        greedy_tokens(load(model, *FLAGS, "--dtype=float32"), PROMPTS, 12)
        for model in (tmp_path / "quantised", dequantised)
    )

    assert found == expected


def test_packed_weights_are_kept_and_give_the_same_tokens(dense, tmp_path, monkeypatch):
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "cache"))
    quantize_checkpoint(dense, tmp_path / "model", ONE_OF_EACH["awq"])
    flags = ("--max-model-len=128", "--max-num-seqs=2", "--dtype=bfloat16")

    packed, read = (greedy_tokens(load(tmp_path / "model", *flags), PROMPTS, 8) for _ in range(2))

    assert len(list((tmp_path / "cache" / "packed").glob("*.weights"))) == 1
    assert read == packed


def test_a_server_answers_and_says_how_it_holds_the_weights(dense, tmp_path):
    quantize_checkpoint(dense, tmp_path / "model", ONE_OF_EACH["awq"])
    args = ("--served-model-name", MODEL, "--quantization=awq", "--dtype=bfloat16")

    with running_server(tmp_path / "model", *args, log=tmp_path / "log") as server:
        api = PublicApi(server)
        answer = api.ok("/v1/completions", prompt="hello", max_tokens=4, ignore_eos=True)
        api.close()

    log = (tmp_path / "log").read_text()
    assert answer["usage"]["completion_tokens"] == 4
    assert "awq, 4 bit, groups of 32" in log
    assert "14 in int4 with a least value, codes as they are; 2 dense" in log


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--quantization=gptq", "says that the model is quantised by awq"),
        ("--kv-cache-dtype=fp8", "--kv-cache-dtype int8 takes about as little memory"),
    ],
)
def test_flags_that_do_not_fit_are_refused_at_start_and_by_the_plan(flag, message, dense, tmp_path):
    quantize_checkpoint(dense, tmp_path / "model", ONE_OF_EACH["awq"])

    for run in (load, plan):
        with pytest.raises(ConfigError, match=message):
            run(tmp_path / "model", flag)


def test_a_dense_model_is_not_taken_for_a_quantised_one(dense):
    with pytest.raises(ConfigError, match=r"not quantised so .* packs any model when it is loaded"):
        load(dense, "--quantization=fp8")


def test_an_unsupported_variant_is_refused_before_weights_are_read(dense, tmp_path):
    quantize_checkpoint(dense, tmp_path / "model", ONE_OF_EACH["awq"])
    path = tmp_path / "model" / "config.json"
    config = orjson.loads(path.read_bytes())
    config["quantization_config"]["version"] = "gemv"
    path.write_bytes(orjson.dumps(config))

    for run in (load, plan):
        with pytest.raises(ValueError, match="version 'gemv' is not supported; AWQ's gemm layout"):
            run(tmp_path / "model")
