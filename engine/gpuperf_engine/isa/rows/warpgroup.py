"""Matrix products of a warpgroup, four warps (manual: wgmma.mma_async, wgmma.mma_async.sp and what orders them).

Descriptors specify the matrices in shared memory; A may also be in registers. Each warp computes its sixteen rows of D when it issues
the instruction. At ``wgmma.fence`` the four warps of the warpgroup wait for each other, so that all read the same contents of shared
memory; at ``wgmma.wait_group`` a warp waits until all four have issued the products, so that later stores cannot change their
operands. Sums are those of ``mma``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import effects
from ..model import Accepts, Applied, Form
from ..primitives import Value, popc, select
from ..table import Options, declare, instruction
from ..types import scalar_type
from .products import F32, F64, S32, S64, UNPACK, clamped
from .sparse import CHECKED, selectors, sparsity_of
from .sparsity import Sparsity

__all__ = ["WarpgroupProduct", "left_type"]

F16 = scalar_type("f16")
WARPGROUP: Options = {"category": "matrix", "unit": "tensor", "effect": effects.WARPGROUP}
_EVERY = tuple(range(8, 257, 8))
_FEWER = (8, 16, 24, *range(32, 257, 16))
#: constants that operands accept
_CONSTANTS: dict[str, tuple[Callable[[float], bool], str]] = {
    **dict.fromkeys(("scale", "trans_a", "trans_b"), (lambda given: given in (0, 1), "0 or 1")),
    **dict.fromkeys(("sign_a", "sign_b"), (lambda given: given in (1, -1), "1 or -1")),
}


class WarpgroupProduct:
    """The semantics of a product: ``operation`` 0 and 1 unpack the elements of A and B, 2 computes elements of D (see
    ``evaluation``)."""

    def __init__(self, result: str, sparsity: Sparsity | None = None, satfinite: bool = False) -> None:
        self.result, self.sparsity, self.satfinite = result, sparsity, satfinite

    def __call__(self, operation: int, operands: Sequence[Any], left: str, right: str) -> tuple[Value, ...]:
        if operation < 2:
            return tuple(
                _wide(number) for word in operands for number in UNPACK[right if operation else left](word)
            )
        rows, columns, scale, *values = operands
        count = rows * columns
        depth = (len(values) - count) // (rows + columns)
        if self.sparsity is not None:
            depth = self.sparsity.depth // 2
        first, second = count + rows * depth, columns * (2 * depth if self.sparsity else depth)
        c, a = values[:count], values[count:first]
        b, metadata = values[first : first + second], values[first + second :]
        results = []
        for row in range(rows):
            row_metadata = metadata[row * len(metadata) // rows : (row + 1) * len(metadata) // rows]
            for column in range(columns):
                total = self._start(c[row * columns + column], scale)
                line = b[column * second // columns : (column + 1) * second // columns]
                for k, x in enumerate(a[row * depth : (row + 1) * depth]):
                    y = line[k] if self.sparsity is None else self.sparsity.chosen(line, row_metadata, k)
                    total = self._step(x, y, total, left)
                results.append(self._finish(total))
        return tuple(results)

    def _start(self, c: Value, scale: Value) -> Value:
        if self.result == "s32":
            whole = c.bits(S32)
            kept = select(scale, whole, 0)
            return kept.convert(S64) if self.satfinite else kept
        return select(scale, c.convert(F64), 0.0)

    def _step(self, x: Value, y: Value, total: Value, left: str) -> Value:
        if left == "b1":
            return total + popc(x & y).bits(total.type)
        return total + (x * y).convert(total.type)

    def _finish(self, total: Value) -> Value:
        if self.result == "s32":
            return total if total.type == S32 else clamped(total)
        return total.convert(F16 if self.result == "f16" else F32, rounding="rn")


def left_type(form: Form) -> str:
    """The type of the elements of A."""
    slot = form.modifier("atype")
    return str(slot) if slot else form.opcode.removesuffix(".and.popc").split(".")[-1]


def _wide(number: Value) -> Value:
    return number.convert(F64) if number.type.is_float else number


def _family(
    syntax: str, result: str, depth: int, columns: tuple[int, ...], types: str, version: tuple[int, int], sparse: bool,
    trans: bool, **options: Any,
) -> None:  # fmt: skip
    """The rows of one family: A in shared memory and in registers. ``types`` is the type of A and B, or empty if they have slots."""
    shape = tuple(f"m64n{n}k{depth * (2 if sparse else 1)}" for n in columns)
    registers = {"f16": "b32*n/4", "f32": "f32*n/2", "s32": "s32*n/2"}[result]
    floats = result != "s32"
    element = types or options["atype"].split()[0]
    sparsity = sparsity_of(shape[0], element, 2) if sparse else None
    for operand in ("u64", "b32*4"):
        operands = [f"d:{registers}=", f"a:{operand}", "b:u64"]
        operands += ["metadata:b32%", "selector:imm"] if sparse else []
        operands += ["{!}scale:pred"] + (["sign_a:imm", "sign_b:imm"] if floats else [])
        if trans:
            operands += ["trans_a:imm"] * (operand == "u64") + ["trans_b:imm"]
        instruction(
            f"wgmma.mma_async{'.sp' if sparse else ''}.sync.aligned.shape{syntax} {', '.join(operands)}",
            shape=shape,
            since=max(version, (8, 2)) if sparse else version,
            only="90a",
            accepts=Accepts(
                constants={**_CONSTANTS, **(selectors(sparsity) if sparsity is not None else {})}
            ),
            applied=Applied(checked=CHECKED if sparse else None),
            documentation=f"d = a · b + d (scale false: a · b) on fragments of a warpgroup{', a sparse' if sparse else ''}.",
            **options,
            **WARPGROUP,
        )(_semantics(result, types, sparsity))


def _semantics(result: str, types: str, sparsity: Sparsity | None) -> Callable[..., tuple[Value, ...]]:
    if result == "s32" and not types:

        def integers(
            operation: int, *operands: Any, satfinite: bool | None, atype: str, btype: str
        ) -> tuple[Value, ...]:
            product = WarpgroupProduct(result, sparsity, bool(satfinite))
            return product(operation, operands, str(atype), str(btype))

        return integers
    if types:

        def plain(operation: int, *operands: Any) -> tuple[Value, ...]:
            return WarpgroupProduct(result, sparsity)(operation, operands, types, types)

        return plain

    def typed(operation: int, *operands: Any, atype: str, btype: str) -> tuple[Value, ...]:
        return WarpgroupProduct(result, sparsity)(operation, operands, str(atype), str(btype))

    return typed


for _sparse in (False, True):
    for _d in ("f16", "f32"):
        _family(f".{_d}.f16.f16", _d, 16, _EVERY, "f16", (8, 0), _sparse, True)
    _family(".f32.bf16.bf16", "f32", 16, _EVERY, "bf16", (8, 0), _sparse, True)
    _family(".f32.tf32.tf32", "f32", 8, _EVERY, "tf32", (8, 0), _sparse, False)
    for _d in ("f16", "f32"):
        _family(
            f".{_d}.atype.btype", _d, 32, _EVERY, "", (8, 0), _sparse, False, atype="e4m3 e5m2", btype="e4m3 e5m2"
        )  # fmt: skip
    _family(
        "{.satfinite}.s32.atype.btype", "s32", 32, _FEWER, "", (8, 0), _sparse, False,
        atype="s8 u8", btype="s8 u8", requires={"s8 u8": ((8, 4), 90)},
    )  # fmt: skip
_family(".s32.b1.b1.and.popc", "s32", 256, _FEWER, "b1", (8, 0), False, False)

_ORDER: Options = {"category": "matrix", "unit": "cbu", "since": (8, 0), "only": "90a"}
declare(
    "wgmma.fence.sync.aligned",
    "Orders accesses of registers and shared memory before products of the warpgroup.",
    effect=effects.WARPGROUP_FENCE,
    **_ORDER,
)
declare(
    "wgmma.commit_group.sync.aligned",
    "Makes a group of the products issued before.",
    effect=effects.WARPGROUP_COMMIT,
    **_ORDER,
)
declare(
    "wgmma.wait_group.sync.aligned a:imm",
    "Waits until at most so many groups are left.",
    effect=effects.WARPGROUP_WAIT,
    accepts=Accepts(constants={"a": (lambda groups: groups >= 0, "0 and more")}),
    **_ORDER,
)
