"""nginx in front with gzip and its default buffering: events arrive one by one all the same."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.held_service import MODEL, HeldService
from tests.support.running_proxy import Proxy, running_proxy
from tests.support.streams import arrivals, grpc_texts, http_texts

STEPS = 12


@pytest.fixture(scope="module")
def nginx(held_routers: HeldService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("nginx is missing: run `make system-deps`")
        pytest.skip("nginx is not installed (`make system-deps` installs it)")
    directory = tmp_path_factory.mktemp("nginx")
    config = Path(__file__).with_name("nginx.conf")
    alone = "daemon off; master_process off;"
    command = [program, "-p", str(directory), "-c", config.name, "-e", "stderr", "-g", alone]
    with running_proxy(command, config, held_routers, directory) as proxy:
        yield proxy


def test_nginx_compresses_streams(service: HeldService, nginx: Proxy) -> None:
    body = {"model": MODEL, "prompt": "hi", "max_tokens": 4, "stream": True}

    response = httpx.post(f"{nginx.url}/v1/completions", json=body, timeout=30)

    assert response.headers["content-encoding"] == "gzip"
    assert response.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_a_stream_arrives_token_by_token(
    service: HeldService, nginx: Proxy, transport: str
) -> None:
    over_http, over_grpc = http_texts(nginx.url, STEPS), grpc_texts(nginx.grpc_target, STEPS)

    arrived = arrivals(service.gate, over_http if transport == "http" else over_grpc, STEPS)

    assert len(arrived) == STEPS
