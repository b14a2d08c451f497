"""Bodies of Anthropic's API as chat requests, and errors in their own fields' names."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from google.protobuf.json_format import MessageToDict
from octavo.inference.v1 import inference_pb2 as chat

from router_svc.api.messages.convert import Converted, to_chat
from router_svc.errors import ApiError, ErrorKind, invalid
from router_svc.gen.messages_decode import decode_create_message_request
from router_svc.gen.messages_validate import validate_create_message_request

NEXT_BUS = {
    "name": "next_bus",
    "description": "When the next bus leaves a stop.",
    "input_schema": {"type": "object", "properties": {"stop": {"type": "string"}}},
}
USE = {"type": "tool_use", "id": "toolu_1", "name": "next_bus", "input": {"stop": "Mitte"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "in 5 minutes"}


def _convert(*turns: tuple[str, Any], **fields: Any) -> Converted:
    messages = [{"role": role, "content": content} for role, content in turns]
    body = {"max_tokens": 8, "messages": messages or [{"role": "user", "content": "Hi"}], **fields}
    request = decode_create_message_request(body, "")
    validate_create_message_request(request)
    return to_chat(request)


def _messages(*turns: tuple[str, Any], **fields: Any) -> list[dict[str, Any]]:
    """The chat messages, as chat's JSON has them."""
    return [_shown(message) for message in _convert(*turns, **fields).request.messages]


def _shown(message: chat.ChatMessage) -> dict[str, Any]:
    shown = MessageToDict(message, preserving_proto_field_name=True)
    shown["role"] = shown["role"].removeprefix("ROLE_").lower()
    if "content" in shown:
        shown["content"] = shown["content"]["text"]
    return shown


def _refusal(*turns: tuple[str, Any], **fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        _convert(*turns, **fields)
    assert caught.value.kind is ErrorKind.INVALID_REQUEST
    return caught.value


def _text(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **more}


def test_texts_and_blocks_of_text_are_the_same() -> None:
    blocks = [_text("Hello, ", cache_control={"type": "ephemeral"}), _text("world")]

    assert _messages(("user", blocks)) == _messages(("user", "Hello, world"))


def test_the_system_prompt_comes_first() -> None:
    for system in ("Be brief.", [_text("Be "), _text("brief.")]):
        assert _messages(("user", "Hi"), system=system) == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
        ]


def test_turns_of_one_speaker_are_one_turn() -> None:
    messages = _messages(("user", "One."), ("user", "Two."), ("assistant", "Yes."), ("user", "?"))

    assert [m["content"] for m in messages] == ["One.\n\nTwo.", "Yes.", "?"]


def test_a_use_of_a_tool_and_its_result() -> None:
    asked, used, result, more = _messages(
        ("user", "When does the bus leave?"),
        ("assistant", [_text("Let me see. "), USE]),
        ("user", [RESULT, _text("Thanks. And the one after?")]),
    )

    assert asked["role"] == "user"
    assert used["content"] == "Let me see. "
    (call,) = used["tool_calls"]
    assert (call["id"], call["function"]["name"]) == ("toolu_1", "next_bus")
    assert orjson.loads(call["function"]["arguments"]) == {"stop": "Mitte"}
    assert result == {
        "role": "tool",
        "name": "next_bus",
        "tool_call_id": "toolu_1",
        "content": "in 5 minutes",
    }
    assert more == {"role": "user", "content": "Thanks. And the one after?"}


def test_a_turn_of_uses_alone_has_no_content() -> None:
    _, used, _ = _messages(("user", "?"), ("assistant", [USE]), ("user", [RESULT]))

    assert "content" not in used


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ({"content": "no such stop", "is_error": True}, "Error: no such stop"),
        ({"content": None, "is_error": True}, "Error"),
        ({"content": [_text("in 5 "), _text("minutes")]}, "in 5 minutes"),
        ({"content": []}, ""),
    ],
)
def test_forms_of_a_result(result: dict[str, Any], shown: str) -> None:
    messages = _messages(("user", "?"), ("assistant", [USE]), ("user", [{**RESULT, **result}]))

    assert messages[-1]["content"] == shown


def test_thinking_goes_back_as_reasoning() -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"}
    redacted = {"type": "redacted_thinking", "data": "EmwKAhgB"}

    _, turn, _ = _messages(
        ("user", "?"), ("assistant", [thinking, redacted, _text("Yes.")]), ("user", "Sure?")
    )

    assert turn == {"role": "assistant", "reasoning_content": "Hm.", "content": "Yes."}


def test_a_last_turn_of_the_assistant_is_continued() -> None:
    prefilled = _convert(("user", "Capital of Japan?"), ("assistant", "The capital is"))
    answered = _convert(("user", "Capital of Japan?"))

    assert prefilled.request.continue_final_message
    assert not answered.request.HasField("continue_final_message")


def test_sampling_and_stopping() -> None:
    request = _convert(
        temperature=0.5, top_p=0.9, top_k=0, stop_sequences=["END", "."], max_tokens=77
    ).request

    assert (request.temperature, request.top_p, request.top_k) == (0.5, 0.9, 0)
    assert list(request.stop) == ["END", "."]
    assert request.max_completion_tokens == 77


def test_absent_sampling_stays_the_models_own() -> None:
    request = _convert().request

    assert not any(request.HasField(name) for name in ("temperature", "top_p", "top_k"))


def test_tools() -> None:
    request = _convert(tools=[{**NEXT_BUS, "strict": True}, {**NEXT_BUS, "type": "custom"}]).request

    for tool in request.tools:
        assert tool.function.name == "next_bus"
        assert tool.function.description == NEXT_BUS["description"]
        assert orjson.loads(tool.function.parameters) == NEXT_BUS["input_schema"]
    assert [tool.function.strict for tool in request.tools] == [True, False]


@pytest.mark.parametrize(
    ("choice", "mode"),
    [
        ("auto", chat.TOOL_CHOICE_MODE_AUTO),
        ("any", chat.TOOL_CHOICE_MODE_REQUIRED),
        ("none", chat.TOOL_CHOICE_MODE_NONE),
    ],
)
def test_choices_of_tools(choice: str, mode: int) -> None:
    request = _convert(tools=[NEXT_BUS], tool_choice={"type": choice}).request

    assert request.tool_choice.mode == mode
    assert not request.HasField("parallel_tool_calls")


def test_one_tool_by_name_and_once() -> None:
    choice = {"type": "tool", "name": "next_bus", "disable_parallel_tool_use": True}

    request = _convert(tools=[NEXT_BUS], tool_choice=choice).request

    assert request.tool_choice.object.function.function.name == "next_bus"
    assert request.HasField("parallel_tool_calls")
    assert not request.parallel_tool_calls


def test_thinking_is_the_templates_to_do() -> None:
    enabled = _convert(thinking={"type": "enabled", "budget_tokens": 1024}).request
    disabled = _convert(thinking={"type": "disabled"}).request
    hidden = _convert(thinking={"type": "adaptive", "display": "omitted"}).request

    assert orjson.loads(enabled.chat_template_kwargs) == {"enable_thinking": True}
    assert orjson.loads(disabled.chat_template_kwargs) == {"enable_thinking": False}
    assert not hidden.HasField("chat_template_kwargs")
    assert hidden.HasField("include_reasoning")
    assert not hidden.include_reasoning


def test_effort() -> None:
    request = _convert(output_config={"effort": "max"}).request

    assert request.reasoning_effort == chat.REASONING_EFFORT_MAX


@pytest.mark.parametrize("place", ["output_config", "output_format"])
def test_the_answers_format(place: str) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    wanted = {"type": "json_schema", "schema": schema}

    request = _convert(
        **{place: {"format": wanted} if place == "output_config" else wanted}
    ).request

    assert orjson.loads(request.response_format.json_schema.json_schema.schema) == schema


def test_two_formats_are_refused() -> None:
    wanted = {"type": "json_schema", "schema": {}}

    error = _refusal(output_format=wanted, output_config={"format": wanted})

    assert error.param == "output_format"


def test_a_format_and_a_prefill_are_refused() -> None:
    wanted = {"type": "json_schema", "schema": {}}

    error = _refusal(("user", "?"), ("assistant", "{"), output_config={"format": wanted})

    assert error.param == "output_config.format"


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1:9/cat.png"}},
        {"type": "document", "source": {"type": "base64", "data": "JVBERi0="}},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
    ],
)
def test_what_is_no_text_is_refused_by_name(block: dict[str, Any]) -> None:
    error = _refusal(("user", [_text("What is this?"), block]))

    assert error.param == "messages[0].content[1].type"
    assert f'"{block["type"]}"' in error.message


def test_an_image_in_a_result_is_refused_by_name() -> None:
    image = {"type": "image", "source": {"type": "base64", "data": ""}}

    error = _refusal(
        ("user", "?"), ("assistant", [USE]), ("user", [{**RESULT, "content": [image]}])
    )

    assert error.param == "messages[2].content[0].content[0].type"
    assert '"image"' in error.message


@pytest.mark.parametrize(
    "type_", ["web_search_20250305", "bash_20250124", "code_execution_20260521"]
)
def test_anthropics_own_tools_are_refused_by_name(type_: str) -> None:
    error = _refusal(tools=[NEXT_BUS, {"type": type_, "name": "it"}])

    assert error.param == "tools[1].type"
    assert f'"{type_}"' in error.message


@pytest.mark.parametrize(
    "field", ["container", "mcp_servers", "context_management", "diagnostics", "inference_geo"]
)
def test_what_only_anthropic_can_do_is_refused_by_name(field: str) -> None:
    error = _refusal(**{field: "us" if field == "inference_geo" else {"id": "x"}})

    assert error.param == field
    assert error.code == "unsupported_parameter"


@pytest.mark.parametrize(
    ("turns", "param"),
    [
        ([("user", [USE])], "messages[0].content[0].type"),
        ([("user", "?"), ("assistant", [_text("!"), RESULT])], "messages[1].content[1].type"),
        ([("user", [RESULT])], "messages[0].content[0].tool_use_id"),
        ([("user", "?"), ("assistant", [USE])], "messages[1].content[0]"),
        ([("narrator", "?")], "messages[0].role"),
    ],
    ids=["use by the user", "result by the assistant", "result of no use", "no result", "role"],
)
def test_blocks_out_of_place_are_refused_by_name(turns: list[Any], param: str) -> None:
    assert _refusal(*turns).param == param


@pytest.mark.parametrize(
    ("chats", "ours"),
    [
        ("messages", "messages"),
        ("messages[0]", "system"),
        ("messages[1].content", "messages[0].content"),
        ("messages[0].content", "system"),
        ("messages[3]", "messages[2].content[0]"),
        ("messages[3].content", "messages[2].content[0].content"),
        ("messages[3].tool_call_id", "messages[2].content[0].tool_use_id"),
        ("messages[2].tool_calls[0].function.name", "messages[1].content[1].name"),
        ("messages[2].tool_calls[0].function.arguments", "messages[1].content[1].input"),
        ("stop[1]", "stop_sequences[1]"),
        ("max_completion_tokens", "max_tokens"),
        ("tools[1].function.name", "tools[1].name"),
        ("tools[0].function.parameters.properties.a", "tools[0].input_schema.properties.a"),
        ("tool_choice.function.name", "tool_choice.name"),
        ("response_format.json_schema.schema.items", "output_config.format.schema.items"),
        ("temperature", "temperature"),
    ],
)
def test_errors_name_the_requests_own_field(chats: str, ours: str) -> None:
    used = ("assistant", [_text("Let me see."), USE])
    turns = (("user", "?"), used, ("user", [RESULT]))
    tools = [NEXT_BUS, {**NEXT_BUS, "name": "next_tram"}]
    names = _convert(*turns, system="Be brief.", tools=tools).names

    error = names.renamed(invalid(chats, f"{chats} is wrong", "some_code"))

    assert (error.param, error.message, error.code) == (ours, f"{ours} is wrong", "some_code")
