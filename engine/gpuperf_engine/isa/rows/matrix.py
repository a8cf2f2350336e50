"""Matrix instructions of a warp (manual: mma, ldmatrix, stmatrix, movmatrix). PYTEST_DONT_REWRITE

Products are exact. Floating-point sums begin with c and add the products in ascending k in double precision; the sum is rounded
once, to nearest even, to the type of d. (Hardware sums in another order and with fewer bits; the manual leaves both open.) For
``.f64`` every step is one ``fma``, as the manual says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..fragments import LANES, Layout, Move, Moves, Place, Tile, gather, layouts
from ..table import instruction
from ..types import ScalarType, scalar_type
from ..words import Value, choose, concat, fma, maximum, minimum, permute, popc, split
from .narrow import FORMATS, from_eight

MATRIX: dict[str, Any] = {"category": "matrix", "unit": "tensor", "effect": "matrix"}
SHARED: dict[str, Any] = {
    "category": "matrix",
    "unit": "lsu",
    "effect": "matrix",
    "num": "x1 x2 x4",
    "space": "shared shared::cta",
    "requires": {"shared::cta": ((7, 8), 75)},
    # the first eight lanes for each matrix give the address of a row
    "moves": lambda modifiers: Moves((Move(4, 4, 8 * int(modifiers["num"][1:])),)),
}


def _fragment(words: Sequence[Value], matrix: int) -> Value:
    """A lane's word of the row that is its group's."""
    rows = tuple(8 * matrix + lane // 4 for lane in range(LANES))
    found = permute(words[0], rows)
    for place in (1, 2, 3):
        found = choose(tuple(lane % 4 == place for lane in range(LANES)), permute(words[place], rows), found)
    return found


def _word(fragments: Sequence[Value], place: int) -> Value:
    """Of the row whose address a lane gives, one of the four words."""
    holders = tuple(4 * (lane % 8) + place for lane in range(LANES))
    found = permute(fragments[0], holders)
    for matrix, fragment in enumerate(fragments[1:], 1):
        found = choose(tuple(lane // 8 == matrix for lane in range(LANES)), permute(fragment, holders), found)
    return found


@instruction(
    "ldmatrix.sync.aligned.m8n8.num{.trans}{.space}.b16 d:b32*num, [a]", since=(6, 5), target=75, **SHARED
)
def ldmatrix(*words: Value, num: str, trans: bool | None) -> tuple[Value, ...]:
    """Loads 8×8 matrices of 16-bit elements, a row from each address, as fragments."""
    found = tuple(_fragment(words, matrix) for matrix in range(int(num[1:])))
    return tuple(map(transpose, found)) if trans else found


@instruction(
    "stmatrix.sync.aligned.m8n8.num{.trans}{.space}.b16 [a], b:b32*num", since=(7, 8), target=90, **SHARED
)
def stmatrix(*fragments: Value, trans: bool | None) -> tuple[Value, ...]:
    """Stores fragments as 8×8 matrices of 16-bit elements, a row to each address."""
    stored = tuple(map(transpose, fragments)) if trans else fragments
    return tuple(_word(stored, place) for place in range(4))


@instruction(
    "movmatrix.sync.aligned.m8n8.trans.b16 d:b32, a:b32",
    since=(7, 8),
    target=75,
    **MATRIX,
)
def movmatrix(a: Value) -> Value:
    """Transposes a fragment."""
    return transpose(a)


F32, F64, U32, S32, S64 = (scalar_type(name) for name in ("f32", "f64", "u32", "s32", "s64"))
#: a lane's two elements of a transposed 8×8 matrix: the lanes that hold them, and whether in their upper half
_ROWS = [tuple(4 * (2 * (lane % 4) + half) + lane // 8 for lane in range(LANES)) for half in (0, 1)]
_UPPER = tuple(lane // 4 % 2 == 1 for lane in range(LANES))


def transpose(fragment: Value) -> Value:
    """An 8×8 matrix of 16-bit elements, rows for columns."""
    low, high = split(fragment, 2)
    return concat([choose(_UPPER, permute(high, rows), permute(low, rows)) for rows in _ROWS])


Numbers = Callable[[Value, int], Sequence[Value]]


def _halves(name: str) -> Callable[[Value], Sequence[Value]]:
    return lambda register: [half.bits(scalar_type(name)).convert(F32) for half in split(register, 2)]


def _tf32(register: Value) -> Sequence[Value]:
    """The low 13 bits are no part of the number."""
    return [(register.bits(U32) & 0xFFFFE000).bits(F32)]


def _integers(name: str) -> Callable[[Value], Sequence[Value]]:
    bits, signed = int(name[1:]), name[0] == "s"

    def unpack(register: Value) -> Sequence[Value]:
        whole = register.bits(S32 if signed else U32)
        return [
            ((whole << (32 - bits * (place + 1))) >> (32 - bits)).bits(S32) for place in range(32 // bits)
        ]

    return unpack


def _eights(name: str) -> Callable[[Value], Sequence[Value]]:
    return lambda register: [
        from_eight(byte, FORMATS[f"{name}x2"]).convert(F64) for byte in split(register, 4)
    ]


UNPACK: dict[str, Callable[[Value], Sequence[Value]]] = {
    "f16": _halves("f16"),
    "bf16": _halves("bf16"),
    "tf32": _tf32,
    "f64": lambda register: [register.bits(F64)],
    "b1": lambda register: [register.bits(U32)],
    **{name: _integers(name) for name in ("u8", "s8", "u4", "s4")},
    **{name: _eights(name) for name in ("e4m3", "e5m2")},
}
PER_REGISTER = {
    "f16": 2,
    "bf16": 2,
    "tf32": 1,
    "f64": 1,
    "b1": 1,
    "u8": 4,
    "s8": 4,
    "u4": 8,
    "s4": 8,
    "e4m3": 4,
    "e5m2": 4,
}


class _Fetched:
    """The elements of one matrix as the lanes want them; every distribution over the lanes is made once."""

    def __init__(self, fragment: Sequence[Value], layout: Layout, type: ScalarType) -> None:
        self.fragment, self.layout, self.type = fragment, layout, type
        self.moved: dict[tuple[int, tuple[int, ...]], Value] = {}

    def __call__(self, wanted: list[Place]) -> Value:
        """In every lane the element that it wants."""
        found: Value | None = None
        for element, lanes, marked in gather(self.layout, len(self.fragment), wanted):
            value = self.moved.get((element, lanes))
            if value is None:
                value = self.moved[element, lanes] = permute(self.fragment[element], lanes).convert(self.type)
            found = value if found is None else choose(marked, value, found)
        assert found is not None
        return found


def _multiply(
    a: Sequence[Value],
    b: Sequence[Value],
    c: Sequence[Value],
    shape: tuple[Layout, Layout, Layout, Layout],
    depth: int,
    step: Callable[[Value, Value, Value], Value],
) -> list[Value]:
    """The elements of D: ``step(a, b, sum)`` over k from the elements of C on."""
    left, right, before, after = shape
    type = F64 if a[0].type.is_float else a[0].type
    first, second, third = _Fetched(a, left, type), _Fetched(b, right, type), _Fetched(c, before, c[0].type)
    made = []
    for element in range(len(c)):
        places = [after(lane, element) for lane in range(LANES)]
        total = third(places)
        for k in range(depth):
            x = first([(pair, row, k) for pair, row, _ in places])
            y = second([(pair, k, column) for pair, _, column in places])
            total = step(x, y, total)
        made.append(total)
    return made


def _sum(a: Value, b: Value, total: Value) -> Value:
    return total + a * b


def sizes(shape: str) -> tuple[int, int, int]:
    """m, n and k of a shape such as ``m16n8k16``."""
    m, _, rest = shape[1:].partition("n")
    n, _, k = rest.partition("k")
    return int(m), int(n), int(k)


class Product:
    """The meaning of one shape and its types: d = a · b + c. ``counts`` are the registers of a, b and c."""

    def __init__(
        self,
        shape: str,
        result: str,
        left: str,
        right: str,
        counts: tuple[int, int, int],
        added: str = "",
        tiles: bool = False,
    ) -> None:
        self.left, self.right, self.result, self.added = left, right, result, added or result
        self.rows, self.columns, self.depth = sizes(shape)
        self.counts, self.shape, self.tiles = counts, shape, tiles

    def __call__(
        self, registers: Sequence[Value], *, layout: tuple[str, str] = ("row", "col"), left: str = "", right: str = "",
        rounding: str = "rn", satfinite: bool = False, op: str = "",
    ) -> tuple[Value, ...]:  # fmt: skip
        left, right = left or self.left, right or self.right
        first, second = self.counts[0], self.counts[0] + self.counts[1]
        a = [number for register in registers[:first] for number in UNPACK[left](register)]
        b = [number for register in registers[first:second] for number in UNPACK[right](register)]
        depth = self.depth // 32 if left == "b1" else self.depth
        if self.tiles:
            bits = 64 if left == "f64" else 32 // PER_REGISTER[left]
            tiles = Tile(self.rows, depth, bits), Tile(depth, self.columns, bits)
            sums = [
                Tile(self.rows, self.columns, scalar_type(name).bits) for name in (self.added, self.result)
            ]
            a, b = a[: tiles[0].elements], b[: tiles[1].elements]
            before, after = (each.place("row") for each in sums)
            shape = tiles[0].place(layout[0]), tiles[1].place(layout[1]), before, after
        else:
            volta = self.shape == "m8n8k4" and left == "f16"
            singles = (*layout, self.added == "f32", self.result == "f32") if volta else None
            shape = layouts(self.rows, PER_REGISTER[left], singles)
        c = self._accumulators(registers[second:], satfinite)
        step: Callable[[Value, Value, Value], Value] = _sum
        if left == "f64":
            step = lambda x, y, total: fma(x, y, total, rounding)  # noqa: E731
        elif left == "b1":
            step = lambda x, y, total: total + popc(x & y if op == "and" else x ^ y).bits(total.type)  # noqa: E731
        elif satfinite:
            step = lambda x, y, total: total + (x * y).convert(S64)  # noqa: E731
        return self._packed(_multiply(a, b, c, shape, depth, step))

    def _accumulators(self, registers: Sequence[Value], satfinite: bool) -> list[Value]:
        if self.added == "f16":
            return [
                half.bits(scalar_type("f16")).convert(F64)
                for register in registers
                for half in split(register, 2)
            ]
        if self.added == "s32":
            return [
                register.bits(S32).convert(S64) if satfinite else register.bits(S32) for register in registers
            ]
        return [register.bits(scalar_type(self.added)).convert(F64) for register in registers]

    def _packed(self, results: list[Value]) -> tuple[Value, ...]:
        if self.result == "f16":
            halves = [value.convert(scalar_type("f16"), rounding="rn") for value in results]
            return tuple(concat(halves[place : place + 2]) for place in range(0, len(halves), 2))
        if self.result == "s32":
            return tuple(value if value.type == S32 else _clamped(value) for value in results)
        return tuple(
            value if value.type.name == self.result else value.convert(F32, rounding="rn")
            for value in results
        )


def _clamped(value: Value) -> Value:
    return minimum(maximum(value, -(1 << 31)), (1 << 31) - 1).convert(S32)


_PRODUCT = "d = a · b + c on fragments of a warp."
#: Shape, elements per thread of a, b and c (32-bit registers, for f64 numbers), version, target.
HALVES = (
    ("m16n8k8", 2, 1, (6, 5), 75),
    ("m16n8k16", 4, 2, (7, 0), 80),
)
TF32 = (("m16n8k4", 2, 1), ("m16n8k8", 4, 2))
DOUBLES = (
    ("m8n8k4", 1, 1, 2, (7, 0), 80),
    ("m16n8k4", 2, 1, 4, (7, 8), 90),
    ("m16n8k8", 4, 2, 4, (7, 8), 90),
    ("m16n8k16", 8, 4, 4, (7, 8), 90),
)
BYTES = (
    ("m8n8k16", 1, 1, 2, (6, 5), 75),
    ("m16n8k16", 2, 1, 4, (7, 0), 80),
    ("m16n8k32", 4, 2, 4, (7, 0), 80),
)
NIBBLES = (
    ("m8n8k32", 1, 1, 2, (6, 5), 75),
    ("m16n8k32", 2, 1, 4, (7, 0), 80),
    ("m16n8k64", 4, 2, 4, (7, 0), 80),
)
BITS = (
    ("m8n8k128", 1, 1, 2, (7, 0), 75),
    ("m16n8k128", 2, 1, 4, (7, 0), 80),
    ("m16n8k256", 4, 2, 4, (7, 0), 80),
)


def _row(
    syntax: str, meaning: Callable[..., tuple[Value, ...]], documentation: str = "", **options: Any
) -> None:
    instruction(syntax, documentation=documentation or _PRODUCT, **options, **MATRIX)(meaning)


def _plain(syntax: str, product: Product, **options: Any) -> None:
    _row(syntax, lambda *registers: product(registers), **options)


def _volta(syntax: str, product: Product) -> None:
    def meaning(*registers: Value, alayout: str, blayout: str) -> tuple[Value, ...]:
        return product(registers, layout=(alayout, blayout))

    _row(syntax, meaning, alayout="row col", blayout="row col", since=(6, 4), target=70)


def _double(syntax: str, product: Product, **options: Any) -> None:
    def meaning(*registers: Value, rnd: str) -> tuple[Value, ...]:
        return product(registers, rounding=rnd)

    _row(syntax, meaning, rnd="rn rz rm rp", **options)


def _typed(syntax: str, product: Product, **options: Any) -> None:
    def meaning(*registers: Value, atype: str, btype: str) -> tuple[Value, ...]:
        return product(registers, left=str(atype), right=str(btype))

    _row(syntax, meaning, **options)


def _integer(syntax: str, product: Product, types: str, **options: Any) -> None:
    def meaning(*registers: Value, satfinite: bool | None, atype: str, btype: str) -> tuple[Value, ...]:
        return product(registers, left=str(atype), right=str(btype), satfinite=bool(satfinite))

    _row(syntax, meaning, atype=types, btype=types, **options)


def _bit(syntax: str, product: Product, **options: Any) -> None:
    def meaning(*registers: Value, op: str) -> tuple[Value, ...]:
        return product(registers, op=op)

    said = "d = popc(a op b) + c on fragments of a warp."
    _row(syntax, meaning, said, op="xor and", requires={"and": ((7, 1), 80)}, **options)


for _shape, _a, _b, _since, _target in HALVES:
    for _d, _n, _held in (("f16", 2, "b32"), ("f32", 4, "f32")):
        _plain(
            f"mma.sync.aligned.{_shape}.row.col.{_d}.f16.f16.{_d} d:{_held}*{_n}, a:b32*{_a}, b:b32*{_b}, c:{_held}*{_n}",
            Product(_shape, _d, "f16", "f16", (_a, _b, _n)),
            since=_since,
            target=_target,
        )
    _plain(
        f"mma.sync.aligned.{_shape}.row.col.f32.bf16.bf16.f32 d:f32*4, a:b32*{_a}, b:b32*{_b}, c:f32*4",
        Product(_shape, "f32", "bf16", "bf16", (_a, _b, 4)),
        since=(7, 0),
        target=80,
    )
for _d, _c, _n, _operands in (
    ("f16", "f16", 4, "d:b32*4, a:b32*2, b:b32*2, c:b32*4"),
    ("f32", "f16", 4, "d:f32*8, a:b32*2, b:b32*2, c:b32*4"),
    ("f32", "f32", 8, "d:f32*8, a:b32*2, b:b32*2, c:f32*8"),
):
    _volta(
        f"mma.sync.aligned.m8n8k4.alayout.blayout.{_d}.f16.f16.{_c} {_operands}",
        Product("m8n8k4", _d, "f16", "f16", (2, 2, _n), _c),
    )
for _shape, _a, _b in TF32:
    _plain(
        f"mma.sync.aligned.{_shape}.row.col.f32.tf32.tf32.f32 d:f32*4, a:b32*{_a}, b:b32*{_b}, c:f32*4",
        Product(_shape, "f32", "tf32", "tf32", (_a, _b, 4)),
        since=(7, 0),
        target=80,
    )
for _shape, _a, _b, _n, _since, _target in DOUBLES:
    _double(
        f"mma.sync.aligned.{_shape}.row.col{{.rnd}}.f64.f64.f64.f64 d:f64*{_n}, a:f64*{_a}, b:f64*{_b}, c:f64*{_n}",
        Product(_shape, "f64", "f64", "f64", (_a, _b, _n)),
        since=_since,
        target=_target,
    )
for _shapes, _types in ((BYTES, "u8 s8"), (NIBBLES, "u4 s4")):
    for _shape, _a, _b, _n, _since, _target in _shapes:
        _integer(
            f"mma.sync.aligned.{_shape}.row.col{{.satfinite}}.s32.atype.btype.s32 "
            f"d:s32*{_n}, a:b32*{_a}, b:b32*{_b}, c:s32*{_n}",
            Product(_shape, "s32", "", "", (_a, _b, _n)),
            types=_types,
            since=_since,
            target=_target,
        )
for _shape, _a, _b, _n, _since, _target in BITS:
    _bit(
        f"mma.sync.aligned.{_shape}.row.col.s32.b1.b1.s32.op.popc d:s32*{_n}, a:b32*{_a}, b:b32*{_b}, c:s32*{_n}",
        Product(_shape, "s32", "b1", "b1", (_a, _b, _n)),
        since=_since,
        target=_target,
    )
_typed(
    "mma.sync.aligned.m16n8k32.row.col.f32.atype.btype.f32 d:f32*4, a:b32*4, b:b32*2, c:f32*4",
    Product("m16n8k32", "f32", "", "", (4, 2, 4)),
    atype="e4m3 e5m2",
    btype="e4m3 e5m2",
    since=(8, 4),
    target=89,
)
