"""Which token ids end a text, from every file of a model directory that has a say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from engine_svc.models.errors import ModelError

if TYPE_CHECKING:
    from pathlib import Path


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, empty if there is no such file. Raises ModelError naming the file."""
    if not path.is_file():
        return {}
    try:
        value = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise ModelError(f"{path.name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path.name} must hold an object")
    return value


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Ids that end a text, and the id that begins one where the model has it."""

    eos_ids: frozenset[int]
    bos_id: int | None


def special_tokens(directory: Path, configs: Iterable[Mapping[str, Any]]) -> SpecialTokens:
    """The union over `configs` (config and generation_config) and the tokeniser's own eos.

    Chat models often end a turn with a token that only one of these files knows. Raises ModelError
    for an id that is not one.
    """
    eos: set[int] = set()
    bos: int | None = None
    for config in configs:
        eos |= set(token_ids(config, "eos_token_id"))
        first = token_ids(config, "bos_token_id")
        bos = first[0] if bos is None and first else bos
    tokenizer_config = read_json(directory / "tokenizer_config.json")
    special_map = read_json(directory / "special_tokens_map.json")
    texts = {
        key: _content(tokenizer_config.get(key)) or _content(special_map.get(key))
        for key in ("eos_token", "bos_token")
    }
    ids = _ids_of_texts(directory, tokenizer_config, {t for t in texts.values() if t})
    if texts["eos_token"] in ids:
        eos.add(ids[texts["eos_token"]])
    if bos is None and texts["bos_token"]:
        bos = ids.get(texts["bos_token"])
    return SpecialTokens(frozenset(eos), bos)


def token_ids(config: Mapping[str, Any], key: str) -> list[int]:
    """The ids under `key`, where one may stand without a list. Raises ModelError."""
    value = config.get(key)
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(i) is int and 0 <= i < 2**31 for i in ids):
        raise ModelError(f"{key} must be token ids, got {value!r}")
    return ids


def _content(token: Any) -> str:
    """A token as the files spell it: its text, or an object with it."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else ""


def _ids_of_texts(
    directory: Path, tokenizer_config: Mapping[str, Any], wanted: set[str]
) -> dict[str, int]:
    decoder = tokenizer_config.get("added_tokens_decoder") or {}
    ids = {_content(token): int(key) for key, token in decoder.items() if key.isdecimal()}
    if wanted <= ids.keys():
        return ids
    tokenizer = read_json(directory / "tokenizer.json")
    vocab = (tokenizer.get("model") or {}).get("vocab")
    if isinstance(vocab, dict):  # a unigram model has a list, whose special tokens are all "added"
        ids |= {text: vocab[text] for text in wanted if text in vocab}
    return ids | {t["content"]: t["id"] for t in tokenizer.get("added_tokens") or []}
