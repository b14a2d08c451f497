"""A response's request as a chat request, what is refused of it, and what its answer repeats."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from octavo.inference.v1 import inference_pb2 as chat_pb

from router_svc.api.field_names import FieldNames
from router_svc.api.responses.request import CHAT_NAMES, chat_request_of, head_of
from router_svc.errors import ApiError, ErrorKind, invalid
from router_svc.gen.inference_decode import decode_create_chat_completion_request
from router_svc.gen.responses_decode import decode_create_response_request
from router_svc.gen.responses_encode import encode_response
from router_svc.gen.responses_validate import validate_create_response_request

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}
LOGPROBS = "message.output_text.logprobs"


def convert(**body: Any) -> tuple[chat_pb.CreateChatCompletionRequest, FieldNames]:
    request = decode_create_response_request({"input": "Hi"} | body, "")
    validate_create_response_request(request)
    names = FieldNames(CHAT_NAMES)
    return chat_request_of(request, names), names


def refused(**body: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        convert(**body)
    assert caught.value.kind is ErrorKind.INVALID_REQUEST
    return caught.value


@pytest.mark.parametrize(
    ("given", "same"),
    [
        ({}, {}),
        ({"max_output_tokens": 7}, {"max_completion_tokens": 7}),
        ({"temperature": 0, "top_p": 0.5}, {"temperature": 0, "top_p": 0.5}),
        ({"model": "m", "seed": 3, "top_k": -1}, {"model": "m", "seed": 3, "top_k": -1}),
        (
            {"include": [LOGPROBS], "top_logprobs": 2},
            {"logprobs": True, "top_logprobs": 2},
        ),
        ({"include": ["reasoning.encrypted_content"]}, {}),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning_effort": "low"}),
        ({"reasoning": {"effort": "max"}}, {"reasoning_effort": "max"}),
        ({"text": {"format": {"type": "text"}}}, {"response_format": {"type": "text"}}),
        (
            {"text": {"format": {"type": "json_object"}, "verbosity": "low"}},
            {"response_format": {"type": "json_object"}},
        ),
        (
            {"text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": SCHEMA},
                }
            },
        ),
        (
            {"tools": [TOOL], "parallel_tool_calls": False, "tool_choice": "required"},
            {
                "tools": [
                    {
                        "type": "function",
                        "function": {"name": "weather", "parameters": SCHEMA, "strict": True},
                    }
                ],
                "parallel_tool_calls": False,
                "tool_choice": "required",
            },
        ),
        ({"tool_choice": "auto"}, {}),
        ({"tool_choice": "none"}, {}),
        (
            {"tool_choice": {"type": "function", "name": "weather"}},
            {"tool_choice": {"type": "function", "function": {"name": "weather"}}},
        ),
        (
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "required",
                    "tools": [{"type": "function", "name": "weather"}],
                }
            },
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {
                        "mode": "required",
                        "tools": [{"type": "function", "function": {"name": "weather"}}],
                    },
                }
            },
        ),
        ({"user": "u", "service_tier": "flex", "store": False, "metadata": {"a": "b"}}, {}),
        ({"background": False, "truncation": "disabled", "max_tool_calls": 3}, {}),
    ],
)
def test_each_field_means_what_chats_does(given: dict[str, Any], same: dict[str, Any]) -> None:
    messages = [{"role": "user", "content": "Hi"}]

    chat, _ = convert(**given)

    assert chat == decode_create_chat_completion_request({"messages": messages} | same, "")


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("store", True, "not stored"),
        ("previous_response_id", "resp_1", "send the whole conversation"),
        ("conversation", "conv_1", "send the whole conversation"),
        ("conversation", {"id": "conv_1"}, "send the whole conversation"),
        ("prompt", {"id": "pmpt_1"}, "not stored"),
        ("background", True, "not stored"),
        ("truncation", "auto", '"disabled"'),
        ("include", ["file_search_call.results"], "file_search_call.results"),
        ("context_management", [{"type": "compaction"}], "not compacted"),
        ("moderation", {"model": "m"}, "no moderation"),
        ("top_logprobs", 3, LOGPROBS),
        ("max_tokens", 3, "Unknown field"),
        ("stop", ["a"], "Unknown field"),
    ],
)
def test_what_is_not_served_is_refused_with_the_reason(field: str, value: Any, reason: str) -> None:
    error = refused(**{field: value})

    assert (error.param or "").split("[")[0] == field
    assert reason in error.message


@pytest.mark.parametrize(
    "kind",
    ["web_search", "file_search", "code_interpreter", "mcp", "custom", "image_generation", "shell"],
)
def test_tools_that_a_server_would_run_are_refused_by_name(kind: str) -> None:
    error = refused(tools=[TOOL, {"type": kind}])

    assert error.param == "tools[1].type"
    assert kind in error.message


def test_an_errors_field_is_renamed_and_so_is_its_message() -> None:
    _, names = convert(tools=[TOOL])

    error = names.renamed(
        invalid("tools[0].function.parameters", "tools[0].function.parameters is no schema")
    )

    assert error.param == "tools[0].parameters"
    assert error.message == "tools[0].parameters is no schema"


@pytest.mark.parametrize(
    ("chat", "response"),
    [
        ("max_completion_tokens", "max_output_tokens"),
        ("response_format", "text.format"),
        ("response_format.json_schema.schema", "text.format.schema"),
        ("reasoning_effort", "reasoning.effort"),
        ("tool_choice.function.name", "tool_choice.name"),
        ("tool_choice.allowed_tools.mode", "tool_choice.mode"),
        ("temperature", "temperature"),
        ("toolset", "toolset"),
    ],
)
def test_chats_fields_have_names_of_a_responses(chat: str, response: str) -> None:
    assert FieldNames(CHAT_NAMES).of(chat) == response


def test_an_error_keeps_all_but_its_field() -> None:
    error = ApiError(ErrorKind.RATE_LIMITED, "later", param="messages", code="busy", retry_after=3)

    renamed = FieldNames(CHAT_NAMES).renamed(error)

    assert (renamed.kind, renamed.message, renamed.code, renamed.retry_after) == (
        ErrorKind.RATE_LIMITED,
        "later",
        "busy",
        3,
    )


def test_an_answer_repeats_its_request_or_the_defaults() -> None:
    request = decode_create_response_request({"input": "Hi", "reasoning": {"effort": "low"}}, "")

    head = orjson.loads(orjson.dumps(encode_response(head_of(request))))

    assert head["text"] == {"format": {"type": "text"}}
    assert head["tool_choice"] == "auto"
    assert head["parallel_tool_calls"] is True
    assert head["reasoning"]["effort"] == "low"
    assert head["tools"] == []
    assert head["temperature"] is None
