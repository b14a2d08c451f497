"""Reads protoc's descriptors, options and comments into the typed view of model.py."""

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
)
from octavo.http.v1 import options_pb2

from router_svc.codegen.model import (
    Enum,
    EnumValue,
    Field,
    File,
    Kind,
    Message,
    Method,
    Service,
    Shape,
    UnsupportedError,
    Value,
    snake,
)

_Type = FieldDescriptorProto.Type

_KINDS = {
    _Type.TYPE_STRING: Kind.STRING,
    _Type.TYPE_BOOL: Kind.BOOLEAN,
    _Type.TYPE_INT32: Kind.INTEGER,
    _Type.TYPE_INT64: Kind.INTEGER,
    _Type.TYPE_UINT32: Kind.INTEGER,
    _Type.TYPE_UINT64: Kind.INTEGER,
    _Type.TYPE_DOUBLE: Kind.NUMBER,
    _Type.TYPE_FLOAT: Kind.NUMBER,
    _Type.TYPE_ENUM: Kind.ENUM,
    _Type.TYPE_MESSAGE: Kind.MESSAGE,
}

_INTEGER_BOUNDS = {
    _Type.TYPE_INT32: (-(2**31), 2**31 - 1),
    _Type.TYPE_INT64: (-(2**63), 2**63 - 1),
    _Type.TYPE_UINT32: (0, 2**32 - 1),
    _Type.TYPE_UINT64: (0, 2**64 - 1),
}


def read_files(protos: list[FileDescriptorProto]) -> list[File]:
    """Builds the views of a package's files; raises UnsupportedError for what has no JSON form."""
    if len({proto.package for proto in protos}) > 1:
        raise UnsupportedError("the files are not all of one package")
    comments = [_comments(proto) for proto in protos]
    messages = {
        message.name: _message(message, proto, (4, index), said)
        for proto, said in zip(protos, comments, strict=True)
        for index, message in enumerate(proto.message_type)
    }
    enums = {
        enum.name: _enum(enum, _stem(proto), (5, index), said)
        for proto, said in zip(protos, comments, strict=True)
        for index, enum in enumerate(proto.enum_type)
    }
    services = [_services(proto, said) for proto, said in zip(protos, comments, strict=True)]
    methods = [method for each in services for service in each for method in service.methods]
    requests = _reached(messages, [method.request for method in methods])
    responses = _reached(messages, [method.response for method in methods])
    return [
        File(
            package=proto.package,
            stem=_stem(proto),
            python_package=proto.name.rsplit("/", 1)[0].replace("/", "."),
            source=proto.name,
            messages=messages,
            enums=enums,
            services=own,
            request_messages=tuple(n for n in requests if messages[n].stem == _stem(proto)),
            response_messages=tuple(n for n in responses if messages[n].stem == _stem(proto)),
        )
        for proto, own in zip(protos, services, strict=True)
    ]


def _stem(proto: FileDescriptorProto) -> str:
    return proto.name.rsplit("/", 1)[-1].removesuffix(".proto")


def _services(
    proto: FileDescriptorProto, comments: dict[tuple[int, ...], str]
) -> tuple[Service, ...]:
    return tuple(
        Service(
            service.name,
            comments.get((6, index), ""),
            tuple(
                _method(method, proto.package, comments.get((6, index, 2, number), ""))
                for number, method in enumerate(service.method)
            ),
        )
        for index, service in enumerate(proto.service)
    )


def _reached(messages: dict[str, Message], roots: list[str]) -> tuple[str, ...]:
    """Names of the messages that the roots contain, in the file's order."""
    seen: set[str] = set()
    pending = list(roots)
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        if name not in messages:
            raise UnsupportedError(f"{name} is in no file that the plugin was given")
        seen.add(name)
        pending.extend(
            each.value.type_name
            for each in messages[name].fields
            if each.value.kind is Kind.MESSAGE
        )
    return tuple(name for name in messages if name in seen)


def _comments(proto: FileDescriptorProto) -> dict[tuple[int, ...], str]:
    comments = {}
    for location in proto.source_code_info.location:
        lines = [line.strip() for line in location.leading_comments.strip().splitlines()]
        kept = "\n".join(line for line in lines if not line.startswith("buf:lint:"))
        comments[tuple(location.path)] = kept.strip()
    return comments


def _message(
    message: DescriptorProto,
    proto: FileDescriptorProto,
    path: tuple[int, ...],
    comments: dict[tuple[int, ...], str],
) -> Message:
    rule = message.options.Extensions[options_pb2.message]
    fields = tuple(
        _field(each, message, proto, comments.get((*path, 2, index), ""))
        for index, each in enumerate(message.field)
    )
    real_oneofs = [
        oneof.name
        for index, oneof in enumerate(message.oneof_decl)
        if any(
            each.HasField("oneof_index") and each.oneof_index == index and not each.proto3_optional
            for each in message.field
        )
    ]
    shape = _shape(rule, message.name)
    if shape in (Shape.UNTAGGED, Shape.TAGGED):
        if len(real_oneofs) != 1 or not all(
            each.HasField("oneof_index") and not each.proto3_optional for each in message.field
        ):
            raise UnsupportedError(f"{message.name}: a union is one oneof and nothing else")
        if shape is Shape.TAGGED and not rule.tag:
            raise UnsupportedError(f"{message.name}: a tagged union names its tag")
    elif real_oneofs:
        raise UnsupportedError(f"{message.name}: a oneof outside a union has no JSON form")
    if shape is Shape.BARE_ARRAY and not (len(fields) == 1 and fields[0].is_repeated):
        raise UnsupportedError(f"{message.name}: a bare array is one repeated field")
    if shape is Shape.BARE_MAP and not (len(fields) == 1 and fields[0].is_map):
        raise UnsupportedError(f"{message.name}: a bare map is one map field")
    if rule.tag_default and not any(each.json_name == rule.tag_default for each in fields):
        raise UnsupportedError(f"{message.name}: the tag's default {rule.tag_default} is no member")
    return Message(
        message.name,
        _stem(proto),
        comments.get(path, ""),
        shape,
        rule.tag,
        rule.tag_default,
        real_oneofs[0] if real_oneofs else "",
        fields,
    )


def _shape(rule: options_pb2.MessageRule, name: str) -> Shape:
    shapes = []
    if rule.union == options_pb2.UNION_UNTAGGED:
        shapes.append(Shape.UNTAGGED)
    if rule.union == options_pb2.UNION_TAGGED:
        shapes.append(Shape.TAGGED)
    if rule.bare_array:
        shapes.append(Shape.BARE_ARRAY)
    if rule.bare_map:
        shapes.append(Shape.BARE_MAP)
    if len(shapes) > 1:
        raise UnsupportedError(f"{name}: {' and '.join(shapes)} exclude each other")
    return shapes[0] if shapes else Shape.OBJECT


def _field(
    field_proto: FieldDescriptorProto,
    message: DescriptorProto,
    proto: FileDescriptorProto,
    comment: str,
) -> Field:
    rule = field_proto.options.Extensions[options_pb2.field]
    name = f"{message.name}.{field_proto.name}"
    is_repeated = field_proto.label == FieldDescriptorProto.Label.LABEL_REPEATED
    key = None
    value_proto = field_proto
    entry = next(
        (
            nested
            for nested in message.nested_type
            if nested.options.map_entry
            and field_proto.type_name == f".{proto.package}.{message.name}.{nested.name}"
        ),
        None,
    )
    if entry is not None:
        key = _value(entry.field[0], name, proto.package)
        value_proto = entry.field[1]
        is_repeated = False
    value = _value(value_proto, name, proto.package)
    has_presence = (
        not is_repeated
        and key is None
        and (field_proto.HasField("oneof_index") or value.kind is Kind.MESSAGE)
    )
    return Field(
        name=field_proto.name,
        json_name=rule.name or field_proto.name,
        comment=comment,
        value=value,
        key=key,
        is_repeated=is_repeated,
        has_presence=has_presence,
        is_optional=field_proto.proto3_optional,
        rule=rule,
    )


def _value(proto: FieldDescriptorProto, name: str, package: str) -> Value:
    if proto.type not in _KINDS:
        raise UnsupportedError(f"{name}: {_Type.Name(proto.type)} has no JSON form")
    kind = _KINDS[proto.type]
    type_name = ""
    if kind in (Kind.ENUM, Kind.MESSAGE):
        type_name = proto.type_name.removeprefix(f".{package}.")
        if type_name.startswith(".") or "." in type_name:
            raise UnsupportedError(f"{name}: {proto.type_name} is nested or of another package")
    return Value(kind, type_name, _INTEGER_BOUNDS.get(proto.type, (0, 0)))


def _enum(
    enum: EnumDescriptorProto,
    stem: str,
    path: tuple[int, ...],
    comments: dict[tuple[int, ...], str],
) -> Enum:
    prefix = snake(enum.name).upper() + "_"
    values = []
    for index, value in enumerate(enum.value):
        rule = value.options.Extensions[options_pb2.value]
        json_name = rule.name or value.name.removeprefix(prefix).lower()
        values.append(
            EnumValue(
                value.name,
                value.number,
                json_name if value.number else "",
                comments.get((*path, 2, index), ""),
            )
        )
    return Enum(enum.name, stem, comments.get(path, ""), tuple(values))


def _method(method: MethodDescriptorProto, package: str, comment: str) -> Method:
    if method.client_streaming:
        raise UnsupportedError(f"{method.name}: a client stream has no HTTP form")
    rule = method.options.Extensions[options_pb2.http]
    route = rule.WhichOneof("route")
    return Method(
        name=method.name,
        comment=comment,
        request=method.input_type.removeprefix(f".{package}."),
        response=method.output_type.removeprefix(f".{package}."),
        is_streaming=method.server_streaming,
        verb=(route or "").upper(),
        path=rule.get or rule.post,
        also=tuple(rule.also),
        streaming_rpc=rule.streaming_rpc,
        stream_end=rule.stream_end,
        event_key=rule.event_key,
    )
