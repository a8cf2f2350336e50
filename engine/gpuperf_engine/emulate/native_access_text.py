"""IR text of the runtime's memory functions: what those of all spaces have in common. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from .native_layout import Context
from .native_writer import LANES

__all__ = [
    "V1",
    "V32",
    "V64",
    "Text",
    "declarations",
    "finish",
    "head",
    "slow",
]

V64, V32, V1 = f"<{LANES} x i64>", f"<{LANES} x i32>", f"<{LANES} x i1>"


class Text:
    """IR being written."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0

    def op(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"%x{self.count} = {text}")
        return f"%x{self.count}"

    def do(self, *texts: str) -> None:
        self.lines += texts

    def field(self, base: str, offset: int, kind: str = "i64") -> str:
        return self.op(f"load {kind}, ptr {self.place(base, offset)}")

    def place(self, base: str, offset: int | str) -> str:
        return self.op(f"getelementptr i8, ptr {base}, i64 {offset}")

    def bump(self, base: str, offset: int, amount: str) -> None:
        cell = self.place(base, offset)
        old = self.op(f"load i64, ptr {cell}")
        self.do(f"store i64 {self.op(f'add i64 {old}, {amount}')}, ptr {cell}")

    def bits(self, lanes: str) -> str:
        return self.op(f"bitcast {V1} {lanes} to i32")

    def number(self, pointer: str) -> str:
        return self.op(f"ptrtoint ptr {pointer} to i64")

    def splat(self, value: str, kind: str) -> str:
        one = self.op(f"insertelement <{LANES} x {kind}> poison, {kind} {value}, i32 0")
        return self.op(
            f"shufflevector <{LANES} x {kind}> {one}, <{LANES} x {kind}> poison, {V32} zeroinitializer"
        )


def declarations(width: int) -> str:
    bits = 8 * width
    vector = f"<{LANES} x i{bits}>"
    name = f"v{LANES}i{bits}"
    pointers = f"<{LANES} x ptr>"
    halves = f"<16 x i{bits}>"
    return "\n".join(
        [
            "declare i32 @llvm.cttz.i32(i32, i1)",
            "declare i32 @llvm.ctlz.i32(i32, i1)",
            "declare i64 @llvm.fshr.i64(i64, i64, i64)",
            f"declare {V64} @llvm.fshr.v{LANES}i64({V64}, {V64}, {V64})",
            f"declare {V32} @llvm.fshr.v{LANES}i32({V32}, {V32}, {V32})",
            f"declare {vector} @llvm.masked.load.{name}.p0(ptr, {V1}, {vector})",
            f"declare void @llvm.masked.store.{name}.p0({vector}, ptr, {V1})",
            f"declare void @llvm.masked.store.v16i{bits}.p0({halves}, ptr, <16 x i1>)",
            f"declare {vector} @llvm.masked.gather.{name}.v{LANES}p0({pointers}, {V1}, {vector})",
            f"declare void @llvm.masked.scatter.{name}.v{LANES}p0({vector}, {pointers}, {V1})",
            f"declare i64 @load_lanes({', '.join(['i64'] * 10)})",
            f"declare i64 @store_lanes({', '.join(['i64'] * 10)})",
            "declare i64 @mark_lanes(i64, i64, i64, i64)",
            "declare i64 @seen_lanes(i64, i64, i64, i64, i64)",
            "declare i64 @count_sectors(i64, i64, i64, i64)",
            "declare i64 @count_windows(i64, i64, i64, i64, i64, i64)",
            "declare i64 @count_wavefronts(i64, i64, i64, i64, i64, i64)",
            "",
        ]
    )


def head(name: str, width: int, stores: bool, addresses: str, extra: str) -> list[str]:
    vector = f"<{LANES} x i{8 * width}>"
    value = f", {vector} %v" if stores else ""
    return [
        f"define {'void' if stores else vector} @{name}(ptr %ctx, i64 %site, i32 %mask, {addresses} %a{extra}{value}) nounwind {{",
        "entry:",
        f"%area = alloca {V64}, align 64",
        f"%out = alloca {vector}, align 64",
        f"%lanes = bitcast i32 %mask to {V1}",
        "%mask64 = zext i32 %mask to i64",
    ]


def slow(to: Text, width: int, stores: bool, wide_addresses: str, space: str) -> None:
    """Lane by lane, then out."""
    vector = f"<{LANES} x i{8 * width}>"
    to.do(f"store {V64} {wide_addresses}, ptr %area, align 64")
    if stores:
        to.do(f"store {vector} %v, ptr %out, align 64")
    else:
        to.do(f"store {vector} zeroinitializer, ptr %out, align 64")
    numbers = [to.number("%ctx"), to.field("%ctx", Context.CTA), to.field("%ctx", Context.STATE)]
    area, out = to.number("%area"), to.number("%out")
    given = ", ".join(f"i64 {item}" for item in (*numbers, "%site", "%mask64", area, out, width, 1, space))
    to.op(f"call i64 @{'store' if stores else 'load'}_lanes({given})")


def finish(to: Text, width: int, stores: bool, value: str) -> None:
    to.do("ret void" if stores else f"ret <{LANES} x i{8 * width}> {value}")
