"""Programs in C++, Go and Java, built from the .proto files alone, talk to the real server."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import grpc
import httpx
import pytest

from tests.clients.environment import ENVIRONMENTS, HERE, EnvironmentMissingError
from tests.clients.running import need, run
from tests.support.server import RunningServer

QUESTION = "What is the capital of Japan?"
NEEDS = {
    "cpp": ("g++", "make", "pkg-config", "protoc", "grpc_cpp_plugin"),
    "go": ("go", "make", "protoc", "protoc-gen-go", "protoc-gen-go-grpc"),
    "java": ("javac", "make", "protoc", "grpc_java_plugin"),
}


def build(language: str) -> Path:
    """The program, built by its own Makefile where that is not done yet.

    Raises EnvironmentMissingError.
    """
    missing = [program for program in NEEDS[language] if shutil.which(program) is None]
    if missing:
        names = ", ".join(missing)
        raise EnvironmentMissingError(f"not installed: {names} (`make system-deps` installs them)")
    directory = ENVIRONMENTS / language
    command = ["make", "-j2", "-C", str(HERE / language), f"BUILD={directory}", "CXXFLAGS=-O0"]
    command.append(f"GOOGLEAPIS={_googleapis()}")
    made = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert made.returncode == 0, made.stderr
    return directory / "client"


def _googleapis() -> Path:
    """The directory with google/rpc/*.proto, of the package googleapis-common-protos."""
    spec = importlib.util.find_spec("google.rpc.status_pb2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parents[2]


@pytest.fixture(scope="module")
def answer(server: RunningServer) -> dict:
    """What the server answers over HTTP."""
    body = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
    return httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60).json()


@pytest.mark.timeout(600)  # a build from nothing, on a busy machine
@pytest.mark.parametrize("language", NEEDS)
def test_a_program_from_the_protos_speaks_to_the_grpc_api(
    language: str, server: RunningServer, answer: dict
) -> None:
    program = need(lambda: build(language))

    shown = dict(
        line.split(": ", 1) for line in run(str(program), server.grpc_target, QUESTION).splitlines()
    )

    (choice,) = answer["choices"]
    assert shown["text"] == shown["streamed"] == choice["message"]["content"]
    assert shown["finish_reason"] == f"FINISH_REASON_{choice['finish_reason'].upper()}"
    assert int(shown["completion_tokens"]) == answer["usage"]["completion_tokens"]
    assert int(shown["streamed_code"]) == grpc.StatusCode.OK.value[0]
    assert int(shown["refused_code"]) == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert shown["refused_field"] == "temperature"
    assert int(shown["cancelled_code"]) == grpc.StatusCode.CANCELLED.value[0]
    assert server.wait_until(server.idle), "the cancelled answer still has its blocks"
