"""Emits the decoder of an untagged union: the member is told by the JSON type of the value.

Members may be of any kind as long as their JSON types differ; a union inside a union takes all the
types of its members. An enum and a string may stand together: a name that the enum lacks is the
string.
"""

from router_svc.codegen.model import Field, File, Kind, Message, Shape, UnsupportedError, snake
from router_svc.codegen.writer import Writer, literal

# Python type of a decoded JSON value → how an error calls it, in the order of the words.
_TYPE_NAMES = {
    "str": "a string",
    "bool": "a boolean",
    "int": "an integer",
    "float": "a number",
    "list": "an array",
    "dict": "an object",
}

_SCALARS = {
    Kind.STRING: "str",
    Kind.ENUM: "str",
    Kind.BOOLEAN: "bool",
    Kind.INTEGER: "int",
    Kind.NUMBER: "float",
}


def enum_table(name: str) -> str:
    """Name of the generated table of an enum's JSON strings."""
    return f"_{snake(name).upper()}"


def json_types(file: File, each: Field) -> tuple[str, ...]:
    """The Python types of a union member's (or list element's) decoded JSON."""
    if each.value.kind is not Kind.MESSAGE:
        return (_SCALARS[each.value.kind],)
    message = file.messages[each.value.type_name]
    match message.shape:
        case Shape.BARE_ARRAY:
            return ("list",)
        case Shape.UNTAGGED:
            types = [type_ for member in message.fields for type_ in json_types(file, member)]
            return tuple(dict.fromkeys(types))
        case _:
            return ("dict",)


def emit_untagged(out: Writer, file: File, message: Message) -> None:
    """The body of the decoder, which leaves the result in `message`."""
    out.line(f"message = pb.{message.name}()")
    arrays = [each for each in message.fields if json_types(file, each) == ("list",)]
    others = [each for each in message.fields if each not in arrays]
    # Every number is a float's too, and every string a string's: the narrower member comes first.
    others.sort(key=lambda each: each.value.kind in (Kind.NUMBER, Kind.STRING))
    _check_disjoint(file, message, others, bool(arrays))
    beside_string = any(each.value.kind is Kind.STRING for each in others)
    keyword = "if"
    for each in others:
        test = _test("value", json_types(file, each))
        if each.value.kind is Kind.ENUM and beside_string:
            test += f" and value in {enum_table(each.value.type_name)}"
        with out.block(f"{keyword} {test}:"):
            _emit_member(out, file, each)
        keyword = "elif"
    if arrays:
        with out.block(f"{keyword} type(value) is list:"):
            _emit_arrays(out, file, message, arrays)
    expected = [type_ for each in message.fields for type_ in json_types(file, each)]
    with out.block("else:"):
        out.line(f"raise read.wrong_type(path, {literal(_named(expected))}, value)")


def _check_disjoint(file: File, message: Message, others: list[Field], has_arrays: bool) -> None:
    types = ["list"] if has_arrays else []
    types += [type_ for each in others for type_ in json_types(file, each)]
    kinds = [each.value.kind for each in others]
    if kinds.count(Kind.ENUM) == 1 and kinds.count(Kind.STRING) == 1:
        types.remove("str")
    if len(set(types)) != len(types):
        raise UnsupportedError(f"{message.name}: two members have the same JSON type")


def _test(value: str, types: tuple[str, ...]) -> str:
    """The condition that a value has one of the types."""
    if "float" in types and "int" not in types:
        types = (*types, "int")
    return " or ".join(f"type({value}) is {type_}" for type_ in types)


def _named(types: list[str]) -> str:
    return " or ".join(_TYPE_NAMES[type_] for type_ in dict.fromkeys(types))


def _emit_member(out: Writer, file: File, each: Field) -> None:
    target = f"message.{each.name}"
    match each.value.kind:
        case Kind.MESSAGE:
            decode = file.call("decode", each.value.type_name)
            out.line(f"{target}.CopyFrom({decode}(value, path))")
        case Kind.ENUM:
            table = enum_table(each.value.type_name)
            out.line(f'{target} = read.choice(value, path, "", {table})')
        case Kind.INTEGER:
            low, high = each.integer_bounds
            with out.block(f"if not {low} <= value <= {high}:"):
                out.line(f'raise checks.out_of_range(value, path, "", {low}, {high})')
            out.line(f"{target} = value")
        case _:
            out.line(f"{target} = value")


def _emit_arrays(out: Writer, file: File, message: Message, arrays: list[Field]) -> None:
    """Arrays are told apart by their first element; an empty one is the first member's."""
    first, *rest = arrays
    if not rest:
        _emit_member(out, file, first)
        return
    types = [json_types(file, file.messages[each.value.type_name].fields[0]) for each in arrays]
    flat = [type_ for each in types for type_ in each]
    if len(set(flat)) != len(flat):
        raise UnsupportedError(f"{message.name}: two arrays have elements of the same JSON type")
    out.line("first = value[0] if value else None")
    with out.block(f"if not value or {_test('first', types[0])}:"):
        _emit_member(out, file, first)
    for each, of_element in zip(rest, types[1:], strict=True):
        with out.block(f"elif {_test('first', of_element)}:"):
            _emit_member(out, file, each)
    with out.block("else:"):
        out.line(f'raise read.wrong_type(f"{{path}}[0]", {literal(_named(flat))}, first)')
