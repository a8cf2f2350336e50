"""IR text of functions on whole vectors."""

from __future__ import annotations

from .emitter import LANES

__all__ = ["Body", "lanes_of"]


def lanes_of(kind: str) -> str:
    """LLVM type of all lanes."""
    return f"<{LANES} x {kind}>"


class Body:
    """Instructions of one function; literals are splatted."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}

    def op(self, text: str) -> str:
        name = f"%x{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def lit(self, kind: str, number: int | str) -> str:
        return f"splat ({kind} {number})"

    def binary(self, word: str, kind: str, a: str, b: str | int) -> str:
        return self.op(f"{word} {lanes_of(kind)} {a}, {self.lit(kind, b) if isinstance(b, int) else b}")

    def select(self, test: str, kind: str, yes: str | int, no: str | int) -> str:
        a, b = (self.lit(kind, item) if isinstance(item, int) else item for item in (yes, no))
        return self.op(f"select {lanes_of('i1')} {test}, {lanes_of(kind)} {a}, {lanes_of(kind)} {b}")

    def cast(self, word: str, source: str, value: str, target: str) -> str:
        return self.op(f"{word} {lanes_of(source)} {value} to {lanes_of(target)}")

    def intrinsic(self, name: str, result: str, arguments: list[tuple[str, str]]) -> str:
        self.declared[name] = f"declare {result} @{name}({', '.join(kind for kind, _ in arguments)})"
        return self.op(f"call {result} @{name}({', '.join(f'{kind} {value}' for kind, value in arguments)})")

    def function(
        self, name: str, result: str, kinds: list[str], value: str, attributes: str = "nounwind"
    ) -> str:
        head = ", ".join(f"{lanes_of(kind)} %{letter}" for kind, letter in zip(kinds, "abcd"))
        lines = [*self.lines, f"ret {lanes_of(result)} {value}"]
        return "\n".join(
            [
                *self.declared.values(),
                f"define {lanes_of(result)} @{name}({head}) {attributes} {{",
                *lines,
                "}",
                "",
            ]
        )
