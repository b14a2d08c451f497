"""Which device computes: what is asked, and what is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_svc.config import ConfigError
from engine_svc.devices import choose_device, describe_gpu
from engine_svc.gpu_tenants import Tenant


@pytest.fixture
def with_driver(tmp_path: Path) -> Path:
    """The root of a machine that has NVIDIA's driver."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    return tmp_path


def _nothing() -> None:
    return None


def _no_triton() -> str:
    return "triton is not installed"


def test_a_gpu_that_is_there_is_used(with_driver: Path) -> None:
    assert choose_device("auto", root=with_driver, why_not=_nothing) == ("cuda", None)


def test_a_machine_without_a_driver_is_not_searched_further(tmp_path: Path) -> None:
    def why_not() -> str:
        raise AssertionError("torch would have been imported")

    assert choose_device("auto", root=tmp_path, why_not=why_not) == ("cpu", None)


def test_the_processor_is_used_where_it_is_asked_for(with_driver: Path) -> None:
    assert choose_device("cpu", root=with_driver, why_not=_nothing) == ("cpu", None)


def test_a_gpu_that_cannot_be_used_is_told_of_and_refused_where_it_was_asked_for(
    with_driver: Path,
) -> None:
    device, notice = choose_device("auto", root=with_driver, why_not=_no_triton)

    assert device == "cpu"
    assert notice == "this machine's GPU is not used: triton is not installed"
    with pytest.raises(ConfigError, match="--device cuda: triton is not installed"):
        choose_device("cuda", root=with_driver, why_not=_no_triton)


def test_a_gpu_that_others_use_is_described_so() -> None:
    gib = 1 << 30

    assert describe_gpu("H200", 139 * gib, 140 * gib, 0.9) == (
        "90% of the 139.00 GiB that are free on H200"
    )
    shared = describe_gpu("H200", 40 * gib, 140 * gib, 0.9)
    assert "100.00 GiB of its 140.00 GiB are held by others (by whom is not" in shared


def test_whoever_else_is_on_a_gpu_is_named() -> None:
    gib = 1 << 30
    tenants = [Tenant(number, "python", (90 - number) * gib) for number in (17, 18, 19, 20)]

    described = describe_gpu("H200", 40 * gib, 140 * gib, 0.9, tenants)

    assert described.endswith(
        "are held by others: python (17) 73.00 GiB, python (18) 72.00 GiB, python (19) 71.00 GiB"
    )
