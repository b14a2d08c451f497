"""A model as the router serves it: its text side here, its token side on an engine."""

from __future__ import annotations

import asyncio
import copy
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from octavo import grammars

from router_svc.errors import ApiError, ErrorKind, invalid
from router_svc.text.chat_template import ChatTemplate, TemplateError, encode_chat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from router_svc.engines.info import EngineInfo
    from router_svc.fleet.fleet import Fleet
    from router_svc.generation_types import Adapter
    from router_svc.output_formats import OutputFormats
    from router_svc.text.tokenizer import Tokenizer

T = TypeVar("T")

_NUM_TEXT_THREADS = 2


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A rendered conversation: its ids and its text."""

    token_ids: list[int]
    text: str


class ServedModel:
    """Turns text into prompts for `engine`, on its own threads: a long text stalls no stream."""

    def __init__(
        self,
        engine: Fleet,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        formats: OutputFormats,
    ) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self.formats = formats
        self.adapter: Adapter | None = None  # that its answers are to be made with
        self._template = template
        self._threads = _text_threads()

    def with_adapter(self, adapter: Adapter) -> ServedModel:
        """The same model as requests see it that name an adapter of it."""
        adapted = copy.copy(self)
        adapted.adapter = adapter
        return adapted

    @property
    def info(self) -> EngineInfo:
        """What the engine says of the model. Raises ApiError before it was ever reached."""
        if self.engine.info is None:
            raise ApiError(ErrorKind.UNAVAILABLE, "no engine is ready")
        return self.engine.info

    @property
    def name(self) -> str:
        """The name that answers carry."""
        return self.base_name if self.adapter is None else self.adapter.name

    @property
    def base_name(self) -> str:
        """The first name of the model itself."""
        return self.info.served_names[0]

    async def chat_prompt(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        add_special_tokens: bool = False,
        variables: Mapping[str, Any] | None = None,
        tools: Sequence[dict[str, Any]] | None = None,
        documents: Sequence[dict[str, Any]] | None = None,
    ) -> ChatPrompt:
        """A conversation as the model's template renders it.

        Raises ApiError, naming the field, for one that it refuses.
        """
        template = self._template
        if template is None:
            raise invalid(
                "messages",
                "this model has no chat template; use /v1/completions, or start the server with"
                " --chat-template",
            )

        def render() -> ChatPrompt:
            rendered = template.render(
                messages,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                variables=variables,
                tools=tools,
                documents=documents,
            )
            ids = encode_chat(self.tokenizer, rendered, add_special_tokens=add_special_tokens)
            return ChatPrompt(ids, rendered.text)

        try:
            return await self.run(render)
        except TemplateError as error:
            raise invalid(error.param, str(error)) from error

    async def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids of a raw prompt, in which control tokens may be written out."""
        return await self.run(
            lambda: self.tokenizer.encode(
                text, add_special_tokens=add_special_tokens, parse_special=True
            )
        )

    async def decode(self, ids: Sequence[int], param: str) -> str:
        """Text of token ids, control tokens included.

        Raises ApiError for ids outside the vocabulary.
        """

        def text() -> str:
            self.check_token_ids(ids, param)
            return self.text_of(ids, skip_special_tokens=False)

        return await self.run(text)

    def check_token_ids(self, ids: Sequence[int], param: str) -> None:
        """Raises ApiError for an id outside the vocabulary."""
        vocab_size = self.info.vocab_size
        if max(ids, default=0) < vocab_size:
            return
        index, token_id = next((i, t) for i, t in enumerate(ids) if t >= vocab_size)
        raise invalid(
            f"{param}[{index}]",
            f"token id {token_id} is outside the vocabulary of {vocab_size} tokens",
        )

    def text_of(self, ids: Iterable[int], *, skip_special_tokens: bool) -> str:
        """Text of token ids; see `run`."""
        # A model's vocabulary may be padded beyond its tokeniser's; such ids have no text.
        known = [i for i in ids if i < self.tokenizer.vocab_size]
        return self.tokenizer.decode(known, skip_special_tokens=skip_special_tokens)

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`, on a thread for text."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _text_threads() -> ThreadPoolExecutor:
    """Threads with stacks for the deepest grammar that the limits allow."""
    threads = ThreadPoolExecutor(max_workers=_NUM_TEXT_THREADS, thread_name_prefix="text")
    previous = threading.stack_size(grammars.STACK_BYTES)
    try:
        # Threads are made when work comes and none is idle: each of these waits for the others.
        started = threading.Barrier(_NUM_TEXT_THREADS)
        wait([threads.submit(started.wait) for _ in range(_NUM_TEXT_THREADS)])
    finally:
        threading.stack_size(previous)
    return threads
