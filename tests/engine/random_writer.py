"""Writes the bodies of random kernels, statement by statement."""

from __future__ import annotations

from dataclasses import dataclass

from tests.engine.random_pieces import COUNTS, INPUTS, LOCK, LOGS, TYPES, Choices, Pieces, Seeded

__all__ = ["COUNTS", "INPUTS", "LOCK", "LOGS", "TYPES", "Choices", "Seeded", "Writer"]

REDUCTIONS = (
    *("add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32", "or.b32", "xor.b32"),
    *("min.f32", "max.f32", "min.NaN.f32", "max.abs.f32", "min.abs.NaN.f32"),
)


@dataclass
class Writer(Pieces):
    """Writes one function body. ``mask`` registers ``%m0 %m1 …`` hold the lanes that are together in a region of that depth."""

    exchanges: bool = False
    #: barriers after early returns from inside a branch; they bring paths together, which the interpreter does not count
    gathers: bool = False
    parted: bool = False
    #: nobody leaves from inside a branch, so that lanes which the manual has together are: ``activemask`` tells the mask
    whole: bool = False
    #: results may depend on the order of threads: only the two backends can be compared
    ordered: bool = False

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
        elif kind == 17 and not (self.whole and depth):
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
        name = self.pick(("helper", "helper", "other", "deep", "plain", "pointer", "fields", "cell"))
        if name in ("fields", "cell"):
            getattr(self, name)()
            return
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

    def fields(self) -> None:
        """A call with structures and other types as parameters and results, all under one guard."""
        guard, r = self.guard(), self.register
        self.lines.append("    {")
        self.emit(
            ".param .align 8 .b8 r0[16]", ".param .b16 r1", ".param .align 8 .b8 a0[16]", ".param .f32 a1"
        )
        self.emit(
            f"{guard}st.param.b64 [a0], {r('d')}", f"{guard}st.param.v2.b32 [a0+8], {{{r('r')}, {r('r')}}}"
        )
        self.emit(f"{guard}st.param.f32 [a1], {r('f')}", f"{guard}call (r0, r1), fields, (a0, a1)")
        self.emit(f"{guard}ld.param.b64 {r('d')}, [r0+8]", f"{guard}ld.param.b16 {r('h')}, [r1]")
        first, second = self.several("r", 2)
        self.emit(f"{guard}ld.param.v2.b32 {{{first}, {second}}}, [r0]")
        self.lines.append("    }")

    def cell(self) -> None:
        """A call of a function with atomics on memory of the thread's own, by a generic address."""
        if self.in_function:
            self.emit("mov.b64 %a0, scratch", "cvta.local.u64 %a0, %a0")
            name = "plain cell"
        elif self.chance(2):
            self.emit("cvt.u64.u32 %a0, %own", "cvta.shared.u64 %a0, %a0")
            name = "cell"
        else:
            self.emit(f"add.u64 %a0, %log, {4 * self.choices.number(0, LOGS - 1)}")
            name = "cell"
        self.emit(
            f"{self.guard()}call ({self.register('r')}), {name.replace(' ', '_')}, (%a0, {self.register('r')})"
        )

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
        kind = self.pick(("exchange", "count", "vote", "sums", "guarded"))
        r = self.register
        if kind == "guarded":  # by what is the same in all threads of a block
            self.emit("mov.u32 %t0, %ctaid.x", "and.b32 %t0, %t0, 1", "setp.eq.u32 %q1, %t0, 0")
            self.emit(f"@{self.pick(('', '!'))}%q1 bar.sync {self.choices.number(0, 15)}")
        elif kind == "exchange":
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
        r, m, guard = self.register, f"%m{depth}", ""
        if self.chance(3):  # among the lanes in which a predicate holds
            condition = f"{self.pick(('', '!'))}{r('p')}"
            self.emit(f"vote.sync.ballot.b32 %t2, {condition}, {m}")
            guard, m = f"@{condition} ", "%t2"
        kind = self.pick(("shfl", "shfl", "vote", "match", "redux", "barrier", "elect", "active", "call"))
        if kind == "shfl":
            mode = self.pick(("up", "down", "bfly", "idx"))
            control = self.pick(("0", "31", "0x1c1f", "0x181f", r("r")))
            pair = f"{r('r')}|{r('p')}" if self.chance(2) else r("r")
            self.emit(f"{guard}shfl.sync.{mode}.b32 {pair}, {r('r')}, {self.source('r')}, {control}, {m}")
        elif kind == "vote":
            mode = self.pick(("all", "any", "uni", "ballot"))
            operand = f"{self.pick(('', '!'))}{r('p')}"
            line = f"ballot.b32 {r('r')}" if mode == "ballot" else f"{mode}.pred {r('p')}"
            self.emit(f"{guard}vote.sync.{line}, {operand}, {m}")
        elif kind == "match":
            bits, value = 32, "%t0"
            self.emit(f"and.b32 %t0, {r('r')}, 3")
            if self.chance(3):
                bits, value = 64, "%a0"
                self.emit(f"mul.wide.s32 %a0, %t0, {r('r')}" if self.chance(2) else "mov.b64 %a0, {%t0, %t0}")
            one = f"any.sync.b{bits} {r('r')}" if self.chance(2) else f"all.sync.b{bits} {r('r')}|{r('p')}"
            self.emit(f"{guard}match.{one}, {value}, {m}")
        elif kind == "redux":
            operation = self.pick(REDUCTIONS)
            kind = "f" if operation.endswith("f32") else "r"
            self.emit(f"{guard}redux.sync.{operation} {r(kind)}, {r(kind)}, {m}")
        elif kind == "elect":
            self.emit(f"{guard}elect.sync {r('r')}|{r('p')}, {m}")
        elif kind == "active" and self.whole:
            self.emit(f"{guard}bar.warp.sync {m}", f"{guard}activemask.b32 {r('r')}")
        elif kind == "call":
            self.emit(f"{guard}call ({r('r')}), turned, ({r('r')}, {m})")
        else:
            self.emit(f"{guard}bar.warp.sync {m}")
