"""Writes the bodies of random kernels, statement by statement."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from tests.engine.random_instructions import INSTRUCTIONS

__all__ = ["COUNTS", "INPUTS", "LOCK", "LOGS", "TYPES", "Choices", "Seeded", "Writer"]

T = TypeVar("T")
INPUTS = 64  # words of the input, a power of two
LOGS = 16  # words that each thread may log
LOCK = 6  # the accumulator that is a lock, 0 at the start; the next is behind it
COUNTS = {"r": 10, "d": 5, "h": 4, "p": 5, "f": 5, "e": 4, "x": 3}
TYPES = {"r": "b32", "d": "b64", "h": "b16", "p": "pred", "f": "f32", "e": "f64", "x": "b16"}
INTEGERS = (0, 1, 2, 3, 5, 31, 32, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFF8000, 0x3F800000, 0x12345678)
LONGS = (0, 1, 7, 0xFFFFFFFF, 0x8000000000000000, 0xFFFFFFFFFFFFFFFF, 0x3FF0000000000000, 0x123456789ABCDEF)
FLOATS = ("0f00000000", "0f3F800000", "0fBFC00000", "0f7F800000", "0f00000001", "0f4B800000")
DOUBLES = ("0d0000000000000000", "0d3FF0000000000000", "0dC008000000000000", "0d0000000000000001")


class Choices(Protocol):
    """Where the choices come from: Hypothesis, or a seed."""

    def number(self, low: int, high: int) -> int: ...


class Seeded:
    """Choices from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)


@dataclass
class Writer:
    """Writes one function body. ``mask`` registers ``%m0 %m1 …`` hold the lanes that are together in a region of that depth."""

    choices: Choices
    exchanges: bool
    lines: list[str] = field(default_factory=list)
    labels: int = 0
    logged: int = 0
    budget: int = 40
    in_function: bool = False
    #: barriers after early returns from inside a branch; they bring splits together, which the interpreter does not count
    gathers: bool = False
    parted: bool = False
    #: results may depend on the order of threads: only the two backends can be compared
    ordered: bool = False

    # -- pieces

    def pick(self, options: Sequence[T]) -> T:
        return options[self.choices.number(0, len(options) - 1)]

    def chance(self, of: int) -> bool:
        return self.choices.number(0, of - 1) == 0

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def emit(self, *lines: str) -> None:
        self.lines += [f"    {line};" for line in lines]

    def place(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def register(self, kind: str) -> str:
        return f"%{kind}{self.choices.number(0, COUNTS[kind] - 1)}"

    def source(self, kind: str) -> str:
        if kind in "rdhfe" and self.chance(4):
            if kind == "r":
                return str(self.pick(INTEGERS))
            if kind == "d":
                return str(self.pick(LONGS))
            if kind == "h":
                return str(self.pick((0, 1, 2, 15, 0x7FFF, 0x8000, 0xFFFF)))
            return self.pick(FLOATS if kind == "f" else DOUBLES)
        return self.register(kind)

    def instruction(self) -> None:
        line = self.pick(INSTRUCTIONS)
        taken: list[str] = []

        def fill(match: re.Match[str]) -> str:
            what = match.group(1)
            if what[0] == "#":
                return str(self.choices.number(0, int(what[1:]) - 1))
            if what[0] != "D":
                return self.register(what[1]) if what[0] == "R" else self.source(what[1])
            register = self.register(what[1])
            while register in taken:  # two destinations of one instruction must differ
                register = f"%{what[1]}{(int(register[2:]) + 1) % COUNTS[what[1]]}"
            taken.append(register)
            return register

        text = re.sub(r"@(#\d+|[DSR]\w)", fill, line)
        guard = f"@{self.pick(('', '!'))}{self.register('p')} " if self.chance(6) else ""
        self.emit(guard + text)

    def carries(self) -> None:
        first, second, third = self.pick(
            (
                ("add.cc.u32", "addc.cc.u32", "addc.u32"),
                ("sub.cc.u32", "subc.cc.u32", "subc.u32"),
                ("add.cc.s32", "addc.cc.s32", "addc.s32"),
            )
        )
        for opcode in (first, second, third):
            self.emit(f"{opcode} {self.register('r')}, {self.source('r')}, {self.source('r')}")

    def predicate(self) -> str:
        """A fresh predicate in ``%q0``."""
        kind = self.pick(("s32", "u32", "bit"))
        if kind == "bit":
            self.emit(
                f"and.b32 %t0, {self.register('r')}, {1 << self.choices.number(0, 4)}",
                "setp.ne.u32 %q0, %t0, 0",
            )
        else:
            relation = self.pick(("lt", "ge", "eq", "ne"))
            self.emit(f"setp.{relation}.{kind} %q0, {self.register('r')}, {self.source('r')}")
        return "%q0"

    # -- memory

    def memory(self) -> None:
        kinds = ["input", "const", "local", "own", "vector", "narrow", "log"]
        kind = self.pick(kinds[:3] if self.in_function else [*kinds, "sum", "shared sum", "atom"])
        r = self.register
        if kind == "input":
            self.emit(
                f"and.b32 %t0, {r('r')}, {INPUTS - 1}", "mul.wide.u32 %a0, %t0, 4", "add.u64 %a0, %a0, %in"
            )
            self.emit(
                f"ld.global{self.pick(('', '.nc', '.ca'))}.{self.pick(('u32', 's32', 'b32'))} {r('r')}, [%a0]"
            )
        elif kind == "vector":
            self.emit(
                f"and.b32 %t0, {r('r')}, {INPUTS // 4 - 1}",
                "mul.wide.u32 %a0, %t0, 16",
                "add.u64 %a0, %a0, %in",
            )
            first = self.choices.number(0, COUNTS["r"] - 4)
            self.emit(f"ld.global.v4.u32 {{%r{first}, %r{first + 1}, %r{first + 2}, %r{first + 3}}}, [%a0]")
        elif kind == "narrow":
            width = self.pick(("u8", "s8", "u16", "s16"))
            self.emit(
                f"and.b32 %t0, {r('r')}, {4 * INPUTS - 2}", "cvt.u64.u32 %a0, %t0", "add.u64 %a0, %a0, %in"
            )
            self.emit(f"ld.global.{width} {r('r')}, [%a0]")
        elif kind == "const":
            self.emit(
                f"and.b32 %t0, {r('r')}, 7",
                "mul.wide.u32 %a0, %t0, 4",
                "mov.u64 %a1, table",
                "add.u64 %a0, %a0, %a1",
            )
            self.emit(f"ld.const.b32 {r('r')}, [%a0]")
        elif kind == "local":
            for opcode in ("st", "ld"):
                self.emit(
                    f"and.b32 %t0, {r('r')}, 3",
                    "shl.b32 %t0, %t0, 2",
                    "mov.u32 %t1, scratch",
                    "add.u32 %t0, %t0, %t1",
                )
                operands = f"[%t0], {r('r')}" if opcode == "st" else f"{r('r')}, [%t0]"
                self.emit(f"{opcode}.local.b32 {operands}")
        elif kind == "own":
            self.emit(
                f"st.shared.b32 [%own], {r('r')}", f"ld.shared.u{self.pick((8, 16, 32))} {r('r')}, [%own]"
            )
        elif kind == "log":
            guard = f"@{r('p')} " if self.chance(3) else ""
            self.emit(f"{guard}st.global.u32 [%log+{4 * (self.logged % LOGS)}], {r('r')}")
            self.logged += 1
        elif kind == "sum":
            operation = self.pick(("add.u32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32"))
            cell = 4 * ("add.u32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32").index(operation)
            guard = f"@{r('p')} " if self.chance(3) else ""
            self.emit(f"{guard}red.global.{operation} [%sums+{cell}], {r('r')}")
        elif kind == "shared sum":
            self.emit(f"red.shared.add.u32 [sums+{4 * self.choices.number(0, 7)}], {r('r')}")
        else:
            operation = self.pick(("add.u32", "exch.b32", "xor.b32", "inc.u32", "min.s32"))
            self.emit(
                f"atom.global.{operation} {r('r')}, [%log+{4 * (self.logged % LOGS)}], {self.source('r')}"
            )

    # -- control

    def region(self, depth: int, size: int, uniform: bool = False) -> None:
        for _ in range(self.choices.number(1, size)):
            if self.budget <= 0:
                return
            self.budget -= 1
            self.statement(depth, uniform)

    def statement(self, depth: int, uniform: bool) -> None:
        kind = self.choices.number(0, 19)
        if self.ordered and not self.in_function and self.chance(5):
            self.order()
        elif kind < 7 or (depth >= 4 and kind >= 11):
            self.instruction()
        elif kind < 10:
            self.memory()
        elif kind == 10:
            self.carries()
        elif kind < 14:
            self.condition(depth)
        elif kind < 16:
            self.loop(depth)
        elif kind == 16:
            self.switch(depth)
        elif kind == 17:
            self.parted |= depth > 0 and not self.in_function
            self.leave()
        elif kind == 18 and not self.in_function:
            self.call()
        elif uniform and (self.gathers or not self.parted) and self.chance(2):
            self.barrier()
        elif self.exchanges:
            self.exchange(depth)
        else:
            self.instruction()

    def enter(self, depth: int, members: str) -> None:
        """The lanes of the region below are those of this one where ``members`` holds."""
        if self.exchanges:
            self.emit(f"vote.sync.ballot.b32 %m{depth + 1}, {members}, %m{depth}")

    def condition(self, depth: int) -> None:
        test = self.predicate()
        other, end = self.label(), self.label()
        two = self.chance(2)
        keep = f"%k{depth}"
        self.emit(f"mov.pred {keep}, {test}")
        self.enter(depth, keep)
        self.emit(f"@!{keep} bra {other if two else end}")
        self.region(depth + 1, 4)
        if two:
            self.emit(f"bra {end}")
            self.place(other)
            if self.exchanges:
                self.emit(f"not.b32 %t0, %m{depth + 1}", f"and.b32 %m{depth + 1}, %m{depth}, %t0")
            self.region(depth + 1, 4)
        self.place(end)

    def loop(self, depth: int) -> None:
        head, end = self.label(), self.label()
        counter = f"%c{depth}"
        self.emit(f"and.b32 {counter}, {self.register('r')}, {self.pick((1, 3, 7))}")
        if self.exchanges:
            self.emit(f"mov.b32 %m{depth + 1}, %m{depth}")
        self.place(head)
        self.emit(f"setp.ne.u32 %q0, {counter}, 0")
        if self.exchanges:
            self.emit(f"vote.sync.ballot.b32 %m{depth + 1}, %q0, %m{depth + 1}")
        self.emit(f"@!%q0 bra {end}")
        self.emit(f"sub.u32 {counter}, {counter}, 1")
        self.region(depth + 1, 3)
        if self.chance(3):
            test = self.predicate()
            if self.exchanges:
                self.emit(f"vote.sync.ballot.b32 %m{depth + 1}, !{test}, %m{depth + 1}")
            self.emit(f"@{test} bra {end}")
            self.region(depth + 1, 2)
        self.emit(f"bra {head}")
        self.place(end)

    def switch(self, depth: int) -> None:
        names = [self.label() for _ in range(3)]
        end, table = self.label(), f"T{self.labels}"
        order = [self.pick(names) for _ in range(4)]
        self.emit(f"and.b32 %s{depth}, {self.register('r')}, 3")
        self.lines.append(f"{table}: .branchtargets {', '.join(order)};")
        if self.exchanges:
            # lanes are together with those that go to the same label
            self.emit(f"mov.b32 %t1, {sum(names.index(name) << (4 * i) for i, name in enumerate(order))}")
            self.emit(f"shl.b32 %t0, %s{depth}, 2", "shr.u32 %t1, %t1, %t0", "and.b32 %t1, %t1, 15")
            self.emit(f"match.any.sync.b32 %m{depth + 1}, %t1, %m{depth}")
        self.emit(f"brx.idx %s{depth}, {table}")
        for name in names:
            self.place(name)
            self.region(depth + 1, 2)
            self.emit(f"bra {end}")
        self.place(end)

    def leave(self) -> None:
        self.emit(f"and.b32 %t0, {self.register('r')}, 7", "setp.eq.u32 %q0, %t0, 3")
        self.emit(f"@%q0 {self.pick(('ret', 'ret', 'exit'))}")

    def call(self) -> None:
        guard = f"@{self.pick(('', '!'))}{self.register('p')} " if self.chance(3) else ""
        name = self.pick(("helper", "helper", "other", "deep", "plain", "pointer"))
        if name == "plain":
            self.emit(f"{guard}call ({self.register('r')}), plain, ({self.register('r')})")
            return
        self.lines.append("    {")
        self.emit(".param .b32 r0", ".param .b32 a0", ".param .b32 a1")
        if name == "deep":
            self.emit(
                f"and.b32 %t0, {self.register('r')}, 7",
                "st.param.b32 [a0], %t0",
                f"{guard}call (r0), deep, (a0)",
            )
        else:
            self.emit(f"st.param.b32 [a0], {self.register('r')}", f"st.param.b32 [a1], {self.register('r')}")
        if name == "pointer":
            self.emit(
                "mov.u64 %a0, helper", "mov.u64 %a1, other", f"selp.b64 %a0, %a0, %a1, {self.register('p')}"
            )
            self.labels += 1
            self.lines.append(
                f"P{self.labels}: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b32 _);"
            )
            self.emit(f"{guard}call (r0), %a0, (a0, a1), P{self.labels}")
        elif name != "deep":
            self.emit(f"{guard}call (r0), {name}, (a0, a1)")
        self.emit(f"{guard}ld.param.b32 {self.register('r')}, [r0]")
        self.lines.append("    }")

    # -- where the order shows

    def order(self) -> None:
        r = self.register
        kind = self.pick(("atomic", "shared", "active", "volatile", "special", "lock", "old vote", "spread"))
        if kind == "atomic":
            operation = self.pick(("add.u32", "exch.b32", "inc.u32", "max.s32", "and.b32"))
            guard = f"@{r('p')} " if self.chance(3) else ""
            self.emit(
                f"{guard}atom.global.{operation} {r('r')}, [%sums+{4 * self.choices.number(0, 5)}], {self.source('r')}"
            )
        elif kind == "shared":
            self.emit(
                f"atom.shared.cas.b32 {r('r')}, [sums+{4 * self.choices.number(0, 7)}], {self.source('r')}, {r('r')}"
            )
        elif kind == "active":
            self.emit(f"activemask.b32 {r('r')}")
        elif kind == "volatile":
            self.emit(f"ld.volatile.global.u32 {r('r')}, [%sums+{4 * self.choices.number(0, 5)}]")
            self.emit(f"st.volatile.global.u32 [%sums+{4 * self.choices.number(0, 5)}], {r('r')}")
        elif kind == "special":
            name = self.pick(("%clock", "%warpid", "%smid", "%lanemask_ge", "%nwarpid", "%gridid", "%nsmid"))
            self.emit(f"mov.u32 {r('r')}, {name}")
        elif kind == "lock":
            self.labels += 1
            again = f"A{self.labels}"
            self.place(again)
            self.emit(
                f"atom.global.cas.b32 %t0, [%sums+{4 * LOCK}], 0, 1",
                "setp.ne.u32 %q0, %t0, 0",
                f"@%q0 bra {again}",
            )
            self.emit(
                f"ld.volatile.global.u32 %t1, [%sums+{4 * LOCK + 4}]", f"mad.lo.u32 %t1, %t1, 3, {r('r')}"
            )
            self.emit(
                f"st.volatile.global.u32 [%sums+{4 * LOCK + 4}], %t1",
                f"atom.global.exch.b32 %t0, [%sums+{4 * LOCK}], 0",
            )
        elif kind == "old vote":
            self.emit("activemask.b32 %t0", f"vote.sync.ballot.b32 {r('r')}, {r('p')}, %t0")
        else:
            self.emit(f"st.global.u32 [%sums+{4 * self.choices.number(0, 5)}], {r('r')}")

    # -- threads together

    def barrier(self) -> None:
        kind = self.pick(("exchange", "count", "vote", "sums"))
        r = self.register
        if kind == "exchange":
            self.emit(f"st.shared.b32 [%own], {r('r')}", "bar.sync 0")
            self.emit(
                f"and.b32 %t0, {r('r')}, 1023",
                "shl.b32 %t0, %t0, 2",
                "mov.u32 %t1, tile",
                "add.u32 %t0, %t0, %t1",
            )
            self.emit(f"ld.shared.u32 {r('r')}, [%t0]", "bar.sync 0")
        elif kind == "count":
            self.emit(
                f"bar.red.popc.u32 {r('r')}, {self.choices.number(0, 15)}, {self.pick(('', '!'))}{r('p')}"
            )
        elif kind == "vote":
            self.emit(f"bar.red.{self.pick(('and', 'or'))}.pred {r('p')}, 1, {r('p')}")
        else:
            self.emit(
                "bar.sync 0", f"ld.shared.u32 {r('r')}, [sums+{4 * self.choices.number(0, 7)}]", "bar.sync 0"
            )

    def exchange(self, depth: int) -> None:
        r, m = self.register, f"%m{depth}"
        kind = self.pick(("shfl", "shfl", "vote", "match", "redux", "barrier", "elect"))
        if kind == "shfl":
            mode = self.pick(("up", "down", "bfly", "idx"))
            control = self.pick(("0", "31", "0x1c1f", "0x181f", r("r")))
            pair = f"{r('r')}|{r('p')}" if self.chance(2) else r("r")
            self.emit(f"shfl.sync.{mode}.b32 {pair}, {r('r')}, {self.source('r')}, {control}, {m}")
        elif kind == "vote":
            mode = self.pick(("all", "any", "uni", "ballot"))
            operand = f"{self.pick(('', '!'))}{r('p')}"
            line = f"ballot.b32 {r('r')}" if mode == "ballot" else f"{mode}.pred {r('p')}"
            self.emit(f"vote.sync.{line}, {operand}, {m}")
        elif kind == "match":
            self.emit(f"and.b32 %t0, {r('r')}, 3")
            line = f"any.sync.b32 {r('r')}" if self.chance(2) else f"all.sync.b32 {r('r')}|{r('p')}"
            self.emit(f"match.{line}, %t0, {m}")
        elif kind == "redux":
            operation = self.pick(
                ("add.u32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32", "add.s32")
            )
            self.emit(f"redux.sync.{operation} {r('r')}, {r('r')}, {m}")
        elif kind == "elect":
            self.emit(f"elect.sync {r('r')}|{r('p')}, {m}")
        else:
            self.emit(f"bar.warp.sync {m}")
