"""Kernels of one instruction each, made from the rows: both backends give the same bits for the same operands."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

import gpuperf_engine as ge
from gpuperf_engine.isa.effects import PURE
from gpuperf_engine.isa.model import Form, OperandSlot
from gpuperf_engine.isa.table import rows

from .assembler import decorated, forms, target_of
from .test_lanes_agree import pattern

LETTERS = {"pred": "p", "b16": "h", "b32": "r", "b64": "l", "f32": "f", "f64": "d"}
WIDTHS = {"p": 32, "h": 16, "r": 32, "l": 64, "f": 32, "d": 64}
BATCH = 24


class Probe:
    """An entry that loads the sources of one instruction from rows of 64-bit words and stores its results so."""

    def __init__(self, form: Form, generator: random.Random) -> None:
        self.form = form
        self.inputs: list[tuple[str, OperandSlot]] = []
        self.outputs: list[str] = []
        written: list[str] = []
        for slot in form.operands:
            items = [self._item(slot, generator) for _ in range(slot.vector)]
            if slot.role == "address":
                items = [f"[{items[0]}+4]"]
            text = "{" + ", ".join(items) + "}" if slot.braces else items[0]
            text = decorated(slot, text, form)
            if slot.pair:
                written[-1] += "|" + text
            else:
                written.append(text)
        self.text = f"{form.opcode} {', '.join(written)};"

    def _item(self, slot: OperandSlot, generator: random.Random) -> str:
        assert slot.type is not None
        if slot.constant:
            return str(generator.getrandbits(8))
        letter = LETTERS.get(slot.type.name) or {8: "h", 16: "h", 32: "r", 64: "l"}[slot.type.bits]
        name = f"{letter}{len(self.inputs) + len(self.outputs)}"
        if slot.role == "destination":
            self.outputs.append(name)
        else:
            self.inputs.append((name, slot))
        return name

    def entry(self, name: str) -> str:
        """The PTX of the entry."""
        lines = [f".visible .entry {name}(.param .u64 a, .param .u64 b)", "{"]
        lines += [f".reg .{kind} {letter}<400>;" for kind, letter in LETTERS.items()]
        lines += [
            ".reg .b64 from, to, offset;",
            ".reg .b32 lane, word;",
            "ld.param.u64 from, [a];",
            "ld.param.u64 to, [b];",
        ]
        lines += [
            "mov.u32 lane, %tid.x;",
            "mul.wide.u32 offset, lane, 8;",
            "add.s64 from, from, offset;",
            "add.s64 to, to, offset;",
        ]
        for index, (register, _) in enumerate(self.inputs):
            if register[0] == "p":
                lines += [f"ld.global.b32 word, [from+{256 * index}];", f"setp.ne.b32 {register}, word, 0;"]
            else:
                lines.append(f"ld.global.b{WIDTHS[register[0]]} {register}, [from+{256 * index}];")
        if self.form.reads_carry:
            lines.append("add.cc.u32 word, lane, 0xfffffff0;")
        lines.append(self.text)
        for index, register in enumerate(self.outputs):
            if register[0] == "p":
                lines += [f"selp.b32 word, 1, 0, {register};", f"st.global.b32 [to+{256 * index}], word;"]
            else:
                lines.append(f"st.global.b{WIDTHS[register[0]]} [to+{256 * index}], {register};")
        if self.form.writes_carry:
            lines += ["addc.u32 word, 0, 0;", f"st.global.b32 [to+{256 * len(self.outputs)}], word;"]
        return "\n".join([*lines, "ret;", "}"])

    def operands(self, generator: random.Random) -> npt.NDArray[np.uint64]:
        """A row of 32 words for each source."""
        data = np.zeros((max(len(self.inputs), 1), 32), np.uint64)
        for index, (_, slot) in enumerate(self.inputs):
            assert slot.type is not None
            data[index] = [pattern(slot.type, generator) for _ in range(32)]
        return data


def probes() -> Iterator[Probe]:
    """Two forms of every row that computes its results from registers."""
    for row in rows():
        if (
            row.semantics is None
            or row.effect is not PURE
            or row.applied.checked is not None
            or row.available.removed is not None
        ):
            continue
        generator = random.Random(row.syntax)
        fitting = [
            form
            for form in forms(row, 20)
            if all(slot.type is not None and slot.type.bits < 128 for slot in form.operands)
            and not any(
                slot.type is not None and slot.type.bits == 8 and not slot.wider for slot in form.operands
            )
        ]
        for form in generator.sample(fitting, min(2, len(fitting))):
            yield Probe(form, generator)


#: by target, whose modules they are in
PROBES = sorted(probes(), key=lambda probe: target_of(probe.form.row))


@pytest.mark.parametrize("batch", range(0, len(PROBES), BATCH))
def test_same_bits(batch: int) -> None:
    some = PROBES[batch : batch + BATCH]
    for target in dict.fromkeys(target_of(probe.form.row) for probe in some):
        agree(target, [probe for probe in some if target_of(probe.form.row) == target])


def agree(target: str, some: list[Probe]) -> None:
    """Runs each probe on both backends."""
    head = f".version 9.4\n.target {target}\n.address_size 64\n"
    module = ge.parse(
        head + "\n".join(probe.entry(f"k{index}") for index, probe in enumerate(some)), path="probes.ptx"
    )
    for index, probe in enumerate(some):
        data = probe.operands(random.Random(probe.text))
        results = []
        for backend in ("reference", "llvm"):
            device = ge.Device(backend=backend)
            source, written = device.array(data), device.zeros((len(probe.outputs) + 1, 32), np.uint64)
            device.launch(module[f"k{index}"], grid=1, block=32, args=[source, written])
            results.append(written.numpy())
        different = np.argwhere(results[0] != results[1])
        assert not len(different), (
            probe.text,
            [hex(int(word)) for word in data[:, different[0][1]]],
            results,
        )
