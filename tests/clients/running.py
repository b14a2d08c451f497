"""Runs a client's examples in its own environment, against the real server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.clients.environment import HERE, EnvironmentMissingError, client_python, node_modules

SHARED = ("PATH", "HOME", "LANG")  # a client must not find a key or a setting of the caller


class Examples:
    """What a client's examples gave, by name."""

    def __init__(self, output: str) -> None:
        self._results = json.loads(output.splitlines()[-1])

    def __getitem__(self, name: str) -> Any:
        """The example's result; fails the test where the example failed."""
        outcome = self._results[name]
        if "failed" in outcome:
            pytest.fail(f"the example {name} failed:\n{outcome['failed']}")
        return outcome["result"]


def need(make: Callable[[], Any]) -> Any:
    """Makes an environment: without it a user's test is skipped, and CI fails."""
    try:
        return make()
    except EnvironmentMissingError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


def run_python(script: str, *args: str, environment: str | None, **variables: str) -> Examples:
    """The examples of a Python script. Without an environment it has the packages of the tests."""
    python = need(lambda: client_python(environment)) if environment else sys.executable
    command = (str(python), str(HERE / script), *args)
    return Examples(run(*command, PYTHONPATH=str(HERE), **variables))


def run_node(script: str, *args: str) -> Examples:
    """The examples of a Node script, with the packages of its directory."""
    path = HERE / script
    need(lambda: node_modules(path.parent))
    return Examples(run("node", str(path), *args))


def run(*command: str, **variables: str) -> str:
    """What a client prints; it sees no variables of the caller's but a few, and these."""
    env = {name: os.environ[name] for name in SHARED if name in os.environ} | variables
    result = subprocess.run(command, capture_output=True, text=True, timeout=200, env=env)
    assert result.returncode == 0, result.stderr
    return result.stdout
