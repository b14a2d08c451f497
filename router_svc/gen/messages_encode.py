# Generated from octavo/inference/v1/messages.proto by router_svc/codegen; do not edit.
"""Answer messages of octavo/inference/v1/messages.proto to JSON values."""

from collections.abc import Mapping
from typing import Any, Final

from octavo.inference.v1 import messages_pb2 as pb
from router_svc.http import encoding as write

_MESSAGE_STOP_REASON: Final[Mapping[int, str | None]] = {
    pb.MESSAGE_STOP_REASON_UNSPECIFIED: None,
    pb.MESSAGE_STOP_REASON_END_TURN: "end_turn",
    pb.MESSAGE_STOP_REASON_MAX_TOKENS: "max_tokens",
    pb.MESSAGE_STOP_REASON_STOP_SEQUENCE: "stop_sequence",
    pb.MESSAGE_STOP_REASON_TOOL_USE: "tool_use",
    pb.MESSAGE_STOP_REASON_MODEL_CONTEXT_WINDOW_EXCEEDED: "model_context_window_exceeded",
}


def encode_create_message_response(message: pb.CreateMessageResponse) -> dict[str, Any]:
    """The whole answer."""
    body: dict[str, Any] = {
        "id": message.id,
        "type": "message",
        "role": "assistant",
        "content": [encode_message_answer_block(element) for element in message.content],
        "model": message.model,
        "stop_reason": _MESSAGE_STOP_REASON.get(message.stop_reason)
        if message.HasField("stop_reason")
        else None,
        "stop_sequence": message.stop_sequence if message.HasField("stop_sequence") else None,
    }
    if message.HasField("usage"):
        body["usage"] = encode_message_usage(message.usage)
    return body


def encode_message_answer_block(message: pb.MessageAnswerBlock) -> Any:
    """A block of an answer."""
    kind = message.WhichOneof("kind")
    if kind == "text":
        return {"type": "text", **encode_message_answer_text(message.text)}
    if kind == "thinking":
        return {"type": "thinking", **encode_message_answer_thinking(message.thinking)}
    if kind == "tool_use":
        return {"type": "tool_use", **encode_message_answer_tool_use(message.tool_use)}
    return None


def encode_message_answer_text(message: pb.MessageAnswerText) -> dict[str, Any]:
    """Text for the user."""
    return {"text": message.text}


def encode_message_answer_thinking(message: pb.MessageAnswerThinking) -> dict[str, Any]:
    """The model's reasoning."""
    return {"thinking": message.thinking, "signature": message.signature}


def encode_message_answer_tool_use(message: pb.MessageAnswerToolUse) -> dict[str, Any]:
    """A tool that the model uses."""
    return {"id": message.id, "name": message.name, "input": write.json_value(message.input)}


def encode_message_usage(message: pb.MessageUsage) -> dict[str, Any]:
    """Tokens used by a request. The prompt's are the sum of the three kinds of input tokens."""
    body: dict[str, Any] = {
        "input_tokens": message.input_tokens,
        "output_tokens": message.output_tokens,
        "cache_read_input_tokens": message.cache_read_input_tokens,
        "cache_creation_input_tokens": message.cache_creation_input_tokens,
    }
    if message.HasField("output_tokens_details"):
        body["output_tokens_details"] = encode_message_output_tokens_details(
            message.output_tokens_details
        )
    return body


def encode_message_output_tokens_details(message: pb.MessageOutputTokensDetails) -> dict[str, Any]:
    """What the sampled tokens are."""
    return {"thinking_tokens": message.thinking_tokens}


def encode_stream_message_response(message: pb.StreamMessageResponse) -> Any:
    """An event of an answer's stream: the start; then each block's start, its parts and its stop; then the end."""
    kind = message.WhichOneof("kind")
    if kind == "message_start":
        return {"type": "message_start", **encode_message_start_event(message.message_start)}
    if kind == "content_block_start":
        return {
            "type": "content_block_start",
            **encode_message_block_start_event(message.content_block_start),
        }
    if kind == "content_block_delta":
        return {
            "type": "content_block_delta",
            **encode_message_block_delta_event(message.content_block_delta),
        }
    if kind == "content_block_stop":
        return {
            "type": "content_block_stop",
            **encode_message_block_stop_event(message.content_block_stop),
        }
    if kind == "message_delta":
        return {"type": "message_delta", **encode_message_delta_event(message.message_delta)}
    if kind == "message_stop":
        return {"type": "message_stop", **encode_message_stop_event(message.message_stop)}
    return None


def encode_message_start_event(message: pb.MessageStartEvent) -> dict[str, Any]:
    """The answer begins."""
    body: dict[str, Any] = {}
    if message.HasField("message"):
        body["message"] = encode_create_message_response(message.message)
    return body


def encode_message_block_start_event(message: pb.MessageBlockStartEvent) -> dict[str, Any]:
    """A block begins."""
    body: dict[str, Any] = {"index": message.index}
    if message.HasField("content_block"):
        body["content_block"] = encode_message_answer_block(message.content_block)
    return body


def encode_message_block_delta_event(message: pb.MessageBlockDeltaEvent) -> dict[str, Any]:
    """A block goes on."""
    body: dict[str, Any] = {"index": message.index}
    if message.HasField("delta"):
        body["delta"] = encode_message_block_delta(message.delta)
    return body


def encode_message_block_stop_event(message: pb.MessageBlockStopEvent) -> dict[str, Any]:
    """A block is complete."""
    return {"index": message.index}


def encode_message_block_delta(message: pb.MessageBlockDelta) -> Any:
    """What is new in a block."""
    kind = message.WhichOneof("kind")
    if kind == "text_delta":
        return {"type": "text_delta", **encode_message_text_delta(message.text_delta)}
    if kind == "thinking_delta":
        return {"type": "thinking_delta", **encode_message_thinking_delta(message.thinking_delta)}
    if kind == "signature_delta":
        return {
            "type": "signature_delta",
            **encode_message_signature_delta(message.signature_delta),
        }
    if kind == "input_json_delta":
        return {
            "type": "input_json_delta",
            **encode_message_input_json_delta(message.input_json_delta),
        }
    return None


def encode_message_text_delta(message: pb.MessageTextDelta) -> dict[str, Any]:
    """More text."""
    return {"text": message.text}


def encode_message_thinking_delta(message: pb.MessageThinkingDelta) -> dict[str, Any]:
    """More reasoning."""
    return {"thinking": message.thinking}


def encode_message_signature_delta(message: pb.MessageSignatureDelta) -> dict[str, Any]:
    """The end of reasoning."""
    return {"signature": message.signature}


def encode_message_input_json_delta(message: pb.MessageInputJsonDelta) -> dict[str, Any]:
    """More of a tool's input."""
    return {"partial_json": message.partial_json}


def encode_message_delta_event(message: pb.MessageDeltaEvent) -> dict[str, Any]:
    """Why the answer ended, and what it used."""
    body: dict[str, Any] = {}
    if message.HasField("delta"):
        body["delta"] = encode_message_end(message.delta)
    if message.HasField("usage"):
        body["usage"] = encode_message_usage(message.usage)
    return body


def encode_message_end(message: pb.MessageEnd) -> dict[str, Any]:
    """Why an answer ended."""
    return {
        "stop_reason": _MESSAGE_STOP_REASON.get(message.stop_reason),
        "stop_sequence": message.stop_sequence if message.HasField("stop_sequence") else None,
    }


def encode_message_stop_event(message: pb.MessageStopEvent) -> dict[str, Any]:
    """The answer is complete."""
    return {}


def encode_count_message_tokens_response(message: pb.CountMessageTokensResponse) -> dict[str, Any]:
    """The tokens of a conversation's prompt."""
    return {"input_tokens": message.input_tokens}
