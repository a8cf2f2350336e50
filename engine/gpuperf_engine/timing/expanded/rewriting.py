"""A kernel as PTX text with some of its instructions written otherwise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

from ...errors import EngineError
from ...ptx import spell
from ...ptx.module import Function, Module
from ...ptx.parse import parse
from ...ptx.syntax import Instruction, Register
from ...ptx.write import Names, head
from ...sass.run.writer import NotRun

__all__ = ["Rewriter", "Rewritten"]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """``kernel``: another kernel that computes the same; ``origins``: for each of its instructions the one that it was made of,
    ``None`` for further ones; ``straight``: the instructions of loops of which several iterations became straight code."""

    kernel: Function
    origins: tuple[Instruction | None, ...]
    straight: frozenset[Instruction] = frozenset()


class Rewriter(ABC):
    """Writes a kernel. ``body`` adds lines; ``names`` are those of the kernel."""

    def __init__(self, kernel: Function) -> None:
        self.kernel = kernel
        self.names = Names(kernel.module, kernel)
        self.lines: list[str] = []
        self.origins: list[Instruction | None] = []
        self.declared: list[str] = []
        self.straight: set[Instruction] = set()
        self.ends: dict[int, list[str]] = {}
        for label, index in kernel.labels.items():
            self.ends.setdefault(index, []).append(f"{self.names.labels[label]}:")

    @abstractmethod
    def body(self) -> None:
        """Adds the instructions."""

    def written(self) -> Rewritten:
        """The kernel, parsed from the text. Raises ``NotRun`` if the text is refused."""
        kernel = self.kernel
        self.body()
        text = "\n".join(
            [
                *_header(kernel.module, self.names),
                head(kernel),
                *spell.tuning(kernel),
                "{",
                *self.names.declarations(),
                *self.declared,
                *self.lines,
                "}",
                "",
            ]
        )
        try:
            written = parse(text, path=kernel.module.path)[kernel.name]
        except EngineError as error:
            raise NotRun(f"its PTX cannot be rewritten: {error.message}") from None
        return Rewritten(written, tuple(self.origins), frozenset(self.straight))

    def labels(self, index: int) -> None:
        """Adds the labels in front of an instruction."""
        self.lines += self.ends.get(index, ())

    def add(self, item: Instruction) -> None:
        self.lines += [f'\t.pragma "{text}";' for text in item.pragmas]
        self.line(spell.instruction(item, self.names), item)

    def line(self, text: str, item: Instruction | None) -> None:
        self.lines.append(f"\t{text}")
        self.origins.append(item)

    def declare(self, registers: Iterable[tuple[Register, str]]) -> None:
        self.declared += [f"\t.reg .{register.type.name} {name};" for register, name in registers]


def _header(module: Module, names: Names) -> list[str]:
    lines = [f".version {module.version[0]}.{module.version[1]}"]
    lines.append(f".target {', '.join([module.target, *module.target_options])}")
    lines.append(f".address_size {module.address_size}")
    lines += [f'.pragma "{text}";' for text in module.pragmas]
    functions = map(module.function, module.functions)
    lines += [f"{head(function)};" for function in functions if not function.is_entry]
    variables = module.variables.values()
    return [*lines, *(f"{spell.declare(variable, variable.name, names)};" for variable in variables)]
