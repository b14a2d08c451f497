"""The plugin against small protos: each option's effect, and what it refuses to map."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from proto_files import compile_request, contents

from router_svc.codegen.model import snake
from router_svc.codegen.plugin import generate
from router_svc.errors import ApiError

EVERY_SHAPE = """
// Asks for a thing.
message MakeThingRequest {
  // Words a client may say.
  optional Colour colour = 1 [(octavo.http.v1.field) = {name: "color"}];
  // A number or a switch or a map.
  Mixed mixed = 2;
  // Anything.
  optional string schema = 3 [(octavo.http.v1.field) = {raw_json: true}];
  // Shapes, one or many.
  repeated Shape shapes = 4 [(octavo.http.v1.field) = {one_or_many: true}];
  // A share.
  optional double share = 5 [(octavo.http.v1.field) = {above: 0}];
}
// A thing.
message Thing {
  Shape shape = 1 [(octavo.http.v1.field) = {unset: UNSET_NULL}];
  string schema = 2 [(octavo.http.v1.field) = {raw_json: true}];
  Colour colour = 3 [(octavo.http.v1.field) = {name: "color"}];
  map<uint32, double> weights = 4;
}
// One of several JSON types.
message Mixed {
  option (octavo.http.v1.message) = {union: UNION_UNTAGGED};
  oneof kind {
    double number = 1;
    bool flag = 2;
    Weights weights = 3;
  }
}
// Name to weight.
message Weights {
  option (octavo.http.v1.message) = {bare_map: true};
  map<string, double> items = 1 [(octavo.http.v1.field) = {max_items: 2}];
}
// A circle or a square.
message Shape {
  option (octavo.http.v1.message) = {union: UNION_TAGGED tag: "kind"};
  oneof form {
    Circle circle = 1;
    Square square = 2 [(octavo.http.v1.field) = {name: "box"}];
  }
}
// Round.
message Circle { int32 radius = 1 [(octavo.http.v1.field) = {required: true minimum: 1}]; }
// Not round.
message Square { uint64 side = 1; }
// Colours.
enum Colour {
  COLOUR_UNSPECIFIED = 0;
  COLOUR_RED = 1;
  COLOUR_DARK_BLUE = 2 [(octavo.http.v1.value) = {name: "dark-blue"}];
}
"""


class Adapter:
    """The generated modules of EVERY_SHAPE, loaded."""

    def __init__(self, directory: Path) -> None:
        self.files = contents(compile_request(directory, "shapes", EVERY_SHAPE))
        self.pb = importlib.import_module("shapes.v1.things_pb2")
        self.decode = self._load("things_decode.py")
        self.validate = self._load("things_validate.py")
        self.encode = self._load("things_encode.py")

    def request(self, **fields: Any) -> Any:
        """A decoded and validated request."""
        message = self.decode["decode_make_thing_request"](fields, "")
        self.validate["validate_make_thing_request"](message)
        return message

    def _load(self, name: str) -> dict[str, Any]:
        module: dict[str, Any] = {}
        exec(compile(self.files[name], name, "exec"), module)
        return module


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("protos")
    sys.path.insert(0, str(directory))
    yield Adapter(directory)
    sys.path.remove(str(directory))


def test_an_enum_and_a_field_have_the_names_that_their_options_give(adapter: Adapter) -> None:
    assert adapter.request(color="red").colour == adapter.pb.COLOUR_RED
    assert adapter.request(color="dark-blue").colour == adapter.pb.COLOUR_DARK_BLUE
    with pytest.raises(ApiError, match="Unknown field: colour"):
        adapter.request(colour="red")


@pytest.mark.parametrize(
    ("value", "form"), [(1, "number"), (1.5, "number"), (True, "flag"), ({"a": 1}, "weights")]
)
def test_an_untagged_union_is_told_by_its_json_type(
    adapter: Adapter, value: Any, form: str
) -> None:
    assert adapter.request(mixed=value).mixed.WhichOneof("kind") == form


def test_an_untagged_union_names_the_types_that_it_takes(adapter: Adapter) -> None:
    with pytest.raises(ApiError, match="mixed must be a number or a boolean or an object, not a s"):
        adapter.request(mixed="a")


def test_a_tagged_union_is_told_by_its_tag(adapter: Adapter) -> None:
    request = adapter.request(shapes=[{"kind": "circle", "radius": 2}, {"kind": "box", "side": 1}])

    assert [shape.WhichOneof("form") for shape in request.shapes] == ["circle", "square"]


def test_one_message_may_stand_for_a_list(adapter: Adapter) -> None:
    assert len(adapter.request(shapes={"kind": "box"}).shapes) == 1


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"shapes": [{"kind": "circle", "radius": 0}]}, "shapes[0].radius"),
        ({"shapes": [{"kind": "circle"}]}, "shapes[0].radius"),
        ({"shapes": [{"kind": "circle", "radius": 1, "side": 1}]}, "shapes[0].side"),
        ({"shapes": [{"kind": "square"}]}, "shapes[0].kind"),
        ({"mixed": {"a": 1, "b": 2, "c": 3}}, "mixed"),
        ({"mixed": {"a": "x"}}, "mixed.a"),
        ({"share": 0}, "share"),
    ],
)
def test_an_error_names_the_place_inside_a_union(
    adapter: Adapter, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(ApiError) as caught:
        adapter.request(**fields)

    assert caught.value.param == param


def test_raw_json_is_any_value_as_text(adapter: Adapter) -> None:
    assert adapter.request(schema=[1, None]).schema == "[1,null]"
    assert adapter.request(schema="x").schema == '"x"'


def test_an_answer_is_encoded_by_the_same_options(adapter: Adapter) -> None:
    import orjson

    thing = adapter.pb.Thing(
        shape=adapter.pb.Shape(square=adapter.pb.Square(side=3)),
        schema='{"b":1,"a":[]}',
        colour=adapter.pb.COLOUR_DARK_BLUE,
        weights={5: 0.5},
    )

    assert orjson.dumps(adapter.encode["encode_thing"](thing)) == (
        b'{"shape":{"kind":"box","side":3},"schema":{"b":1,"a":[]},'
        b'"color":"dark-blue","weights":{"5":0.5}}'
    )


def test_the_same_input_gives_the_same_files(tmp_path: Path) -> None:
    request = compile_request(tmp_path, "twice", EVERY_SHAPE)

    assert generate(request) == generate(request)


def test_the_openapi_document_says_what_the_decoder_does(adapter: Adapter) -> None:
    document = json.loads(adapter.files["openapi.json"])
    schemas = document["components"]["schemas"]
    request = {
        "$ref": "#/components/schemas/MakeThingRequest",
        "components": document["components"],
    }
    validator = jsonschema.Draft202012Validator(request)

    for body in (
        {},
        {"color": "dark-blue", "mixed": True, "shapes": {"kind": "circle", "radius": 1}},
        {"mixed": {"a": 1}, "schema": [1], "share": None, "shapes": [{"kind": "box", "side": 0}]},
    ):
        validator.validate(body)
        adapter.request(**body)
    for body in (
        {"colour": "red"},
        {"color": "blue"},
        {"mixed": "a"},
        {"shapes": {"kind": "circle", "radius": 0}},
        {"shapes": {"kind": "circle", "radius": 1, "side": 1}},
        {"share": 0},
    ):
        assert not validator.is_valid(body)
        with pytest.raises(ApiError):
            adapter.request(**body)
    # A shape is part of requests and answers, which say different things about it.
    assert {"ShapeInput", "ShapeOutput"} <= schemas.keys()
    assert document["paths"]["/things"]["post"]["summary"] == "Makes a thing."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bytes data = 1;", "MakeThingRequest.data: TYPE_BYTES has no JSON form"),
        ("oneof a { string b = 1; }", "MakeThingRequest: a oneof outside a union"),
        (
            "option (octavo.http.v1.message) = {union: UNION_TAGGED}; oneof a { Thing b = 1; }",
            "MakeThingRequest: a tagged union names its tag",
        ),
        (
            "option (octavo.http.v1.message) = {bare_array: true}; string a = 1;",
            "MakeThingRequest: a bare array is one repeated field",
        ),
        (
            "option (octavo.http.v1.message) = {bare_map: true bare_array: true};",
            "exclude each other",
        ),
        (
            "option (octavo.http.v1.message) = {union: UNION_UNTAGGED};"
            "oneof a { int32 b = 1; int64 c = 2; }",
            "two members have the same JSON type",
        ),
        (
            "option (octavo.http.v1.message) = {union: UNION_TAGGED tag: 't'};"
            "oneof a { string b = 1; }",
            "MakeThingRequest.b: a tagged member is a message",
        ),
    ],
)
def test_what_has_no_json_form_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    request = compile_request(
        tmp_path,
        "refused",
        f"message MakeThingRequest {{ {text} }} message Thing {{ int32 a = 1; }}",
    )

    assert message in generate(request).error


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("CreateChatCompletion", "create_chat_completion"),
        ("GetURLThing", "get_url_thing"),
        ("Model", "model"),
    ],
)
def test_names_become_snake_case(name: str, expected: str) -> None:
    assert snake(name) == expected
