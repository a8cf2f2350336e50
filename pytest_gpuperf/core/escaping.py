"""Text from PTX, test ids and exceptions made safe to print: it is never a terminal escape."""

from __future__ import annotations

import unicodedata

__all__ = ["clean", "one_line", "storable"]

_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


def _escaped(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def clean(text: str) -> str:
    """The text with control and format characters (escapes, bidirectional overrides, lone surrogates) written out;
    newlines stay, tabs become spaces."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char
        if char == "\n" or unicodedata.category(char) not in _UNSAFE
        else ("    " if char == "\t" else _escaped(char))
        for char in text
    )


def one_line(text: str, limit: int = 200) -> str:
    """``clean`` text on one line of at most ``limit`` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def storable(text: str) -> str:
    """The text as UTF-8 can hold it: lone surrogates are written out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
