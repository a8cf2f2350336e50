"""Matrix instructions of a warp (manual: mma, ldmatrix, stmatrix, movmatrix).

The semantics of products are in ``products``, those of sparse matrices in ``sparse``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import effects
from ..fragments import LANES, Move, Moves
from ..model import Applied
from ..primitives import Value, choose, concat, permute, split
from ..table import Options, instruction
from .products import Product

MATRIX: Options = {"category": "matrix", "unit": "tensor", "effect": effects.MATRIX}
SHARED: Options = {
    "category": "matrix",
    "unit": "lsu",
    "effect": effects.MATRIX_LOAD,
    "num": "x1 x2 x4",
    "space": "shared shared::cta",
    "requires": {"shared::cta": ((7, 8), 75)},
    # eight lanes for each matrix provide the addresses of its rows
    "applied": Applied(moves=lambda modifiers: Moves((Move(4, 4, 8 * int(str(modifiers["num"])[1:])),))),
}


def fragment_of(words: Sequence[Value], matrix: int) -> Value:
    """A lane's word of the row with the number of its group."""
    rows = tuple(8 * matrix + lane // 4 for lane in range(LANES))
    fragment = permute(words[0], rows)
    for index in (1, 2, 3):
        fragment = choose(
            tuple(lane % 4 == index for lane in range(LANES)), permute(words[index], rows), fragment
        )
    return fragment


def _word(fragments: Sequence[Value], index: int) -> Value:
    """One of the four words of the row whose address a lane provides."""
    holders = tuple(4 * (lane % 8) + index for lane in range(LANES))
    word = permute(fragments[0], holders)
    for matrix, fragment in enumerate(fragments[1:], 1):
        word = choose(tuple(lane // 8 == matrix for lane in range(LANES)), permute(fragment, holders), word)
    return word


@instruction(
    "ldmatrix.sync.aligned.m8n8.num{.trans}{.space}.b16 d:b32*num, [a]", since=(6, 5), target=75, **SHARED
)
def ldmatrix(*words: Value, num: str, trans: bool | None) -> tuple[Value, ...]:
    """Loads 8×8 matrices of 16-bit elements, a row from each address, as fragments."""
    fragments = tuple(fragment_of(words, matrix) for matrix in range(int(num[1:])))
    return tuple(map(transpose, fragments)) if trans else fragments


@instruction(
    "stmatrix.sync.aligned.m8n8.num{.trans}{.space}.b16 [a], b:b32*num",
    since=(7, 8),
    target=90,
    **{**SHARED, "effect": effects.MATRIX_STORE},
)
def stmatrix(*fragments: Value, trans: bool | None) -> tuple[Value, ...]:
    """Stores fragments as 8×8 matrices of 16-bit elements, a row to each address."""
    stored = tuple(map(transpose, fragments)) if trans else fragments
    return tuple(_word(stored, index) for index in range(4))


@instruction(
    "movmatrix.sync.aligned.m8n8.trans.b16 d:b32, a:b32%",
    since=(7, 8),
    target=75,
    **MATRIX,
)
def movmatrix(a: Value) -> Value:
    """Transposes a fragment."""
    return transpose(a)


#: a lane's two elements of a transposed 8×8 matrix: the lanes that hold them, and whether in their upper half
_ROWS = [tuple(4 * (2 * (lane % 4) + half) + lane // 8 for lane in range(LANES)) for half in (0, 1)]
_UPPER = tuple(lane // 4 % 2 == 1 for lane in range(LANES))


def transpose(fragment: Value) -> Value:
    """An 8×8 matrix of 16-bit elements, rows for columns."""
    low, high = split(fragment, 2)
    return concat([choose(_UPPER, permute(high, rows), permute(low, rows)) for rows in _ROWS])


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
    syntax: str, semantics: Callable[..., tuple[Value, ...]], documentation: str = "", **options: Any
) -> None:
    instruction(syntax, documentation=documentation or _PRODUCT, **options, **MATRIX)(semantics)


def _plain(syntax: str, product: Product, **options: Any) -> None:
    _row(syntax, lambda *registers: product(registers), **options)


def _volta(syntax: str, product: Product) -> None:
    def semantics(*registers: Value, alayout: str, blayout: str) -> tuple[Value, ...]:
        return product(registers, layout=(alayout, blayout))

    _row(syntax, semantics, alayout="row col", blayout="row col", since=(6, 4), target=70)


def _double(syntax: str, product: Product, **options: Any) -> None:
    def semantics(*registers: Value, rnd: str) -> tuple[Value, ...]:
        return product(registers, rounding=rnd)

    _row(syntax, semantics, rnd="rn rz rm rp", **options)


def _typed(syntax: str, product: Product, **options: Any) -> None:
    def semantics(*registers: Value, atype: str, btype: str) -> tuple[Value, ...]:
        return product(registers, left=str(atype), right=str(btype))

    _row(syntax, semantics, **options)


def _integer(syntax: str, product: Product, types: str, **options: Any) -> None:
    def semantics(*registers: Value, satfinite: bool | None, atype: str, btype: str) -> tuple[Value, ...]:
        return product(registers, left=str(atype), right=str(btype), satfinite=bool(satfinite))

    _row(syntax, semantics, atype=types, btype=types, **options)


def _bit(syntax: str, product: Product, **options: Any) -> None:
    def semantics(*registers: Value, op: str) -> tuple[Value, ...]:
        return product(registers, op=op)

    documentation = "d = popc(a op b) + c on fragments of a warp."
    _row(syntax, semantics, documentation, op="xor and", requires={"and": ((7, 1), 80)}, **options)


for _shape, _a, _b, _since, _target in HALVES:
    for _d, _n, _reg in (("f16", 2, "b32"), ("f32", 4, "f32")):
        _plain(
            f"mma.sync.aligned.{_shape}.row.col.{_d}.f16.f16.{_d} d:{_reg}*{_n}, a:b32*{_a}, b:b32*{_b}, c:{_reg}*{_n}",
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
for _shape, _a, _b in (("m16n8k16", 2, 1), ("m16n8k32", 4, 2)):
    for _d, _n, _reg in (("f16", 2, "b32"), ("f32", 4, "f32")):
        if (_shape, _d) != ("m16n8k32", "f32"):
            _typed(
                f"mma.sync.aligned.{_shape}.row.col.{_d}.atype.btype.{_d} d:{_reg}*{_n}, a:b32*{_a}, b:b32*{_b}, c:{_reg}*{_n}",
                Product(_shape, _d, "", "", (_a, _b, _n)),
                atype="e4m3 e5m2",
                btype="e4m3 e5m2",
                since=(8, 7),
                target=89,
            )
for _d, _n, _reg in (("f16", 2, "b32"), ("f32", 4, "f32")):
    _typed(
        f"mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.{_d}.atype.btype.{_d} d:{_reg}*{_n}, a:b32*4, b:b32*2, c:{_reg}*{_n}",
        Product("m16n8k32", _d, "", "", (4, 2, _n)),
        atype="e4m3 e5m2 e3m2 e2m3 e2m1",
        btype="e4m3 e5m2 e3m2 e2m3 e2m1",
        since=(8, 7),
        only="120f",
    )
