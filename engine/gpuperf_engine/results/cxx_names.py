"""Names of C++ as their author wrote them, from symbols (Itanium C++ ABI, "External Names (a.k.a. Mangling)").

Read is what variables and kernels of CUDA C++ have: namespaces, classes, templates with types and numbers, functions around a static
variable. Parameters are left out. A symbol with anything else stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

__all__ = ["readable_name"]

_BUILTIN = {
    "v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char", "s": "short",
    "t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "x": "long long",
    "y": "unsigned long long", "n": "__int128", "o": "unsigned __int128", "f": "float", "d": "double", "e": "long double",
}  # fmt: skip
_EXTENDED = {"Dn": "std::nullptr_t", "Di": "char32_t", "Ds": "char16_t", "Du": "char8_t", "Dh": "half"}
_STANDARD = {
    "St": "std", "Sa": "std::allocator", "Sb": "std::basic_string", "Ss": "std::string", "Si": "std::istream",
    "So": "std::ostream", "Sd": "std::iostream",
}  # fmt: skip
#: what follows a number of this type; of others the type stands before it
_SUFFIX = {"i": "", "j": "u", "l": "l", "m": "ul", "x": "ll", "y": "ull"}
_UNNAMED = re.compile(r"_GLOBAL__N_.*|_INTERNAL_[0-9a-f]{8}_.*")
_NUMBER = re.compile(r"\d+")
_REFERENCE = re.compile(r"[ST]([0-9A-Z]*)_")
_VALUE = re.compile(r"(n?)(\d+)E")


class _Unknown(Exception):
    """Something that is not read."""


@lru_cache(maxsize=4096)
def readable_name(symbol: str) -> str:
    """``math::table<float, 4>`` of ``_ZN4math5tableIfLi4EE``; the symbol itself where it is not mangled so."""
    if not symbol.startswith("_Z"):
        return symbol
    try:
        return _Reader(symbol).encoding()
    except (_Unknown, IndexError, RecursionError):
        return symbol


class _Reader:
    """Reads a symbol from left to right."""

    def __init__(self, symbol: str) -> None:
        self._text = symbol
        self._at = 2
        #: what ``S_``, ``S0_`` … stand for
        self._known: list[str] = []

    def encoding(self) -> str:
        return self._name()

    def _takes(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise _Unknown
        self._at = match.end()
        return match

    def _name(self) -> str:
        if self._takes("N"):
            return self._nested()
        if self._takes("Z"):
            return self._local()
        if self._text[self._at] == "S" and self._text[self._at + 1] != "t":
            return self._with_arguments(self._substitution())
        prefix = "std::" if self._takes("St") else ""
        name = prefix + self._identifier()
        if self._text[self._at : self._at + 1] == "I":
            self._known.append(name)
        return self._with_arguments(name)

    def _local(self) -> str:
        """A variable of a function: ``function::variable``."""
        function = self._name()
        depth = 0
        while depth or self._text[self._at] != "E":  # the function's parameters
            if self._text[self._at].isdigit():
                self._identifier()
                continue
            if (reference := _REFERENCE.match(self._text, self._at)) is not None:
                self._at = reference.end()
                continue
            if self._text[self._at] == "L":
                raise _Unknown
            depth += self._text[self._at] in "NIFJX"
            depth -= self._text[self._at] == "E"
            self._at += 1
        self._at += 1
        return f"{function}::{self._name()}"

    def _nested(self) -> str:
        while (
            self._takes("K") or self._takes("V") or self._takes("r") or self._takes("R") or self._takes("O")
        ):
            pass
        name = ""
        while not self._takes("E"):
            if self._text[self._at] == "I":
                name = self._with_arguments(name)
            elif self._text[self._at] == "S":
                name = self._substitution()
                continue
            else:
                name = f"{name}::{self._identifier()}" if name else self._identifier()
            self._known.append(name)
        if self._known and self._known[-1] == name:
            self._known.pop()
        return name

    def _identifier(self) -> str:
        self._takes("L")  # internal linkage
        length = int(self._match(_NUMBER)[0])
        text = self._text[self._at : self._at + length]
        if len(text) < length:
            raise _Unknown
        self._at += length
        while self._takes("B"):
            self._identifier()
        return "(anonymous namespace)" if _UNNAMED.fullmatch(text) else text

    def _substitution(self) -> str:
        pair = self._text[self._at : self._at + 2]
        if pair in _STANDARD:
            self._at += 2
            return _STANDARD[pair]
        number = self._match(_REFERENCE)[1]
        return self._known[int(number, 36) + 1 if number else 0]

    def _with_arguments(self, name: str) -> str:
        if not self._takes("I"):
            return name
        return f"{name}<{', '.join(self._arguments())}>"

    def _arguments(self) -> list[str]:
        items: list[str] = []
        while not self._takes("E"):
            if self._takes("J"):
                items += self._arguments()
            elif self._takes("L"):
                items.append(self._literal())
            else:
                items.append(self._type())
        return items

    def _literal(self) -> str:
        if self._takes("_Z"):
            name = self._name()
            if not self._takes("E"):
                raise _Unknown
            return f"&{name}"
        kind = self._text[self._at]
        type_ = self._type()
        negative, digits = self._match(_VALUE).groups()
        value = f"-{digits}" if negative else digits
        if kind == "b":
            return "true" if value == "1" else "false"
        return value + _SUFFIX[kind] if kind in _SUFFIX else f"({type_}){value}"

    def _type(self) -> str:
        char, pair = self._text[self._at], self._text[self._at : self._at + 2]
        if char in _BUILTIN:
            self._at += 1
            return _BUILTIN[char]
        if pair in _EXTENDED:
            self._at += 2
            return _EXTENDED[pair]
        if char == "S" and pair != "St":
            name = self._substitution()
            if self._text[self._at] != "I":
                return name
            name = self._with_arguments(name)
        elif (made := self._compound(char)) is not None:
            name = made
        else:
            name = self._name()
        self._known.append(name)
        return name

    def _compound(self, char: str) -> str | None:
        forms: dict[str, Callable[[str], str]] = {
            "P": lambda of: f"{of}*", "R": lambda of: f"{of}&", "O": lambda of: f"{of}&&",
        }  # fmt: skip
        if char in forms:
            self._at += 1
            return forms[char](self._type())
        words = ""
        for letter, word in (("V", " volatile"), ("K", " const")):
            if self._takes(letter):
                words = word + words
        if words:
            return self._type() + words
        if self._takes("A"):
            number = self._match(_NUMBER)[0]
            if not self._takes("_"):
                raise _Unknown
            return f"{self._type()} [{number}]"
        return None
