"""How many files a process may have open."""

from __future__ import annotations

import resource

import pytest
from octavo.open_files import raise_open_files


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int]]:
    """A process's limits, soft and hard."""
    held = {"now": (1024, 4096)}
    monkeypatch.setattr(resource, "getrlimit", lambda _: held["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: held.update(now=new))
    return held


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((1024, 4096), (4096, 4096)),
        ((1024, resource.RLIM_INFINITY), (1 << 20, resource.RLIM_INFINITY)),
        ((1 << 30, 1 << 30), (1 << 30, 1 << 30)),
    ],
)
def test_a_process_takes_what_it_may_have(
    limits: dict[str, tuple[int, int]], before: tuple[int, int], after: tuple[int, int]
) -> None:
    limits["now"] = before

    raise_open_files(100)

    assert limits["now"] == after


@pytest.mark.parametrize(("num_clients", "said"), [(3000, 0), (4096, 1), (0, 0)])
@pytest.mark.usefixtures("limits")
def test_a_limit_below_what_is_to_be_served_at_once_is_said(
    caplog: pytest.LogCaptureFixture, num_clients: int, said: int
) -> None:
    raise_open_files(num_clients)

    assert len(caplog.messages) == said


@pytest.mark.usefixtures("limits")
def test_a_system_that_allows_no_more_ends_no_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)

    raise_open_files(1024)

    assert caplog.messages[0].startswith("1024 files may be open")
