"""Emits the OpenAPI 3.1 document from the options that also make decoders and encoders."""

import json
from collections.abc import Iterable
from typing import Any

from octavo.http.v1 import options_pb2

from router_svc.codegen.model import Enum, Field, File, Kind, Message, Method, Service, Shape
from router_svc.errors import ErrorKind

_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string", "description": "What went wrong, for people."},
                "type": {
                    "type": "string",
                    "enum": sorted({kind.openai_type for kind in ErrorKind}),
                },
                "param": {
                    "type": ["string", "null"],
                    "description": "Path of the field at fault, for example messages[0].role.",
                },
                "code": {
                    "type": ["string", "null"],
                    "description": "A stable word for programs, such as context_length_exceeded.",
                },
            },
        }
    },
}

# 499 is never seen by the client that caused it; 405 is no answer of an operation in the document.
_UNDOCUMENTED = {405, 499}
_BODY_ONLY = {408, 413, 415, 422}


def emit_openapi(files: list[File]) -> str:
    """The document of all services, as indented JSON."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {"ErrorResponse": _ERROR_SCHEMA}
    names = _Names(files)
    for file in files:
        for name in file.request_messages:
            schemas[names.of(name, is_request=True)] = _message_schema(file, names, name, True)
        for name in file.response_messages:
            schemas[names.of(name, is_request=False)] = _message_schema(file, names, name, False)
        for service in file.services:
            for method in service.methods:
                if method.path:
                    operation = _operation(file, names, service, method)
                    paths.setdefault(method.path, {})[method.verb.lower()] = operation
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "Octavo",
            "version": "1",
            "description": "\n\n".join(
                service.comment for file in files for service in file.services
            ),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": _referenced(paths, schemas),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
        # A key is needed only where the server was started with one.
        "security": [{}, {"bearer": []}, {"apiKey": []}],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _referenced(paths: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """The schemas that the paths lead to, by name; a tagged member is inside its union's."""
    kept: dict[str, Any] = {}
    pending: list[Any] = [paths]
    while pending:
        item = pending.pop()
        if isinstance(item, list):
            pending.extend(item)
        elif isinstance(item, dict):
            pending.extend(item.values())
            name = str(item.get("$ref", "")).rsplit("/", 1)[-1]
            if name and name not in kept:
                kept[name] = schemas[name]
                pending.append(schemas[name])
    return dict(sorted(kept.items()))


class _Names:
    """Schema names: a message of both directions has a schema for each, as they differ."""

    def __init__(self, files: list[File]) -> None:
        self._both = {
            name for file in files for name in {*file.request_messages} & {*file.response_messages}
        }

    def of(self, message: str, *, is_request: bool) -> str:
        """The name of a message's schema in one direction."""
        if message not in self._both:
            return message
        return f"{message}Input" if is_request else f"{message}Output"


def _operation(file: File, names: _Names, service: Service, method: Method) -> dict[str, Any]:
    summary, _, rest = method.comment.partition("\n")
    operation: dict[str, Any] = {"operationId": method.function, "summary": summary}
    more = [rest.strip()] if rest.strip() else []
    if method.also:
        more.append(f"Also at {', '.join(method.also)}.")
    if more:
        operation["description"] = "\n\n".join(more)
    if method.path_field:
        field = next(
            each for each in file.messages[method.request].fields if each.name == method.path_field
        )
        operation["parameters"] = [
            {
                "name": field.name,
                "in": "path",
                "required": True,
                "description": f"{field.comment} Slashes may be sent as they are.",
                "schema": {"type": "string"},
            }
        ]
    content = {"application/json": {"schema": _ref(names.of(method.response, is_request=False))}}
    description = "The answer."
    if method.verb == "POST":
        schema = _ref(names.of(method.request, is_request=True))
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
        if method.streaming_rpc:
            twin = service.method(method.streaming_rpc)
            chunk = names.of(twin.response, is_request=False)
            end = f"; a stream that succeeds ends with {method.stream_end}" * bool(
                method.stream_end
            )
            key = f", and its name the data's {method.event_key}" * bool(method.event_key)
            description = (
                f"The answer or, if stream is true, server-sent events: each event's data is a "
                f"{chunk}{key}, or an ErrorResponse after which the stream ends{end}."
            )
            # OpenAPI 3.1 cannot type the events of a stream; the extension names their schema.
            content["text/event-stream"] = {"schema": {}, "x-event-data": _ref(chunk)}
    operation["responses"] = {
        "200": {"description": description, "content": content},
        **_errors(has_body=method.verb == "POST"),
    }
    return operation


def _errors(*, has_body: bool) -> dict[str, Any]:
    meanings: dict[int, str] = {}
    for kind in ErrorKind:
        if kind.http_status not in _UNDOCUMENTED and (
            has_body or kind.http_status not in _BODY_ONLY
        ):
            meanings.setdefault(kind.http_status, kind.safe_message)
    return {
        str(status): {
            "description": meaning,
            "content": {"application/json": {"schema": _ref("ErrorResponse")}},
        }
        for status, meaning in sorted(meanings.items())
    }


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _message_schema(file: File, names: _Names, name: str, is_request: bool) -> dict[str, Any]:
    message = file.messages[name]
    described = {"description": message.comment} if message.comment else {}
    match message.shape:
        case Shape.BARE_ARRAY | Shape.BARE_MAP:
            return described | _field_schema(file, names, message.fields[0], is_request)
        case Shape.UNTAGGED:
            forms = [_field_schema(file, names, each, is_request) for each in message.fields]
            if not is_request:
                forms.append({"type": "null"})
            return described | {"anyOf": forms}
        case Shape.TAGGED:
            return described | {
                "oneOf": [
                    _tagged_member(file, names, message, each, is_request)
                    for each in message.fields
                ]
            }
        case _:
            return described | _object_schema(file, names, message.fields, is_request)


def _tagged_member(
    file: File, names: _Names, message: Message, each: Field, is_request: bool
) -> dict[str, Any]:
    """The member's schema with the tag among its fields; additionalProperties forbids allOf."""
    member = file.messages[each.value.type_name]
    schema = _object_schema(file, names, member.fields, is_request)
    schema["properties"] = {message.tag: {"const": each.json_name}} | schema["properties"]
    if not (is_request and each.json_name == message.tag_default):
        schema["required"] = [message.tag, *schema.get("required", [])]
    return schema


def _object_schema(
    file: File, names: _Names, fields: Iterable[Field], is_request: bool
) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    required = []
    for each in fields:
        schema["properties"][each.json_name] = _property(file, names, each, is_request)
        if each.rule.required if is_request else _is_always_sent(each):
            required.append(each.json_name)
    if required:
        schema["required"] = required
    if is_request:
        schema["additionalProperties"] = False
    return schema


def _is_always_sent(each: Field) -> bool:
    if each.has_presence:
        return each.rule.unset == options_pb2.UNSET_NULL
    return not each.rule.omit_empty


def _property(file: File, names: _Names, each: Field, is_request: bool) -> dict[str, Any]:
    description = [each.comment] if each.comment else []
    if is_request and each.rule.no_effect:
        description.append(f"Accepted without effect: {each.rule.no_effect}.")
    if is_request and each.rule.refused:
        description.append(f"Refused: {each.rule.refused}.")
        schema: dict[str, Any] = {"enum": [False, None]}
    else:
        schema = _field_schema(file, names, each, is_request)
        if not each.rule.required if is_request else each.rule.unset == options_pb2.UNSET_NULL:
            schema = _nullable(schema)
    extra: dict[str, Any] = {"description": "\n".join(description)} if description else {}
    if is_request and each.rule.default_json:
        extra["default"] = json.loads(each.rule.default_json)
    return schema | extra


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if not schema:
        return schema
    if isinstance(schema.get("type"), str) and "enum" not in schema and "const" not in schema:
        return schema | {"type": [schema["type"], "null"]}
    if "anyOf" in schema:
        return schema | {"anyOf": [*schema["anyOf"], {"type": "null"}]}
    return {"anyOf": [schema, {"type": "null"}]}


def _field_schema(file: File, names: _Names, each: Field, is_request: bool) -> dict[str, Any]:
    value = _value_schema(file, names, each, is_request)
    rule = each.rule
    if each.is_map:
        schema: dict[str, Any] = {"type": "object", "additionalProperties": value}
        if each.key is not None and each.key.kind is Kind.INTEGER:
            schema["propertyNames"] = {"pattern": "^(0|-?[1-9][0-9]*)$"}
        elif is_request and rule.max_length:
            schema["propertyNames"] = {"maxLength": rule.max_length}
        return schema | _count(each, "minProperties", "maxProperties")
    if each.is_repeated:
        array = {"type": "array", "items": value} | _count(each, "minItems", "maxItems")
        return {"anyOf": [value, array]} if rule.one_or_many else array
    return value


def _count(each: Field, low: str, high: str) -> dict[str, Any]:
    bounds = {}
    if each.rule.min_items:
        bounds[low] = each.rule.min_items
    if each.rule.max_items:
        bounds[high] = each.rule.max_items
    return bounds


def _value_schema(file: File, names: _Names, each: Field, is_request: bool) -> dict[str, Any]:
    rule = each.rule
    match each.value.kind:
        case Kind.MESSAGE:
            return _ref(names.of(each.value.type_name, is_request=is_request))
        case Kind.ENUM:
            return _enum_schema(file.enums[each.value.type_name])
        case Kind.INTEGER:
            low, high = each.integer_bounds
            return {"type": "integer", "minimum": low, "maximum": high}
        case Kind.NUMBER:
            return {"type": "number"} | _number_bounds(each)
        case Kind.STRING if rule.constant:
            return {"type": "string", "const": rule.constant}
        case Kind.STRING if rule.raw_json_object:
            return {"type": "object"}
        case Kind.STRING if rule.raw_json:
            return {}
        case _:
            length = {"maxLength": rule.max_length} if rule.max_length else {}
            return {"type": str(each.value.kind)} | length


def _number_bounds(each: Field) -> dict[str, Any]:
    bounds = {}
    if each.rule.HasField("minimum"):
        bounds["minimum"] = each.rule.minimum
    if each.rule.HasField("above"):
        bounds["exclusiveMinimum"] = each.rule.above
    if each.rule.HasField("maximum"):
        bounds["maximum"] = each.rule.maximum
    return bounds


def _enum_schema(enum: Enum) -> dict[str, Any]:
    named = [value for value in enum.values if value.json_name]
    lines = [enum.comment, *(f"{value.json_name}: {value.comment}" for value in named)]
    return {
        "type": "string",
        "enum": [value.json_name for value in named],
        "description": "\n".join(line for line in lines if line),
    }
