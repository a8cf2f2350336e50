"""Sections of an ELF file (System V ABI, "Object Files"), 64 bits and little endian: what nvcc writes for its hosts, and cubins."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import BinaryError

__all__ = ["CUDA", "MAGIC", "Elf", "Section", "read_elf"]

MAGIC = b"\x7fELF"
CUDA = 190
"""``e_machine`` of a cubin."""

_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NO_BITS = 8
_COMPRESSED = 0x800
_EXTENDED = 0xFFFF


@dataclass(frozen=True, slots=True)
class Section:
    """A section with its bytes; ``offset`` is where they begin in the file."""

    name: str
    offset: int
    data: memoryview


@dataclass(frozen=True, slots=True)
class Elf:
    """``machine`` is ``e_machine``, ``flags`` ``e_flags``. A file that was stripped of its section table has no sections."""

    machine: int
    flags: int
    abi: int
    sections: tuple[Section, ...]


def read_elf(data: memoryview, path: str, wanted: Sequence[str] | None = None) -> Elf:
    """The sections that have bytes and are ``wanted``, by default those of NVIDIA. Raises ``BinaryError`` for a file of another class
    or one that is cut off."""
    if len(data) < 6 + 10:
        raise _damaged(path, f"{len(data)} bytes hold no ELF header")
    if data[4] != 2 or data[5] != 1:
        raise BinaryError(
            f"{path} is a 32-bit or big-endian ELF file",
            hint="only 64-bit, little-endian ELF files are read: those of x86-64 and AArch64, and cubins",
        )
    if len(data) < 64:
        raise _damaged(path, f"{len(data)} bytes hold no ELF header")
    _, machine, _, _, _, table, flags, _, _, _, size, count, names = _HEADER.unpack_from(data)
    abi = data[8]
    if not table:
        return Elf(machine, flags, abi, ())
    if size < _SECTION.size:
        raise _damaged(path, f"entries of its section table have {size} bytes, fewer than {_SECTION.size}")
    if table + size > len(data):
        raise _damaged(path, f"its section table is at {table:#x}, the file ends at {len(data):#x}")
    first = _SECTION.unpack_from(data, table)
    count = count or first[5]
    names = first[6] if names == _EXTENDED else names
    if table + count * size > len(data):
        raise _damaged(
            path, f"its section table ends at {table + count * size:#x}, the file at {len(data):#x}"
        )
    entries = [_SECTION.unpack_from(data, table + index * size) for index in range(count)]
    strings = _bytes_of(data, entries[names], path) if names < count else memoryview(b"")
    sections = []
    for entry in entries:
        name = _name(strings, entry[0])
        if entry[1] == _NO_BITS or not entry[5]:
            continue
        if "nv" in name if wanted is None else name in wanted:
            if entry[2] & _COMPRESSED:
                raise BinaryError(
                    f"{path}: section {name} is compressed by the linker",
                    hint="objcopy --decompress-debug-sections FILE",
                )
            sections.append(Section(name, entry[4], _bytes_of(data, entry, path, name)))
    return Elf(machine, flags, abi, tuple(sections))


def _bytes_of(data: memoryview, entry: tuple[int, ...], path: str, name: str = "names") -> memoryview:
    offset, size = entry[4], entry[5]
    if offset + size > len(data):
        raise _damaged(
            path, f"section {name} is at {offset:#x} to {offset + size:#x}, the file ends at {len(data):#x}"
        )
    return data[offset : offset + size]


def _name(strings: memoryview, start: int) -> str:
    # names are short; without a limit, a string table without a final zero would be searched for each section
    text = bytes(strings[start : start + 64])
    return text.partition(b"\0")[0].decode("utf-8", "replace")


def _damaged(path: str, problem: str) -> BinaryError:
    return BinaryError(f"{path} is a damaged ELF file: {problem}", hint="was it copied completely?")
