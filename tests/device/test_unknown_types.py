"""Bytes of elements whose type nobody tells: what is unchanged of them holds of any type."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge


def unchanged(first: np.ndarray, second: np.ndarray, offset: int = 0) -> tuple[int, int]:
    """Of two copies to one place, what the second wrote and how much of that was there already, in bytes."""
    device = ge.Device(observe={"memory", "values"})
    address = device.allocate(first.nbytes + offset, name="a")
    for data in (first, second):
        device.copy_bytes(address + offset, data.ctypes.data, data.nbytes)
    (use,) = device.events[-1].uses
    return use.written, use.unchanged


def test_bytes_that_floats_have_in_common_are_no_unchanged_values() -> None:
    """Two images of small whole numbers: half of the bytes of their floats are zero, and hardly a pixel stays."""
    random = np.random.default_rng(1)
    first, second = (random.integers(32, 256, 4000).astype(np.float32) for _ in range(2))
    written, same = unchanged(first, second)
    assert (first.view("u1") == second.view("u1")).mean() > 0.5
    assert written == 16000 and same == 8 * (first.view("u8") == second.view("u8")).sum()
    assert same / written <= (first == second).mean() < 0.01


@pytest.mark.parametrize("type", ["u1", "u2", "f4", "f8"])
@pytest.mark.parametrize("offset", [0, 3, 4])
def test_no_type_has_fewer_unchanged_elements(type: str, offset: int) -> None:
    random = np.random.default_rng(2)
    first = random.integers(0, 9, 1001).astype(type)
    second = np.where(np.arange(1001) % 100 < 60, first, first + 1).astype(type)
    written, same = unchanged(first, second, offset)
    assert 0 < same / written <= (first == second).mean()


def test_what_is_equal_is_unchanged_whatever_it_is() -> None:
    data = np.random.default_rng(3).normal(size=1001).astype(np.float32)
    for offset in (0, 4, 5):
        assert unchanged(data, data, offset) == (4004, 4004)
