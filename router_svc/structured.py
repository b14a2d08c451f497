"""What an answer must look like: from a request's fields to a grammar that the engine enforces.

A grammar is checked here before any engine hears of it, by the same translation that the engine
uses: form and size, references, whether anything finite can satisfy a schema, and whether
llguidance can enforce all of it. What cannot be enforced is refused, so an answer is never less
constrained than its request says.
"""

from __future__ import annotations

from typing import TypeAlias

import orjson
from llguidance import LLMatcher
from octavo import grammars
from octavo.inference.v1 import inference_pb2 as pb
from octavo.lark import GrammarError

from router_svc.errors import invalid
from router_svc.generation_types import Constraint

StructuredMessage: TypeAlias = pb.CreateChatCompletionRequest | pb.CreateCompletionRequest

_ANY_OBJECT = '{"type":"object"}'


def constraint_of(request: StructuredMessage) -> Constraint | None:
    """The grammar of a request's response_format or structured_outputs; None for free text.

    Takes milliseconds for a large schema and a deep stack (octavo.grammars.STACK_BYTES), so it
    belongs on a thread for text. Raises ApiError, naming the field, for a grammar that is
    malformed, too large, unsatisfiable or not supported.
    """
    wanted = request.response_format.WhichOneof("kind") or "text"
    if request.HasField("structured_outputs"):
        if wanted != "text":
            raise invalid(
                "structured_outputs", "response_format and structured_outputs exclude each other"
            )
        return _structured_outputs(request.structured_outputs)
    match wanted:
        case "json_object":
            return Constraint("json_schema", _ANY_OBJECT)
        case "json_schema":
            text = request.response_format.json_schema.json_schema.schema
            check_schema(text, "response_format")
            return Constraint("json_schema", text)
        case "structural_tag":
            constraint = Constraint("structural_tag", _tag(request.response_format.structural_tag))
            check_constraint(constraint, "response_format")
            return constraint
        case _:
            return None


def check_schema(text: str, param: str) -> None:
    """Raises ApiError, with `param`, for a JSON schema that cannot be enforced.

    The message says where in the schema the fault is, as far as that is known.
    """
    check_constraint(Constraint("json_schema", text), param)


def check_constraint(constraint: Constraint, param: str) -> None:
    """Raises ApiError, with `param`, for a grammar that cannot be enforced."""
    try:
        lark = grammars.to_lark(constraint.kind, constraint.text, constraint.choices)
    except GrammarError as error:
        raise invalid(param, f"cannot be enforced: {error}") from error
    fault = LLMatcher.validate_grammar(LLMatcher.grammar_from_lark(lark))
    if fault:
        raise invalid(
            param,
            f"cannot be enforced: {grammars.explain(fault, constraint.kind, constraint.text)}",
        )


def _structured_outputs(wanted: pb.StructuredOutputs) -> Constraint:
    names = ("json", "regex", "grammar", "structural_tag")
    given = [name for name in names if wanted.HasField(name)]  # type: ignore[arg-type] # literals
    given += ["choice"] if wanted.choice else []
    given += ["json_object"] if wanted.json_object else []
    if not given:
        raise invalid("structured_outputs", "needs json, regex, choice, grammar or structural_tag")
    if len(given) > 1:
        raise invalid("structured_outputs", f"{' and '.join(given)} exclude each other")
    param = f"structured_outputs.{given[0]}"
    match given[0]:
        case "json":
            constraint = Constraint("json_schema", _unquoted(wanted.json, param))
        case "json_object":
            return Constraint("json_schema", _ANY_OBJECT)
        case "regex":
            constraint = Constraint("regex", wanted.regex)
        case "choice":
            constraint = Constraint("choice", choices=tuple(wanted.choice))
        case "grammar":
            constraint = Constraint("ebnf", wanted.grammar)
        case _:
            constraint = Constraint("structural_tag", _unquoted(wanted.structural_tag, param))
    check_constraint(constraint, param)
    return constraint


def _tag(wanted: pb.StructuralTagFormat) -> str:
    """A response_format's structural tag as one JSON text, of what is given."""
    parts = []
    if wanted.HasField("format"):
        parts.append(f'"format":{wanted.format}')
    if wanted.HasField("structures"):
        parts.append(f'"structures":{wanted.structures}')
    if wanted.triggers:
        parts.append(f'"triggers":{orjson.dumps(list(wanted.triggers)).decode()}')
    return f"{{{','.join(parts)}}}"


def _unquoted(json_text: str, param: str) -> str:
    """A schema may come as an object or as its text; either way as its text."""
    value = orjson.loads(json_text)
    if not isinstance(value, str):
        return json_text
    try:
        orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise invalid(param, "the text is not JSON") from error
    return value
