"""A PTX text with comments blanked out, and conversion of offsets to lines and columns."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate
from typing import NoReturn

from ..errors import PtxSyntaxError
from ..source import Span

__all__ = ["Text", "quoted", "shorten"]

#: Empty strings side by side are one match: they are left as they are, however many.
_COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|/\*|(?:"")+|"(?:[^"\\\n]|\\[^\n])*"|"', re.DOTALL)
#: An embedded text of another language.
_EMBEDDED = re.compile(r"(?<=\.source_begin)\s.*?(?=\.source_end)", re.DOTALL)
_NOT_NEWLINE = re.compile(r"[^\n]")


def shorten(piece: str, limit: int = 40) -> str:
    """A piece of text fit for a message: one line, unprintable characters escaped, at most ``limit`` characters."""
    flat = " ".join(piece[: 4 * limit].split())
    cut = flat[:limit] + ("…" if len(flat) > limit else "")
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in cut)


def quoted(name: str) -> str:
    """A name in quotes, cut where it is too long for a message."""
    return repr(shorten(name, 120))


class Text:
    """One PTX file. ``original`` is what was given; ``code`` has the same length and the same newlines, with comments
    replaced by blanks and the insides of strings by underscores, so that structure can be searched for directly."""

    __slots__ = ("_starts", "code", "original", "path")

    def __init__(self, original: str, path: str) -> None:
        self.original = original
        self.path = path
        self._starts: list[int] | None = None
        if ".source_begin" in original:
            original = _EMBEDDED.sub(lambda match: _NOT_NEWLINE.sub(" ", match.group()), original)
        self.code = self._structure(original)

    def _structure(self, text: str) -> str:
        if text.count("/") + text.count('"') > len(text) >> 6:
            return _COMMENT_OR_STRING.sub(self._blank, text)
        # if there are few, finding each separately is much faster than matching the text between them
        pieces: list[str] = []
        offset = 0
        slash, quote = text.find("/"), text.find('"')
        while slash >= 0 or quote >= 0:
            start = max(slash, quote) if slash < 0 or quote < 0 else min(slash, quote)
            match = _COMMENT_OR_STRING.match(text, start)
            end = start + 1
            if match is not None:
                end = match.end()
                pieces += text[offset:start], self._blank(match)
                offset = end
            if 0 <= slash < end:
                slash = text.find("/", end)
            if 0 <= quote < end:
                quote = text.find('"', end)
        return "".join([*pieces, text[offset:]]) if pieces else text

    def _blank(self, match: re.Match[str]) -> str:
        piece = match.group()
        if piece[0] == '"':
            if len(piece) == 1:
                self.fail(
                    "string without its closing quote",
                    match.start(),
                    hint="strings end on the line they begin on",
                )
            if piece[1] == '"':
                return piece
            return '"' + "_" * (len(piece) - 2) + '"'
        if piece == "/*":
            self.fail("comment without its closing '*/'", match.start())
        return " " * len(piece) if piece[1] == "/" else _NOT_NEWLINE.sub(" ", piece)

    @property
    def starts(self) -> list[int]:
        """Offset of the first character of every line."""
        if self._starts is None:
            lengths = map(len, self.original.split("\n"))
            self._starts = [0, *accumulate(length + 1 for length in lengths)]
        return self._starts

    def span(self, start: int, end: int) -> Span:
        """Lines and columns of the characters from ``start`` up to, not including, ``end``."""
        starts = self._starts or self.starts
        line = bisect_right(starts, start)
        begin = starts[line - 1]
        if end < starts[line]:
            return Span(self.path, line, start - begin + 1, line, end - begin + 1)
        last = bisect_right(starts, end)
        if last >= len(starts):  # one past the last character
            last = len(starts) - 1
        return Span(self.path, line, start - begin + 1, last, end - starts[last - 1] + 1)

    def string(self, start: int, end: int) -> str:
        """The characters of a string literal, quotes removed and escapes resolved."""
        inside = self.original[start + 1 : end - 1]
        return re.sub(r"\\(.)", r"\1", inside) if "\\" in inside else inside

    def fail(self, message: str, start: int, end: int | None = None, *, hint: str | None = None) -> NoReturn:
        """Raises ``PtxSyntaxError`` at that place."""
        raise PtxSyntaxError(
            message, span=self.span(start, start + 1 if end is None else end), hint=hint
        ) from None
