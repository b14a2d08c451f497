"""A Node program that knows only the .proto files talks to the real server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.clients.environment import HERE, node_modules
from tests.clients.running import need
from tests.support.server import RunningServer

PROTOS = HERE.parents[1] / "protos"


@pytest.fixture(scope="module")
def node_client() -> Path:
    """The client with its dependencies installed."""
    need(lambda: node_modules(HERE / "node"))
    return HERE / "node" / "client.mjs"


def test_node_speaks_to_the_grpc_api(node_client: Path, server: RunningServer) -> None:
    command = ["node", str(node_client), server.grpc_target, str(PROTOS)]

    result = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)

    answer = json.loads(result.stdout)
    assert answer["models"] == ["smollm2"]
    assert answer["text"] == "The capital of Japan is Tokyo."
    assert answer["streamed"] == answer["text"]
    assert answer["finish"] == "FINISH_REASON_STOP"
    assert answer["usage"]["completion_tokens"] == 8
    assert answer["refusedCode"] == "INVALID_ARGUMENT"
    assert "temperature" in answer["refusedMessage"]
