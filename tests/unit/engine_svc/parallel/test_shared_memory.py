"""Room in /dev/shm: told in time where NCCL needs it, never asked for where gloo does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_svc.config import ConfigError
from engine_svc.parallel.shared_memory import check_shared_memory, free_bytes, needed_bytes

DOCKERS_DEFAULT = 64 << 20


def test_too_little_is_told_with_both_numbers_and_what_to_change() -> None:
    with pytest.raises(ConfigError) as error:
        check_shared_memory("nccl", 2, DOCKERS_DEFAULT)

    for word in ("/dev/shm", "64.00 MiB", "128.00 MiB", "--shm-size", "engine.sharedMemory"):
        assert word in str(error.value)


def test_what_is_enough_passes() -> None:
    check_shared_memory("nccl", 2, needed_bytes("nccl", 2))


def test_who_follows_the_advice_to_disable_it_gets_by_with_dockers_default() -> None:
    check_shared_memory("nccl", 2, DOCKERS_DEFAULT, shm_disabled=True)


@pytest.mark.parametrize(("backend", "ranks"), [("gloo", 8), ("nccl", 1)])
def test_who_takes_none_needs_none(backend: str, ranks: int) -> None:
    check_shared_memory(backend, ranks, 0)


def test_a_place_that_is_not_there_has_no_room(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "none") == 0
    assert free_bytes(tmp_path) > 0
