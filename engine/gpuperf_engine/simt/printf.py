"""``printf`` of kernels: a format and a buffer of arguments to text (CUDA C++ Programming Guide, "Formatted Output").

Arguments are consecutive in the buffer, each aligned to its size: 4 bytes for ``int`` and types promoted to it; 8 for ``long``,
``long long``, pointers and ``double`` (``float`` is promoted). The output is that of the C library of Linux.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["Conversion", "conversions", "format_text"]

_SPECIFIER = re.compile(
    rb"%(?P<flags>[-+ #0]*)(?P<width>\*|\d*)(?:\.(?P<precision>\*|\d*))?(?P<size>hh|h|ll|l|j|z|t|L)?(?P<type>[a-zA-Z%])",
    re.DOTALL,
)
_INTEGERS, _FLOATS = b"dioucxX", b"eEfFgGaA"
_WIDE = (b"l", b"ll", b"j", b"z", b"t")
#: the maximum width of a conversion, so that a wrong width does not fill the host's memory
_MOST = 1 << 16

#: returns the next argument of ``size`` bytes, as an unsigned number
Take = Callable[[int], int]


@dataclass(frozen=True, slots=True)
class Conversion:
    """One piece of a format: plain ``text``, or a conversion of ``type`` (one letter)."""

    text: bytes
    type: bytes = b""
    flags: bytes = b""
    width: bytes = b""
    precision: bytes | None = None
    size: bytes = b""


def conversions(format_: bytes) -> Iterator[Conversion]:
    """The pieces of a format. Conversions that CUDA's printf lacks are plain text."""
    position = 0
    for match in _SPECIFIER.finditer(format_):
        if match.start() > position:
            yield Conversion(format_[position : match.start()])
        position = match.end()
        kind = match["type"]
        if kind == b"%":
            yield Conversion(b"%")
        elif kind in (b"s", b"p") or kind in _INTEGERS or kind in _FLOATS:
            yield Conversion(
                match.group(),
                kind,
                match["flags"],
                match["width"],
                match["precision"],
                match["size"] or b"",
            )
        else:
            yield Conversion(match.group())
    if position < len(format_):
        yield Conversion(format_[position:])


def format_text(
    pieces: Iterator[Conversion] | list[Conversion], next_argument: Take, string: Callable[[int], bytes]
) -> tuple[bytes, int]:
    """The text, and the number of arguments used. ``string`` reads the text at an address."""
    texts: list[bytes] = []
    used = 0

    def next_(size: int) -> int:
        nonlocal used
        used += 1
        return next_argument(size)

    for piece in pieces:
        if not piece.type:
            texts.append(piece.text)
            continue
        flags, width = set(piece.flags.decode()), _number(piece.width, next_)
        if width is not None and width < 0:
            flags.add("-")
            width = -width
        precision = None if piece.precision is None else _number(piece.precision or b"0", next_)
        if precision is not None and precision < 0:
            precision = None
        texts.append(_convert(piece, flags, min(width or 0, _MOST), _limited(precision), next_, string))
    return b"".join(texts), used


def _limited(precision: int | None) -> int | None:
    return None if precision is None else min(precision, _MOST)


def _number(written: bytes, next_argument: Take) -> int | None:
    if written == b"*":
        return _signed(next_argument(4), 32)
    return int(written[:9]) if written else None


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def _convert(
    piece: Conversion,
    flags: set[str],
    width: int,
    precision: int | None,
    next_argument: Take,
    string: Callable[[int], bytes],
) -> bytes:
    kind = piece.type.decode()
    if kind == "s":
        address = next_argument(8)
        text = string(address) if address else b"(null)"
        return _padded(text[:precision], flags, width)
    if kind == "p":
        address = next_argument(8)
        return _padded(b"0x%x" % address if address else b"(nil)", flags, width)
    if kind == "c":
        return _padded(bytes((next_argument(4) & 0xFF,)), flags, width)
    if kind in "aAeEfFgG":
        (value,) = struct.unpack("<d", next_argument(8).to_bytes(8, "little"))
        sign, digits, finite = _float(kind, value, flags, precision)
        return _with_sign(sign, digits, flags, width, zero=finite)
    bits = 64 if piece.size in _WIDE else 32
    raw = next_argument(bits // 8)
    argument_bits = {b"h": 16, b"hh": 8}.get(piece.size, bits)
    raw &= (1 << argument_bits) - 1
    sign = ""
    if kind in "di":
        value = _signed(raw, argument_bits)
        sign = _sign(value < 0, flags)
        raw = abs(value)
    digits = format(raw, {"o": "o", "x": "x", "X": "X"}.get(kind, "d"))
    if precision == 0 and raw == 0:
        digits = ""
    digits = digits.rjust(precision or 0, "0")
    if "#" in flags and kind == "o" and not digits.startswith("0"):
        digits = f"0{digits}"
    if "#" in flags and kind in "xX" and raw:
        sign = f"0{kind}"
    return _with_sign(sign, digits, flags, width, zero=precision is None)


def _sign(negative: bool, flags: set[str]) -> str:
    return "-" if negative else "+" if "+" in flags else " " if " " in flags else ""


def _with_sign(sign: str, digits: str, flags: set[str], width: int, *, zero: bool) -> bytes:
    if zero and "0" in flags and "-" not in flags:
        digits = digits.rjust(width - len(sign), "0")
    return _padded(f"{sign}{digits}".encode(), flags, width)


def _padded(text: bytes, flags: set[str], width: int) -> bytes:
    return text.ljust(width) if "-" in flags else text.rjust(width)


def _float(kind: str, value: float, flags: set[str], precision: int | None) -> tuple[str, str, bool]:
    """Sign, digits, and whether zeros may pad between them."""
    negative = math.copysign(1.0, value) < 0
    sign, magnitude = _sign(negative, flags), abs(value)
    if not math.isfinite(value):
        word = "nan" if math.isnan(value) else "inf"
        return sign, word.upper() if kind.isupper() else word, False
    if kind in "aA":
        digits, prefix = _hexadecimal(magnitude, precision, "#" in flags), "0x"
        if kind == "A":
            digits, prefix = digits.upper(), "0X"
        return sign + prefix, digits, True
    alternate = "#" if "#" in flags else ""
    digits = f"%{alternate}.{6 if precision is None else precision}{kind}" % magnitude
    return sign, digits, True


def _hexadecimal(magnitude: float, precision: int | None, point: bool) -> str:
    """The text of ``%a`` after ``0x``: one digit, 0 or 1 unless rounding carries, the fraction, and a power of two."""
    if magnitude == 0:
        mantissa, exponent = 0, 0
    else:
        (raw,) = struct.unpack("<Q", struct.pack("<d", magnitude))
        fraction, biased = raw & ((1 << 52) - 1), raw >> 52
        exponent = biased - 1023 if biased else -1022
        mantissa = fraction | (1 << 52 if biased else 0)
    if precision is None:
        digits = f"{mantissa & ((1 << 52) - 1):013x}".rstrip("0")
        first = mantissa >> 52
    elif precision >= 13:
        digits, first = f"{mantissa & ((1 << 52) - 1):013x}".ljust(precision, "0"), mantissa >> 52
    else:
        rounded = round(Fraction(mantissa, 1 << (52 - 4 * precision)))
        first, rest = divmod(rounded, 1 << (4 * precision))
        digits = f"{rest:0{precision}x}" if precision else ""
    dot = "." if digits or point else ""
    return f"{first:x}{dot}{digits}p{exponent:+d}"
