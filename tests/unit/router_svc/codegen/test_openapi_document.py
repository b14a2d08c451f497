"""The served OpenAPI document: valid, with the limits that the decoders keep."""

import json
from importlib import resources
from typing import Any

import jsonschema
import pytest

DOCUMENT: dict[str, Any] = json.loads(
    resources.files("router_svc.gen").joinpath("openapi.json").read_text("utf-8")
)
SCHEMAS = DOCUMENT["components"]["schemas"]


def validator(name: str) -> jsonschema.Draft202012Validator:
    """A validator of one schema of the document."""
    return jsonschema.Draft202012Validator(
        {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    )


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_a_valid_json_schema(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])


def references(value: Any) -> list[str]:
    """Every $ref below a value."""
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [found for item in value.values() for found in references(item)]
    return (
        [found for item in value for found in references(item)] if isinstance(value, list) else []
    )


def test_every_reference_leads_somewhere() -> None:
    assert {found.rsplit("/", 1)[1] for found in references(DOCUMENT)} == set(SCHEMAS)


def test_a_usual_request_is_valid() -> None:
    validator("CreateChatCompletionRequest").validate(
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "a"},
                {"role": "user", "content": [{"type": "text", "text": "b"}]},
            ],
            "stop": "x",
            "temperature": None,
            "logit_bias": {"5": -100},
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"unknown": 1},
        {"n": 0},
        {"top_p": 0},
        {"max_tokens": "1"},
        {"store": True},
        {"messages": []},
        {"messages": [{"role": "wizard", "content": "a"}]},
        {"stop": ["a"] * 17},
        {"logit_bias": {"abc": 1}},
        {"user": "u" * 513},
    ],
)
def test_a_bad_request_is_invalid_by_the_document_too(fields: dict[str, Any]) -> None:
    body = {"messages": [{"role": "user", "content": "a"}]} | fields

    assert not validator("CreateChatCompletionRequest").is_valid(body)


def test_a_stream_is_the_other_form_of_an_answer() -> None:
    content = DOCUMENT["paths"]["/v1/chat/completions"]["post"]["responses"]["200"]["content"]

    assert set(content) == {"application/json", "text/event-stream"}


@pytest.mark.parametrize("path", DOCUMENT["paths"])
def test_every_failure_has_the_one_error_body(path: str) -> None:
    for operation in DOCUMENT["paths"][path].values():
        for status, response in operation["responses"].items():
            if status != "200":
                schema = response["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/ErrorResponse"}


def test_limits_defaults_and_comments_are_told() -> None:
    n = SCHEMAS["CreateChatCompletionRequest"]["properties"]["n"]

    assert (n["minimum"], n["maximum"], n["default"]) == (1, 128, 1)
    assert n["description"] == "Number of answers."
