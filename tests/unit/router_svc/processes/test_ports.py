"""Ports that several processes listen on."""

from __future__ import annotations

import socket

import pytest

from router_svc.processes.ports import reserve


def test_a_reserved_port_is_free_for_sharers_alone() -> None:
    with reserve("127.0.0.1", 0, "HTTP") as reserved:
        address = reserved.getsockname()

        with (
            socket.create_server(address, reuse_port=True) as listener,
            socket.create_connection(address) as client,
            listener.accept()[0] as accepted,
        ):
            assert accepted.getpeername() == client.getsockname()
        with pytest.raises(OSError, match="Address already in use"):
            socket.create_server(address)


def test_a_port_that_others_share_is_taken_all_the_same() -> None:
    with (
        socket.create_server(("127.0.0.1", 0), reuse_port=True) as stranger,
        pytest.raises(OSError, match=r"cannot listen on 127\.0\.0\.1:\d+ for gRPC: Address alr"),
    ):
        reserve("127.0.0.1", stranger.getsockname()[1], "gRPC")


def test_a_port_is_free_again_at_once() -> None:
    with reserve("127.0.0.1", 0, "HTTP") as reserved:
        port = reserved.getsockname()[1]

    with socket.create_server(("127.0.0.1", port)):
        pass
