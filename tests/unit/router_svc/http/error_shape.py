"""What every failed answer must look like, whatever made it fail."""

import json

import httpx


def assert_error(response: httpx.Response, status: int, param: str | None = None) -> dict:
    """Checks status, media type, request id and the one error body; returns its content."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    body = json.loads(response.content.decode("utf-8"))
    assert list(body) == ["error"]
    assert list(body["error"]) == ["message", "type", "param", "code"]
    error = body["error"]
    assert error["param"] == param
    assert 0 < len(error["message"].encode()) <= 2048
    for internal in ("Traceback", "/router_svc/", "hunter2"):
        assert internal not in error["message"]
    return error
