"""Random kernels with a defined result: any order of threads that PTX allows gives the same memory.

Two shapes. *Structured*: nested conditions, loops with trip counts per lane, switches, early returns, calls, barriers and
warp exchanges in places where the lanes of a known mask are together. *Tangled*: blocks with branches anywhere, loops with
several entries included, ended by a budget in a register.
"""

from __future__ import annotations

from tests.engine.random_writer import COUNTS, INPUTS, LOCK, LOGS, TYPES, Choices, Seeded, Writer

__all__ = [
    "ACCUMULATORS",
    "INPUTS",
    "LOCK",
    "LOGS",
    "WORDS",
    "Choices",
    "Seeded",
    "gathered",
    "meeting",
    "ordered",
    "structured",
    "tangled",
]

ACCUMULATORS = 8
HEAD = """.version 9.0
.target sm_100a
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
.func (.param .align 8 .b8 r[16], .param .b16 h) fields (.param .align 8 .b8 a[16], .param .f32 f)
{
    .reg .pred %p;
    .reg .b16 %h;
    .reg .b32 %a, %b;
    .reg .b64 %d;
    .reg .f32 %f;
    ld.param.b64 %d, [a];
    ld.param.v2.b32 {%a, %b}, [a+8];
    ld.param.f32 %f, [f];
    st.param.b64 [r+8], %d;
    cvt.u16.u64 %h, %d;
    st.param.b16 [h], %h;
    st.param.v2.b32 [r], {%b, %a};
    setp.lt.s32 %p, %a, %b;
    @%p ret;
    mov.b32 %a, %f;
    @!%p st.param.b32 [r+4], %a;
    ret;
}
.func (.reg .b32 %o) cell (.reg .b64 %a, .reg .b32 %v)
{
    .reg .pred %p;
    and.b32 %o, %v, 5;
    setp.eq.u32 %p, %o, 4;
    @%p atom.add.u32 %o, [%a], %v;
    @%p bra OUT;
    @!%p red.xor.b32 [%a], %v;
    atom.exch.b32 %o, [%a], %v;
OUT:
    @%p red.max.s32 [%a], %o;
    ret;
}
.func (.reg .b32 %o) plain_cell (.reg .b64 %a, .reg .b32 %v)
{
    .reg .pred %p;
    and.b32 %o, %v, 5;
    setp.eq.u32 %p, %o, 4;
    @%p st.b32 [%a+4], %v;
    @!%p ld.b32 %o, [%a+4];
    @%p ret;
    st.b32 [%a+8], %o;
    ret;
}
.func (.reg .b32 %o) turned (.reg .b32 %v, .reg .b32 %m)
{
    .reg .pred %p;
    .reg .b32 %n;
    shfl.sync.bfly.b32 %o|%p, %v, 3, 31, %m;
    vote.sync.ballot.b32 %n, %p, %m;
    @%p redux.sync.add.u32 %o, %v, %n;
    xor.b32 %o, %o, %n;
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
    """The text of a module whose kernel ``k`` has nested control. ``gathers``: barriers also where lanes have diverged by early
    returns, so that warp-level counts are the engine's own."""
    exchanges, whole = choices.number(0, 2) > 0, choices.number(0, 1) > 0
    writer = Writer(choices, exchanges=exchanges, gathers=gathers, ordered=ordered, whole=whole)
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


class _Meetings:
    """A body whose exchanges have masks that name lanes in other branches, at the meeting point, or ended; ``%r1`` is the result.

    ``%c0`` … are counters of loops by depth, ``%r9`` is a number of each thread's own.
    """

    EXCHANGES = (
        "shfl.sync.bfly.b32 %r3, %r1, {small}, 31, {mask}",
        "shfl.sync.down.b32 %r3|%p4, %r1, {small}, 31, {mask}",
        "shfl.sync.idx.b32 %r3, %r1, %r9, 31, {mask}",
        "vote.sync.ballot.b32 %r3, %p3, {mask}",
        "vote.sync.all.pred %p4, %p3, {mask}",
        "match.any.sync.b32 %r3, %r8, {mask}",
        "redux.sync.add.u32 %r3, %r8, {mask}",
        "bar.warp.sync {mask}",
        "activemask.b32 %r3",
    )

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.lines: list[str] = []
        self.labels = 0

    def emit(self, *lines: str) -> None:
        self.lines += [f"    {line};" for line in lines]

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def region(self, depth: int, most: int) -> None:
        for _ in range(self.choices.number(1, most)):
            self.statement(depth)

    def statement(self, depth: int) -> None:
        kind = self.choices.number(0, 9 if depth < 3 else 5)
        if kind < 4:
            self.exchange()
        elif kind == 4:
            self.test()
            self.emit("@%p3 bra END" if self.choices.number(0, 1) else "@%p3 exit")
        elif kind == 5:
            self.emit("bar.sync 0" if self.choices.number(0, 2) == 0 else "add.u32 %r1, %r1, 7")
        elif kind < 9:
            other, end = self.label(), self.label()
            self.test()
            self.emit(f"@%p3 bra {other}")
            self.region(depth + 1, 3)
            self.emit(f"bra {end}")
            self.lines.append(f"{other}:")
            if self.choices.number(0, 1):
                self.region(depth + 1, 3)
            self.lines.append(f"{end}:")
        else:
            again, counter = self.label(), f"%c{depth}"
            self.emit(f"and.b32 {counter}, %r9, {self.choices.number(0, 3)}")
            self.lines.append(f"{again}:")
            self.region(depth + 1, 2)
            self.emit(
                f"sub.u32 {counter}, {counter}, 1", f"setp.ge.s32 %p3, {counter}, 0", f"@%p3 bra {again}"
            )

    def test(self) -> None:
        bound, bits = self.choices.number(0, 40), self.choices.number(0, 7)
        test = (
            f"setp.lt.u32 %p3, %r9, {bound}",
            f"and.b32 %r4, %r9, {bits}; setp.eq.u32 %p3, %r4, {bits & 5}",
        )
        self.emit(test[self.choices.number(0, 1)])

    def exchange(self) -> None:
        form = self.EXCHANGES[self.choices.number(0, len(self.EXCHANGES) - 1)]
        mask = ("-1", "-1", "%r7")[self.choices.number(0, 2)]
        self.emit(form.format(mask=mask, small=self.choices.number(1, 31)), "mad.lo.u32 %r1, %r3, 5, %r1")


def meeting(choices: Choices) -> str:
    """The text of a module whose kernel ``k`` has exchanges anywhere; it may be a deadlock."""
    writer = _Meetings(choices)
    writer.region(0, 7)
    return "\n".join(
        [
            ".version 9.0\n.target sm_100a\n.address_size 64",
            f".visible .entry k({PARAMETERS})",
            "{",
            "    .reg .pred %p<8>;\n    .reg .b32 %r<16>, %c<8>;\n    .reg .b64 %d<4>;",
            "    mov.u32 %r9, %laneid;\n    mov.u32 %r0, %tid.x;\n    mov.u32 %r5, %tid.y;\n    mov.u32 %r6, %ntid.x;",
            "    mad.lo.u32 %r0, %r5, %r6, %r0;\n    mov.u32 %r5, %ntid.y;\n    mul.lo.u32 %r6, %r6, %r5;",
            "    mov.u32 %r5, %ctaid.x;\n    mad.lo.u32 %r0, %r5, %r6, %r0;\n    mul.lo.u32 %r1, %r0, 0x9e3779b1;",
            "    mov.u32 %r3, 1;\n    shr.u32 %r8, %r9, 3;\n    setp.gt.s32 %p3, %r1, 0;",
            "    setp.lt.u32 %p5, %r9, 16;\n    selp.b32 %r7, 0xffff, 0xffff0000, %p5;",
            *writer.lines,
            "END:",
            f"    mul.wide.u32 %d0, %r0, {4 * WORDS};\n    ld.param.u64 %d1, [logs];\n    add.u64 %d0, %d0, %d1;",
            "    st.global.b32 [%d0], %r1;\n    ret;\n}\n",
        ]
    )
