"""Random structured kernels whose control is arithmetic on indices, parameters and loop counters, as PTX text.

Nested conditions and loops, values written on two paths and under guards, quotients, remainders, shifts, masks, clamps,
selections and narrow types, early exits, breaks, continues and branch tables. Every loop ends: it has few trips by its bounds
or by a counter of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.engine.random_writer import Choices

__all__ = ["control_kernel"]

VALUES, WIDE, FLAGS, DEPTH = 8, 3, 6, 3
SMALL = (
    0,
    1,
    2,
    3,
    5,
    7,
    8,
    12,
    16,
    31,
    32,
    33,
    64,
    100,
    224,
    1000,
    -1,
    -2,
    -7,
    -32,
    0x7FFFFFFF,
    -(2**31),
    1 << 20,
)
DIVISORS = (2, 3, 4, 5, 7, 8, 14, 32, 33, 100, 128, 224, 1009)
HEAD = """.version 8.0
.target sm_90
.address_size 64
.func (.param .b32 r) inner (.param .b32 a)
{
    .reg .pred %q;
    .reg .b32 %x;
    ld.param.b32 %x, [a];
    setp.gt.s32 %q, %x, 40;
    @%q bra $more;
    add.s32 %x, %x, 3;
    st.param.b32 [r], %x;
    ret;
$more:
    shr.s32 %x, %x, 1;
    st.param.b32 [r], %x;
    ret;
}
.func (.param .b32 r) helper (.param .b32 a, .param .b32 b)
{
    .reg .pred %q, %s;
    .reg .b32 %x, %y, %z;
    ld.param.b32 %x, [a];
    ld.param.b32 %y, [b];
    st.param.b32 [r], %y;
    and.b32 %z, %x, 7;
$again:
    setp.eq.s32 %q, %z, 0;
    @%q ret;
    setp.eq.s32 %s, %x, 12345;
    @%s exit;
    sub.s32 %z, %z, 1;
    setp.lt.s32 %q, %z, %y;
    @!%q bra $again;
    {
    .param .b32 a0;
    .param .b32 r0;
    st.param.b32 [a0], %x;
    call (r0), inner, (a0);
    ld.param.b32 %x, [r0];
    }
    st.param.b32 [r], %x;
    bra $again;
}
.visible .entry k(.param .u64 out, .param .u32 n, .param .u32 m, .param .u32 p)
{
    .reg .pred %p<8>;
    .reg .b16 %h<4>;
    .reg .b32 %v<8>, %c<8>, %e<8>, %k<8>, %x<8>, %acc;
    .reg .b64 %w<4>, %g<4>, %f<4>, %a<2>;
    ld.param.u32 %v0, [n];
    ld.param.u32 %v1, [m];
    ld.param.u32 %v2, [p];
    mov.u32 %v3, %tid.x;
    mov.u32 %v4, %ctaid.x;
    mov.u32 %x0, %ntid.x;
    mad.lo.u32 %v5, %v4, %x0, %v3;
    mov.u32 %x0, %tid.y;
    mov.u32 %x1, %ctaid.y;
    mov.u32 %x2, %ntid.y;
    mad.lo.u32 %v6, %x1, %x2, %x0;
    mov.u32 %x0, %tid.z;
    shl.b32 %x1, %x0, 2;
    add.u32 %v7, %v6, %x1;
    cvt.u64.u32 %w0, %v5;
    cvt.s64.s32 %w1, %v0;
    mul.wide.u32 %w2, %v5, 48;
    mov.b32 %acc, 1;
    setp.lt.s32 %p0, %v5, %v0;
    setp.gt.u32 %p1, %v3, 9;
    setp.eq.s32 %p2, %v4, 1;
"""
END = """
$END:
    mov.u32 %x0, %tid.x;
    and.b32 %x0, %x0, 31;
    mul.wide.u32 %a0, %x0, 4;
    ld.param.u64 %a1, [out];
    add.u64 %a0, %a0, %a1;
    st.global.u32 [%a0], %acc;
    ret;
}
"""


@dataclass
class _Writer:
    choices: Choices
    lines: list[str] = field(default_factory=list)
    labels: int = 0
    budget: int = 22
    #: labels of the loops around: (continue, break)
    loops: list[tuple[str, str]] = field(default_factory=list)

    def emit(self, *lines: str) -> None:
        self.lines += [f"    {line};" for line in lines]

    def pick(self, options: tuple[object, ...]) -> str:
        return str(options[self.choices.number(0, len(options) - 1)])

    def chance(self, one_in: int) -> bool:
        return self.choices.number(1, one_in) == 1

    def label(self) -> str:
        self.labels += 1
        return f"$L{self.labels}"

    def value(self) -> str:
        """A register of 32 bits; counters of the loops around are likely."""
        if self.loops and self.chance(3):
            return f"%c{self.choices.number(0, len(self.loops) - 1)}"
        return f"%v{self.choices.number(0, VALUES - 1)}"

    def operand(self) -> str:
        return self.pick(SMALL) if self.chance(2) else self.value()

    def flag(self) -> str:
        return f"%p{self.choices.number(0, FLAGS - 1)}"

    def sign(self) -> str:
        return self.pick(("s32", "u32"))

    # -- statements -----------------------------------------------------------------------------------------------------

    def assign(self, guard: str = "") -> None:
        target, a = f"%v{self.choices.number(0, VALUES - 1)}", self.value()
        kind = self.choices.number(0, 17)
        lines: list[str]
        if kind < 4:
            lines = [f"{self.pick(('add', 'sub'))}.s32 {target}, {a}, {self.operand()}"]
        elif kind == 4:
            lines = [f"mul.lo.s32 {target}, {a}, {self.pick((2, 3, 5, -1, -4, 7, 1009, 65536))}"]
        elif kind == 5:
            lines = [f"mad.lo.s32 {target}, {a}, {self.pick((2, 3, -5, 16))}, {self.operand()}"]
        elif kind == 6:
            lines = [f"shl.b32 {target}, {a}, {self.pick((1, 2, 4, 9, 33))}"]
        elif kind == 7:
            lines = [f"shr.{self.sign()} {target}, {a}, {self.pick((1, 2, 3, 5, 8, 31))}"]
        elif kind == 8:
            lines = [f"and.b32 {target}, {a}, {self.pick((1, 3, 7, 31, 255, -2, -4, -32))}"]
        elif kind == 9:
            lines = [f"{self.pick(('min', 'max'))}.{self.sign()} {target}, {a}, {self.operand()}"]
        elif kind == 10:
            lines = [f"{self.pick(('div', 'rem'))}.{self.sign()} {target}, {a}, {self.pick(DIVISORS)}"]
        elif kind == 11:
            lines = [f"selp.b32 {target}, {a}, {self.operand()}, {self.flag()}"]
        elif kind == 12:
            lines = [f"{self.pick(('neg', 'abs'))}.s32 {target}, {a}"]
        elif kind == 13:
            narrow = self.pick(("u16", "s16", "u8", "s8"))
            lines = [f"cvt.{'s' if narrow[0] == 's' else 'u'}32.{narrow} {target}, {a}"]
        elif kind == 14:
            lines = [f"and.b32 %x3, {a}, -8", f"or.b32 {target}, %x3, {self.pick((1, 3, 7))}"]
        elif kind == 15:
            lines = self.wide(target, a)
        elif kind == 16:
            lines = [f"mul.hi.u32 {target}, {a}, {self.pick((0x24924925, 0x92492493, -1431655765, 1 << 20))}"]
        else:
            lines = [
                self.pick(
                    (
                        f"not.b32 {target}, {a}",
                        f"mul.lo.s32 {target}, {a}, {self.value()}",
                        f"xor.b32 {target}, {a}, {self.pick((1, 5, -1))}",
                        f"rem.u32 {target}, {a}, %v1",
                        f"div.s32 {target}, {a}, %v2",
                        f"mov.b32 {target}, {self.pick(SMALL)}",
                        f"not.pred {self.flag()}, {self.flag()}",
                        f"selp.b32 {target}, 1, 0, {self.flag()}",
                    )
                )
            ]
        # a guard on the last line only: the others write scratch registers
        self.emit(*lines[:-1], guard + lines[-1])

    def wide(self, target: str, a: str) -> list[str]:
        w, other = (f"%w{self.choices.number(0, WIDE - 1)}" for _ in range(2))
        return [
            self.pick(
                (
                    f"cvt.{self.pick(('s64.s32', 'u64.u32'))} {w}, {a}",
                    f"mul.wide.{self.sign()} {w}, {a}, {self.pick((3, 48, 1000000, -7))}",
                    f"add.s64 {w}, {w}, {other}",
                    f"sub.s64 {w}, {w}, {self.pick((1, 4294967296, -5))}",
                    f"{self.pick(('div', 'rem'))}.{self.pick(('s64', 'u64'))} {w}, {w}, {self.pick((3, 10, 4096))}",
                    f"shr.{self.pick(('s64', 'u64'))} {w}, {w}, {self.pick((1, 4, 32))}",
                    f"and.b64 {w}, {w}, {self.pick((15, 1023, 4294967295))}",
                )
            ),
            f"cvt.u32.u64 {target}, {w}",
        ]

    def compare(self, flag: str | None = None) -> str:
        flag = flag or self.flag()
        if self.chance(8):
            how = self.pick(("lt.s64", "ge.u64", "eq.s64"))
            self.emit(
                f"setp.{how} {flag}, %w{self.choices.number(0, 2)}, {self.pick((0, 7, 100, 5000, '%w1'))}"
            )
        elif self.chance(6):
            logic, old = self.pick(("and", "or", "xor")), self.pick(("", "!")) + self.flag()
            how = self.pick(("lt", "ge", "eq"))
            self.emit(f"setp.{how}.{logic}.{self.sign()} {flag}, {self.value()}, {self.operand()}, {old}")
        elif self.chance(6):
            self.emit(f"{self.pick(('and', 'or', 'xor'))}.pred {flag}, {self.flag()}, {self.flag()}")
        else:
            how = self.pick(("lt", "le", "gt", "ge", "lt", "ge", "eq", "ne"))
            self.emit(f"setp.{how}.{self.sign()} {flag}, {self.value()}, {self.operand()}")
        return flag

    def condition(self) -> None:
        other, after = self.label(), self.label()
        self.emit(f"@{self.pick(('', '!'))}{self.compare()} bra {other}")
        self.region()
        if self.chance(2):
            self.emit(f"bra {after}")
            self.lines.append(f"{other}:")
            self.region()
            self.lines.append(f"{after}:")
        else:
            self.lines.append(f"{other}:")

    def loop(self) -> None:
        level = len(self.loops)
        head, step, after = self.label(), self.label(), self.label()
        most = (40, 12, 6)[level]
        stride = self.choices.number(0, 7)
        stride = (1, 1, 1, 2, 3, 4, -1, 16)[stride]
        few = self.chance(4)
        start, end, narrowed = self.bounds(level, stride, most if few else 0)
        counter, bound, kept, type = (f"%c{level}", f"%e{level}", f"%k{level}", "s32")
        if narrowed:
            counter, bound, type = f"%g{level}", f"%f{level}", "s64"
        leave = self.pick(("lt", "le") if stride < 0 else ("ge", "gt"))
        if few:
            leave = "le" if stride < 0 else "ge"
        self.emit(*start, *end, f"mov.b32 {kept}, 0")
        test = [f"setp.{leave}.{type} %p6, {counter}, {bound}", f"@%p6 bra {after}"]
        limit = [f"setp.gt.s32 %p7, {kept}, {most}", f"@%p7 bra {after}"]
        self.lines.append(f"{head}:")
        if narrowed:
            self.emit(*narrowed)
        top = self.chance(2)
        if top:
            self.emit(*test)
        self.loops.append((step, after))
        self.region()
        self.loops.pop()
        self.lines.append(f"{step}:")
        self.emit(f"add.{type} {counter}, {counter}, {stride}", f"add.s32 {kept}, {kept}, 1")
        # with few trips by the bounds, and the test before them, the loop ends by itself
        if not (few and top and abs(stride) == 1):
            self.emit(*limit)
        if not top:
            self.emit(*test)
        self.emit(f"bra {head}")
        self.lines.append(f"{after}:")

    def bounds(self, level: int, stride: int, few: int) -> tuple[list[str], list[str], list[str]]:
        """Sets a loop counter and its end, no more than ``few`` trips away unless that is 0; and what gives the low half of a
        counter of 64 bits at each trip."""
        counter, end = f"%c{level}", f"%e{level}"
        start = [f"mov.b32 {counter}, {self.operand()}"]
        if few:
            # 0, 1 … few − 1, rounded down to a mask of ones
            finish = [f"and.b32 {end}, {self.value()}, {(1 << few.bit_length() - 1) - 1}"]
            finish.append(f"{'sub' if stride < 0 else 'add'}.s32 {end}, {counter}, {end}")
        else:
            finish = [f"mov.b32 {end}, {self.operand()}"]
        if few or not self.chance(3):
            return start, finish, []
        wide = [
            f"cvt.s64.s32 %g{level}, {counter}",
            f"mul.wide.s32 %f{level}, {end}, {self.pick((1, 3, 100))}",
        ]
        return start, finish + wide, [f"cvt.u32.u64 {counter}, %g{level}"]

    def table(self) -> None:
        labels, after = [self.label() for _ in range(4)], self.label()
        if self.chance(2):
            self.emit(f"and.b32 %x4, {self.value()}, 3")
        else:
            self.emit(f"min.u32 %x4, {self.value()}, 3")
        self.labels += 1
        targets = ", ".join([*labels[:3], after] if self.chance(2) else labels)
        self.lines.append(f"$T{self.labels}: .branchtargets {targets};")
        self.emit(f"brx.idx %x4, $T{self.labels}")
        for label in labels:
            self.lines.append(f"{label}:")
            if self.chance(2):
                self.region(1)
            if not self.chance(4):
                self.emit(f"bra {after}")
        self.lines.append(f"{after}:")

    def call(self) -> None:
        guard = f"@{self.pick(('', '!'))}{self.flag()} " if self.chance(4) else ""
        self.lines.append("{")
        self.emit(".param .b32 a0", ".param .b32 b0", ".param .b32 r0")
        self.emit(f"st.param.b32 [a0], {self.value()}", f"st.param.b32 [b0], {self.value()}")
        if guard:
            # what a call that does not happen returns is undefined
            self.emit(f"{guard}call (r0), helper, (a0, b0)")
        else:
            self.emit("call (r0), helper, (a0, b0)")
            self.emit(f"ld.param.b32 %v{self.choices.number(0, VALUES - 1)}, [r0]")
        self.lines.append("}")

    def leave(self) -> None:
        flag = self.compare()
        if self.loops and not self.chance(4):
            self.emit(
                f"@{flag} bra {self.loops[-self.choices.number(1, len(self.loops))][self.choices.number(0, 1)]}"
            )
        else:
            self.emit(f"@{flag} {self.pick(('exit', 'ret', 'bra $END'))}")

    def region(self, most: int = 4) -> None:
        for _ in range(self.choices.number(1, most)):
            self.budget -= 1
            kind = self.choices.number(0, 11) if self.budget > 0 else self.choices.number(0, 4)
            if kind < 3:
                self.assign()
            elif kind == 3:
                self.assign(f"@{self.pick(('', '!'))}{self.flag()} ")
            elif kind == 4:
                self.emit(f"mad.lo.u32 %acc, %acc, 1664525, {self.value()}")
            elif kind == 5:
                self.compare()
            elif kind < 8:
                self.condition()
            elif kind < 10 and len(self.loops) < DEPTH:
                self.loop()
            elif kind == 10:
                self.leave()
            elif self.chance(3):
                self.table()
            elif self.chance(2):
                self.call()
            else:
                self.assign()

    def tangle(self) -> None:
        """Blocks with branches anywhere, loops with several entries included, ended by a counter."""
        names = [self.label() for _ in range(self.choices.number(3, 7))] + ["$END"]
        self.emit("mov.b32 %k7, 0")
        for name in names[:-1]:
            self.lines.append(f"{name}:")
            self.emit("add.s32 %k7, %k7, 1", "setp.gt.s32 %p7, %k7, 30", "@%p7 bra $END")
            self.budget = 0
            self.region(3)
            if self.chance(4):
                self.emit(f"bra {self.pick(tuple(names))}")
            elif not self.chance(4):
                self.emit(f"@{self.pick(('', '!'))}{self.compare()} bra {self.pick(tuple(names))}")


def control_kernel(choices: Choices) -> str:
    """The text of a module with the kernel ``k(out, n, m, p)``; 32 words at ``out``."""
    writer = _Writer(choices, budget=choices.number(6, 24))
    if choices.number(0, 5):
        writer.region(8)
    else:
        writer.tangle()
    return HEAD + "\n".join(writer.lines) + END
