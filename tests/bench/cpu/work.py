"""What is asked of every engine alike: shapes of load, and the prompts of one turn."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

SERVED_NAME = "m"  # what every server calls its model

_WHO = (
    "sailors", "gardeners", "painters", "farmers", "pilots", "bakers", "poets", "drummers",
    "weavers", "clerks",
)  # fmt: skip
_DO = (
    "repair", "measure", "remember", "follow", "carry", "observe", "compare", "gather", "protect",
    "invent",
)  # fmt: skip
_WHAT = (
    "the old harbour", "seven lanterns", "a wooden clock", "fresh bread", "tall ships",
    "the northern road", "green stones", "an empty room", "silver coins", "the quiet library",
)  # fmt: skip
_LINK = ["because", "while", "after", "before", "although", "until", "unless", "when"]


@dataclass(frozen=True, slots=True)
class Shape:
    """A closed loop: so many requests always in flight. Lengths in tokens.

    With `shared_tokens`, requests are chats with a system prompt of that length in common.
    """

    concurrency: int
    num_requests: int
    prompt_tokens: int
    output_tokens: int
    shared_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """The requests of one turn; each engine of a round gets the same."""

    shape: Shape
    prompts: tuple[str, ...]
    system: str  # empty unless the shape shares a prefix

    @property
    def path(self) -> str:
        """Of the HTTP API."""
        return "/v1/chat/completions" if self.system else "/v1/completions"

    def bodies(self) -> list[bytes]:
        """Bodies of HTTP requests: streaming, greedy, of a fixed length."""
        common = {
            "model": SERVED_NAME,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
            "max_tokens": self.shape.output_tokens,
            "ignore_eos": True,
        }
        return [orjson.dumps(common | self._asked(prompt)) for prompt in self.prompts]

    def _asked(self, prompt: str) -> dict[str, Any]:
        return {"messages": self.messages(prompt)} if self.system else {"prompt": prompt}

    def messages(self, prompt: str) -> list[dict[str, str]]:
        """The conversation of a chat request."""
        return [
            {"role": "system", "content": self.system},
            {"role": "user", "content": prompt},
        ]


class WorkMaker:
    """Makes the work of a turn; the same seed makes the same prompts."""

    def __init__(self, model_dir: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
        config = orjson.loads((model_dir / "tokenizer_config.json").read_bytes())
        # The sandbox and the two trimming options are what all engines render templates with.
        sandbox = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        self._template = sandbox.from_string(config["chat_template"])
        self._special = {key: config[key] for key in ("bos_token", "eos_token")}

    def make(self, shape: Shape, seed: str) -> Work:
        """Prompts that differ from their first word on, and from those of every other seed."""
        return Work(
            shape,
            tuple(
                self._text(f"{seed}/{number}", shape.prompt_tokens)
                for number in range(shape.num_requests)
            ),
            self._text(f"{seed}/system", shape.shared_tokens),
        )

    def token_ids(self, work: Work) -> list[list[int]]:
        """The same requests for a library that takes tokens."""
        return [self._encode(self._whole(work, prompt)) for prompt in work.prompts]

    def _whole(self, work: Work, prompt: str) -> str:
        if not work.system:
            return prompt
        messages = work.messages(prompt)
        return self._template.render(messages=messages, add_generation_prompt=True, **self._special)

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def _text(self, name: str, num_tokens: int) -> str:
        if num_tokens == 0:
            return ""
        rng = random.Random(name)
        words = [str(rng.randrange(1000, 10_000)), "times,"]
        while len(words) < num_tokens:
            words += [rng.choice(part) for part in (_WHO, _DO, _WHAT, _LINK)]
        ids = self._encode(" ".join(words))[:num_tokens]
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text
