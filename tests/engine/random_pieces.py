"""Statements of random kernels that concern one thread alone: registers, chains of carries, memory."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from tests.engine.random_families import FAMILIES
from tests.engine.random_instructions import INSTRUCTIONS

__all__ = ["COUNTS", "INPUTS", "LOCK", "LOGS", "TYPES", "Choices", "Pieces", "Seeded"]

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
#: letter of the registers and operation of atomics; vectors are of floats
ATOMICS: tuple[tuple[str, str], ...] = (
    *(("r", f"{op}.b32") for op in ("and", "or", "xor", "exch", "cas")),
    *(("r", f"{op}.{kind}32") for op in ("add", "min", "max") for kind in "us"),
    *(("r", f"{op}.u32") for op in ("inc", "dec")),
    *(("d", f"{op}.b64") for op in ("and", "or", "xor", "exch", "cas")),
    *(("d", f"{op}.{kind}64") for op in ("min", "max") for kind in "us"),
    *(("d", "add.u64"), ("f", "add.f32"), ("e", "add.f64"), ("h", "cas.b16")),
    *(("r", f"add.noftz.{kind}") for kind in ("f16x2", "bf16x2")),
    *(("x", f"add.noftz.{kind}") for kind in ("f16", "bf16")),
    *(("f", "v2.add.f32"), ("f", "v4.add.f32"), ("x", "v2.add.noftz.f16"), ("x", "v2.max.noftz.bf16")),
    *(("r", "v2.add.noftz.f16x2"), ("r", "v4.min.noftz.bf16x2")),
)


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
class Pieces:
    """Writes statements that one thread carries out by itself."""

    choices: Choices
    lines: list[str] = field(default_factory=list)
    labels: int = 0
    logged: int = 0
    budget: int = 40
    in_function: bool = False

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
        line = self.pick(INSTRUCTIONS if self.chance(2) else self.pick(tuple(FAMILIES.values())))
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
        """A chain in extended precision: the first instruction writes the carry, all others read it, a guarded one may leave it."""
        r = self.register
        wide = self.chance(3)
        kind, bits = ("d", 64) if wide else ("r", 32)
        sign = self.pick("us")
        sums, products = self.pick(("add", "sub")), self.chance(2)
        length = self.choices.number(2, 4)
        begun = self.chance(3)  # the carry is known: the chain's first instruction may leave it too
        if begun:
            self.emit(f"{sums}.cc.u32 %t0, {r('r')}, {r('r')}")
        for place in range(length):
            first, last = place == 0, place == length - 1
            guard = self.guard() if begun or not first else ""
            if self.chance(4):
                self.emit(f"{self.guard()}xor.b32 {r('r')}, {r('r')}, {self.source('r')}")
            cc = "" if last else ".cc"
            if products and sums == "add":
                half = self.pick(("lo", "hi"))
                name = f"mad.{half}.cc" if first else f"madc.{half}{cc}"
                operands = f"{r(kind)}, {self.source(kind)}, {self.source(kind)}, {self.source(kind)}"
            else:
                name = f"{sums}.cc" if first else f"{sums}c{cc}"
                operands = f"{r(kind)}, {self.source(kind)}, {self.source(kind)}"
            self.emit(f"{guard}{name}.{sign}{bits} {operands}")

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
        more = ["sum", "shared sum", "atom", "qualified", "qualified", "either"]
        kind = self.pick([*kinds[:3], "qualified", "either"] if self.in_function else [*kinds, *more])
        r = self.register
        if kind == "qualified":
            self.qualified()
        elif kind == "input":
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
        elif kind == "const" and self.chance(2):  # its window lies below 2³²
            self.emit(f"and.b32 %t0, {r('r')}, 7", "shl.b32 %t0, %t0, 2", "mov.u32 %t1, table")
            self.emit("add.u32 %t1, %t1, %t0", f"{self.guard()}ld.const.b32 {r('r')}, [%t1]")
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
        elif kind == "shared sum" and self.chance(2):  # an address in 32 bits, of each lane its own
            self.emit(
                f"and.b32 %t0, {r('r')}, 7",
                "shl.b32 %t0, %t0, 2",
                "mov.u32 %t1, sums",
                "add.u32 %t1, %t1, %t0",
            )
            self.emit(f"{self.guard()}red.shared{self.pick(('', '::cta'))}.add.u32 [%t1], {r('r')}")
        elif kind == "shared sum":
            self.emit(f"{self.guard()}red.shared.add.u32 [sums+{4 * self.choices.number(0, 7)}], {r('r')}")
        elif kind == "either":
            self.either()
        else:
            self.atomic()

    def atomic(self) -> None:
        """On memory that is the thread's own: results are used, and no order shows. Shared memory has one word for it."""
        r, pick = self.register, self.pick
        guard = self.guard()
        kind, operation = pick(ATOMICS)
        size = {"h": 2, "x": 2, "d": 8, "e": 8}.get(kind, 4)
        lanes = int(operation[1]) if operation[0] == "v" else 1
        place = f"%log+{size * lanes * self.choices.number(0, 4 * LOGS // (size * lanes) - 1)}"
        space = "global"
        if size == 4 and lanes == 1 and self.chance(3):
            space, place = self.pick(
                (("shared", "%own"), ("shared::cta", "%own"), ("shared", "%a0"), ("", "%a1"))
            )
            if place != "%own":
                self.emit("cvt.u64.u32 %a0, %own", "cvta.shared.u64 %a1, %a0")
        space = space and f".{space}"
        if lanes > 1:
            operation = operation[3:]
            values = [", ".join(self.several(kind, lanes)) for _ in range(2)]
            if self.chance(3):
                self.emit(f"{guard}red{space}.v{lanes}.{operation} [{place}], {{{values[1]}}}")
            else:
                self.emit(
                    f"{guard}atom{space}.v{lanes}.{operation} {{{values[0]}}}, [{place}], {{{values[1]}}}"
                )
        elif operation.startswith("cas"):
            self.emit(f"{guard}atom{space}.{operation} {r(kind)}, [{place}], {self.source(kind)}, {r(kind)}")
        elif operation.split(".")[0] in ("exch",) or self.chance(2):
            self.emit(f"{guard}atom{space}.{operation} {r(kind)}, [{place}], {r(kind)}")
        else:
            self.emit(f"{guard}red{space}.{operation} [{place}], {r(kind)}")

    def either(self) -> None:
        """Two accesses of one place, or results in one register, of which a predicate decides; it may change in between."""
        r, p = self.register, self.register("p")
        first, second = self.pick((("", "!"), ("!", "")))
        places = [f"[scratch+{4 * self.choices.number(0, 3)}]" for _ in range(2)]
        space, atomic = "local", False
        if not self.in_function and self.chance(2):
            places = [f"[%log+{4 * self.choices.number(0, 3)}]" for _ in range(2)]
            space, atomic = "global", True
        kind = self.pick(("load", "store", "both", "atomic") if atomic else ("load", "store", "both"))
        target = r("r")
        forms = {
            "load": (f"ld.{space}.b32 {target}, {places[0]}", f"ld.{space}.b32 {target}, {places[1]}"),
            "store": (f"st.{space}.b32 {places[0]}, {r('r')}", f"st.{space}.b32 {places[0]}, {r('r')}"),
            "both": (f"ld.{space}.b32 {target}, {places[0]}", f"st.{space}.b32 {places[0]}, {target}"),
            "atomic": (
                f"atom.{space}.add.u32 {target}, {places[0]}, {r('r')}",
                f"red.{space}.xor.b32 {places[1]}, {r('r')}",
            ),
        }[kind]
        self.emit(f"@{first}{p} {forms[0]}")
        if self.chance(4):
            self.emit(f"setp.lt.s32 {p}, {r('r')}, {self.source('r')}")
        self.emit(f"@{second}{p} {forms[1]}")

    def guard(self) -> str:
        """``@p``, ``@!p`` or nothing."""
        return f"@{self.pick(('', '!'))}{self.register('p')} " if self.chance(2) else ""

    def qualified(self) -> None:
        """Guarded accesses of all widths that are volatile, ordered or cached in some way, to memory that is the thread's own, through
        addresses of 32 bits where the space has those; and predicates, two at once, that decide them."""
        relation, join = self.pick(("lt", "ge", "eq", "ne")), self.pick(("and", "or", "xor"))
        first, second = self.several("p", 2)
        operands = f"{self.register('r')}, {self.source('r')}, {self.pick(('', '!'))}{self.register('p')}"
        self.emit(f"{self.guard()}setp.{relation}.{join}.s32 {first}|{second}, {operands}")
        space = self.pick(("local",) if self.in_function else ("local", "shared", "global", "generic"))
        size = 4 if space in ("shared", "generic") else self.pick((4, 8, 16))
        if space == "local":
            base = "%t1"
            self.emit("mov.u32 %t1, scratch")
        elif space == "shared":
            base = "%own"
        elif space == "generic":
            base = "%a1"
            self.emit("cvt.u64.u32 %a0, %own", "cvta.shared.u64 %a1, %a0")
        else:
            base = "%log"
        for _ in range(self.choices.number(1, 4)):
            self._access(space, base, size)
        self.emit(
            f"{self.guard()}selp.b32 {self.register('r')}, {self.source('r')}, {self.source('r')}, {first}"
        )

    def _access(self, space: str, base: str, size: int) -> None:
        bits = self.pick((8, 16, 32, 64) if size > 4 else (8, 16, 32))
        lanes = self.pick((1, 1, 2)) if 16 <= 2 * bits <= 8 * size and bits >= 16 else 1
        whole = bits // 8 * lanes
        room = 16 if space == "local" else 4 * LOGS if space == "global" else 4
        place = f"{base}+{whole * self.choices.number(0, room // whole - 1)}"
        loads = self.chance(2)
        ways = ["", ".weak"] if space == "local" else ["", ".volatile", ".volatile"]
        if space != "local" and lanes == 1:
            ways += [f".relaxed.{scope}" for scope in ("cta", "gpu", "sys")]
            ways.append(".acquire.gpu" if loads else ".release.gpu")
        if space == "global" and lanes == 1:
            ways.append(".mmio.relaxed.sys")
        if space == "global":
            ways += [".cv", ".cg", ".lu", ".cs"] if loads else [".wt", ".cg", ".cs", ".wb"]
        way = self.pick(ways)
        named = "" if space == "generic" else f".{space}"
        # what orders comes before the space, how it is cached behind it
        words = f"{named}{way}" if way in (".cv", ".cg", ".lu", ".cs", ".wt", ".wb") else f"{way}{named}"
        kind = "d" if bits == 64 or self.chance(4) else "h" if bits == 16 and self.chance(3) else "r"
        letters = "bu" if kind == "h" or not loads else "bus"
        type_ = f"{self.pick(letters)}{bits}"
        vector = f".v{lanes}" if lanes > 1 else ""
        data = f"{{{', '.join(self.several(kind, lanes))}}}" if lanes > 1 else self.register(kind)
        if loads:
            self.emit(f"{self.guard()}ld{words}{vector}.{type_} {data}, [{place}]")
        else:
            self.emit(f"{self.guard()}st{words}{vector}.{type_} [{place}], {data}")

    def several(self, kind: str, count: int) -> list[str]:
        """So many different registers."""
        first = self.choices.number(0, COUNTS[kind] - count)
        return [f"%{kind}{first + i}" for i in range(count)]
