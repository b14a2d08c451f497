"""Every integer of every request message, with a message that is valid but for it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from json_forms import bounds, is_integer, is_map, json_name, rule_of, shape_of
from public_services import METHODS


@dataclass(frozen=True)
class MessagePlace:
    """Somewhere in a request where an integer stands; `low` and `high` are what may stand there."""

    method: MethodDescriptor
    path: str
    field: FieldDescriptor
    low: int
    high: int
    message: Callable[[int], Message]

    def __str__(self) -> str:
        return f"{self.method.name} {self.path}"

    @property
    def rpc(self) -> str:
        """The method as a channel calls it."""
        return f"/{self.method.containing_service.full_name}/{self.method.name}"


def message_places() -> Iterator[MessagePlace]:
    """All of them; a streaming method takes the request of its twin."""
    for method in METHODS:
        if not method.server_streaming:
            yield from _places(method, method.input_type, "", lambda inner: inner)


def minimal_message(descriptor: Descriptor) -> Any:
    """The smallest valid message."""
    message = GetMessageClass(descriptor)()
    shape = shape_of(descriptor)
    fields = list(descriptor.fields)[:1] if shape.union else list(descriptor.fields)
    for field in fields:
        rule = rule_of(field)
        if (rule.required or rule.min_items or shape.union) and not is_map(field):
            _put(message, field, _smallest(field))
    return message


def _smallest(field: FieldDescriptor) -> Any:
    if field.message_type is not None:
        return minimal_message(field.message_type)
    if field.enum_type is not None or is_integer(field):
        return 1
    if rule_of(field).raw_json or rule_of(field).raw_json_object:
        return "{}"
    return rule_of(field).constant or "a"


def _put(message: Any, field: FieldDescriptor, value: Any) -> Any:
    """Sets a field, a list's only element; returns the message."""
    if field.is_repeated:
        message.ClearField(field.name)
        getattr(message, field.name).append(value)
    elif field.message_type is not None:
        getattr(message, field.name).CopyFrom(value)
        getattr(message, field.name).SetInParent()
    else:
        setattr(message, field.name, value)
    return message


def _places(
    method: MethodDescriptor, descriptor: Descriptor, path: str, wrap: Callable[[Any], Message]
) -> Iterator[MessagePlace]:
    shape = shape_of(descriptor)
    is_transparent = bool(shape.union) or shape.bare_array or shape.bare_map
    for field in descriptor.fields:
        if rule_of(field).refused or is_map(field):
            continue  # a map's keys take whatever their type holds
        at = path if is_transparent else f"{path}.{json_name(field)}".lstrip(".")
        at += "[0]" if field.is_repeated else ""

        def inside(value: Any, field: FieldDescriptor = field) -> Message:
            return wrap(_put(minimal_message(descriptor), field, value))

        if field.message_type is not None:
            yield from _places(method, field.message_type, at, inside)
        elif is_integer(field):
            low, high = bounds(field, rule_of(field))
            yield MessagePlace(method, at, field, low, high, inside)
