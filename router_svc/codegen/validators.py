"""Emits `validate_<message>`: the limits that HTTP and gRPC callers both have to keep."""

from router_svc.codegen.model import Field, File, Kind, Message, Shape, snake
from router_svc.codegen.writer import Writer, literal, number, tuple_of


def emit_validators(file: File) -> str:
    """The module of validators of every message that a request contains."""
    out = Writer()
    for name in file.request_messages:
        message = file.messages[name]
        out.line()
        with out.block(f'def validate_{snake(name)}(message: pb.{name}, path: str = "") -> None:'):
            out.docstring(f"Raises ApiError, naming the field, if a limit of {name} is broken.")
            if message.shape in (Shape.UNTAGGED, Shape.TAGGED):
                _emit_union(out, file, message)
            else:
                for each in message.fields:
                    _emit_field(out, file, each, message.shape is not Shape.OBJECT)
        out.line()
    return "".join(head.text() for head in (_emit_head(file, out.text()), out))


def _emit_head(file: File, body: str) -> Writer:
    """Docstring and imports, of what the body uses."""
    out = Writer()
    out.docstring(f"Limits of the request messages of {file.source}, whichever way they came.")
    out.line()
    if "math." in body:
        out.line("import math")
        out.line()
    out.line(f"from {file.python_package} import {file.stem}_pb2 as pb")
    for line in file.imports(file.used_by(file.request_messages), "validate"):
        # Of an enum or message of another file the limits are written out, or its validator called.
        if line.rpartition(" ")[2] in body:
            out.line(line)
    out.line("from router_svc.http import checks")
    if "join(" in body:
        out.line("from router_svc.http.checks import join")
    if "is_json(" in body:
        out.line("from router_svc.http.decoding import is_json")
    out.line()
    return out


def _emit_union(out: Writer, file: File, message: Message) -> None:
    out.line(f'kind = message.WhichOneof("{message.oneof}")')
    with out.block("if kind is None:"):
        out.line("raise checks.unset(path)")
    for each in message.fields:
        if each.value.kind is Kind.MESSAGE:
            with out.block(f'if kind == "{each.name}":'):
                validate = file.call("validate", each.value.type_name)
                out.line(f"{validate}(message.{each.name}, path)")
        elif each.value.kind is Kind.ENUM:
            with out.block(f'if kind == "{each.name}":'):
                _emit_enum(out, file, each, '""', "", may_be_zero=False)
        else:
            for condition, error in _checks_of_value(each, f"message.{each.name}", "path", '""'):
                with out.block(f'if kind == "{each.name}" and {condition}:'):
                    out.line(f"raise {error}")


def _emit_field(out: Writer, file: File, each: Field, bare: bool) -> None:
    name = literal("" if bare else each.json_name)
    if each.rule.refused:
        given = f"message.{each.name}"
        if each.value.kind is not Kind.BOOLEAN and each.has_presence:
            given = f'message.HasField("{each.name}")'
        with out.block(f"if {given}:"):
            out.line(f"raise checks.refused(path, {name}, {literal(each.rule.refused)})")
        return
    if each.is_repeated or each.is_map:
        _emit_elements(out, file, each, name, bare)
        return
    target = f"message.{each.name}"
    if each.value.kind is Kind.MESSAGE:
        validate = file.call("validate", each.value.type_name)
        if each.rule.required:
            with out.block(f'if not message.HasField("{each.name}"):'):
                out.line(f"raise checks.missing(path, {name})")
            out.line(f"{validate}({target}, join(path, {name}))")
        elif _is_checked(file, each.value.type_name):
            with out.block(f'if message.HasField("{each.name}"):'):
                out.line(f"{validate}({target}, join(path, {name}))")
        return
    if each.rule.required and each.has_presence:
        with out.block(f'if not message.HasField("{each.name}"):'):
            out.line(f"raise checks.missing(path, {name})")
    present = f'message.HasField("{each.name}") and ' if each.has_presence else ""
    if each.value.kind is Kind.ENUM:
        _emit_enum(out, file, each, name, present)
    for condition, error in _checks_of_value(each, target, "path", name):
        with out.block(f"if {present}{condition}:"):
            out.line(f"raise {error}")


def _emit_enum(
    out: Writer, file: File, each: Field, name: str, present: str, *, may_be_zero: bool = True
) -> None:
    enum = file.enums[each.value.type_name]
    named = [value for value in enum.values if value.json_name]
    if each.rule.required and not each.has_presence:
        with out.block(f"if message.{each.name} == 0:"):
            out.line(f"raise checks.missing(path, {name})")
    # An open enum lets any number through; the zero value is absence.
    allowed = enum.values if may_be_zero else named
    numbers = tuple_of([str(value.number) for value in allowed])
    names = tuple_of([literal(value.json_name) for value in named])
    with out.block(f"if {present}message.{each.name} not in {numbers}:"):
        out.line(f"raise checks.unknown_enum(message.{each.name}, join(path, {name}), {names})")


def _emit_elements(out: Writer, file: File, each: Field, name: str, bare: bool) -> None:
    target = f"message.{each.name}"
    low, high = each.rule.min_items, each.rule.max_items
    if low or high:
        count = f"len({target})"
        within = (
            f"{low} <= {count} <= {high}"
            if low and high
            else f"{low} <= {count}"
            if low
            else f"{count} <= {high}"
        )
        with out.block(f"if not {within}:"):
            out.line(f"raise checks.wrong_count({count}, join(path, {name}), {low}, {high})")
    # One name per field, as a name has one type in a function.
    item, key = f"{each.name}_item", f"{each.name}_key"
    at = "path" if bare else f"join(path, {name})"
    if each.is_map and each.value.kind is Kind.MESSAGE:
        if _is_checked(file, each.value.type_name):
            validate = file.call("validate", each.value.type_name)
            with out.block(f"for {key}, {item} in {target}.items():"):
                out.line(f"{validate}({item}, join({at}, str({key})))")
    elif each.is_map:
        found = _checks_of_value(each, item, at, f"str({key})")
        if each.key is not None and each.key.kind is Kind.STRING and each.rule.max_length:
            found += [_length_check(key, at, key, each.rule.max_length)]
        if found:
            with out.block(f"for {key}, {item} in {target}.items():"):
                for condition, error in found:
                    with out.block(f"if {condition}:"):
                        out.line(f"raise {error}")
    elif each.value.kind is Kind.MESSAGE:
        if _is_checked(file, each.value.type_name):
            out.line(f"at = {at}")
            with out.block(f"for index, {item} in enumerate({target}):"):
                validate = file.call("validate", each.value.type_name)
                out.line(f'{validate}({item}, f"{{at}}[{{index}}]")')
    else:
        found = _checks_of_value(each, item, "place", '""')
        if found:
            with out.block(f"for index, {item} in enumerate({target}):"):
                for condition, error in found:
                    with out.block(f"if {condition}:"):
                        out.line(f'place = {at} + f"[{{index}}]"')
                        out.line(f"raise {error}")


def _checks_of_value(each: Field, target: str, path: str, name: str) -> list[tuple[str, str]]:
    """Conditions that make one scalar value wrong, with the error of each."""
    rule = each.rule
    found = []
    if each.value.kind in (Kind.INTEGER, Kind.NUMBER):
        found += _bounds_check(each, target, path, name)
    if rule.max_length and each.value.kind is Kind.STRING:
        found.append(_length_check(target, path, name, rule.max_length))
    if rule.constant:
        condition = f'{target} not in ("", {literal(rule.constant)})'
        error = f"checks.wrong_constant({target}, {_join(path, name)}, {literal(rule.constant)})"
        found.append((condition, error))
    if rule.raw_json or rule.raw_json_object:
        only = ", must_be_object=True" if rule.raw_json_object else ""
        found.append((f"not is_json({target}{only})", f"checks.not_json({path}, {name})"))
    return found


def _join(path: str, name: str) -> str:
    return path if name == '""' else f"join({path}, {name})"


def _length_check(target: str, path: str, name: str, most: int) -> tuple[str, str]:
    return (
        f"len({target}) > {most}",
        f"checks.too_long(len({target}), {_join(path, name)}, {most})",
    )


def _bounds_check(each: Field, target: str, path: str, name: str) -> list[tuple[str, str]]:
    """One comparison that NaN and the infinities fail too."""
    rule = each.rule
    if each.value.kind is Kind.INTEGER:
        if not each.has_bounds:
            return []
        low, high = each.integer_bounds
        return [
            (
                f"not {low} <= {target} <= {high}",
                f"checks.out_of_range({target}, {path}, {name}, {low}, {high})",
            )
        ]
    above = rule.HasField("above")
    low_text = (
        number(rule.above) if above else number(rule.minimum) if rule.HasField("minimum") else None
    )
    high_text = number(rule.maximum) if rule.HasField("maximum") else None
    if low_text is None and high_text is None:
        condition = f"not math.isfinite({target})"
    else:
        lower = (
            "-math.inf <" if low_text is None else f"{low_text} <" if above else f"{low_text} <="
        )
        upper = "< math.inf" if high_text is None else f"<= {high_text}"
        condition = f"not {lower} {target} {upper}"
    flag = ", above=True" if above else ""
    return [
        (condition, f"checks.out_of_range({target}, {path}, {name}, {low_text}, {high_text}{flag})")
    ]


def _is_checked(file: File, name: str) -> bool:
    """Whether the message's validator can fail, so that calling it is worth its time."""
    message = file.messages[name]
    if file.contains_itself(name):
        return True
    if message.shape in (Shape.UNTAGGED, Shape.TAGGED):
        return True
    for each in message.fields:
        rule = each.rule
        if rule.refused or rule.required or rule.min_items or rule.max_items:
            return True
        if each.value.kind is Kind.ENUM or _checks_of_value(each, "", "", ""):
            return True
        if each.value.kind is Kind.MESSAGE and _is_checked(file, each.value.type_name):
            return True
    return False
