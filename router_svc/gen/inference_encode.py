# Generated from octavo/inference/v1/inference.proto by router_svc/codegen; do not edit.
"""Answer messages of octavo/inference/v1/inference.proto to JSON values."""

from collections.abc import Mapping
from typing import Any, Final

from octavo.inference.v1 import inference_pb2 as pb
from router_svc.http import encoding as write

_ROLE: Final[Mapping[int, str | None]] = {
    pb.ROLE_UNSPECIFIED: None,
    pb.ROLE_SYSTEM: "system",
    pb.ROLE_DEVELOPER: "developer",
    pb.ROLE_USER: "user",
    pb.ROLE_ASSISTANT: "assistant",
    pb.ROLE_TOOL: "tool",
}
_FINISH_REASON: Final[Mapping[int, str | None]] = {
    pb.FINISH_REASON_UNSPECIFIED: None,
    pb.FINISH_REASON_STOP: "stop",
    pb.FINISH_REASON_LENGTH: "length",
    pb.FINISH_REASON_TOOL_CALLS: "tool_calls",
}


def encode_text_format(message: pb.TextFormat) -> dict[str, Any]:
    """Any text."""
    return {}


def encode_json_object_format(message: pb.JsonObjectFormat) -> dict[str, Any]:
    """Any JSON object."""
    return {}


def encode_tool_call(message: pb.ToolCall) -> dict[str, Any]:
    """A call of a function, as the model asked for it."""
    body: dict[str, Any] = {"id": message.id, "type": "function"}
    if message.HasField("function"):
        body["function"] = encode_function_call(message.function)
    return body


def encode_function_call(message: pb.FunctionCall) -> dict[str, Any]:
    """A function and its arguments."""
    return {"name": message.name, "arguments": message.arguments}


def encode_create_chat_completion_response(
    message: pb.CreateChatCompletionResponse,
) -> dict[str, Any]:
    """A whole answer to a conversation."""
    body: dict[str, Any] = {
        "id": message.id,
        "object": "chat.completion",
        "created": message.created,
        "model": message.model,
        "choices": [encode_chat_choice(element) for element in message.choices],
    }
    if message.HasField("usage"):
        body["usage"] = encode_usage(message.usage)
    if message.prompt_logprobs:
        body["prompt_logprobs"] = [
            encode_prompt_logprob(element) for element in message.prompt_logprobs
        ]
    if message.prompt_token_ids:
        body["prompt_token_ids"] = list(message.prompt_token_ids)
    return body


def encode_chat_choice(message: pb.ChatChoice) -> dict[str, Any]:
    """One answer."""
    body: dict[str, Any] = {"index": message.index}
    if message.HasField("message"):
        body["message"] = encode_assistant_message(message.message)
    body["logprobs"] = (
        encode_chat_logprobs(message.logprobs) if message.HasField("logprobs") else None
    )
    body["finish_reason"] = _FINISH_REASON.get(message.finish_reason)
    body["stop_reason"] = (
        encode_stop_reason(message.stop_reason) if message.HasField("stop_reason") else None
    )
    if message.token_ids:
        body["token_ids"] = list(message.token_ids)
    return body


def encode_assistant_message(message: pb.AssistantMessage) -> dict[str, Any]:
    """The assistant's turn."""
    body: dict[str, Any] = {
        "role": _ROLE.get(message.role),
        "content": message.content if message.HasField("content") else None,
        "refusal": message.refusal if message.HasField("refusal") else None,
    }
    if message.HasField("reasoning_content"):
        body["reasoning_content"] = message.reasoning_content
    if message.tool_calls:
        body["tool_calls"] = [encode_tool_call(element) for element in message.tool_calls]
    return body


def encode_stop_reason(message: pb.StopReason) -> Any:
    """What ended a choice: a stop string or a stop token id."""
    kind = message.WhichOneof("kind")
    if kind == "text":
        return message.text
    if kind == "token_id":
        return message.token_id
    return None


def encode_chat_logprobs(message: pb.ChatLogprobs) -> dict[str, Any]:
    """Log-probabilities of an answer, one entry per token."""
    return {"content": [encode_token_logprob(element) for element in message.content]}


def encode_token_logprob(message: pb.TokenLogprob) -> dict[str, Any]:
    """Log-probability of one sampled token."""
    return {
        "token": message.token,
        "logprob": write.number(message.logprob, "logprob"),
        "bytes": list(message.bytes),
        "top_logprobs": [encode_top_logprob(element) for element in message.top_logprobs],
    }


def encode_top_logprob(message: pb.TopLogprob) -> dict[str, Any]:
    """Log-probability of one candidate token."""
    return {
        "token": message.token,
        "logprob": write.number(message.logprob, "logprob"),
        "bytes": list(message.bytes),
    }


def encode_prompt_logprob(message: pb.PromptLogprob) -> dict[str, Any]:
    """Log-probabilities at one position of the prompt."""
    return {
        "token": encode_prompt_token_logprob(message.token) if message.HasField("token") else None,
        "top": [encode_prompt_token_logprob(element) for element in message.top],
    }


def encode_prompt_token_logprob(message: pb.PromptTokenLogprob) -> dict[str, Any]:
    """Log-probability of one token at a prompt position."""
    return {
        "token_id": message.token_id,
        "token": message.token,
        "logprob": write.number(message.logprob, "logprob"),
        "rank": message.rank,
    }


def encode_stream_chat_completion_response(
    message: pb.StreamChatCompletionResponse,
) -> dict[str, Any]:
    """Part of an answer to a conversation."""
    body: dict[str, Any] = {
        "id": message.id,
        "object": "chat.completion.chunk",
        "created": message.created,
        "model": message.model,
        "choices": [encode_chat_chunk_choice(element) for element in message.choices],
    }
    if message.HasField("usage"):
        body["usage"] = encode_usage(message.usage)
    if message.prompt_logprobs:
        body["prompt_logprobs"] = [
            encode_prompt_logprob(element) for element in message.prompt_logprobs
        ]
    if message.prompt_token_ids:
        body["prompt_token_ids"] = list(message.prompt_token_ids)
    return body


def encode_chat_chunk_choice(message: pb.ChatChunkChoice) -> dict[str, Any]:
    """What is new in one answer."""
    body: dict[str, Any] = {"index": message.index}
    if message.HasField("delta"):
        body["delta"] = encode_chat_delta(message.delta)
    body["logprobs"] = (
        encode_chat_logprobs(message.logprobs) if message.HasField("logprobs") else None
    )
    body["finish_reason"] = (
        _FINISH_REASON.get(message.finish_reason) if message.HasField("finish_reason") else None
    )
    if message.HasField("stop_reason"):
        body["stop_reason"] = encode_stop_reason(message.stop_reason)
    if message.token_ids:
        body["token_ids"] = list(message.token_ids)
    return body


def encode_chat_delta(message: pb.ChatDelta) -> dict[str, Any]:
    """New part of the assistant's turn."""
    body: dict[str, Any] = {}
    if message.HasField("role"):
        body["role"] = _ROLE.get(message.role)
    if message.HasField("content"):
        body["content"] = message.content
    if message.HasField("reasoning_content"):
        body["reasoning_content"] = message.reasoning_content
    if message.tool_calls:
        body["tool_calls"] = [encode_tool_call_delta(element) for element in message.tool_calls]
    return body


def encode_tool_call_delta(message: pb.ToolCallDelta) -> dict[str, Any]:
    """A call that begins, with id and name, or goes on, with more of its arguments."""
    body: dict[str, Any] = {"index": message.index}
    if message.HasField("id"):
        body["id"] = message.id
    if message.HasField("type"):
        body["type"] = message.type
    if message.HasField("function"):
        body["function"] = encode_function_call_delta(message.function)
    return body


def encode_function_call_delta(message: pb.FunctionCallDelta) -> dict[str, Any]:
    """What is new in a call."""
    body: dict[str, Any] = {}
    if message.HasField("name"):
        body["name"] = message.name
    if message.HasField("arguments"):
        body["arguments"] = message.arguments
    return body


def encode_usage(message: pb.Usage) -> dict[str, Any]:
    """Tokens used by a request."""
    body: dict[str, Any] = {
        "prompt_tokens": message.prompt_tokens,
        "completion_tokens": message.completion_tokens,
        "total_tokens": message.total_tokens,
    }
    if message.HasField("prompt_tokens_details"):
        body["prompt_tokens_details"] = encode_prompt_tokens_details(message.prompt_tokens_details)
    if message.HasField("completion_tokens_details"):
        body["completion_tokens_details"] = encode_completion_tokens_details(
            message.completion_tokens_details
        )
    return body


def encode_completion_tokens_details(message: pb.CompletionTokensDetails) -> dict[str, Any]:
    """What the sampled tokens are."""
    return {"reasoning_tokens": message.reasoning_tokens}


def encode_prompt_tokens_details(message: pb.PromptTokensDetails) -> dict[str, Any]:
    """Where a prompt's tokens came from."""
    return {"cached_tokens": message.cached_tokens}


def encode_create_completion_response(message: pb.CreateCompletionResponse) -> dict[str, Any]:
    """Continuations of one or several prompts, whole or in part."""
    body: dict[str, Any] = {
        "id": message.id,
        "object": "text_completion",
        "created": message.created,
        "model": message.model,
        "choices": [encode_completion_choice(element) for element in message.choices],
    }
    if message.HasField("usage"):
        body["usage"] = encode_usage(message.usage)
    return body


def encode_completion_choice(message: pb.CompletionChoice) -> dict[str, Any]:
    """One continuation, whole or in part."""
    body: dict[str, Any] = {
        "index": message.index,
        "text": message.text,
        "logprobs": encode_completion_logprobs(message.logprobs)
        if message.HasField("logprobs")
        else None,
        "finish_reason": _FINISH_REASON.get(message.finish_reason)
        if message.HasField("finish_reason")
        else None,
        "stop_reason": encode_stop_reason(message.stop_reason)
        if message.HasField("stop_reason")
        else None,
    }
    if message.prompt_logprobs:
        body["prompt_logprobs"] = [
            encode_prompt_logprob(element) for element in message.prompt_logprobs
        ]
    if message.prompt_token_ids:
        body["prompt_token_ids"] = list(message.prompt_token_ids)
    if message.token_ids:
        body["token_ids"] = list(message.token_ids)
    return body


def encode_completion_logprobs(message: pb.CompletionLogprobs) -> dict[str, Any]:
    """Log-probabilities in the shape of OpenAI's completions."""
    return {
        "tokens": list(message.tokens),
        "token_logprobs": [encode_optional_double(element) for element in message.token_logprobs],
        "top_logprobs": [encode_top_logprob_map(element) for element in message.top_logprobs],
        "text_offset": list(message.text_offset),
    }


def encode_optional_double(message: pb.OptionalDouble) -> Any:
    """A number or null."""
    kind = message.WhichOneof("kind")
    if kind == "number":
        return write.number(message.number, "number")
    return None


def encode_top_logprob_map(message: pb.TopLogprobMap) -> Any:
    """Token text to log-probability, or null."""
    kind = message.WhichOneof("kind")
    if kind == "entries":
        return encode_logprobs_by_token(message.entries)
    return None


def encode_logprobs_by_token(message: pb.LogprobsByToken) -> Any:
    """Token text to log-probability."""
    return {key: write.number(element, "items") for key, element in message.items.items()}


def encode_render_chat_completion_response(
    message: pb.RenderChatCompletionResponse,
) -> dict[str, Any]:
    """What a conversation becomes."""
    return {
        "prompt": message.prompt,
        "prompt_token_ids": list(message.prompt_token_ids),
        "count": message.count,
        "max_model_len": message.max_model_len,
    }


def encode_list_models_response(message: pb.ListModelsResponse) -> dict[str, Any]:
    """The models that are served."""
    return {"object": "list", "data": [encode_model(element) for element in message.data]}


def encode_model(message: pb.Model) -> dict[str, Any]:
    """A served model."""
    body: dict[str, Any] = {
        "id": message.id,
        "object": "model",
        "created": message.created,
        "owned_by": "octavo",
        "root": message.root,
        "max_model_len": message.max_model_len,
    }
    if message.HasField("parent"):
        body["parent"] = message.parent
    return body


def encode_tokenize_response(message: pb.TokenizeResponse) -> dict[str, Any]:
    """The tokens of a text."""
    body: dict[str, Any] = {
        "count": message.count,
        "max_model_len": message.max_model_len,
        "tokens": list(message.tokens),
    }
    if message.token_strs:
        body["token_strs"] = list(message.token_strs)
    return body


def encode_detokenize_response(message: pb.DetokenizeResponse) -> dict[str, Any]:
    """The text of tokens."""
    return {"prompt": message.prompt}


def encode_explain_route_response(message: pb.ExplainRouteResponse) -> dict[str, Any]:
    """Which engine would answer."""
    return {
        "policy": message.policy,
        "prompt_tokens": message.prompt_tokens,
        "candidates": [encode_route_candidate(element) for element in message.candidates],
    }


def encode_route_candidate(message: pb.RouteCandidate) -> dict[str, Any]:
    """An engine, and what is known of it."""
    return {
        "engine": message.engine,
        "may_serve": message.may_serve,
        "circuit": message.circuit,
        "cost": write.number(message.cost, "cost") if message.HasField("cost") else None,
        "reason": message.reason,
        "cached_tokens": message.cached_tokens,
        "queued_tokens": message.queued_tokens,
        "running": message.running,
        "kv_usage": write.number(message.kv_usage, "kv_usage"),
    }
