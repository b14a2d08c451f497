"""Emits `encode_<message>`: answer message in, JSON value out, keys in the fields' order."""

from octavo.http.v1 import options_pb2

from router_svc.codegen.model import Field, File, Kind, Message, Shape, UnsupportedError, snake
from router_svc.codegen.unions import enum_table
from router_svc.codegen.writer import Writer, first_line, literal


def emit_encoders(file: File) -> str:
    """The module of encoders of every message that an answer contains."""
    out = Writer()
    out.docstring(f"Answer messages of {file.source} to JSON values.")
    out.line()
    out.line("from collections.abc import Mapping")
    out.line("from typing import Any, Final")
    out.line()
    out.line(f"from {file.python_package} import {file.stem}_pb2 as pb")
    for line in file.imports(file.used_by(file.response_messages), "encode"):
        out.line(line)
    out.line("from router_svc.http import encoding as write")
    out.line()
    for name, enum in file.enums.items():
        if any(
            each.value.type_name == name
            for message in file.response_messages
            for each in file.messages[message].fields
        ):
            module = file.pb(name).partition(".")[0]
            with out.block(f"{enum_table(name)}: Final[Mapping[int, str | None]] = {{"):
                for value in enum.values:
                    shown = literal(value.json_name) if value.json_name else "None"
                    out.line(f"{module}.{value.name}: {shown},")
            out.line("}")
    for name in file.response_messages:
        message = file.messages[name]
        result = "dict[str, Any]" if message.shape is Shape.OBJECT else "Any"
        out.line()
        with out.block(f"def encode_{snake(name)}(message: pb.{name}) -> {result}:"):
            out.docstring(first_line(message.comment, name))
            match message.shape:
                case Shape.OBJECT:
                    _emit_object(out, file, message)
                case Shape.UNTAGGED:
                    _emit_untagged(out, file, message)
                case Shape.TAGGED:
                    _emit_tagged(out, file, message)
                case Shape.BARE_ARRAY | Shape.BARE_MAP:
                    out.line(f"return {_expression(file, message.fields[0])}")
        out.line()
    return out.text()


def _emit_object(out: Writer, file: File, message: Message) -> None:
    """A literal of the leading fields that are always there, then one statement per later field."""
    conditions = [_condition(each) for each in message.fields]
    leading = (
        conditions.index(next(filter(None, conditions), "")) if any(conditions) else len(conditions)
    )
    if leading == len(conditions):
        with out.block("return {"):
            _emit_entries(out, file, message.fields)
        out.line("}")
        return
    with out.block("body: dict[str, Any] = {"):
        _emit_entries(out, file, message.fields[:leading])
    out.line("}")
    for each, condition in zip(message.fields[leading:], conditions[leading:], strict=True):
        assign = f"body[{literal(each.json_name)}] = {_member(file, each)}"
        if condition:
            with out.block(f"if {condition}:"):
                out.line(assign)
        else:
            out.line(assign)
    out.line("return body")


def _emit_entries(out: Writer, file: File, fields: tuple[Field, ...]) -> None:
    for each in fields:
        comma = "" if each is fields[-1] else ","
        out.line(f"{literal(each.json_name)}: {_member(file, each)}{comma}")


def _condition(each: Field) -> str:
    """When the key is in the answer; "" is always."""
    if each.rule.constant:
        return ""
    if each.has_presence:
        return (
            "" if each.rule.unset == options_pb2.UNSET_NULL else f'message.HasField("{each.name}")'
        )
    if each.rule.omit_empty and (each.is_repeated or each.is_map):
        return f"message.{each.name}"
    return ""


def _member(file: File, each: Field) -> str:
    """The value of an object's key, null where it is unset and says so."""
    value = _expression(file, each)
    if each.has_presence and each.rule.unset == options_pb2.UNSET_NULL and not each.rule.constant:
        return f'{value} if message.HasField("{each.name}") else None'
    return value


def _expression(file: File, each: Field) -> str:
    target = f"message.{each.name}"
    if each.rule.constant:
        return literal(each.rule.constant)
    element = _scalar(file, each, "element")
    if each.is_map:
        key = "key" if each.key is not None and each.key.kind is Kind.STRING else "str(key)"
        if element == "element" and key == "key":
            return f"dict({target})"
        return f"{{{key}: {element} for key, element in {target}.items()}}"
    if each.is_repeated and each.value.kind is Kind.NUMBER:
        return f"write.numbers({target}, {literal(each.name)})"
    if each.is_repeated:
        return f"list({target})" if element == "element" else f"[{element} for element in {target}]"
    return _scalar(file, each, target)


def _scalar(file: File, each: Field, target: str) -> str:
    match each.value.kind:
        case Kind.MESSAGE:
            return f"{file.call('encode', each.value.type_name)}({target})"
        case Kind.ENUM:
            return f"{enum_table(each.value.type_name)}.get({target})"
        case Kind.NUMBER:
            return f"write.number({target}, {literal(each.name)})"
        case Kind.STRING if each.rule.raw_json or each.rule.raw_json_object:
            return f"write.json_value({target})"
        case _:
            return target


def _emit_untagged(out: Writer, file: File, message: Message) -> None:
    out.line(f'kind = message.WhichOneof("{message.oneof}")')
    for each in message.fields:
        with out.block(f'if kind == "{each.name}":'):
            out.line(f"return {_expression(file, each)}")
    out.line("return None")


def _emit_tagged(out: Writer, file: File, message: Message) -> None:
    out.line(f'kind = message.WhichOneof("{message.oneof}")')
    for each in message.fields:
        if each.value.kind is not Kind.MESSAGE:
            raise UnsupportedError(f"{message.name}.{each.name}: a tagged member is a message")
        with out.block(f'if kind == "{each.name}":'):
            tag = f"{literal(message.tag)}: {literal(each.json_name)}"
            out.line(f"return {{{tag}, **{_expression(file, each)}}}")
    out.line("return None")
