"""Schemas that structured output is held to, with something of each kind that people write."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def _object(properties: dict[str, Any], **more: Any) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    } | more


def _array(items: Any, **more: Any) -> Schema:
    return {"type": "array", "items": items, "maxItems": 4} | more


_TEXT: Schema = {"type": "string", "maxLength": 24}
_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 12}
_INTEGER: Schema = {"type": "integer", "minimum": -1000, "maximum": 1000}
_NUMBER: Schema = {"type": "number", "minimum": -10, "maximum": 10}
_BOOLEAN: Schema = {"type": "boolean"}
_NULL: Schema = {"type": "null"}

SCHEMAS: dict[str, Schema] = {
    # Single values
    "boolean": _BOOLEAN,
    "null": _NULL,
    "integer": _INTEGER,
    "number": _NUMBER,
    "text": _TEXT,
    "constant": {"const": {"kind": "fixed", "values": [1, 2.5, None, "ä"]}},
    "enum of texts": {"enum": ["red", "green", "blue"]},
    "enum of anything": {"enum": [1, "1", None, True, [1, 2], {"a": 1}]},
    "several types": {"type": ["integer", "boolean", "null"], "minimum": 0, "maximum": 99},
    # Bounds of numbers
    "positive": {"type": "integer", "exclusiveMinimum": 0, "maximum": 10**6},
    "negative": {"type": "number", "exclusiveMaximum": 0, "minimum": -5},
    "narrow": {"type": "integer", "minimum": 17, "maximum": 23},
    "fractions": {"type": "number", "exclusiveMinimum": 0.25, "exclusiveMaximum": 0.75},
    "multiples": {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 700},
    "across zero": {"type": "integer", "minimum": -3, "maximum": 3},
    # Texts
    "exact length": {"type": "string", "minLength": 5, "maxLength": 5},
    "at least": {"type": "string", "minLength": 3, "maxLength": 30},
    "pattern": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"},
    "pattern of words": {"type": "string", "pattern": r"^(\w{1,8} ){1,3}\w{1,8}$"},
    "alternatives": {"type": "string", "pattern": "^(cat|dog|[0-9]+ birds)$", "maxLength": 12},
    "date": {"type": "string", "format": "date"},
    "time of day": {"type": "string", "format": "time"},
    "date and time": {"type": "string", "format": "date-time"},
    "uuid": {"type": "string", "format": "uuid"},
    "ipv4": {"type": "string", "format": "ipv4"},
    # Unicode
    "enum in scripts": {"enum": ["żółć", "日本語", "😀🎉", "עברית", "naïve\u0301"]},
    "names in scripts": _object({"größe": _INTEGER, "名前": _NAME, "🔑": _BOOLEAN}),
    "pattern in greek": {"type": "string", "pattern": "^[α-ω]{3,6}$"},
    "quotes and slashes": _object({'say "hi"': {"enum": ["a\\b", "tab\t", "line\n", "</x>"]}}),
    # Objects
    "person": _object({"name": _NAME, "age": {"type": "integer", "minimum": 0, "maximum": 120}}),
    "optional": {
        "type": "object",
        "properties": {"a": _INTEGER, "b": _BOOLEAN, "c": _NULL},
        "additionalProperties": False,
    },
    "some required": _object({"id": _INTEGER, "tag": _NAME}, required=["id"]),
    "nested": _object({"outer": _object({"inner": _object({"leaf": _BOOLEAN})})}),
    "map of numbers": {
        "type": "object",
        "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 9},
        "maxProperties": 3,
    },
    "pattern properties": {
        "type": "object",
        "patternProperties": {"^x_[a-z]{1,4}$": _BOOLEAN},
        "additionalProperties": False,
        "maxProperties": 3,
    },
    "beside others": {
        "type": "object",
        "properties": {"kind": {"const": "open"}},
        "required": ["kind"],
        "additionalProperties": _INTEGER,
        "maxProperties": 3,
    },
    "empty object": _object({}),
    "at least one": {
        "type": "object",
        "additionalProperties": _BOOLEAN,
        "minProperties": 1,
        "maxProperties": 2,
    },
    # Arrays
    "integers": _array(_INTEGER),
    "at least two": _array(_NAME, minItems=2),
    "exactly three": _array(_BOOLEAN, minItems=3, maxItems=3),
    "pair": {"type": "array", "prefixItems": [_NAME, _INTEGER], "items": False, "minItems": 2},
    "open tuple": {"type": "array", "prefixItems": [_BOOLEAN], "items": _INTEGER, "maxItems": 3},
    "matrix": _array(_array(_INTEGER, minItems=2, maxItems=2), minItems=2, maxItems=2),
    "empty array": {"type": "array", "maxItems": 0},
    "array of objects": _array(_object({"x": _NUMBER, "y": _NUMBER}), minItems=1, maxItems=2),
    # Choices and intersections
    "either": {"anyOf": [_INTEGER, _object({"value": _NAME})]},
    "nullable": _object({"note": {"anyOf": [_TEXT, _NULL]}}),
    "shapes": {
        "anyOf": [
            _object({"kind": {"const": "circle"}, "radius": _NUMBER}),
            _object({"kind": {"const": "square"}, "side": _NUMBER}),
        ]
    },
    "one of": {"oneOf": [{"type": "integer", "minimum": 0, "maximum": 9}, _BOOLEAN]},
    "all of": {
        "allOf": [
            {"type": "object", "properties": {"a": _INTEGER}, "required": ["a"]},
            {"type": "object", "properties": {"b": _BOOLEAN}, "required": ["b"]},
        ],
        "additionalProperties": False,
        "properties": {"a": True, "b": True},
    },
    "bounds from both": {"allOf": [{"type": "integer", "minimum": 5}, {"maximum": 8}]},
    # References and recursion
    "definitions": {
        "$defs": {"point": _object({"x": _INTEGER, "y": _INTEGER})},
        **_object({"from": {"$ref": "#/$defs/point"}, "to": {"$ref": "#/$defs/point"}}),
    },
    "older definitions": {
        "definitions": {"flag": _BOOLEAN},
        **_array({"$ref": "#/definitions/flag"}, minItems=1),
    },
    "reference to a sibling": _object({"a": _NAME, "b": {"$ref": "#/properties/a"}}),
    "chain": {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": _object(
                {"value": _INTEGER, "next": {"anyOf": [{"$ref": "#/$defs/node"}, _NULL]}}
            )
        },
    },
    "tree": {
        "$ref": "#/$defs/tree",
        "$defs": {
            "tree": _object(
                {
                    "name": {"type": "string", "maxLength": 4},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2},
                }
            )
        },
    },
    "expression": {
        "$ref": "#/$defs/expression",
        "$defs": {
            "expression": {
                "anyOf": [
                    _INTEGER,
                    _object({"op": {"enum": ["+", "-"]}, "of": {"$ref": "#/$defs/pair"}}),
                ]
            },
            "pair": {
                "type": "array",
                "items": {"$ref": "#/$defs/expression"},
                "minItems": 2,
                "maxItems": 2,
            },
        },
    },
    "steps": {
        **_object({"steps": _array({"$ref": "#/$defs/step"}, maxItems=2)}),
        "$defs": {"step": _object({"explanation": {"type": "string", "maxLength": 8}})},
    },
    # What people send
    "function call": _object(
        {
            "name": {"const": "get_weather"},
            "arguments": _object({"city": _NAME, "unit": {"enum": ["celsius", "fahrenheit"]}}),
        }
    ),
    "invoice": _object(
        {
            "number": {"type": "string", "pattern": "^[0-9]{6}$"},
            "lines": _array(_object({"item": _NAME, "count": {"enum": [1, 2, 3]}}), maxItems=2),
            "paid": _BOOLEAN,
        }
    ),
    "annotated": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Review",
        "description": "What a reader thought.",
        **_object(
            {
                "stars": {"type": "integer", "minimum": 1, "maximum": 5, "description": "of 5"},
                "words": {"type": "string", "maxLength": 30, "default": "", "examples": ["good"]},
            }
        ),
    },
    "wide": _object({f"field_{i}": {"enum": [0, 1]} for i in range(12)}),
    "anything in it": _object({"kind": {"const": "any"}, "list": _array({"type": ["integer"]})}),
}
