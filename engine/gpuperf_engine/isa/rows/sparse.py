"""Products with a sparse matrix A (manual: mma.sp, mma.sp::ordered_metadata)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..model import Accepts, Applied, Constants
from ..primitives import Value
from ..table import Options, instruction
from .matrix import MATRIX
from .products import PER_REGISTER, Pairs, Product, sizes
from .sparsity import Sparsity

__all__ = ["CHECKED", "selectors", "sparse_product", "sparsity_of"]

CHECKED = (
    "sparsity metadata or selector that means nothing",
    "the two indices of a group differ, with .sp::ordered_metadata the first is the smaller one (tf32: 0b0100 or 0b1110); "
    "the selector counts the threads of a quad that hold metadata",
)
_SPARSE = "d = a · b + c on fragments of a warp; of a only the elements that may be other than zero are held."
BOTH: Options = {
    "spvariant": "sp sp::ordered_metadata",
    "applied": Applied(checked=CHECKED),
    "documentation": _SPARSE,
    **MATRIX,
}
#: shape, elements per thread of a and b (32-bit registers), pieces of k with metadata of their own
HALVES = (("m16n8k16", 2, 2, 1), ("m16n8k32", 4, 4, 2))
TF32 = (("m16n8k8", 2, 2, 1), ("m16n8k16", 4, 4, 2))
BYTES = (("m16n8k32", 2, 2, 1), ("m16n8k64", 4, 4, 2))
NIBBLES = (("m16n8k64", 2, 2, 1), ("m16n8k128", 4, 4, 2))
ORDERED = {"sp::ordered_metadata": ((8, 5), 80)}
SIX = "e4m3 e5m2 e3m2 e2m3 e2m1"


def sparse_product(
    product: Product,
    sparsity: Sparsity,
    registers: tuple[Value, ...],
    selector: int,
    ordered: bool,
    scaled: Callable[[Pairs], Pairs] | None = None,
    **modifiers: Any,
) -> tuple[Value, ...]:
    """The registers of d, and the lanes with invalid metadata, which is the operand after c."""
    metadata = registers[sum(product.counts)]

    def around(first: Any, second: Any) -> Pairs:
        pairs = sparsity.pairs(first, second, metadata, selector)
        return pairs if scaled is None else scaled(pairs)

    results = product(registers, around=around, **modifiers)
    return (*results, sparsity.refused(metadata, selector, ordered))


def selectors(sparsity: Sparsity) -> Constants:
    """Accepted sparsity selectors: 0 … 3 if one thread of a quad provides the metadata, 0 and 1 for two threads, 0 for all four."""
    count = max(1, 4 // sparsity.threads)
    return {"selector": (lambda number: 0 <= number < count, f"0 to {count - 1}" if count > 1 else "0")}


def sparsity_of(shape: str, type: str, segments: int) -> Sparsity:
    """The sparsity of a shape with elements of a type."""
    return Sparsity(32 // PER_REGISTER[type], sizes(shape)[2], segments)


def _row(syntax: str, product: Product, sparsity: Sparsity, **options: Any) -> None:
    def semantics(*operands: Value, spvariant: str) -> tuple[Value, ...]:
        *registers, selector = operands
        return sparse_product(product, sparsity, tuple(registers), _number(selector), spvariant != "sp")

    instruction(syntax, accepts=Accepts(constants=selectors(sparsity)), **{**BOTH, **options})(semantics)


def _typed(syntax: str, product: Product, sparsity: Sparsity, **options: Any) -> None:
    def semantics(*operands: Value, spvariant: str, atype: str, btype: str) -> tuple[Value, ...]:
        *registers, selector = operands
        return sparse_product(
            product, sparsity, tuple(registers), _number(selector), spvariant != "sp", left=str(atype), right=str(btype)
        )  # fmt: skip

    instruction(syntax, accepts=Accepts(constants=selectors(sparsity)), **{**BOTH, **options})(semantics)


def _integer(syntax: str, product: Product, sparsity: Sparsity, types: str, **options: Any) -> None:
    def semantics(
        *operands: Value, spvariant: str, satfinite: bool | None, atype: str, btype: str
    ) -> tuple[Value, ...]:
        *registers, selector = operands
        return sparse_product(
            product, sparsity, tuple(registers), _number(selector), spvariant != "sp",
            satfinite=bool(satfinite), left=str(atype), right=str(btype),
        )  # fmt: skip

    instruction(
        syntax,
        atype=types,
        btype=types,
        accepts=Accepts(constants=selectors(sparsity)),
        **{**BOTH, **options},
    )(semantics)


def _number(selector: object) -> int:
    assert isinstance(selector, int)
    return selector


def operands(register: str, counts: tuple[int, int, int]) -> str:
    """The operands of a sparse product, in the notation of syntax lines."""
    a, b, c = counts
    return f"d:{register}*{c}, a:b32*{a}, b:b32*{b}, c:{register}*{c}, metadata:u32%, selector:imm"


for _shape, _a, _b, _segments in HALVES:
    for _d, _n, _register in (("f16", 2, "b32"), ("f32", 4, "f32")):
        _row(
            f"mma.spvariant.sync.aligned.{_shape}.row.col.{_d}.f16.f16.{_d} {operands(_register, (_a, _b, _n))}",
            Product(_shape, _d, "f16", "f16", (_a, _b, _n)),
            sparsity_of(_shape, "f16", _segments),
            since=(7, 1),
            target=80,
            requires=ORDERED,
        )
    _row(
        f"mma.spvariant.sync.aligned.{_shape}.row.col.f32.bf16.bf16.f32 {operands('f32', (_a, _b, 4))}",
        Product(_shape, "f32", "bf16", "bf16", (_a, _b, 4)),
        sparsity_of(_shape, "bf16", _segments),
        since=(7, 1),
        target=80,
        requires=ORDERED,
    )
for _shape, _a, _b, _segments in TF32:
    _row(
        f"mma.spvariant.sync.aligned.{_shape}.row.col.f32.tf32.tf32.f32 {operands('f32', (_a, _b, 4))}",
        Product(_shape, "f32", "tf32", "tf32", (_a, _b, 4)),
        sparsity_of(_shape, "tf32", _segments),
        since=(7, 1),
        target=80,
        requires=ORDERED,
    )
for _shapes, _types in ((BYTES, "u8 s8"), (NIBBLES, "u4 s4")):
    for _shape, _a, _b, _segments in _shapes:
        _integer(
            f"mma.spvariant.sync.aligned.{_shape}.row.col{{.satfinite}}.s32.atype.btype.s32 {operands('s32', (_a, _b, 4))}",
            Product(_shape, "s32", "", "", (_a, _b, 4)),
            sparsity_of(_shape, _types[:2], _segments),
            _types,
            since=(7, 1),
            target=80,
            requires=ORDERED,
        )
_EIGHT = sparsity_of("m16n8k64", "e4m3", 2)
_typed(
    f"mma.spvariant.sync.aligned.m16n8k64.row.col.f32.atype.btype.f32 {operands('f32', (4, 4, 4))}",
    Product("m16n8k64", "f32", "", "", (4, 4, 4)),
    _EIGHT,
    atype="e4m3 e5m2",
    btype="e4m3 e5m2",
    since=(8, 4),
    target=89,
    requires={"sp::ordered_metadata": ((8, 5), 89)},
)
for _d, _n, _register in (("f16", 2, "b32"), ("f32", 4, "f32")):
    _typed(
        f"mma.spvariant.sync.aligned.m16n8k64.row.col.kind::f8f6f4.{_d}.atype.btype.{_d} {operands(_register, (4, 4, _n))}",
        Product("m16n8k64", _d, "", "", (4, 4, _n)),
        _EIGHT,
        atype=SIX,
        btype=SIX,
        spvariant="sp::ordered_metadata",
        since=(8, 7),
        only="120f",
    )
