"""What is asked: prompts that a prefix cache cannot help with, unless a shared prefix is wanted."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router_svc.text.tokenizer import Tokenizer

_PARTS = (
    ("sailors", "gardeners", "painters", "farmers", "pilots", "bakers", "poets", "drummers"),
    ("repair", "measure", "remember", "follow", "carry", "observe", "compare", "gather"),
    ("the old harbour", "seven lanterns", "a wooden clock", "fresh bread", "tall ships"),
    ("because", "while", "after", "before", "although", "until", "unless", "when"),
)

_WORDS_PER_TOKEN = 0.75  # for want of a tokeniser


@dataclass(frozen=True, slots=True)
class Workload:
    """A kind of request. Lengths count tokens; without a tokeniser prompt lengths are estimates."""

    prompt_tokens: int
    output_tokens: int
    shared_prefix_tokens: int
    ignore_eos: bool
    seed: int


class PromptMaker:
    """Makes the prompt of a given number; the same seed makes the same prompts."""

    def __init__(self, workload: Workload, tokenizer: Tokenizer | None) -> None:
        self._workload = workload
        self._tokenizer = tokenizer
        self._prefix = self._text("prefix", workload.shared_prefix_tokens)

    def prompt(self, number: int) -> str:
        """The shared prefix, if any, and text that differs from its first word on."""
        own = self._text(f"prompt {number}", self._workload.prompt_tokens)
        return f"{self._prefix}\n{own}" if self._prefix else own

    def _text(self, name: str, num_tokens: int) -> str:
        if num_tokens <= 0:
            return ""
        rng = random.Random(f"{self._workload.seed}/{name}")
        words = [str(rng.randrange(1000, 10_000))]
        while len(words) < num_tokens:
            words += [rng.choice(part) for part in _PARTS]
        if self._tokenizer is None:
            return " ".join(words[: max(1, round(num_tokens * _WORDS_PER_TOKEN))])
        ids = self._tokenizer.encode(" ".join(words), add_special_tokens=False, parse_special=False)
        return self._tokenizer.decode(ids[:num_tokens], skip_special_tokens=False)
