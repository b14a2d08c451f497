"""How this router reaches engines: plain, or over TLS with a certificate of its own.

gRPC says of a refused handshake no more than "Socket closed". So when a connection does not come
about, `Dialer.explain` shakes hands once more by itself and finds out what is wrong with it.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import grpc
from octavo.tls import TlsError, TlsFiles, TlsPaths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_EXPLAIN_SECONDS = 1.0
_READABLE = click.Path(dir_okay=False, path_type=Path)

# One entry per flag: its declaration, then what click.option takes.
ENGINE_TLS_FLAGS: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "--engine-ssl-ca-certs",
        {
            "type": _READABLE,
            "help": "PEM file with the authorities of engines' certificates: engines are reached "
            "over TLS only. Read again when it changes, as those below.",
        },
    ),
    (
        "--engine-ssl-certfile",
        {"type": _READABLE, "help": "PEM file with the certificate to show to engines (mTLS)."},
    ),
    (
        "--engine-ssl-keyfile",
        {"type": _READABLE, "help": "PEM file with its key. Default: it is in the same file."},
    ),
    (
        "--engine-ssl-name",
        {
            "help": "Name that every engine's certificate must be for. Default: the address by "
            "which the engine is reached, localhost for a Unix socket.",
        },
    ),
)


class Dialer:
    """Opens channels to engines. Without files they are plain."""

    def __init__(self, files: TlsFiles | None = None, name: str | None = None) -> None:
        """`name` is what certificates must be for, if not the address."""
        self._files = files
        self._name = name

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Dialer:
        """What ENGINE_TLS_FLAGS say; without them, as for engines of its own, plain.

        Raises TlsError.
        """
        paths = TlsPaths(
            params.get("engine_ssl_certfile"),
            params.get("engine_ssl_keyfile"),
            params.get("engine_ssl_ca_certs"),
        )
        if paths.ca_certs is None:
            if paths.all() or params.get("engine_ssl_name"):
                raise TlsError("--engine-ssl-ca-certs is missing: engines would be reached openly")
            return cls()
        if paths.keyfile is not None and paths.certfile is None:
            raise TlsError("--engine-ssl-keyfile needs --engine-ssl-certfile")
        return cls(TlsFiles(paths), params["engine_ssl_name"])

    def channel(self, target: str, options: Sequence[tuple[str, Any]] = ()) -> grpc.aio.Channel:
        """A channel with the credentials as the files have them now."""
        if self._files is None:
            return grpc.aio.insecure_channel(target, options)
        material = self._files.current()
        credentials = grpc.ssl_channel_credentials(
            root_certificates=material.authorities,
            private_key=material.key,
            certificate_chain=material.cert_chain,
        )
        if self._name is not None:
            options = [*options, ("grpc.ssl_target_name_override", self._name)]
        return grpc.aio.secure_channel(target, credentials, options)

    async def explain(self, target: str) -> str | None:
        """What keeps this router from an engine if it is authentication, in words for a log."""
        try:
            async with asyncio.timeout(_EXPLAIN_SECONDS):
                return await self._explain(target)
        except (OSError, ValueError, TimeoutError):
            return None  # not there, or it has nothing against us

    async def _explain(self, target: str) -> str | None:
        context = ssl.create_default_context()
        context.set_alpn_protocols(["h2"])
        if self._files is None:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        else:
            try:
                self._files.paths.load_into(context)
            except TlsError as error:
                return str(error)
        try:
            reader, writer = await self._connect(target, context)
        except ssl.SSLError as error:
            return None if self._files is None else _of_handshake(error)
        try:
            if self._files is None:
                return "it wants TLS: give --engine-ssl-ca-certs"
            await reader.read(1)  # by TLS 1.3 the engine looks at certificates after the handshake
        except ssl.SSLError as error:
            return f"it refuses this router's certificate: {_reason(error)}"
        finally:
            writer.transport.abort()
        return None

    async def _connect(
        self, target: str, context: ssl.SSLContext
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if target.startswith("unix:"):
            path, name = target.removeprefix("unix:"), self._name or "localhost"
            return await asyncio.open_unix_connection(path, ssl=context, server_hostname=name)
        host, _, port = target.rpartition(":")
        host = host.strip("[]")
        return await asyncio.open_connection(
            host, int(port), ssl=context, server_hostname=self._name or host
        )


async def explain_failure(dialer: Dialer, target: str, error: grpc.aio.AioRpcError) -> str | None:
    """What is wrong with the credentials, if a call to an engine failed for that."""
    fault = None
    if error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
        fault = f"it refuses this router: {error.details()}"
    elif error.code() is grpc.StatusCode.UNAVAILABLE:
        fault = await dialer.explain(target)
    return None if fault is None else f"authentication failed: {fault}"


def _of_handshake(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if error.reason == "WRONG_VERSION_NUMBER":
        return "it does not speak TLS"
    return f"the TLS handshake failed: {_reason(error)}"


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "refused").replace("_", " ").lower()
