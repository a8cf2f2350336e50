"""The constants and the addresses of variables in the output of ``ptxas``, a 64-bit little-endian ELF file."""

from __future__ import annotations

import struct
from dataclasses import dataclass

__all__ = ["Cubin", "Symbol", "is_whole", "read_cubin"]

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOLS, _RELA, _NOBITS, _REL = 2, 4, 8, 9


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol at offset ``value`` of the section with the number ``section``."""

    name: str
    section: int
    value: int
    size: int


@dataclass(frozen=True, slots=True)
class Cubin:
    """Sections by name; ``numbers``: section numbers by name; ``relocations``: by section, the symbol that the linker places at an
    offset."""

    sections: dict[str, bytes]
    numbers: dict[str, int]
    symbols: tuple[Symbol, ...]
    relocations: dict[str, dict[int, str]]

    def symbols_in(self, section: str) -> dict[str, Symbol]:
        number = self.numbers.get(section)
        return {item.name: item for item in self.symbols if item.section == number and item.name}


def is_whole(content: bytes) -> bool:
    """Whether this is an object file with all of its sections."""
    try:
        read_cubin(content)
        start = struct.unpack_from("<Q", content, 40)[0]
        count = struct.unpack_from("<H", content, 60)[0]
        headers = [_SECTION.unpack_from(content, start + _SECTION.size * index) for index in range(count)]
    except (ValueError, struct.error):
        return False
    return all(item[1] == _NOBITS or item[4] + item[5] <= len(content) for item in headers)


def read_cubin(content: bytes) -> Cubin:
    """Parses an object file. Raises ``ValueError`` for other content."""
    if content[:5] != b"\x7fELF\x02" or len(content) < 64:
        raise ValueError("no ELF file of 64 bits")
    try:
        return _read(content)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None


def _read(content: bytes) -> Cubin:
    start = struct.unpack_from("<Q", content, 40)[0]
    _, count, names = struct.unpack_from("<HHH", content, 58)
    headers = [_SECTION.unpack_from(content, start + _SECTION.size * index) for index in range(count)]
    bodies = [b"" if item[1] == _NOBITS else content[item[4] : item[4] + item[5]] for item in headers]
    if not headers:
        return Cubin({}, {}, (), {})
    titles = [_text(bodies[names], item[0]) for item in headers]
    symbols: tuple[Symbol, ...] = ()
    for item, body in zip(headers, bodies):
        if item[1] == _SYMBOLS:
            symbols = tuple(
                Symbol(_text(bodies[item[6]], name), section, value, size)
                for name, _, _, section, value, size in _SYMBOL.iter_unpack(body)
            )
    relocations: dict[str, dict[int, str]] = {}
    for item, body in zip(headers, bodies):
        if item[1] in (_REL, _RELA):
            rows = struct.iter_unpack("<QQq" if item[1] == _RELA else "<QQ", body)
            relocations[titles[item[7]]] = {row[0]: symbols[row[1] >> 32].name for row in rows}
    return Cubin(
        dict(zip(titles, bodies)),
        {title: number for number, title in enumerate(titles)},
        symbols,
        relocations,
    )


def _text(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode()
