"""Descriptors, options and comments of proto files in one typed view.

descriptors + options ─ read_files ─► File ─┬─► decoders, validators     (messages of requests)
                                            ├─► encoders                 (messages of answers)
                                            ├─► handler, routes, servicer (services)
                                            └─► OpenAPI document, tables of the documentation
"""

import re
from collections.abc import Iterable
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
    """One message. `stem` is its file's; the tag's default is a member's JSON name, or ""."""

    name: str
    stem: str
    comment: str
    shape: Shape
    tag: str
    tag_default: str
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
    """One enum. `stem` is its file's."""

    name: str
    stem: str
    comment: str
    values: tuple[EnumValue, ...]


@dataclass(frozen=True)
class Method:
    """One RPC. `verb` and `path` are empty where it has no HTTP route; `also` are more paths."""

    name: str
    comment: str
    request: str
    response: str
    is_streaming: bool
    verb: str
    path: str
    also: tuple[str, ...]
    streaming_rpc: str
    stream_end: str
    event_key: str

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
    """One proto file with the services that it declares.

    `messages` and `enums` are the whole package's, as a file may use another's; the messages of
    requests and answers are the file's own that any service of the package leads to.
    """

    package: str
    stem: str
    python_package: str
    source: str
    messages: dict[str, Message]
    enums: dict[str, Enum]
    services: tuple[Service, ...]
    request_messages: tuple[str, ...] = field(default=())
    response_messages: tuple[str, ...] = field(default=())

    def pb(self, name: str) -> str:
        """How generated code of this file calls the stub of a message or enum."""
        return f"{self._module(name, 'pb2') or 'pb'}.{name}"

    def call(self, verb: str, name: str) -> str:
        """How it calls the generated `decode_…`, `encode_…` or `validate_…` of a message."""
        function = f"{verb}_{snake(name)}"
        module = self._module(name, verb)
        return f"{module}.{function}" if module else function

    def imports(self, names: Iterable[str], *verbs: str) -> list[str]:
        """Imports of the other files' stubs and of their modules of these verbs that names need."""
        names = list(names)
        stubs = {self._module(name, "pb2") for name in names}
        modules = {
            self._module(name, verb) for name in names if name in self.messages for verb in verbs
        }
        return [
            *(f"from {self.python_package} import {stub}" for stub in sorted(stubs) if stub),
            *(f"from router_svc.gen import {module}" for module in sorted(modules) if module),
        ]

    def used_by(self, names: Iterable[str]) -> set[str]:
        """Messages and enums that the fields of these messages hold."""
        fields = (each for name in names for each in self.messages[name].fields)
        return {each.value.type_name for each in fields} - {""}

    def contains_itself(self, name: str) -> bool:
        """Whether a message can hold a message of its own type, at any depth."""
        pending, seen = [name], set[str]()
        while pending:
            for held in self.used_by([pending.pop()]) & self.messages.keys() - seen:
                seen.add(held)
                pending.append(held)
        return name in seen

    def _module(self, name: str, suffix: str) -> str:
        declared = self.messages.get(name) or self.enums[name]
        return "" if declared.stem == self.stem else f"{declared.stem}_{suffix}"


def snake(name: str) -> str:
    """CamelCase to snake_case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
