"""The generator gives the published numbers, and each draw is a function of its name alone."""

from __future__ import annotations

import numpy as np
import pytest

from engine_svc.worker.random_stream import philox4x32, uniforms

MASK = 0xFFFFFFFF


def philox_by_hand(counter: list[int], key: list[int]) -> list[int]:
    """The paper's definition, one word at a time."""
    x, k = list(counter), list(key)
    for _ in range(10):
        high0, low0 = divmod(x[0] * 0xD2511F53, 2**32)
        high1, low1 = divmod(x[2] * 0xCD9E8D57, 2**32)
        x = [high1 ^ x[1] ^ k[0], low1, high0 ^ x[3] ^ k[1], low0]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return x


def uniform_by_hand(seed: int, choice: int, position: int, lane: int) -> float:
    """The mapping that the module documents, in whole numbers."""
    words = philox_by_hand([position, choice, lane, 0], [seed & MASK, seed >> 32])
    return ((words[1] << 32 | words[0]) >> 11) / 2**53


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        (
            [0, 0, 0, 0],
            [0, 0],
            [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8],
        ),
        (
            [MASK, MASK, MASK, MASK],
            [MASK, MASK],
            [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD],
        ),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_known_answers_of_the_authors(counter, key, words):
    output = philox4x32(np.array([counter], np.uint32), np.array([key], np.uint32))

    assert output.tolist() == [words]


def test_rows_do_not_touch_each_other():
    random = np.random.default_rng(0)
    counters = random.integers(0, 2**32, (50, 4), dtype=np.uint32)
    keys = random.integers(0, 2**32, (50, 2), dtype=np.uint32)

    together = philox4x32(counters, keys)

    assert together.tolist() == [
        philox_by_hand(counter, key)
        for counter, key in zip(counters.tolist(), keys.tolist(), strict=True)
    ]


@pytest.mark.parametrize("seed", [0, 1, 2**32, 0xDEADBEEF_01234567, 2**64 - 1])
@pytest.mark.parametrize("lane", [0, 3])
def test_a_uniform_follows_the_documented_mapping(seed, lane):
    choices, positions = [0, 0, 1, 7], [0, 1, 1, 131_071]

    numbers = uniforms([seed] * 4, choices, positions, lane)

    assert numbers.tolist() == [
        uniform_by_hand(seed, choice, position, lane)
        for choice, position in zip(choices, positions, strict=True)
    ]


def test_every_part_of_a_name_matters():
    names = [
        (5, 0, 0, 0),
        (5 + 2**32, 0, 0, 0),
        (6, 0, 0, 0),
        (5, 1, 0, 0),
        (5, 0, 1, 0),
        (5, 0, 0, 1),
    ]

    numbers = {uniforms([s], [c], [p], lane)[0] for s, c, p, lane in names}

    assert len(numbers) == len(names)


def test_the_numbers_are_uniform():
    count, bins = 64_000, 64

    numbers = uniforms([42] * count, [0] * count, range(count))

    assert numbers.min() >= 0
    assert numbers.max() < 1
    observed = np.histogram(numbers, bins, range=(0, 1))[0]
    chi_square = ((observed - count / bins) ** 2 / (count / bins)).sum()
    assert chi_square < 103.4  # 99.9 % of 63 degrees of freedom


def test_no_rows_no_numbers():
    assert uniforms([], [], []).shape == (0,)
