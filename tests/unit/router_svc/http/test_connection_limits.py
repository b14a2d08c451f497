"""What a connection may send before and instead of a body, byte by byte over a raw socket."""

import contextlib
import json
import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from fake_inference import FakeInference
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import served

from router_svc.gen.inference_service import inference_service
from router_svc.http.app import build_app
from router_svc.http.exchange import HttpSettings
from router_svc.http.protocol import LimitedProtocol

CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
BODY = b'{"messages":[{"role":"user","content":"a"}]}'


class HastyProtocol(LimitedProtocol):
    """Does not wait for long."""

    head_seconds = 0.2
    rest_seconds = 0.2


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a server that is as patient as Octavo is by itself."""
    settings = HttpSettings(body_cap=4096)
    with served(build_app([inference_service(FakeInference())], settings=settings)) as client:
        yield client.base_url.port


@pytest.fixture(scope="module")
def hasty_port() -> Iterator[int]:
    """The port of a server that waits for no head and no body for longer than 0.2 seconds."""
    settings = HttpSettings(body_cap=4096, body_seconds=0.2)
    app = build_app([inference_service(FakeInference())], settings=settings)
    with served(app, protocol=HastyProtocol) as client:
        yield client.base_url.port


@contextlib.contextmanager
def connection(port: int) -> Iterator[socket.socket]:
    """A connection of its own."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as opened:
        yield opened


def all_from(opened: socket.socket) -> bytes:
    """Everything until the server ends the connection."""
    received = b""
    while True:
        try:
            data = opened.recv(65536)
        except ConnectionResetError:  # it closed before it had read everything
            return received
        if not data:
            return received
        received += data


def answer(port: int, sent: bytes) -> bytes:
    """What the server says before it ends the connection."""
    with connection(port) as opened:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused already
            opened.sendall(sent)
        return all_from(opened)


def assert_refused(received: bytes, status: int) -> dict[str, Any]:
    """Checks that the answer is one error of Octavo's shape; returns it."""
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.decode().lower().split("\r\n")
    assert lines[0].startswith(f"http/1.1 {status} ")
    assert "content-type: application/json" in lines
    assert "connection: close" in lines
    assert any(line.startswith("x-request-id: ") for line in lines)
    error = json.loads(body)["error"]
    assert list(error) == ["message", "type", "param", "code"]
    return error


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x80\x04\x95.pickle\x94.",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nBad Name: y\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        CHAT + b"Content-Length: -1\r\n\r\n",
        CHAT + b"Content-Length: 5, 6\r\n\r\n",
        CHAT + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        CHAT + b"Content-Length: 99999999999999999999999\r\n\r\n",
        CHAT + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        CHAT + b"Transfer-Encoding: chunked\r\n Content-Length: 5\r\n\r\n0\r\n\r\n",
    ],
)
def test_what_is_not_http_gets_the_error_shape(port: int, sent: bytes) -> None:
    assert_refused(answer(port, sent), 400)


def test_a_chunk_that_is_none_is_refused_as_no_answer_has_begun(port: int) -> None:
    received = answer(port, CHAT + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n")

    assert_refused(received, 400)


def test_a_long_address_is_refused(port: int) -> None:
    sent = b"GET /v1/models/" + b"m" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"

    error = assert_refused(answer(port, sent), 414)

    assert "8192" in error["message"]


@pytest.mark.parametrize(
    "headers",
    [
        b"".join(b"x-%d: y\r\n" % number for number in range(101)),
        b"x-long: " + b"y" * 33_000 + b"\r\n",
        (b"x-long: " + b"y" * 1000 + b"\r\n") * 40,
        b"x-endless: " + b"y" * 1_000_000,
        b"n" * 1_000_000,
    ],
    ids=["many", "one long", "long together", "endless value", "endless name"],
)
def test_too_many_or_long_headers_are_refused(port: int, headers: bytes) -> None:
    error = assert_refused(answer(port, b"GET /v1/models HTTP/1.1\r\n" + headers + b"\r\n"), 431)

    assert "32768" in error["message"]


def test_headers_within_the_limits_are_served(port: int) -> None:
    headers = b"".join(b"x-%d: %b\r\n" % (number, b"y" * 300) for number in range(97))
    sent = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + headers + b"\r\n"

    assert answer(port, sent).startswith(b"HTTP/1.1 200 ")


def test_each_request_of_a_connection_has_the_limits_anew(port: int) -> None:
    request = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nx-a: " + b"y" * 20_000 + b"\r\n"
    with connection(port) as opened:
        for _ in range(3):
            opened.sendall(request + b"\r\n")
            assert opened.recv(65536).startswith(b"HTTP/1.1 200 ")
        opened.sendall(request + b"Connection: close\r\n\r\n")
        assert all_from(opened).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("sent", [b"GET ", CHAT, b"\r\n\r\n"])
def test_a_head_that_does_not_end_in_time_is_refused(hasty_port: int, sent: bytes) -> None:
    error = assert_refused(answer(hasty_port, sent), 408)

    assert error["type"] == "timeout_error"


def test_a_connection_that_says_nothing_is_ended(hasty_port: int) -> None:
    assert answer(hasty_port, b"") == b""


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Length: 44\r\n\r\n" + BODY[:20],
        b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"mes\r\n',
        b"Content-Length: 44\r\nExpect: 100-continue\r\n\r\n",
    ],
    ids=["announced", "in chunks", "asked for"],
)
def test_a_body_that_does_not_come_in_time_is_refused(hasty_port: int, rest: bytes) -> None:
    received = answer(hasty_port, CHAT + rest)

    received = received.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert "0.2 seconds" in assert_refused(received, 408)["message"]


def test_dripping_keeps_no_connection_open(hasty_port: int) -> None:
    with connection(hasty_port) as opened:
        opened.sendall(CHAT + b"Content-Length: 4000\r\n\r\n")
        opened.settimeout(0.02)
        received = b""
        for _ in range(1000):
            try:
                opened.sendall(b"{")
                received += opened.recv(4096)
            except TimeoutError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                break
        else:
            pytest.fail("the server went on waiting")

    assert_refused(received, 408)


def test_what_is_dripped_after_an_answer_is_not_waited_for(hasty_port: int) -> None:
    with connection(hasty_port) as opened:
        opened.sendall(b"POST /nope HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\n")

        assert all_from(opened).startswith(b"HTTP/1.1 404 ")


def test_a_body_beyond_the_cap_is_refused_before_it_is_sent(port: int) -> None:
    sent = CHAT + b"Content-Length: 4097\r\nExpect: 100-continue\r\n\r\n"

    received = answer(port, sent)

    assert b"100 Continue" not in received
    assert_refused(received, 413)


def test_trailers_change_nothing(port: int) -> None:
    chunks = b"%x\r\n%b\r\n0\r\nX-Request-Id: from-a-trailer\r\n\r\n" % (len(BODY), BODY)
    sent = CHAT + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks

    received = answer(port, sent)

    assert received.startswith(b"HTTP/1.1 200 ")
    assert b"from-a-trailer" not in received


def test_rubbish_does_not_get_into_an_answer_under_way(hasty_port: int) -> None:
    slow = BODY[:-1] + b',"model":"hangs"}'
    with connection(hasty_port) as opened:
        opened.sendall(CHAT + b"Content-Length: %d\r\n\r\n" % len(slow) + slow)
        opened.sendall(b"rubbish\r\n\r\n")

        assert all_from(opened) == b""


VALID = CHAT + b"Content-Length: 44\r\n\r\n" + BODY


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(
    sent=st.binary(max_size=200)
    | st.builds(
        lambda at, junk, skipped: VALID[:at] + junk + VALID[at + skipped :],
        st.integers(0, len(VALID)),
        st.binary(max_size=8),
        st.integers(0, 8),
    )
)
def test_no_bytes_take_down_the_server_or_get_another_shape(hasty_port: int, sent: bytes) -> None:
    with connection(hasty_port) as opened:
        opened.sendall(sent)
        with contextlib.suppress(OSError):  # it may have answered and closed by now
            opened.shutdown(socket.SHUT_WR)
        received = all_from(opened)

    while received:
        head, _, rest = received.partition(b"\r\n\r\n")
        status = int(head.split(b" ")[1])
        assert status in (200, 400, 404, 405, 408, 413, 414, 415, 431), received
        length = re.search(rb"(?i)content-length: (\d+)", head)
        size = int(length[1]) if length and b"HEAD " not in sent else 0
        if status != 200 and size:
            assert list(json.loads(rest[:size])) == ["error"]
        received = rest[size:]


def test_the_server_has_survived_all_this(port: int) -> None:
    sent = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

    assert answer(port, sent).startswith(b"HTTP/1.1 200 ")
