"""One chat request, from prompt to parts of the answer: what every chat-like API is made of.

    CreateChatCompletionRequest ─ prepare ─► prompt, sampling, grammar, tools
                                                   │ generate()       text of each choice
                                                   │ OutputParser     content, reasoning, calls
                              Started, PromptLogprobs, AnswerDelta …

Chat, responses and messages differ only in how they write these down, whole or as they come.
"""

from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from router_svc.api import params
from router_svc.api.chat_prompt import chat_prompt
from router_svc.api.grammar import grammar_of
from router_svc.api.tooling import ToolMode, ToolUse, tool_use_of
from router_svc.errors import invalid
from router_svc.generation import generate
from router_svc.generation_types import (
    ChoiceDelta,
    FinishReason,
    GenerationRequest,
    Logprob,
    PromptLogprobs,
    Started,
)
from router_svc.parsing.parts import Content, Part, Reasoning, ToolCallStart
from router_svc.parsing.plain import PlainParser
from router_svc.served_model import ChatPrompt

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from octavo.inference.v1 import inference_pb2 as pb

    from router_svc.admission.permit import Permit
    from router_svc.call_context import CallContext
    from router_svc.parsing.parts import OutputParser
    from router_svc.served_model import ServedModel
    from router_svc.tracing.call import Call

_BOUNDS: tuple[Literal["max_completion_tokens", "max_tokens"], ...] = (
    "max_completion_tokens",
    "max_tokens",
)


class AnswerDelta(NamedTuple):
    """What is new in one choice.

    `token_ids` and `logprobs` are of the tokens that the parts complete, markup of calls included;
    over a choice they are all its tokens. `finish_reason` is set in a choice's last delta only.
    """

    choice: int
    parts: tuple[Part, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[Logprob, ...]
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None


AnswerEvent: TypeAlias = Started | PromptLogprobs | AnswerDelta


@dataclass(slots=True)
class Conversation:
    """A chat request that is ready to run; `usage` adds up while it does."""

    request: pb.CreateChatCompletionRequest
    model: ServedModel
    generation: GenerationRequest
    tools: ToolUse
    reasoning_opened: bool  # whether the prompt ends within the model's reasoning
    permit: Permit
    call: Call
    created: int = field(default_factory=lambda: int(time.time()))
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0

    @classmethod
    async def prepare(
        cls, request: pb.CreateChatCompletionRequest, model: ServedModel, context: CallContext
    ) -> Conversation:
        """Checks a validated request and renders its prompt. Raises ApiError, naming the field."""
        if request.HasField("top_logprobs") and not request.logprobs:
            raise invalid("top_logprobs", "top_logprobs needs logprobs to be true")
        generation = params.generation_of(
            request,
            model,
            context,
            max_tokens=_max_tokens(request),
            logprobs=request.top_logprobs if request.logprobs else None,
            prompt_logprobs=request.prompt_logprobs
            if request.HasField("prompt_logprobs")
            else None,
        )
        generation = await params.with_bad_words(generation, request, model)
        formats = model.formats
        tools = await model.run(lambda: tool_use_of(request))
        if tools.mode is not ToolMode.NONE and formats.tools is None:
            raise invalid("tools", "calls of tools are switched off here (--tool-call-parser none)")
        with context.call.phase("tokenise"):
            prompt = await prompt_of(request, model, tools)
        reasoning = formats.reasoning
        opened = reasoning is not None and reasoning.opened_by(prompt.text, _continued(request))
        markers = formats.tools.markers if formats.tools and tools.mode is not ToolMode.NONE else ()
        markers += reasoning.markers if reasoning else ()
        special = model.tokenizer.special_ids(markers)
        constraint = await model.run(
            lambda: grammar_of(request, tools, formats, special, reasoning_opened=opened)
        )
        generation = replace(
            generation, shown_special_ids=frozenset(special.values()), constraint=constraint
        )
        generation = params.with_prompt(generation, prompt.token_ids, model.info, "messages")
        (generation,) = params.admitted([generation], context, _bound_of(request))
        return cls(request, model, generation, tools, opened, context.permit, context.call)

    @property
    def request_id(self) -> str:
        """Name of the request; an answer's id is made of it."""
        return self.generation.request_id

    @property
    def n(self) -> int:
        """Number of choices."""
        return self.generation.n

    @property
    def usage(self) -> pb.Usage:
        """Tokens used so far."""
        usage = params.usage_of(
            len(self.generation.prompt_token_ids), self.completion_tokens, self.cached_tokens
        )
        usage.completion_tokens_details.reasoning_tokens = self.reasoning_tokens
        return usage

    async def deltas(self) -> AsyncGenerator[AnswerEvent, None]:
        """Runs the request. Closing the generator aborts it."""
        choices = [_Choice(self, index) for index in range(self.n)]
        used = 0
        try:
            async with aclosing(
                generate(self.generation, self.model.engine, self.model.tokenizer)
            ) as deltas:
                async for delta in deltas:
                    match delta:
                        case ChoiceDelta():
                            self.completion_tokens += len(delta.token_ids)
                            if (answer := choices[delta.choice].add(delta)) is not None:
                                if answer.finish_reason is not None:
                                    self.call.finish_reasons.append(answer.finish_reason.value)
                                yield answer
                        case Started(cached_tokens):
                            self.cached_tokens = cached_tokens
                            used = len(self.generation.prompt_token_ids)
                            yield delta
                        case PromptLogprobs():
                            yield delta
        finally:
            self.permit.settle(used + self.completion_tokens)
            self.call.input_tokens = len(self.generation.prompt_token_ids)
            self.call.output_tokens = self.completion_tokens
            self.call.cached_tokens = self.cached_tokens

    def new_parser(self, choice: int) -> OutputParser | None:
        """What reads a choice's text; None where all of it is content."""
        formats = self.model.formats
        parser: OutputParser | None = None
        if formats.tools is not None and self.tools.mode is not ToolMode.NONE:
            parser = formats.tools.new_parser(
                self.tools.callable,
                parameters=self.tools.parameters,
                parallel=self.tools.parallel,
                new_id=formats.tools.new_ids(self.request_id, choice),
            )
        if formats.reasoning is not None:
            parser = formats.reasoning.new_parser(
                parser or PlainParser(), opened=self.reasoning_opened
            )
        return parser


class _Choice:
    """One choice's text on its way through its parser.

    Tokens wait for the next part, as a parser may hold text back.
    """

    def __init__(self, conversation: Conversation, index: int) -> None:
        self._conversation = conversation
        self._index = index
        self._parser = conversation.new_parser(index)
        self._shows_reasoning = (
            conversation.request.include_reasoning
            or not conversation.request.HasField("include_reasoning")
        )
        self._token_ids: tuple[int, ...] = ()
        self._logprobs: tuple[Logprob, ...] = ()
        self._reasoning = ""
        self._calls = False

    def add(self, delta: ChoiceDelta) -> AnswerDelta | None:
        """The parts that a delta completes; None while there is nothing to tell."""
        ended = delta.finish_reason is not None
        parts = self._parse(delta.text, ended)
        self._token_ids += delta.token_ids
        self._logprobs += delta.logprobs
        if not parts and not ended:
            return None
        token_ids, self._token_ids = self._token_ids, ()
        logprobs, self._logprobs = self._logprobs, ()
        return AnswerDelta(
            self._index,
            parts,
            token_ids,
            logprobs,
            self._finish_reason(delta.finish_reason) if ended else None,
            delta.stop_reason,
        )

    def _parse(self, text: str, ended: bool) -> tuple[Part, ...]:
        if self._parser is None:
            return (Content(text),) if text else ()
        parts = self._parser.feed(text) if text else []
        if ended:
            parts += self._parser.finish()
        for part in parts:
            match part:
                case ToolCallStart():
                    self._calls = True
                case Reasoning(more):
                    self._reasoning += more
        if ended and self._reasoning:
            ids = self._conversation.model.tokenizer.encode(
                self._reasoning, add_special_tokens=False, parse_special=True
            )
            self._conversation.reasoning_tokens += len(ids)
        if not self._shows_reasoning:
            parts = [part for part in parts if not isinstance(part, Reasoning)]
        return tuple(parts)

    def _finish_reason(self, reason: FinishReason | None) -> FinishReason | None:
        # Of a function that the client named it knows that it is called: OpenAI says "stop" then.
        named = self._conversation.tools.mode is ToolMode.NAMED
        if reason is FinishReason.STOP and self._calls and not named:
            return FinishReason.TOOL_CALLS
        return reason


def _continued(request: pb.CreateChatCompletionRequest) -> str:
    """The text of the assistant's turn that the answer goes on with, if it does."""
    content = request.messages[-1].content if request.continue_final_message else None
    if content is None:
        return ""
    return content.text or "".join(part.text.text for part in content.parts.items)


async def prompt_of(
    request: pb.CreateChatCompletionRequest, model: ServedModel, tools: ToolUse
) -> ChatPrompt:
    """The rendered conversation, of which truncate_prompt_tokens may keep the last tokens only."""
    kept = params.tokens_kept(request, model.info, room=_max_tokens(request) or 1)
    prompt = await chat_prompt(request, model, tools)
    if kept is None or kept >= len(prompt.token_ids):
        return prompt
    ids = prompt.token_ids[-kept:]
    return ChatPrompt(ids, await model.decode(ids, "messages"))


def _bound_of(request: pb.CreateChatCompletionRequest) -> str:
    """The field that bounds the answer, or ""."""
    return next((name for name in _BOUNDS if request.HasField(name)), "")


def _max_tokens(request: pb.CreateChatCompletionRequest) -> int | None:
    given = {getattr(request, name) for name in _BOUNDS if request.HasField(name)}
    if len(given) == 2:
        raise invalid("max_tokens", "max_tokens and max_completion_tokens contradict each other")
    return next(iter(given), None)
