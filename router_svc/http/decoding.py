"""Strict readers of JSON values, called by the generated decoders.

Nothing is coerced: a number in quotes is no number, 1.0 is no integer and true is no 1. A reader
takes the value, the path of the object that holds it and the field's name; the two are joined only
for an error.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import orjson

from router_svc.errors import ApiError, invalid, quoted
from router_svc.http import checks
from router_svc.http.checks import join

_T = TypeVar("_T")

# Type of a decoded JSON value → how an error calls it.
_JSON_NAMES: dict[type, str] = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}

# orjson parses 1,024 levels and writes 254; what is let in must be writable, inside a body too.
_MAX_JSON_DEPTH = 128

# Python's stack takes several calls a level, and protobuf reads 100 levels.
_MAX_MESSAGE_DEPTH = 32


def wrong_type(path: str, expected: str, value: object) -> ApiError:
    """A value of another JSON type than the field's."""
    given = _JSON_NAMES.get(type(value), "something else")
    return invalid(path, f"{path or 'The body'} must be {expected}, not {given}.", "invalid_type")


def fields(
    value: object, path: str, known: frozenset[str], required: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The members of a JSON object: none unknown, the required ones present and not null."""
    if type(value) is not dict:
        raise wrong_type(path, "an object", value)
    if not value.keys() <= known:
        unknown = next(key for key in value if key not in known)
        at = join(path, unknown)
        raise invalid(at, f"Unknown field: {at or quoted('')}.", "unknown_parameter")
    for name in required:
        if value.get(name) is None:
            raise checks.missing(path, name)
    return value


def string(value: object, path: str, name: str) -> str:
    """A JSON string."""
    if type(value) is not str:
        raise wrong_type(join(path, name), "a string", value)
    return value


def boolean(value: object, path: str, name: str) -> bool:
    """A JSON boolean."""
    if type(value) is not bool:
        raise wrong_type(join(path, name), "a boolean", value)
    return value


def integer(value: object, path: str, name: str, low: int, high: int) -> int:
    """A JSON integer between the bounds."""
    if type(value) is not int:
        raise wrong_type(join(path, name), "an integer", value)
    if not low <= value <= high:
        raise checks.out_of_range(value, path, name, low, high)
    return value


def number(value: object, path: str, name: str) -> float:
    """A JSON number, integer or not; the parser has refused what is not finite."""
    if type(value) is not float and type(value) is not int:
        raise wrong_type(join(path, name), "a number", value)
    return float(value)


def constant(value: object, path: str, name: str, expected: str) -> str:
    """A string that can only be `expected`."""
    text = string(value, path, name)
    if text != expected:
        raise checks.wrong_constant(text, join(path, name), expected)
    return text


def choice(value: object, path: str, name: str, names: Mapping[str, _T]) -> _T:
    """The enum value that a string names."""
    if type(value) is not str:
        raise wrong_type(join(path, name), "a string", value)
    if value not in names:
        raise checks.unknown_enum(value, join(path, name), tuple(names))
    return names[value]


def array(
    value: object, path: str, name: str, *, most: int = 0, one_or_many: bool = False
) -> list[Any]:
    """A JSON array of at most `most` elements (0: any number), before any of them is looked at."""
    if type(value) is not list:
        if one_or_many:
            return [value]
        raise wrong_type(join(path, name), "an array", value)
    if most and len(value) > most:
        raise checks.wrong_count(len(value), join(path, name), 0, most)
    return value


def strings(
    value: object, path: str, name: str, *, most: int = 0, one_or_many: bool = False
) -> list[str]:
    """A JSON array of strings, or one string where `one_or_many` says so."""
    if one_or_many and type(value) is not list and type(value) is not str:
        raise wrong_type(join(path, name), "a string or an array of strings", value)
    elements = array(value, path, name, most=most, one_or_many=one_or_many)
    _check_elements(elements, {str}, path, name, "a string")
    return elements


def integers(
    value: object, path: str, name: str, low: int, high: int, *, most: int = 0
) -> list[int]:
    """A JSON array of integers between the bounds; its whole length is checked at C speed."""
    elements = array(value, path, name, most=most)
    _check_elements(elements, {int}, path, name, "an integer")
    if elements and not (low <= min(elements) and max(elements) <= high):
        at = join(path, name)
        index = next(i for i, element in enumerate(elements) if not low <= element <= high)
        raise checks.out_of_range(elements[index], f"{at}[{index}]", "", low, high)
    return elements


def entries(value: object, path: str, name: str, *, most: int = 0) -> dict[str, Any]:
    """A JSON object used as a map, with at most `most` entries (0: any number)."""
    if type(value) is not dict:
        raise wrong_type(join(path, name), "an object", value)
    if most and len(value) > most:
        raise checks.wrong_count(len(value), join(path, name), 0, most)
    return value


def integer_key(key: str, path: str, low: int, high: int) -> int:
    """A map's integer key, which JSON can only write as a string; one spelling per number."""
    # isdecimal also takes other scripts' digits; what is longer than any 64-bit number is no key.
    digits = key.removeprefix("-")
    if len(key) <= 20 and digits.isascii() and digits.isdecimal() and str(int(key)) == key:
        number_ = int(key)
        if low <= number_ <= high:
            return number_
    at = join(path, key)
    raise invalid(
        at, f"{at}: the key must be an integer between {low} and {high}, not {quoted(key)}."
    )


def json_text(value: object, path: str, name: str, *, must_be_object: bool = False) -> str:
    """Any JSON value, written back as text."""
    if must_be_object and type(value) is not dict:
        raise wrong_type(join(path, name), "an object", value)
    if _is_deeper(value, _MAX_JSON_DEPTH):
        raise checks.not_json(path, name)
    return orjson.dumps(value).decode()


def is_json(text: str, *, must_be_object: bool = False) -> bool:
    """Whether the text is JSON that a body could have carried in its place."""
    try:
        value = orjson.loads(text)
    except (orjson.JSONDecodeError, UnicodeEncodeError):
        return False
    return not _is_deeper(value, _MAX_JSON_DEPTH) and (not must_be_object or type(value) is dict)


def tagged(value: object, path: str, tag: str, default: str = "") -> tuple[str, dict[str, Any]]:
    """The value of an object's tag, or the default where it has none, and its other members."""
    if type(value) is not dict:
        raise wrong_type(path, "an object", value)
    kind = value.get(tag)
    if kind is None:
        if not default:
            raise checks.missing(path, tag)
        kind = default
    return string(kind, path, tag), {key: item for key, item in value.items() if key != tag}


def check_depth(path: str) -> None:
    """Refuses a value that lies deeper than messages which hold themselves may be nested."""
    if path.count(".") > _MAX_MESSAGE_DEPTH:
        raise checks.too_deep(path, _MAX_MESSAGE_DEPTH)


def _check_elements(
    elements: list[Any], allowed: set[type], path: str, name: str, expected: str
) -> None:
    if set(map(type, elements)) <= allowed:
        return
    at = join(path, name)
    index = next(i for i, element in enumerate(elements) if type(element) not in allowed)
    raise wrong_type(f"{at}[{index}]", expected, elements[index])


def _is_deeper(value: object, levels: int) -> bool:
    # Level by level, so that hostile nesting cannot reach Python's own recursion limit.
    level: list[object] = [value]
    for _ in range(levels):
        level = [
            child
            for item in level
            for child in (
                item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
            )
        ]
        if not level:
            return False
    return True
