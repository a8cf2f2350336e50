"""Slots through which shared libraries call imported functions, against addresses that the loader gives."""

from __future__ import annotations

import _ctypes
import ctypes
import platform
import sys
from pathlib import Path

import pytest

from pytest_gpuperf.triton.imported_functions import library_base, replace, slots_of

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"), reason="reads ELF of Linux"
)
NAME = "PyErr_NoMemory"


@pytest.fixture
def base() -> int:
    found = library_base(Path(getattr(_ctypes, "__file__", "nothing")).name)
    if found is None:
        pytest.skip("_ctypes is no library of its own here")
    return found


def test_slots_hold_what_the_loader_put_there(base: int) -> None:
    slots = slots_of(base, ("PyExc_TypeError", "no such function"))
    assert slots["no such function"] == []
    expected = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "PyExc_TypeError"))
    assert [ctypes.c_uint64.from_address(slot).value for slot in slots["PyExc_TypeError"]] == [expected]


def test_a_function_is_replaced_for_one_library(base: int) -> None:
    slots = slots_of(base, (NAME,))
    assert slots[NAME]
    before = {slot: ctypes.c_uint64.from_address(slot).value for slot in slots[NAME]}
    replace(slots, {NAME: 0x1234})
    assert {ctypes.c_uint64.from_address(slot).value for slot in slots[NAME]} == {0x1234}
    for slot, address in before.items():
        replace({NAME: [slot]}, {NAME: address})
    assert {slot: ctypes.c_uint64.from_address(slot).value for slot in slots[NAME]} == before


def test_libraries_that_are_not_loaded() -> None:
    assert library_base("libnothing-at-all.so") is None
