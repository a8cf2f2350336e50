"""Names of kernels that stay the same from one compilation to the next.

C++ and Numba mangle scope and parameter types into a name (Itanium C++ ABI, "External Names"). They distinguish overloads and
instances of a template, so they are kept. But some parts count compilations, or hash the content of the file:

- Numba gives each function that it compiles a number, as an ABI tag with the compiler's flags in a second one
  (``_ZN8__main__5saxpyB2v1B90cw51c…E5ArrayIf…``); in earlier versions it stands behind the name (``saxpy$1``, escaped as ``saxpy_241``
  or ``saxpy$241``), in the earliest without lengths (``cudapy___main___2E_saxpy_24_1_2E_…``). Kernels stand in a namespace ``cudapy``,
  or in none;
- nvcc names what has internal linkage after the file and hashes of it, ``_INTERNAL_c7d64fba_12_histogram_cu_23df3d09``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["function_name", "matching", "stable_id", "stable_name"]

_LENGTH = re.compile(r"[1-9]\d{0,3}")
_HASHED = re.compile(r"_(?:INTERNAL|GLOBAL__N_)_[0-9a-f]{8}_\d+_\w+?_[0-9a-f]{8}(?:_\d+)?|_GLOBAL__N__\w+")
_UNNAMED = "_GLOBAL__N_1"
"""The mangled name of an unnamed namespace in compilers of that ABI."""

_COUNTED = re.compile(r"(.+?)(?:[_$]24)\d+")
_VERSION = re.compile(r"v\d+")
_NUMBA = "cudapy"
_FLAT = re.compile(r"cuda[Pp]y_.*?_24_\d+(?:_2E_.*)?")
_FLAT_NAME = re.compile(r"(?:.*_2E_|cuda[Pp]y_)(.+?)_24_\d+(?:_2E_|$)")


@dataclass(frozen=True, slots=True)
class _Part:
    """One identifier of a name, its position (with the length prefix), and its ABI tags."""

    text: str
    start: int
    end: int
    tags: tuple[str, ...]


def stable_name(name: str) -> str:
    """Return the name of a kernel without parts that change from one compilation to the next: for Numba the name of the Python
    function, for others the name without hashes of files."""
    if name.startswith("cuda") and (flat := _FLAT.fullmatch(name)):
        match = _FLAT_NAME.match(name.split("_24_")[0] + "_24_0")
        return match[1] if flat and match else name
    parts = _parts(name)
    if not parts:
        return name
    last = parts[-1]
    versioned = bool(last.tags and _VERSION.fullmatch(last.tags[0]))
    counted = _COUNTED.fullmatch(last.text)
    if parts[0].text == _NUMBA or versioned:
        return counted[1] if counted and not versioned else last.text
    for part in reversed(parts):
        if _HASHED.fullmatch(part.text):
            name = f"{name[: part.start]}{len(_UNNAMED)}{_UNNAMED}{name[part.end :]}"
    return name


def stable_id(key: str) -> str:
    """The id of a case, ``test/kernel`` or ``test/kernel@variant``, with the kernel's ``stable_name``."""
    test, slash, kernel = key.rpartition("/")
    name, at, variant = kernel.partition("@")
    return f"{test}{slash}{stable_name(name)}{at}{variant}" if name.startswith(("_Z", "cuda")) else key


def function_name(name: str) -> str:
    """The function's own name for people, ``atomicAdd`` of ``_ZN…9atomicAddEPjj``; the name itself where it is not mangled."""
    stable = stable_name(name)
    parts = _parts(stable)
    return parts[-1].text if parts else stable


def matching(name: str, kernels: Iterable[str]) -> list[str]:
    """Return the kernels that a name selects: the one with exactly this name, else those with this ``stable_name``, else with this
    ``function_name``."""
    known = list(kernels)
    if name in known:
        return [name]
    return [kernel for kernel in known if stable_name(kernel) == name] or [
        kernel for kernel in known if function_name(kernel) == name
    ]


def _parts(name: str) -> list[_Part]:
    """Return the identifiers of a mangled name, outermost first; none for a name that is not mangled."""
    if not name.startswith("_Z"):
        return []
    nested = name[2:3] == "N"
    at = 3 if nested else 2
    parts: list[_Part] = []
    if nested:
        while name[at : at + 1] in ("K", "V", "r", "R", "O"):
            at += 1
    while (identifier := _identifier(name, at)) is not None:
        text, end = identifier
        start, at = at, end
        if name[at : at + 1] == "I":
            at = _arguments_end(name, at)
        tags = []
        while name[at : at + 1] == "B" and (tag := _identifier(name, at + 1)) is not None:
            tags.append(tag[0])
            at = tag[1]
        parts.append(_Part(text, start, end, tuple(tags)))
        if not nested:
            break
    return parts


def _identifier(name: str, at: int) -> tuple[str, int] | None:
    """Parse ``4main`` at a position: return the identifier and its end."""
    length = _LENGTH.match(name, at)
    if length is None:
        return None
    end = length.end() + int(length[0])
    return (name[length.end() : end], end) if end <= len(name) else None


def _arguments_end(name: str, at: int) -> int:
    """Return the end of the template arguments that begin at a position with ``I``; the end of the name if unknown."""
    depth = 0
    while at < len(name):
        identifier = _identifier(name, at)
        if identifier is not None:
            at = identifier[1]
            continue
        char = name[at]
        if char == "L" and name[at + 1 : at + 2].islower():  # a literal: its type, its value
            end = name.find("E", at)
            at = end + 1 if end >= 0 else len(name)
            continue
        if char == "S":  # a substitution, St… or S0_
            end = (
                name.find("_", at)
                if name[at + 1 : at + 2] in "_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                else at + 1
            )
            at = end + 1 if end >= 0 else len(name)
            continue
        if char == "T" and name[at + 1 : at + 2] in "_0123456789":
            end = name.find("_", at)
            at = end + 1 if end >= 0 else len(name)
            continue
        depth += char in "INXJF"
        depth -= char == "E"
        at += 1
        if depth == 0:
            return at
    return len(name)
