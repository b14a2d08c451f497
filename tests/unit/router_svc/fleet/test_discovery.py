"""Where engines are found: what each source tells, and that trouble loses nobody."""

from __future__ import annotations

import asyncio
import re
import socket
from contextlib import aclosing
from pathlib import Path

import pytest

from router_svc.fleet import discovery
from router_svc.fleet.discovery import (
    DnsName,
    Fixed,
    TargetError,
    TargetFile,
    parse_source,
    split_targets,
)
from router_svc.fleet.kubernetes_endpoints import KubernetesService


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("10.0.0.1:50061", Fixed("10.0.0.1:50061")),
        ("unix:/run/engine.sock", Fixed("unix:/run/engine.sock")),
        ("dns:///engines:50061", DnsName("engines", 50061)),
        ("dns:///engines", DnsName("engines", 50061)),
        ("k8s:///models/engines", KubernetesService("models", "engines")),
        ("k8s:///models/engines:grpc-2", KubernetesService("models", "engines", "grpc-2")),
        ("file:/etc/engines", TargetFile(Path("/etc/engines"))),
    ],
)
def test_what_a_text_names(text: str, source: object) -> None:
    assert parse_source(text) == source


@pytest.mark.parametrize(
    "text",
    [
        *("engine", "engine:", "engine:0", "engine:99999", ":50061", "http://engine:80", "::1:5"),
        *("a:1, b:2", "unix:", f"unix:/{'a' * 107}", "file:", "dns:///", "dns://10.0.0.1/a:1"),
        *("k8s:///models", "k8s:///models/engines/x"),
    ],
)
def test_a_text_that_names_no_engine_is_refused(text: str) -> None:
    with pytest.raises(TargetError):
        parse_source(text)


def test_a_service_without_the_kubernetes_client_is_refused_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(discovery, "find_spec", lambda _: None)

    with pytest.raises(TargetError, match=re.escape("pip install 'octavo[kubernetes]'")):
        parse_source("k8s:///models/engines")


@pytest.mark.parametrize(
    ("given", "targets"),
    [
        (["a:1"], ("a:1",)),
        (["a:1", "b:2"], ("a:1", "b:2")),
        (["a:1,b:2, c:3", "d:4"], ("a:1", "b:2", "c:3", "d:4")),
        (["[::1]:1,[2001:db8::1]:2"], ("[::1]:1", "[2001:db8::1]:2")),
        (["unix:/a.sock,dns:///b:2,k8s:///n/s"], ("unix:/a.sock", "dns:///b:2", "k8s:///n/s")),
        (["unix:/run/a,b.sock,file:/c,d"], ("unix:/run/a,b.sock", "file:/c,d")),
    ],
)
def test_several_targets_may_stand_in_one_text(given: list[str], targets: tuple[str, ...]) -> None:
    assert split_targets(given) == targets


@pytest.mark.parametrize("text", ["a:1,", ",a:1", "a:1,,b:2", "a:1,b"])
def test_a_target_is_missing_beside_a_comma(text: str) -> None:
    targets = split_targets([text])

    with pytest.raises(TargetError):
        [parse_source(target) for target in targets]


async def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "engines"
    file.write_text("# in this rack\na:1\n\nunix:/b\n")
    async with aclosing(TargetFile(file, seconds=0.01).targets()) as targets:
        assert await anext(targets) == {"a:1", "unix:/b"}
        file.write_text("a:1\n")

        assert await anext(targets) == {"a:1"}


async def test_a_file_that_is_empty_while_it_is_written_loses_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "engines"
    file.write_text("a:1\n")
    contents = iter(("", "a:1\nb:2\n"))  # after the first look, after the second

    async def write_instead_of_sleeping(_: float) -> None:
        file.write_text(next(contents))

    monkeypatch.setattr(asyncio, "sleep", write_instead_of_sleeping)
    async with aclosing(TargetFile(file).targets()) as targets:
        assert [await anext(targets), await anext(targets)] == [{"a:1"}, {"a:1", "b:2"}]


async def test_a_file_that_stays_empty_names_nobody(tmp_path: Path) -> None:
    file = tmp_path / "engines"
    file.write_text("a:1\n")
    async with aclosing(TargetFile(file, seconds=0.01).targets()) as targets:
        await anext(targets)
        file.write_text("")

        assert await anext(targets) == set()


async def test_a_file_that_is_gone_or_broken_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "engines"
    file.write_text("a:1\n")
    async with aclosing(TargetFile(file, seconds=0.01).targets()) as targets:
        await anext(targets)
        later = asyncio.ensure_future(anext(targets))
        file.unlink()
        await asyncio.sleep(0.05)
        file.write_text("no engine\n")
        await asyncio.sleep(0.05)
        assert not later.done()

        file.write_text("b:2\n")

        assert await later == {"b:2"}


async def test_trouble_with_a_file_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "engines"
    file.write_text("a:1\n")
    looks = iter((file.unlink, lambda: None, lambda: file.write_text("b:2\n")))

    async def touch_instead_of_sleeping(_: float) -> None:
        next(looks)()

    monkeypatch.setattr(asyncio, "sleep", touch_instead_of_sleeping)
    async with aclosing(TargetFile(file).targets()) as targets:
        assert [await anext(targets), await anext(targets)] == [{"a:1"}, {"b:2"}]

    (message,) = caplog.messages
    assert "No such file" in message


async def test_a_file_that_could_not_be_read_is_tried_again_though_it_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "engines"
    file.write_text("a:1\n")
    read_text, refusals = Path.read_text, [PermissionError("not for this user")]

    def read_when_allowed(path: Path, **options: str) -> str:
        if refusals:
            raise refusals.pop()
        return read_text(path, **options)

    monkeypatch.setattr(Path, "read_text", read_when_allowed)
    async with aclosing(TargetFile(file, seconds=0.01).targets()) as targets:
        assert await anext(targets) == {"a:1"}


async def test_a_mark_of_the_byte_order_is_no_part_of_a_target(tmp_path: Path) -> None:
    file = tmp_path / "engines"
    file.write_bytes(b"\xef\xbb\xbfa:1\r\n")
    async with aclosing(TargetFile(file).targets()) as targets:
        assert await anext(targets) == {"a:1"}


async def test_a_name_is_resolved_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [["10.0.0.1"], OSError("no such name"), ["10.0.0.1", "10.0.0.2"]]

    async def getaddrinfo(host: str, port: int, **_: object) -> list:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in answer]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    async with aclosing(DnsName("engines", 1, seconds=0.01).targets()) as targets:
        assert await anext(targets) == {"10.0.0.1:1"}
        # It did not resolve in between, which takes nobody away.
        assert await anext(targets) == {"10.0.0.1:1", "10.0.0.2:1"}
