"""What sentence-transformers' files say about an encoder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine_svc.loader.sentence_files import read_max_length, read_pooling
from engine_svc.models.errors import ModelError
from kernels.encoder import Pooling, PoolingSpec


def modules(*kinds_and_paths: tuple[str, str]) -> list[dict[str, Any]]:
    return [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(kinds_and_paths)
    ]


USUAL = modules(("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))


def write(directory: Path, listed: Any, pooling: Any = None) -> Path:
    (directory / "modules.json").write_text(json.dumps(listed))
    if pooling is not None:
        (directory / "1_Pooling").mkdir()
        (directory / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return directory


def test_a_flag_chooses_the_pooling(tmp_path: Path) -> None:
    config = {
        "word_embedding_dimension": 8,
        "pooling_mode_cls_token": True,
        "pooling_mode_mean_tokens": False,
    }

    found = read_pooling(write(tmp_path, USUAL, config))

    assert found == (PoolingSpec((Pooling.CLS,), normalize=True), None)


def test_several_flags_stand_in_the_order_of_sentence_transformers(tmp_path: Path) -> None:
    config = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}

    spec, _ = read_pooling(write(tmp_path, USUAL[:2], config))

    assert spec == PoolingSpec((Pooling.CLS, Pooling.MEAN), normalize=False)


@pytest.mark.parametrize("mode", list(Pooling))
def test_newer_files_name_the_pooling(mode: Pooling, tmp_path: Path) -> None:
    spec, _ = read_pooling(write(tmp_path, USUAL, {"pooling_mode": str(mode)}))

    assert spec.modes == (mode,)


def test_newer_class_paths_are_known_by_their_last_part(tmp_path: Path) -> None:
    listed = modules(("x.y.Transformer", ""), ("x.Pooling", "1_Pooling"))

    spec, _ = read_pooling(write(tmp_path, listed, {"pooling_mode": ["cls", "max"]}))

    assert spec.modes == (Pooling.CLS, Pooling.MAX)


def test_without_files_rows_are_averaged_and_a_notice_says_so(tmp_path: Path) -> None:
    spec, notice = read_pooling(tmp_path)

    assert spec == PoolingSpec((Pooling.MEAN,), normalize=False)
    assert notice is not None
    assert "pooling by mean, not normalised" in notice


@pytest.mark.parametrize(
    ("listed", "pooling", "message"),
    [
        ({}, None, "must hold a list"),
        ([{"type": 3}], None, "every module needs a type and a path"),
        (modules(("Transformer", "")), None, "Transformer is not supported, only"),
        (
            modules(("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense")),
            {"pooling_mode": "mean"},
            "Transformer → Pooling → Dense is not supported",
        ),
        (modules(("Transformer", "0_T"), ("Pooling", "1_Pooling")), None, "own directory"),
        (modules(("Transformer", ""), ("Pooling", "../1")), None, "not a folder of the model"),
        (modules(("Transformer", ""), ("Pooling", "/etc")), None, "not a folder of the model"),
        (USUAL, {}, "names no pooling"),
        (USUAL, {"pooling_mode": "best"}, "pooling_mode 'best' is not supported"),
        (USUAL, {"pooling_mode": {"a": 1}}, "is not supported"),
        (USUAL, {"pooling_mode_new": True}, "pooling_mode_new is not supported"),
    ],
)
def test_what_is_not_served_is_named(
    listed: Any, pooling: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=message):
        read_pooling(write(tmp_path, listed, pooling))


def test_modules_that_are_not_json_are_named(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("[")

    with pytest.raises(ModelError, match=r"modules\.json is not JSON"):
        read_pooling(tmp_path)


def test_the_authors_length_goes_before_the_tokenisers(tmp_path: Path) -> None:
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 128}')
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 512}')

    assert read_max_length(tmp_path) == 128


def test_a_tokenisers_huge_length_is_none(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 1e30}')

    assert read_max_length(tmp_path) is None
