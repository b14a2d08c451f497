"""Why an address cannot be listened on, which gRPC does not tell its caller."""

from __future__ import annotations

import errno
import os
import socket


def reason_of(error: OSError) -> str:
    """The reason alone: `socket.create_server` adds an address, in Python's notation."""
    return (error.strerror or str(error)).partition(" (while ")[0]


def why_not(address: str) -> str:
    """What is against listening at host:port or unix:/path, found out by trying."""
    if is_answered(address):
        return os.strerror(errno.EADDRINUSE)
    scheme, _, path = address.partition(":")
    try:
        if scheme == "unix":
            with socket.socket(socket.AF_UNIX) as probe:
                probe.bind(path)
            os.unlink(path)  # noqa: PTH108 -- the very text that was bound
        else:
            host, _, port = address.rpartition(":")
            family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
            socket.create_server((host.strip("[]"), int(port)), family=family).close()
    except (OSError, ValueError) as error:
        return reason_of(error) if isinstance(error, OSError) else str(error)
    return "gRPC could not listen there"


def is_answered(address: str) -> bool:
    """Whether a process listens at a unix:/path.

    gRPC puts a socket of its own in the place of one that is there, whoever still listens on it.
    """
    scheme, _, path = address.partition(":")
    if scheme != "unix":
        return False
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:  # connect(2): who listens has not taken earlier ones in yet
            return True
        except OSError:
            return False
    return True
