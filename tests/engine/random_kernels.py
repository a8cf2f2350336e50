"""Random kernels with a defined result: any order of threads that PTX allows gives the same memory.

Two shapes. *Structured*: nested conditions, loops with trip counts per lane, switches, early returns, calls, barriers and
warp exchanges in places where the lanes of a known mask are together. *Tangled*: blocks with branches anywhere, loops with
several entries included, ended by a budget in a register.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from tests.engine.random_instructions import INSTRUCTIONS

__all__ = ["INPUTS", "LOGS", "Choices", "Seeded", "gathered", "ordered", "structured", "tangled"]

T = TypeVar("T")
INPUTS = 64  # words of the input, a power of two
LOGS = 16  # words that each thread may log
ACCUMULATORS = 8
LOCK = 6  # the accumulator that is a lock, 0 at the start; the next is behind it

HEAD = """.version 8.0
.target sm_90
.address_size 64
.const .align 4 .b32 table[8] = {1, 2, 0x80000000, 0x7f800001, 5, 0xffffffff, 7, 0x3f800000};
.shared .align 16 .b32 tile[1024];
.shared .align 4 .b32 sums[8];
.func (.param .b32 r) helper (.param .b32 a, .param .b32 b);
.func (.param .b32 r) other (.param .b32 a, .param .b32 b)
{
    .reg .b32 %a, %b;
    ld.param.b32 %a, [a];
    ld.param.b32 %b, [b];
    sub.s32 %a, %b, %a;
    st.param.b32 [r], %a;
    ret;
}
.func (.reg .b32 %v) plain (.reg .b32 %n)
{
    .reg .pred %p;
    and.b32 %v, %n, 1;
    setp.eq.u32 %p, %v, 0;
    @%p ret;
    mul.lo.u32 %v, %n, 3;
    ret;
}
.func (.param .b32 r) deep (.param .b32 a)
{
    .reg .pred %p;
    .reg .b32 %m, %n, %v;
    ld.param.b32 %n, [a];
    st.param.b32 [r], %n;
    setp.eq.u32 %p, %n, 0;
    @%p ret;
    sub.u32 %m, %n, 1;
    {
    .param .b32 a0;
    .param .b32 r0;
    st.param.b32 [a0], %m;
    call (r0), deep, (a0);
    ld.param.b32 %v, [r0];
    }
    mad.lo.u32 %v, %v, 3, %n;
    st.param.b32 [r], %v;
    ret;
}
"""
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


DECLARATIONS = "\n".join(
    [
        *(f"    .reg .{TYPES[kind]} %{kind}<{count}>;" for kind, count in COUNTS.items()),
        "    .reg .pred %q<2>, %k<8>;",
        "    .reg .b32 %t<4>, %c<8>, %m<8>, %s<8>, %own;",
        "    .reg .b64 %a<4>, %in, %log, %sums;",
        "    .local .align 16 .b32 scratch[4];",
    ]
)
START = f"""
    ld.param.u64 %in, [inputs];
    ld.param.u64 %log, [logs];
    ld.param.u64 %sums, [totals];
    mov.u32 %t0, %tid.x;
    mov.u32 %t1, %tid.y;
    mov.u32 %t2, %ntid.x;
    mad.lo.u32 %r0, %t1, %t2, %t0;
    shl.b32 %own, %r0, 2;
    mov.u32 %t0, tile;
    add.u32 %own, %own, %t0;
    mov.u32 %t0, %ntid.y;
    mul.lo.u32 %t2, %t2, %t0;
    mov.u32 %t1, %ctaid.x;
    mad.lo.u32 %r1, %t1, %t2, %r0;
    mul.wide.u32 %a0, %r1, {4 * (LOGS + 24)};
    add.u64 %log, %log, %a0;
    and.b32 %t0, %r1, {INPUTS - 1};
    mul.wide.u32 %a0, %t0, 4;
    add.u64 %a0, %in, %a0;
    ld.global.u32 %r2, [%a0];
    mov.u32 %r3, %laneid;
    mul.lo.u32 %r4, %r1, 0x9e3779b1;
    cvt.rn.f32.s32 %f0, %r4;
    mov.b32 %f1, %r2;
    cvt.u64.u32 %d0, %r4;
    mul.lo.u64 %d1, %d0, 0x9e3779b97f4a7c15;
    cvt.rn.f64.s64 %e0, %d1;
    cvt.u16.u32 %h0, %r4;
    cvt.rn.f16.f32 %x0, %f1;
    mov.u16 %x1, 0x3c00;
    setp.gt.s32 %p0, %r4, 0;
    setp.lt.u32 %p1, %r3, 11;
    mov.b32 %m0, 0xffffffff;
"""


def finish() -> list[str]:
    """Store every register behind the logs of the thread."""
    lines, place = [], 4 * LOGS
    for kind in "rf":
        for number in range(COUNTS[kind]):
            lines.append(f"    st.global.b32 [%log+{place}], %{kind}{number};")
            place += 4
    for kind in "de":
        lines += [f"    mov.b64 {{%t0, %t1}}, %{kind}{n}; xor.b32 %t0, %t0, %t1;" for n in range(1)]
        lines.append(f"    st.global.b32 [%log+{place}], %t0;")
        place += 4
    for kind in "hx":
        lines.append(f"    cvt.u32.u16 %t0, %{kind}0; st.global.b32 [%log+{place}], %t0;")
        place += 4
    lines.append("    mov.b32 %t0, 0;")
    for number in range(COUNTS["p"]):
        lines.append(f"    selp.b32 %t1, {1 << number}, 0, %p{number}; or.b32 %t0, %t0, %t1;")
    lines.append(f"    st.global.b32 [%log+{place}], %t0;")
    assert place < 4 * (LOGS + 24)
    return lines


WORDS = LOGS + 24  # words of the log and the final registers of a thread
PARAMETERS = ".param .u64 inputs, .param .u64 logs, .param .u64 totals"


def entry(body: list[str]) -> str:
    return "\n".join(
        [f".visible .entry k({PARAMETERS})", "{", DECLARATIONS, START, *body, *finish(), "    ret;", "}", ""]
    )


def device_function(choices: Choices) -> str:
    """``helper``: a random body that may return early and on several ways."""
    writer = Writer(choices, exchanges=False, budget=10, in_function=True, labels=500)
    writer.region(1, 6)
    return "\n".join(
        [
            ".func (.param .b32 r) helper (.param .b32 a, .param .b32 b)",
            "{",
            DECLARATIONS.replace("%m<8>, %s<8>, %own", "%m<8>, %s<8>"),
            "    ld.param.b32 %r0, [a];",
            "    ld.param.b32 %r1, [b];",
            "    mov.u64 %in, table;",
            "    cvta.const.u64 %in, %in;",
            "    st.param.b32 [r], %r1;",
            *[
                line.replace("ld.global.nc", "ld").replace("ld.global.ca", "ld").replace("ld.global", "ld")
                for line in writer.lines
            ],
            "    st.param.b32 [r], %r0;",
            "    ret;",
            "}",
            "",
        ]
    ).replace(f", {INPUTS - 1};", ", 7;")


def structured(choices: Choices, gathers: bool = False, ordered: bool = False) -> str:
    """The text of a module whose kernel ``k`` has nested control. ``gathers``: barriers also where early returns have parted lanes,
    so that warp-level counts are the engine's own."""
    writer = Writer(choices, exchanges=choices.number(0, 2) > 0, gathers=gathers, ordered=ordered)
    # all of shared memory that is read is written first
    writer.emit("st.shared.b32 [%own], %r4", "bar.sync 0")
    writer.region(0, 14, uniform=True)
    return HEAD + entry(writer.lines) + device_function(choices)


def gathered(choices: Choices) -> str:
    """``structured`` with barriers anywhere."""
    return structured(choices, gathers=True)


def ordered(choices: Choices) -> str:
    """``gathered`` with results that depend on the order of threads, locks included."""
    return structured(choices, gathers=True, ordered=True)


def tangled(choices: Choices) -> str:
    """The text of a module whose kernel ``k`` branches anywhere."""
    writer = Writer(choices, exchanges=False)
    count = choices.number(3, 9)
    names = [f"B{number}" for number in range(count)] + ["END"]
    writer.emit("mov.u32 %c0, 25")
    for name in names[:-1]:
        writer.place(name)
        writer.emit("sub.u32 %c0, %c0, 1", "setp.eq.u32 %q1, %c0, 0", "@%q1 bra END")
        for _ in range(choices.number(0, 3)):
            if writer.chance(4):
                writer.memory()
            elif writer.chance(8):
                writer.call()
            else:
                writer.instruction()
        ending = choices.number(0, 7)
        if ending < 4:
            writer.emit(f"@{writer.pick(('', '!'))}{writer.predicate()} bra {writer.pick(names)}")
        elif ending == 4:
            writer.emit(f"bra {writer.pick(names)}")
        elif ending == 5:
            writer.labels += 1
            targets = ", ".join(writer.pick(names) for _ in range(4))
            writer.emit(f"and.b32 %t0, {writer.register('r')}, 3")
            writer.lines.append(f"T{writer.labels}: .branchtargets {targets};")
            writer.emit(f"brx.idx %t0, T{writer.labels}")
        elif ending == 6:
            writer.leave()
    writer.place("END")
    return HEAD + entry(writer.lines) + device_function(choices)
