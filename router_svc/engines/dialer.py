"""How this router reaches engines: plain, or over TLS with a certificate of its own.

gRPC says of a refused handshake no more than "Socket closed". So when a connection does not come
about, `Dialer.explain` shakes hands once more by itself and finds out what is wrong with it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING, Any

import grpc
from octavo.flag_types import FilePath
from octavo.tls import TlsError, TlsFiles, TlsPaths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_EXPLAIN_SECONDS = 1.0
_READABLE = FilePath()

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
        name = self._name or ("localhost" if target.startswith("unix:") else None)
        if name is not None:
            options = [*options, ("grpc.ssl_target_name_override", name)]
        return grpc.aio.secure_channel(target, credentials, options)

    async def explain(self, target: str) -> str | None:
        """What keeps this router from an engine if it is authentication, in words for a log."""
        try:
            return await asyncio.to_thread(self._explain, target)
        except (OSError, ValueError):
            return None  # not there, or it has nothing against us

    def _explain(self, target: str) -> str | None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.set_alpn_protocols(["h2"])
        if self._files is None:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        else:
            try:
                self._files.paths.load_into(context)
            except TlsError as error:
                return str(error)
        connection, name = _connect(target)
        with connection:
            try:
                secure = context.wrap_socket(connection, server_hostname=self._name or name)
            except ssl.SSLError as error:
                return None if self._files is None else _of_handshake(error)
            with secure:
                if self._files is None:
                    return "it wants TLS: give --engine-ssl-ca-certs"
                # By TLS 1.3 the engine looks at our certificate after the handshake, and gRPC then
                # closes without a word where it would begin to talk.
                if secure.recv(1) == b"":
                    return self._of_close()
        return None

    def _of_close(self) -> str:
        if self._files is None or self._files.paths.certfile is None:
            return "it wants this router to show a certificate: give --engine-ssl-certfile"
        return f"it refuses this router's certificate, {self._files.paths.certfile}"


async def explain_failure(dialer: Dialer, target: str, error: grpc.aio.AioRpcError) -> str | None:
    """What is wrong with the credentials, if a call to an engine failed for that."""
    fault = None
    if error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
        fault = f"it refuses this router: {error.details()}"
    elif error.code() is grpc.StatusCode.UNAVAILABLE:
        fault = await dialer.explain(target)
    return None if fault is None else f"authentication failed: {fault}"


def _connect(target: str) -> tuple[socket.socket, str]:
    """A connection, and the name that it is to."""
    if target.startswith("unix:"):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(_EXPLAIN_SECONDS)
        try:
            connection.connect(target.removeprefix("unix:"))
        except OSError:
            connection.close()
            raise
        return connection, "localhost"
    host, _, port = target.rpartition(":")
    host = host.strip("[]")
    return socket.create_connection((host, int(port)), _EXPLAIN_SECONDS), host


def _of_handshake(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if error.reason == "WRONG_VERSION_NUMBER":
        return "it does not speak TLS"
    return f"the TLS handshake failed: {_reason(error)}"


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "refused").replace("_", " ").lower()
