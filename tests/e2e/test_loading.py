"""Models that cannot be served are refused by name at the command line; others are served right."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from tests.support.run_engine import greedy_tokens, load
from tests.support.server import free_port
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.tiny_models import make_tiny, tiny_model

SECOND_SHARD = "model-00002-of-*.safetensors"
EVIL = "from pathlib import Path\nPath(__file__).with_name('canary').touch()\n"
Damage = Callable[[Path], list[str]]


def _refusal(model: Path | str, *args: str, **environment: str) -> str:
    """What `octavo serve` says when it refuses to start, which it must."""
    ports = (f"--port={free_port()}", f"--grpc-port={free_port()}")
    command = [sys.executable, "-m", "router_svc", "serve", str(model), *ports, *args]
    ended = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode not in (0, None)
    assert "Traceback" not in ended.stderr
    assert "Ready" not in ended.stderr
    return ended.stderr


def _only(directory: Path, pattern: str) -> Path:
    (found,) = directory.glob(pattern)
    return found


def _resize(file: Path, change: int) -> list[str]:
    size = file.stat().st_size
    os.truncate(file, size + change)
    return [file.name, str(size), str(size + change)]


def _edit(file: Path, **values: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def _missing_shard(model: Path) -> list[str]:
    shard = _only(model, SECOND_SHARD)
    shard.unlink()
    return [shard.name, "missing"]


def _pickle_only(model: Path) -> list[str]:
    torch.save({}, model / "pytorch_model.bin")
    for file in model.glob("*.safetensors*"):
        file.unlink()
    return ["pytorch_model.bin", "never loaded"]


def _unknown_family(model: Path) -> list[str]:
    (model / "evil.py").write_text(EVIL)
    auto_map = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    _edit(model / "config.json", model_type="evil", architectures=["Evil"], auto_map=auto_map)
    _edit(model / "tokenizer_config.json", auto_map={"AutoTokenizer": "evil.Tokenizer"})
    return ["'evil' is not supported", "Llama", "never run"]


def _no_head(model: Path) -> list[str]:
    for file in model.glob("*.safetensors"):
        weights = load_file(file)
        if weights.pop("lm_head.weight", None) is not None:
            save_file(weights, file, metadata={"format": "pt"})
    index = model / "model.safetensors.index.json"
    kept = json.loads(index.read_text())["weight_map"]
    del kept["lm_head.weight"]
    _edit(index, weight_map=kept)
    return ["lm_head.weight is missing", "tie_word_embeddings"]


REFUSED: dict[str, Damage] = {
    "a shard cut short": lambda model: _resize(_only(model, SECOND_SHARD), -1000),
    "a shard with bytes behind it": lambda model: _resize(_only(model, SECOND_SHARD), 7),
    "a missing shard": _missing_shard,
    "pickled weights": _pickle_only,
    "an unknown family with code": _unknown_family,
    "no output head": _no_head,
}


@pytest.mark.parametrize("damage", REFUSED.values(), ids=REFUSED)
def test_a_damaged_directory_is_refused(damage: Damage, tmp_path: Path) -> None:
    make_tiny("llama", tmp_path, max_shard_size="100KB", tie_word_embeddings=False)
    words = damage(tmp_path)

    said = _refusal(tmp_path)

    for word in words:
        assert word in said
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_weight_that_is_not_finite_is_refused_by_name(dtype: str, tmp_path: Path) -> None:
    file = _only(make_tiny("llama", tmp_path), "*.safetensors")
    weights = load_file(file)
    weights["model.layers.1.mlp.down_proj.weight"][3, 5] = torch.nan
    save_file(weights, file, metadata={"format": "pt"})

    said = _refusal(tmp_path, "--dtype", dtype)

    assert re.search(r"^Error: .*layers\.1\.down .*not finite", said, re.MULTILINE), said


@pytest.mark.parametrize("change", [-1000, 7])
def test_a_gguf_of_another_size_is_refused(change: int, tmp_path: Path) -> None:
    file = write_tiny_gguf(tiny_model("llama"), tmp_path / "tiny.gguf")
    words = _resize(file, change)

    said = _refusal(file)

    for word in words:
        assert word in said


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ("--max-model-len=256", "--kv-cache-memory-bytes=100000"),
            ("256 tokens needs", "which is", "--max-model-len", "--kv-cache-memory-bytes"),
        ),
        (("--max-model-len=300",), ("--max-model-len 300", "256")),
    ],
)
def test_a_context_that_cannot_be_is_refused_with_both_numbers(
    args: tuple[str, ...], words: tuple[str, ...], tmp_path: Path
) -> None:
    said = _refusal(make_tiny("llama", tmp_path), *args)

    for word in words:
        assert word in said


def test_memory_that_is_not_there_is_refused_with_both_numbers(smollm2_gguf: Path) -> None:
    said = _refusal(smollm2_gguf, "--kv-cache-memory-bytes=90000000000000", "--max-num-seqs=4096")

    assert "GiB of model" in said or "MiB of model" in said
    assert "is free" in said
    assert "lower --kv-cache-memory-bytes" in said


def test_an_unknown_flag_is_an_error(tmp_path: Path) -> None:
    assert "No such option" in _refusal(tmp_path, "--no-such-flag")


def test_a_missing_torch_is_a_clear_error_where_it_is_needed(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('No torch', name='torch')")
    model = make_tiny("llama", tmp_path / "model")
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"

    said = _refusal(model, "--dtype=float32", PYTHONPATH=path)

    assert "needs torch, which is not installed" in said
    assert "not in float32" in said


def test_a_hub_id_without_a_network_is_a_clear_error() -> None:
    said = _refusal("octavo-tests/no-such-model", HF_HUB_OFFLINE="1")

    assert "not in the local cache" in said


def test_code_that_comes_with_a_model_is_not_run(tmp_path: Path) -> None:
    model = make_tiny("llama", tmp_path)
    (model / "evil.py").write_text(EVIL)
    _edit(model / "config.json", auto_map={"AutoConfig": "evil.Config"})

    tokens = greedy_tokens(load(model, "--dtype=bfloat16"), [[1, 2, 3]], 4)

    assert len(tokens[0]) == 4
    assert not (model / "canary").exists()


def test_a_gguf_file_gives_the_tokens_of_its_directory_up_to_its_own_end(tmp_path: Path) -> None:
    prompt = list(range(20))
    directory = make_tiny("llama", tmp_path / "directory")
    (expected,) = greedy_tokens(load(directory, "--dtype=float32"), [prompt], 12)
    end = expected[5]
    model = tiny_model("llama")
    plain = write_tiny_gguf(model, tmp_path / "plain.gguf")
    ending = write_tiny_gguf(model, tmp_path / "end.gguf", tokenizer__ggml__eot_token_id=end)

    whole = greedy_tokens(load(plain, "--dtype=float32"), [prompt], 12)
    ended = greedy_tokens(load(ending, "--dtype=float32"), [prompt], 12, stop=True)

    assert whole == [expected]
    assert ended == [expected[: expected.index(end) + 1]]


FAMILIES = {
    "mistral, window of 16": ("mistral", {}),
    "mistral, window unused": ("mistral", {"sliding_window": None}),
    "gemma3, both kinds of layers": ("gemma3", {}),
    "qwen2, window switched off": ("qwen2", {"use_sliding_window": False, "sliding_window": 16}),
    "llama, dynamic rope": (
        "llama",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
    ),
}


# Around the size of a block, beyond one, and beyond the window.
PROMPTS = [[(37 * i) % 250 for i in range(length)] for length in (8, 15, 16, 17, 33, 100)]


def _in_every_way(model: Path, dtype: str) -> list[list[list[int]]]:
    """Greedy tokens of the prompts: one by one, all together with a warm cache, and in chunks."""
    flags = (f"--dtype={dtype}", "--max-model-len=128", "--threads=1")
    cached = load(model, *flags)
    cold = [greedy_tokens(cached, [prompt], 12)[0] for prompt in PROMPTS]
    warm = greedy_tokens(cached, PROMPTS, 12)
    plain = load(model, *flags, "--no-enable-prefix-caching", "--max-num-batched-tokens=32")
    return [cold, warm, greedy_tokens(plain, PROMPTS, 12)]


@pytest.mark.parametrize("case", FAMILIES)
def test_cache_and_chunks_leave_the_tokens_as_transformers_has_them(
    case: str, tmp_path: Path
) -> None:
    family, overrides = FAMILIES[case]

    cold, warm, chunked = _in_every_way(make_tiny(family, tmp_path, **overrides), "float32")

    assert cold == warm == chunked
    model = tiny_model(family, **overrides)
    assert cold == [
        _choices_along(model, prompt, tokens) for prompt, tokens in zip(PROMPTS, cold, strict=True)
    ]


@pytest.mark.parametrize("case", FAMILIES)
def test_cache_and_chunks_leave_the_tokens_as_they_are_in_bf16(case: str, tmp_path: Path) -> None:
    family, overrides = FAMILIES[case]

    cold, warm, chunked = _in_every_way(make_tiny(family, tmp_path, **overrides), "bfloat16")

    assert cold == warm == chunked


def _choices_along(model: PreTrainedModel, prompt: list[int], tokens: list[int]) -> list[int]:
    """What transformers chooses at each step of an answer; the answer itself, if it is greedy."""
    with torch.inference_mode():
        logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
    return logits.argmax(-1).tolist()
