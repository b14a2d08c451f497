"""A gRPC client without a proxy, told by xDS where the routers are: calls follow the endpoints."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.environment import HERE as CLIENTS
from tests.clients.environment import client_python
from tests.clients.running import need
from tests.support.held_service import HeldService

PROTOS = Path(__file__).parents[2] / "protos"
Tell = Callable[..., None]


@pytest.fixture
def tell(service: HeldService) -> Iterator[Tell]:
    """Has the client do something, and returns once that is done."""
    python = need(lambda: client_python("xds"))
    script = CLIENTS / "xds_python" / "client.py"
    process = subprocess.Popen(
        [str(python), str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(PROTOS)},
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def tell(**command: object) -> None:
        process.stdin.write(json.dumps(command) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == {"done": command}

    with process:
        yield tell
        process.stdin.close()


def test_calls_follow_the_endpoints(service: HeldService, tell: Tell) -> None:
    first, second = (router.grpc_target for router in service.routers)

    def spread(calls: int) -> list[int]:
        """How many of so many calls each router gets."""
        before = service.num_calls()
        tell(calls=calls)
        return [after - b for after, b in zip(service.num_calls(), before, strict=True)]

    def comes_to(expected: list[int]) -> bool:
        """A change takes its time to reach the client; no call may fail meanwhile."""
        return service.routers[0].wait_until(lambda: spread(sum(expected)) == expected, 30)

    tell(endpoints=[first])
    assert spread(8) == [8, 0]

    tell(endpoints=[first, second])
    assert comes_to([4, 4])

    tell(endpoints=[second])
    assert comes_to([0, 8])

    tell(endpoints=[first, second])
    assert comes_to([4, 4])
