"""A model as the router serves it: its text side here, its token side on an engine."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
from octavo.inference.v1 import inference_pb2 as pb

from router_svc.errors import ApiError, ErrorKind, invalid
from router_svc.text.chat_template import ChatTemplate, TemplateError, encode_chat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from router_svc.engine_channel import EngineChannel, EngineInfo
    from router_svc.text.tokenizer import Tokenizer

T = TypeVar("T")

_ROLES = {
    pb.ROLE_SYSTEM: "system",
    pb.ROLE_DEVELOPER: "developer",
    pb.ROLE_USER: "user",
    pb.ROLE_ASSISTANT: "assistant",
    pb.ROLE_TOOL: "tool",
}


@dataclass(frozen=True, slots=True)
class CompletionPrompt:
    """One prompt: its ids, and for an echo its text, which may leave control tokens out."""

    token_ids: list[int]
    text: str
    skips_special: bool


class ServedModel:
    """Turns text into prompts for `engine`, on its own threads: a long text stalls no stream."""

    def __init__(
        self, engine: EngineChannel, tokenizer: Tokenizer, template: ChatTemplate | None
    ) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self._template = template
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="text")

    @property
    def info(self) -> EngineInfo:
        """What the engine says of the model. Raises ApiError before it was ever reached."""
        if self.engine.info is None:
            raise ApiError(ErrorKind.UNAVAILABLE, "no engine is ready")
        return self.engine.info

    @property
    def name(self) -> str:
        """The name that answers carry."""
        return self.info.served_names[0]

    async def chat_prompt(
        self, request: pb.CreateChatCompletionRequest | pb.TokenizeRequest
    ) -> list[int]:
        """Token ids of a conversation. Raises ApiError, naming the field, for a bad one."""
        if self._template is None:
            raise invalid(
                "messages",
                "this model has no chat template; use /v1/completions, or start the server with"
                " --chat-template",
            )
        messages = [_message(i, message) for i, message in enumerate(request.messages)]
        variables = _template_variables(request)
        continue_final = request.continue_final_message
        add_generation_prompt = (
            request.add_generation_prompt
            if request.HasField("add_generation_prompt")
            else not continue_final
        )
        if continue_final and add_generation_prompt:
            raise invalid(
                "continue_final_message",
                "continue_final_message and add_generation_prompt exclude each other",
            )
        template = self._template

        def render() -> list[int]:
            rendered = template.render(
                messages,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final,
                variables=variables,
            )
            return encode_chat(
                self.tokenizer, rendered, add_special_tokens=request.add_special_tokens
            )

        try:
            return await self._run(render)
        except TemplateError as error:
            raise invalid(error.param, str(error)) from error

    async def completion_prompts(
        self, request: pb.CreateCompletionRequest
    ) -> list[CompletionPrompt]:
        """Every prompt as token ids, and as text if it is echoed.

        Raises ApiError for ids outside the vocabulary.
        """
        special = request.add_special_tokens or not request.HasField("add_special_tokens")
        match request.prompt.WhichOneof("kind"):
            case "text":
                texts = [request.prompt.text]
            case "texts":
                texts = list(request.prompt.texts.items)
            case "token_ids":
                return [await self._ids_prompt(request, request.prompt.token_ids, "prompt")]
            case _:
                lists = request.prompt.token_ids_list.items
                return [
                    await self._ids_prompt(request, ids, f"prompt[{i}]")
                    for i, ids in enumerate(lists)
                ]
        return [
            CompletionPrompt(
                await self.encode(text, add_special_tokens=special), text, skips_special=False
            )
            for text in texts
        ]

    async def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids of a raw prompt, in which control tokens may be written out."""
        return await self._run(
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
            return self._text(ids, skip_special_tokens=False)

        return await self._run(text)

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

    async def _ids_prompt(
        self, request: pb.CreateCompletionRequest, ids: pb.TokenIds, param: str
    ) -> CompletionPrompt:
        skip = request.skip_special_tokens or not request.HasField("skip_special_tokens")

        def prompt() -> CompletionPrompt:
            self.check_token_ids(ids.items, param)
            text = self._text(ids.items, skip_special_tokens=skip) if request.echo else ""
            return CompletionPrompt(list(ids.items), text, skips_special=skip)

        return await self._run(prompt)

    def _text(self, ids: Iterable[int], *, skip_special_tokens: bool) -> str:
        # A model's vocabulary may be padded beyond its tokeniser's; such ids have no text.
        known = [i for i in ids if i < self.tokenizer.vocab_size]
        return self.tokenizer.decode(known, skip_special_tokens=skip_special_tokens)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _message(index: int, message: pb.ChatMessage) -> dict[str, Any]:
    where = f"messages[{index}]"
    if message.role == pb.ROLE_UNSPECIFIED:
        raise invalid(f"{where}.role", "role is required")
    result: dict[str, Any] = {"role": _ROLES[message.role], "content": _content(message)}
    if result["content"] is None and message.role != pb.ROLE_ASSISTANT:
        raise invalid(f"{where}.content", f"content is required for the role {result['role']}")
    if message.HasField("name"):
        result["name"] = message.name
    if message.tool_calls:
        result["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": call.function.arguments},
            }
            for call in message.tool_calls
        ]
    if message.HasField("tool_call_id"):
        result["tool_call_id"] = message.tool_call_id
    if message.HasField("reasoning_content"):
        result["reasoning_content"] = message.reasoning_content
    return result


def _content(message: pb.ChatMessage) -> str | None:
    match message.content.WhichOneof("kind"):
        case "text":
            return message.content.text
        case "parts":
            return "".join(part.text.text for part in message.content.parts.items)
        case _:
            return message.refusal if message.HasField("refusal") else None


def _template_variables(
    request: pb.CreateChatCompletionRequest | pb.TokenizeRequest,
) -> dict[str, Any]:
    if not request.HasField("chat_template_kwargs"):
        return {}
    try:
        variables = orjson.loads(request.chat_template_kwargs)
    except orjson.JSONDecodeError as error:
        raise invalid("chat_template_kwargs", "not valid JSON") from error
    if not isinstance(variables, dict):
        raise invalid("chat_template_kwargs", "must be an object")
    return variables
