"""The IR text being written: lines, fresh names, splats, and the functions that it calls.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from ...isa.types import ScalarType

__all__ = ["LANES", "Writer", "scalar_ll", "vector_ll"]

LANES = 32


def scalar_ll(type: ScalarType) -> str:
    """LLVM type of one lane."""
    if type.kind == "f" and type.lanes == 1 and type.bits >= 32:
        return "float" if type.bits == 32 else "double"
    return f"i{type.bits}"


def vector_ll(type: ScalarType) -> str:
    """LLVM type of all lanes."""
    return f"<{LANES} x {scalar_ll(type)}>"


class Writer:
    """The text being written: lines of the current function, fresh names, and the runtime functions that it calls."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.needs: dict[str, str] = {}
        self._counter = 0
        self._splats: dict[tuple[str, str], str] = {}

    def op(self, text: str) -> str:
        """Append ``%n = text`` and give the name."""
        self._counter += 1
        name = f"%n{self._counter}"
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """Append an instruction without result."""
        self.lines.append("  " + text)

    def label(self, hint: str) -> str:
        """A fresh label."""
        self._counter += 1
        return f"{hint}.{self._counter}"

    def start(self, label: str) -> None:
        """Begin a basic block; values splatted before stay usable only if it is dominated by them."""
        self.lines.append(f"{label}:")

    def forget(self) -> None:
        """A block that earlier values do not dominate begins."""
        self._splats.clear()

    def splat(self, text: str, scalar: str) -> str:
        """A scalar in all lanes."""
        key = (text, scalar)
        found = self._splats.get(key)
        if found is None:
            one = self.op(f"insertelement <{LANES} x {scalar}> poison, {scalar} {text}, i32 0")
            found = self._splats[key] = self.op(
                f"shufflevector <{LANES} x {scalar}> {one}, <{LANES} x {scalar}> poison, <{LANES} x i32> zeroinitializer"
            )
        return found

    def call(self, name: str, result: str, *arguments: tuple[str, str]) -> str:
        """Call a runtime function; arguments are (LLVM type, operand)."""
        self.needs[name] = f'declare {result} @"{name}"({", ".join(type for type, _ in arguments)})'
        text = f'call {result} @"{name}"({", ".join(f"{type} {operand}" for type, operand in arguments)})'
        if result == "void":
            self.do(text)
            return ""
        return self.op(text)
