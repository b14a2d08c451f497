# Generated from octavo/inference/v1/responses.proto by router_svc/codegen; do not edit.
"""Answer messages of octavo/inference/v1/responses.proto to JSON values."""

from collections.abc import Mapping
from typing import Any, Final

from octavo.inference.v1 import responses_pb2 as pb
from octavo.inference.v1 import inference_pb2
from router_svc.gen import inference_encode
from router_svc.http import encoding as write

_TOOL_CHOICE_MODE: Final[Mapping[int, str | None]] = {
    inference_pb2.TOOL_CHOICE_MODE_UNSPECIFIED: None,
    inference_pb2.TOOL_CHOICE_MODE_NONE: "none",
    inference_pb2.TOOL_CHOICE_MODE_AUTO: "auto",
    inference_pb2.TOOL_CHOICE_MODE_REQUIRED: "required",
}
_REASONING_EFFORT: Final[Mapping[int, str | None]] = {
    inference_pb2.REASONING_EFFORT_UNSPECIFIED: None,
    inference_pb2.REASONING_EFFORT_NONE: "none",
    inference_pb2.REASONING_EFFORT_MINIMAL: "minimal",
    inference_pb2.REASONING_EFFORT_LOW: "low",
    inference_pb2.REASONING_EFFORT_MEDIUM: "medium",
    inference_pb2.REASONING_EFFORT_HIGH: "high",
    inference_pb2.REASONING_EFFORT_XHIGH: "xhigh",
    inference_pb2.REASONING_EFFORT_MAX: "max",
}
_RESPONSE_ITEM_STATUS: Final[Mapping[int, str | None]] = {
    pb.RESPONSE_ITEM_STATUS_UNSPECIFIED: None,
    pb.RESPONSE_ITEM_STATUS_IN_PROGRESS: "in_progress",
    pb.RESPONSE_ITEM_STATUS_COMPLETED: "completed",
    pb.RESPONSE_ITEM_STATUS_INCOMPLETE: "incomplete",
}
_RESPONSE_VERBOSITY: Final[Mapping[int, str | None]] = {
    pb.RESPONSE_VERBOSITY_UNSPECIFIED: None,
    pb.RESPONSE_VERBOSITY_LOW: "low",
    pb.RESPONSE_VERBOSITY_MEDIUM: "medium",
    pb.RESPONSE_VERBOSITY_HIGH: "high",
}
_RESPONSE_SUMMARY: Final[Mapping[int, str | None]] = {
    pb.RESPONSE_SUMMARY_UNSPECIFIED: None,
    pb.RESPONSE_SUMMARY_AUTO: "auto",
    pb.RESPONSE_SUMMARY_CONCISE: "concise",
    pb.RESPONSE_SUMMARY_DETAILED: "detailed",
}
_RESPONSE_STATUS: Final[Mapping[int, str | None]] = {
    pb.RESPONSE_STATUS_UNSPECIFIED: None,
    pb.RESPONSE_STATUS_IN_PROGRESS: "in_progress",
    pb.RESPONSE_STATUS_COMPLETED: "completed",
    pb.RESPONSE_STATUS_INCOMPLETE: "incomplete",
    pb.RESPONSE_STATUS_FAILED: "failed",
}


def encode_response_input_summary_part(message: pb.ResponseInputSummaryPart) -> dict[str, Any]:
    """A part of a summary."""
    return {"type": "summary_text", "text": message.text}


def encode_response_tool(message: pb.ResponseTool) -> Any:
    """A tool. Only functions, which the client runs, are served."""
    kind = message.WhichOneof("kind")
    if kind == "function":
        return {"type": "function", **encode_response_function_tool(message.function)}
    return None


def encode_response_function_tool(message: pb.ResponseFunctionTool) -> dict[str, Any]:
    """A function: what it is called, what it is for, what it takes."""
    body: dict[str, Any] = {
        "name": message.name,
        "description": message.description if message.HasField("description") else None,
        "parameters": write.json_value(message.parameters)
        if message.HasField("parameters")
        else None,
        "strict": message.strict if message.HasField("strict") else None,
    }
    if message.HasField("output_schema"):
        body["output_schema"] = write.json_value(message.output_schema)
    if message.HasField("defer_loading"):
        body["defer_loading"] = message.defer_loading
    if message.HasField("allowed_callers"):
        body["allowed_callers"] = write.json_value(message.allowed_callers)
    if message.HasField("is_async"):
        body["async"] = message.is_async
    return body


def encode_response_tool_choice(message: pb.ResponseToolChoice) -> Any:
    """Whether and which functions are called."""
    kind = message.WhichOneof("kind")
    if kind == "mode":
        return _TOOL_CHOICE_MODE.get(message.mode)
    if kind == "object":
        return encode_response_tool_choice_object(message.object)
    return None


def encode_response_tool_choice_object(message: pb.ResponseToolChoiceObject) -> Any:
    """Which functions are called."""
    kind = message.WhichOneof("kind")
    if kind == "function":
        return {"type": "function", **encode_response_named_tool_choice(message.function)}
    if kind == "allowed_tools":
        return {"type": "allowed_tools", **encode_response_allowed_tools(message.allowed_tools)}
    return None


def encode_response_named_tool_choice(message: pb.ResponseNamedToolChoice) -> dict[str, Any]:
    """This function is called."""
    return {"name": message.name}


def encode_response_allowed_tools(message: pb.ResponseAllowedTools) -> dict[str, Any]:
    """Some functions of tools may or must be called."""
    return {
        "mode": _TOOL_CHOICE_MODE.get(message.mode),
        "tools": [encode_response_allowed_tool(element) for element in message.tools],
    }


def encode_response_allowed_tool(message: pb.ResponseAllowedTool) -> dict[str, Any]:
    """A function of tools, by name."""
    return {"type": "function", "name": message.name}


def encode_response_text_config(message: pb.ResponseTextConfig) -> dict[str, Any]:
    """What the text must look like."""
    body: dict[str, Any] = {}
    if message.HasField("format"):
        body["format"] = encode_response_text_format(message.format)
    if message.HasField("verbosity"):
        body["verbosity"] = _RESPONSE_VERBOSITY.get(message.verbosity)
    return body


def encode_response_text_format(message: pb.ResponseTextFormat) -> Any:
    """Any text, a JSON object, or JSON of a schema."""
    kind = message.WhichOneof("kind")
    if kind == "text":
        return {"type": "text", **inference_encode.encode_text_format(message.text)}
    if kind == "json_object":
        return {
            "type": "json_object",
            **inference_encode.encode_json_object_format(message.json_object),
        }
    if kind == "json_schema":
        return {"type": "json_schema", **encode_response_json_schema(message.json_schema)}
    return None


def encode_response_json_schema(message: pb.ResponseJsonSchema) -> dict[str, Any]:
    """JSON of a schema."""
    body: dict[str, Any] = {"name": message.name, "schema": write.json_value(message.schema)}
    if message.HasField("strict"):
        body["strict"] = message.strict
    if message.HasField("description"):
        body["description"] = message.description
    return body


def encode_response_reasoning(message: pb.ResponseReasoning) -> dict[str, Any]:
    """How much the model thinks, and what is shown of it."""
    body: dict[str, Any] = {
        "effort": _REASONING_EFFORT.get(message.effort) if message.HasField("effort") else None,
        "summary": _RESPONSE_SUMMARY.get(message.summary) if message.HasField("summary") else None,
    }
    if message.HasField("generate_summary"):
        body["generate_summary"] = _RESPONSE_SUMMARY.get(message.generate_summary)
    if message.HasField("context"):
        body["context"] = message.context
    body["mode"] = "standard"
    return body


def encode_response(message: pb.Response) -> dict[str, Any]:
    """An answer, whole or in progress."""
    body: dict[str, Any] = {
        "id": message.id,
        "object": "response",
        "created_at": message.created_at,
        "status": _RESPONSE_STATUS.get(message.status),
        "completed_at": message.completed_at if message.HasField("completed_at") else None,
        "background": message.background,
        "error": encode_response_error(message.error) if message.HasField("error") else None,
        "incomplete_details": encode_response_incomplete_details(message.incomplete_details)
        if message.HasField("incomplete_details")
        else None,
        "instructions": message.instructions if message.HasField("instructions") else None,
        "max_output_tokens": message.max_output_tokens
        if message.HasField("max_output_tokens")
        else None,
        "max_tool_calls": message.max_tool_calls if message.HasField("max_tool_calls") else None,
        "model": message.model,
        "output": [encode_response_output_item(element) for element in message.output],
        "parallel_tool_calls": message.parallel_tool_calls,
        "previous_response_id": message.previous_response_id
        if message.HasField("previous_response_id")
        else None,
        "prompt_cache_key": message.prompt_cache_key
        if message.HasField("prompt_cache_key")
        else None,
    }
    if message.HasField("reasoning"):
        body["reasoning"] = encode_response_reasoning(message.reasoning)
    body["safety_identifier"] = (
        message.safety_identifier if message.HasField("safety_identifier") else None
    )
    body["service_tier"] = "default"
    body["store"] = message.store
    body["temperature"] = (
        write.number(message.temperature, "temperature")
        if message.HasField("temperature")
        else None
    )
    if message.HasField("text"):
        body["text"] = encode_response_text_config(message.text)
    if message.HasField("tool_choice"):
        body["tool_choice"] = encode_response_tool_choice(message.tool_choice)
    body["tools"] = [encode_response_tool(element) for element in message.tools]
    body["top_logprobs"] = message.top_logprobs
    body["top_p"] = write.number(message.top_p, "top_p") if message.HasField("top_p") else None
    body["truncation"] = "disabled"
    body["usage"] = encode_response_usage(message.usage) if message.HasField("usage") else None
    body["user"] = message.user if message.HasField("user") else None
    body["metadata"] = dict(message.metadata)
    return body


def encode_response_error(message: pb.ResponseError) -> dict[str, Any]:
    """Why a response failed."""
    return {"code": message.code, "message": message.message}


def encode_response_incomplete_details(message: pb.ResponseIncompleteDetails) -> dict[str, Any]:
    """Why a response is incomplete."""
    return {"reason": "max_output_tokens"}


def encode_response_output_item(message: pb.ResponseOutputItem) -> Any:
    """Something that the model thought, said or called."""
    kind = message.WhichOneof("kind")
    if kind == "message":
        return {"type": "message", **encode_response_output_message(message.message)}
    if kind == "function_call":
        return {"type": "function_call", **encode_response_function_call(message.function_call)}
    if kind == "reasoning":
        return {"type": "reasoning", **encode_response_reasoning_item(message.reasoning)}
    return None


def encode_response_output_message(message: pb.ResponseOutputMessage) -> dict[str, Any]:
    """Something said."""
    return {
        "id": message.id,
        "role": "assistant",
        "status": _RESPONSE_ITEM_STATUS.get(message.status),
        "content": [encode_response_content_part(element) for element in message.content],
    }


def encode_response_function_call(message: pb.ResponseFunctionCall) -> dict[str, Any]:
    """A call of a function."""
    return {
        "id": message.id,
        "call_id": message.call_id,
        "name": message.name,
        "arguments": message.arguments,
        "status": _RESPONSE_ITEM_STATUS.get(message.status),
    }


def encode_response_reasoning_item(message: pb.ResponseReasoningItem) -> dict[str, Any]:
    """Reasoning."""
    return {
        "id": message.id,
        "summary": [encode_response_input_summary_part(element) for element in message.summary],
        "content": [encode_response_content_part(element) for element in message.content],
        "status": _RESPONSE_ITEM_STATUS.get(message.status),
    }


def encode_response_content_part(message: pb.ResponseContentPart) -> Any:
    """Content of an item."""
    kind = message.WhichOneof("kind")
    if kind == "output_text":
        return {"type": "output_text", **encode_response_output_text(message.output_text)}
    if kind == "reasoning_text":
        return {"type": "reasoning_text", **encode_response_reasoning_text(message.reasoning_text)}
    return None


def encode_response_output_text(message: pb.ResponseOutputText) -> dict[str, Any]:
    """Text for the user."""
    return {
        "text": message.text,
        "annotations": list(message.annotations),
        "logprobs": [
            inference_encode.encode_token_logprob(element) for element in message.logprobs
        ],
    }


def encode_response_reasoning_text(message: pb.ResponseReasoningText) -> dict[str, Any]:
    """Text of the reasoning."""
    return {"text": message.text}


def encode_response_usage(message: pb.ResponseUsage) -> dict[str, Any]:
    """Tokens used by a response."""
    body: dict[str, Any] = {"input_tokens": message.input_tokens}
    if message.HasField("input_tokens_details"):
        body["input_tokens_details"] = encode_response_input_tokens_details(
            message.input_tokens_details
        )
    body["output_tokens"] = message.output_tokens
    if message.HasField("output_tokens_details"):
        body["output_tokens_details"] = encode_response_output_tokens_details(
            message.output_tokens_details
        )
    body["total_tokens"] = message.total_tokens
    return body


def encode_response_input_tokens_details(message: pb.ResponseInputTokensDetails) -> dict[str, Any]:
    """Where the input's tokens came from."""
    return {
        "cached_tokens": message.cached_tokens,
        "cache_write_tokens": message.cache_write_tokens,
    }


def encode_response_output_tokens_details(
    message: pb.ResponseOutputTokensDetails,
) -> dict[str, Any]:
    """What the sampled tokens are."""
    return {"reasoning_tokens": message.reasoning_tokens}


def encode_response_event(message: pb.ResponseEvent) -> Any:
    """One step of an answer; sequence_number counts them from 0."""
    kind = message.WhichOneof("kind")
    if kind == "created":
        return {"type": "response.created", **encode_response_state_event(message.created)}
    if kind == "in_progress":
        return {"type": "response.in_progress", **encode_response_state_event(message.in_progress)}
    if kind == "completed":
        return {"type": "response.completed", **encode_response_state_event(message.completed)}
    if kind == "incomplete":
        return {"type": "response.incomplete", **encode_response_state_event(message.incomplete)}
    if kind == "failed":
        return {"type": "response.failed", **encode_response_state_event(message.failed)}
    if kind == "output_item_added":
        return {
            "type": "response.output_item.added",
            **encode_response_item_event(message.output_item_added),
        }
    if kind == "output_item_done":
        return {
            "type": "response.output_item.done",
            **encode_response_item_event(message.output_item_done),
        }
    if kind == "content_part_added":
        return {
            "type": "response.content_part.added",
            **encode_response_part_event(message.content_part_added),
        }
    if kind == "content_part_done":
        return {
            "type": "response.content_part.done",
            **encode_response_part_event(message.content_part_done),
        }
    if kind == "output_text_delta":
        return {
            "type": "response.output_text.delta",
            **encode_response_text_delta_event(message.output_text_delta),
        }
    if kind == "output_text_done":
        return {
            "type": "response.output_text.done",
            **encode_response_text_done_event(message.output_text_done),
        }
    if kind == "reasoning_text_delta":
        return {
            "type": "response.reasoning_text.delta",
            **encode_response_reasoning_delta_event(message.reasoning_text_delta),
        }
    if kind == "reasoning_text_done":
        return {
            "type": "response.reasoning_text.done",
            **encode_response_reasoning_done_event(message.reasoning_text_done),
        }
    if kind == "function_call_arguments_delta":
        return {
            "type": "response.function_call_arguments.delta",
            **encode_response_arguments_delta_event(message.function_call_arguments_delta),
        }
    if kind == "function_call_arguments_done":
        return {
            "type": "response.function_call_arguments.done",
            **encode_response_arguments_done_event(message.function_call_arguments_done),
        }
    return None


def encode_response_state_event(message: pb.ResponseStateEvent) -> dict[str, Any]:
    """The response as it is."""
    body: dict[str, Any] = {"sequence_number": message.sequence_number}
    if message.HasField("response"):
        body["response"] = encode_response(message.response)
    return body


def encode_response_item_event(message: pb.ResponseItemEvent) -> dict[str, Any]:
    """An item begins or has ended."""
    body: dict[str, Any] = {
        "sequence_number": message.sequence_number,
        "output_index": message.output_index,
    }
    if message.HasField("item"):
        body["item"] = encode_response_output_item(message.item)
    return body


def encode_response_part_event(message: pb.ResponsePartEvent) -> dict[str, Any]:
    """A part of an item begins or has ended."""
    body: dict[str, Any] = {
        "sequence_number": message.sequence_number,
        "item_id": message.item_id,
        "output_index": message.output_index,
        "content_index": message.content_index,
    }
    if message.HasField("part"):
        body["part"] = encode_response_content_part(message.part)
    return body


def encode_response_text_delta_event(message: pb.ResponseTextDeltaEvent) -> dict[str, Any]:
    """More text."""
    return {
        "sequence_number": message.sequence_number,
        "item_id": message.item_id,
        "output_index": message.output_index,
        "content_index": message.content_index,
        "delta": message.delta,
        "logprobs": [
            inference_encode.encode_token_logprob(element) for element in message.logprobs
        ],
    }


def encode_response_text_done_event(message: pb.ResponseTextDoneEvent) -> dict[str, Any]:
    """All of a text."""
    return {
        "sequence_number": message.sequence_number,
        "item_id": message.item_id,
        "output_index": message.output_index,
        "content_index": message.content_index,
        "text": message.text,
        "logprobs": [
            inference_encode.encode_token_logprob(element) for element in message.logprobs
        ],
    }


def encode_response_reasoning_delta_event(
    message: pb.ResponseReasoningDeltaEvent,
) -> dict[str, Any]:
    """More reasoning."""
    return {
        "sequence_number": message.sequence_number,
        "item_id": message.item_id,
        "output_index": message.output_index,
        "content_index": message.content_index,
        "delta": message.delta,
    }


def encode_response_reasoning_done_event(message: pb.ResponseReasoningDoneEvent) -> dict[str, Any]:
    """All of the reasoning."""
    return {
        "sequence_number": message.sequence_number,
        "item_id": message.item_id,
        "output_index": message.output_index,
        "content_index": message.content_index,
        "text": message.text,
    }


def encode_response_arguments_delta_event(
    message: pb.ResponseArgumentsDeltaEvent,
) -> dict[str, Any]:
    """More of a call's arguments."""
    return {
        "sequence_number": message.sequence_number,
        "item_id": message.item_id,
        "output_index": message.output_index,
        "delta": message.delta,
    }


def encode_response_arguments_done_event(message: pb.ResponseArgumentsDoneEvent) -> dict[str, Any]:
    """All of a call's arguments."""
    return {
        "sequence_number": message.sequence_number,
        "item_id": message.item_id,
        "output_index": message.output_index,
        "name": message.name,
        "arguments": message.arguments,
    }
