"""Writes LLVM IR: functions, basic blocks and control flow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from .instructions import Instructions
from .operands import Ref

__all__ = ["Emitter", "Loop", "Phi"]


class Phi(Ref):
    """The result of a ``phi``; ``come`` adds an incoming value."""

    __slots__ = ("_emitter", "_line")
    _emitter: Emitter
    _line: int

    def come(self, value: str | int, block: str = "") -> None:
        """Add the incoming ``value`` of ``block``, by default the current one."""
        lines = self._emitter.lines
        comma = "," if lines[self._line][-1] == "]" else ""
        lines[self._line] += f"{comma} [ {value}, %{block or self._emitter.block} ]"


class Emitter(Instructions):
    """The lines of one function, basic block by basic block; ``block`` is the label of the current one."""

    def __init__(self) -> None:
        super().__init__()
        self.block = "entry"
        self._first = 0

    def label(self, hint: str) -> str:
        """A fresh label."""
        self._counter += 1
        return f"{hint}.{self._counter}"

    def start(self, label: str) -> None:
        """Begin a basic block. Earlier splats stay usable only if their block dominates it."""
        self.lines.append(f"{label}:")
        self.block = label
        self._first = len(self.lines)

    def go_on(self, longest: int) -> None:
        """Branch to a new basic block if the current one has more instructions than ``longest``."""
        if len(self.lines) - self._first > longest:
            self.enter(self.label("part"))

    def jump(self, label: str) -> None:
        self.lines.append(f"  br label %{label}")

    def enter(self, label: str) -> None:
        """Branch to a new basic block and make it the current one."""
        self.jump(label)
        self.start(label)

    def branch(self, test: str, yes: str, no: str) -> None:
        self.lines.append("".join(("  br i1 ", test, ", label %", yes, ", label %", no)))

    @contextmanager
    def if_(self, test: str, hint: str = "then") -> Iterator[None]:
        """The code written inside runs if the i1 is true."""
        inside, after = self.label(hint), self.label("after")
        self.branch(test, inside, after)
        self.start(inside)
        yield
        self.enter(after)

    @contextmanager
    def while_(self, hint: str = "loop") -> Iterator[Loop]:
        """The code written inside is a loop body; ``Loop.until`` writes its exit."""
        loop = Loop(self, hint)
        self.enter(loop.head)
        yield loop
        self.jump(loop.head)
        self.start(loop.done)

    @contextmanager
    def count_to(self, count: int | Ref, hint: str = "loop") -> Iterator[Phi]:
        """The code written inside runs for each i64 from 0 to ``count`` − 1, at least once; yields that index."""
        before, head, done = self.block, self.label(hint), self.label(f"{hint}.done")
        self.enter(head)
        index = self.phi("i64", (0, before))
        yield index
        following = self.add(index, 1)
        index.come(following)
        self.branch(self.icmp("eq", following, count), done, head)
        self.start(done)

    def switch(self, value: Ref, otherwise: str, cases: Iterable[tuple[int, str]]) -> None:
        """Write a ``switch`` to the labels of ``cases``, by default to ``otherwise``."""
        listed = " ".join(f"{value.type} {number}, label %{label}" for number, label in cases)
        self.lines.append(f"  switch {value.type} {value}, label %{otherwise} [{listed}]")

    def phi(self, type: str, *ways: tuple[str | int, str]) -> Phi:
        """Write a ``phi`` of (value, block) pairs; ``Phi.come`` adds further ones."""
        phi = Phi(type, self.op(f"phi {type}" + ",".join(f" [ {value}, %{block} ]" for value, block in ways)))
        phi._emitter, phi._line = self, len(self.lines) - 1
        return phi


class Loop:
    """A loop being written."""

    def __init__(self, emitter: Emitter, hint: str) -> None:
        self.emitter = emitter
        self.head, self.body, self.done = (emitter.label(f"{hint}{end}") for end in ("", ".body", ".done"))

    def until(self, test: str) -> None:
        """Write the exit, taken if the i1 is true; the body follows."""
        self.emitter.branch(test, self.done, self.body)
        self.emitter.start(self.body)
