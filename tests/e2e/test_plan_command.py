"""`octavo plan` from the command line: a table, JSON, and an exit code for scripts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.plan_model import QWEN25_15B


def _plan(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "router_svc", "plan", *args]
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=200
    )


def test_a_plan_is_printed_for_people(smollm2_gguf: Path) -> None:
    ended = _plan(str(smollm2_gguf), "--memory=16GiB", "--lengths", "512,4096")

    assert ended.returncode == 0, ended.stderr
    assert "134.5 M parameters" in ended.stdout
    assert (
        "KV per token: 23,040 bytes = 2 (K, V) × 30 layers × 3 KV heads × 64 elements × 2 bytes"
        in ended.stdout
    )
    assert "Maximum concurrency for 512 tokens per request: 364.06x" in ended.stdout
    assert "Maximum concurrency for 4,096 tokens per request: 45.51x" in ended.stdout


def test_the_same_is_printed_for_programs(smollm2_gguf: Path) -> None:
    ended = _plan("--json", "--memory=16GiB", str(smollm2_gguf), "--served-model-name=mine")

    found = json.loads(ended.stdout)
    assert found["model"] == "mine"
    assert found["fits"] is True
    assert found["kv"]["bytes_per_token"] == 23_040
    assert found["lengths"][-1]["tokens"] == found["max_model_len"] == 8192
    parts = found["weight_bytes"] + found["activation_bytes"] + found["kv"]["pool_bytes"]
    assert parts + found["left_bytes"] == found["available_bytes"] == 16 << 30


def test_what_does_not_fit_ends_with_1_and_says_what_would_help(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN25_15B))

    ended = _plan(str(tmp_path / "config.json"), "--memory=3GiB")

    assert ended.returncode == 1
    assert "does not fit: the model takes 3.22 GiB" in ended.stdout
    assert "--quantization int4" in ended.stdout
    assert "Traceback" not in ended.stderr


def test_a_packaged_model_is_found_by_its_short_name(minilm_checkpoint: Path) -> None:
    ended = _plan("all-minilm-l6-v2", "--json")

    found = json.loads(ended.stdout)
    assert found["family"] == "BERT"
    assert found["kv"] is None


def test_a_hub_model_is_planned_from_the_files_that_are_at_hand(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--octavo-tests--qwen" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(QWEN25_15B))
    refs = tmp_path / "models--octavo-tests--qwen" / "refs"
    refs.mkdir()
    (refs / "main").write_text("0" * 40)
    offline = {"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}

    ended = _plan("octavo-tests/qwen", "--json", "--memory=16GiB", **offline)

    found = json.loads(ended.stdout)
    assert found["weights_at_hand"] is False
    assert found["kv"]["bytes_per_token"] == 28 << 10


def test_a_hub_model_of_which_nothing_is_at_hand_says_so(tmp_path: Path) -> None:
    offline = {"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}

    ended = _plan("octavo-tests/nothing", **offline)

    assert ended.returncode == 1
    assert "octavo-tests/nothing" in ended.stderr
    assert "not in the local cache" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "flag", ["--gpu=H1000", "--memory=much", "--tensor-parallel-size=7", "--speculative-config={}"]
)
def test_a_wrong_flag_is_one_line_that_names_it(smollm2_gguf: Path, flag: str) -> None:
    ended = _plan(str(smollm2_gguf), flag)

    assert ended.returncode == 1
    assert flag.split("=")[0] in ended.stderr
    assert "Traceback" not in ended.stderr
