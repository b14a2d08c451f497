"""What an answer must look like: from a request's fields to a grammar that the engine enforces.

A grammar is checked here before any engine hears of it: the schema's own form, references, whether
anything finite can satisfy it, and whether llguidance can enforce all of it. What cannot be
enforced is refused, so an answer is never less constrained than its request says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import orjson
from llguidance import LLMatcher
from octavo.inference.v1 import inference_pb2 as pb

from router_svc.errors import ApiError, invalid
from router_svc.generation_types import Constraint

if TYPE_CHECKING:
    from collections.abc import Iterator

StructuredMessage: TypeAlias = pb.CreateChatCompletionRequest | pb.CreateCompletionRequest

MAX_GRAMMAR_BYTES = 256 * 1024
MAX_CHOICES_BYTES = 1024 * 1024
_MAX_ROUNDS = 64  # a chain of more references counts as endless
_ANY_OBJECT = '{"type":"object"}'
_SUBSCHEMAS = ("items", "additionalProperties", "not", "if", "then", "else", "contains")
_SUBSCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SUBSCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions")


def constraint_of(request: StructuredMessage) -> Constraint | None:
    """The grammar of a request's response_format or structured_outputs; None for free text.

    Takes milliseconds for a large schema, so it belongs on a thread. Raises ApiError, naming the
    field, for a grammar that is malformed, too large, unsatisfiable or not supported.
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
        case _:
            return None


def check_schema(text: str, param: str) -> None:
    """Raises ApiError, with `param`, for a JSON schema whose answers cannot be enforced.

    The message says where in the schema the fault is, as far as that is known.
    """
    _check_size(text, param)
    schema = orjson.loads(text)
    if not isinstance(schema, dict):
        raise _bad_schema(param, f"it must be an object, not {_json_type(schema)}")
    for pointer, part in _subschemas(schema, ""):
        reference = part.get("$ref")
        if isinstance(reference, str) and not reference.startswith("#"):
            raise _bad_schema(param, f"at {pointer or '/'}: only references within it are followed")
    _check(LLMatcher.grammar_from_json_schema(text), param, "schema")
    if not _Finite(schema).holds:
        raise _bad_schema(param, "nothing finite satisfies it: it requires itself without end")


def _structured_outputs(wanted: pb.StructuredOutputs) -> Constraint | None:
    given = [
        name for name in ("json", "regex", "grammar", "structural_tag") if wanted.HasField(name)
    ]
    given += ["choice"] if wanted.choice else []
    given += ["json_object"] if wanted.json_object else []
    if not given:
        raise invalid("structured_outputs", "needs json, regex, choice, grammar or structural_tag")
    if len(given) > 1:
        raise invalid("structured_outputs", f"{' and '.join(given)} exclude each other")
    param = f"structured_outputs.{given[0]}"
    match given[0]:
        case "json":
            text = _unquoted(wanted.json, param)
            check_schema(text, param)
            return Constraint("json_schema", text)
        case "json_object":
            return Constraint("json_schema", _ANY_OBJECT)
        case "regex":
            _check_size(wanted.regex, param)
            _check(LLMatcher.grammar_from_regex(wanted.regex), param, "regular expression")
            return Constraint("regex", wanted.regex)
        case "choice":
            return _choices(wanted, param)
        case "grammar":
            _check_size(wanted.grammar, param)
            return Constraint("ebnf", wanted.grammar)
        case _:
            text = _unquoted(wanted.structural_tag, param)
            _check_size(text, param)
            return Constraint("structural_tag", text)


def _choices(wanted: pb.StructuredOutputs, param: str) -> Constraint:
    for i, choice in enumerate(wanted.choice):
        if not choice:
            raise invalid(f"{param}[{i}]", "a choice must not be empty")
    size = sum(len(choice.encode()) for choice in wanted.choice)
    if size > MAX_CHOICES_BYTES:
        raise invalid(param, f"the choices have {size} bytes, at most {MAX_CHOICES_BYTES}")
    return Constraint("choice", choices=tuple(wanted.choice))


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


def _check_size(text: str, param: str) -> None:
    size = len(text.encode())
    if size > MAX_GRAMMAR_BYTES:
        raise invalid(param, f"the grammar has {size} bytes, at most {MAX_GRAMMAR_BYTES}")


def _check(grammar: str, param: str, what: str) -> None:
    fault = LLMatcher.validate_grammar(grammar)
    if fault:
        raise invalid(param, f"the {what} cannot be enforced: {' '.join(fault.split())}")


def _bad_schema(param: str, reason: str) -> ApiError:
    return invalid(param, f"the schema cannot be enforced: {reason}")


def _json_type(value: object) -> str:
    names = {bool: "a boolean", str: "a string", list: "an array", type(None): "null"}
    return names.get(type(value), "a number")


def _subschemas(schema: dict[str, Any], pointer: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema within a schema, itself first, with its JSON pointer."""
    stack = [(pointer, schema)]
    while stack:
        where, part = stack.pop()
        yield where, part
        children = [(key, part.get(key)) for key in _SUBSCHEMAS]
        for key in _SUBSCHEMA_LISTS:
            if isinstance(many := part.get(key), list):
                children += [(f"{key}/{i}", child) for i, child in enumerate(many)]
        for key in _SUBSCHEMA_MAPS:
            if isinstance(named := part.get(key), dict):
                children += [(f"{key}/{name}", child) for name, child in named.items()]
        stack += [(f"{where}/{key}", child) for key, child in children if isinstance(child, dict)]


class _Finite:
    """Whether a schema has a finite instance, as far as its references decide that.

    The least fixed point: a schema that needs itself has none until another way is found.
    """

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._finite: set[int] = set()
        # Children first, so that one round decides all but chains of references.
        unknown = [part for _, part in _subschemas(root, "")][::-1]
        for _ in range(_MAX_ROUNDS):
            before = len(unknown)
            unknown = [part for part in unknown if not self._learn(part)]
            if len(unknown) == before:
                return

    @property
    def holds(self) -> bool:
        return id(self._root) in self._finite

    def _learn(self, part: dict[str, Any]) -> bool:
        if self._holds_now(part):
            self._finite.add(id(part))
            return True
        return False

    def _known(self, part: Any) -> bool:
        return not isinstance(part, dict) or id(part) in self._finite

    def _holds_now(self, part: dict[str, Any]) -> bool:
        reference = part.get("$ref")
        if isinstance(reference, str) and not self._known(self._target(reference)):
            return False
        for key in ("anyOf", "oneOf"):
            if isinstance(many := part.get(key), list) and not any(map(self._known, many)):
                return False
        if isinstance(all_of := part.get("allOf"), list) and not all(map(self._known, all_of)):
            return False
        types = part.get("type")
        if types == "object":
            properties = part.get("properties")
            named = properties if isinstance(properties, dict) else {}
            required = part.get("required")
            return all(self._known(named.get(name)) for name in required or ())
        if types == "array" and part.get("minItems"):
            return self._known(part.get("items"))
        return True

    def _target(self, reference: str) -> Any:
        target: Any = self._root
        for step in reference.removeprefix("#").split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(target, dict):
                target = target.get(name)
            elif isinstance(target, list) and name.isdecimal() and int(name) < len(target):
                target = target[int(name)]
            else:
                return None
        return target
