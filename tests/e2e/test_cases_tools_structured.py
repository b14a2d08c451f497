"""Tools and wanted forms of an answer: what users of other servers have reported."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.support import plain_http
from tests.support.lent_model import LentModel
from tests.support.processes import engine_of
from tests.support.public_api import CHAT, COMPLETIONS, Choice, PublicApi, chat_body
from tests.support.server import running_server

STOP_NAME = {
    "type": "object",
    "properties": {"stop_name": {"type": "string", "maxLength": 12}},
    "required": ["stop_name"],
    "additionalProperties": False,
}
NEXT_BUS = {"type": "function", "function": {"name": "next_bus", "parameters": STOP_NAME}}
NAMED = {"type": "function", "function": {"name": "next_bus"}}
LINKED_LIST = {
    "$ref": "#/$defs/n",
    "$defs": {
        "n": {
            "type": "object",
            "properties": {"next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}},
            "required": ["next"],
            "additionalProperties": False,
        }
    },
}
STEPS = {
    "type": "object",
    "properties": {"steps": {"type": "array", "maxItems": 2, "items": {"$ref": "#/$defs/s"}}},
    "required": ["steps"],
    "additionalProperties": False,
    "$defs": {
        "s": {
            "type": "object",
            "properties": {"e": {"type": "string", "maxLength": 8}},
            "required": ["e"],
            "additionalProperties": False,
        }
    },
}


def wanting(schema: object) -> dict[str, Any]:
    """A response_format of a JSON schema."""
    return {
        "type": "json_schema",
        "json_schema": {"name": "x", "strict": True, "schema": schema},
    }


def ask_both(api: PublicApi, body: dict[str, Any]) -> Choice:
    """The only choice of the whole answer, which the stream must equal."""
    (whole,) = api.whole(CHAT, **body).choices
    (streamed,) = api.streamed(CHAT, **body).choices
    assert [call["function"] for call in streamed.tool_calls] == [
        call["function"] for call in whole.tool_calls
    ]
    assert (streamed.text, streamed.finish_reason) == (whole.text, whole.finish_reason)
    return whole


def check_bus_call(choice: Choice) -> None:
    """There is one call, of the tool, with arguments that its schema allows."""
    (call,) = choice.tool_calls
    assert call["function"]["name"] == "next_bus"
    Draft202012Validator(STOP_NAME).validate(json.loads(call["function"]["arguments"]))


# Tools.


@pytest.mark.parametrize(
    ("tool_choice", "finish_reason"), [("required", "tool_calls"), (NAMED, "stop")]
)
def test_a_forced_call_is_valid_and_ends_as_openai_says(
    api: PublicApi, tool_choice: object, finish_reason: str
) -> None:
    """TOL-01, TOL-03"""
    body = chat_body("Good morning", tools=[NEXT_BUS], tool_choice=tool_choice, max_tokens=64)

    choice = ask_both(api, body | {"parallel_tool_calls": False})

    check_bus_call(choice)
    assert choice.finish_reason == finish_reason


@pytest.mark.parametrize("max_tokens", [1, 3, 6, 9])
def test_a_call_that_is_cut_off_ends_by_length(api: PublicApi, max_tokens: int) -> None:
    """TOL-01"""
    body = chat_body("hi", tools=[NEXT_BUS], tool_choice="required", max_tokens=max_tokens)

    choice = ask_both(api, body)

    assert choice.finish_reason == "length"


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        (
            {"tool_choice": {"type": "function", "function": {"name": "f"}}, "tools": [NEXT_BUS]},
            "tool_choice.function.name",
        ),
        ({"tool_choice": NAMED}, "tool_choice"),
        ({"tool_choice": NAMED, "tools": []}, "tool_choice"),
    ],
    ids=["unknown", "no-tools", "empty-tools"],
)
def test_a_choice_of_a_tool_that_is_not_there_is_refused(
    api: PublicApi, wrong: dict, param: str
) -> None:
    """TOL-03"""
    assert api.refused(CHAT, chat_body("bus?", **wrong))["param"] == param


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/chat/completions/render"])
def test_an_earlier_call_of_no_possible_function_is_refused(api: PublicApi, path: str) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "bus?"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "soon"},
    ]

    error = api.refused(path, {"messages": messages})

    assert error["param"] == "messages[1].tool_calls[0].function.name"


@pytest.mark.parametrize("arguments", ["", "{", "[]", "17", '{"stop_name": "harbour"}'])
def test_what_a_model_once_called_with_need_not_be_json(api: PublicApi, arguments: str) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [
        {"role": "user", "content": "bus?"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "soon"},
    ]

    assert api.ok(CHAT, messages=messages, max_tokens=2)["choices"]


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("max_tokens", [1, 2, 3, 7, 16])
def test_every_choice_with_tools_begins_with_its_role_and_finishes_once(
    api: PublicApi, n: int, max_tokens: int
) -> None:
    """STR-05"""
    body = chat_body(
        "When is the next bus?", tools=[NEXT_BUS], n=n, max_tokens=max_tokens, temperature=1
    )

    events = api.events(CHAT, **body)

    assert len({(event["id"], event["created"], event["model"]) for event in events}) == 1
    for index in range(n):
        chunks = [c for event in events for c in event["choices"] if c["index"] == index]
        assert chunks[0]["delta"] == {"role": "assistant", "content": ""}
        assert all("role" not in chunk["delta"] for chunk in chunks[1:])
        ends = [chunk for chunk in chunks if chunk["finish_reason"] is not None]
        assert ends == [chunks[-1]]


# Wanted forms.

IMPOSSIBLE = [
    {"type": "stsring"},
    {"type": "object", "properties": {"a": {"type": "integer", "minimum": "x"}}},
    {"$ref": "#/nope"},
    {"$ref": "#"},
    {"$ref": "http://127.0.0.1:9/schema.json"},
    True,
    "str",
    {"enum": []},
    {"type": "array", "minItems": 5, "maxItems": 2},
]


def test_impossible_schemas_are_refused_and_disturb_nobody(api: PublicApi) -> None:
    """JSO-01, JSO-05: a 400 that names response_format, from the router alone."""
    engine = engine_of(api.server).pid
    stories = [
        {"prompt": f"{topic} is", "max_tokens": 48, "ignore_eos": True, "temperature": 0}
        for topic in ("A ship", "The sea", "An island", "A storm")
    ]
    quiet = [api.whole(COMPLETIONS, **story) for story in stories]

    with ThreadPoolExecutor(len(stories)) as pool:
        streams = [pool.submit(api.streamed, COMPLETIONS, **story) for story in stories]
        errors = [
            api.refused(CHAT, chat_body("json please", response_format=wanting(schema)))
            for schema in IMPOSSIBLE
        ]
        disturbed = [stream.result() for stream in streams]

    assert {error["param"].split(".")[0] for error in errors} == {"response_format"}
    assert [answer.choices for answer in disturbed] == [answer.choices for answer in quiet]
    assert engine_of(api.server).pid == engine


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    "malformed",
    [
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": {}},
        {"type": "xml"},
        "json",
    ],
    ids=["no-schema", "empty", "unknown", "text"],
)
def test_a_malformed_response_format_is_refused_alike(
    api: PublicApi, path: str, malformed: object
) -> None:
    """JSO-03"""
    body = chat_body("x") if path == CHAT else {"prompt": "x"}

    error = api.refused(path, body | {"response_format": malformed, "max_tokens": 4})

    assert error["param"].startswith("response_format")
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize("schema", [STEPS, LINKED_LIST], ids=["defs", "recursive"])
@pytest.mark.parametrize("seed", range(3))
def test_references_and_recursion_give_valid_answers(
    api: PublicApi, schema: dict, seed: int
) -> None:
    """JSO-05"""
    body = chat_body("json please", max_tokens=96, temperature=1, seed=seed)

    choice = ask_both(api, body | {"response_format": wanting(schema)})

    if choice.finish_reason == "stop":
        Draft202012Validator(schema).validate(json.loads(choice.text))
    else:
        assert choice.finish_reason == "length"


def test_json_is_not_padded_with_white_space_for_ever(api: PublicApi) -> None:
    """JSO-07: one blank at most in a row, though the request does all it can to have newlines."""
    (newline,) = api.ok("/tokenize", prompt="\n")["tokens"]
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    body = chat_body("json please", max_tokens=200, temperature=1.5, seed=1)

    choice = ask_both(
        api, body | {"response_format": wanting(schema), "logit_bias": {str(newline): 20}}
    )

    assert choice.finish_reason == "stop"
    assert isinstance(json.loads(choice.text)["a"], int)
    assert not re.search(r"\s\s", choice.text)


def test_a_stop_string_cuts_structured_text_and_is_named(api: PublicApi) -> None:
    """JSO-09: the stop string wins, and stop_reason says that it did."""
    schema = {
        "type": "object",
        "properties": {"a": {"enum": ["x}y"]}},
        "required": ["a"],
        "additionalProperties": False,
    }

    choice = ask_both(
        api, chat_body("json please", response_format=wanting(schema), stop=["}"], max_tokens=96)
    )

    assert (choice.finish_reason, choice.stop_reason) == ("stop", "}")
    assert choice.text.endswith('"x')


# Errors before the first token.


def test_a_stream_that_no_engine_can_take_is_a_status(smollm2_gguf: Path, tmp_path: Path) -> None:
    """STR-03: refused by the router (400), and without an engine (503): never an empty 200."""
    model = LentModel(smollm2_gguf, tmp_path)
    with running_server(model.path, log=tmp_path / "log") as server:
        url = f"{server.url}{CHAT}"
        bad = chat_body("hi", stream=True, response_format=wanting({"contains": {"type": "nil"}}))
        refused = plain_http.post(url, json=bad)
        model.take_away()
        engine_of(server).kill()
        assert server.wait_until(lambda: plain_http.get(f"{server.url}/health").status_code == 503)
        homeless = plain_http.post(url, json=chat_body("hi", stream=True, max_tokens=4))

    assert (refused.status_code, homeless.status_code) == (400, 503)
    for answer in (refused, homeless):
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["error"]["message"]
