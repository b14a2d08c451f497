"""Prompts with a gap, in the forms that the models' own papers and tokenisers give."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from router_svc.text.infill import infill_of
from router_svc.text.tokenizer import Tokenizer

BEFORE, AFTER = [0, 1], [2]


def tokenizer_with(directory: Path, *special: str) -> Tokenizer:
    backend = Backend(models.WordLevel({word: i for i, word in enumerate("abc?")}, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(list(special))
    backend.save(str(directory / "tokenizer.json"))
    return Tokenizer.load(directory)


@pytest.mark.parametrize(
    ("special", "prompt", "ends"),
    [
        (("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"), [4, 0, 1, 5, 2, 6], ()),
        (("<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>"), [4, 0, 1, 6, 2, 5], (7,)),
        (("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"), [4, 0, 1, 5, 2, 6], ()),
        (("▁<PRE>", "▁<MID>", "▁<SUF>", "▁<EOT>"), [4, 0, 1, 6, 2, 5], (7,)),
        (("[PREFIX]", "[SUFFIX]"), [5, 2, 4, 0, 1], ()),
    ],
    ids=["qwen", "starcoder", "deepseek", "code llama", "codestral"],
)
def test_each_family_has_its_own_form(
    tmp_path: Path, special: tuple[str, ...], prompt: list[int], ends: tuple[int, ...]
) -> None:
    infill = infill_of(tokenizer_with(tmp_path, *special))

    assert infill is not None
    assert infill.prompt(BEFORE, AFTER) == prompt
    assert infill.end_ids == ends


def test_a_model_without_all_of_the_tokens_fills_no_gaps(tmp_path: Path) -> None:
    assert infill_of(tokenizer_with(tmp_path, "<fim_prefix>", "<fim_suffix>", "</s>")) is None
