"""Builds a tokeniser from the metadata of a GGUF file, which holds one whole.

    tokenizer.ggml.model "gpt2"    byte-level BPE: merges are given, `pre` names the pre-tokeniser
    tokenizer.ggml.model "llama"   SentencePiece BPE: merges follow from the scores of the pieces

The keys are those of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. A vocabulary of 49k
takes 0.1 s and one of 262k about 1.4 s; reading the result back from a tokenizer.json would take
two thirds of that, so nothing is cached.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from octavo.gguf_metadata import GgufError, GgufValue, read_gguf_head
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from router_svc.text.tokenizer_parts import TokenizerError, TokenizerParts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

T = TypeVar("T", bound=GgufValue)

# tokenizer.ggml.token_type
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4

_CHAT_TEMPLATE = "tokenizer.chat_template"

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD_IN_CASES = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s"
)


def _words_and_digits(digits: str) -> str:
    return (
        rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_TAIL}"
    )


@dataclass(frozen=True, slots=True)
class _PreTokenizer:
    """How a kind of byte-level BPE cuts text before merging, and what it assumes besides."""

    split: str | None = None  # None: GPT-2's own pattern
    single_digits: bool = False
    whole_words_first: bool = False  # a word that is a token is not merged up to
    adds_bos: bool = False  # unless the metadata says otherwise


_GPT2 = _PreTokenizer()
_DIGITS_THEN_GPT2 = _PreTokenizer(single_digits=True)
_LLAMA3 = _PreTokenizer(_words_and_digits(r"\p{N}{1,3}"), whole_words_first=True, adds_bos=True)
_CL100K = _PreTokenizer(_words_and_digits(r"\p{N}{1,3}"))
_QWEN2 = _PreTokenizer(_words_and_digits(r"\p{N}"))
_O200K = _PreTokenizer(
    _WORD_IN_CASES % (f"{_CONTRACTIONS}?", f"{_CONTRACTIONS}?")
    + rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_TAIL}"
)
_TEKKEN = _PreTokenizer(
    _WORD_IN_CASES % ("", "") + rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_TAIL}",
    whole_words_first=True,
    adds_bos=True,
)

_PRE_TOKENIZERS = {
    "default": _GPT2,
    "gpt-2": _GPT2,
    "phi-2": _GPT2,
    "olmo": _GPT2,
    "mpt": _GPT2,
    "smollm": _DIGITS_THEN_GPT2,
    "starcoder": _DIGITS_THEN_GPT2,
    "refact": _DIGITS_THEN_GPT2,
    "command-r": _DIGITS_THEN_GPT2,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "dbrx": _CL100K,
    "smaug-bpe": _CL100K,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "gpt-4o": _O200K,
    "llama4": _O200K,
    "tekken": _TEKKEN,
}


def load_gguf_tokenizer(path: Path) -> TokenizerParts:
    """Reads the tokeniser of the GGUF file at `path`.

    Raises TokenizerError, naming file and key, for one that is absent, damaged or unknown.
    """
    metadata = _metadata(path)
    try:
        return _build(_Metadata(metadata))
    except TokenizerError as error:
        raise TokenizerError(f"{path} {error}") from error


def gguf_chat_templates(path: Path) -> dict[str, str]:
    """Chat templates in the metadata of the GGUF file at `path`, by name; "default" has none there.

    Raises TokenizerError for a damaged file.
    """
    return {
        key.removeprefix(_CHAT_TEMPLATE).lstrip(".") or "default": value
        for key, value in _metadata(path).items()
        if isinstance(value, str)
        and (key == _CHAT_TEMPLATE or key.startswith(f"{_CHAT_TEMPLATE}."))
    }


def _metadata(path: Path) -> dict[str, GgufValue]:
    try:
        return read_gguf_head(path).metadata
    except GgufError as error:
        raise TokenizerError(str(error)) from error


class _Metadata:
    """Typed access to tokenizer.ggml.*."""

    def __init__(self, values: dict[str, GgufValue]) -> None:
        self._values = values
        self.tokens = self._column("tokens", str)
        self.types = self._column("token_type", int, len(self.tokens))

    def get(self, key: str, kind: type[T]) -> T | None:
        """The value, or None if it is absent."""
        value = self._values.get(f"tokenizer.ggml.{key}")
        if value is not None and not isinstance(value, kind):
            raise TokenizerError(
                f"has tokenizer.ggml.{key} of the type {type(value).__name__},"
                f" expected {kind.__name__}"
            )
        return value

    def scores(self) -> list[float]:
        """One score a token."""
        return self._column("scores", float, len(self.tokens))

    def merges(self) -> list[tuple[str, str]]:
        """Pairs of tokens to merge, the first first."""
        merges = []
        for merge in self._column("merges", str):
            left, _, right = merge.partition(" ")
            merges.append((left, right))
        return merges

    def token_id(self, name: str) -> int | None:
        """The id of a special token ("bos" …), or None if there is none."""
        value = self.get(f"{name}_token_id", int)
        if value is not None and not 0 <= value < len(self.tokens):
            raise TokenizerError(
                f"has tokenizer.ggml.{name}_token_id {value},"
                f" but its vocabulary has {len(self.tokens)} tokens"
            )
        return value

    def of_type(self, *kinds: int) -> Iterator[str]:
        """Tokens of the given types, by id."""
        return (token for token, kind in zip(self.tokens, self.types, strict=True) if kind in kinds)

    def _column(self, key: str, kind: type[T], length: int | None = None) -> list[T]:
        values = self._values.get(f"tokenizer.ggml.{key}")
        if values is None:
            raise TokenizerError(f"has no tokenizer.ggml.{key} in its metadata")
        if not isinstance(values, list) or (values and not isinstance(values[0], kind)):
            raise TokenizerError(f"has a tokenizer.ggml.{key} that is no list of {kind.__name__}")
        if length is not None and len(values) != length:
            raise TokenizerError(f"has {len(values)} tokenizer.ggml.{key} for {length} tokens")
        # All elements of a GGUF array have one type.
        return values  # type: ignore[return-value]  # the first element was checked above


def _build(metadata: _Metadata) -> TokenizerParts:
    kind = metadata.get("model", str)
    vocabulary = {token: token_id for token_id, token in enumerate(metadata.tokens)}
    if len(vocabulary) != len(metadata.tokens):
        twice = next(t for i, t in enumerate(metadata.tokens) if vocabulary[t] != i)
        raise TokenizerError(f"has the token {twice!r} twice in its vocabulary")
    if kind == "gpt2":
        tokenizer, adds_bos = _byte_level(metadata, vocabulary)
    elif kind == "llama":
        tokenizer, adds_bos = _sentencepiece(metadata, vocabulary), True
    else:
        raise TokenizerError(
            f"has a tokeniser of the kind {kind!r} (tokenizer.ggml.model);"
            " supported are 'gpt2' and 'llama'"
        )
    tokenizer.add_special_tokens(_added(metadata.of_type(_CONTROL, _UNKNOWN), special=True))
    tokenizer.add_tokens(_added(metadata.of_type(_USER_DEFINED), special=False))

    bos, eos = metadata.token_id("bos"), metadata.token_id("eos")
    flag = metadata.get("add_bos_token", bool)
    starts = bos is not None and (adds_bos if flag is None else flag)
    ends = eos is not None and bool(metadata.get("add_eos_token", bool))
    end_ids = {metadata.token_id(name) for name in ("eos", "eot", "eom")} - {None}
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding", "sep": "seperator"}
    return TokenizerParts(
        backend=tokenizer,
        bos_id=bos,
        eos_id=eos,
        end_ids=tuple(sorted(i for i in end_ids if i is not None)),
        prefix_ids=(bos,) if starts and bos is not None else (),
        suffix_ids=(eos,) if ends and eos is not None else (),
        special_texts={
            f"{ours}_token": metadata.tokens[token_id]
            for ours, theirs in names.items()
            if (token_id := metadata.token_id(theirs)) is not None
        },
    )


def _added(tokens: Iterator[str], *, special: bool) -> list[AddedToken]:
    return [AddedToken(token, special=special, normalized=False) for token in tokens if token]


def _byte_level(metadata: _Metadata, vocabulary: dict[str, int]) -> tuple[Tokenizer, bool]:
    name = metadata.get("pre", str) or "default"
    kind = _PRE_TOKENIZERS.get(name)
    if kind is None:
        raise TokenizerError(
            f"has a pre-tokeniser of the unknown kind {name!r} (tokenizer.ggml.pre);"
            f" known are {', '.join(sorted(_PRE_TOKENIZERS))}"
        )
    merges = metadata.merges()
    try:
        model = models.BPE(vocabulary, merges, ignore_merges=kind.whole_words_first)
    except Exception as error:  # the library raises no narrower type
        raise TokenizerError(
            f"has tokenizer.ggml.merges that do not fit its tokens: {error}"
        ) from error
    tokenizer = Tokenizer(model)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind.split is None)
    steps: list[pre_tokenizers.PreTokenizer] = [byte_level]
    if kind.split is not None:
        steps.insert(0, pre_tokenizers.Split(Regex(kind.split), "isolated"))
    if kind.single_digits:
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, kind.adds_bos


def _sentencepiece(metadata: _Metadata, vocabulary: dict[str, int]) -> Tokenizer:
    unknown = metadata.token_id("unknown")
    tokenizer = Tokenizer(
        models.BPE(
            vocabulary,
            list(_merges_by_score(metadata)),
            unk_token=None if unknown is None else metadata.tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    spaces: list[normalizers.Normalizer] = [normalizers.Replace(" ", "▁")]
    back = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if metadata.get("add_space_prefix", bool) is not False:
        spaces.insert(0, normalizers.Prepend("▁"))
        back.append(decoders.Strip(" ", 1, 0))
    tokenizer.normalizer = normalizers.Sequence(spaces)
    tokenizer.decoder = decoders.Sequence(back)
    return tokenizer


def _merges_by_score(metadata: _Metadata) -> Iterator[tuple[str, str]]:
    # SentencePiece joins the neighbours whose whole scores best: so every way to cut a piece in two
    # pieces is a merge with the rank of the whole. Only normal pieces are ever joined.
    pieces = set(metadata.of_type(_NORMAL))
    scores = metadata.scores()
    ranked = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)
    for token_id in ranked:
        whole = metadata.tokens[token_id]
        if whole not in pieces:
            continue
        for cut in range(len(whole) - 1, 0, -1):
            left = whole[:cut]
            if left in pieces and (right := whole[cut:]) in pieces:
                yield left, right
