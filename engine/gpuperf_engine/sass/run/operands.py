"""Operands of machine instructions in the syntax of ``nvdisasm``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["Address", "Constant", "Immediate", "Operand", "Predicate", "Register", "read_operand"]

#: The number of RZ, URZ, PT and UPT.
ZERO = -1
_REGISTER = re.compile(r"(U?)R(\d+|Z)$")
_PREDICATE = re.compile(r"(!?)(U?)P(\d+|T)$")
_CONSTANT = re.compile(r"c\[0x([0-9a-f]+)\]\s*\[(?:(U?R(?:\d+|Z))(?:\.[A-Z0-9]+)*)?\+?(-?0x[0-9a-f]+)?\]$")
_INTEGER = re.compile(r"-?0x[0-9a-f]+$")
_FLOAT = re.compile(r"[+-]?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|INF|QNAN|SNAN)$")
_ADDRESS = re.compile(r"(?:g?desc\[UR\d+\])?\[([^\]]*)\]$")
_PART = re.compile(r"(U?)R(\d+|Z)((?:\.[A-Z0-9]+)*)$")


@dataclass(frozen=True, slots=True)
class Register:
    """A register: ``UR4`` if ``uniform``; ``words``: its suffixes (``H0_H0``, ``B1``); ``negated``: ``-``; ``absolute``: ``|…|``;
    ``inverted``: ``~``."""

    uniform: bool
    number: int
    words: tuple[str, ...] = ()
    negated: bool = False
    absolute: bool = False
    inverted: bool = False

    @property
    def is_zero(self) -> bool:
        return self.number == ZERO


@dataclass(frozen=True, slots=True)
class Predicate:
    """A predicate: ``!UP3``. ``PT``, which is always true, has the number ``ZERO``."""

    uniform: bool
    number: int
    inverted: bool


@dataclass(frozen=True, slots=True)
class Immediate:
    """``value`` of an integer; ``None`` for a floating-point number, whose bits are in the encoding."""

    value: int | None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Constant:
    """``c[bank][index + offset]``."""

    bank: int
    offset: int
    index: Register | None = None
    words: tuple[str, ...] = ()
    negated: bool = False
    absolute: bool = False
    inverted: bool = False


@dataclass(frozen=True, slots=True)
class Address:
    """``[R2.64+UR4+0x8]``: the sum of registers and an offset in bytes."""

    parts: tuple[Register, ...]
    offset: int


Operand = Register | Predicate | Immediate | Constant | Address


@lru_cache(maxsize=1 << 14)
def read_operand(text: str) -> Operand | None:
    """Parses one operand. ``None`` for other operands: a special register, a barrier, a label, a relocation."""
    text = text.strip()
    predicate = _PREDICATE.match(text)
    if predicate is not None:
        return Predicate(bool(predicate[2]), _number(predicate[3]), bool(predicate[1]))
    if _INTEGER.match(text):
        return Immediate(int(text, 16))
    if _FLOAT.match(text):
        return Immediate(None)
    address = _ADDRESS.match(text)
    if address is not None:
        return _address(address[1])
    negated = text.startswith("-")
    inverted = text.startswith("~")
    inner = text[1:] if negated or inverted else text
    absolute = inner.startswith("|")
    inner, _, behind = inner[1:].partition("|") if absolute else (inner, "", "")
    name, *words = inner.split(".") if inner[:2] not in ("c[",) else (inner,)
    if behind:
        words = [*words, *behind.lstrip(".").split(".")]
    words = [word for word in words if word != "reuse"]
    register = _REGISTER.match(name)
    if register is not None:
        return Register(bool(register[1]), _number(register[2]), tuple(words), negated, absolute, inverted)
    if inner.startswith("c["):
        end = inner.rfind("]") + 1
        constant = _CONSTANT.match(inner[:end])
        if constant is not None:
            index = read_operand(constant[2]) if constant[2] else None
            assert index is None or isinstance(index, Register)
            suffix = tuple(word for word in inner[end:].split(".") if word and word != "reuse")
            offset = int(constant[3] or "0", 16)
            return Constant(int(constant[1], 16), offset, index, suffix, negated, absolute, inverted)
    return None


def _number(text: str) -> int:
    return ZERO if text in ("Z", "T") else int(text)


def _address(text: str) -> Address | None:
    parts: list[Register] = []
    offset = 0
    for piece in filter(None, text.replace("+-", "+~").split("+")):
        piece = piece.replace("~", "-").strip()
        if _INTEGER.match(piece):
            offset += int(piece, 16)
            continue
        match = _PART.match(piece)
        if match is None:
            return None
        words = tuple(word for word in match[3].split(".") if word and word != "reuse")
        parts.append(Register(bool(match[1]), _number(match[2]), words))
    return Address(tuple(parts), offset)
