"""Tokens of PTX, a cursor over them, and constant expressions."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .floats import F64, from_python
from .syntax import Number

TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/|\.(?:loc|file)\b[^\n]*)
      |(?P<string>"(?:[^"\\]|\\.)*")
      |(?P<float>0[fF][0-9A-Fa-f]{8}\b|0[dD][0-9A-Fa-f]{16}\b|\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
      |(?P<int>0[xX][0-9A-Fa-f]+U?|0[bB][01]+U?|\d+U?)
      |(?P<word>[A-Za-z_$%][\w$]*)
      |(?P<dot>\.\w+(?:::\d+:\d+|::\w+)*)
      |(?P<punct><<|>>|[-+*/%&|^~!<>=@(){}\[\],;:])""",
    re.VERBOSE | re.DOTALL,
)


class PtxError(Exception):
    """The text is not PTX that the oracle understands."""


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    line: int


def tokenize(text: str) -> list[Token]:
    tokens, position, line = [], 0, 1
    while position < len(text):
        match = TOKEN.match(text, position)
        if match is None:
            raise PtxError(f"line {line}: cannot read {text[position : position + 20]!r}")
        kind, piece = match.lastgroup or "", match.group()
        if kind != "skip":
            tokens.append(Token(kind, piece, line))
        line += piece.count("\n")
        position = match.end()
    return tokens


def constant(operator: str, left: int, right: int) -> int:
    """A binary operator of constant expressions; division truncates."""
    if operator in ("<<", ">>"):
        return left << right if operator == "<<" else left >> right
    if operator in ("/", "%"):
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if operator == "/" else left - quotient * right
    return {
        "|": left | right,
        "^": left ^ right,
        "&": left & right,
        "+": left + right,
        "-": left - right,
        "*": left * right,
    }[operator]


def integer(text: str) -> int:
    text = text.rstrip("U")
    if len(text) > 1 and text[0] == "0" and text[1].isdigit():
        return int(text, 8)
    return int(text, 0)


class Cursor:
    """A position in the tokens of one module, and what every construct is read with."""

    def __init__(self, text: str) -> None:
        self.tokens = tokenize(text)
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.tokens[at].text if at < len(self.tokens) else ""

    def kind(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.tokens[at].kind if at < len(self.tokens) else ""

    def take(self) -> str:
        if self.at >= len(self.tokens):
            raise PtxError("the text ends in the middle of a statement")
        self.at += 1
        return self.tokens[self.at - 1].text

    def accept(self, text: str) -> bool:
        if self.peek() == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            line = self.tokens[min(self.at, len(self.tokens) - 1)].line
            raise PtxError(f"line {line}: expected {text!r}, found {self.peek()!r}")

    def skip_past(self, text: str) -> None:
        while self.take() != text:
            pass

    # -- constant expressions

    def expression_signed(self) -> int:
        sign = 1
        while self.peek() in ("+", "-"):
            sign *= -1 if self.take() == "-" else 1
        return sign * self.atom()

    LEVELS = (("|",), ("^",), ("&",), ("<<", ">>"), ("+", "-"), ("*", "/", "%"))

    def expression(self, level: int = 0) -> int:
        if level == len(self.LEVELS):
            return self.atom()
        left = self.expression(level + 1)
        while self.peek() in self.LEVELS[level]:
            operator = self.take()
            right = self.expression(level + 1)
            left = constant(operator, left, right)
        return left

    def atom(self) -> int:
        token = self.take()
        if token == "-":
            return -self.atom()
        if token == "+":
            return self.atom()
        if token == "~":
            return ~self.atom()
        if token == "!":
            return int(not self.atom())
        if token == "(":
            if self.kind() == "dot":  # a cast
                self.take()
                self.expect(")")
                return self.atom()
            value = self.expression()
            self.expect(")")
            return value
        if token == "WARP_SZ":
            return 32
        if not token[:1].isdigit():
            raise PtxError(f"line {self.tokens[self.at - 1].line}: expected a number, found {token!r}")
        return integer(token)

    def float_literal(self) -> Number:
        text = self.take()
        if text[:2] in ("0f", "0F"):
            return Number(int.from_bytes(bytes.fromhex(text[2:]), "big"), 32)
        if text[:2] in ("0d", "0D"):
            return Number(int.from_bytes(bytes.fromhex(text[2:]), "big"), 64)
        return Number(from_python(F64, float(text)), 64)
