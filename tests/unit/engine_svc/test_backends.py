"""The C++ back end wherever it can, torch where it cannot, and torch's import only then."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from engine_svc.backends import choose_backend, choose_encoder_backend, has_kernels
from engine_svc.config import ConfigError
from kernels.backend import Precision
from kernels.spec import DecoderSpec, LayerSpec, RopeSpec

ROOT = Path(__file__).resolve().parents[3]
SPEC = DecoderSpec(
    vocab_size=320,
    hidden_size=64,
    intermediate_size=96,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    layers=(LayerSpec(RopeSpec()),),
    norm_eps=1e-5,
    max_position=256,
    attention_scale=0.25,
)
BFLOAT16 = Precision("bfloat16", weights="auto", kv_cache="auto")


def test_the_kernels_compute_what_they_can() -> None:
    backend, notice = choose_backend(SPEC, BFLOAT16, block_size=16, threads=2)

    assert (backend.name, notice) == ("cpu", None)


@pytest.mark.parametrize(
    ("head_dim", "block_size", "expected"), [(16, 16, True), (20, 16, False), (16, 8, False)]
)
def test_whether_there_are_kernels_depends_on_the_model(head_dim, block_size, expected) -> None:
    spec = dataclasses.replace(SPEC, head_dim=head_dim)

    assert has_kernels(spec, block_size) is expected


@pytest.mark.parametrize(
    ("precision", "head_dim", "block_size", "reason"),
    [
        (dataclasses.replace(BFLOAT16, dtype="float32"), 16, 16, "not in float32"),
        (BFLOAT16, 20, 16, "not of 20"),
        (BFLOAT16, 16, 8, "not of 8"),
    ],
    ids=["dtype", "head", "block"],
)
def test_torch_computes_the_rest_and_says_why(precision, head_dim, block_size, reason) -> None:
    spec = dataclasses.replace(SPEC, head_dim=head_dim)

    backend, notice = choose_backend(spec, precision, block_size=block_size, threads=2)

    assert backend.name == "reference"
    assert notice.startswith("torch computes")
    assert notice.endswith(reason)


def test_a_missing_torch_is_named_with_what_needs_it(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "kernels.reference.backend", raising=False)
    float32 = dataclasses.replace(BFLOAT16, dtype="float32")

    with pytest.raises(ConfigError, match=r"needs torch, which is not installed.*not in float32"):
        choose_backend(SPEC, float32, block_size=16, threads=2)


def test_of_several_ranks_torch_computes_and_the_notice_says_why() -> None:
    from kernels.collectives import Absent

    bfloat16 = Precision("bfloat16", weights="auto", kv_cache="auto")

    backend, notice = choose_backend(
        SPEC, bfloat16, block_size=16, threads=2, collectives=Absent(0, 2)
    )

    assert backend.name == "reference"
    assert notice is not None
    assert "the C++ kernels compute on one rank, not on 2" in notice


# They are imported for several ranks only, which compute in torch.
OF_SEVERAL_RANKS = {f"engine_svc.parallel.{module}" for module in ("ranks", "team", "follower")}


def test_an_engine_imports_torch_with_the_reference_back_end_only() -> None:
    files = [file for part in ("engine_svc", "kernels/cpu") for file in (ROOT / part).rglob("*.py")]
    modules = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files]
    modules = [module for module in modules if module not in OF_SEVERAL_RANKS]
    code = (
        f"import sys, {', '.join(modules)}\n"
        "sys.exit(str({'torch', 'transformers', 'safetensors'} & sys.modules.keys() or ''))"
    )

    imported = subprocess.run(
        [sys.executable, "-c", code], check=False, stderr=subprocess.PIPE, text=True
    )

    assert "engine_svc.startup" in modules
    assert imported.stderr.strip() == ""


def test_torchs_threads_are_told_to_sleep_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    choose_encoder_backend(torch.get_num_threads())
    assert os.environ["GOMP_SPINCOUNT"] == "1000"

    monkeypatch.setenv("GOMP_SPINCOUNT", "5")
    choose_encoder_backend(torch.get_num_threads())
    assert os.environ["GOMP_SPINCOUNT"] == "5"
