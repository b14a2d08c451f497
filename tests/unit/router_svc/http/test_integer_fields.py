"""No integer anywhere in a request takes a value that it has no meaning for, over HTTP or gRPC."""

from typing import Any

import grpc
import httpx
import pytest
from error_shape import assert_error
from google.protobuf.descriptor import Descriptor
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from integer_fields import MessagePlace, message_places
from json_forms import ROUTES, Place, integer_places, is_integer, rule_of, type_bounds

PLACES = list(integer_places())
MESSAGE_PLACES = list(message_places())
EXTREMES = [-1, -(2**31), 2**31, 2**63 - 1, 2**64, 1e308, True, "1"]


def integer_fields(descriptor: Descriptor) -> set[str]:
    """Full names of the integers below a message, those of refused fields left out."""
    found: set[str] = set()
    for field in descriptor.fields:
        if rule_of(field).refused or (
            field.message_type and field.message_type.GetOptions().map_entry
        ):
            continue
        if field.message_type is not None:
            found |= integer_fields(field.message_type)
        elif is_integer(field):
            found.add(field.full_name)
    return found


def test_no_integer_field_is_left_out() -> None:
    fields = set[str]().union(*(integer_fields(descriptor) for descriptor in ROUTES.values()))

    assert {place.field.full_name for place in MESSAGE_PLACES} == fields
    assert {
        "/v1/chat/completions n",
        "/v1/chat/completions logit_bias.*",
        "/v1/completions prompt[0]",
        "/v1/completions prompt[0][0]",
        "/detokenize tokens[0]",
        "/v1/messages max_tokens",
        "/v1/responses max_output_tokens",
        "/v1/embeddings dimensions",
        "/rerank top_n",
    } <= {str(place) for place in PLACES}


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_an_extreme_is_either_within_the_limits_or_refused_by_name(
    easy_http: httpx.Client, place: Place
) -> None:
    is_key = place.path.endswith(".*")
    # A field of many forms: another form may be meant, but still it is never a server error.
    is_of_many_forms = place.path in ("prompt", "input") or place.path.startswith(
        ("prompt[", "input[")
    )
    for value in EXTREMES:
        response = easy_http.post(place.route, json=place.body(value))

        is_number = type(value) is int or (is_key and value == "1")
        if is_number and place.low <= int(value) <= place.high:
            assert response.status_code == 200, (value, response.text)
        elif is_of_many_forms:
            assert response.status_code in (200, 400)
        else:
            assert_error(response, 400, place.path.replace("*", str(value)))


@pytest.mark.parametrize("place", MESSAGE_PLACES, ids=str)
async def test_and_so_it_is_over_grpc(easy_channel: Any, place: MessagePlace) -> None:
    lowest, highest = type_bounds(place.field)
    call = easy_channel.unary_unary(
        place.rpc, request_serializer=lambda message: message.SerializeToString()
    )
    for value in {-1, lowest, 2**31 - 1, 2**31, highest, place.low - 1, place.high + 1}:
        if not lowest <= value <= highest or not value:
            continue  # the type cannot hold it, or it is the same as leaving the field out
        if place.low <= value <= place.high:
            await call(place.message(value))
            continue
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(place.message(value))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        (detail, *_) = rpc_status.from_call(caught.value).details
        violation = error_details_pb2.BadRequest.FromString(detail.value).field_violations[0]
        assert violation.field == place.path
