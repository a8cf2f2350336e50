"""Sectors and wavefronts from lane addresses, against cases worked out by hand from the definitions."""

from __future__ import annotations

import numpy as np
import pytest

from gpuperf_engine.simt.counters import atomic_wavefronts, sectors, wavefronts

LANES = np.arange(32, dtype=np.uint64)


@pytest.mark.parametrize(
    "addresses,expected",
    [
        (LANES * 4, 4),  # a line of 128 bytes
        (LANES * 4 + 16, 5),  # shifted by half a sector
        (LANES * 32, 32),  # one lane per sector
        (LANES * 0 + 4096, 1),  # all the same
        (LANES * 16, 16),  # 16-byte accesses, two lanes per sector
        (LANES * 256, 32),
        (LANES[::-1] * 4, 4),  # order does not matter
        (LANES[:3] * 4, 1),
        (np.array([31, 32], np.uint64), 2),
    ],
)
def test_sectors(addresses: np.ndarray, expected: int) -> None:
    assert sectors(addresses) == expected


@pytest.mark.parametrize(
    "addresses,size,expected",
    [
        (LANES * 4, 4, (1, 1)),  # every bank once
        (LANES * 8, 4, (2, 1)),  # even banks twice
        (LANES * 128, 4, (32, 1)),  # one bank
        (LANES * 132, 4, (1, 1)),  # padded rows
        (LANES * 0, 4, (1, 1)),  # broadcast
        (LANES % 2 * 128, 4, (2, 1)),  # two words of one bank, each broadcast
        (LANES, 1, (1, 1)),  # bytes of eight words
        (LANES * 2, 2, (1, 1)),
        (LANES * 8, 8, (2, 2)),  # half warps fill the banks
        (LANES * 16, 8, (4, 2)),  # every other pair of words: two words per bank and half
        (LANES * 0, 8, (2, 2)),
        (LANES * 16, 16, (4, 4)),  # quarter warps fill the banks
        (LANES * 32, 16, (8, 4)),
        (LANES * 0, 16, (4, 4)),
    ],
)
def test_wavefronts(addresses: np.ndarray, size: int, expected: tuple[int, int]) -> None:
    assert wavefronts(addresses, LANES, size) == expected


def test_wavefronts_of_few_lanes() -> None:
    one = np.array([17], np.uint64)
    assert wavefronts(np.array([64], np.uint64), one, 16) == (1, 1)
    both_halves = np.array([3, 20], np.uint64)
    assert wavefronts(np.array([0, 8], np.uint64), both_halves, 8) == (2, 2)
    assert wavefronts(np.array([0, 8], np.uint64), both_halves, 4) == (1, 1)


@pytest.mark.parametrize(
    "addresses,expected",
    [
        (LANES * 4, (1, 1)),
        (LANES * 0, (32, 1)),  # 32 lanes one after the other
        (LANES % 4 * 4, (8, 1)),  # four words, eight lanes each
        (LANES % 16 * 8, (2, 1)),  # sixteen even words, two lanes each: banks are free, each word twice
        (LANES * 128, (32, 1)),
    ],
)
def test_atomics_of_one_address_follow_each_other(addresses: np.ndarray, expected: tuple[int, int]) -> None:
    assert atomic_wavefronts(addresses, LANES, 4) == expected
