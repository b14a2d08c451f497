"""The one table of failures, both ways between gRPC, HTTP and OpenAI's error body."""

import json

import grpc
import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from router_svc.errors import (
    ApiError,
    ErrorKind,
    from_grpc_status,
    from_http_status,
    invalid,
    quoted,
    shortened,
)


def received(error: ApiError) -> ApiError:
    """The error after a trip over gRPC."""
    status = error.status()
    return from_grpc_status(status.code, status.message, status.SerializeToString())


def test_every_http_status_of_the_surface_has_a_kind() -> None:
    known = {kind.http_status for kind in ErrorKind}

    assert known == {
        *(400, 401, 403, 404, 405, 408, 413, 414, 415, 422, 429, 431, 499),
        *(500, 501, 503, 504),
    }


@pytest.mark.parametrize("code", list(grpc.StatusCode))
def test_every_grpc_code_becomes_an_error_with_a_safe_message(code: grpc.StatusCode) -> None:
    error = from_grpc_status(code.value[0], "")

    assert error.message == error.kind.safe_message
    assert 400 <= error.http_status < 600


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_a_kind_survives_grpc_unless_it_is_about_http_alone(kind: ErrorKind) -> None:
    about_http = (
        ErrorKind.METHOD_NOT_ALLOWED,
        ErrorKind.REQUEST_TIMEOUT,
        ErrorKind.REQUEST_TOO_LARGE,
        ErrorKind.URI_TOO_LONG,
        ErrorKind.HEADERS_TOO_LARGE,
        ErrorKind.UNSUPPORTED_MEDIA_TYPE,
        ErrorKind.UNPROCESSABLE,
    )

    if kind not in about_http:
        assert received(ApiError(kind, "m", code="some_code")).kind is kind


def test_message_field_code_and_delay_survive_grpc() -> None:
    error = received(
        ApiError(
            ErrorKind.RATE_LIMITED, "queue full", param="n", code="queue_full", retry_after=2.5
        )
    )

    assert (error.message, error.param, error.code) == ("queue full", "n", "queue_full")
    assert error.retry_after == 2.5


def test_the_body_is_openais() -> None:
    error = ApiError(
        ErrorKind.INVALID_REQUEST, "too long", param="messages", code="context_length_exceeded"
    )

    assert error.body() == {
        "error": {
            "message": "too long",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    }


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses; ipv4:10.0.0.7:50052"),
        (grpc.StatusCode.UNKNOWN, "Exception calling application: /srv/octavo/engine.py"),
        (grpc.StatusCode.INTERNAL, "RuntimeError: hunter2"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max (9 vs. 4)"),
    ],
)
def test_words_that_octavo_did_not_write_are_not_passed_on(
    code: grpc.StatusCode, message: str
) -> None:
    error = from_grpc_status(code.value[0], message)

    assert error.message == error.kind.safe_message


def test_what_the_client_did_wrong_is_always_said() -> None:
    error = from_grpc_status(grpc.StatusCode.INVALID_ARGUMENT.value[0], "top_k must be positive")

    assert error.message == "top_k must be positive"


@pytest.mark.parametrize("details", [b"\xff\xff", b"x" * 100_000])
def test_details_that_cannot_be_read_are_as_good_as_none(details: bytes) -> None:
    assert from_grpc_status(14, "secret", details).kind is ErrorKind.UNAVAILABLE


def test_unknown_details_are_passed_over() -> None:
    status = status_pb2.Status(code=14, message="draining")
    status.details.append(any_pb2.Any(type_url="type.googleapis.com/nobody.Knows", value=b"\xff"))
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason="DRAINING", domain="octavo"))

    error = from_grpc_status(14, "draining", status.SerializeToString())

    assert (error.message, error.code, error.retry_after) == ("draining", "draining", 1.0)


def test_a_detail_of_a_known_kind_that_is_broken_is_as_good_as_none() -> None:
    status = status_pb2.Status(code=14, message="secret")
    status.details.append(
        any_pb2.Any(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=b"\xff")
    )

    assert from_grpc_status(14, "secret", status.SerializeToString()).code is None


@pytest.mark.parametrize("code", [-1, 17, 99_999])
def test_a_code_that_grpc_lacks_is_a_server_error(code: int) -> None:
    assert from_grpc_status(code, "secret").kind is ErrorKind.INTERNAL


@pytest.mark.parametrize(
    ("status", "expected"), [(418, 400), (404, 404), (502, 500), (503, 503), (301, 500)]
)
def test_any_http_status_has_an_error(status: int, expected: int) -> None:
    assert from_http_status(status).http_status == expected


@pytest.mark.parametrize(
    ("seconds", "whole", "milliseconds"),
    [(0.2, b"1", b"200"), (2.001, b"3", b"2001"), (-1.0, b"1", b"0"), (1e12, b"3600", b"3600000")],
)
def test_a_delay_is_told_in_seconds_and_milliseconds(
    seconds: float, whole: bytes, milliseconds: bytes
) -> None:
    headers = dict(ApiError(ErrorKind.UNAVAILABLE, "m", retry_after=seconds).headers())

    assert headers == {b"retry-after": whole, b"retry-after-ms": milliseconds}


def test_a_full_or_absent_server_always_says_when_to_retry() -> None:
    assert ApiError(ErrorKind.RATE_LIMITED, "m").headers()
    assert ApiError(ErrorKind.UNAVAILABLE, "m").headers()
    assert not ApiError(ErrorKind.INVALID_REQUEST, "m").headers()


@pytest.mark.parametrize("text", ["x" * 100_000, "é" * 100_000, "\U0001f44d" * 5_000, "a\ud800b"])
def test_a_message_is_short_and_valid_unicode(text: str) -> None:
    error = invalid(text, text)

    assert len(error.message.encode("utf-8")) <= 2048
    assert len((error.param or "").encode("utf-8")) <= 256
    assert error.status().message == error.message
    json.dumps(error.body(), ensure_ascii=False).encode("utf-8")


def test_client_text_is_quoted_escaped_and_cut() -> None:
    assert quoted('a"\n') == '"a\\"\\n"'
    assert quoted("x" * 100, most=4) == '"xxx…"'
    assert shortened("abcd", most=4) == "abcd"
