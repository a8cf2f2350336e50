"""Fat binaries, nvcc's containers of PTX and machine code for several architectures.

A fat binary is a header followed by entries; a file may have several, one for each linked object. NVIDIA only documents the wrapper
(``fatbinary_section.h``); everything else is the format that ``fatbinary`` of CUDA 13.0 writes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import BinaryError
from . import lz4, zstd

__all__ = ["LARGEST", "MAGIC", "PTX", "Entry", "contents", "read_entries"]

MAGIC = struct.pack("<I", 0xBA55ED50)
PTX, MACHINE_CODE, LTO_IR = 1, 2, 8
LARGEST = 1 << 30
"""The maximum size of an entry in bytes: far above any program, and far below the memory of a host."""

_HEADER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_MAGIC = re.compile(re.escape(MAGIC))
_LZ4, _ZSTD = 0x2000, 0x8000
_SUFFIXES = {0x100000: "a", 0x200000: "f"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: its ``kind``, the architecture as in ``.target``, its compression, the stored bytes and their decompressed size.
    ``where`` describes its position in the file, ``container`` is the offset of its fat binary."""

    kind: int
    target: str
    compression: str
    stored: memoryview
    size: int
    where: str
    container: int


def read_entries(data: memoryview, path: str, base: int = 0) -> Iterator[Entry]:
    """The entries of all fat binaries in some bytes, in their order; ``base`` is where the bytes begin in the file. Raises
    ``BinaryError`` for a fat binary that is cut off or whose sizes cannot be."""
    match = _MAGIC.search(data)
    while match is not None:
        position = match.start()
        where = f"{path}: the fat binary at {base + position:#x}"
        if position + _HEADER.size > len(data):
            raise _damaged(where, "its header is cut off")
        _, version, header, size = _HEADER.unpack_from(data, position)
        if version != 1:
            raise BinaryError(
                f"{where} has version {version} of the format",
                hint="version 1, written by CUDA 4 to 13, is supported",
            )
        end = position + header + size
        if header < _HEADER.size or end > len(data):
            raise _damaged(
                where, f"by its header it ends at {base + end:#x}, its section ends at {base + len(data):#x}"
            )
        yield from _entries(data, position + header, end, path, base)
        match = _MAGIC.search(data, end)


def _entries(data: memoryview, position: int, end: int, path: str, base: int) -> Iterator[Entry]:
    container = base + position
    while end - position >= _ENTRY.size:
        where = f"{path}: the fat binary's entry at {base + position:#x}"
        kind, _, header, size, packed, _, _, _, architecture, _, _, flags, _, unpacked = _ENTRY.unpack_from(
            data, position
        )
        start = position + header
        if header < _ENTRY.size or start + size > end:
            raise _damaged(
                where,
                f"by its header it ends at {base + start + size:#x}, the fat binary ends at {base + end:#x}",
            )
        compression = "LZ4" if flags & _LZ4 else "zstd" if flags & _ZSTD else ""
        stored = data[start : start + size]
        if compression:
            if packed > size:
                raise _damaged(where, f"{packed} compressed bytes, by its header, in {size}")
            stored = stored[:packed]
        suffix = "".join(letter for bit, letter in _SUFFIXES.items() if flags & bit)
        yield Entry(
            kind,
            f"sm_{architecture}{suffix}",
            compression,
            stored,
            unpacked if compression else size,
            where,
            container,
        )
        position = start + size


def contents(entry: Entry) -> bytes:
    """The bytes of an entry, decompressed. Raises ``BinaryError``."""
    stored = bytes(entry.stored)
    if not entry.compression:
        return stored
    if entry.size > LARGEST or (entry.compression == "LZ4" and entry.size > len(stored) * lz4.MOST_RATIO):
        raise _damaged(entry.where, f"{len(stored)} compressed bytes for, by its header, {entry.size}")
    try:
        if entry.compression == "LZ4":
            return lz4.decompress(stored, entry.size)
        text = zstd.decompress(stored, entry.size, entry.where)
        if len(text) != entry.size:
            more = "more than " if len(text) > entry.size else ""
            raise ValueError(f"{more}{min(len(text), entry.size)} bytes, {entry.size} by its header")
        return text
    except ValueError as error:
        raise _damaged(entry.where, f"as {entry.compression} it is wrong: {error}") from None


def _damaged(where: str, problem: str) -> BinaryError:
    return BinaryError(f"{where} is damaged: {problem}", hint="was the file copied completely?")
