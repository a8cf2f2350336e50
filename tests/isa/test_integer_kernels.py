"""Every integer and logic instruction of the table in kernels, on edges and random bits, in registers and as constants: both
backends against Python integers."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.isa.effects import PURE
from gpuperf_engine.isa.model import Form, OperandSlot
from gpuperf_engine.isa.table import rows
from tests.support import head

from .assembler import forms
from .integers import MODELS, calculate

HEAD = head("9.4", "sm_107a")
LETTERS = {1: "p", 16: "h", 32: "r", 64: "l"}
PARTS = 8


def instructions() -> list[Form]:
    """All forms of integer and logic rows, but those of video instructions."""
    found = []
    for row in rows():
        if row.category in ("integer", "logic") and row.effect is PURE and row.name[0] != "v":
            found += list(forms(row, 400))
    return found


def test_every_row_has_a_model() -> None:
    names = {form.row.name for form in instructions()}
    assert names == set(MODELS)


def word(size: int, generator: random.Random) -> int:
    edges = (
        0,
        1,
        2,
        3,
        7,
        8,
        15,
        16,
        24,
        31,
        32,
        33,
        63,
        64,
        65,
        127,
        255,
        1 << (size - 1),
        (1 << (size - 1)) - 1,
        (1 << size) - 1,
    )
    near = generator.choice(edges) % (1 << size)
    return generator.choice(
        (near, near, (1 << size) - 1 - near, generator.getrandbits(size), 1 << generator.randrange(size))
    )


class Case:
    """One instruction with its operands in 32 lanes."""

    def __init__(self, form: Form, generator: random.Random) -> None:
        self.form = form
        self.columns: list[list[int]] = []
        self.loaded: list[tuple[str, int]] = []
        self.stored: list[tuple[str, int]] = []
        written: list[str] = []
        for slot in form.operands:
            text = self._operand(slot, generator)
            if slot.pair:
                written[-1] += f"|{text}"
            else:
                written.append(text)
        self.text = f"{form.opcode} {', '.join(written)};"
        if form.reads_carry:
            self.columns.append([generator.randrange(2) for _ in range(32)])

    def _operand(self, slot: OperandSlot, generator: random.Random) -> str:
        assert slot.type is not None
        size = slot.type.bits
        name = f"{LETTERS[size]}{len(self.loaded) + len(self.stored)}"
        if slot.role == "destination":
            self.stored.append((name, size))
            return name
        small = slot.name == "base" or (self.form.row.name == "fns" and slot.name == "offset")

        def draw() -> int:
            if slot.name == "base":
                return generator.randrange(32)
            return generator.randrange(-33, 34) % (1 << 32) if small else word(size, generator)

        if slot.constant or (size > 1 and slot.type.lanes == 1 and generator.random() < 0.25):
            byte = slot.constant or self.form.row.name in ("bfe", "bfi")  # fields are told by bytes
            constant = generator.getrandbits(8) if byte else draw()
            self.columns.append([constant] * 32)
            return str(constant)
        column = [draw() for _ in range(32)]
        if generator.random() < 0.2:  # the same in all lanes, as many values are
            column = [column[0]] * 32
        self.columns.append(column)
        self.loaded.append((name, len(self.columns) - 1))
        negated = slot.role == "predicate_source" and size == 1 and generator.random() < 0.5
        if negated:
            self.columns[-1] = [1 - item for item in column]
        return f"!{name}" if negated else name

    def results(self, lane: int) -> tuple[int, ...]:
        sizes = [size for _, size in self.stored] + [1] * self.form.writes_carry
        found = calculate(self.form.opcode, [column[lane] for column in self.columns])
        return tuple(value & ((1 << size) - 1) for value, size in zip(found, sizes))

    def lines(self, source: int, target: int, guard: str) -> Iterator[str]:
        """PTX that loads the operands from words behind ``from`` and stores the results behind ``to``."""
        for name, place in self.loaded:
            at = f"[from+{256 * (source + place)}]"
            if name[0] == "p":
                flip = "eq" if f"!{name}" in self.text else "ne"
                yield f"ld.global.b32 w, {at}; setp.{flip}.b32 {name}, w, 0;"
            else:
                yield f"ld.global.b{ {'h': 16, 'r': 32, 'l': 64}[name[0]] } {name}, {at};"
        if self.form.reads_carry:
            yield f"ld.global.b32 w, [from+{256 * (source + len(self.columns) - 1)}]; add.cc.u32 w, w, -1;"
        yield guard + self.text
        for place, (name, size) in enumerate(self.stored):
            if size == 1:
                yield f"selp.b32 w, 1, 0, {name}; {guard}st.global.b32 [to+{256 * (target + place)}], w;"
            else:
                yield f"{guard}st.global.b{size} [to+{256 * (target + place)}], {name};"
        if self.form.writes_carry:
            yield f"addc.u32 w, 0, 0; {guard}st.global.b32 [to+{256 * (target + len(self.stored))}], w;"


@pytest.mark.parametrize("part", range(PARTS))
def test_kernels(part: int) -> None:
    """Lane 9 is guarded off in every other instruction."""
    generator = random.Random(part)
    cases = [Case(form, generator) for form in instructions()[part::PARTS] for _ in range(2)]
    lines = [
        ".visible .entry k(.param .u64 a, .param .u64 b) {",
        ".reg .b64 from, to, offset; .reg .b32 lane, w; .reg .pred on;",
    ]
    lines += [f".reg .{'pred' if size == 1 else f'b{size}'} {letter}<9>;" for size, letter in LETTERS.items()]
    lines += [
        "ld.param.u64 from, [a]; ld.param.u64 to, [b]; mov.u32 lane, %tid.x; mul.wide.u32 offset, lane, 8;"
    ]
    lines += ["add.u64 from, from, offset; add.u64 to, to, offset; setp.ne.u32 on, lane, 9;"]
    data: list[list[int]] = []
    wanted: list[list[int]] = []
    origin: list[tuple[Case, int]] = []
    for index, case in enumerate(cases):
        guarded = bool(index % 2)
        lines += case.lines(len(data), len(wanted), "@on " if guarded else "")
        data += case.columns
        columns = [case.results(lane) for lane in range(32)]
        for place in range(len(columns[0])):
            wanted.append([0 if guarded and lane == 9 else columns[lane][place] for lane in range(32)])
            origin.append((case, place))
    module = ge.parse(HEAD + "\n".join([*lines, "ret; }"]), path="integers.ptx")
    expected = np.array(wanted, np.uint64)
    for backend in ("reference", "llvm"):
        device = ge.Device(backend=backend)
        source, target = device.array(np.array(data, np.uint64)), device.zeros(expected.shape, np.uint64)
        device.launch(module["k"], 1, 32, [source, target])
        found = target.numpy()
        for row, lane in np.argwhere(found != expected)[:1]:
            case, place = origin[row]
            raise AssertionError((backend, case.text, place, [hex(column[lane]) for column in case.columns],
                                  hex(found[row, lane]), hex(wanted[row][lane])))  # fmt: skip
