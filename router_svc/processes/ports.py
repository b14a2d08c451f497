"""Ports that workers share: a new connection goes to one of those who listen (SO_REUSEPORT)."""

from __future__ import annotations

import socket

from octavo.listening import reason_of


def reserve(host: str, port: int, protocol: str) -> socket.socket:
    """A socket that keeps a port, or a free one for 0, for sockets that share it.

    It never listens, so it gets no connections. Raises OSError if anybody else has the port.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        # Alone first: among sharers a stranger who shares too would not be noticed.
        with socket.create_server((host, port), family=family) as probe:
            port = probe.getsockname()[1]
        reserved = socket.socket(family, socket.SOCK_STREAM)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind((host, port))
    except OSError as error:
        why = reason_of(error)
        raise OSError(f"cannot listen on {host}:{port} for {protocol}: {why}") from error
    return reserved
