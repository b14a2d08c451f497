"""The JSON form of request messages by reflection: an oracle independent of the generator."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st
from octavo.http.v1 import options_pb2
from public_services import METHODS

ROUTES = {
    method.GetOptions().Extensions[options_pb2.http].post: method.input_type
    for method in METHODS
    if method.GetOptions().Extensions[options_pb2.http].post
}

_INTEGERS = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
}


def rule_of(field: FieldDescriptor) -> options_pb2.FieldRule:
    """The options of a field."""
    return field.GetOptions().Extensions[options_pb2.field]


def json_name(field: FieldDescriptor) -> str:
    """The JSON key of a field, or the tag's value for a member of a union."""
    return rule_of(field).name or field.name


def shape_of(descriptor: Descriptor) -> options_pb2.MessageRule:
    """The options of a message."""
    return descriptor.GetOptions().Extensions[options_pb2.message]


def is_map(field: FieldDescriptor) -> bool:
    """Whether a field is a map."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def is_integer(field: FieldDescriptor) -> bool:
    """Whether a field, or each of its elements, is an integer."""
    return field.type in _INTEGERS


def type_bounds(field: FieldDescriptor) -> tuple[int, int]:
    """Lowest and highest integer of a field's type."""
    return _INTEGERS[field.type]


def bounds(field: FieldDescriptor, rule: options_pb2.FieldRule) -> tuple[int, int]:
    """Lowest and highest integer that a field takes."""
    low, high = _INTEGERS[field.type]
    if rule.HasField("minimum"):
        low = max(low, int(rule.minimum))
    if rule.HasField("maximum"):
        high = min(high, int(rule.maximum))
    return low, high


def to_json(message: Any) -> Any:
    """The JSON form of a message."""
    shape = shape_of(message.DESCRIPTOR)
    if shape.union:
        ((field, value),) = message.ListFields()
        form = _value(field, value)
        if shape.union == options_pb2.UNION_TAGGED:
            return {shape.tag: json_name(field)} | form
        return form
    members = {json_name(field): _member(field, value) for field, value in message.ListFields()}
    for field in message.DESCRIPTOR.fields:
        # A required field is written even where it holds its default, which protobuf does not list.
        if rule_of(field).required and json_name(field) not in members and not is_map(field):
            members[json_name(field)] = _member(field, getattr(message, field.name))
    if shape.bare_array or shape.bare_map:
        (field,) = message.DESCRIPTOR.fields
        return members.get(json_name(field), {} if shape.bare_map else [])
    return members


def _member(field: FieldDescriptor, value: Any) -> Any:
    if is_map(field):
        entry = field.message_type.fields_by_name["value"]
        return {str(key): _value(entry, item) for key, item in value.items()}
    if field.is_repeated:
        return [_value(field, item) for item in value]
    return _value(field, value)


def _value(field: FieldDescriptor, value: Any) -> Any:
    if rule_of(field).raw_json or rule_of(field).raw_json_object:
        return json.loads(value)
    if field.message_type is not None:
        return to_json(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number[value]
        if rule := named.GetOptions().Extensions[options_pb2.value].name:
            return rule
        name = named.name
        return name.removeprefix(field.enum_type.values[0].name.removesuffix("UNSPECIFIED")).lower()
    return value


# -- valid messages ----------------------------------------------------------------------------


@st.composite
def messages(draw: st.DrawFn, descriptor: Descriptor) -> Any:
    """Messages that keep every limit."""
    message = GetMessageClass(descriptor)()
    fields = list(descriptor.fields)
    if shape_of(descriptor).union:
        fields = [draw(st.sampled_from(fields))]
    for field in fields:
        rule = rule_of(field)
        if rule.refused:
            continue
        is_wanted = rule.required or bool(shape_of(descriptor).union) or draw(st.booleans())
        if is_wanted or rule.min_items:
            _fill(draw, message, field, rule)
    return message


def _fill(draw: st.DrawFn, message: Any, field: FieldDescriptor, rule: Any) -> None:
    if is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        entries = st.dictionaries(_scalars(key, options_pb2.FieldRule()), _scalars(value, rule))
        for name, item in draw(entries).items():
            if len(getattr(message, field.name)) < (rule.max_items or 5):
                getattr(message, field.name)[name] = item
    elif field.is_repeated:
        elements = messages(field.message_type) if field.message_type else _scalars(field, rule)
        count = {"min_size": rule.min_items, "max_size": min(rule.max_items or 3, 3)}
        getattr(message, field.name).extend(draw(st.lists(elements, **count)))
    elif field.message_type is not None:
        getattr(message, field.name).CopyFrom(draw(messages(field.message_type)))
        getattr(message, field.name).SetInParent()
    else:
        setattr(message, field.name, draw(_scalars(field, rule)))


def _scalars(field: FieldDescriptor, rule: Any) -> st.SearchStrategy[Any]:
    if field.type in _INTEGERS:
        return st.integers(*bounds(field, rule))
    if field.enum_type is not None:
        return st.sampled_from([value.number for value in field.enum_type.values if value.number])
    if field.type == FieldDescriptor.TYPE_BOOL:
        return st.booleans()
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        low = rule.above if rule.HasField("above") else rule.minimum
        return st.floats(low, rule.maximum, exclude_min=rule.HasField("above"))
    if rule.constant:
        return st.just(rule.constant)
    if rule.raw_json:
        return st.sampled_from(['[1,"a",{"b":null}]', '"text"', "5", "true", '{"a":{}}'])
    if rule.raw_json_object:
        return st.just('{"a":[1,null,{"b":"c"}]}')
    return st.text(max_size=min(rule.max_length or 20, 20))


# -- places of integers ------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Somewhere in a body where an integer stands."""

    route: str
    path: str
    low: int
    high: int
    body: Callable[[Any], Any]

    def __str__(self) -> str:
        return f"{self.route} {self.path}"


def integer_places() -> Iterator[Place]:
    """Every integer of every request body, however deep."""
    for route, descriptor in ROUTES.items():
        yield from _places(route, descriptor, "", lambda value: value)


def minimal(descriptor: Descriptor) -> Any:
    """The smallest body of a message."""
    shape = shape_of(descriptor)
    if shape.union:
        first = descriptor.fields[0]
        form = _smallest(first)
        return {shape.tag: json_name(first)} | form if shape.tag else form
    if shape.bare_array or shape.bare_map:
        return _smallest(descriptor.fields[0])
    wanted = [each for each in descriptor.fields if rule_of(each).required]
    return {json_name(field): _smallest(field) for field in wanted}


def _smallest(field: FieldDescriptor) -> Any:
    if is_map(field):
        return {}
    if field.message_type is not None:
        element = minimal(field.message_type)
    elif field.enum_type is not None:
        element = _value(field, 1)
    else:
        element = 1 if field.type in _INTEGERS else "a"
    return [element] if field.is_repeated else element


def _places(
    route: str, descriptor: Descriptor, path: str, wrap: Callable[[Any], Any]
) -> Iterator[Place]:
    shape = shape_of(descriptor)
    is_transparent = bool(shape.union) or shape.bare_array or shape.bare_map
    for field in descriptor.fields:
        if rule_of(field).refused:
            continue
        at = path if is_transparent else f"{path}.{json_name(field)}".lstrip(".")

        def inside(
            value: Any, field: FieldDescriptor = field, is_transparent: bool = is_transparent
        ) -> Any:
            if not is_transparent:
                return wrap(minimal(descriptor) | {json_name(field): value})
            return wrap({shape.tag: json_name(field)} | value if shape.tag else value)

        if is_map(field):
            key = field.message_type.fields_by_name["key"]
            if key.type in _INTEGERS:
                low, high = _INTEGERS[key.type]
                body = lambda number, inside=inside: inside({str(number): 1})  # noqa: E731 -- a closure
                yield Place(route, f"{at}.*", low, high, body)
            continue
        if field.is_repeated:
            at += "[0]"
            step = lambda value, inside=inside: inside([value])  # noqa: E731 -- a closure
        else:
            step = inside
        if field.message_type is not None:
            yield from _places(route, field.message_type, at, step)
        elif field.type in _INTEGERS:
            low, high = bounds(field, rule_of(field))
            yield Place(route, at, low, high, step)
