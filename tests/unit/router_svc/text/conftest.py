"""Tokenisers for the tests of the router's text layer: a real one and a tiny SentencePiece one."""

from __future__ import annotations

import json
import string
from typing import TYPE_CHECKING, Any

import pytest
from gguf import GGUFWriter, TokenType
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from router_svc.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHAT_SPECIALS = (
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<bos>",
)
CHAT_TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>")

# Piece and score; the single characters come on top.
SENTENCEPIECE = {
    "▁▁": -1.0,
    "he": -2.0,
    "lo": -3.0,
    "▁w": -4.0,
    "or": -5.0,
    "▁▁▁▁": -6.0,
    "hel": -7.0,
    "hello": -8.0,
    "▁hello": -9.0,
    "ld": -10.0,
    "▁wor": -11.0,
    "▁world": -12.0,
    "▁the": -13.0,
    "th": -14.0,
    "▁th": -15.0,
    "éé": -16.0,
}


@pytest.fixture(scope="session")
def piece_scores() -> dict[str, float]:
    """The pieces of the tiny SentencePiece tokeniser that are longer than a character."""
    return SENTENCEPIECE


@pytest.fixture(scope="session")
def smollm2(smollm2_checkpoint: Path) -> Tokenizer:
    """SmolLM2's tokeniser: byte-level BPE with 17 control tokens."""
    return Tokenizer.load(smollm2_checkpoint)


@pytest.fixture(scope="session")
def chat_directory(smollm2_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2's tokeniser with the control tokens of other families' templates added."""
    directory = tmp_path_factory.mktemp("chat")
    backend = Backend.from_file(str(smollm2_checkpoint / "tokenizer.json"))
    backend.add_special_tokens([AddedToken(text, normalized=False) for text in CHAT_SPECIALS])
    backend.add_tokens([AddedToken(text, normalized=False) for text in CHAT_TAGS])
    backend.save(str(directory / "tokenizer.json"))
    config = json.loads((smollm2_checkpoint / "tokenizer_config.json").read_text())
    config.pop("chat_template")
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory


@pytest.fixture(scope="session")
def chat_tokenizer(chat_directory: Path) -> Tokenizer:
    """The tokeniser in `chat_directory`."""
    return Tokenizer.load(chat_directory)


@pytest.fixture(scope="session")
def write_sentencepiece_gguf() -> Callable[..., Path]:
    """Writes a GGUF that holds a tiny SentencePiece tokeniser and no weights."""

    def write(path: Path, **settings: Any) -> Path:
        characters = {character: -20.0 - i for i, character in enumerate("▁é.,!")}
        characters |= {c: -30.0 - i for i, c in enumerate(string.ascii_letters)}
        normal = {**SENTENCEPIECE, **characters}
        tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
        kinds = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL, *[TokenType.BYTE] * 256]
        scores = [0.0] * len(tokens)
        tokens += [*normal, "<tool>", "   "]
        kinds += [*[TokenType.NORMAL] * len(normal), *[TokenType.USER_DEFINED] * 2]
        scores += [*normal.values(), -1000.0, -1000.0]
        writer = GGUFWriter(path, "llama")
        writer.add_tokenizer_model(settings.get("model", "llama"))
        writer.add_token_list(tokens)
        writer.add_token_types([int(kind) for kind in kinds])
        writer.add_token_scores(scores)
        writer.add_unk_token_id(0)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(settings.get("eos", 2))
        if "add_bos" in settings:
            writer.add_add_bos_token(settings["add_bos"])
        if "add_space_prefix" in settings:
            writer.add_add_space_prefix(settings["add_space_prefix"])
        if "chat_template" in settings:
            writer.add_chat_template(settings["chat_template"])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        return path

    return write


@pytest.fixture(scope="session")
def sentencepiece(
    write_sentencepiece_gguf: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Tokenizer:
    """A tiny SentencePiece tokeniser with byte fallback, a first space, and tokens for spaces."""
    return Tokenizer.load(write_sentencepiece_gguf(tmp_path_factory.mktemp("spm") / "tiny.gguf"))
