"""Reads a tokeniser from a Hugging Face model directory.

tokenizer.json says how text becomes ids; the files beside it say which tokens are special, what a
prompt begins and ends with, and which ids end an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from tokenizers import AddedToken, Tokenizer

from router_svc.text.tokenizer_parts import PairTemplate, TokenizerError, TokenizerParts

if TYPE_CHECKING:
    from pathlib import Path


def load_hf_tokenizer(directory: Path) -> TokenizerParts:
    """Reads the tokeniser in `directory`. Raises TokenizerError, naming the file at fault."""
    backend = _backend(directory)
    config = {
        **read_json_object(directory / "special_tokens_map.json"),
        **read_json_object(directory / "tokenizer_config.json"),
    }
    special_texts = {
        name: text
        for name, value in config.items()
        if name.endswith("_token") and (text := _token_text(value)) is not None
    }
    _add_missing(backend, config.get("added_tokens_decoder"), special_texts)

    model = read_json_object(directory / "config.json")
    generation = read_json_object(directory / "generation_config.json")
    bos_id = _named_id(backend, special_texts, "bos", model)
    eos_id = _named_id(backend, special_texts, "eos", model)
    end_ids = {eos_id, *_ids(model, "eos"), *_ids(generation, "eos")}
    prefix_ids, suffix_ids = _affixes(backend)
    if "add_bos_token" in config or "add_eos_token" in config:
        prefix_ids = (bos_id,) if config.get("add_bos_token") and bos_id is not None else ()
        suffix_ids = (eos_id,) if config.get("add_eos_token") and eos_id is not None else ()
    return TokenizerParts(
        backend=backend,
        bos_id=bos_id,
        eos_id=eos_id,
        end_ids=tuple(sorted(i for i in end_ids if i is not None)),
        prefix_ids=prefix_ids,
        suffix_ids=suffix_ids,
        special_texts=special_texts,
        pair=_pair_template(backend, config.get("model_input_names")),
    )


def read_json_object(file: Path) -> dict[str, Any]:
    """The JSON object in `file`, empty if there is no such file. Raises TokenizerError."""
    if not file.is_file():
        return {}
    try:
        value = orjson.loads(file.read_bytes())
    except orjson.JSONDecodeError as error:
        raise TokenizerError(f"{file} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise TokenizerError(f"{file} must hold a JSON object")
    return value


def _backend(directory: Path) -> Tokenizer:
    file = directory / "tokenizer.json"
    if not file.is_file():
        if (directory / "tokenizer.model").is_file():
            raise TokenizerError(
                f"{directory} has a tokenizer.model but no tokenizer.json; write one with"
                " transformers: AutoTokenizer.from_pretrained(directory).save_pretrained(directory)"
            )
        raise TokenizerError(f"{directory} has no tokenizer.json")
    try:
        backend = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises no narrower type
        raise TokenizerError(f"{file} cannot be read: {error}") from error
    # A limit or padding left over from training would silently change prompts.
    backend.no_truncation()
    backend.no_padding()
    return backend


def _token_text(value: object) -> str | None:
    match value:
        case str(text) | {"content": str(text)}:
            return text
    return None


def _add_missing(backend: Tokenizer, listed: object, special_texts: dict[str, str]) -> None:
    # tokenizer_config.json may know of tokens, or that they are special, beyond tokenizer.json.
    known = backend.get_added_tokens_decoder()
    special = {token.content for token in known.values() if token.special}
    contents = {token.content for token in known.values()}
    for _, entry in sorted(listed.items(), key=_by_id) if isinstance(listed, dict) else ():
        text = _token_text(entry)
        if not text or (text in contents and (text in special or not entry.get("special"))):
            continue
        flags = ("lstrip", "rstrip", "single_word", "special")
        token = AddedToken(
            text,
            normalized=bool(entry.get("normalized", True)),
            **{flag: bool(entry.get(flag)) for flag in flags},
        )
        add = backend.add_special_tokens if token.special else backend.add_tokens
        add([token])
        contents.add(text)
        if token.special:
            special.add(text)
    backend.add_special_tokens(
        [
            AddedToken(text, special=True, normalized=False)
            for text in special_texts.values()
            if text and text not in special and backend.token_to_id(text) is not None
        ]
    )


def _by_id(item: tuple[Any, Any]) -> int:
    return int(item[0])


def _named_id(
    backend: Tokenizer, special_texts: dict[str, str], name: str, model: dict[str, Any]
) -> int | None:
    text = special_texts.get(f"{name}_token")
    if text is not None:
        return backend.token_to_id(text)
    return next(iter(_ids(model, name)), None)


def _ids(config: dict[str, Any], name: str) -> list[int]:
    value = config.get(f"{name}_token_id")
    values = value if isinstance(value, list) else [value]
    return [i for i in values if isinstance(i, int) and not isinstance(i, bool)]


def _affixes(backend: Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    # What the post-processor puts around a text, seen on a text that has a token of its own.
    bare = backend.encode("a", add_special_tokens=False).ids
    whole = backend.encode("a", add_special_tokens=True).ids
    for start in range(len(whole) - len(bare) + 1):
        if whole[start : start + len(bare)] == bare:
            return tuple(whole[:start]), tuple(whole[start + len(bare) :])
    return (), ()


def _pair_template(backend: Tokenizer, model_inputs: object) -> PairTemplate | None:
    # As above, on two texts; None for a tokeniser that puts them side by side or in another order.
    whole = backend.encode("a", "a", add_special_tokens=True)
    owners = whole.sequence_ids  # 0 and 1 for the texts, None for what was added
    if 0 not in owners or 1 not in owners:
        return None
    first_end, second = len(owners) - owners[::-1].index(0), owners.index(1)
    second_end = len(owners) - owners[::-1].index(1)
    if first_end >= second:
        return None
    takes_types = not isinstance(model_inputs, list) or "token_type_ids" in model_inputs
    num_first = next((i for i, kind in enumerate(whole.type_ids) if kind and takes_types), 0)
    return PairTemplate(
        prefix_ids=tuple(whole.ids[: owners.index(0)]),
        middle_ids=tuple(whole.ids[first_end:second]),
        suffix_ids=tuple(whole.ids[second_end:]),
        has_segments=num_first > 0,
        middle_in_first=max(0, num_first - first_end),
    )
