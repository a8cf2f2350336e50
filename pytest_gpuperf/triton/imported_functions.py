"""Replaces functions that a shared library imports, in the running process (x86-64 and AArch64 Linux).

A library calls an imported function through a slot that the loader fills (ELF, "Dynamic Linking": relocations ``JUMP_SLOT`` and
``GLOB_DAT``). Writing another address to the slot replaces the function for this library only.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["library_base", "replace", "slots_of"]

_PT_DYNAMIC = 2
_STRTAB, _SYMTAB, _RELA, _RELASZ, _PLTRELSZ, _JMPREL = 5, 6, 7, 8, 2, 23
#: relocation types by the ELF machine number: GLOB_DAT, JUMP_SLOT
_KINDS = {62: (6, 7), 183: (1025, 1026)}


def library_base(name: str) -> int | None:
    """The load address of the library with a file name; ``None`` if it is not loaded."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    starts = [int(line.partition("-")[0], 16) for line in lines if line.rpartition("/")[2] == name]
    return min(starts, default=None)


def slots_of(base: int, names: Iterable[str]) -> dict[str, list[int]]:
    """By function, the addresses of the slots through which the library at ``base`` calls it; empty if it does not."""
    read = _at(base)
    machine, _, _, header = struct.unpack("<HIQQ", read(18, 22))
    size, count = struct.unpack("<HH", read(54, 4))
    dynamic = 0
    for number in range(count):
        kind, _, _, address = struct.unpack("<IIQQ", read(header + number * size, 24))
        dynamic = address if kind == _PT_DYNAMIC else dynamic
    slots: dict[str, list[int]] = {name: [] for name in names}
    if machine not in _KINDS or not dynamic:
        return slots
    table = _dynamic(base, dynamic)
    for start, length in ((_RELA, _RELASZ), (_JMPREL, _PLTRELSZ)):
        entries = ctypes.string_at(table[start], table[length]) if start in table else b""
        for offset, info, _ in struct.iter_unpack("<QQq", entries):
            if info & 0xFFFFFFFF not in _KINDS[machine]:
                continue
            (name_at,) = struct.unpack("<I", ctypes.string_at(table[_SYMTAB] + 24 * (info >> 32), 4))
            name = ctypes.string_at(table[_STRTAB] + name_at).decode("ascii", "replace")
            if name in slots:
                slots[name].append(base + offset)
    return slots


def replace(slots: Mapping[str, Iterable[int]], functions: Mapping[str, int]) -> None:
    """Write the addresses of functions to their slots. Raises ``OSError`` if the system forbids it."""
    libc = ctypes.CDLL(None, use_errno=True)
    for name, address in functions.items():
        for slot in slots[name]:
            page = slot // mmap.PAGESIZE * mmap.PAGESIZE
            # the loader may have made the page read-only
            if libc.mprotect(ctypes.c_void_p(page), mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE):
                raise OSError(ctypes.get_errno(), "mprotect")
            ctypes.c_uint64.from_address(slot).value = address


def _at(base: int):  # type: ignore[no-untyped-def]
    return lambda offset, size: ctypes.string_at(base + offset, size)


def _dynamic(base: int, address: int) -> dict[int, int]:
    """Entries of the dynamic section, with absolute addresses."""
    table: dict[int, int] = {}
    place = base + address
    while True:
        tag, value = struct.unpack("<qQ", ctypes.string_at(place, 16))
        if not tag:
            break
        table[tag] = value
        place += 16
    for tag in (_STRTAB, _SYMTAB, _RELA, _JMPREL):
        if tag in table and table[tag] < base:  # glibc relocates these entries in place, other loaders do not
            table[tag] += base
    return table
