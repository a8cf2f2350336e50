"""Functions of ``intrinsics`` as LLVM IR."""

from __future__ import annotations

from collections.abc import Callable

from ..ir.emitter import Emitter
from ..ir.operands import Ref, constant

__all__ = ["CALLED", "DECLARATIONS", "LOOPS", "WRITTEN", "ZERO", "loop"]

ZERO = Ref("i64", "0")
#: functions of ``vector_intrinsics``
CALLED = (
    "alike", "batch_claim", "batch_compare", "batch_holding", "batch_keep", "batch_places", "batch_row", "batch_same", "claimed",
    "claimed_beside", "differing", "earliest", "first_of", "in_row", "last_of", "most_alike", "neighbours", "numbers", "pieces_loaded",
    "pieces_stored", "renewed", "sectors_of",
)  # fmt: skip
#: functions with a loop, one per object that uses them
LOOPS = ("copy", "fill")
DECLARATIONS = """\
declare i64 @llvm.cttz.i64(i64, i1)
declare i64 @llvm.ctlz.i64(i64, i1)
declare i64 @llvm.ctpop.i64(i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
"""


def loop(name: str) -> str:
    """``copy`` or ``fill`` as a function: words of eight bytes, then bytes; ``fill`` first stores eight words at once. No library
    function is called."""
    to = Emitter()
    target, source, size = (Ref("i64", f"%{item}") for item in ("target", "source", "size"))
    cell = "%index"
    to.do(f"{cell} = alloca i64")
    to.put("i64", 0, cell)
    patterns: dict[int, Ref] = {}
    if name == "fill":
        pattern = to.mul(source, 0x0101010101010101)
        patterns = {512: to.splat(pattern, 8), 64: pattern, 8: to.trunc(pattern, "i8")}
    for bits in patterns or (64, 8):
        head, body, after = to.label("l"), to.label("l"), to.label("l")
        to.enter(head)
        here = to.load("i64", cell)
        end = to.add(here, bits // 8)
        to.branch(to.icmp("ule", end, size), body, after)
        to.start(body)
        value = patterns.get(bits)
        if value is None:
            value = to.load(f"i{bits}", to.pointer(to.add(source, here)), 1)
        to.store(value, to.pointer(to.add(target, here)), 1)
        to.store(end, cell)
        to.jump(head)
        to.start(after)
    to.give(ZERO)
    return to.function(f"internal i64 @{name}(i64 %target, i64 %source, i64 %size)")


def _call_warp(to: Emitter, code: Ref, *given: Ref) -> Ref:
    function, *records = (to.pointer(value) for value in (code, *given))
    status = to.ref("i32", f"call i32 {function}({', '.join(f'ptr {record}' for record in records)})")
    return to.zext(status, "i64")


def _compare_swap(to: Emitter, bits: int, address: Ref, expected: Ref, value: Ref) -> Ref:
    pointer, kind = to.pointer(address), f"i{bits}"
    old, new = (item if bits == 64 else to.trunc(item, kind) for item in (expected, value))
    pair = to.op(f"cmpxchg ptr {pointer}, {kind} {old}, {kind} {new} seq_cst seq_cst, align {bits // 8}")
    content = to.ref(kind, f"extractvalue {{{kind}, i1}} {pair}, 0")
    return content if bits == 64 else to.zext(content, "i64")


def _prefetch(to: Emitter, address: Ref) -> Ref:
    to.do(f"call void @llvm.prefetch.p0(ptr {to.pointer(address)}, i32 1, i32 3, i32 1)")
    return ZERO


def _acquire64(to: Emitter, address: Ref) -> Ref:
    return to.ref("i64", f"load atomic i64, ptr {to.pointer(address)} acquire, align 8")


def _release64(to: Emitter, address: Ref, value: Ref) -> Ref:
    to.do(f"store atomic i64 {value}, ptr {to.pointer(address)} release, align 8")
    return ZERO


def _release8(to: Emitter, address: Ref, value: Ref) -> Ref:
    byte = to.trunc(value, "i8")
    to.do(f"store atomic i8 {byte}, ptr {to.pointer(address)} release, align 1")
    return ZERO


_NO = constant("i1", "false")
#: functions that are expanded at their calls
WRITTEN: dict[str, Callable[..., Ref]] = {
    "trailing_zeros": lambda to, value: to.intrinsic("cttz.i64", "i64", value, _NO),
    "leading_zeros": lambda to, value: to.intrinsic("ctlz.i64", "i64", value, _NO),
    "bits_count": lambda to, value: to.intrinsic("ctpop.i64", "i64", value),
    "add64": lambda to, address, value: to.ref(
        "i64", f"atomicrmw add ptr {to.pointer(address)}, i64 {value} seq_cst, align 8"
    ),
    "call": _call_warp,
    "compare_swap": lambda to, *given: _compare_swap(to, 8, *given),
    "compare_swap64": lambda to, *given: _compare_swap(to, 64, *given),
    "acquire64": _acquire64,
    "prefetch": _prefetch,
    "release8": _release8,
    "release64": _release64,
}
