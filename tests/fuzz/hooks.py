"""What schemathesis is told about Octavo: smaller valid bodies, one error shape, streams by schema.

Loaded by schemathesis in its own environment (SCHEMATHESIS_HOOKS); see __main__.py.
"""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema_rs
import schemathesis
from schemathesis import Case
from schemathesis.checks import CheckContext
from schemathesis.generation import GenerationMode
from schemathesis.generation.meta import TestPhase
from schemathesis.hooks import HookContext

MOST_KEPT = 6  # optional fields
MOST_TOKENS = 4
SMALLEST_VOCABULARY = 64  # ids below are tokens of every model here
TOKEN_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
LARGEST_LIMIT = 512  # bodies at limits beyond this take long to make; other tests send those
ERROR = {"$ref": "#/components/schemas/ErrorResponse"}
_validators: dict[str, jsonschema_rs.Draft202012Validator] = {}  # by schema, of the one document


@schemathesis.hook
def before_load_schema(context: HookContext, raw_schema: dict[str, Any]) -> None:
    """Forgets the limits that need large bodies."""
    nodes: list[Any] = [raw_schema["components"]["schemas"]]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            for limit in ("maxItems", "maxLength", "maxProperties"):
                if isinstance(node.get(limit), int) and node[limit] > LARGEST_LIMIT:
                    del node[limit]
            nodes += node.values()
        elif isinstance(node, list):
            nodes += node


@schemathesis.hook
def before_call(context: HookContext, case: Case, kwargs: dict[str, Any]) -> None:
    """Makes a valid body likelier to be served: the served model, some text, a short answer.

    A random body also keeps few of its optional fields: with all of fifty at random values nearly
    every one is refused for the sense of one field.
    """
    meta = case.meta
    if meta is None or meta.generation.mode is not GenerationMode.POSITIVE:
        return
    if not isinstance(case.body, dict):
        return
    schema = _body_schema(case)
    body = {name: value for name, value in case.body.items() if name != "model"}
    chance = random.Random(json.dumps(body, sort_keys=True, default=str))
    if meta.phase.name is TestPhase.FUZZING:
        optional = sorted(set(body) - set(schema.get("required", ())))
        for name in chance.sample(optional, max(0, len(optional) - chance.randint(0, MOST_KEPT))):
            del body[name]
        if "stream" in schema["properties"] and chance.random() < 0.3:
            body["stream"] = True
    _shorten(body, schema["properties"], chance)
    for message in body.get("messages") or ():
        if isinstance(message, dict) and not message.get("content"):
            message["content"] = "hello"
    if not body.get("prompt", "hello"):
        body["prompt"] = "hello"
    if body.get("tokens"):
        body["tokens"] = [token % SMALLEST_VOCABULARY for token in body["tokens"]]
    case.body = body


def _shorten(body: dict[str, Any], known: dict[str, Any], chance: random.Random) -> None:
    names = [name for name in TOKEN_LIMITS if name in known]
    given = [name for name in names if body.get(name) is not None]
    for name in given or names[:1]:
        if name not in given or body[name] > MOST_TOKENS:
            body[name] = chance.randint(1, MOST_TOKENS)


@schemathesis.check
def one_error_shape(ctx: CheckContext, response: schemathesis.Response, case: Case) -> None:
    """Whatever fails, fails with the same JSON object, which names nothing internal."""
    if response.status_code < 400:
        return
    assert response.headers["content-type"] == ["application/json"], response.headers
    assert response.headers["x-request-id"], "an answer without x-request-id"
    _conform(case, ERROR, response.text)
    for internal in ("Traceback (most", '.py"', "object at 0x"):  # a request may well say "0x"
        assert internal not in response.json()["error"]["message"], response.text


@schemathesis.check
def stream_conforms(ctx: CheckContext, response: schemathesis.Response, case: Case) -> None:
    """Each event of a stream is what the OpenAPI document says, and no event is cut off."""
    if not response.headers.get("content-type", [""])[0].startswith("text/event-stream"):
        return
    content = case.operation.definition.raw["responses"]["200"]["content"]
    schema = content["text/event-stream"]["x-event-data"]
    frames = response.text.split("\n\n")
    assert frames.pop() == "", "the last event is cut off"
    events = [line for frame in frames for line in frame.splitlines() if line.startswith("data: ")]
    for event in events:
        data = event.removeprefix("data: ")
        if data != "[DONE]":
            _conform(case, ERROR if '"error":{' in data[:10] else schema, data)
    assert events, "a stream without an event"


def _body_schema(case: Case) -> dict[str, Any]:
    content = case.operation.definition.raw["requestBody"]["content"]
    name = content["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]
    return case.operation.schema.raw_schema["components"]["schemas"][name]


def _conform(case: Case, schema: dict[str, str], text: str) -> None:
    """The text must be JSON, without Python's extensions, of the schema."""
    document = case.operation.schema.raw_schema
    reference = schema["$ref"]
    if reference not in _validators:
        whole = {"$ref": reference, "components": document["components"]}
        _validators[reference] = jsonschema_rs.Draft202012Validator(whole)
    value = json.loads(text, parse_constant=_refuse_constant)
    errors = list(_validators[reference].iter_errors(value))
    assert not errors, f"{errors[0].message} at {list(errors[0].instance_path)} in {text[:2000]}"


def _refuse_constant(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")
