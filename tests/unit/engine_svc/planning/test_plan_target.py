"""The memory that a plan is for."""

from __future__ import annotations

import pytest

from engine_svc.config import ConfigError
from engine_svc.planning.target import choose_target, parse_size, smallest_gpu

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16GiB", 16 * GIB),
        ("16Gi", 16 * GIB),  # as Kubernetes writes it
        ("1.5 gib", 3 * GIB // 2),
        ("2GB", 2 * 10**9),
        ("512MiB", 512 << 20),
        ("123456789", 123_456_789),
    ],
)
def test_sizes_are_read_in_binary_and_decimal_units(text: str, size: int) -> None:
    assert parse_size("--memory", text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "0", "1e9", "16 gigs", "9" * 30])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--memory"):
        parse_size("--memory", text)


def test_by_default_it_is_what_this_machine_has_free() -> None:
    target = choose_target(None, None, 0.9)

    assert target.available.num_bytes > 0
    assert not target.is_gpu


def test_of_a_gpu_it_is_the_share_that_may_be_used() -> None:
    assert choose_target(None, "rtx 4090", 0.5).available.num_bytes == 23 * GIB // 2


def test_the_smallest_gpu_that_is_large_enough_has_the_same_share() -> None:
    target = choose_target(None, "L4", 0.5)

    assert smallest_gpu(50 * GIB, target).name == "H200"
    assert smallest_gpu(500 * GIB, target) is None
