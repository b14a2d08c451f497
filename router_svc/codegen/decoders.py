"""Emits `decode_<message>`: JSON value in, request message out."""

from router_svc.codegen.model import Field, File, Kind, Message, Shape, UnsupportedError, snake
from router_svc.codegen.writer import Writer, first_line, literal, tuple_of

_JSON_TYPES = {
    Kind.STRING: ("a string", "str"),
    Kind.BOOLEAN: ("a boolean", "bool"),
    Kind.INTEGER: ("an integer", "int"),
}


def emit_decoders(file: File) -> str:
    """The module of decoders of every message that a request contains."""
    out = Writer()
    out.docstring(f"JSON bodies to the request messages of {file.source}.")
    out.line()
    out.line("from collections.abc import Mapping")
    out.line("from typing import Final")
    out.line()
    out.line(f"from {file.python_package} import {file.stem}_pb2 as pb")
    out.line("from router_svc.http import checks")
    out.line("from router_svc.http import decoding as read")
    out.line("from router_svc.http.checks import join")
    out.line()
    for name in _enums(file):
        enum = file.enums[name]
        with out.block(f"{_constant(name)}: Final[Mapping[str, pb.{name}.ValueType]] = {{"):
            for value in enum.values:
                if value.json_name:
                    out.line(f"{literal(value.json_name)}: pb.{value.name},")
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


def _constant(name: str) -> str:
    return f"_{snake(name).upper()}"


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
        match message.shape:
            case Shape.OBJECT:
                _emit_object(out, message)
            case Shape.BARE_ARRAY | Shape.BARE_MAP:
                out.line(f"message = pb.{message.name}()")
                _emit_field(out, message.fields[0], "value", bare=True)
            case Shape.UNTAGGED:
                _emit_untagged(out, file, message)
            case Shape.TAGGED:
                _emit_tagged(out, message)
        out.line("return message")
    out.line()
    out.line()


def _emit_object(out: Writer, message: Message) -> None:
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
                _emit_field(out, each, "item")


def _emit_field(out: Writer, each: Field, item: str, *, bare: bool = False) -> None:
    name = literal("" if bare else each.json_name)
    target = f"message.{each.name}"
    limit = f", most={each.rule.max_items}" if each.rule.max_items else ""
    many = ", one_or_many=True" if each.rule.one_or_many else ""
    if each.is_map:
        _emit_map(out, each, item, bare, name, limit)
    elif not each.is_repeated:
        if each.value.kind is Kind.MESSAGE:
            out.line(f"{target}.CopyFrom({_read(each, item, 'path', name)})")
        else:
            out.line(f"{target} = {_read(each, item, 'path', name)}")
    elif each.value.kind is Kind.STRING and not each.rule.raw_json:
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
                decode = f"decode_{snake(each.value.type_name)}"
                out.line(f"{target}.append({decode}(element, {where}))")
            else:
                out.line(f"{target}.append({_read(each, 'element', where, literal(''))})")


def _emit_map(out: Writer, each: Field, item: str, bare: bool, name: str, limit: str) -> None:
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
        out.line(f"message.{each.name}[{key}] = {_read(each, 'element', at, 'key')}")


def _read(each: Field, item: str, path: str, name: str) -> str:
    """The expression that reads one value."""
    rule = each.rule
    if each.value.kind is Kind.MESSAGE:
        return f"decode_{snake(each.value.type_name)}({item}, join({path}, {name}))"
    if each.value.kind is Kind.ENUM:
        return f"read.choice({item}, {path}, {name}, {_constant(each.value.type_name)})"
    if rule.raw_json or rule.raw_json_object:
        only = ", must_be_object=True" if rule.raw_json_object else ""
        return f"read.json_text({item}, {path}, {name}{only})"
    if rule.constant:
        return f"read.constant({item}, {path}, {name}, {literal(rule.constant)})"
    if each.value.kind is Kind.INTEGER:
        low, high = each.integer_bounds
        return f"read.integer({item}, {path}, {name}, {low}, {high})"
    return f"read.{each.value.kind}({item}, {path}, {name})"


def _emit_tagged(out: Writer, message: Message) -> None:
    tag = literal(message.tag)
    out.line(f"kind, rest = read.tagged(value, path, {tag})")
    with out.block("match kind:"):
        for each in message.fields:
            if each.value.kind is not Kind.MESSAGE:
                raise UnsupportedError(f"{message.name}.{each.name}: a tagged member is a message")
            with out.block(f"case {literal(each.json_name)}:"):
                decode = f"decode_{snake(each.value.type_name)}"
                out.line(f"message = pb.{message.name}({each.name}={decode}(rest, path))")
        names = tuple_of([literal(each.json_name) for each in message.fields])
        with out.block("case _:"):
            out.line(f"raise checks.unknown_enum(kind, join(path, {tag}), {names})")


def _emit_untagged(out: Writer, file: File, message: Message) -> None:
    out.line(f"message = pb.{message.name}()")
    arrays = [each for each in message.fields if json_type(file, each) == "list"]
    others = [each for each in message.fields if each not in arrays]
    types = [json_type(file, each) for each in others]
    if len(set(types)) != len(types):
        raise UnsupportedError(f"{message.name}: two members have the same JSON type")
    keyword = "if"
    for each, type_ in zip(others, types, strict=True):
        test = (
            "type(value) is float or type(value) is int"
            if type_ == "float"
            else f"type(value) is {type_}"
        )
        with out.block(f"{keyword} {test}:"):
            if each.value.kind is Kind.MESSAGE:
                out.line(_copy(each))
            elif each.value.kind is Kind.INTEGER:
                low, high = each.integer_bounds
                with out.block(f"if not {low} <= value <= {high}:"):
                    out.line(f'raise checks.out_of_range(value, path, "", {low}, {high})')
                out.line(f"message.{each.name} = value")
            else:
                out.line(f"message.{each.name} = value")
        keyword = "elif"
    if arrays:
        with out.block(f"{keyword} type(value) is list:"):
            _emit_arrays(out, file, message, arrays)
    expected = literal(expected_types(file, message))
    with out.block("else:"):
        out.line(f"raise read.wrong_type(path, {expected}, value)")


def _emit_arrays(out: Writer, file: File, message: Message, arrays: list[Field]) -> None:
    """Arrays are told apart by their first element; an empty one is the first member's."""
    first, *rest = arrays
    if not rest:
        out.line(_copy(first))
        return
    types = [json_type(file, file.messages[each.value.type_name].fields[0]) for each in arrays]
    if len(set(types)) != len(types):
        raise UnsupportedError(f"{message.name}: two arrays have elements of the same JSON type")
    out.line("first = value[0] if value else None")
    with out.block(f"if not value or type(first) is {types[0]}:"):
        out.line(_copy(first))
    for each, type_ in zip(rest, types[1:], strict=True):
        with out.block(f"elif type(first) is {type_}:"):
            out.line(_copy(each))
    expected = literal(" or ".join(_type_name(type_) for type_ in types))
    with out.block("else:"):
        out.line(f'raise read.wrong_type(f"{{path}}[0]", {expected}, first)')


def _copy(each: Field) -> str:
    decode = f"decode_{snake(each.value.type_name)}"
    return f"message.{each.name}.CopyFrom({decode}(value, path))"


def json_type(file: File, each: Field) -> str:
    """The Python type of a union member's (or list element's) decoded JSON."""
    if each.value.kind is Kind.MESSAGE:
        shape = file.messages[each.value.type_name].shape
        if shape is Shape.BARE_ARRAY:
            return "list"
        if shape in (Shape.OBJECT, Shape.BARE_MAP, Shape.TAGGED):
            return "dict"
        raise UnsupportedError(f"{each.name}: a union cannot be a member of an untagged union")
    if each.value.kind is Kind.NUMBER:
        return "float"
    if each.value.kind in _JSON_TYPES:
        return _JSON_TYPES[each.value.kind][1]
    raise UnsupportedError(f"{each.name}: an enum cannot be a member of an untagged union")


def expected_types(file: File, message: Message) -> str:
    """How an error names the forms of an untagged union."""
    names = list(dict.fromkeys(_type_name(json_type(file, each)) for each in message.fields))
    return " or ".join(names)


def _type_name(python_type: str) -> str:
    names = {python: text for text, python in _JSON_TYPES.values()}
    return (
        names.get(python_type)
        or {"float": "a number", "list": "an array", "dict": "an object"}[python_type]
    )
