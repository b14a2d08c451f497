"""The tokeniser that a model comes with: text to ids and back, and what single tokens stand for.

Control tokens (<|im_end|> …) have a literal that users can type, and only the server may mean the
token by it. So the library's own matching of special tokens is off, and where a literal is meant it
is replaced, before encoding, by an alias: a further added token with a name nobody can guess.

    text   "<|im_start|>user\\nWhat is <|im_end|>?"     the first literal is the template's
    sent   "<alias 1>user\\nWhat is <|im_end|>?"        → … with the alias' id mapped back

One pass over the whole text keeps every rule that looks at neighbours (a first space, stripping
around added tokens) as the library has it.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import orjson
from octavo.fingerprint import tokenizer_sha256
from tokenizers import AddedToken, models
from tokenizers import Tokenizer as Backend

from router_svc.text.gguf_tokenizer import load_gguf_tokenizer
from router_svc.text.hf_tokenizer import load_hf_tokenizer
from router_svc.text.pieces import Decoding, UnsupportedDecoderError, decoding_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from router_svc.text.tokenizer_parts import TokenizerParts

Span = tuple[int, int]
"""Begin and end of a piece of text, in characters."""


class Tokenizer:
    """A model's tokeniser. Its methods are safe from any thread; long texts release the GIL."""

    def __init__(self, parts: TokenizerParts, sha256: str) -> None:
        self._backend = parts.backend
        self.bos_id = parts.bos_id
        self.eos_id = parts.eos_id
        self.end_ids = parts.end_ids
        self.special_texts = dict(parts.special_texts)
        self.sha256 = sha256
        self._prefix_ids = list(parts.prefix_ids)
        self._suffix_ids = list(parts.suffix_ids)
        self.pair = parts.pair
        self.vocab_size = 1 + max(self._backend.get_vocab(with_added_tokens=True).values())

        added = self._backend.get_added_tokens_decoder()
        special = {i: token for i, token in added.items() if token.special and token.content}
        self._special_ids = frozenset(special)
        self.special_literals = tuple(token.content for token in special.values())
        # An unknown character may well be encoded as the unknown token: it controls nothing.
        unknown = self._backend.token_to_id(self.special_texts.get("unk_token", ""))
        self._control_ids = self._special_ids - {unknown}

        self._first_characters = {literal[0] for literal in self.special_literals}
        self._finder = _finder(special)
        self._aliases, self._id_of_alias = _add_aliases(self._backend, special)
        self._backend.encode_special_tokens = True
        self._decoding: Decoding | None = None
        self._pieces: dict[int, bytes | str] = {}

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Reads the tokeniser of a Hugging Face directory or a GGUF file.

        Raises TokenizerError, naming the file, and OSError.
        """
        parts = load_gguf_tokenizer(path) if path.is_file() else load_hf_tokenizer(path)
        return cls(parts, tokenizer_sha256(path))

    @property
    def decoding(self) -> Decoding:
        """How pieces of tokens become text. Raises UnsupportedDecoderError."""
        if self._decoding is None:
            decoder = self._backend.decoder
            self._decoding = decoding_of(decoder and orjson.loads(decoder.__getstate__()))
        return self._decoding

    def encode(self, text: str, *, add_special_tokens: bool, parse_special: bool) -> list[int]:
        """Ids of `text`; literals of control tokens mean the tokens only if `parse_special`.

        `add_special_tokens` adds what the model wants around a text. Raises ValueError for text
        that is not Unicode (half a surrogate pair).
        """
        spans = self.find_special(text) if parse_special else ()
        return self.encode_spans(text, spans, add_special_tokens=add_special_tokens)

    def encode_spans(
        self, text: str, spans: Sequence[Span], *, add_special_tokens: bool
    ) -> list[int]:
        """Ids of `text`, in which the literals at `spans`, and no others, mean control tokens.

        `spans` are in order, each a special token's literal. Raises ValueError as encode does.
        """
        sent: list[str] = []
        at = 0
        for start, end in spans:
            sent += text[at:start], self._aliases[text[start:end]]
            at = end
        sent.append(text[at:])
        ids = _ids(self._backend, "".join(sent))
        if not self._control_ids.isdisjoint(ids):
            # A vocabulary that knows a literal as a whole word: cut the word.
            ids = [
                i for part in self._cut_literals("".join(sent)) for i in _ids(self._backend, part)
            ]
        if spans:
            real = self._id_of_alias
            ids = [real.get(i, i) for i in ids]
        return self.around(ids) if add_special_tokens else ids

    def word_runs(self, words: Iterable[str]) -> tuple[tuple[int, ...], ...]:
        """The tokens of each word as it begins a text and as it follows a space.

        Raises ValueError for a word without a character that can be seen.
        """
        runs: dict[tuple[int, ...], None] = {}
        for word in words:
            bare = word.lstrip()
            if not bare:
                raise ValueError("a word must not be empty")
            for text in (bare, f" {bare}"):
                runs[tuple(self.encode(text, add_special_tokens=False, parse_special=True))] = None
        return tuple(run for run in runs if run)

    @property
    def num_around(self) -> int:
        """Special tokens that `around` adds."""
        return len(self._prefix_ids) + len(self._suffix_ids)

    def around(self, ids: Sequence[int]) -> list[int]:
        """The ids of a text with the special tokens that the model wants around it."""
        return [*self._prefix_ids, *ids, *self._suffix_ids]

    def find_special(self, text: str) -> list[Span]:
        """Where literals of special tokens stand in `text`, the longest where several begin."""
        # A text rarely holds a literal, and what is cheap to see comes first.
        if not any(character in text for character in self._first_characters):
            return []
        if not _ids(self._finder, text):
            return []
        return list(self._finder.encode_batch([text], add_special_tokens=False)[0].offsets)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Text of `ids`. Raises ValueError, naming the id, for one outside the vocabulary."""
        self._check(ids)
        return self._backend.decode(ids, skip_special_tokens=skip_special_tokens)

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes that a token stands for, which may be part of a character; none without a token."""
        piece = self.piece(token_id)
        return piece if isinstance(piece, bytes) else piece.encode()

    def token_text(self, token_id: int) -> str:
        """Text of a token, with U+FFFD for bytes that are no character."""
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def is_special(self, token_id: int) -> bool:
        """Whether the token is left out of a text that skips special tokens."""
        return token_id in self._special_ids

    def special_ids(self, literals: Iterable[str]) -> dict[str, int]:
        """The special tokens that are written so; literals of no special token are left out."""
        ids = {literal: self._backend.token_to_id(literal) for literal in literals}
        return {literal: i for literal, i in ids.items() if i in self._special_ids}

    def piece(self, token_id: int) -> bytes | str:
        """What a token contributes to a text; nothing for an id without a token.

        A model's vocabulary may be padded beyond its tokeniser's.
        """
        piece = self._pieces.get(token_id)
        if piece is None:
            inside = 0 <= token_id < self.vocab_size
            token = self._backend.id_to_token(token_id) if inside else None
            piece = "" if token is None else self._shown(token)
            self._pieces[token_id] = piece
        return piece

    def _shown(self, token: str) -> bytes | str:
        try:
            return self.decoding.piece(token)
        except UnsupportedDecoderError:
            return token  # of a model that only reads; nothing is streamed through its decoder

    def _cut_literals(self, text: str) -> Iterable[str]:
        at = 0
        for start, _ in self.find_special(text):
            yield text[at : start + 1]
            at = start + 1
        yield text[at:]

    def _check(self, ids: Iterable[int]) -> None:
        for token_id in ids:
            if not 0 <= token_id < self.vocab_size:
                raise ValueError(
                    f"token id {token_id} is outside the vocabulary of {self.vocab_size} tokens"
                )


def _ids(backend: Backend, text: str) -> list[int]:
    try:
        # The batch call, unlike the single one, releases the GIL.
        return backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
    except (TypeError, UnicodeEncodeError) as error:
        raise ValueError("the text holds half a surrogate pair, not a character") from error


def _finder(special: dict[int, AddedToken]) -> Backend:
    # With no vocabulary of its own, this finds added tokens (Aho-Corasick) and nothing else.
    finder = Backend(models.BPE())
    finder.add_tokens(
        [
            AddedToken(token.content, single_word=token.single_word, normalized=False)
            for token in special.values()
        ]
    )
    return finder


def _add_aliases(
    backend: Backend, special: dict[int, AddedToken]
) -> tuple[dict[str, str], dict[int, int]]:
    secret = secrets.token_hex(16)
    aliases = {token.content: f"<{secret}:{i}>" for i, token in special.items()}
    backend.add_tokens(
        [
            AddedToken(
                aliases[token.content],
                single_word=token.single_word,
                lstrip=token.lstrip,
                rstrip=token.rstrip,
                normalized=token.normalized,
                special=False,
            )
            for token in special.values()
        ]
    )
    real = {}
    for i, token in special.items():
        alias_id = backend.token_to_id(aliases[token.content])
        if alias_id is not None:
            real[alias_id] = i
    return aliases, real
