"""Packed weights on disk: taken when whole and of this source, made anew in all other cases."""

from __future__ import annotations

import errno
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from kernels.cpu import weight_cache
from kernels.cpu.weight_cache import WeightCache
from kernels.cpu.weights import CpuWeights
from tests.kernels.cpu_weights import SPEC, WIDE, load, random_tensors, source_of, stored_as
from tests.kernels.decoder_steps import DictSource


class Model:
    """A source with its cache; `start` is what an engine does."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "packed"
        self.notices: list[str] = []
        self.asked: list[str] = []  # weights that the last start read from the source

    def start(self, weights: str = "int4", *, seed: int = 1, fingerprint: str = "a") -> CpuWeights:
        source = source_of(random_tensors(SPEC, seed))
        cache = WeightCache(self.directory, fingerprint, self.notices.append)
        loaded = load(SPEC, source, weights, cache=cache)
        self.asked = source.asked
        return loaded

    @property
    def entries(self) -> list[Path]:
        return sorted(self.directory.iterdir()) if self.directory.exists() else []


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return Model(tmp_path)


def test_the_second_start_reads_no_weight_and_has_the_same(model: Model) -> None:
    first = model.start()

    second = model.start()

    assert model.asked == []
    assert model.notices == []
    np.testing.assert_array_equal(second.buffer, first.buffer)


def test_progress_counts_to_the_end_when_read_from_the_cache(model: Model) -> None:
    packed = model.start()
    seen: list[tuple[int, int]] = []
    cache = WeightCache(model.directory, "a", model.notices.append)

    cache.load(packed.layout, packed.buffer, lambda *progress: seen.append(progress), 2)

    assert seen[-1] == (packed.nbytes, packed.nbytes)


@pytest.mark.parametrize("weights", ["none", "auto"])
def test_what_is_only_moved_is_not_kept(model: Model, weights: str) -> None:
    model.start(weights)

    assert model.entries == []


@pytest.mark.parametrize(("weights", "kept"), [("auto", 1), ("none", 0)])
def test_what_python_decodes_is_kept_unless_it_outgrows_the_file(
    model: Model, weights: str, kept: int
) -> None:
    stored = stored_as("Q5_1")

    cache = WeightCache(model.directory, "a", model.notices.append)
    load(WIDE, DictSource(stored), weights, cache=cache)

    assert len(model.entries) == kept


def test_another_content_or_precision_is_another_entry(model: Model) -> None:
    model.start("int4")
    model.start("int8")
    changed = model.start("int4", seed=2, fingerprint="b")

    assert len(model.entries) == 3
    assert model.asked != []
    np.testing.assert_array_equal(
        changed.buffer, load(SPEC, source_of(random_tensors(SPEC, 2)), "int4").buffer
    )


def cut_short(entry: bytes) -> bytes:
    return entry[:-1]


def cut_within_the_header(entry: bytes) -> bytes:
    return entry[:100]


def emptied(entry: bytes) -> bytes:
    return b""


def longer(entry: bytes) -> bytes:
    return entry + b"\0"


def one_bit_flipped(entry: bytes) -> bytes:
    return entry[:5000] + bytes([entry[5000] ^ 1]) + entry[5001:]


def zeros_from_a_power_cut(entry: bytes) -> bytes:
    return bytes(len(entry))


def not_json(entry: bytes) -> bytes:
    return b"[1, 2]".ljust(4096) + entry[4096:]


DAMAGES = [
    *(cut_short, cut_within_the_header, emptied, longer),
    *(one_bit_flipped, zeros_from_a_power_cut, not_json),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_entry_is_made_anew_and_said(model: Model, damage) -> None:
    whole = model.start()
    (entry,) = model.entries
    entry.write_bytes(damage(entry.read_bytes()))

    again = model.start()

    assert model.asked != []
    assert len(model.notices) == 1
    assert "is damaged and is made anew" in model.notices[0]
    np.testing.assert_array_equal(again.buffer, whole.buffer)
    model.start()
    assert model.asked == []  # the new entry is whole


def test_an_entry_of_another_model_under_this_name_is_refused(model: Model) -> None:
    model.start()
    (entry,) = model.entries
    model.start(seed=2, fingerprint="b")
    (other,) = (path for path in model.entries if path != entry)
    shutil.copy(other, entry)

    model.start()

    assert "its header is of another entry" in model.notices[0]
    assert model.asked != []


def test_a_directory_that_cannot_be_made_costs_only_the_cache(model: Model) -> None:
    model.directory.parent.joinpath("packed").write_text("a file in its place")

    weights = model.start()

    assert len(model.notices) == 2  # neither read nor kept
    assert all(str(model.directory) in notice for notice in model.notices)
    np.testing.assert_array_equal(
        weights.buffer, load(SPEC, source_of(random_tensors(SPEC)), "int4").buffer
    )


def test_a_disk_that_fills_up_leaves_nothing_behind(model: Model, monkeypatch) -> None:
    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)

    model.start()

    assert model.entries == []
    assert model.notices == [
        f"packed weights are not kept in {model.directory}: No space left on device"
    ]


def test_a_disk_with_little_room_is_left_alone(model: Model, monkeypatch) -> None:
    usage = shutil.disk_usage(model.directory.parent)
    monkeypatch.setattr(weight_cache.shutil, "disk_usage", lambda _: usage._replace(free=1000))

    model.start()

    assert model.entries == []
    assert "has 1,000 free" in model.notices[0]


def test_the_entries_used_longest_ago_make_room(model: Model, monkeypatch) -> None:
    size = model.start(fingerprint="a").nbytes + 4096
    model.start(fingerprint="b")
    for age, entry in enumerate(model.entries):
        os.utime(entry, (time.time() - 1000 + age,) * 2)
    model.start(fingerprint="a")  # read, and so used last
    monkeypatch.setattr(weight_cache, "_MAX_DIRECTORY_BYTES", 2 * size)

    model.start(fingerprint="c")

    assert len(model.entries) == 2
    model.start(fingerprint="a")
    assert model.asked == []
    model.start(fingerprint="b")
    assert model.asked != []


def test_parts_of_writers_that_died_are_removed(model: Model) -> None:
    model.directory.mkdir()
    dead, alive = model.directory / "dead.part", model.directory / "alive.part"
    for part in (dead, alive):
        part.write_bytes(b"half")
    os.utime(dead, (time.time() - 7200,) * 2)

    model.start()

    assert not dead.exists()
    assert alive.exists()
