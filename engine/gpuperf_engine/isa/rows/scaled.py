"""Products of blocks with scale factors (manual: mma and mma.sp::ordered_metadata with .block_scale)."""

from __future__ import annotations

from typing import Any

from ..model import Accepts, Applied
from ..primitives import Value
from ..table import Options, instruction
from .matrix import MATRIX
from .products import Fetched, Pairs, Product, dense
from .sparse import CHECKED, SIX, sparse_product, sparsity_of
from .sparsity import Scales

_SCALED = "d = (a · scale_a) · (b · scale_b) + c on fragments of a warp, with a scale for each row or column and part of k."
_CHECKED = (
    "a selector of scale factors that means nothing",
    "the first of ids_a and ids_b is a byte: 0 to 3 with scale_vec::1X, 0 or 2 with 2X, 0 with 4X; the second a thread: "
    "0 or 1 for a, 0 to 3 for b",
)
_SPARSE_CHECKED = (f"{CHECKED[0]}, or {_CHECKED[0]}", f"{CHECKED[1]}; {_CHECKED[1]}")
SCALES = "scale_a:u32%, ids_a:u16*2, scale_b:u32%, ids_b:u16*2"
#: kind, elements, depths of dense and sparse products, whether scale_vec may be left out, scale_vec, type of scale, since
KINDS: tuple[tuple[str, str, int, int, bool, int, str, tuple[int, int]], ...] = (
    ("mxf8f6f4", SIX, 32, 64, True, 1, "ue8m0", (8, 7)),
    ("mxf4", "e2m1", 64, 128, True, 2, "ue8m0", (8, 7)),
    ("mxf4nvf4", "e2m1", 64, 128, False, 2, "ue8m0", (8, 7)),
    ("mxf4nvf4", "e2m1", 64, 128, False, 4, "ue8m0", (9, 1)),
    ("mxf4nvf4", "e2m1", 64, 128, False, 4, "ue4m3", (8, 7)),
)


def _element(name: str, kind: str) -> str:
    """The type of the elements as packed: eight per register for ``mxf4`` kinds."""
    return name if kind == "mxf8f6f4" else "e2m1x8"


def _dense(syntax: str, kind: str, scales: Scales, depth: int, **options: Any) -> None:
    product = Product(f"m16n8k{depth}", "f32", "", "", (4, 2, 4))

    def semantics(*registers: Value, atype: str, btype: str) -> tuple[Value, ...]:
        selectors = registers[10:]

        def around(first: Fetched, second: Fetched) -> Pairs:
            return scales.pairs(dense(first, second, depth), selectors, depth)

        left, right = (_element(str(name), kind) for name in (atype, btype))
        results = product(registers[:10], around=around, left=left, right=right)
        return (*results, scales.refused(selectors))

    instruction(syntax, documentation=_SCALED, applied=Applied(checked=_CHECKED), **options, **MATRIX)(
        semantics
    )


def _sparse(syntax: str, kind: str, scales: Scales, depth: int, **options: Any) -> None:
    shape = f"m16n8k{depth}"
    product = Product(shape, "f32", "", "", (4, 4, 4))

    def semantics(*operands: Value, atype: str, btype: str) -> tuple[Value, ...]:
        *registers, metadata, selector = operands[:14]
        assert isinstance(selector, int)
        selectors = operands[14:]
        left, right = (_element(str(name), kind) for name in (atype, btype))
        *results, bad = sparse_product(
            product, sparsity_of(shape, left, 2), (*registers, metadata), selector, True,
            lambda pairs: scales.pairs(pairs, selectors, depth // 2), left=left, right=right,
        )  # fmt: skip
        return (*results, bad | scales.refused(selectors))

    documentation = _SCALED.replace("warp,", "warp, a sparse,")
    constants = {"selector": (lambda number: number == 0, "0")}
    instruction(
        syntax,
        documentation=documentation,
        applied=Applied(checked=_SPARSE_CHECKED),
        accepts=Accepts(constants=constants),
        **options,
        **MATRIX,
    )(semantics)


for _kind, _types, _depth, _deep, _default, _count, _scale, _since in KINDS:
    _vector = f".scale_vec::{_count}X"
    _words = f"kind::{_kind}.block_scale{'{' + _vector + '}' if _default else _vector}.f32.atype.btype.f32.{_scale}"
    _options: Options = {"atype": _types, "btype": _types, "since": _since, "only": "120f"}
    _dense(
        f"mma.sync.aligned.m16n8k{_depth}.row.col.{_words} d:f32*4, a:b32*4, b:b32*2, c:f32*4, {SCALES}",
        _kind,
        Scales(_count, _scale),
        _depth,
        **_options,
    )
    _sparse(
        f"mma.sp::ordered_metadata.sync.aligned.m16n8k{_deep}.row.col.{_words} "
        f"d:f32*4, a:b32*4, b:b32*4, c:f32*4, metadata:u32%, selector:imm, {SCALES}",
        _kind,
        Scales(_count, _scale),
        _deep,
        **{**_options, "only": "120f" if _kind == "mxf8f6f4" else "120a 121a"},
    )
