"""Matrix instructions of a warp (manual: mma, ldmatrix, stmatrix, movmatrix). Parsed, checked and counted.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from typing import Any

from ..table import declare

MATRIX: dict[str, Any] = {"category": "matrix", "unit": "tensor", "effect": "matrix"}
SHARED: dict[str, Any] = {
    "category": "matrix",
    "unit": "lsu",
    "effect": "matrix",
    "num": "x1 x2 x4",
    "space": "shared shared::cta",
    "requires": {"shared::cta": ((7, 8), 75)},
}

declare(
    "ldmatrix.sync.aligned.m8n8.num{.trans}{.space}.b16 d:b32*num, [a]",
    "Loads 8×8 matrices of 16-bit elements, a row from each address, as fragments.",
    since=(6, 5),
    target=75,
    **SHARED,
)
declare(
    "stmatrix.sync.aligned.m8n8.num{.trans}{.space}.b16 [a], b:b32*num",
    "Stores fragments as 8×8 matrices of 16-bit elements.",
    since=(7, 8),
    target=90,
    **SHARED,
)
declare(
    "movmatrix.sync.aligned.m8n8.trans.b16 d:b32, a:b32",
    "Transposes a fragment.",
    since=(7, 8),
    target=75,
    **MATRIX,
)

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

for _shape, _a, _b, _since, _target in HALVES:
    for _d, _n, _held in (("f16", 2, "b32"), ("f32", 4, "f32")):
        declare(
            f"mma.sync.aligned.{_shape}.row.col.{_d}.f16.f16.{_d} d:{_held}*{_n}, a:b32*{_a}, b:b32*{_b}, c:{_held}*{_n}",
            _PRODUCT,
            since=_since,
            target=_target,
            **MATRIX,
        )
    declare(
        f"mma.sync.aligned.{_shape}.row.col.f32.bf16.bf16.f32 d:f32*4, a:b32*{_a}, b:b32*{_b}, c:f32*4",
        _PRODUCT,
        since=(7, 0),
        target=80,
        **MATRIX,
    )
for _d, _c, _operands in (
    ("f16", "f16", "d:b32*4, a:b32*2, b:b32*2, c:b32*4"),
    ("f32", "f16", "d:f32*8, a:b32*2, b:b32*2, c:b32*4"),
    ("f32", "f32", "d:f32*8, a:b32*2, b:b32*2, c:f32*8"),
):
    declare(
        f"mma.sync.aligned.m8n8k4.alayout.blayout.{_d}.f16.f16.{_c} {_operands}",
        _PRODUCT,
        alayout="row col",
        blayout="row col",
        since=(6, 4),
        target=70,
        **MATRIX,
    )
for _shape, _a, _b in TF32:
    declare(
        f"mma.sync.aligned.{_shape}.row.col.f32.tf32.tf32.f32 d:f32*4, a:b32*{_a}, b:b32*{_b}, c:f32*4",
        _PRODUCT,
        since=(7, 0),
        target=80,
        **MATRIX,
    )
for _shape, _a, _b, _n, _since, _target in DOUBLES:
    declare(
        f"mma.sync.aligned.{_shape}.row.col{{.rnd}}.f64.f64.f64.f64 d:f64*{_n}, a:f64*{_a}, b:f64*{_b}, c:f64*{_n}",
        _PRODUCT,
        rnd="rn rz rm rp",
        since=_since,
        target=_target,
        **MATRIX,
    )
for _shapes, _types in ((BYTES, "u8 s8"), (NIBBLES, "u4 s4")):
    for _shape, _a, _b, _n, _since, _target in _shapes:
        declare(
            f"mma.sync.aligned.{_shape}.row.col{{.satfinite}}.s32.atype.btype.s32 "
            f"d:s32*{_n}, a:b32*{_a}, b:b32*{_b}, c:s32*{_n}",
            _PRODUCT,
            atype=_types,
            btype=_types,
            since=_since,
            target=_target,
            **MATRIX,
        )
for _shape, _a, _b, _n, _since, _target in BITS:
    declare(
        f"mma.sync.aligned.{_shape}.row.col.s32.b1.b1.s32.op.popc d:s32*{_n}, a:b32*{_a}, b:b32*{_b}, c:s32*{_n}",
        "d = popc(a op b) + c on fragments of a warp.",
        op="xor and",
        since=_since,
        target=_target,
        requires={"and": ((7, 1), 80)},
        **MATRIX,
    )
declare(
    "mma.sync.aligned.m16n8k32.row.col.f32.atype.btype.f32 d:f32*4, a:b32*4, b:b32*2, c:f32*4",
    _PRODUCT,
    atype="e4m3 e5m2",
    btype="e4m3 e5m2",
    since=(8, 4),
    target=89,
    **MATRIX,
)
