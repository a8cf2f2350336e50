"""The semantics on NumPy values give, lane by lane, what they give on exact integers and fractions."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gpuperf_engine.interp.values import LaneValue, dtype_of
from gpuperf_engine.isa.effects import ATOMIC, BULK_COPY, PURE, REDUCTION, STACK
from gpuperf_engine.isa.evaluation import evaluate
from gpuperf_engine.isa.model import Form, Row
from gpuperf_engine.isa.table import rows
from gpuperf_engine.isa.types import ScalarType, scalar_type

from .assembler import before_sources, forms
from .reference import LAYOUTS, PRED, Exact

LANES = 16


def source_types(form: Form) -> list[tuple[ScalarType, bool]]:
    """Types of what ``evaluate`` takes, and whether each must be a constant."""
    if form.row.name == "shfl":
        return [(scalar_type("u32"), False)] * 3
    if form.effect is STACK:
        own = [(slot.type or PRED, slot.constant) for slot in form.sources]
        return [*own, (form.type or PRED, False)]
    if form.effect is not PURE:
        return [(form.type or PRED, False)] * (3 if "cas" in form.opcode else 2)
    found = [(slot.type or PRED, slot.constant) for slot in form.sources for _ in range(slot.vector)]
    found = [(kind, False) for kind in before_sources(form)] + found
    found += [(PRED, False)] * form.reads_carry
    return found + [(scalar_type("u32"), False)] * form.reads_rank


def pattern(kind: ScalarType, generator: random.Random) -> int:
    """Any bits, small integers, or the special numbers of a format (in both lanes of packed ones)."""
    choice = generator.randrange(4)
    layout = LAYOUTS.get(kind.name.split("x2")[0])
    if choice == 0 or (layout is None and choice == 3):
        return generator.getrandbits(kind.bits)
    if layout is None:
        return generator.choice((0, 1, 2, 7, 31, 32, 33, -1, -2, 1 << (kind.bits - 1))) & (
            (1 << kind.bits) - 1
        )
    one = layout.bias << layout.fraction
    near = one + generator.randrange(-3 << layout.fraction, 3 << layout.fraction)
    numbers = (
        0,
        one,
        1,
        layout.infinity,
        layout.nan,
        layout.infinity - 1,
        1 << layout.fraction,
        near,
        near,
        near,
    )
    result = 0
    for lane in range(kind.lanes):
        number = generator.choice(numbers) | (layout.sign if generator.random() < 0.5 else 0)
        result |= number << (lane * (kind.bits // kind.lanes))
    return result


def lanes(patterns: list[int], kind: ScalarType) -> LaneValue:
    if kind.bits == 128:
        return LaneValue(np.array(patterns, dtype=object), kind)
    if kind.is_predicate:
        return LaneValue(np.array(patterns, dtype=bool), kind)
    return LaneValue(np.array(patterns, dtype=np.uint64).astype(f"u{kind.bytes}").view(dtype_of(kind)), kind)


def bits_of(value: object, lane: int) -> int:
    assert isinstance(value, LaneValue)
    data = np.broadcast_to(value.data, (LANES,))
    return int(data[lane]) & ((1 << value.type.bits) - 1)


#: semantics of matrix instructions are on the fragments of a warp, those of images on texels, not on lanes (see test_matrices …)
LANEWISE = [
    row
    for row in rows()
    if row.semantics is not None
    and (row.effect in (PURE, ATOMIC, REDUCTION, STACK, BULK_COPY) or row.effect.exchanges)
]


@pytest.mark.parametrize("row", LANEWISE, ids=lambda row: row.syntax)
def test_row(row: Row) -> None:
    generator = random.Random(row.syntax)
    every = list(forms(row, 30))
    for form in generator.sample(every, min(4, len(every))):
        types = source_types(form)
        columns = [[pattern(kind, generator) for _ in range(LANES)] for kind, _ in types]
        constants = [column[0] & 0xFF for column in columns]
        together = evaluate(
            form,
            [
                constant if fixed else lanes(column, kind)
                for column, constant, (kind, fixed) in zip(columns, constants, types)
            ],
        )
        for lane in range(LANES):
            sources = [
                constant if fixed else Exact(column[lane], kind)
                for column, constant, (kind, fixed) in zip(columns, constants, types)
            ]
            alone = evaluate(form, sources)
            assert [(value.type, hex(bits_of(value, lane))) for value in together] == [
                (value.type, hex(value.pattern)) for value in alone if isinstance(value, Exact)
            ], (form.opcode, sources)
