"""An answer's parts as the events of its stream, and these folded to the whole answer.

    message_start  (content_block_start  content_block_delta…  content_block_stop)…
    message_delta  message_stop

Both forms of an answer are made of the same events, so they cannot differ.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jiter
from octavo.inference.v1 import messages_pb2 as pb

from router_svc.generation_types import FinishReason
from router_svc.parsing.parts import Content, Reasoning, ToolArguments, ToolCallStart

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from octavo.inference.v1 import inference_pb2 as chat

    from router_svc.parsing.parts import Part


class AnswerEvents:
    """The events of one answer. At most one block is open at a time."""

    def __init__(self, *, message_id: str, model: str, request: pb.CreateMessageRequest) -> None:
        self._id = message_id
        self._model = model
        self._max_tokens = request.max_tokens
        self._stop_sequences = frozenset(request.stop_sequences)
        self._num_blocks = 0
        self._open = ""  # kind of the open block
        self._blank = ""  # white space that may begin a text block
        self._uses_tools = False

    def start(self, usage: chat.Usage) -> Iterator[pb.StreamMessageResponse]:
        """The beginning, once the prompt's tokens are known."""
        message = pb.CreateMessageResponse(id=self._id, model=self._model, usage=usage_of(usage))
        yield pb.StreamMessageResponse(message_start=pb.MessageStartEvent(message=message))

    def more(self, parts: Iterable[Part]) -> Iterator[pb.StreamMessageResponse]:
        """What comes next."""
        for part in parts:
            match part:
                case Content(text):
                    yield from self._text(text)
                case Reasoning(text):
                    if self._open != "thinking":
                        thinking = pb.MessageAnswerThinking()
                        yield from self._begin(pb.MessageAnswerBlock(thinking=thinking))
                    thinking_delta = pb.MessageThinkingDelta(thinking=text)
                    yield self._delta(pb.MessageBlockDelta(thinking_delta=thinking_delta))
                case ToolCallStart(_, call_id, name):
                    self._uses_tools = True
                    tool_use = pb.MessageAnswerToolUse(id=call_id, name=name, input="{}")
                    yield from self._begin(pb.MessageAnswerBlock(tool_use=tool_use))
                case ToolArguments(_, text):
                    json_delta = pb.MessageInputJsonDelta(partial_json=text)
                    yield self._delta(pb.MessageBlockDelta(input_json_delta=json_delta))

    def end(
        self, finish_reason: FinishReason, stop_reason: str | int | None, usage: chat.Usage
    ) -> Iterator[pb.StreamMessageResponse]:
        """The end, once all parts are told."""
        if self._blank and not self._num_blocks:
            blank = self._blank
            yield from self._begin(pb.MessageAnswerBlock(text=pb.MessageAnswerText()))
            yield self._text_delta(blank)
        yield from self._close()
        end = pb.MessageEnd()
        if finish_reason is FinishReason.LENGTH:
            end.stop_reason = (
                pb.MESSAGE_STOP_REASON_MAX_TOKENS
                if usage.completion_tokens >= self._max_tokens
                else pb.MESSAGE_STOP_REASON_MODEL_CONTEXT_WINDOW_EXCEEDED
            )
        elif isinstance(stop_reason, str) and stop_reason in self._stop_sequences:
            end.stop_reason = pb.MESSAGE_STOP_REASON_STOP_SEQUENCE
            end.stop_sequence = stop_reason
        elif self._uses_tools:
            end.stop_reason = pb.MESSAGE_STOP_REASON_TOOL_USE
        else:
            end.stop_reason = pb.MESSAGE_STOP_REASON_END_TURN
        used = usage_of(usage)
        thinking_tokens = usage.completion_tokens_details.reasoning_tokens
        used.output_tokens_details.thinking_tokens = thinking_tokens
        delta = pb.MessageDeltaEvent(delta=end, usage=used)
        yield pb.StreamMessageResponse(message_delta=delta)
        yield pb.StreamMessageResponse(message_stop=pb.MessageStopEvent())

    def _text(self, text: str) -> Iterator[pb.StreamMessageResponse]:
        if self._open != "text":
            # Models write blank lines around calls and reasoning; they alone make no block, which
            # Anthropic's API would not take back.
            if not text.strip():
                self._blank += text
                return
            text = self._blank + text
            yield from self._begin(pb.MessageAnswerBlock(text=pb.MessageAnswerText()))
        yield self._text_delta(text)

    def _text_delta(self, text: str) -> pb.StreamMessageResponse:
        return self._delta(pb.MessageBlockDelta(text_delta=pb.MessageTextDelta(text=text)))

    def _begin(self, block: pb.MessageAnswerBlock) -> Iterator[pb.StreamMessageResponse]:
        yield from self._close()
        self._blank = ""
        self._open = block.WhichOneof("kind") or ""
        start = pb.MessageBlockStartEvent(index=self._num_blocks, content_block=block)
        self._num_blocks += 1
        yield pb.StreamMessageResponse(content_block_start=start)

    def _delta(self, delta: pb.MessageBlockDelta) -> pb.StreamMessageResponse:
        event = pb.MessageBlockDeltaEvent(index=self._num_blocks - 1, delta=delta)
        return pb.StreamMessageResponse(content_block_delta=event)

    def _close(self) -> Iterator[pb.StreamMessageResponse]:
        if not self._open:
            return
        if self._open == "thinking":
            signature = pb.MessageSignatureDelta()
            yield self._delta(pb.MessageBlockDelta(signature_delta=signature))
        self._open = ""
        stop = pb.MessageBlockStopEvent(index=self._num_blocks - 1)
        yield pb.StreamMessageResponse(content_block_stop=stop)


class WholeAnswer:
    """Events folded to the answer that they stream."""

    def __init__(self) -> None:
        self._answer = pb.CreateMessageResponse()
        self._fragments: list[str] = []  # of the open block

    def add(self, event: pb.StreamMessageResponse) -> None:
        """Takes the next event in."""
        match event.WhichOneof("kind"):
            case "message_start":
                self._answer.CopyFrom(event.message_start.message)
            case "content_block_start":
                self._answer.content.append(event.content_block_start.content_block)
                self._fragments = []
            case "content_block_delta":
                self._fragments.append(_fragment(event.content_block_delta.delta))
            case "content_block_stop":
                self._complete(self._answer.content[-1], "".join(self._fragments))
            case "message_delta":
                end = event.message_delta.delta
                self._answer.stop_reason = end.stop_reason
                if end.HasField("stop_sequence"):
                    self._answer.stop_sequence = end.stop_sequence
                self._answer.usage.CopyFrom(event.message_delta.usage)

    def message(self) -> pb.CreateMessageResponse:
        """The answer, once all events are in."""
        return self._answer

    @staticmethod
    def _complete(block: pb.MessageAnswerBlock, text: str) -> None:
        match block.WhichOneof("kind"):
            case "text":
                block.text.text = text
            case "thinking":
                block.thinking.thinking = text
            case "tool_use":
                block.tool_use.input = complete_input(text)


def usage_of(usage: chat.Usage) -> pb.MessageUsage:
    """Tokens used so far. Unlike chat's prompt tokens, input tokens are without the cached ones."""
    cached_tokens = usage.prompt_tokens_details.cached_tokens
    return pb.MessageUsage(
        input_tokens=usage.prompt_tokens - cached_tokens,
        output_tokens=usage.completion_tokens,
        cache_read_input_tokens=cached_tokens,
    )


def complete_input(text: str) -> str:
    """The JSON object that a tool's input is; of text cut short, what is certain of it.

    Read as Anthropic's SDK reads the fragments of a stream, which has no other text to go by.
    """
    if not text:
        return "{}"
    try:
        # Complete input stays as the model wrote it: numbers keep all their digits.
        is_object = isinstance(jiter.from_json(text.encode(), allow_inf_nan=False), dict)
        return text if is_object else "{}"
    except ValueError:
        pass
    try:
        value = jiter.from_json(text.encode(), allow_inf_nan=False, partial_mode=True)
    except ValueError:
        return "{}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else "{}"


def _fragment(delta: pb.MessageBlockDelta) -> str:
    match delta.WhichOneof("kind"):
        case "text_delta":
            return delta.text_delta.text
        case "thinking_delta":
            return delta.thinking_delta.thinking
        case "input_json_delta":
            return delta.input_json_delta.partial_json
        case _:
            return ""
