"""IR text of the runtime's memory functions: what those of all spaces have in common. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..ir.abi import Context
from ..ir.emitter import LANES

__all__ = ["V1", "V32", "V64", "Form", "Text", "declarations", "finish", "given", "head", "ones_of", "slow"]

V64, V32, V1 = f"<{LANES} x i64>", f"<{LANES} x i32>", f"<{LANES} x i1>"


@dataclass(frozen=True)
class Form:
    """What one lane accesses: ``count`` elements of ``width`` bytes.

    Bytes in the order of memory make one vector, ``raw``: an integer per lane of up to 8 bytes, several of 8 bytes beyond. A single
    element of up to 8 bytes is given and returned as that vector; others lie in memory at ``%vals``, element by element.
    """

    width: int
    count: int = 1

    @property
    def name(self) -> str:
        return str(self.width) if self.count == 1 else f"{self.width}x{self.count}"

    @property
    def size(self) -> int:
        return self.width * self.count

    @property
    def shift(self) -> int:
        return self.size.bit_length() - 1

    @property
    def alone(self) -> bool:
        return self.count == 1 and self.width <= 8

    @property
    def pieces(self) -> int:
        """Parts of ``raw`` per lane."""
        return max(1, self.size // 8)

    @property
    def kind(self) -> str:
        """Type of these parts."""
        return f"i{8 * min(8, self.size)}"

    @property
    def raw(self) -> str:
        return f"<{LANES * self.pieces} x {self.kind}>"

    def half(self) -> str:
        """``raw`` of sixteen lanes."""
        return f"<{16 * self.pieces} x {self.kind}>"


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

    def all(self, tests: Iterable[str]) -> str:
        first, *others = tests
        for test in others:
            first = self.op(f"and i1 {first}, {test}")
        return first

    def splat(self, value: str, kind: str, lanes: int = LANES) -> str:
        one = self.op(f"insertelement <{lanes} x {kind}> poison, {kind} {value}, i32 0")
        return self.pick(one, kind, lanes, [0] * lanes)

    def pick(self, vector: str, kind: str, lanes: int, order: Iterable[int], other: str = "poison") -> str:
        """``shufflevector`` of one or two vectors."""
        listed = ", ".join(f"i32 {place}" for place in order)
        count = listed.count(",") + 1
        shape = f"<{lanes} x {kind}>"
        return self.op(f"shufflevector {shape} {vector}, {shape} {other}, <{count} x i32> <{listed}>")

    def repeat(self, lanes: str, kind: str, times: int) -> str:
        """Each lane's value so many times, side by side."""
        if times == 1:
            return lanes
        return self.pick(lanes, kind, LANES, [place // times for place in range(LANES * times)])

    def pointers(self, base: str, offsets: str, kind: str, form: Form) -> str:
        """Pointers to the parts of ``raw``, from byte offsets of the lanes."""
        count = LANES * form.pieces
        places = self.repeat(offsets, kind, form.pieces)
        if form.pieces > 1:
            parts = ", ".join(f"{kind} {8 * (place % form.pieces)}" for place in range(count))
            places = self.op(f"add <{count} x {kind}> {places}, <{parts}>")
        return self.op(f"getelementptr i8, ptr {base}, <{count} x {kind}> {places}")

    def gather(self, pointers: str, lanes: str, form: Form) -> str:
        """``raw`` of the active lanes, zero elsewhere."""
        count = LANES * form.pieces
        mask = self.repeat(lanes, "i1", form.pieces)
        return self.op(
            f"call {form.raw} @llvm.masked.gather.v{count}{form.kind}.v{count}p0(<{count} x ptr> "
            f"align {min(8, form.size)} {pointers}, <{count} x i1> {mask}, {form.raw} zeroinitializer)"
        )

    def scatter(self, value: str, pointers: str, lanes: str, form: Form) -> None:
        count = LANES * form.pieces
        mask = self.repeat(lanes, "i1", form.pieces)
        self.do(
            f"call void @llvm.masked.scatter.v{count}{form.kind}.v{count}p0({form.raw} {value}, "
            f"<{count} x ptr> align {min(8, form.size)} {pointers}, <{count} x i1> {mask})"
        )

    # -- elements and raw bytes ------------------------------------------------------------------------------------------

    def split(self, raw: str, form: Form) -> None:
        """Put the elements of ``raw`` to ``%vals``."""
        unit = min(8, form.width)
        per_element, per_lane = form.width // unit, form.size // unit
        kind, total = f"i{8 * unit}", LANES * per_lane
        units = self.op(f"bitcast {form.raw} {raw} to <{total} x {kind}>")
        for element in range(form.count):
            order = [
                lane * per_lane + element * per_element + part
                for lane in range(LANES)
                for part in range(per_element)
            ]
            found = self.pick(units, kind, total, order) if form.count > 1 else units
            cell = self.place("%vals", element * LANES * form.width)
            self.do(f"store <{len(order)} x {kind}> {found}, ptr {cell}, align 16")

    def join(self, form: Form) -> str:
        """``raw`` from the elements at ``%vals``."""
        unit = min(8, form.width)
        per_element, per_lane = form.width // unit, form.size // unit
        kind, each = f"i{8 * unit}", LANES * per_element
        parts = [
            self.op(
                f"load <{each} x {kind}>, ptr {self.place('%vals', element * LANES * form.width)}, align 16"
            )
            for element in range(form.count)
        ]
        while len(parts) > 2:
            size = each * form.count // len(parts)
            parts = [
                self.pick(one, kind, size, range(2 * size), other)
                for one, other in zip(parts[::2], parts[1::2])
            ]
        if len(parts) == 2:
            order = [
                element * each + lane * per_element + part
                for lane in range(LANES)
                for element in range(form.count)
                for part in range(per_element)
            ]
            parts = [self.pick(parts[0], kind, LANES * per_lane // 2, order, parts[1])]
        return self.op(f"bitcast <{LANES * per_lane} x {kind}> {parts[0]} to {form.raw}")


def ones_of(form: Form) -> int:
    """What the shadow of a written part of ``raw`` holds."""
    return 0x0101010101010101 % (1 << int(form.kind[1:]))


def declarations(form: Form) -> str:
    """What the functions of a form may call."""
    found = [
        "declare i32 @llvm.cttz.i32(i32, i1)",
        "declare i32 @llvm.ctlz.i32(i32, i1)",
        "declare i32 @llvm.ctpop.i32(i32)",
        "declare i64 @llvm.fshr.i64(i64, i64, i64)",
        f"declare {V64} @llvm.fshr.v{LANES}i64({V64}, {V64}, {V64})",
        f"declare {V32} @llvm.fshr.v{LANES}i32({V32}, {V32}, {V32})",
        f"declare i64 @load_lanes({', '.join(['i64'] * 10)})",
        "declare i64 @cluster_cta(i64, i64, i64, i64, i64, i64)",
        f"declare i64 @store_lanes({', '.join(['i64'] * 10)})",
        "declare i64 @mark_lanes(i64, i64, i64, i64)",
        "declare i64 @race_flag(i64, i64, i64)",
        f"declare i64 @race_row({', '.join(['i64'] * 8)})",
        f"declare i64 @race_anywhere({', '.join(['i64'] * 8)})",
        "declare i64 @seen_lanes(i64, i64, i64, i64, i64)",
        "declare i64 @sectors_of(i64, i64)",
        "declare i64 @wavefronts_of(i64, i64, i64, i64, i64, i64)",
        "declare i64 @count_sectors(i64, i64, i64, i64, i64, i64)",
        "declare i64 @count_local(i64, i64, i64, i64, i64)",
        "declare i64 @count_windows(i64, i64, i64, i64, i64, i64)",
        "declare i64 @count_wavefronts(i64, i64, i64, i64, i64, i64)",
    ]
    for count, kind in sorted(
        {(LANES * form.pieces, form.kind), (16 * form.pieces, form.kind), (LANES, "i32")}
    ):
        vector, pointers, mask = f"<{count} x {kind}>", f"<{count} x ptr>", f"<{count} x i1>"
        name = f"v{count}{kind}"
        found += [
            f"declare {vector} @llvm.masked.load.{name}.p0(ptr, {mask}, {vector})",
            f"declare void @llvm.masked.store.{name}.p0({vector}, ptr, {mask})",
            f"declare {vector} @llvm.masked.gather.{name}.v{count}p0({pointers}, {mask}, {vector})",
            f"declare void @llvm.masked.scatter.{name}.v{count}p0({vector}, {pointers}, {mask})",
        ]
    return "\n".join([*found, ""])


def head(to: Text, name: str, form: Form, stores: bool, addresses: str, extra: str = "") -> str:
    """Begin a function; gives the raw value to store."""
    value = "" if form.alone and not stores else f", {form.raw} %v" if form.alone else ", ptr %vals"
    result = form.raw if form.alone and not stores else "void"
    to.do(
        f"define {result} @{name}(ptr %ctx, i64 %site, i32 %mask, {addresses} %a{extra}{value}) nounwind {{",
        "entry:",
        f"%area = alloca {V64}, align 64",
        f"%out = alloca {form.raw}, align 64",
        f"%lanes = bitcast i32 %mask to {V1}",
        "%mask64 = zext i32 %mask to i64",
    )
    if not stores or form.alone:
        return "%v"
    return to.join(form)


def _numbers(to: Text) -> list[str]:
    """Context, CTA and state as the runtime's loops take them."""
    return [to.number("%ctx"), to.field("%ctx", Context.CTA), to.field("%ctx", Context.STATE)]


def given(items: Iterable[object]) -> str:
    return ", ".join(f"i64 {item}" for item in items)


def slow(to: Text, form: Form, stores: bool, wide_addresses: str, space: str) -> str:
    """Lane by lane; gives what was loaded, if that is returned."""
    to.do(f"store {V64} {wide_addresses}, ptr %area, align 64")
    place = "%out" if form.alone else "%vals"
    if form.alone:
        value = "%v" if stores else "zeroinitializer"
        to.do(f"store {form.raw} {value}, ptr %out, align 64")
    area, out = to.number("%area"), to.number(place)
    items = (*_numbers(to), "%site", "%mask64", area, out, form.width, form.count, space)
    to.op(f"call i64 @{'store' if stores else 'load'}_lanes({given(items)})")
    return to.op(f"load {form.raw}, ptr %out, align 64") if form.alone and not stores else ""


def finish(to: Text, form: Form, stores: bool, value: str) -> None:
    to.do("ret void" if stores or not form.alone else f"ret {form.raw} {value}")
