"""Certificates, keys and authorities of a port or a channel, read again when their files change.

    TlsFiles ──current()──▶ what the files held when they last fitted together
       ├──▶ server_context      HTTP: each handshake gets the context of the current files
       └──▶ server_credentials  gRPC: the same, by the library's own hook

A set of files is taken as a whole, and only if certificate and key belong together: whoever
replaces them one after the other is served with the old ones until the last is there.
"""

from __future__ import annotations

import errno
import logging
import ssl
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from octavo.flag_types import FilePath

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import grpc

    from octavo.flag_lists import Flags

log = logging.getLogger(__name__)

_READABLE = FilePath()
_REQUIREMENTS = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
    "0": ssl.CERT_NONE,
    "1": ssl.CERT_OPTIONAL,
    "2": ssl.CERT_REQUIRED,
}

# Flags of a port that can be TLS.
SERVER_TLS_FLAGS: Flags = (
    (
        "--ssl-certfile",
        {"type": _READABLE, "help": "PEM file with the certificate and its chain: TLS only."},
    ),
    (
        "--ssl-keyfile",
        {
            "type": _READABLE,
            "help": "PEM file with the key. Default: it is in --ssl-certfile. All of these files "
            "are read again when they change.",
        },
    ),
    (
        "--ssl-ca-certs",
        {
            "type": _READABLE,
            "help": "PEM file with the authorities whose certificates clients must show (mTLS).",
        },
    ),
    (
        "--ssl-cert-reqs",
        {
            "type": click.Choice([*_REQUIREMENTS]),
            "help": "Whether clients must show a certificate; 0, 1, 2 are Python's numbers of the "
            "same. Default: required with --ssl-ca-certs, else none. gRPC does not ask for an "
            "optional one.",
        },
    ),
)


class TlsError(Exception):
    """The files do not make up a TLS identity; the message names the file."""


@dataclass(frozen=True, slots=True)
class TlsPaths:
    """PEM files: certificate chain, its key (None: in the same file), trusted authorities."""

    certfile: Path | None = None
    keyfile: Path | None = None
    ca_certs: Path | None = None

    def all(self) -> tuple[Path, ...]:
        """Those that are given."""
        return tuple(each for each in (self.certfile, self.keyfile, self.ca_certs) if each)

    def load_into(self, context: ssl.SSLContext) -> None:
        """Raises TlsError, which names the file at fault."""
        if self.certfile is not None:
            try:
                context.load_cert_chain(self.certfile, self.keyfile, password=_no_password)
            except (OSError, ssl.SSLError) as error:
                key = "" if self.keyfile is None else f" with {self.keyfile}"
                raise TlsError(f"{self.certfile}{key}: {_reason(error)}") from error
        if self.ca_certs is not None:
            try:
                context.load_verify_locations(self.ca_certs)
            except (OSError, ssl.SSLError) as error:
                raise TlsError(f"{self.ca_certs}: {_reason(error)}") from error


class TlsMaterial(NamedTuple):
    """What the files held, as gRPC takes it."""

    cert_chain: bytes | None
    key: bytes | None
    authorities: bytes | None


class TlsFiles:
    """The files of one identity. Safe to use from several threads."""

    def __init__(self, paths: TlsPaths) -> None:
        """Raises TlsError if they do not fit together now."""
        self.paths = paths
        self._lock = threading.Lock()
        self._seen = self._versions()
        self._material = self._read()

    def current(self) -> TlsMaterial:
        """What the files held when they last fitted together; the same object until they change."""
        with self._lock:
            versions = self._versions()
            if versions != self._seen:
                self._seen = versions
                try:
                    self._material = self._read()
                except TlsError as error:
                    log.error("TLS goes on with the files as they were: %s", error)
                else:
                    log.info("TLS files were read again: %s", _names(self.paths))
            return self._material

    def _versions(self) -> tuple[object, ...]:
        return tuple(_version(path) for path in self.paths.all())

    def _read(self) -> TlsMaterial:
        self.paths.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        try:
            material = TlsMaterial(
                _bytes_of(self.paths.certfile),
                _bytes_of(self.paths.keyfile or self.paths.certfile),
                _bytes_of(self.paths.ca_certs),
            )
        except OSError as error:
            raise TlsError(f"{error.filename}: {_reason(error)}") from error
        if self._versions() != self._seen:  # checked one set and read another
            self._seen = ()
            raise TlsError(f"{_names(self.paths)}: changed while they were read")
        return material


class ServerTls:
    """The TLS side of a server's ports."""

    def __init__(self, files: TlsFiles, requirement: ssl.VerifyMode) -> None:
        self.files = files
        self.requirement = requirement

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> ServerTls | None:
        """What SERVER_TLS_FLAGS say; None for plain ports. Raises TlsError."""
        paths = TlsPaths(params["ssl_certfile"], params["ssl_keyfile"], params["ssl_ca_certs"])
        given = params["ssl_cert_reqs"]
        if paths.certfile is None:
            if paths.all() or given is not None:
                raise TlsError("--ssl-certfile is missing: without it the ports would be open")
            return None
        if given is None:
            requirement = ssl.CERT_REQUIRED if paths.ca_certs else ssl.CERT_NONE
        else:
            requirement = _REQUIREMENTS[given]
        if requirement is not ssl.CERT_NONE and paths.ca_certs is None:
            raise TlsError(f"--ssl-cert-reqs {given} needs --ssl-ca-certs to check against")
        return cls(TlsFiles(paths), requirement)

    def http_context(self) -> ssl.SSLContext:
        """For an HTTP/1.1 listener; follows the files."""
        material = self.files.current()
        context = self._new_context()

        def follow(connection: Any, _name: str | None, _context: ssl.SSLContext) -> None:
            nonlocal material, context
            # A context cannot forget what it has loaded, so changed files get a new one.
            if (now := self.files.current()) is not material:
                try:
                    context = self._new_context()
                except TlsError as error:  # changed again since: the next handshake finds out
                    log.error("TLS goes on with the files as they were: %s", error)
                else:
                    material = now
            connection.context = context

        front = self._new_context()
        front.sni_callback = follow
        return front

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """For a gRPC server; follows the files."""
        import grpc  # not for those who only read the flags

        material = self.files.current()

        def follow() -> grpc.ServerCertificateConfiguration | None:
            nonlocal material
            if (now := self.files.current()) is material:
                return None
            material = now
            return _configuration(now)

        return grpc.dynamic_ssl_server_credentials(
            _configuration(material),
            follow,  # type: ignore[arg-type] # its published types lack the None for no change
            require_client_authentication=self.requirement is ssl.CERT_REQUIRED,
        )

    def _new_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        # A resumed session would not be checked against authorities that have changed since.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        self.files.paths.load_into(context)
        context.verify_mode = self.requirement
        return context


def _configuration(material: TlsMaterial) -> grpc.ServerCertificateConfiguration:
    import grpc

    assert material.key is not None, "a server has a certificate"
    assert material.cert_chain is not None
    return grpc.ssl_server_certificate_configuration(
        [(material.key, material.cert_chain)], root_certificates=material.authorities
    )


def _version(path: Path) -> object:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def _bytes_of(path: Path | None) -> bytes | None:
    return None if path is None else path.read_bytes()


def _names(paths: TlsPaths) -> str:
    return ", ".join(str(path) for path in paths.all())


def _no_password() -> str:
    reason = "the key is encrypted, and there is nobody to ask for its password"
    raise PermissionError(errno.EACCES, reason)


def _reason(error: OSError) -> str:
    """In words: OpenSSL's are constants, such as KEY_VALUES_MISMATCH."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "no PEM file").replace("_", " ").lower()
    return error.strerror or str(error)
