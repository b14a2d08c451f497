"""Descriptors, options and comments of a proto file in one typed view.

descriptors + options ─ read_file ─► File ─┬─► decoders, validators     (messages of requests)
                                           ├─► encoders                 (messages of answers)
                                           ├─► handler, routes, servicer (services)
                                           └─► OpenAPI document
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum

from octavo.http.v1 import options_pb2


class Kind(StrEnum):
    """JSON-relevant type of one value."""

    STRING = "string"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    ENUM = "enum"
    MESSAGE = "message"


class Shape(StrEnum):
    """How a message looks as JSON."""

    OBJECT = "object"
    UNTAGGED = "untagged union"
    TAGGED = "tagged union"
    BARE_ARRAY = "bare array"
    BARE_MAP = "bare map"


class UnsupportedError(Exception):
    """The proto uses something that has no JSON form here; the message names the element."""


@dataclass(frozen=True)
class Value:
    """Type of one value: a singular field, a list's element, or a map's key or value."""

    kind: Kind
    type_name: str = ""
    type_bounds: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Field:
    """One field of a message."""

    name: str
    json_name: str
    comment: str
    value: Value
    key: Value | None
    is_repeated: bool
    has_presence: bool
    is_optional: bool
    rule: options_pb2.FieldRule

    @property
    def is_map(self) -> bool:
        """Whether the field is a map."""
        return self.key is not None

    @property
    def integer_bounds(self) -> tuple[int, int]:
        """The tighter of the proto type's bounds and the rule's, for integers."""
        low, high = self.value.type_bounds
        if self.rule.HasField("minimum"):
            low = max(low, int(self.rule.minimum))
        if self.rule.HasField("above"):
            low = max(low, int(self.rule.above) + 1)
        if self.rule.HasField("maximum"):
            high = min(high, int(self.rule.maximum))
        return low, high

    @property
    def has_bounds(self) -> bool:
        """Whether the rule bounds the number."""
        return any(self.rule.HasField(bound) for bound in ("minimum", "maximum", "above"))


@dataclass(frozen=True)
class Message:
    """One message."""

    name: str
    comment: str
    shape: Shape
    tag: str
    oneof: str
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class EnumValue:
    """One value of an enum; `json_name` is empty for the zero value, which JSON cannot name."""

    name: str
    number: int
    json_name: str
    comment: str


@dataclass(frozen=True)
class Enum:
    """One enum."""

    name: str
    comment: str
    values: tuple[EnumValue, ...]


@dataclass(frozen=True)
class Method:
    """One RPC. `verb` and `path` are empty where it has no HTTP route."""

    name: str
    comment: str
    request: str
    response: str
    is_streaming: bool
    verb: str
    path: str
    streaming_rpc: str
    stream_end: str

    @property
    def function(self) -> str:
        """Name of the handler's method."""
        return snake(self.name)

    @property
    def path_field(self) -> str:
        """The request's field that the end of the path binds, or ""."""
        match = re.search(r"\{(\w+)\}$", self.path)
        return match.group(1) if match else ""


@dataclass(frozen=True)
class Service:
    """One service."""

    name: str
    comment: str
    methods: tuple[Method, ...]

    def method(self, name: str) -> Method:
        """The RPC of this name."""
        for method in self.methods:
            if method.name == name:
                return method
        raise UnsupportedError(f"{self.name} has no RPC {name}")


@dataclass(frozen=True)
class File:
    """One proto file with the services that it declares."""

    package: str
    stem: str
    python_package: str
    source: str
    messages: dict[str, Message]
    enums: dict[str, Enum]
    services: tuple[Service, ...]
    request_messages: tuple[str, ...] = field(default=())
    response_messages: tuple[str, ...] = field(default=())


def snake(name: str) -> str:
    """CamelCase to snake_case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
