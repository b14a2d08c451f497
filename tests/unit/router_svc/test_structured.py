"""Which wanted forms of an answer are enforced, and which are refused and why."""

from __future__ import annotations

import json
from typing import Any

import pytest
from octavo.grammars import MAX_TEXT_BYTES
from octavo.inference.v1 import inference_pb2 as pb

from router_svc.errors import ApiError
from router_svc.gen.inference_decode import (
    decode_create_chat_completion_request,
    decode_create_completion_request,
)
from router_svc.generation_types import Constraint
from router_svc.structured import check_schema, constraint_of

LINKED_LIST = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["next"],
        }
    },
}
ENDLESS = {"type": "object", "properties": {"x": {"$ref": "#"}}, "required": ["x"]}


def with_schema(schema: object) -> pb.CreateChatCompletionRequest:
    wanted = pb.JsonSchemaFormat(json_schema=pb.JsonSchema(schema=json.dumps(schema)))
    return pb.CreateChatCompletionRequest(response_format=pb.ResponseFormat(json_schema=wanted))


def refusal(request: pb.CreateChatCompletionRequest) -> ApiError:
    with pytest.raises(ApiError) as caught:
        constraint_of(request)
    return caught.value


def test_without_a_wanted_form_an_answer_is_free() -> None:
    request = pb.CreateChatCompletionRequest(
        response_format=pb.ResponseFormat(text=pb.TextFormat())
    )

    assert constraint_of(request) is None
    assert constraint_of(pb.CreateChatCompletionRequest()) is None


def test_json_object_is_the_schema_of_any_object() -> None:
    wanted = pb.ResponseFormat(json_object=pb.JsonObjectFormat())

    constraint = constraint_of(pb.CreateCompletionRequest(response_format=wanted))

    assert constraint == Constraint("json_schema", '{"type":"object"}')


@pytest.mark.parametrize(
    "tag",
    [
        {"format": {"type": "const_string", "value": "yes"}},
        {"triggers": ["<"], "structures": [{"begin": "<n>", "schema": {}, "end": ""}]},
    ],
)
def test_a_structural_tag_may_be_wanted_in_either_place_and_either_form(
    tag: dict[str, Any],
) -> None:
    whole = {"type": "structural_tag", **tag}
    body = {"messages": [{"role": "user", "content": "Hi"}]}

    requests = [
        decode_create_chat_completion_request({**body, "response_format": whole}, ""),
        decode_create_chat_completion_request(
            {**body, "structured_outputs": {"structural_tag": whole}}, ""
        ),
    ]

    for request in requests:
        constraint = constraint_of(request)
        assert constraint is not None
        assert constraint.kind == "structural_tag"
        wanted = json.loads(constraint.text)
        assert {key: wanted[key] for key in wanted if key != "type"} == tag


@pytest.mark.parametrize(
    ("tag", "told"),
    [
        ({}, "triggers must be an array"),
        ({"format": {"type": "token"}}, "format: the format 'token' is not supported"),
        ({"format": 1, "triggers": ["a"]}, "unknown key 'triggers'"),
        ({"format": {"type": "regex", "pattern": "a(?=b)"}}, "look-around"),
    ],
)
def test_a_structural_tag_that_cannot_be_enforced_is_refused(
    tag: dict[str, Any], told: str
) -> None:
    wanted = {"type": "structural_tag", **tag}

    error = refusal(decode_create_completion_request({"prompt": "", "response_format": wanted}, ""))

    assert error.param == "response_format"
    assert told in str(error)


@pytest.mark.parametrize("schema", [LINKED_LIST, {"enum": ["a", 1, None]}, {}])
def test_a_schema_is_passed_on_as_it_came(schema: dict[str, Any]) -> None:
    assert constraint_of(with_schema(schema)) == Constraint("json_schema", json.dumps(schema))


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "stsring"}, "Invalid type: stsring"),
        ({"type": "object", "properties": {"a": {"type": "integer", "minimum": "x"}}}, "minimum"),
        ({"$ref": "#/nope"}, "/nope"),
        (True, "must be a JSON object"),
        ("str", "must be a JSON object"),
        ({"enum": []}, "Unsatisfiable"),
        ({"type": "array", "minItems": 5, "maxItems": 2}, "minItems (5)"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, "minimum (5)"),
        ({"$ref": "#"}, "requires itself without end"),
        (ENDLESS, "requires itself without end"),
        ({"type": "array", "minItems": 1, "items": {"$ref": "#"}}, "requires itself without end"),
        ({"items": {"$ref": "http://x/y"}}, "http://x/y"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"not": {"type": "string"}}, "not"),
    ],
)
def test_a_schema_that_cannot_be_enforced_is_refused_with_the_reason(
    schema: object, reason: str
) -> None:
    error = refusal(with_schema(schema))

    assert error.param == "response_format"
    assert reason in str(error)


def test_a_long_chain_of_references_takes_linear_time_and_is_no_error_while_finite() -> None:
    definitions = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(1999)}
    schema = {"$ref": "#/$defs/d0", "$defs": {**definitions, "d1999": {"type": "null"}}}

    check_schema(json.dumps(schema), "response_format")


def test_a_schema_beyond_the_limit_is_refused_with_both_sizes() -> None:
    error = refusal(with_schema({"const": "x" * MAX_TEXT_BYTES}))

    assert str(MAX_TEXT_BYTES) in str(error)


@pytest.mark.parametrize(
    ("wanted", "constraint"),
    [
        ({"json": '{"type":"null"}'}, Constraint("json_schema", '{"type":"null"}')),
        ({"json": '"{\\"type\\":\\"null\\"}"'}, Constraint("json_schema", '{"type":"null"}')),
        ({"json_object": True}, Constraint("json_schema", '{"type":"object"}')),
        ({"regex": "[0-9]+"}, Constraint("regex", "[0-9]+")),
        ({"choice": ["yes", "no"]}, Constraint("choice", choices=("yes", "no"))),
        ({"grammar": 'start: "x"'}, Constraint("ebnf", 'start: "x"')),
    ],
)
def test_each_form_of_structured_outputs(wanted: dict[str, Any], constraint: Constraint) -> None:
    request = pb.CreateChatCompletionRequest(structured_outputs=pb.StructuredOutputs(**wanted))

    assert constraint_of(request) == constraint


@pytest.mark.parametrize(
    ("wanted", "param"),
    [
        ({}, "structured_outputs"),
        ({"regex": "a", "json_object": True}, "structured_outputs"),
        ({"regex": "("}, "structured_outputs.regex"),
        ({"json": '"{"'}, "structured_outputs.json"),
        ({"json": "[]"}, "structured_outputs.json"),
        ({"choice": ["a", ""]}, "structured_outputs.choice"),
    ],
)
def test_structured_outputs_that_mean_nothing_are_refused(
    wanted: dict[str, Any], param: str
) -> None:
    request = pb.CreateChatCompletionRequest(structured_outputs=pb.StructuredOutputs(**wanted))

    assert refusal(request).param == param


def test_two_ways_to_say_the_form_exclude_each_other() -> None:
    request = with_schema({"type": "null"})
    request.structured_outputs.regex = "a"

    assert refusal(request).param == "structured_outputs"
