"""Emits `decode_<message>`: JSON value in, request message out."""

from router_svc.codegen.model import Field, File, Kind, Message, Shape, UnsupportedError, snake
from router_svc.codegen.unions import emit_untagged, enum_table
from router_svc.codegen.writer import Writer, first_line, literal, tuple_of


def emit_decoders(file: File) -> str:
    """The module of decoders of every message that a request contains."""
    out = Writer()
    out.docstring(f"JSON bodies to the request messages of {file.source}.")
    out.line()
    out.line("from collections.abc import Mapping")
    out.line("from typing import Final")
    out.line()
    out.line(f"from {file.python_package} import {file.stem}_pb2 as pb")
    for line in file.imports(file.used_by(file.request_messages), "decode"):
        out.line(line)
    out.line("from router_svc.http import checks")
    out.line("from router_svc.http import decoding as read")
    out.line("from router_svc.http.checks import join")
    out.line()
    for name in _enums(file):
        enum = file.enums[name]
        with out.block(f"{enum_table(name)}: Final[Mapping[str, {file.pb(name)}.ValueType]] = {{"):
            module = file.pb(name).partition(".")[0]
            for value in enum.values:
                if value.json_name:
                    out.line(f"{literal(value.json_name)}: {module}.{value.name},")
        out.line("}")
    for name in file.request_messages:
        _emit(out, file, file.messages[name])
    return out.text()


def _enums(file: File) -> list[str]:
    used = {
        each.value.type_name
        for name in file.request_messages
        for each in file.messages[name].fields
        if each.value.kind is Kind.ENUM
    }
    return [name for name in file.enums if name in used]


def _emit(out: Writer, file: File, message: Message) -> None:
    if message.shape is Shape.OBJECT:
        keys = ", ".join(literal(each.json_name) for each in message.fields)
        out.line(
            f"_{snake(message.name).upper()}_FIELDS: Final = frozenset({{{keys}}})"
            if keys
            else f"_{snake(message.name).upper()}_FIELDS: Final[frozenset[str]] = frozenset()"
        )
    out.line()
    out.line()
    with out.block(
        f"def decode_{snake(message.name)}(value: object, path: str) -> pb.{message.name}:"
    ):
        out.docstring(first_line(message.comment, message.name))
        if file.contains_itself(message.name):
            out.line("read.check_depth(path)")
        match message.shape:
            case Shape.OBJECT:
                _emit_object(out, file, message)
            case Shape.BARE_ARRAY | Shape.BARE_MAP:
                out.line(f"message = pb.{message.name}()")
                _emit_field(out, file, message.fields[0], "value", bare=True)
            case Shape.UNTAGGED:
                emit_untagged(out, file, message)
            case Shape.TAGGED:
                _emit_tagged(out, file, message)
        out.line("return message")
    out.line()
    out.line()


def _emit_object(out: Writer, file: File, message: Message) -> None:
    constant = f"_{snake(message.name).upper()}_FIELDS"
    required = [literal(each.json_name) for each in message.fields if each.rule.required]
    extra = f", {tuple_of(required)}" if required else ""
    if not message.fields:
        out.line(f"read.fields(value, path, {constant})")
        out.line(f"message = pb.{message.name}()")
        return
    out.line(f"fields = read.fields(value, path, {constant}{extra})")
    out.line(f"message = pb.{message.name}()")
    for each in message.fields:
        condition = f"(item := fields.get({literal(each.json_name)})) is not None"
        if each.rule.refused:
            condition += " and item is not False"
        with out.block(f"if {condition}:"):
            if each.rule.refused:
                out.line(
                    f"raise checks.refused(path, {literal(each.json_name)}, "
                    f"{literal(each.rule.refused)})"
                )
            else:
                _emit_field(out, file, each, "item")


def _emit_field(out: Writer, file: File, each: Field, item: str, *, bare: bool = False) -> None:
    name = literal("" if bare else each.json_name)
    target = f"message.{each.name}"
    limit = f", most={each.rule.max_items}" if each.rule.max_items else ""
    many = ", one_or_many=True" if each.rule.one_or_many else ""
    if each.is_map:
        _emit_map(out, file, each, item, bare, name, limit)
    elif not each.is_repeated:
        if each.value.kind is Kind.MESSAGE:
            out.line(f"{target}.CopyFrom({_read(file, each, item, 'path', name)})")
        else:
            out.line(f"{target} = {_read(file, each, item, 'path', name)}")
    elif each.value.kind is Kind.STRING and not (each.rule.raw_json or each.rule.raw_json_object):
        out.line(f"{target}.extend(read.strings({item}, path, {name}{limit}{many}))")
    elif each.value.kind is Kind.INTEGER and not each.rule.one_or_many:
        low, high = each.integer_bounds
        out.line(f"{target}.extend(read.integers({item}, path, {name}, {low}, {high}{limit}))")
    else:
        array = f"read.array({item}, path, {name}{limit}{many})"
        at = "path" if bare else f"join(path, {name})"
        if not bare:
            out.line(f"at = {at}")
            at = "at"
        with out.block(f"for index, element in enumerate({array}):"):
            where = f'f"{{{at}}}[{{index}}]"'
            if each.value.kind is Kind.MESSAGE:
                decode = file.call("decode", each.value.type_name)
                out.line(f"{target}.append({decode}(element, {where}))")
            else:
                out.line(f"{target}.append({_read(file, each, 'element', where, literal(''))})")


def _emit_map(
    out: Writer, file: File, each: Field, item: str, bare: bool, name: str, limit: str
) -> None:
    at = "path"
    if not bare:
        out.line(f"at = join(path, {name})")
        at = "at"
    assert each.key is not None
    entries = f"read.entries({item}, path, {name}{limit})"
    with out.block(f"for key, element in {entries}.items():"):
        if each.key.kind is Kind.INTEGER:
            low, high = each.key.type_bounds
            key = f"read.integer_key(key, {at}, {low}, {high})"
        elif each.key.kind is Kind.STRING:
            key = "key"
        else:
            raise UnsupportedError(f"{each.name}: a map's key is a string or an integer")
        value = _read(file, each, "element", at, "key")
        if each.value.kind is Kind.MESSAGE:
            out.line(f"message.{each.name}[{key}].CopyFrom({value})")
        else:
            out.line(f"message.{each.name}[{key}] = {value}")


def _read(file: File, each: Field, item: str, path: str, name: str) -> str:
    """The expression that reads one value."""
    rule = each.rule
    if each.value.kind is Kind.MESSAGE:
        return f"{file.call('decode', each.value.type_name)}({item}, join({path}, {name}))"
    if each.value.kind is Kind.ENUM:
        return f"read.choice({item}, {path}, {name}, {enum_table(each.value.type_name)})"
    if rule.raw_json or rule.raw_json_object:
        only = ", must_be_object=True" if rule.raw_json_object else ""
        return f"read.json_text({item}, {path}, {name}{only})"
    if rule.constant:
        return f"read.constant({item}, {path}, {name}, {literal(rule.constant)})"
    if each.value.kind is Kind.INTEGER:
        low, high = each.integer_bounds
        return f"read.integer({item}, {path}, {name}, {low}, {high})"
    return f"read.{each.value.kind}({item}, {path}, {name})"


def _emit_tagged(out: Writer, file: File, message: Message) -> None:
    tag = literal(message.tag)
    default = f", {literal(message.tag_default)}" if message.tag_default else ""
    out.line(f"kind, rest = read.tagged(value, path, {tag}{default})")
    with out.block("match kind:"):
        for each in message.fields:
            if each.value.kind is not Kind.MESSAGE:
                raise UnsupportedError(f"{message.name}.{each.name}: a tagged member is a message")
            if file.messages[each.value.type_name].shape is not Shape.OBJECT:
                raise UnsupportedError(f"{message.name}.{each.name}: a tagged member is an object")
            with out.block(f"case {literal(each.json_name)}:"):
                decode = file.call("decode", each.value.type_name)
                out.line(f"message = pb.{message.name}({each.name}={decode}(rest, path))")
        names = tuple_of([literal(each.json_name) for each in message.fields])
        with out.block("case _:"):
            out.line(f"raise checks.unknown_enum(kind, join(path, {tag}), {names})")
