"""What the clients of a chaos run ask: every kind of request, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.chaos.processes import ADAPTERS, MODEL
from tests.support.public_api import CHAT, COMPLETIONS

_WORDS = ("the", "world", "and", "a", "hello", "user", "in", "system", "er", "of", "é", "7", "🙂")
_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 3, "maxLength": 24},
        "parts": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 4},
    },
    "required": ["name", "parts"],
    "additionalProperties": False,
}
_TOOL = {"type": "function", "function": {"name": "order", "parameters": _SCHEMA}}


@dataclass(frozen=True)
class Wanted:
    """A request that has one right answer: greedy or seeded. `bad`: which is an error."""

    name: str
    kind: str
    path: str
    body: dict[str, Any]
    bad: bool = False

    def log_names(self, request_id: str) -> list[str]:
        """The ids in the router's log of a request with this id: one for each of its prompts."""
        prompts = self.body.get("prompt")
        if not isinstance(prompts, list):
            return [request_id]
        return [f"{request_id}-{i}" for i in range(len(prompts))]


def catalogue(seed: int, size: int) -> list[Wanted]:
    """So many different requests, of all kinds in turn."""
    rng = random.Random(seed)
    kinds = list(_KINDS.items())
    wanted = []
    for number in range(size):
        kind, make = kinds[number % len(kinds)]
        one = make(rng)
        sampling: dict[str, Any] = {"temperature": 0}
        if rng.random() < 0.6:
            sampling = {"temperature": rng.choice((0.7, 1.0)), "seed": rng.randrange(1 << 31)}
            sampling |= rng.choice(({}, {"top_p": 0.9}, {"top_k": 20}))
        model = rng.choice((MODEL, MODEL, *ADAPTERS))
        body = {"model": model, "return_token_ids": True, **sampling, **one.body}
        wanted.append(replace(one, name=f"{kind}-{number}", kind=kind, body=body))
    return wanted


def bad_inputs() -> list[Wanted]:
    """Requests that must be refused, each with the same words every time."""
    chat = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}
    bodies: list[tuple[str, dict[str, Any]]] = [
        (CHAT, chat | {"temperature": -1}),
        (CHAT, chat | {"messages": []}),
        (CHAT, chat | {"max_tokens": 0}),
        (CHAT, chat | {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}),
        (CHAT, chat | {"tool_choice": "required"}),
        (COMPLETIONS, {"model": MODEL, "prompt": [99_999_999]}),
        (COMPLETIONS, {"model": MODEL, "prompt": "hello", "n": 0}),
        (COMPLETIONS, {"model": "another", "prompt": "hello"}),
    ]
    return [
        Wanted(f"bad-{i}", "bad input", path, body, bad=True)
        for i, (path, body) in enumerate(bodies)
    ]


def long_request(rng: random.Random) -> Wanted:
    """A request whose tokens take a good part of an engine's small pool."""
    return _completion(_text(rng, 40), max_tokens=120, ignore_eos=True)


def _text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choice(_WORDS) for _ in range(words))


def _completion(prompt: Any, **options: Any) -> Wanted:
    return Wanted("", "", COMPLETIONS, {"prompt": prompt, **options})


def _chat(rng: random.Random, **options: Any) -> Wanted:
    content = _text(rng, rng.randint(2, 20))
    return Wanted("", "", CHAT, {"messages": [{"role": "user", "content": content}], **options})


def _num_tokens(rng: random.Random) -> int:
    return rng.choice((1, 8, 24, 48, 80))


def _plain_chat(rng: random.Random) -> Wanted:
    return _chat(rng, max_tokens=_num_tokens(rng))


def _plain_completion(rng: random.Random) -> Wanted:
    ignore_eos = rng.random() < 0.5
    return _completion(_text(rng, 6), max_tokens=_num_tokens(rng), ignore_eos=ignore_eos)


def _several(rng: random.Random) -> Wanted:
    return _completion(_text(rng, 5), max_tokens=32, n=rng.choice((2, 3)))


def _several_prompts(rng: random.Random) -> Wanted:
    return _completion([_text(rng, 4), _text(rng, 7)], max_tokens=24)


def _logprobs(rng: random.Random) -> Wanted:
    if rng.random() < 0.5:
        return _chat(rng, max_tokens=24, logprobs=True, top_logprobs=3)
    return _completion(_text(rng, 8), max_tokens=24, logprobs=2, prompt_logprobs=1)


def _json_schema(rng: random.Random) -> Wanted:
    named = {"name": "thing", "schema": _SCHEMA, "strict": True}
    wanted = {"type": "json_schema", "json_schema": named}
    return _chat(rng, max_tokens=100, response_format=wanted)


def _tools(rng: random.Random) -> Wanted:
    return _chat(rng, max_tokens=120, tools=[_TOOL], tool_choice="required")


def _stops(rng: random.Random) -> Wanted:
    stops = rng.sample((" the", "er", "h", " and", "\r", "s", "zzz"), 2)
    return _completion(_text(rng, 6), max_tokens=80, stop=stops, n=rng.choice((1, 2)))


def _penalties(rng: random.Random) -> Wanted:
    return _chat(rng, max_tokens=60, repetition_penalty=1.3, frequency_penalty=0.4, min_tokens=20)


def _long(rng: random.Random) -> Wanted:
    return long_request(rng)


_KINDS: dict[str, Callable[[random.Random], Wanted]] = {
    "chat": _plain_chat,
    "completion": _plain_completion,
    "n": _several,
    "prompts": _several_prompts,
    "logprobs": _logprobs,
    "json_schema": _json_schema,
    "tools": _tools,
    "stop": _stops,
    "penalties": _penalties,
    "long": _long,
}
