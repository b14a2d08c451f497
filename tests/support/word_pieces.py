"""A tokeniser of BERT's kind with a handful of words: one token a word, special tokens around."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CLS, SEP = 2, 3
WORDS = ("the", "cat", "sat", "on", "mat", "a", "dog", "run", "##s", "red", "green", "blue")
ID = {word: len(SPECIAL) + i for i, word in enumerate(WORDS)}


def word_pieces() -> Tokenizer:
    """The tokenizers library's own, without truncation or padding."""
    vocab = {token: i for i, token in enumerate((*SPECIAL, *WORDS))}
    backend = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.add_special_tokens(list(SPECIAL))
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)],
    )
    return backend


def write_word_pieces(directory: Path) -> Path:
    """A tokenizer.json with truncation and padding left on, as training leaves them behind."""
    backend = word_pieces()
    backend.enable_truncation(5)
    backend.enable_padding(length=8)
    directory.mkdir(parents=True, exist_ok=True)
    backend.save(str(directory / "tokenizer.json"))
    return directory
