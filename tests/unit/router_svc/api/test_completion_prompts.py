"""Prompts of completions as token ids: gaps to fill, and what is cut."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from octavo.inference.v1 import inference_pb2 as pb
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, processors

from router_svc.api.completion_prompts import completion_prompts, infill_end_ids
from router_svc.errors import ApiError
from router_svc.output_formats import OutputFormats
from router_svc.served_model import ServedModel
from router_svc.text.tokenizer import Tokenizer

A, B, C, BOS, PREFIX, MIDDLE, SUFFIX, PAD = 0, 1, 2, 4, 5, 6, 7, 8
INFILL = ("<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>")


def served(directory: Path, *special: str) -> ServedModel:
    """A model of three words, with a beginning-of-sequence token, that no engine serves."""
    backend = Backend(models.WordLevel({word: i for i, word in enumerate("abc?")}, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(["<s>", *special])
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", BOS)]
    )
    backend.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text('{"bos_token": "<s>"}')
    engine: Any = SimpleNamespace(info=SimpleNamespace(vocab_size=9, max_model_len=64))
    formats = OutputFormats(None, None, False)
    return ServedModel(engine, Tokenizer.load(directory), None, formats)


def text(value: str, **fields: Any) -> pb.CreateCompletionRequest:
    return pb.CreateCompletionRequest(prompt=pb.Prompt(text=value), **fields)


async def ids_of(
    model: ServedModel, request: pb.CreateCompletionRequest, kept: int | None = None
) -> list[int]:
    (prompt,) = await completion_prompts(request, model, kept)
    return prompt.token_ids


async def test_a_suffix_makes_a_prompt_with_a_gap(tmp_path: Path) -> None:
    model = served(tmp_path, *INFILL)
    request = text("a b", suffix="c")

    assert await ids_of(model, request) == [BOS, PREFIX, A, B, SUFFIX, C, MIDDLE]
    assert infill_end_ids(request, model) == (PAD,)


async def test_a_gap_follows_token_ids_as_well_and_special_tokens_may_be_left_away(
    tmp_path: Path,
) -> None:
    model = served(tmp_path, *INFILL)
    ids = pb.Prompt(token_ids=pb.TokenIds(items=[A]))

    request = pb.CreateCompletionRequest(prompt=ids, suffix="b", add_special_tokens=False)

    assert await ids_of(model, request) == [PREFIX, A, SUFFIX, B, MIDDLE]


async def test_an_empty_suffix_is_none(tmp_path: Path) -> None:
    model = served(tmp_path)

    assert await ids_of(model, text("a b", suffix="")) == [BOS, A, B]
    assert infill_end_ids(text("a b", suffix=""), model) == ()


@pytest.mark.parametrize(
    ("special", "fields", "message"),
    [((), {}, "no tokens to fill a gap"), (INFILL, {"echo": True}, "exclude each other")],
)
async def test_a_suffix_that_cannot_be_is_refused_by_name(
    tmp_path: Path, special: tuple[str, ...], fields: dict[str, Any], message: str
) -> None:
    model = served(tmp_path, *special)

    with pytest.raises(ApiError, match=message) as caught:
        await ids_of(model, text("a", suffix="b", **fields))

    assert caught.value.param == "suffix"


@pytest.mark.parametrize(("kept", "ids"), [(2, [B, C]), (4, [BOS, A, B, C]), (9, [BOS, A, B, C])])
async def test_the_last_tokens_are_kept(tmp_path: Path, kept: int, ids: list[int]) -> None:
    assert await ids_of(served(tmp_path), text("a b c"), kept) == ids


async def test_an_echo_is_the_text_that_was_kept(tmp_path: Path) -> None:
    model = served(tmp_path)

    (whole,) = await completion_prompts(text("a  b c", echo=True), model, 9)
    (cut,) = await completion_prompts(text("a  b c", echo=True), model, 2)

    assert whole.text == "a  b c"
    assert cut.text.split() == ["b", "c"]


async def test_ids_outside_the_vocabulary_are_refused_by_their_place(tmp_path: Path) -> None:
    lists = pb.TokenIdsList(items=[pb.TokenIds(items=[A]), pb.TokenIds(items=[B, 9])])
    request = pb.CreateCompletionRequest(prompt=pb.Prompt(token_ids_list=lists))

    with pytest.raises(ApiError) as caught:
        await completion_prompts(request, served(tmp_path), None)

    assert caught.value.param == "prompt[1][1]"
