"""Items as messages of a chat: turns of the assistant are put together, and paths are kept."""

from __future__ import annotations

from typing import Any

import pytest
from octavo.inference.v1 import inference_pb2 as chat_pb

from router_svc.api.field_names import FieldNames
from router_svc.api.responses.items import messages_of
from router_svc.api.responses.request import CHAT_NAMES
from router_svc.errors import ApiError
from router_svc.gen.responses_decode import decode_create_response_request
from router_svc.gen.responses_validate import validate_create_response_request

ROLES = {
    chat_pb.ROLE_SYSTEM: "system",
    chat_pb.ROLE_DEVELOPER: "developer",
    chat_pb.ROLE_USER: "user",
    chat_pb.ROLE_ASSISTANT: "assistant",
    chat_pb.ROLE_TOOL: "tool",
}
CALL = {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "rain"}
REASONING = {
    "type": "reasoning",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "Hm."}],
}
SAID = {"type": "message", "role": "assistant", "content": "Let me see."}


def convert(**body: Any) -> tuple[list[chat_pb.ChatMessage], FieldNames]:
    request = decode_create_response_request(body, "")
    validate_create_response_request(request)
    names = FieldNames(CHAT_NAMES)
    return messages_of(request, names), names


def messages(*items: Any) -> list[chat_pb.ChatMessage]:
    return convert(input=list(items))[0]


def text_of(message: chat_pb.ChatMessage) -> str:
    if message.content.HasField("parts"):
        return "".join(part.text.text for part in message.content.parts.items)
    return message.content.text


def spoken(given: list[chat_pb.ChatMessage]) -> list[tuple[str, str]]:
    return [(ROLES[message.role], text_of(message)) for message in given]


def test_a_text_is_the_users_and_instructions_come_first() -> None:
    given, _ = convert(input="Hi", instructions="Be brief.")

    assert spoken(given) == [("system", "Be brief."), ("user", "Hi")]


def test_a_message_needs_no_type_and_may_have_parts() -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]

    given = messages(
        {"role": "developer", "content": "Be brief."}, {"role": "user", "content": parts}
    )

    assert spoken(given) == [("developer", "Be brief."), ("user", "ab")]


def test_an_answers_message_comes_back_as_it_was_sent() -> None:
    said = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [
            {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []},
            {"type": "refusal", "refusal": "."},
        ],
    }

    assert spoken(messages(said)) == [("assistant", "Hello.")]


def test_reasoning_text_and_calls_are_one_turn() -> None:
    second = CALL | {"call_id": "b", "id": "fc_1", "status": "completed"}

    turn, first_output, second_output = messages(
        REASONING, SAID, CALL, second, OUTPUT, OUTPUT | {"call_id": "b"}
    )

    assert turn.reasoning_content == "Hm."
    assert text_of(turn) == "Let me see."
    assert [call.id for call in turn.tool_calls] == ["a", "b"]
    assert (turn.tool_calls[0].function.name, turn.tool_calls[0].function.arguments) == (
        "weather",
        "{}",
    )
    assert (first_output.role, first_output.tool_call_id) == (chat_pb.ROLE_TOOL, "a")
    assert (text_of(second_output), second_output.tool_call_id) == ("rain", "b")


def test_what_is_said_after_a_call_is_another_turn() -> None:
    first, second = messages(CALL, SAID)

    assert not first.HasField("content")
    assert len(first.tool_calls) == 1
    assert text_of(second) == "Let me see."


def test_reasoning_begins_a_turn() -> None:
    first, second = messages(CALL, REASONING, CALL | {"call_id": "b"})

    assert not first.HasField("reasoning_content")
    assert second.reasoning_content == "Hm."


def test_a_summary_is_read_where_reasoning_has_no_content() -> None:
    summary = [{"type": "summary_text", "text": text} for text in ("One.", "Two.")]

    (turn,) = messages({"type": "reasoning", "id": "rs_1", "summary": summary}, SAID)

    assert turn.reasoning_content == "One.\n\nTwo."


def test_reasoning_that_nothing_follows_is_not_read() -> None:
    given = messages(REASONING, {"role": "user", "content": "Hi"}, REASONING)

    assert spoken(given) == [("user", "Hi")]
    assert not given[0].HasField("reasoning_content")


def test_an_output_needs_its_call() -> None:
    with pytest.raises(ApiError) as caught:
        messages({"role": "user", "content": "Hi"}, OUTPUT, CALL)

    assert caught.value.param == "input[1].call_id"


def test_a_call_has_an_id_of_its_own() -> None:
    with pytest.raises(ApiError) as caught:
        messages(CALL, OUTPUT, CALL)

    assert caught.value.param == "input[2].call_id"


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "item_reference", "id": "msg_1"}, "input[0].type"),
        ({"type": "web_search_call", "id": "ws_1"}, "input[0].type"),
        ({"role": "tool", "content": "x"}, "input[0].role"),
        ({"role": "user"}, "input[0].content"),
        (
            {"role": "user", "content": [{"type": "input_image", "image_url": "http://x"}]},
            "input[0].content[0].type",
        ),
        ({"role": "user", "content": "x", "color": "red"}, "input[0].color"),
        (REASONING | {"encrypted_content": "gAAA"}, "input[0].encrypted_content"),
        (CALL | {"arguments": {}}, "input[0].arguments"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(item: Any, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        messages(item)

    assert caught.value.param == param


def test_chats_paths_lead_back_to_the_items() -> None:
    _, names = convert(
        instructions="Be brief.",
        input=[{"role": "user", "content": "Hi"}, SAID, CALL, OUTPUT],
    )

    assert {path: names.of(path) for path in PATHS} == PATHS


PATHS = {
    "messages": "input",
    "messages[0].content": "instructions",
    "messages[1]": "input[0]",
    "messages[1].content.parts[3]": "input[0].content.parts[3]",
    "messages[2].content": "input[1].content",
    "messages[2].tool_calls[0].function.arguments": "input[2].arguments",
    "messages[2].tool_calls[0].id": "input[2].call_id",
    "messages[3].content": "input[3].output",
    "messages[3].tool_call_id": "input[3].call_id",
}


def test_a_texts_path_is_the_input() -> None:
    _, names = convert(input="Hi")

    assert names.of("messages[0].content") == "input"
