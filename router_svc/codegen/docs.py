"""Emits docs/api.md: every field of every request, its limits, and how it is treated.

A route has a table of its body's fields; objects inside it have sections of their own further down,
each written once. Texts are the comments of the protos.
"""

import json
from collections.abc import Iterable, Iterator

from router_svc.codegen.model import Field, File, Kind, Message, Method, Shape

_INTRODUCTION = """\
<!-- Generated from the protos by protos/generate.sh; do not edit. -->
# The HTTP API, field by field

Made from the same options as the code that reads the requests, so it says what the server does.
Over gRPC the same fields have the same limits; their names and types are in the protos.

- A field that is in no table is refused with status 400 and an error that names it.
- *effective*: does what the text says. *no effect*: accepted and ignored, for the reason given.
  *refused*: answered with status 400, for the reason given, unless it is `null` or `false`.
- `null` is the same as leaving the field out. Nothing is converted: `"1"` is not an integer.
- A failure is always `{"error": {"message", "type", "param", "code"}}`; `param` is the path of the
  field at fault.
"""

_COLUMNS = "| Field | Type | Default | Limits | Meaning | Treatment |\n|---|---|---|---|---|---|\n"

_LARGE = 2**31 - 1


def emit_docs(files: list[File]) -> str:
    """The document of all services, as Markdown."""
    routes = [
        (file, method)
        for file in files
        for service in file.services
        for method in service.methods
        if method.path
    ]
    parts = [_INTRODUCTION, "## Routes\n", _contents(routes)]
    parts += [_route(file, method) for file, method in routes]
    parts += ["## Objects\n", *_objects(files, routes)]
    return "\n".join(parts).rstrip("\n") + "\n"


def _contents(routes: list[tuple[File, Method]]) -> str:
    lines = []
    for _, method in routes:
        title = f"{method.verb} {method.path}"
        summary = _cell(method.comment.partition("\n\n")[0])
        lines.append(f"- [`{title}`](#{_anchor(title)}): {summary}")
    return "\n".join(lines) + "\n"


def _route(file: File, method: Method) -> str:
    title = f"### {method.verb} {method.path}\n"
    said = [method.comment]
    if method.also:
        said.append("Also at " + ", ".join(f"`{path}`" for path in method.also) + ".")
    if method.streaming_rpc:
        said.append("With `stream: true` the answer comes as server-sent events.")
    message = file.messages[method.request]
    if method.path_field:
        said.append(f"`{method.path_field}` is the rest of the path, slashes included.")
        return f"{title}\n{_text(said)}"
    if method.verb == "GET":
        return f"{title}\n{_text(said)}"
    return f"{title}\n{_text(said)}\n{_table(file, message.fields)}"


def _text(paragraphs: Iterable[str]) -> str:
    return "\n\n".join(_escaped(each) for each in paragraphs if each) + "\n"


def _table(file: File, fields: Iterable[Field]) -> str:
    rows = "".join(_row(file, each) for each in fields)
    return _COLUMNS + rows if rows else "It has no fields.\n"


def _row(file: File, each: Field) -> str:
    cells = (
        f"`{each.json_name}`",
        _type_of(file, each),
        _default(each),
        _limits(file, each),
        _cell(each.comment),
        _treatment(each),
    )
    return f"| {' | '.join(cells)} |\n"


def _default(each: Field) -> str:
    if each.rule.required:
        return "**required**"
    if each.rule.default_json:
        return f"`{json.dumps(json.loads(each.rule.default_json), ensure_ascii=False)}`"
    return ""


def _treatment(each: Field) -> str:
    rule = each.rule
    if rule.refused:
        said = f"**refused**: {_cell(rule.refused)}"
    elif rule.no_effect:
        said = f"no effect: {_cell(rule.no_effect)}"
    else:
        said = "effective"
    return f"{said}; {_cell(rule.note)}" if rule.note else said


def _type_of(file: File, each: Field) -> str:
    value = _value_type(file, each)
    if each.is_map:
        return f"object of {value}"
    if each.is_repeated:
        return f"{value} or array of it" if each.rule.one_or_many else f"array of {value}"
    return value


def _value_type(file: File, each: Field) -> str:
    rule = each.rule
    if rule.raw_json_object:
        return "any object"
    if rule.raw_json:
        return "any JSON"
    if each.value.kind is Kind.ENUM:
        return "string"
    if each.value.kind is not Kind.MESSAGE:
        return str(each.value.kind)
    message = file.messages[each.value.type_name]
    if _is_written_out(file, message.name):
        return " or ".join(dict.fromkeys(_type_of(file, form) for form in message.fields))
    return f"[{message.name}](#{message.name.lower()})"


def _limits(file: File, each: Field) -> str:
    found = list(_value_limits(file, each))
    if each.rule.min_items or each.rule.max_items:
        low, high = each.rule.min_items, each.rule.max_items
        counts = (
            f"{low} to {high}" if low and high else f"at least {low}" if low else f"at most {high}"
        )
        found.append(f"{counts} {'entries' if each.is_map else 'elements'}")
    return ", ".join(found)


def _value_limits(file: File, each: Field) -> Iterator[str]:
    rule = each.rule
    if each.value.kind is Kind.MESSAGE and _is_written_out(file, each.value.type_name):
        for form in file.messages[each.value.type_name].fields:
            if limits := _limits(file, form):
                yield limits
    if each.value.kind is Kind.ENUM:
        yield ", ".join(
            f'`"{value.json_name}"`'
            for value in file.enums[each.value.type_name].values
            if value.json_name
        )
    if rule.constant:
        yield f'`"{rule.constant}"`'
    if rule.max_length:
        yield f"at most {rule.max_length} characters"
    low = rule.minimum if rule.HasField("minimum") else None
    high = rule.maximum if rule.HasField("maximum") and rule.maximum < _LARGE else None
    if rule.HasField("above"):
        yield f"above {rule.above:g}" + ("" if high is None else f", at most {high:.10g}")
    elif low is not None and high is not None:
        yield f"{low:.10g} to {high:.10g}"
    elif low is not None:
        yield f"at least {low:.10g}"
    elif high is not None:
        yield f"at most {high:.10g}"


def _objects(files: list[File], routes: list[tuple[File, Method]]) -> Iterator[str]:
    """A section for each object that a type links to, in the order in which they are met."""
    pending = [file.messages[method.request] for file, method in routes if method.verb == "POST"]
    tops = {message.name for message in pending}
    seen = set(tops)
    # Types are told apart by name alone, and any of the files knows all of them.
    file = files[0]
    while pending:
        message = pending.pop(0)
        if message.name not in tops and message.shape is Shape.OBJECT:
            yield f"{_head(message)}\n{_table(file, message.fields)}"
        if message.shape is Shape.TAGGED or _is_bare_cycle(file, message.name):
            yield _union(file, message)
        for held in _held(file, message):
            if held.name not in seen:
                seen.add(held.name)
                pending.append(held)


def _held(file: File, message: Message) -> Iterator[Message]:
    """The messages that the fields hold; a tagged union's members are part of its own section."""
    for each in message.fields:
        if each.value.kind is Kind.MESSAGE:
            held = file.messages[each.value.type_name]
            if message.shape is Shape.TAGGED:
                yield from _held(file, held)
            else:
                yield held


def _head(message: Message) -> str:
    return f"### {message.name}\n\n{_text([message.comment])}"


def _union(file: File, message: Message) -> str:
    head = _head(message)
    if message.shape is not Shape.TAGGED:
        types = " or ".join(dict.fromkeys(_type_of(file, each) for each in message.fields))
        return f"{head}\nIt is {types}.\n"
    default = (
        f", which is `{json.dumps(message.tag_default)}` if absent" if message.tag_default else ""
    )
    parts = [f"{head}\nTold by `{message.tag}`{default}:\n"]
    for each in message.fields:
        member = file.messages[each.value.type_name]
        comment = _cell(each.comment or member.comment)
        rows = f"\n{_table(file, member.fields)}" if member.fields else ""
        parts.append(f'`"{message.tag}": "{each.json_name}"`: {comment}\n{rows}')
    return "\n".join(parts)


def _is_written_out(file: File, name: str) -> bool:
    """Whether the forms of a type stand in the tables that use it, rather than in a section."""
    is_named = file.messages[name].shape in (Shape.OBJECT, Shape.TAGGED)
    return not is_named and not _is_bare_cycle(file, name)


def _is_bare_cycle(file: File, name: str) -> bool:
    """Whether the type cannot be written out, as it leads back to itself without an object."""
    pending, seen = [name], set[str]()
    while pending:
        message = file.messages[pending.pop()]
        if message.shape in (Shape.OBJECT, Shape.TAGGED):
            continue
        for held in file.used_by([message.name]) & file.messages.keys() - seen:
            seen.add(held)
            pending.append(held)
    return name in seen


def _anchor(title: str) -> str:
    """GitHub's anchor of a heading: letters, digits, - and _ in lower case, spaces as dashes."""
    kept = (each for each in title.lower() if each.isalnum() or each in " -_")
    return "".join(kept).replace(" ", "-")


def _cell(text: str) -> str:
    return _escaped(" ".join(text.split()))


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("|", "\\|")
