"""Writes YAML in block style, one scalar per line, that no reader takes for another type."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

__all__ = ["scalar", "write_block"]

_PLAIN = re.compile(r"[A-Za-z_0-9][ -~]*(?<![ :])")
_NUMBER = re.compile(
    r"[-+.]?[0-9][0-9_.:]*(?:[eE][-+]?[0-9]+)?|0[xob][0-9a-fA-F_]+|[-+]?\.(?:inf|nan)", re.IGNORECASE
)
_ESCAPED = re.compile(r'["\\]')
_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
_DATE = re.compile(r"\d{4}-\d")


def scalar(value: object) -> str:
    """One scalar. Text is quoted wherever YAML 1.1 or 1.2 could read it as something else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        # A dot and no exponent without one: "1e-3" is text to some readers.
        text = repr(value)
        return re.sub(r"^(-?\d+)e", r"\1.0e", text).replace("e-0", "e-").replace("e+0", "e+")
    return _text(str(value))


@lru_cache(maxsize=4096)
def _text(text: str) -> str:
    plain = (
        _PLAIN.fullmatch(text)
        and text.lower() not in _WORDS
        and not _NUMBER.fullmatch(text)
        and not _DATE.match(text)
        and ": " not in text
        and " #" not in text
    )
    if plain:
        return text
    if text.isprintable() and not _ESCAPED.search(text):
        return f'"{text}"'
    return '"' + "".join(_quoted(char) for char in text) + '"'


def _quoted(char: str) -> str:
    code = ord(char)
    if char in '"\\':
        return "\\" + char
    if char.isprintable() and code != 0xFEFF:
        return char
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def write_block(mapping: Mapping[str, object], indent: int = 0) -> Iterator[str]:
    """The lines of a mapping of scalars, lists of scalars and such mappings, in the mapping's order."""
    pad = " " * indent
    for key, value in mapping.items():
        if isinstance(value, (str, int, float)):
            yield f"{pad}{scalar(key)}: {scalar(value)}"
        elif isinstance(value, Mapping) and not value:
            yield f"{pad}{scalar(key)}: {{}}"
        elif isinstance(value, Mapping):
            name = scalar(key)
            # YAML allows "key:" on one line for keys of at most 1024 characters.
            yield from [f"{pad}? {name}", f"{pad}:"] if len(name) > 1000 else [f"{pad}{name}:"]
            yield from write_block(value, indent + 2)
        elif isinstance(value, (list, tuple)):
            yield f"{pad}{scalar(key)}:"
            yield from (f"{pad}  - {scalar(item)}" for item in value)
        else:
            yield f"{pad}{scalar(key)}: {scalar(value)}"
