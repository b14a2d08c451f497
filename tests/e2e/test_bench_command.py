"""`octavo bench` measures a real server, over HTTP and over gRPC."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server import RunningServer


def _bench(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "router_svc", "bench", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=200)


@pytest.mark.parametrize("surface", ["http", "grpc"])
def test_bench_writes_a_table_json_and_a_plot(
    server: RunningServer, smollm2_checkpoint: Path, tmp_path: Path, surface: str
) -> None:
    target = ("--url", f"{server.url}/v1") if surface == "http" else ("--grpc", server.grpc_target)
    sizes = ("--concurrency", "1,2", "--requests", "2", "--prompt-tokens", "20")
    output = ("--output-tokens", "6", "--shared-prefix-tokens", "32")
    files = ("--json", str(tmp_path / "b.json"), "--plot", str(tmp_path / "b.png"))

    result = _bench(*target, *sizes, *output, *files, "--tokenizer", str(smollm2_checkpoint))

    assert result.returncode == 0, result.stderr
    assert "tok/s" in result.stdout
    levels = json.loads((tmp_path / "b.json").read_text())["levels"]
    assert [level["concurrency"] for level in levels] == [1, 2]
    assert [level["output_tokens"] for level in levels] == [12, 12]
    assert all(level["ttft_p50"] > 0 for level in levels)
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")


def test_files_that_could_not_be_written_in_the_end_are_refused_before_anything_is_measured(
    server: RunningServer, tmp_path: Path
) -> None:
    result = _bench("--url", f"{server.url}/v1", "--json", str(tmp_path / "missing" / "b.json"))

    assert result.returncode == 2
    assert "'--json'" in result.stderr
    assert result.stdout == ""


def test_prompts_have_the_length_that_was_asked_for(
    server: RunningServer, smollm2_checkpoint: Path, tmp_path: Path
) -> None:
    path = tmp_path / "b.json"
    sizes = (
        "--concurrency",
        "1",
        "--requests",
        "2",
        "--prompt-tokens",
        "50",
        "--output-tokens",
        "1",
    )

    _bench("--url", f"{server.url}/v1", *sizes, "--tokenizer", str(smollm2_checkpoint),
           "--json", str(path))  # fmt: skip

    prompt_tokens = json.loads(path.read_text())["levels"][0]["prompt_tokens"]
    assert prompt_tokens == pytest.approx(100, abs=4)  # cutting text at a token may merge two


def test_a_server_that_refuses_is_an_error_with_its_words(server: RunningServer) -> None:
    result = _bench("--url", f"{server.url}/v1", "--model", "gpt-9")

    assert result.returncode == 1
    assert "the server does not answer: HTTP 404" in result.stderr
