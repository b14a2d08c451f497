"""TLS of a port: who is let in, and that its files are followed while it serves."""

from __future__ import annotations

import asyncio
import logging
import ssl
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from octavo.tls import ServerTls, TlsError, TlsFiles, TlsPaths

from tests.support.certificates import Authority, Identity


def _params(identity: Identity, **more: Any) -> dict[str, Any]:
    given = {"ssl_certfile": identity.certfile, "ssl_keyfile": identity.keyfile}
    return {"ssl_ca_certs": None, "ssl_cert_reqs": None} | given | more


@dataclass
class Ports:
    """An HTTP-like and a gRPC port with the same TLS."""

    http: int
    grpc: int

    async def http_lets_in(self, trusts: Path, shows: Identity | None = None) -> bool:
        """Whether a client gets an answer."""
        context = ssl.create_default_context(cafile=trusts)
        if shows is not None:
            context.load_cert_chain(shows.certfile, shows.keyfile)
        try:
            reader, writer = await asyncio.open_connection("localhost", self.http, ssl=context)
            writer.write(b"hello\n")
            answer = await reader.read()
        except (ssl.SSLError, ConnectionError):
            return False
        writer.transport.abort()
        return answer == b"hello\n"

    async def grpc_lets_in(self, trusts: Path, shows: Identity | None = None) -> bool:
        """Whether a client gets an answer."""
        key, chain = (
            (None, None)
            if shows is None
            else (shows.keyfile.read_bytes(), shows.certfile.read_bytes())
        )
        roots = trusts.read_bytes()  # noqa: ASYNC240 -- nothing else runs
        credentials = grpc.ssl_channel_credentials(roots, key, chain)
        async with grpc.aio.secure_channel(f"localhost:{self.grpc}", credentials) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            try:
                await stub.Check(health_pb2.HealthCheckRequest(), timeout=10)
            except grpc.aio.AioRpcError as error:
                return error.code() is not grpc.StatusCode.UNAVAILABLE
            return True

    async def let_in(self, trusts: Path, shows: Identity | None = None) -> bool:
        """Whether both do; they must agree."""
        http = await self.http_lets_in(trusts, shows)
        assert await self.grpc_lets_in(trusts, shows) == http
        return http


@pytest_asyncio.fixture
async def serve() -> AsyncIterator[Any]:
    servers = []

    async def start(**params: Any) -> Ports:
        tls = ServerTls.of(params)
        grpc_server = grpc.aio.server()
        health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), grpc_server)
        grpc_port = grpc_server.add_secure_port("localhost:0", tls.grpc_credentials())
        await grpc_server.start()
        context = tls.http_context()
        http_server = await asyncio.start_server(_echo, "localhost", 0, ssl=context)
        servers.append((grpc_server, http_server))
        return Ports(http_server.sockets[0].getsockname()[1], grpc_port)

    yield start
    for grpc_server, http_server in servers:
        await grpc_server.stop(0)
        http_server.close()


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        writer.write(await reader.readline())
        await writer.drain()
    except (ssl.SSLError, ConnectionError):
        pass  # the client's certificate was refused
    finally:
        writer.close()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def other(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "other")


async def test_a_client_that_trusts_the_authority_is_served(serve, authority, other) -> None:
    ports = await serve(**_params(authority.issue("server")))

    assert await ports.let_in(authority.certfile)
    assert not await ports.let_in(other.certfile)


async def test_with_authorities_clients_must_show_a_certificate_of_theirs(
    serve, authority, other
) -> None:
    params = _params(authority.issue("server"), ssl_ca_certs=authority.certfile)
    ports = await serve(**params)

    assert await ports.let_in(authority.certfile, authority.issue("client"))
    assert not await ports.let_in(authority.certfile)
    assert not await ports.let_in(authority.certfile, other.issue("stranger"))


@pytest.mark.parametrize("said", ["none", "0", "optional", "1"])
async def test_a_client_needs_none_where_that_is_said(serve, authority, said: str) -> None:
    identity = authority.issue("server")
    ports = await serve(**_params(identity, ssl_ca_certs=authority.certfile, ssl_cert_reqs=said))

    assert await ports.let_in(authority.certfile)


async def test_new_files_serve_the_next_connection(serve, authority, other) -> None:
    serving = authority.issue("server")
    ports = await serve(**_params(serving))
    await ports.let_in(authority.certfile)

    other.issue("renewed").move_to(serving)

    assert await ports.let_in(other.certfile)
    assert not await ports.let_in(authority.certfile)


async def test_clients_of_an_authority_that_was_replaced_are_refused(
    serve, authority, other
) -> None:
    trusted = authority.certfile.with_name("trusted.pem")
    trusted.write_bytes(authority.certfile.read_bytes())
    old, new = authority.issue("old"), other.issue("new")
    ports = await serve(**_params(authority.issue("server"), ssl_ca_certs=trusted))
    before = (
        await ports.let_in(authority.certfile, old),
        await ports.let_in(authority.certfile, new),
    )

    trusted.write_bytes(other.certfile.read_bytes())

    after = await ports.let_in(authority.certfile, old), await ports.let_in(authority.certfile, new)
    assert before == (True, False)
    assert after == (False, True)


@pytest.mark.parametrize("damage", ["half replaced", "broken", "gone"])
async def test_files_that_do_not_work_change_nothing_and_are_logged(
    serve, authority, caplog, damage: str
) -> None:
    serving, next_one = authority.issue("server"), authority.issue("next")
    ports = await serve(**_params(serving))
    match damage:
        case "half replaced":
            next_one.keyfile.replace(serving.keyfile)
        case "broken":
            serving.certfile.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n")
        case "gone":
            serving.certfile.unlink()

    with caplog.at_level(logging.ERROR):
        assert await ports.let_in(authority.certfile)
        assert await ports.let_in(authority.certfile)

    (message,) = caplog.messages
    assert "TLS goes on with the files as they were" in message
    assert str(serving.certfile) in message


async def test_the_second_half_of_a_replacement_completes_it(serve, authority, other) -> None:
    serving, next_one = authority.issue("server"), other.issue("next")
    ports = await serve(**_params(serving))
    next_one.keyfile.replace(serving.keyfile)
    assert await ports.let_in(authority.certfile)

    next_one.certfile.replace(serving.certfile)

    assert await ports.let_in(other.certfile)


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        ({"ssl_certfile": None}, "--ssl-certfile is missing"),
        ({"ssl_certfile": None, "ssl_keyfile": None, "ssl_cert_reqs": "2"}, "--ssl-certfile"),
        ({"ssl_cert_reqs": "required"}, "--ssl-cert-reqs required needs --ssl-ca-certs"),
    ],
)
def test_flags_that_would_leave_a_port_open_are_refused(authority, missing, says) -> None:
    params = _params(authority.issue("server")) | missing

    with pytest.raises(TlsError, match=says):
        ServerTls.of(params)


def test_no_flags_are_no_tls() -> None:
    names = ("ssl_certfile", "ssl_keyfile", "ssl_ca_certs", "ssl_cert_reqs")

    assert ServerTls.of(dict.fromkeys(names)) is None


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TlsError, match=r"absent\.pem: No such file"):
        TlsFiles(TlsPaths(certfile=tmp_path / "absent.pem"))


def test_a_certificate_and_the_key_of_another_are_refused(authority) -> None:
    one, two = authority.issue("one"), authority.issue("two")

    with pytest.raises(TlsError, match="key values mismatch"):
        TlsFiles(TlsPaths(one.certfile, two.keyfile))


def test_an_encrypted_key_is_refused_rather_than_asked_about(authority) -> None:
    identity = authority.issue("server")
    encrypted = identity.keyfile.with_suffix(".encrypted")
    command = ("openssl", "ec", "-aes128", "-passout", "pass:secret")
    subprocess.run(
        [*command, "-in", identity.keyfile, "-out", encrypted], check=True, capture_output=True
    )

    with pytest.raises(TlsError, match="the key is encrypted"):
        TlsFiles(TlsPaths(identity.certfile, encrypted))
