"""Where engines are found. Each source tells the whole set of targets, at once and when it changes.

host:port, unix:/path           that engine, always
dns:///name:port                every address of the name, resolved again and again
k8s:///namespace/service        the ready endpoints of a Service (kubernetes_endpoints.py)
file:/path                      one target a line; read again when the file changes
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from octavo.flag_types import MAX_SOCKET_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

log = logging.getLogger(__name__)

_DNS_SECONDS = 2.0
_FILE_SECONDS = 1.0
DEFAULT_PORT = 50061
_BETWEEN = re.compile(r",(?=[^,/]*:)")
_HOST = re.compile(r"[\w.-]+|\[[\w:.%]+\]")  # an IPv6 address has brackets


class Source(Protocol):
    """A place where engines are found."""

    def targets(self) -> AsyncIterator[frozenset[str]]:
        """The targets, whenever they change. A failure keeps what was known."""
        ...


class TargetError(ValueError):
    """A text that names no engines."""


def split_targets(given: Sequence[str]) -> tuple[str, ...]:
    """All targets, where a text may hold several with commas between them.

    A comma that no scheme or host:port follows is part of a path.
    """
    return tuple(each.strip() for text in given for each in _BETWEEN.split(text))


def parse_source(text: str) -> Source:
    """The source that a text names. Raises TargetError."""
    scheme, colon, rest = text.partition(":")
    match scheme:
        case "unix":
            if not 0 < len(rest.encode()) <= MAX_SOCKET_BYTES:
                raise TargetError(
                    f"{text}: must have a path of at most {MAX_SOCKET_BYTES} bytes after unix:"
                )
            return Fixed(text)
        case "file":
            if not rest.strip("/"):
                raise TargetError(f"{text}: must have a path after file:")
            return TargetFile(Path(rest.removeprefix("//")))
        case "dns":
            host, port = _host_port(rest.removeprefix("///"))
            return DnsName(host, port)
        case "k8s":
            from router_svc.fleet.kubernetes_endpoints import KubernetesService

            namespace, slash, service = rest.removeprefix("///").partition("/")
            name, _, port_name = service.partition(":")
            if not (slash and namespace and name) or "/" in service:
                raise TargetError(f"{text}: must be k8s:///namespace/service")
            if find_spec("kubernetes") is None:
                raise TargetError(
                    f"{text}: the kubernetes client is missing: pip install 'octavo[kubernetes]'"
                )
            return KubernetesService(namespace, name, port_name or None)
    if not colon:
        raise TargetError(f"{text}: must be host:port, unix:/path, dns:///, k8s:/// or file:/path")
    _host_port(text)
    return Fixed(text)


def _host_port(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, str(DEFAULT_PORT)
    if not (port.isdecimal() and 0 < int(port) < 65536):
        raise TargetError(f"{text}: must end with a port between 1 and 65535")
    if not _HOST.fullmatch(host):
        raise TargetError(f"{text}: must be host:port; {host!r} is no host")
    return host.strip("[]"), int(port)


@dataclass(frozen=True, slots=True)
class Fixed:
    """One target."""

    target: str

    async def targets(self) -> AsyncIterator[frozenset[str]]:
        """It, once."""
        yield frozenset((self.target,))


@dataclass(frozen=True, slots=True)
class DnsName:
    """Every address of a name, as a headless Service has one for each pod."""

    host: str
    port: int
    seconds: float = _DNS_SECONDS

    async def targets(self) -> AsyncIterator[frozenset[str]]:
        """The addresses. A name that does not resolve for a while loses nobody."""
        known: frozenset[str] | None = None
        while True:
            try:
                found = await self._resolve()
            except OSError as error:
                if known is None:
                    log.warning("%s does not resolve: %s", self.host, error)
                    known = frozenset()
            else:
                if found != known:
                    known = found
                    yield found
            await asyncio.sleep(self.seconds)

    async def _resolve(self) -> frozenset[str]:
        loop = asyncio.get_running_loop()
        answers = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        return frozenset(
            f"[{address[0]}]:{self.port}"
            if family == socket.AF_INET6
            else f"{address[0]}:{self.port}"
            for family, _, _, _, address in answers
        )


@dataclass(frozen=True, slots=True)
class TargetFile:
    """A file with one target a line; empty lines and lines that begin with # do not count."""

    path: Path
    seconds: float = _FILE_SECONDS

    async def targets(self) -> AsyncIterator[frozenset[str]]:
        """The targets. A file that cannot be read, or names something else, changes nothing; nor
        does one that is empty, until it is so a second time: it is perhaps just being written.
        """
        seen: object = None
        emptied: object = None
        fault = ""
        while True:
            try:
                status = self.path.stat()
                version = (status.st_mtime_ns, status.st_ino, status.st_size)
                if version != seen:
                    targets = self._read()
                    if targets or seen is None or version == emptied:
                        seen = version
                        yield targets
                    else:
                        emptied = version
                    fault = ""
            except (OSError, UnicodeDecodeError, TargetError) as error:
                if str(error) != fault:
                    log.error("%s changes nothing: %s", self.path, error)
                fault, seen = str(error), seen or "unreadable"
            await asyncio.sleep(self.seconds)

    def _read(self) -> frozenset[str]:
        lines = self.path.read_text(encoding="utf-8-sig").splitlines()
        targets = [line.strip() for line in lines]
        targets = [target for target in targets if target and not target.startswith("#")]
        for target in targets:
            if not isinstance(parse_source(target), Fixed):
                raise TargetError(f"{target}: a file holds host:port and unix:/path only")
        return frozenset(targets)
