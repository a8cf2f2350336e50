"""IR text that the runtime's memory functions of all spaces share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.abi import Context
from ...ir.emitter import Emitter
from ...ir.operands import LANES, Ref, alike, count_of, element_of, lanes_of, literal, numbers

__all__ = [
    "ACTIVE",
    "ADDRESSES",
    "MASK",
    "MASK64",
    "NEAR",
    "SITE",
    "V1",
    "V32",
    "V64",
    "AccessEmitter",
    "Form",
    "begin",
    "busy",
    "choice",
    "declarations",
    "finish",
    "head_of",
    "pass_on",
    "plain_name",
    "slow",
    "stored",
    "stored_at",
    "whole_name",
]

V64, V32, V1 = lanes_of("i64"), lanes_of("i32"), lanes_of("i1")
#: parameters of every access: active lanes as i32, i64 and vector, the site, and addresses of 64 bits or, of shared memory, 32
MASK, MASK64, ACTIVE, SITE = (
    Ref("i32", "%mask"),
    Ref("i64", "%mask64"),
    Ref(V1, "%lanes"),
    Ref("i64", "%site"),
)
ADDRESSES, NEAR = Ref(V64, "%a"), Ref(V32, "%a")


@dataclass(frozen=True)
class Form:
    """The access of one lane: ``count`` elements of ``width`` bytes.

    ``raw`` is a vector of the bytes in the order of memory: an integer per lane of up to 8 bytes, or several of 8 bytes. A single
    element of up to 8 bytes is passed and returned as that vector; others are in memory at ``%vals``, element by element.
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
        """Integers of ``raw`` per lane."""
        return max(1, self.size // 8)

    @property
    def kind(self) -> str:
        """Type of these integers."""
        return f"i{8 * min(8, self.size)}"

    @property
    def raw(self) -> str:
        return f"<{LANES * self.pieces} x {self.kind}>"

    @property
    def align(self) -> int:
        return min(8, self.size)

    @property
    def ones(self) -> Ref:
        """``raw`` of the shadow where all bytes are written."""
        return Ref(self.raw, f"splat ({self.kind} {0x0101010101010101 % (1 << int(self.kind[1:]))})")

    def half(self) -> str:
        """``raw`` of sixteen lanes."""
        return f"<{16 * self.pieces} x {self.kind}>"


def _named(vector: str) -> str:
    """Return the mangled name of a vector type in LLVM's intrinsics."""
    return f"v{count_of(vector)}{element_of(vector)}"


class AccessEmitter(Emitter):
    """An access being written: vectors of the bytes that lanes access, and their elements."""

    def race_flags(self) -> Ref:
        """The bits of ``Race`` of the site."""
        return self.load("i16", self.of_site(Context.RACE_SITES, 2))

    def repeat(self, lanes: Ref, times: int) -> Ref:
        """Repeat each lane's value ``times`` times, consecutively."""
        if times == 1:
            return lanes
        return self.pick(lanes, [index // times for index in range(LANES * times)])

    def pointers(self, base: str, offsets: Ref, form: Form) -> Ref:
        """Return pointers to the integers of ``raw``, from byte offsets of the lanes."""
        repeated = self.repeat(offsets, form.pieces)
        if form.pieces > 1:
            kind = element_of(offsets.type)
            parts = numbers(kind, [8 * (index % form.pieces) for index in range(LANES * form.pieces)])
            repeated = self.add(repeated, parts)
        return self.ref(
            alike(repeated.type, "ptr"), f"getelementptr i8, ptr {base}, {repeated.type} {repeated}"
        )

    def gather(self, pointers: Ref, lanes: Ref, form: Form) -> Ref:
        """Gather ``raw`` of the active lanes, zero elsewhere."""
        mask, raw = self.repeat(lanes, form.pieces), alike(pointers.type, form.kind)
        return self.ref(
            raw,
            f"call {raw} @llvm.masked.gather.{_named(raw)}.v{count_of(raw)}p0({pointers.type} align {form.align} "
            f"{pointers}, {mask.type} {mask}, {raw} zeroinitializer)",
        )

    def scatter(self, value: Ref, pointers: Ref, lanes: Ref, form: Form) -> None:
        mask, raw = self.repeat(lanes, form.pieces), value.type
        self.do(
            f"call void @llvm.masked.scatter.{_named(raw)}.v{count_of(raw)}p0({raw} {value}, {pointers.type} "
            f"align {form.align} {pointers}, {mask.type} {mask})"
        )

    def masked_load(self, type: str, pointer: str, on: Ref, align: int) -> Ref:
        """Load consecutive elements where ``on`` holds, zero elsewhere."""
        name = f"llvm.masked.load.{_named(type)}.p0"
        return self.ref(
            type, f"call {type} @{name}(ptr align {align} {pointer}, {on.type} {on}, {type} zeroinitializer)"
        )

    def masked_store(self, value: Ref, pointer: str, on: Ref, align: int) -> None:
        name = f"llvm.masked.store.{_named(value.type)}.p0"
        self.do(f"call void @{name}({value.type} {value}, ptr align {align} {pointer}, {on.type} {on})")

    def any(self, tests: Ref) -> Ref:
        """Whether any element of a vector of i1 is set."""
        return self.icmp("ne", self.bits(tests), 0)

    def rotated(self, addresses: Ref, shift: int) -> Ref:
        """Divide addresses by a power of two, as a rotation; other addresses than its multiples become numbers above all quotients."""
        type = addresses.type
        operands = ", ".join(f"{type} {item}" for item in (addresses, addresses, literal(type, shift)))
        return self.ref(type, f"call {type} @llvm.fshr.v{LANES}{element_of(type)}({operands})")

    def outside(self, indices: Ref, limit: Ref) -> Ref:
        """The active lanes, as i32, whose indices are not below a limit."""
        return self.without(self.icmp("ult", indices, self.splat(limit)))

    def without(self, tests: Ref) -> Ref:
        """The active lanes, as i32, for which a test does not hold."""
        return self.and_(MASK, self.not_(self.bits(tests)))

    def first_lane(self) -> Ref:
        """The first active lane, as i32; 32 if there is none."""
        return self.ref("i32", "call i32 @llvm.cttz.i32(i32 %mask, i1 false)")

    # -- records ---------------------------------------------------------------------------------------------------------

    def context(self, offset: int, type: str = "i64") -> Ref:
        """A field of the context."""
        return self.field("%ctx", offset, type)

    def of_site(self, offset: int, bytes_: int) -> Ref:
        """The record of the site in a table of the context."""
        return self.place(self.context(offset, "ptr"), self.mul(SITE, bytes_))

    # -- elements and raw bytes ------------------------------------------------------------------------------------------

    def split(self, raw: Ref, form: Form) -> None:
        """Write the elements of ``raw`` to ``%vals``."""
        unit = min(8, form.width)
        per_element, per_lane = form.width // unit, form.size // unit
        units = self.bitcast(raw, f"<{LANES * per_lane} x i{8 * unit}>")
        for element in range(form.count):
            order = [
                lane * per_lane + element * per_element + part
                for lane in range(LANES)
                for part in range(per_element)
            ]
            picked = self.pick(units, order) if form.count > 1 else units
            self.store(picked, self.place("%vals", element * LANES * form.width), 16)

    def join(self, form: Form) -> Ref:
        """``raw`` from the elements at ``%vals``."""
        unit = min(8, form.width)
        per_element = form.width // unit
        each = LANES * per_element
        kind = f"<{each} x i{8 * unit}>"
        parts = [
            self.load(kind, self.place("%vals", element * LANES * form.width), 16)
            for element in range(form.count)
        ]
        while len(parts) > 2:
            size = each * form.count // len(parts)
            parts = [self.pick(one, range(2 * size), other) for one, other in zip(parts[::2], parts[1::2])]
        if len(parts) == 2:
            order = [
                element * each + lane * per_element + part
                for lane in range(LANES)
                for element in range(form.count)
                for part in range(per_element)
            ]
            parts = [self.pick(parts[0], order, parts[1])]
        return self.bitcast(parts[0], form.raw)


def declarations(form: Form) -> str:
    """Return declarations of the functions that a form may call."""
    lines = [
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
        f"declare i64 @race_row({', '.join(['i64'] * 7)})",
        f"declare i64 @race_anywhere({', '.join(['i64'] * 7)})",
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
        lines += [
            f"declare {vector} @llvm.masked.load.{name}.p0(ptr, {mask}, {vector})",
            f"declare void @llvm.masked.store.{name}.p0({vector}, ptr, {mask})",
            f"declare {vector} @llvm.masked.gather.{name}.v{count}p0({pointers}, {mask}, {vector})",
            f"declare void @llvm.masked.scatter.{name}.v{count}p0({vector}, {pointers}, {mask})",
        ]
    return "\n".join([*lines, ""])


def head_of(name: str, form: Form, stores: bool, addresses: str, extra: str = "") -> str:
    """Return result type, name and parameters of a function."""
    value = "" if form.alone and not stores else f", {form.raw} %v" if form.alone else ", ptr %vals"
    result = form.raw if form.alone and not stores else "void"
    return f"{result} @{name}(ptr %ctx, i64 %site, i32 %mask, {addresses} %a{extra}{value})"


def busy(to: AccessEmitter, fields: Sequence[Ref]) -> None:
    """Branch to ``whole`` if any of the fields, of up to 64 bits, is not zero."""
    together, *others = (item if item.type == "i64" else to.zext(item, "i64") for item in fields)
    for item in others:
        together = to.or_(together, item)
    to.branch(to.icmp("eq", together, 0), "plain", "whole")
    to.start("plain")


def whole_name(name: str) -> str:
    """The function that does all that an access may need, beside the one that takes the common paths."""
    return f"{name}_whole"


def plain_name(name: str) -> str:
    """The function that takes the common paths of launches that observe nothing."""
    return f"{name}_plain"


def choice(name: str, form: Form, stores: bool, addresses: str, extra: str = "") -> str:
    """Return the function that calls the whole one if sectors and wavefronts are counted, else the plain one. It saves no registers,
    as the plain one may."""
    to = AccessEmitter()
    to.start("entry")
    to.branch(to.icmp("eq", to.context(Context.COUNTING), 0), "plain", "whole")
    to.start("plain")
    pass_on(to, plain_name(name), form, stores, addresses, extra)
    to.start("whole")
    pass_on(to, whole_name(name), form, stores, addresses, extra)
    return to.function(head_of(name, form, stores, addresses, extra))


def pass_on(to: AccessEmitter, name: str, form: Form, stores: bool, addresses: str, extra: str = "") -> None:
    """Call another function on the same access, in place of this one."""
    call = f"tail call {head_of(name, form, stores, addresses, extra)}"
    if stores or not form.alone:
        to.do(call)
        to.give()
    else:
        to.give(to.ref(form.raw, call))


def begin(to: AccessEmitter, form: Form) -> None:
    """Write the first lines of a function."""
    to.start("entry")
    to.do(
        f"%area = alloca {V64}, align 64",
        f"%out = alloca {form.raw}, align 64",
        f"%lanes = bitcast i32 %mask to {V1}",
        "%mask64 = zext i32 %mask to i64",
    )


def stored(to: AccessEmitter, form: Form, stores: bool) -> Ref:
    """Return the raw value to store."""
    return to.join(form) if stores and not form.alone else Ref(form.raw, "%v")


def stored_at(to: AccessEmitter, form: Form) -> Ref:
    """Return the address of the values to store, as elements."""
    if not form.alone:
        return to.number("%vals")
    to.put(form.raw, "%v", "%out", 64)
    return to.number("%out")


def slow(to: AccessEmitter, form: Form, stores: bool, wide_addresses: Ref, space: str | Ref) -> Ref | None:
    """Lane by lane; returns what was loaded, if that is returned. ``space``: + 16 if races are already checked."""
    to.store(wide_addresses, "%area", 64)
    if form.alone:
        to.put(form.raw, "%v" if stores else "zeroinitializer", "%out", 64)
    area, values = to.number("%area"), to.number("%out" if form.alone else "%vals")
    # context, CTA and state as the runtime's loops take them
    where = to.number("%ctx"), to.context(Context.CTA), to.context(Context.STATE)
    items = (*where, SITE, MASK64, area, values, form.width, form.count, space)
    to.run("store_lanes" if stores else "load_lanes", items)
    return to.load(form.raw, "%out", 64) if form.alone and not stores else None


def finish(to: AccessEmitter, form: Form, stores: bool, value: Ref | None) -> None:
    """Write the ``ret``, with the loaded value if the form returns one."""
    to.give(None if stores or not form.alone else value)
