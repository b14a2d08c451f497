"""Several protos in one package, and the forms that the newer services need, loaded and called."""

import asyncio
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest
from proto_files import compile_files, contents

import router_svc.gen
from router_svc.codegen.plugin import generate
from router_svc.errors import ApiError, ErrorKind
from router_svc.http.exchange import HttpSettings

PARTS = """
// Reads books.
service Library {
  // Counts pages.
  rpc CountPages(Book) returns (Book) { option (octavo.http.v1.http) = {post: "/pages"}; }
}
// How a book is bound.
enum Binding { BINDING_UNSPECIFIED = 0; BINDING_PAPER = 1; BINDING_CLOTH = 2; }
// A book.
message Book {
  // Its title.
  string title = 1 [(octavo.http.v1.field) = {required: true max_length: 8}];
}
"""

ORDERS = """
import "%s/v1/parts.proto";
// Takes orders.
service Orders {
  // Places an order.
  rpc PlaceOrder(PlaceOrderRequest) returns (PlaceOrderResponse) {
    option (octavo.http.v1.http) = {
      post: "/v1/orders" also: "/orders" streaming_rpc: "StreamOrder" event_key: "type"
    };
  }
  // Places an order and follows it.
  rpc StreamOrder(PlaceOrderRequest) returns (stream OrderEvent);
  // Lends a book of the other file.
  rpc Lend(Book) returns (Book) { option (octavo.http.v1.http) = {post: "/lend"}; }
}
// An order.
message PlaceOrderRequest {
  // Whether it is followed.
  optional bool stream = 1;
  // Words, or a list of items.
  Input input = 2 [(octavo.http.v1.field) = {required: true}];
  // A mode or a choice.
  optional Choice choice = 3;
  // By shelf.
  map<string, Book> shelves = 4;
  // Bindings that will do.
  repeated Binding bindings = 5;
  // Notes of any kind.
  repeated string notes = 6 [(octavo.http.v1.field) = {raw_json_object: true}];
}
// Words or items.
message Input {
  option (octavo.http.v1.message) = {union: UNION_UNTAGGED};
  oneof kind { string words = 1; Items items = 2; }
}
// Items.
message Items {
  option (octavo.http.v1.message) = {bare_array: true};
  repeated Item items = 1 [(octavo.http.v1.field) = {max_items: 3}];
}
// An item; a book unless it says so.
message Item {
  option (octavo.http.v1.message) = {union: UNION_TAGGED tag: "type" tag_default: "book"};
  oneof kind { Book book = 1; Box box = 2; Nothing nothing = 3; }
}
// Items in a box.
message Box { repeated Item items = 1; }
// Nothing at all.
message Nothing {}
// "fast", "slow", another string, a number, or a book that is wanted.
message Choice {
  option (octavo.http.v1.message) = {union: UNION_UNTAGGED};
  oneof kind { Speed speed = 1; Named named = 2; Wanted wanted = 3; }
}
// A number or a name.
message Named {
  option (octavo.http.v1.message) = {union: UNION_UNTAGGED};
  oneof kind { int64 number = 1 [(octavo.http.v1.field) = {minimum: 0}]; bool any = 2; }
}
// A choice of a book.
message Wanted {
  option (octavo.http.v1.message) = {union: UNION_TAGGED tag: "type"};
  oneof kind { Book book = 1; }
}
// How fast.
enum Speed { SPEED_UNSPECIFIED = 0; SPEED_FAST = 1; SPEED_SLOW = 2; }
// A placed order.
message PlaceOrderResponse {
  Input input = 1;
  optional Choice choice = 2;
  map<string, Book> shelves = 3;
  repeated Binding bindings = 4;
}
// What happens to an order.
message OrderEvent {
  option (octavo.http.v1.message) = {union: UNION_TAGGED tag: "type"};
  oneof kind {
    Nothing created = 1 [(octavo.http.v1.field) = {name: "order.created"}];
    Book book = 2;
  }
}
"""


class Adapter:
    """The generated modules of both files."""

    def __init__(self, directory: Path) -> None:
        texts = {"parts": PARTS, "orders": ORDERS % "shop"}
        self.files = contents(compile_files(directory, "shop", texts))
        for name, text in self.files.items():
            (directory / name).write_text(text)
        self.pb = importlib.import_module("shop.v1.orders_pb2")
        self.decode = importlib.import_module("router_svc.gen.orders_decode")
        self.validate = importlib.import_module("router_svc.gen.orders_validate")
        self.encode = importlib.import_module("router_svc.gen.orders_encode")

    def request(self, **fields: Any) -> Any:
        """A decoded and validated request."""
        message = self.decode.decode_place_order_request({"input": "a"} | fields, "")
        self.validate.validate_place_order_request(message)
        return message

    def echo(self, **fields: Any) -> Any:
        """The JSON of an answer that holds a request's fields again."""
        request = self.request(**fields)
        answer = self.pb.PlaceOrderResponse.FromString(b"")
        answer.input.CopyFrom(request.input)
        if request.HasField("choice"):
            answer.choice.CopyFrom(request.choice)
        for shelf, book in request.shelves.items():
            answer.shelves[shelf].CopyFrom(book)
        answer.bindings.extend(request.bindings)
        return orjson.loads(orjson.dumps(self.encode.encode_place_order_response(answer)))

    def error(self, **fields: Any) -> ApiError:
        """What is wrong with a request."""
        with pytest.raises(ApiError) as caught:
            self.request(**fields)
        return caught.value


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("protos")
    sys.path.insert(0, str(directory))
    router_svc.gen.__path__.append(str(directory))
    yield Adapter(directory)
    router_svc.gen.__path__.remove(str(directory))
    sys.path.remove(str(directory))


@pytest.mark.parametrize(
    "fields",
    [
        {"input": "words"},
        {"input": []},
        {"input": [{"type": "book", "title": "a"}, {"type": "nothing"}]},
        {"input": [{"type": "box", "items": [{"type": "box", "items": []}]}]},
        {"choice": "fast"},
        {"choice": 5},
        {"choice": True},
        {"choice": {"type": "book", "title": "a"}},
        {"shelves": {"top": {"title": "a"}}},
        {"bindings": ["paper", "cloth"]},
    ],
)
def test_every_form_comes_out_as_it_went_in(shop: Adapter, fields: dict[str, Any]) -> None:
    echoed = shop.echo(**fields)

    assert {name: echoed[name] for name in fields} == fields


def test_an_object_without_its_tag_is_the_default_member(shop: Adapter) -> None:
    assert shop.echo(input=[{"title": "a"}])["input"] == [{"type": "book", "title": "a"}]


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"input": [{"title": "a", "pages": 3}]}, "input[0].pages", "Unknown field"),
        ({"input": [{"type": "nothing", "x": 1}]}, "input[0].x", "Unknown field"),
        ({"input": [{"type": "disc"}]}, "input[0].type", '"book", "box", "nothing"'),
        ({"input": [{"type": False}]}, "input[0].type", "a string, not a boolean"),
        ({"input": [{"type": ""}]}, "input[0].type", 'not ""'),
        ({"input": [{}]}, "input[0].title", "required"),
        ({"input": [{"title": "ninechars"}]}, "input[0].title", "at most 8"),
        ({"input": [{"type": "nothing"}] * 4}, "input", "at most 3"),
        ({"input": 5}, "input", "a string or an array, not an integer"),
        ({"choice": "swift"}, "choice", '"fast", "slow"'),
        ({"choice": []}, "choice", "a string or an integer or a boolean or an object, not an arr"),
        ({"choice": -1}, "choice", "between 0"),
        ({"choice": {"type": "cd"}}, "choice.type", '"book"'),
        ({"choice": {"title": "a"}}, "choice.type", "required"),
        ({"shelves": {"top": {"title": "ninechars"}}}, "shelves.top.title", "at most 8"),
        ({"notes": [{}, "a"]}, "notes[1]", "an object, not a string"),
        ({"bindings": ["glue"]}, "bindings[0]", '"paper", "cloth"'),
    ],
)
def test_an_error_says_where_and_what_is_known(
    shop: Adapter, fields: dict[str, Any], param: str, words: str
) -> None:
    error = shop.error(**fields)

    assert error.param == param
    assert words in error.message


def test_messages_that_hold_themselves_are_bounded_in_depth(shop: Adapter) -> None:
    item: dict[str, Any] = {"title": "a"}
    for _ in range(500):
        item = {"type": "box", "items": [item]}

    assert "nested deeper than 32 levels" in shop.error(input=[item]).message


def test_a_union_from_grpc_must_hold_a_known_enum(shop: Adapter) -> None:
    request = shop.pb.PlaceOrderRequest(input=shop.pb.Input(words="a"))
    request.choice.speed = 0

    with pytest.raises(ApiError) as caught:
        shop.validate.validate_place_order_request(request)

    assert caught.value.param == "choice"


def test_json_text_from_grpc_must_be_json(shop: Adapter) -> None:
    request = shop.pb.PlaceOrderRequest(input=shop.pb.Input(words="a"), notes=["{}", "[]"])

    with pytest.raises(ApiError) as caught:
        shop.validate.validate_place_order_request(request)

    assert caught.value.param == "notes[1]"


def test_the_limits_of_another_files_message_hold(shop: Adapter) -> None:
    parts = importlib.import_module("shop.v1.parts_pb2")
    request = shop.pb.PlaceOrderRequest(input=shop.pb.Input(words="a"))
    request.shelves["top"].CopyFrom(parts.Book(title="ninechars"))

    with pytest.raises(ApiError) as caught:
        shop.validate.validate_place_order_request(request)

    assert caught.value.param == "shelves.top.title"


def test_a_handler_becomes_a_service_with_all_its_paths(shop: Adapter) -> None:
    orders = importlib.import_module("router_svc.gen.orders_service")

    service = orders.orders_service(object())

    assert service.full_name == "shop.v1.Orders"
    paths = [route.path for route in service.routes(HttpSettings())]
    assert paths == ["/v1/orders", "/orders", "/lend"]


def test_a_stream_names_its_events_by_the_key(shop: Adapter) -> None:
    sent: list[dict[str, Any]] = []

    class Handler:
        async def stream_order(self, _request: Any, _context: Any) -> Any:
            yield shop.pb.OrderEvent(created=shop.pb.Nothing())
            raise ApiError(ErrorKind.UNAVAILABLE, "gone")

    routes = importlib.import_module("router_svc.gen.orders_http").routes(Handler(), HttpSettings())

    asyncio.run(_post(routes[0], {"input": "a", "stream": True}, sent))

    body = b"".join(message.get("body", b"") for message in sent)
    first, last = body.decode().strip().split("\n\n")
    assert first == 'event: order.created\ndata: {"type":"order.created"}'
    name, data = last.split("\n")
    assert name == "event: error"
    event = json.loads(data.removeprefix("data: "))
    assert event["type"] == "error"
    assert event["error"]["message"] == "gone"


async def _post(route: Any, body: dict[str, Any], sent: list[dict[str, Any]]) -> None:
    scope = {
        "type": "http",
        "method": "POST",
        "headers": [(b"content-type", b"application/json")],
        "state": {"request_id": "a"},
    }
    messages = [{"type": "http.request", "body": orjson.dumps(body)}]

    async def receive() -> Any:
        if not messages:
            await asyncio.Event().wait()
        return messages.pop()

    async def send(message: Any) -> None:
        sent.append(message)

    await route.endpoint(scope, receive, send)


def test_one_document_describes_all_files(shop: Adapter) -> None:
    document = json.loads(shop.files["openapi.json"])
    validator = jsonschema.Draft202012Validator(
        {
            "$ref": "#/components/schemas/PlaceOrderRequest",
            "components": document["components"],
        }
    )

    assert set(document["paths"]) == {"/pages", "/v1/orders", "/lend"}
    assert document["paths"]["/v1/orders"]["post"]["description"] == "Also at /orders."
    for fields in ({"input": [{"title": "a"}]}, {"choice": "fast"}, {"choice": {"type": "book"}}):
        body = {"input": "a"} | fields
        try:
            shop.request(**fields)
        except ApiError:
            assert not validator.is_valid(body)
        else:
            validator.validate(body)


def test_files_of_two_packages_are_refused(tmp_path: Path) -> None:
    one = compile_files(tmp_path, "one", {"parts": PARTS})
    two = compile_files(tmp_path, "two", {"parts": PARTS})
    one.file_to_generate.extend(two.file_to_generate)
    one.proto_file.extend(file for file in two.proto_file if file.package == "two.v1")

    assert "not all of one package" in generate(one).error
