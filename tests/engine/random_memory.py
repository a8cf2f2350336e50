"""Random kernels whose control flow goes through memory: what was stored, through whatever pointer, decides branches.

Every thread has a row of ``ROW`` bytes in the arrays ``a`` and ``b`` (which may overlap), in shared memory and in local memory, and
accesses it in pieces of all sizes, at constant offsets and at offsets made of data, through addresses of the space and
generic ones, through pointers that were stored themselves and in functions. Neighbours' rows are read between barriers.
"""

from __future__ import annotations

from tests.engine.random_writer import Choices

__all__ = ["ROW", "memory_kernel"]

#: bytes per thread: data, and behind them two pointers
ROW = 80
DATA = 64
HEAD = f""".version 8.0
.target sm_80
.address_size 64
.shared .align 16 .b8 tile[{96 * ROW}];
.global .align 16 .b8 table[{96 * ROW}];
.func (.param .b32 r) through(.param .b64 p, .param .b32 v)
{{
    .reg .pred %p;
    .reg .b32 %v, %w;
    .reg .b64 %a;
    ld.param.b64 %a, [p];
    ld.param.b32 %v, [v];
    ld.b32 %w, [%a+4];
    setp.gt.u32 %p, %w, %v;
    @%p bra OLD;
    st.b32 [%a+4], %v;
OLD:
    ld.b32 %w, [%a];
    st.param.b32 [r], %w;
    ret;
}}
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c)
{{
    .local .align 16 .b8 own[{ROW}];
    .reg .pred %p<4>;
    .reg .b16 %h<2>;
    .reg .b32 %r<8>, %t<6>, %s, %sn, %n;
    .reg .b64 %d<3>, %g<8>, %base<3>;
    ld.param.u64 %base0, [a];
    ld.param.u64 %base1, [b];
    ld.param.u64 %base2, [c];
    mov.u32 %t0, %tid.x;
    mov.u32 %t1, %tid.y;
    mov.u32 %t2, %ntid.x;
    mad.lo.u32 %t0, %t1, %t2, %t0;
    mov.u32 %t1, %ntid.y;
    mul.lo.u32 %n, %t1, %t2;
    mov.u32 %t2, %ctaid.x;
    mad.lo.u32 %t1, %t2, %n, %t0;
    mul.wide.u32 %d0, %t1, {ROW};
    add.u64 %g0, %base0, %d0;
    add.u64 %g1, %base1, %d0;
    mov.u64 %g2, table;
    cvta.global.u64 %g2, %g2;
    mul.wide.u32 %d1, %t1, {ROW};
    add.u64 %g2, %g2, %d1;
    mov.u32 %s, tile;
    mad.lo.u32 %s, %t0, {ROW}, %s;
    cvt.u64.u32 %g3, %s;
    cvta.shared.u64 %g3, %g3;
    mov.u64 %g4, own;
    cvta.local.u64 %g4, %g4;
    mul.wide.u32 %d1, %t1, 4;
    add.u64 %d1, %base2, %d1;
    ld.global.nc.b32 %r0, [%d1];
    mul.lo.u32 %r1, %r0, 0x9e3779b1;
    mov.u32 %r2, %laneid;
    mov.u32 %r3, %t1;
"""
SPACES = (
    ("global", "%g0"),
    ("global", "%g1"),
    ("global", "%g2"),
    ("shared", "%s"),
    ("local", "own"),
    ("", "%g"),
)


class Body:
    """Writes statements. ``together``: all threads of the block come here."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.lines: list[str] = []
        self.labels = 0
        #: statements of two kinds that share neither registers nor spaces, so that one decides nothing for the other
        self.apart = choices.number(0, 2) > 0
        self.cold = False
        self.split = choices.number(1, 4)

    def pick(self, *values: str) -> str:
        return values[self.choices.number(0, len(values) - 1)]

    def emit(self, *lines: str) -> None:
        self.lines += [f"    {line};" for line in lines]

    def register(self) -> str:
        if not self.apart:
            return f"%r{self.choices.number(0, 7)}"
        return f"%r{self.choices.number(4, 7) if self.cold else self.choices.number(0, 3)}"

    def spaces(self) -> tuple[tuple[str, str], ...]:
        if not self.apart:
            return SPACES
        return SPACES[self.split : 5] if self.cold else SPACES[: self.split]

    def guard(self) -> str:
        return self.pick("", "", "", "@%p0 ", "@!%p0 ", "@%p1 ")

    def place(self, size: int) -> tuple[str, str]:
        """A space and an address in the thread's row, aligned to a size."""
        spaces = self.spaces()
        space, base = spaces[self.choices.number(0, len(spaces) - 1)]
        if base == "%g":
            base = f"%g{self.choices.number(0, 4)}"
        if self.choices.number(0, 3) == 0:
            self.emit(f"and.b32 %t3, {self.register()}, {(DATA - 1) & -size}")
            if base == "own":
                self.emit("mov.u32 %t4, own", "add.u32 %t4, %t4, %t3")
                return space, "%t4"
            if base == "%s":
                self.emit("add.u32 %t4, %s, %t3")
                return space, "%t4"
            self.emit("cvt.u64.u32 %d2, %t3", f"add.u64 %d2, {base}, %d2")
            return space, "%d2"
        return space, f"{base}+{size * self.choices.number(0, DATA // size - 1)}"

    def access(self) -> None:
        size = (1, 2, 4, 4, 4, 8, 16)[self.choices.number(0, 6)]
        space, address = self.place(size)
        dot = f".{space}" if space else ""
        first, second = self.register(), self.register()
        store = self.choices.number(0, 1)
        guard = self.guard()
        if size == 8:
            two = f"{{{first}, {second}}}" if first != second else f"{{{first}, %t5}}"
            self.emit(
                f"{guard}st{dot}.v2.b32 [{address}], {two}"
                if store
                else f"{guard}ld{dot}.v2.b32 {two}, [{address}]"
            )
        elif size == 16:
            four = "{%r4, %r5, %r6, %r7}" if self.cold else "{%r0, %r1, %r2, %r3}"
            self.emit(
                f"{guard}st{dot}.v4.b32 [{address}], {four}"
                if store
                else f"{guard}ld{dot}.v4.b32 {four}, [{address}]"
            )
        else:
            kind = {1: "u8", 2: "u16", 4: "u32"}[size]
            self.emit(
                f"{guard}st{dot}.{kind} [{address}], {first}"
                if store
                else f"{guard}ld{dot}.{kind} {first}, [{address}]"
            )

    def atomic(self) -> None:
        spaces = [item for item in self.spaces() if item[0] in ("global", "shared")]
        if not spaces:
            return
        space, base = spaces[self.choices.number(0, len(spaces) - 1)]
        address = f"{base}+{4 * self.choices.number(0, 15)}"
        op = self.pick("add", "max", "xor", "exch")
        kind = "b32" if op in ("xor", "exch") else "u32"
        if op != "exch" and self.choices.number(0, 1):
            self.emit(f"{self.guard()}red.{space}.{op}.{kind} [{address}], {self.register()}")
        else:
            self.emit(
                f"{self.guard()}atom.{space}.{op}.{kind} {self.register()}, [{address}], {self.register()}"
            )

    def pointer(self) -> None:
        """Store a pointer behind the data, fetch it again and use it."""
        holder = f"%g{self.choices.number(0, 4)}+{DATA + 8 * self.choices.number(0, 1)}"
        self.emit(f"st.u64 [{holder}], %g{self.choices.number(0, 4)}", f"ld.u64 %g5, [{holder}]")
        offset = 4 * self.choices.number(0, 15)
        if self.choices.number(0, 1):
            self.emit(f"st.b32 [%g5+{offset}], {self.register()}")
        else:
            self.emit(f"ld.b32 {self.register()}, [%g5+{offset}]")

    def call(self) -> None:
        pointer = f"%g{self.choices.number(0, 4)}"
        self.emit(f"add.u64 %g6, {pointer}, {8 * self.choices.number(0, 7)}")
        self.lines.append(
            f"    {{ .param .b64 p0; .param .b32 p1; .param .b32 r0; st.param.b64 [p0], %g6; st.param.b32 [p1], {self.register()};"
            f" call (r0), through, (p0, p1); ld.param.b32 {self.register()}, [r0]; }}"
        )

    def compute(self) -> None:
        op = self.pick("add.u32", "xor.b32", "mul.lo.u32", "min.u32", "sub.u32")
        self.emit(f"{self.guard()}{op} {self.register()}, {self.register()}, {self.register()}")

    def test(self, predicate: str) -> None:
        """Decide on a register, or on what is in memory, perhaps just put there through another pointer or by an atomic."""
        source = self.register()
        if self.choices.number(0, 2):
            size = (1, 2, 4)[self.choices.number(0, 2)]
            how = self.choices.number(0, 3)
            if how == 0:
                self.access()
            elif how == 1:
                self.atomic()
            elif how == 2 and not self.apart:
                self.pointer()
            space, address = self.place(size)
            self.emit(f"ld{f'.{space}' if space else ''}.u{8 * size} %t5, [{address}]")
            source = "%t5"
        self.emit(
            f"shr.u32 %t5, {source}, {self.pick('0', '1', '4')}",
            f"and.b32 %t5, %t5, {self.pick('1', '3', '7', '255')}",
            f"setp.{self.pick('eq', 'lt', 'gt')}.u32 {predicate}, %t5, {self.choices.number(0, 3)}",
        )

    def neighbour(self) -> None:
        """Read the row of the thread whose number differs in the last bit, if there is one, and leave it alone meanwhile."""
        space, base, far = (("global", "%g1", ROW), ("shared", "%s", ROW))[self.choices.number(0, 1)]
        self.emit("bar.sync 0", "mov.u32 %t0, %tid.x", "mov.u32 %t1, %tid.y", "mov.u32 %t2, %ntid.x")
        self.emit(
            "mad.lo.u32 %t0, %t1, %t2, %t0",
            "xor.b32 %t1, %t0, 1",
            "setp.lt.u32 %p3, %t1, %n",
            "sub.s32 %t1, %t1, %t0",
        )
        offset = 4 * self.choices.number(0, 15)
        if space == "shared":
            self.emit(
                f"mad.lo.s32 %sn, %t1, {far}, %s", f"@%p3 ld.shared.b32 {self.register()}, [%sn+{offset}]"
            )
        else:
            self.emit(f"mul.wide.s32 %d2, %t1, {far}", f"add.s64 %d2, {base}, %d2")
            self.emit(f"@%p3 ld.global.b32 {self.register()}, [%d2+{offset}]")
        self.emit("bar.sync 0")

    def exchange(self) -> None:
        mode = self.pick("bfly", "down", "idx")
        self.emit(
            f"shfl.sync.{mode}.b32 {self.register()}, {self.register()}, {self.choices.number(0, 5)}, 31, -1"
        )

    def statements(self, depth: int, count: int, together: bool) -> None:
        for _ in range(count):
            what = self.choices.number(0, 21)
            self.cold = self.apart and self.choices.number(0, 1) > 0
            if self.apart and what in (10, 11, 13):
                what = 0  # those may touch anything
            if what >= 12:
                self.cold = False
            if what < 7:
                self.access()
            elif what < 9:
                self.compute()
            elif what == 9:
                self.atomic()
            elif what == 10:
                self.pointer()
            elif what == 11:
                self.call()
            elif what == 12:
                self.test(self.pick("%p0", "%p1"))
            elif what < 15:
                if together:
                    self.neighbour() if what == 13 else self.exchange()
            elif depth < 2:
                (self.condition if what < 20 else self.loop if what == 20 else self.switch)(depth)

    def condition(self, depth: int) -> None:
        number = self.labels = self.labels + 1
        self.test("%p2")
        self.emit(f"@%p2 bra ELSE{number}")
        self.statements(depth + 1, self.choices.number(1, 3), False)
        self.emit(f"bra JOIN{number}")
        self.lines.append(f"ELSE{number}:")
        self.statements(depth + 1, self.choices.number(0, 2), False)
        self.lines.append(f"JOIN{number}:")

    def loop(self, depth: int) -> None:
        number = self.labels = self.labels + 1
        self.lines.append(f"    {{ .reg .b32 %trips; .reg .pred %q; and.b32 %trips, {self.register()}, 3;")
        self.lines.append(
            f"LOOP{number}: setp.eq.u32 %q, %trips, 0; @%q bra OUT{number}; sub.u32 %trips, %trips, 1;"
        )
        self.statements(depth + 1, self.choices.number(1, 3), False)
        self.lines.append(f"    bra LOOP{number};\nOUT{number}: }}")

    def switch(self, depth: int) -> None:
        number = self.labels = self.labels + 1
        self.emit(f"and.b32 %t5, {self.register()}, 3")
        self.lines.append(f"T{number}: .branchtargets A{number}, B{number}, A{number}, C{number};")
        self.emit(f"brx.idx %t5, T{number}")
        for label in "ABC":
            self.lines.append(f"{label}{number}:")
            self.statements(depth + 1, 1, False)
            if label != "C":
                self.emit(f"bra C{number}")


def memory_kernel(choices: Choices) -> str:
    """The text of a module whose kernel ``k`` takes the arrays ``a`` and ``b`` of rows and ``c`` of words."""
    body = Body(choices)
    body.statements(0, 16, True)
    return "\n".join([HEAD, *body.lines, "    ret;", "}", ""])
