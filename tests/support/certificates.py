"""Certificates for tests, made with the openssl binary: authorities, and who they vouch for."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


@dataclass(frozen=True)
class Identity:
    """A certificate and its key, in PEM files."""

    certfile: Path
    keyfile: Path

    def move_to(self, other: Identity) -> None:
        """Replaces the files of another identity: first the key, then the certificate."""
        self.keyfile.replace(other.keyfile)
        self.certfile.replace(other.certfile)


class Authority:
    """One that signs certificates."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._name = name
        self.certfile = directory / f"{name}.pem"
        self._keyfile = directory / f"{name}.key"
        _openssl("req", "-x509", *_KEY, "-subj", f"/CN={name}",
                 "-addext", "keyUsage=critical,keyCertSign,cRLSign",
                 "-keyout", self._keyfile, "-out", self.certfile)  # fmt: skip

    def issue(self, name: str, subject: str = "DNS:localhost,IP:127.0.0.1") -> Identity:
        """A certificate for a subject, to serve or to call with."""
        identity = Identity(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        _openssl("req", "-x509", *_KEY, "-subj", f"/CN={name}",
                 "-CA", self.certfile, "-CAkey", self._keyfile,
                 "-addext", f"subjectAltName={subject}",
                 "-addext", "basicConstraints=critical,CA:FALSE",
                 "-addext", "extendedKeyUsage=serverAuth,clientAuth",
                 "-keyout", identity.keyfile, "-out", identity.certfile)  # fmt: skip
        return identity


def _openssl(*args: str | Path) -> None:
    subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True)
