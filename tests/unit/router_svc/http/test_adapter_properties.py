"""What holds for every body: valid ones arrive whole, and none is a server error."""

from collections.abc import Callable
from importlib import import_module

import httpx
import orjson
import pytest
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from json_forms import ROUTES, messages, to_json
from public_services import METHODS

from router_svc.codegen.model import snake
from router_svc.http.body import parse_object

SETTINGS = settings(
    max_examples=40,
    # The client and server outlive an example; they keep no state between requests.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def decoder(route: str) -> tuple[Callable[[object, str], Message], Callable[[Message], None]]:
    """The generated decoder and validator of a route's body."""
    descriptor = ROUTES[route]
    stem, name = (
        descriptor.file.name.rsplit("/", 1)[1].removesuffix(".proto"),
        snake(descriptor.name),
    )
    decode = import_module(f"router_svc.gen.{stem}_decode")
    validate = import_module(f"router_svc.gen.{stem}_validate")
    return getattr(decode, f"decode_{name}"), getattr(validate, f"validate_{name}")


FIELD_NAMES = sorted(
    {
        field.name
        for file in {method.containing_service.file for method in METHODS}
        for message in file.message_types_by_name.values()
        for field in message.fields
    }
    | {"type", "text", "input_text", ""}
)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["user", "text", "function"]),
    lambda children: (
        st.lists(children, max_size=4)
        | st.dictionaries(st.sampled_from(FIELD_NAMES) | st.text(max_size=4), children, max_size=5)
    ),
    max_leaves=20,
)


@pytest.mark.parametrize("route", ROUTES)
@SETTINGS
@given(data=st.data())
def test_a_valid_message_survives_its_json_form(route: str, data: st.DataObject) -> None:
    decode, validate = decoder(route)
    message = data.draw(messages(ROUTES[route]))

    decoded = decode(parse_object(orjson.dumps(to_json(message))), "")
    validate(decoded)

    assert decoded == message


@pytest.mark.parametrize("route", ROUTES)
@SETTINGS
@given(body=st.dictionaries(st.sampled_from(FIELD_NAMES), JSON_VALUES, max_size=6) | JSON_VALUES)
def test_no_json_is_a_server_error(easy_http: httpx.Client, route: str, body: object) -> None:
    response = easy_http.post(
        route, content=orjson.dumps(body), headers={"content-type": "application/json"}
    )

    assert response.status_code in (200, 400)
    if response.status_code == 400:
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("route", ROUTES)
@SETTINGS
@given(data=st.data(), value=JSON_VALUES)
def test_no_field_of_a_valid_body_takes_down_the_server(
    easy_http: httpx.Client, route: str, data: st.DataObject, value: object
) -> None:
    body = to_json(data.draw(messages(ROUTES[route])))
    body.pop("model", None)
    body[data.draw(st.sampled_from([field.name for field in ROUTES[route].fields]))] = value

    assert easy_http.post(route, json=body).status_code in (200, 400)


@pytest.mark.parametrize("route", ROUTES)
@SETTINGS
@given(body=st.binary(max_size=64))
def test_no_bytes_are_a_server_error(easy_http: httpx.Client, route: str, body: bytes) -> None:
    response = easy_http.post(route, content=body, headers={"content-type": "application/json"})

    assert response.status_code == 400
