"""Debugging directives: ``.file``, ``.loc`` and the strings of ``.section .debug_str`` (PTX manual, "Debugging Directives")."""

from __future__ import annotations

import re

from .text import Text

__all__ = ["FILE", "LOC", "LOC_INTERMEDIATE", "SECTION", "debug_labels", "file_entry"]

FILE = re.compile(r'\.file\s+(\d{1,10})\s+("_*")(?:\s*,\s*\d+\s*,\s*\d+)?', re.ASCII)
SECTION = re.compile(r"\.section\s+([.\w$]+)\s*\{", re.ASCII)
#: file, line, column; function_name label and offset; inlined_at file, line, column
LOC = re.compile(
    r"\.loc\s+(\d{1,10})\s+(\d{1,10})\s+(\d{1,10})"
    r"(?:\s*,\s*function_name\s+([\w$]+)(?:\s*\+\s*(\d{1,10}))?)?"
    r"(?:\s*,\s*inlined_at\s+(\d{1,10})\s+(\d{1,10})\s+(\d{1,10}))?[ \t]*;?",
    re.ASCII,
)
#: a position in the intermediate language, which is ignored
LOC_INTERMEDIATE = re.compile(r"\.loc_intermediate\s+\d{1,10}\s+\d{1,10}\s+\d{1,10}[ \t]*;?", re.ASCII)
_WORD = re.compile(r"([.\w$]+)(\s*:)?", re.ASCII)
_BYTE = re.compile(r"\d{1,3}|0[xX][0-9a-fA-F]{1,2}", re.ASCII)


def file_entry(text: Text, match: re.Match[str]) -> tuple[int, str]:
    """Index and path of a ``.file``."""
    return int(match[1]), text.string(*match.span(2))


def debug_labels(code: str, start: int, end: int) -> dict[str, str]:
    """The zero-terminated strings of a section, by the labels before them; other contents are skipped."""
    strings: dict[str, str] = {}
    label, data, in_bytes = "", bytearray(), False
    for word, colon in _WORD.findall(code[start:end]):
        if colon:
            if label:
                strings[label] = bytes(data).split(b"\0")[0].decode("utf-8", "replace")
            label, in_bytes = word, False
            data.clear()
        elif word[0] == ".":
            in_bytes = word == ".b8"
        elif in_bytes and _BYTE.fullmatch(word):
            data.append(int(word, 0 if word[:2] in ("0x", "0X") else 10) & 255)
    if label:
        strings[label] = bytes(data).split(b"\0")[0].decode("utf-8", "replace")
    return strings
