"""No integer anywhere in a request body takes a value that it has no meaning for."""

import httpx
import pytest
from error_shape import assert_error
from json_forms import Place, integer_places

PLACES = list(integer_places())
EXTREMES = [-1, -(2**31), 2**31, 2**63 - 1, 2**64, 1e308, True, "1"]


def test_the_places_are_found_from_the_descriptors() -> None:
    found = {str(place) for place in PLACES}

    assert {
        "/v1/chat/completions n",
        "/v1/chat/completions logit_bias.*",
        "/v1/completions prompt[0]",
        "/v1/completions prompt[0][0]",
        "/detokenize tokens[0]",
    } <= found


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_an_extreme_is_either_within_the_limits_or_refused_by_name(
    http: httpx.Client, place: Place
) -> None:
    is_key = place.path.endswith(".*")
    for value in EXTREMES:
        response = http.post(place.route, json=place.body(value))

        is_integer = type(value) is int or (is_key and value == "1")
        if is_integer and place.low <= int(value) <= place.high:
            assert response.status_code == 200, (value, response.text)
        elif place.path == "prompt" or (place.path.startswith("prompt[") and value in (True, "1")):
            # Another of the prompt's forms, or none: still never a server error.
            assert response.status_code in (200, 400)
        else:
            assert_error(response, 400, place.path.replace("*", str(value)))
