"""Multimem addresses of a multicast object of one device: loads give what is there, stores and reductions go there."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.isa.effects import LOAD, REDUCTION, STORE, Effect
from gpuperf_engine.isa.model import Form
from gpuperf_engine.isa.table import rows
from tests.isa.assembler import forms
from tests.memory.test_forms import DECLARED, HEAD, _word, combine, registers, run
from tests.support import BACKENDS


def forms_of(effect: Effect) -> list[Form]:
    seen: dict[tuple[object, ...], Form] = {}
    for row in rows():
        if row.name == "multimem" and row.effect is effect:
            for form in forms(row, 400):
                key = (
                    form.modifier("op"),
                    form.modifier("type"),
                    form.modifier("vec"),
                    form.space,
                )
                seen.setdefault(key, form)
    return list(seen.values())


def width(kind: str) -> int:
    """Bits of an element."""
    stem, _, lanes = kind.partition("x")
    known = {"f16": 16, "bf16": 16, "e5m2": 8, "e4m3": 8}
    return (known.get(stem) or int(stem[1:])) * int(lanes or 1)


def named(kind: str, count: int, first: int = 0) -> str:
    return registers(f"b{width(kind)}", count, first)


def header(names: str) -> Iterator[str]:
    yield f".visible .entry k({', '.join(f'.param .u64 {name}' for name in names.split())}) {{"
    yield DECLARED + ".reg .b64 a0, a1, a2, far; .reg .b32 t;"
    yield "mov.u32 t, %tid.x; mul.wide.u32 far, t, 16; setp.ne.u32 p0, t, 5;"
    for place, name in enumerate(names.split()):
        yield f"ld.param.u64 a{place}, [{name}]; add.u64 a{place}, a{place}, far;"


def test_loads_and_stores() -> None:
    loads, stores = forms_of(LOAD), forms_of(STORE)
    assert len(loads) > 100
    assert len(stores) > 50
    every = [*loads, *stores]
    generator = random.Random(1)
    data = np.array([[generator.getrandbits(8) for _ in range(16)] for _ in range(32)], np.uint8)
    lines, wanted = list(header("from to")), []
    for number, form in enumerate(every):
        kind = str(form.modifier("type"))
        size, count = width(kind) // 8, form.vector
        out = f"a1+{512 * number}"
        if form.effect is LOAD:
            lines.append(f"@p0 {form.opcode} {named(kind, count)}, [a0];")
            lines += [
                f"@p0 st.global.b{8 * size} [{out}+{size * i}], {named(kind, 1, i)};" for i in range(count)
            ]
        else:
            lines += [f"ld.global.b{8 * size} {named(kind, 1, i)}, [a0+{size * i}];" for i in range(count)]
            lines.append(f"@p0 {form.opcode} [{out}], {named(kind, count)};")
        rows_ = np.where(np.arange(16) < size * count, data, 0)
        rows_[5] = 0
        wanted.append(rows_)
    text = "\n".join([*lines, "ret; }"])
    for backend in BACKENDS:
        _, found = run(backend, text, data, np.zeros((len(every), 32, 16), np.uint8))
        for number, lane, _ in np.argwhere(found != np.array(wanted))[:1]:
            raise AssertionError(
                (backend, every[number].opcode, lane, found[number, lane], wanted[number][lane])
            )


@pytest.mark.parametrize("several", [1, 32])
def test_reductions(several: int) -> None:
    """Lanes meet at one address, or none do."""
    every = forms_of(REDUCTION)
    assert len(every) > 50
    generator = random.Random(several)
    lines = list(header("from to"))
    lines += [f"sub.u64 a1, a1, far; rem.u32 t, t, {several}; mul.wide.u32 far, t, 16; add.u64 a1, a1, far;"]
    given, before = np.zeros((len(every), 32, 16), np.uint8), np.zeros((len(every), 32, 16), np.uint8)
    wanted = np.zeros_like(before)
    for number, form in enumerate(every):
        kind = str(form.modifier("type"))
        size, count = width(kind) // 8, form.vector
        values = [[_word(kind, generator) for _ in range(count)] for _ in range(32)]
        operands = [[_word(kind, generator) for _ in range(count)] for _ in range(32)]
        for lane in range(32):
            before[number, lane, : size * count] = list(
                b"".join(v.to_bytes(size, "little") for v in values[lane])
            )
            given[number, lane, : size * count] = list(
                b"".join(v.to_bytes(size, "little") for v in operands[lane])
            )
        for lane in range(32):
            if lane != 5:
                target = values[lane % several]
                target[:] = [combine(form, old, b, 0) for old, b in zip(target, operands[lane])]
        for lane in range(32):
            wanted[number, lane, : size * count] = list(
                b"".join(v.to_bytes(size, "little") for v in values[lane])
            )
        lines += [
            f"ld.global.b{8 * size} {named(kind, 1, i)}, [a0+{512 * number + size * i}];"
            for i in range(count)
        ]
        lines.append(f"@p0 {form.opcode} [a1+{512 * number}], {named(kind, count)};")
    text = "\n".join([*lines, "ret; }"])
    for backend in BACKENDS:
        _, found = run(backend, text, given, before)
        for number, lane, _ in np.argwhere(found != wanted)[:1]:
            raise AssertionError(
                (backend, every[number].opcode, lane, found[number, lane], wanted[number, lane])
            )


@pytest.mark.parametrize(
    "line",
    [
        "multimem.ld_reduce.add.f16 h0, [l8];",
        "multimem.ld_reduce.relaxed.add.u32 r0, [l8];",
        "multimem.ld_reduce.gpu.add.u32 r0, [l8];",
        "multimem.ld_reduce.weak.relaxed.gpu.add.u32 r0, [l8];",
        "multimem.ld_reduce.add.s64 l0, [l8];",
        "multimem.ld_reduce.min.f32 f0, [l8];",
        "multimem.ld_reduce.min.acc::f32.v2.f16 {h0, h1}, [l8];",
        "multimem.ld_reduce.add.acc::f16.v2.f16 {h0, h1}, [l8];",
        "multimem.ld_reduce.shared.add.u32 r0, [l8];",
        "multimem.red.min.f16x2 [l8], r0;",
        "multimem.red.add.v4.e5m2 [l8], {c0, c1, c2, c3};",
        "multimem.red.acquire.gpu.add.u32 [l8], r0;",
        "multimem.st.v4.f16x2 [l8], {r0, r1};",
        "multimem.st.v2.u32 [l8], {r0, r1};",
        "multimem.ld_reduce.add.u32 {r0}, [l8];",
    ],
)
def test_refused(line: str) -> None:
    text = f".visible .entry k() {{ {DECLARED} .reg .f32 f<3>; {line} ret; }}"
    with pytest.raises(ge.PtxError):
        ge.parse(HEAD + text, path="multimem.ptx").function("k")
