"""Engines behind TLS: the right credentials reach them, wrong ones are named in the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from octavo.engine.v1 import engine_pb2 as pb
from octavo.engine.v1 import engine_pb2_grpc
from octavo.tls import ServerTls, TlsError, TlsFiles, TlsPaths

from router_svc.engines.channel import EngineChannel, wait_ready
from router_svc.engines.dialer import Dialer
from router_svc.engines.encoder_types import EncoderInput, EncoderRequest, EncoderTask
from router_svc.fleet.directory import Directory
from router_svc.fleet.discovery import Fixed
from router_svc.fleet.fleet import Fleet
from tests.support.certificates import Authority, Identity
from tests.support.steady_telemetry import add_steady_telemetry


class Encoder(engine_pb2_grpc.EngineServicer):
    """An engine that embeds everything as one number."""

    async def GetModelInfo(self, request, context):  # noqa: N802 - gRPC's name
        return pb.GetModelInfoResponse(
            served_names=["m"], tokenizer_sha256="abc", embedding_size=1, weights_version="w"
        )

    async def Embed(self, request, context):  # noqa: N802 - gRPC's name
        return pb.EmbedResponse(vectors=[pb.EmbedVector(values=[1.0]) for _ in request.inputs])


@pytest_asyncio.fixture
async def serve() -> AsyncIterator:
    servers = []

    async def start(tls: ServerTls | None, address: str = "localhost:0") -> str:
        server = grpc.aio.server()
        engine_pb2_grpc.add_EngineServicer_to_server(Encoder(), server)
        add_steady_telemetry(server)
        servicer = health.aio.HealthServicer()
        await servicer.set("octavo.engine.v1.Engine", health_pb2.HealthCheckResponse.SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        if tls is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, tls.grpc_credentials())
        await server.start()
        servers.append(server)
        return address if address.startswith("unix:") else f"localhost:{port}"

    yield start
    for server in servers:
        await server.stop(0)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def other(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "other")


def _tls(identity: Identity, clients_of: Authority | None = None) -> ServerTls | None:
    return ServerTls.of(
        {
            "ssl_certfile": identity.certfile,
            "ssl_keyfile": identity.keyfile,
            "ssl_ca_certs": None if clients_of is None else clients_of.certfile,
            "ssl_cert_reqs": None,
        }
    )


def _dialer(trusts: Authority, shows: Identity | None = None, name: str | None = None) -> Dialer:
    paths = (None, None) if shows is None else (shows.certfile, shows.keyfile)
    return Dialer(TlsFiles(TlsPaths(*paths, trusts.certfile)), name)


async def _reaches(target: str, dialer: Dialer, seconds: float = 30) -> bool:
    channel = EngineChannel(target, "abc", dialer=dialer)
    channel.start()
    info = await wait_ready(channel, seconds)
    if info is not None:  # what follows uses the same connection
        request = EncoderRequest(EncoderTask.EMBED, "r")
        assert await channel.embed(request, [EncoderInput([1])]) == [[1.0]]
    await channel.close()
    return info is not None


async def _complaints(target: str, dialer: Dialer, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says at first, and in the time of several attempts more."""
    channel = EngineChannel(target, "abc", dialer=dialer)
    with caplog.at_level(logging.ERROR, "router_svc"):
        channel.start()
        while not caplog.messages:  # noqa: ASYNC110 -- the log has no event to wait for
            await asyncio.sleep(0.02)
        assert await wait_ready(channel, 0.6) is None
    await channel.close()
    return caplog.messages


async def test_both_sides_show_certificates(serve, authority) -> None:
    target = await serve(_tls(authority.issue("engine"), clients_of=authority))

    assert await _reaches(target, _dialer(authority, authority.issue("router")))


async def test_tls_over_a_unix_socket_is_for_localhost(serve, authority, tmp_path) -> None:
    target = await serve(_tls(authority.issue("engine")), f"unix:{tmp_path}/engine.sock")

    assert await _reaches(target, _dialer(authority))


async def test_engines_that_are_reached_by_address_may_share_a_name(serve, authority) -> None:
    target = await serve(_tls(authority.issue("engine", "DNS:engines.internal")))

    assert await _reaches(target, _dialer(authority, name="engines.internal"))


async def test_an_engine_that_is_not_trusted_is_named_once(serve, authority, other, caplog) -> None:
    target = await serve(_tls(other.issue("engine")))

    (complaint,) = await _complaints(target, _dialer(authority), caplog)

    assert complaint.startswith(
        f"engine {target} cannot be used: authentication failed: its certificate is not trusted"
    )


async def test_an_engine_of_another_name_is_named(serve, authority, caplog) -> None:
    target = await serve(_tls(authority.issue("engine", "DNS:elsewhere")))

    (complaint,) = await _complaints(target, _dialer(authority), caplog)

    assert "Hostname mismatch" in complaint


@pytest.mark.parametrize(
    ("shows", "says"),
    [
        ("nothing", "it wants this router to show a certificate: give --engine-ssl-certfile"),
        ("another authority's", "it refuses this router's certificate"),
    ],
)
async def test_an_engine_that_refuses_the_routers_certificate_is_named(
    serve, authority, other, caplog, shows: str, says: str
) -> None:
    target = await serve(_tls(authority.issue("engine"), clients_of=authority))
    identity = None if shows == "nothing" else other.issue("router")

    (complaint,) = await _complaints(target, _dialer(authority, identity), caplog)

    assert f"authentication failed: {says}" in complaint


async def test_a_plain_router_is_told_that_the_engine_wants_tls(serve, authority, caplog) -> None:
    target = await serve(_tls(authority.issue("engine")))

    (complaint,) = await _complaints(target, Dialer(), caplog)

    assert "it wants TLS: give --engine-ssl-ca-certs" in complaint


async def test_a_plain_engine_gets_nothing_from_a_router_with_tls(serve, authority, caplog) -> None:
    target = await serve(None)

    (complaint,) = await _complaints(target, _dialer(authority), caplog)

    assert "it does not speak TLS" in complaint


async def test_an_engine_that_is_not_there_is_no_question_of_authentication(
    authority, caplog
) -> None:
    with caplog.at_level(logging.ERROR, "router_svc"):
        assert not await _reaches("localhost:1", _dialer(authority), 1)

    assert caplog.messages == []


async def test_new_credentials_are_used_without_a_restart(serve, authority, other) -> None:
    target = await serve(_tls(authority.issue("engine"), clients_of=authority))
    shows = other.issue("router")
    channel = EngineChannel(target, "abc", dialer=_dialer(authority, shows))
    channel.start()
    refused = await wait_ready(channel, 1) is None

    authority.issue("next").move_to(shows)

    assert refused
    assert await wait_ready(channel, 30) is not None
    await channel.close()


async def test_finding_out_an_engines_model_takes_the_same_credentials(
    serve, authority, other, caplog
) -> None:
    good = await serve(_tls(authority.issue("engine"), clients_of=authority))
    bad = await serve(_tls(other.issue("stranger")))
    dialer = _dialer(authority, authority.issue("router"))
    fleets = {sha: Fleet(sha, dialer=dialer) for sha in ("abc", "def")}
    directory = Directory([Fixed(good), Fixed(bad)], fleets, dialer)

    with caplog.at_level(logging.ERROR, "router_svc"):
        directory.start()
        assert await fleets["abc"].wait_ready(30) is not None
        while not caplog.messages:  # noqa: ASYNC110 -- the log has no event to wait for
            await asyncio.sleep(0.05)

    assert [member.name for member in fleets["abc"].members] == [good]
    assert f"engine {bad} cannot be used: authentication failed" in caplog.messages[0]
    await directory.close()
    for fleet in fleets.values():
        await fleet.close()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"engine_ssl_certfile": Path("c")}, "--engine-ssl-ca-certs is missing"),
        ({"engine_ssl_name": "engines"}, "--engine-ssl-ca-certs is missing"),
        (
            {"engine_ssl_ca_certs": Path("a"), "engine_ssl_keyfile": Path("k")},
            "--engine-ssl-keyfile needs --engine-ssl-certfile",
        ),
    ],
)
def test_flags_that_would_leave_channels_open_are_refused(given, says) -> None:
    names = ("engine_ssl_certfile", "engine_ssl_keyfile", "engine_ssl_ca_certs", "engine_ssl_name")

    with pytest.raises(TlsError, match=says):
        Dialer.of(dict.fromkeys(names) | given)
