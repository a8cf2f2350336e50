"""Matrix instructions on opaque fragments (manual: wmma.load, wmma.store, wmma.mma).

The manual does not specify which lane holds which element; ``fragments.Tile`` describes the layout used here. Sums are those of
``mma``.
"""

from __future__ import annotations

from .. import effects
from ..fragments import Tile, tile_of
from ..model import Applied
from ..primitives import Value, concat, split
from ..table import Options, instruction
from ..types import scalar_type
from .matrix import MATRIX
from .products import Product, sizes

MOVES: Options = {
    "category": "matrix",
    "unit": "lsu",
    "space": "global shared shared::cta",
}
SHAPES = ("m16n16k16", "m8n32k16", "m32n8k16")
#: multiplicand types: bits, shapes, version, target
TYPES = {
    "f16": (16, SHAPES, (6, 0), 70),
    "bf16": (16, SHAPES, (7, 0), 80),
    "tf32": (32, ("m16n16k8",), (7, 0), 80),
    "u8": (8, SHAPES, (6, 3), 72),
    "s8": (8, SHAPES, (6, 3), 72),
    "f64": (64, ("m8n8k4",), (7, 0), 80),
    "u4": (4, ("m8n8k32",), (6, 3), 75),
    "s4": (4, ("m8n8k32",), (6, 3), 75),
    "b1": (1, ("m8n8k128",), (6, 3), 75),
}
#: accumulator types: bits of an element, and the shapes with version and target
SUMS = {
    "f16": (16, {shape: ((6, 0), 70) for shape in SHAPES}),
    "f32": (32, {**{shape: ((6, 0), 70) for shape in SHAPES}, "m16n16k8": ((7, 0), 80)}),
    "s32": (
        32,
        {**{shape: ((6, 3), 72) for shape in SHAPES}, "m8n8k32": ((6, 3), 75), "m8n8k128": ((6, 3), 75)},
    ),
    "f64": (64, {"m8n8k4": ((7, 0), 80)}),
}
NEW_SHAPES = {"m8n32k16": ((6, 1), 70), "m32n8k16": ((6, 1), 70)}
NARROW = ("u4", "s4", "b1")


def registers_of(type: str, elements: int, bits: int, multiplicand: bool) -> str:
    """The registers of a fragment in the notation of syntax lines. Half-precision factors have eight, some elements twice."""
    if type == "f64":
        return f"f64*{elements}"
    if type in ("f32", "s32"):
        return f"{type}*{elements}"
    return f"b32*{8 if type == 'f16' and multiplicand else elements * bits // 32}"


def tile(matrix: str, shape: str, bits: int) -> Tile:
    """The matrix that ``a``, ``b``, ``c`` or ``d`` of a shape is."""
    m, n, k = sizes(shape)
    return tile_of(*{"a": (m, k), "b": (k, n)}.get(matrix, (m, n)), bits)


def packed(values: tuple[Value, ...], registers: int) -> tuple[Value, ...]:
    """Loaded words as the registers of a fragment."""
    if values[0].type.bits == 16:
        values = tuple(concat(values[index : index + 2]) for index in range(0, len(values), 2))
    return tuple(values[index % len(values)] for index in range(registers))


def unpacked(registers: tuple[Value, ...], size: int) -> tuple[Value, ...]:
    """The registers of a fragment as the words to store."""
    if size == 2:
        return tuple(half for register in registers for half in split(register, 2))
    return tuple(register.bits(scalar_type(f"b{register.type.bits}")) for register in registers)


def _load(
    matrix: str, layouts: str, shape: str, type: str, bits: int, since: tuple[int, int], target: int
) -> None:
    whole = tile(matrix, shape, bits)
    registers = registers_of(type, whole.elements, bits, matrix != "c")
    count = int(registers.split("*")[1])

    def semantics(*values: Value) -> tuple[Value, ...]:
        return packed(values, count)

    instruction(
        f"wmma.load.{matrix}.sync.aligned.layout.{shape}{{.space}}.{type} d:{registers}, [a]{{, stride:u32}}",
        documentation="Loads a matrix as fragments.",
        effect=effects.MATRIX_LOAD,
        layout=layouts,
        since=since,
        target=target,
        requires={"shared::cta": ((7, 8), 0)},
        applied=Applied(
            moves=lambda modifiers: whole.moves(
                str(modifiers["layout"]), "row" if matrix == "c" else str(modifiers["layout"])
            )
        ),
        **MOVES,
    )(semantics)


def _store(shape: str, type: str, bits: int, since: tuple[int, int], target: int) -> None:
    whole = tile("d", shape, bits)
    fragment = registers_of(type, whole.elements, bits, False)

    def semantics(*registers: Value, layout: str) -> tuple[Value, ...]:
        return unpacked(registers, 2 if bits == 16 and layout == "col" else 4)

    instruction(
        f"wmma.store.d.sync.aligned.layout.{shape}{{.space}}.{type} [a], b:{fragment}{{, stride:u32}}",
        documentation="Stores fragments as a matrix.",
        effect=effects.MATRIX_STORE,
        layout="row col",
        since=since,
        target=target,
        requires={"shared::cta": ((7, 8), 0)},
        applied=Applied(moves=lambda modifiers: whole.moves(str(modifiers["layout"]), "row")),
        **MOVES,
    )(semantics)


def _needs(shape: str, since: tuple[int, int], target: int) -> tuple[tuple[int, int], int]:
    other = NEW_SHAPES.get(shape, (since, target))
    return max(since, other[0]), max(target, other[1])


for _type, (_bits, _shapes, _since, _target) in TYPES.items():
    for _shape in _shapes:
        for _matrix, _only in (("a", "row"), ("b", "col")):
            _load(
                _matrix,
                _only if _type in NARROW else "row col",
                _shape,
                _type,
                _bits,
                *_needs(_shape, _since, _target),
            )
for _type, (_bits, _sums) in SUMS.items():
    for _shape, _need in _sums.items():
        _load("c", "row col", _shape, _type, _bits, *_needs(_shape, *_need))
        _store(_shape, _type, _bits, *_needs(_shape, *_need))


def _product(syntax: str, product: Product, need: tuple[tuple[int, int], int], sets: Options) -> None:
    def semantics(
        *registers: Value, alayout: str | None = None, blayout: str | None = None, rnd: str | None = None,
        satfinite: bool | None = None, op: str | None = None,
    ) -> tuple[Value, ...]:  # fmt: skip
        layout = alayout or "row", blayout or "col"
        return product(registers, layout=layout, rounding=rnd or "rn", satfinite=bool(satfinite), op=op or "")

    requires = {"and": ((7, 1), 80)} if "op" in sets else {}
    documentation = "d = a · b + c on fragments of a warp."
    since, target = need
    instruction(
        syntax, documentation=documentation, since=since, target=target, requires=requires, **sets, **MATRIX
    )(semantics)


BOTH = {"alayout": "row col", "blayout": "row col"}
#: multiplicand type → types of d and c, the opcode after ``wmma.mma`` with a placeholder for the shape, and its value sets
PRODUCTS: dict[str, tuple[tuple[tuple[str, str], ...], str, Options]] = {
    "f16": (
        (("f16", "f16"), ("f16", "f32"), ("f32", "f16"), ("f32", "f32")),
        ".sync.aligned.alayout.blayout.{shape}.{d}.{c}",
        BOTH,
    ),
    "bf16": ((("f32", "f32"),), ".sync.aligned.alayout.blayout.{shape}.f32.{type}.{type}.f32", BOTH),
    "tf32": ((("f32", "f32"),), ".sync.aligned.alayout.blayout.{shape}.f32.{type}.{type}.f32", BOTH),
    "f64": (
        (("f64", "f64"),),
        ".sync.aligned.alayout.blayout.{shape}{{.rnd}}.f64.f64.f64.f64",
        {"rnd": "rn rz rm rp", **BOTH},
    ),
    "b1": ((("s32", "s32"),), ".op.popc.sync.aligned.row.col.{shape}.s32.b1.b1.s32", {"op": "xor and"}),
    **dict.fromkeys(
        ("u8", "s8"),
        (
            (("s32", "s32"),),
            ".sync.aligned.alayout.blayout.{shape}.s32.{type}.{type}.s32{{.satfinite}}",
            BOTH,
        ),
    ),
    **dict.fromkeys(
        ("u4", "s4"),
        ((("s32", "s32"),), ".sync.aligned.row.col.{shape}.s32.{type}.{type}.s32{{.satfinite}}", {}),
    ),
}


def _products(type: str, shape: str) -> None:
    """All products of one type and shape."""
    bits, _, since, target = TYPES[type]
    sums, opcode, sets = PRODUCTS[type]
    m, n, k = sizes(shape)
    left, right = (registers_of(type, elements // 32, bits, True) for elements in (m * k, k * n))
    for result, added in sums:
        into, start = (registers_of(name, m * n // 32, SUMS[name][0], False) for name in (result, added))
        first, second, third = (int(registers.split("*")[1]) for registers in (left, right, start))
        product = Product(shape, result, type, type, (first, second, third), added, tiles=True)
        written = opcode.format(shape=shape, d=result, c=added, type=type)
        _product(
            f"wmma.mma{written} d:{into}, a:{left}, b:{right}, c:{start}",
            product,
            _needs(shape, since, target),
            sets,
        )


for _type in TYPES:
    for _shape in TYPES[_type][1]:
        _products(_type, _shape)
