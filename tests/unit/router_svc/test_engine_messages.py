"""What a client sees of an engine's refusal: the public names of fields, and no others."""

from __future__ import annotations

import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from octavo.engine.v1 import engine_pb2 as pb

from router_svc.engines.messages import to_error
from router_svc.errors import ErrorKind


def refusal(field: str) -> pb.Failure:
    violation = error_details_pb2.BadRequest.FieldViolation(field=field, description="is wrong")
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.BadRequest(field_violations=[violation]))
    message = f"{field}: is wrong"
    status = status_pb2.Status(code=3, message=message, details=[detail])
    return pb.Failure(code=3, message=message, status_details=status.SerializeToString())


@pytest.mark.parametrize(
    ("field", "public"),
    [
        ("sampling.top_p", "top_p"),
        ("sampling.bad_words[7].token_ids[2]", "bad_words"),
        ("stopping.min_tokens", "min_tokens"),
        ("n", "n"),
    ],
)
def test_a_refusal_names_the_public_field(field: str, public: str) -> None:
    error = to_error(refusal(field))

    assert (error.kind, error.param) == (ErrorKind.INVALID_REQUEST, public)
    assert error.message == f"{public}: is wrong"


def test_a_failure_of_no_field_is_passed_on() -> None:
    error = to_error(pb.Failure(code=3, message="odd"))

    assert (error.kind, error.param, error.message) == (ErrorKind.INVALID_REQUEST, None, "odd")
