"""Primitives on affine values give at every point of a piece what the reference backend gives on the numbers there."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from gpuperf_engine.affine.lanes import FULL, Lanes, reduce
from gpuperf_engine.affine.pieces import Piece
from gpuperf_engine.affine.space import Refusal, Reparametrise, Space, Split
from gpuperf_engine.affine.values import Affine, Mask
from gpuperf_engine.interp.values import LaneValue, dtype_of
from gpuperf_engine.isa.primitives import Value, brev, clz, high, maximum, minimum, popc, select
from gpuperf_engine.isa.types import ScalarType, scalar_type
from gpuperf_engine.symbolic.operands import concretely

TYPES = [scalar_type(f"{kind}{bits}") for kind in "us" for bits in (16, 32, 64)]
Program = Callable[[list[Value]], list[Value]]
Word = Callable[[Value, Value, Value], Value]
WORDS: list[Word] = [
    *[lambda a, b, c: a + b, lambda a, b, c: a - b, lambda a, b, c: -a, lambda a, b, c: ~a] * 2,
    lambda a, b, c: a * 3,
    lambda a, b, c: a * b,
    lambda a, b, c: high(a, a.constant(0x92492493, a.type)),
    lambda a, b, c: high(a, a.constant(-5, a.type)) + a >> 2,
    lambda a, b, c: a.div(7),
    lambda a, b, c: a.rem(-6),
    lambda a, b, c: a.div(b),
    lambda a, b, c: a << 5,
    lambda a, b, c: (a << 3) | (b & 7),
    lambda a, b, c: a >> 3,
    lambda a, b, c: (a >> 1) - (b >> 2),
    lambda a, b, c: a & 0xF0,
    lambda a, b, c: a & -8,
    lambda a, b, c: a ^ 21,
    lambda a, b, c: a | b,
    lambda a, b, c: minimum(a, b),
    lambda a, b, c: maximum(a, 5),
    lambda a, b, c: abs(a),
    lambda a, b, c: select(a.compare("lt", b), a, c),
    lambda a, b, c: select(a.compare("eq", b) | b.compare("ge", c), b, c + 1),
    lambda a, b, c: select(~a.compare("ne", c), a + b, c),
    lambda a, b, c: a.compare("le", b).apply("predicate_to", type=a.type),
    lambda a, b, c: a.convert(scalar_type("s64")).convert(a.type) + a.convert(scalar_type("u8")).convert(a.type),
    lambda a, b, c: a.convert(scalar_type("s16"), saturate=True).convert(a.type),
    lambda a, b, c: (popc(a.bits(scalar_type(f"u{a.type.bits}"))) + clz(a)).convert(a.type),
    lambda a, b, c: brev(a),
]  # fmt: skip


def random_program(chance: random.Random) -> Program:
    """A few words on what is there, the results added to it."""
    plan = [
        (chance.choice(WORDS), [chance.randrange(100) for _ in range(3)]) for _ in range(chance.randint(1, 4))
    ]

    def program(values: list[Value]) -> list[Value]:
        found = list(values)
        for word, places in plan:
            found.append(word(*(found[place % len(found)] for place in places)))
        return found[len(values) :]

    return program


def random_lanes(chance: random.Random, symbols: int, bits: int) -> Lanes:
    big = chance.choice([40, 1 << 8, 1 << (bits - 1), 1 << bits])
    start = chance.randrange(-big, big)
    stride = chance.choice([0, 1, 1, 4, chance.randrange(-big, big)])
    base = (start,) if not stride else [start + stride * lane for lane in range(32)]

    def linear() -> tuple[tuple[int, int], ...]:
        options = [
            0,
            1,
            -1,
            32,
            256,
            chance.randrange(-1000, 1000),
            chance.randrange(-big, big),
            1 << (bits - 3),
        ]
        terms = [(s, chance.choice(options)) for s in range(symbols)]
        return tuple((s, c) for s, c in terms if c)

    if chance.random() < 0.7:
        return reduce(Lanes(base, ((FULL, linear(), 0),)), bits)
    mask = chance.getrandbits(32)
    return reduce(Lanes(base, ((mask, linear(), 0), (FULL & ~mask, linear(), 0))), bits)


def points(piece: Piece) -> Iterator[tuple[int, ...]]:
    for point in itertools.product(*(range(low, last + 1) for low, last in piece.box)):
        if all(sum(c * point[s] for s, c in form) >= least for form, least in piece.lower.items()):
            yield point


def numbers(lanes: Lanes, point: tuple[int, ...], bits: int) -> list[int]:
    """The bit patterns of the 32 lanes at a point."""
    found = [0] * 32
    for mask, linear, shift in lanes.parts:
        offset = sum(c * point[s] for s, c in linear)
        for lane in range(32):
            if mask >> lane & 1:
                found[lane] = (lanes.base[lane % len(lanes.base)] + offset >> shift) & ((1 << bits) - 1)
    return found


def concrete(patterns: list[int], kind: ScalarType) -> LaneValue:
    dtype = dtype_of(kind)
    return LaneValue(np.array(patterns, f"u{dtype.itemsize}").view(dtype), kind)


def check(
    program: Program, kind: ScalarType, piece: Piece, inputs: list[Lanes], active: int
) -> Counter[object]:
    """Compare everywhere; returns how often each input was met. Raises ``Refusal``."""
    space = Space(concretely)
    space.piece, space.active = piece, active
    try:
        results = program([Affine(lanes, kind, space) for lanes in inputs])
    except Split as split:
        met: Counter[object] = Counter()
        for cell in split.cells:
            part = piece.cut(cell)
            if not part.empty:
                met += check(program, kind, part, inputs, active)
        return met
    except Reparametrise as change:
        low, quotient = piece.box[change.symbol][0], len(piece.box)
        renamed = [
            lanes.substituted(change.symbol, low, quotient, change.period, kind.bits) for lanes in inputs
        ]
        return check(program, kind, piece.reparametrised(change.symbol, change.period), renamed, active)
    met = Counter()
    for point in points(piece):
        given = [numbers(lanes, point, kind.bits) for lanes in inputs]
        met[tuple(map(tuple, given))] += 1
        with np.errstate(all="ignore"):
            expected = program([concrete(patterns, kind) for patterns in given])
        for found, wanted in zip(results, expected, strict=True):
            assert isinstance(wanted, LaneValue) and found.type == wanted.type
            if isinstance(found, Mask):
                mine = [found.mask >> lane & 1 for lane in range(32)]
            else:
                assert isinstance(found, Affine)
                mine = numbers(found.lanes, point, found.type.bits)
            theirs = [
                int(item) & ((1 << max(8, wanted.type.bits)) - 1) for item in np.resize(wanted.data, 32)
            ]
            for lane in range(32):
                if active >> lane & 1:
                    assert mine[lane] == theirs[lane], (point, lane)
    assert piece.weight == met.total()
    return met


@pytest.mark.parametrize("part", (0, 1, 2, 3, 4, 125, 141))
def test_words(part: int) -> None:
    done = 0
    for seed in range(25):
        chance = random.Random(f"{part} {seed}")
        kind, symbols = chance.choice(TYPES), chance.randint(1, 3)
        far = chance.choice([0, 0, 1 << 31, (1 << 31) - 4])
        box = [(far, far + chance.randint(0, 60 // symbols**2)) for _ in range(symbols)]
        inputs = [random_lanes(chance, symbols, kind.bits) for _ in range(3)]
        active = chance.choice([FULL, FULL, 1, 0x0000FFFF, chance.getrandbits(32) | 2])
        piece = Piece(box)
        try:
            met = check(random_program(chance), kind, piece, inputs, active)
        except Refusal:
            continue
        expected = Counter(
            tuple(tuple(numbers(lanes, point, kind.bits)) for lanes in inputs) for point in points(Piece(box))
        )
        assert met == expected
        done += 1
    assert done >= 15
