"""Loads and stores as LLVM IR: the cheap paths inline, everything else a call of the runtime.

Global and generic: one test finds out whether the active lanes access consecutive elements inside the allocation that the
site accessed last; then it is one masked vector access. Shared: all lanes in bounds is one test, then a gather (AVX-512
hosts). A uniform address is one scalar access.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..isa.types import scalar_type
from ..ptx.syntax import Address, Immediate, Instruction, Register, Variable, Vector
from .native_blocks import address_operand
from .native_layout import CACHE_BYTES, SHAPE_BYTES, UNWRITTEN
from .native_values import LANES, NativeValue, scalar_ll, vector_ll

if TYPE_CHECKING:
    from .native_blocks import BlockWriter

__all__ = ["SPACES", "Access", "write_memory"]

U32 = scalar_type("u32")
U64 = scalar_type("u64")
SPACES = {"global": 0, "const": 0, "param": 0, "shared": 1, "local": 2, "generic": 3}
_SITE_BYTES = 56
_SECTORS, _WAVEFRONTS, _IDEAL = 16, 24, 32


class Access:
    """One memory instruction being written: where it goes and how much."""

    def __init__(self, to: BlockWriter, instruction: Instruction, guard: NativeValue | None) -> None:
        self.to = to
        self.instruction = instruction
        self.guard = guard
        self.mask = to.effective_mask(guard)
        self.site = to.frame.program.site_of[instruction]
        self.bytes = to.frame.program.sites[self.site].bytes
        self.name = instruction.spelling.space or "generic"
        self.space = SPACES[self.name]
        spelling_type = instruction.spelling.modifier("type")
        self.type = scalar_type(str(spelling_type)) if spelling_type else instruction.spelling.type or U32
        self.count = max(1, self.bytes // self.type.bytes)
        self.address = address_value(to, address_operand(instruction)[1], self.space)

    def cache(self) -> str:
        """Pointer to the site's cache."""
        return self.to.frame.field("%caches", self.site * CACHE_BYTES)

    def addresses(self) -> str:
        """The lanes' addresses as ``<32 x i64>``."""
        wide = self.address
        if wide.type.bits == 32:
            wide = _native(wide.convert(U64))
        return wide.vector()

    def runtime(self, name: str) -> str:
        """Call ``load_lanes`` or ``store_lanes`` on ``%area`` and ``%vals``; leaves if it refused."""
        writer = self.to.writer
        writer.do(f"store <{LANES} x i64> {self.addresses()}, ptr %area, align 64")
        arguments = [
            *(("i64", pointer_number(self.to, pointer)) for pointer in ("%ctx", "%cta", "%st")),
            ("i64", str(self.site)),
            ("i64", writer.op(f"zext i32 {self.mask} to i64")),
            ("i64", pointer_number(self.to, "%area")),
            ("i64", pointer_number(self.to, "%vals")),
            ("i64", str(self.type.bytes)),
            ("i64", str(self.count)),
            ("i64", str(self.space)),
        ]
        refused = writer.call(name, "i64", *arguments)
        test = writer.op(f"icmp ne i64 {refused}, 0")
        self.to.fault_if(test)
        return test

    def count_slowly(self) -> None:
        """Have the runtime count sectors or wavefronts; ``%area`` holds the addresses."""
        to, writer = self.to, self.to.writer
        if not to.frame.counting or self.name in ("const", "param"):
            return
        names = {0: "count_sectors", 1: "count_wavefronts", 2: "count_sectors", 3: "count_windows"}
        arguments = [
            ("i64", pointer_number(to, "%ctx")),
            ("i64", str(self.site)),
            ("i64", writer.op(f"zext i32 {self.mask} to i64")),
            ("i64", pointer_number(to, "%area")),
        ]
        if self.space in (1, 3):
            arguments.append(("i64", str(self.bytes)))
        writer.call(names[self.space], "i64", *arguments)

    def count_request(self) -> None:
        """Guarded accesses count requests themselves: those with at least one lane."""
        if self.guard is None or not self.to.frame.counting:
            return
        writer = self.to.writer
        some = writer.op(f"zext i1 {writer.op(f'icmp ne i32 {self.mask}, 0')} to i64")
        self.to.frame.bump("%sites", self.site * _SITE_BYTES, some)


def pointer_number(to: BlockWriter, pointer: str) -> str:
    """A pointer as i64, for the runtime."""
    return to.writer.op(f"ptrtoint ptr {pointer} to i64")


def address_value(to: BlockWriter, operand: Address, space: int) -> NativeValue:
    """Base plus offset: 32-bit arithmetic for 32-bit registers, 64-bit for all else."""
    if isinstance(operand.base, Register):
        base = to.read(operand.base)
        base = base.bits_as(scalar_type(f"u{base.type.bits}"))
    elif isinstance(operand.base, Variable):
        from .native_special import variable_address

        return variable_address(to, operand.base, operand.offset)
    else:
        return to.constant(operand.offset, U64)
    if base.type.bits < 32:
        base = _native(base.convert(U32))
    if base.type.bits == 32 and space in (0, 3):
        base = _native(base.convert(U64))
    return _native(base + operand.offset) if operand.offset else base


def write_memory(to: BlockWriter, instruction: Instruction) -> None:
    """Any load, store or atomic."""
    if instruction.spelling.space == "param" and instruction not in to.frame.program.site_of:
        from .native_calls import write_parameter

        write_parameter(to, instruction)
        return
    access = Access(to, instruction, to.guard(instruction))
    access.count_request()
    if instruction.effect in ("atomic", "reduction"):
        from .native_atomics import write_atomic

        write_atomic(access)
    elif instruction.effect == "load":
        _load(access)
    else:
        _store(access)


# ---------------------------------------------------------------------------------------------------------- loads


def _load(access: Access) -> None:
    to = access.to
    values: list[NativeValue]
    if access.address.uniform and access.guard is None and access.space != 3 and access.space != 2:
        values = _load_scalar(access)
    elif access.count == 1 and access.type.bits <= 64 and access.space in (0, 3):
        values = [_load_consecutive(access)]
    elif access.count == 1 and access.space == 1 and to.frame.wide and access.type.bits in (32, 64) and not to.frame.watching:
        values = [_load_shared(access)]
    else:
        access.runtime("load_lanes")
        access.count_slowly()
        values = _results(access)
    to.assign(access.instruction, values, access.guard)


def _results(access: Access) -> list[NativeValue]:
    """The elements that the runtime left in ``%vals``."""
    to, found = access.to, []
    for element in range(access.count):
        cell = to.frame.field("%vals", element * LANES * access.type.bytes)
        found.append(to.value(access.type, to.writer.op(f"load {vector_ll(access.type)}, ptr {cell}, align 16")))
    return found


def _load_scalar(access: Access) -> list[NativeValue]:
    host = _host_scalar(access, 8)
    to, found = access.to, []
    for element in range(access.count):
        cell = to.frame.field(host, element * access.type.bytes)
        text = to.writer.op(f"load {scalar_ll(access.type)}, ptr {cell}, align {access.type.bytes}")
        found.append(to.value(access.type, text, True))
    return found


def _host_scalar(access: Access, how: int) -> str:
    """Host pointer of a uniform access by all active lanes, checked; counts it."""
    to, writer, frame = access.to, access.to.writer, access.to.frame
    address = access.address if access.address.type.bits == 64 else _native(access.address.convert(U64))
    number = address.scalar()
    fast, slow, done = writer.label("fast"), writer.label("slow"), writer.label("done")
    if access.space == 1 and not frame.watching:
        inside = _inside(access, number, "%sharedbytes")
        writer.do(f"br i1 {inside}, label %{fast}, label %{slow}")
        writer.start(fast)
        near = writer.op(f"getelementptr i8, ptr %shared, i64 {number}")
        if access.bytes >= 4:
            written = writer.label("written")
            bits = f"<{access.bytes // 4} x i32>"
            held = writer.op(f"load {bits}, ptr {near}, align 4")
            blank = writer.op(f"icmp eq {bits} {held}, splat (i32 {UNWRITTEN})")
            mask = f"i{access.bytes // 4}"
            none = writer.op(f"icmp eq {mask} {writer.op(f'bitcast <{access.bytes // 4} x i1> {blank} to {mask}')}, 0")
            writer.do(f"br i1 {none}, label %{written}, label %{slow}")
            writer.start(written)
            fast = written
        else:
            fast_out = writer.label("part")
            writer.do(f"br i1 false, label %{fast_out}, label %{slow}")
            writer.start(fast_out)
            fast = fast_out
    elif access.space == 0:
        low = writer.op(f"load i64, ptr {access.cache()}")
        span = writer.op(f"load i64, ptr {frame.field(access.cache(), 8)}")
        inside = _inside(access, writer.op(f"sub i64 {number}, {low}"), span)
        if how & 4:
            tracked = writer.op(f"load i64, ptr {frame.field(access.cache(), 16)}")
            inside = writer.op(f"and i1 {inside}, {writer.op(f'icmp eq i64 {tracked}, 0')}")
        writer.do(f"br i1 {inside}, label %{fast}, label %{slow}")
        writer.start(fast)
        near = writer.op(f"inttoptr i64 {writer.op(f'add i64 %arena, {number}')} to ptr")
    else:
        writer.do(f"br label %{slow}")
        writer.start(fast)
        near = "null"
    writer.do(f"br label %{done}")
    writer.start(slow)
    writer.needs["llvm.cttz.i32"] = "declare i32 @llvm.cttz.i32(i32, i1)"
    lane = writer.op(f"zext i32 {writer.op(f'call i32 @llvm.cttz.i32(i32 {access.mask}, i1 true)')} to i64")
    arguments = [
        *(("i64", pointer_number(to, pointer)) for pointer in ("%ctx", "%cta", "%st")),
        ("i64", str(access.site)), ("i64", lane), ("i64", number), ("i64", str(access.bytes)), ("i64", str(access.space + how)),
    ]  # fmt: skip
    reached = writer.call("reach", "i64", *arguments)
    to.fault_if(writer.op(f"icmp eq i64 {reached}, 0"))
    far = writer.op(f"inttoptr i64 {reached} to ptr")
    behind = writer.label("reached")
    writer.do(f"br label %{behind}")
    writer.start(behind)
    writer.do(f"br label %{done}")
    writer.start(done)
    host = writer.op(f"phi ptr [ {near}, %{fast} ], [ {far}, %{behind} ]")
    if frame.counting and access.name not in ("const", "param"):
        if access.space == 1:
            phases = _phases(access)
            frame.bump("%sites", access.site * _SITE_BYTES + _WAVEFRONTS, phases)
            frame.bump("%sites", access.site * _SITE_BYTES + _IDEAL, phases)
        else:
            frame.bump("%sites", access.site * _SITE_BYTES + _SECTORS, "1")
    return host


def _phases(access: Access) -> str:
    """Number of half or quarter warps with active lanes, by the width of the access."""
    writer = access.to.writer
    if access.bytes <= 4:
        return "1"
    lanes = LANES * 4 // access.bytes
    total = "0"
    for start in range(0, LANES, lanes):
        part = writer.op(f"and i32 {access.mask}, {((1 << lanes) - 1) << start}")
        total = _add(access, total, part)
    return total


def _add(access: Access, total: str, part: str) -> str:
    writer = access.to.writer
    test = writer.op(f"icmp ne i32 {part}, 0")
    return writer.op(f"add i64 {total}, {writer.op(f'zext i1 {test} to i64')}")


def _inside(access: Access, offset: str, span: str) -> str:
    """Whether an offset is aligned and the access ends within ``span``: one compare of rotated numbers."""
    writer = access.to.writer
    shift = access.bytes.bit_length() - 1
    index, limit = offset, span
    if shift:
        writer.needs["llvm.fshr.i64"] = "declare i64 @llvm.fshr.i64(i64, i64, i64)"
        index = writer.op(f"call i64 @llvm.fshr.i64(i64 {offset}, i64 {offset}, i64 {shift})")
        limit = writer.op(f"lshr i64 {span}, {shift}")
    return writer.op(f"icmp ult i64 {index}, {limit}")


class _Consecutive:
    """The test for consecutive lanes in the arena, and what follows from it."""

    def __init__(self, access: Access) -> None:
        to, writer, frame = access.to, access.to.writer, access.to.frame
        self.access = access
        size, shift = access.bytes, access.bytes.bit_length() - 1
        vector = access.addresses()
        self.zero = writer.op(f"extractelement <{LANES} x i64> {vector}, i32 0")
        steps = ", ".join(f"i64 {lane * size}" for lane in range(LANES))
        ladder = writer.op(f"add <{LANES} x i64> {writer.splat(self.zero, 'i64')}, <{steps}>")
        equal = writer.op(f"bitcast <{LANES} x i1> {writer.op(f'icmp eq <{LANES} x i64> {vector}, {ladder}')} to i32")
        for name in ("cttz", "ctlz"):
            writer.needs[f"llvm.{name}.i32"] = f"declare i32 @llvm.{name}.i32(i32, i1)"
        self.first = writer.op(f"zext i32 {writer.op(f'call i32 @llvm.cttz.i32(i32 {access.mask}, i1 false)')} to i64")
        behind = writer.op(f"zext i32 {writer.op(f'call i32 @llvm.ctlz.i32(i32 {access.mask}, i1 false)')} to i64")
        self.last = writer.op(f"sub i64 31, {behind}")
        low = writer.op(f"load i64, ptr {access.cache()}")
        span = writer.op(f"load i64, ptr {frame.field(access.cache(), 8)}")
        offset = writer.op(f"sub i64 {self.zero}, {low}")
        if shift:
            writer.needs["llvm.fshr.i64"] = "declare i64 @llvm.fshr.i64(i64, i64, i64)"
            offset = writer.op(f"call i64 @llvm.fshr.i64(i64 {offset}, i64 {offset}, i64 {shift})")
            span = writer.op(f"lshr i64 {span}, {shift}")
        tests = [
            writer.op(f"icmp ult i64 {writer.op(f'add i64 {offset}, {place}')}, {span}") for place in (self.first, self.last)
        ]
        stray = writer.op(f"and i32 {access.mask}, {writer.op(f'xor i32 {equal}, -1')}")
        tests.append(writer.op(f"icmp eq i32 {stray}, 0"))
        if not frame.wide:
            tests.append(writer.op(f"icmp eq i32 {access.mask}, -1"))
        self.test = tests[0]
        for test in tests[1:]:
            self.test = writer.op(f"and i1 {self.test}, {test}")

    def host(self) -> str:
        """Host pointer of lane 0."""
        writer = self.access.to.writer
        return writer.op(f"inttoptr i64 {writer.op(f'add i64 %arena, {self.zero}')} to ptr")

    def count(self) -> None:
        """Sectors of the access: by its ends where no lane in between is off, else by the runtime."""
        access = self.access
        to, writer, frame = access.to, access.to.writer, access.to.frame
        if not frame.counting or access.name in ("const", "param"):
            return
        shift = access.bytes.bit_length() - 1
        wide = writer.op(f"zext i32 {access.mask} to i64")
        shifted = writer.op(f"lshr i64 {wide}, {writer.op(f'and i64 {self.first}, 31')}")
        holes = writer.op(f"and i64 {shifted}, {writer.op(f'add i64 {shifted}, 1')}")
        inline, runtime, done = writer.label("ends"), writer.label("holes"), writer.label("counted")
        writer.do(f"br i1 {writer.op(f'icmp eq i64 {holes}, 0')}, label %{inline}, label %{runtime}")
        writer.start(inline)
        ends = [
            _sector(access, self.zero, place, shift)
            for place in (self.first, self.last)
        ]
        count = writer.op(f"add i64 {writer.op(f'sub i64 {ends[1]}, {ends[0]}')}, 1")
        frame.bump("%sites", access.site * _SITE_BYTES + _SECTORS, count)
        writer.do(f"br label %{done}")
        writer.start(runtime)
        writer.do(f"store <{LANES} x i64> {access.addresses()}, ptr %area, align 64")
        access.count_slowly()
        writer.do(f"br label %{done}")
        writer.start(done)


def _sector(access: Access, zero: str, place: str, shift: int) -> str:
    writer = access.to.writer
    distance = writer.op(f"shl i64 {place}, {shift}")
    return writer.op(f"lshr i64 {writer.op(f'add i64 {zero}, {distance}')}, 5")


def _load_consecutive(access: Access) -> NativeValue:
    to, writer = access.to, access.to.writer
    ll = vector_ll(access.type)
    found = _Consecutive(access)
    fast, slow, done = writer.label("fast"), writer.label("slow"), writer.label("done")
    writer.do(f"br i1 {found.test}, label %{fast}, label %{slow}")
    writer.start(slow)
    access.runtime("load_lanes")
    access.count_slowly()
    far = writer.op(f"load {ll}, ptr %vals, align 64")
    reached = writer.label("reached")
    writer.do(f"br label %{reached}")
    writer.start(reached)
    writer.do(f"br label %{done}")
    writer.start(fast)
    host = found.host()
    if to.frame.wide:
        near = masked(to, "load", ll, [("ptr", host)], access.mask, access.type.bytes)
    else:
        near = writer.op(f"load {ll}, ptr {host}, align {access.type.bytes}")
    found.count()
    loaded = writer.label("loaded")
    writer.do(f"br label %{loaded}")
    writer.start(loaded)
    writer.do(f"br label %{done}")
    writer.start(done)
    return to.value(access.type, writer.op(f"phi {ll} [ {near}, %{loaded} ], [ {far}, %{reached} ]"))


def masked(to: BlockWriter, what: str, ll: str, operands: list[tuple[str, str]], mask: str, align: int) -> str:
    """An LLVM masked load, store, gather or scatter; ``operands`` begin with the value for writes."""
    writer = to.writer
    kind = {"i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64", "float": "f32", "double": "f64"}[ll.split()[-1].rstrip(">")]
    pointer = f"v{LANES}p0" if what in ("gather", "scatter") else "p0"
    name = f"llvm.masked.{what}.v{LANES}{kind}.{pointer}"
    reads = what in ("load", "gather")
    lanes = ("<32 x i1>", to.spread(mask))
    given = [*operands, lanes, *([(ll, "zeroinitializer")] if reads else [])]
    result = ll if reads else "void"
    place = 0 if reads else 1
    arguments = ", ".join(
        f"{kind} {f'align {align} ' if index == place else ''}{value}" for index, (kind, value) in enumerate(given)
    )
    writer.needs[name] = f"declare {result} @{name}({', '.join(kind for kind, _ in given)})"
    text = f"call {result} @{name}({arguments})"
    if reads:
        return writer.op(text)
    writer.do(text)
    return ""


def _shared_test(access: Access) -> str:
    """i1: all active lanes are inside shared memory."""
    to, writer = access.to, access.to.writer
    bits = access.address.type.bits
    ll = f"<{LANES} x i{bits}>"
    vector = access.address.vector()
    shift = access.bytes.bit_length() - 1
    index = vector
    limit = writer.op(f"lshr i64 %sharedbytes, {shift}")
    if bits == 32:
        limit = writer.op(f"trunc i64 {limit} to i32")
    if shift:
        name = f"llvm.fshr.v{LANES}i{bits}"
        writer.needs[name] = f"declare {ll} @{name}({ll}, {ll}, {ll})"
        index = writer.op(f"call {ll} @{name}({ll} {vector}, {ll} {vector}, {ll} splat (i{bits} {shift}))")
    inside = writer.op(f"icmp ult {ll} {index}, {writer.splat(limit, f'i{bits}')}")
    outside = writer.op(f"xor i32 {writer.op(f'bitcast <{LANES} x i1> {inside} to i32')}, -1")
    return writer.op(f"icmp eq i32 {writer.op(f'and i32 {outside}, {access.mask}')}, 0")


def _shared_pointers(access: Access) -> str:
    """Pointers of the lanes, which are in bounds; to be made in the block of their use, where they fold into it."""
    ll = f"<{LANES} x i{access.address.type.bits}>"
    return access.to.writer.op(f"getelementptr i8, ptr %shared, {ll} {access.address.vector()}")


def _load_shared(access: Access) -> NativeValue:
    to, writer = access.to, access.to.writer
    ll = vector_ll(access.type)
    test = _shared_test(access)
    fast, slow, done = writer.label("fast"), writer.label("slow"), writer.label("done")
    writer.do(f"br i1 {test}, label %{fast}, label %{slow}")
    writer.start(fast)
    pointers = _shared_pointers(access)
    near = masked(to, "gather", ll, [(f"<{LANES} x ptr>", pointers)], access.mask, access.type.bytes)
    gathered = writer.label("gathered")
    blank = _blank(access, near)
    writer.do(f"br label %{gathered}")
    writer.start(gathered)
    writer.do(f"br i1 {blank}, label %{slow}, label %{done}")
    writer.start(slow)
    access.runtime("load_lanes")
    far = writer.op(f"load {ll}, ptr %vals, align 64")
    reached = writer.label("reached")
    writer.do(f"br label %{reached}")
    writer.start(reached)
    writer.do(f"br label %{done}")
    writer.start(done)
    found = writer.op(f"phi {ll} [ {near}, %{gathered} ], [ {far}, %{reached} ]")
    _count_shape(access)
    return to.value(access.type, found)


def _blank(access: Access, vector: str) -> str:
    """i1: a word of a vector holds what unwritten words hold."""
    writer = access.to.writer
    words = LANES * access.type.bytes // 4
    raw = writer.op(f"bitcast {vector_ll(access.type)} {vector} to <{words} x i32>")
    equal = writer.op(f"icmp eq <{words} x i32> {raw}, splat (i32 {UNWRITTEN})")
    return writer.op(f"icmp ne i{words} {writer.op(f'bitcast <{words} x i1> {equal} to i{words}')}, 0")


def _count_shape(access: Access) -> None:
    """Wavefronts of a shared access: those of the site's last access if the lanes' distances are the same."""
    to, writer, frame = access.to, access.to.writer, access.to.frame
    if not frame.counting:
        return
    bits = access.address.type.bits
    ll = f"<{LANES} x i{bits}>"
    vector = access.address.vector()
    zero = writer.op(f"and i{bits} {writer.op(f'extractelement {ll} {vector}, i32 0')}, -4")
    distance = writer.op(f"sub {ll} {vector}, {writer.splat(zero, f'i{bits}')}")
    if bits == 64:
        distance = writer.op(f"trunc {ll} {distance} to <{LANES} x i32>")
    shape = frame.field("%shapes", access.site * SHAPE_BYTES)
    known = writer.op(f"load <{LANES} x i32>, ptr {shape}, align 64")
    same = writer.op(f"icmp eq <{LANES} x i32> {distance}, {known}")
    stray = writer.op(f"and i32 {access.mask}, {writer.op(f'xor i32 {_bits(access, same)}, -1')}")
    mask = writer.op(f"zext i32 {access.mask} to i64")
    last = writer.op(f"load i64, ptr {frame.field(shape, 128)}")
    tests = (writer.op(f"icmp eq i32 {stray}, 0"), writer.op(f"icmp eq i64 {mask}, {last}"))
    hit, miss, done = writer.label("hit"), writer.label("miss"), writer.label("shaped")
    writer.do(f"br i1 {writer.op(f'and i1 {tests[0]}, {tests[1]}')}, label %{hit}, label %{miss}")
    writer.start(hit)
    result = writer.op(f"load i64, ptr {frame.field(shape, 136)}")
    frame.bump("%sites", access.site * _SITE_BYTES + _WAVEFRONTS, writer.op(f"and i64 {result}, 63"))
    frame.bump("%sites", access.site * _SITE_BYTES + _IDEAL, writer.op(f"lshr i64 {result}, 6"))
    writer.do(f"br label %{done}")
    writer.start(miss)
    writer.do(f"store <{LANES} x i32> {distance}, ptr {shape}, align 64")
    writer.do(f"store i64 {mask}, ptr {frame.field(shape, 128)}")
    writer.do(f"store <{LANES} x i64> {access.addresses()}, ptr %area, align 64")
    arguments = [
        ("i64", pointer_number(to, "%ctx")), ("i64", str(access.site)), ("i64", mask),
        ("i64", pointer_number(to, "%area")), ("i64", str(access.bytes)),
    ]  # fmt: skip
    made = writer.call("count_wavefronts", "i64", *arguments)
    writer.do(f"store i64 {made}, ptr {frame.field(shape, 136)}")
    writer.do(f"br label %{done}")
    writer.start(done)


def _bits(access: Access, lanes: str) -> str:
    return access.to.writer.op(f"bitcast <{LANES} x i1> {lanes} to i32")


# --------------------------------------------------------------------------------------------------------- stores


def _stored(access: Access) -> list[NativeValue]:
    """The values to store, one per element, in the access's type."""
    from ..flow.operands import matched

    to, found = access.to, []
    for form, operand in matched(access.instruction):
        if form.role == "source" and form.name not in ("policy",):
            for element in operand.elements if isinstance(operand, Vector) else (operand,):
                if isinstance(element, Immediate):
                    found.append(to.source(element, access.type))
                else:
                    found.append(to.as_type(to.source(element, None), access.type).clean())
    return found[: access.count]


def _store(access: Access) -> None:
    to = access.to
    values = _stored(access)
    simple = access.count == 1 and access.type.bits <= 64
    if simple and access.space in (0, 3):
        _store_consecutive(access, values[0])
    elif simple and access.space == 1 and to.frame.wide and access.type.bits in (32, 64) and not to.frame.watching:
        _store_shared(access, values[0])
    else:
        _store_slowly(access, values)
        access.count_slowly()


def _store_slowly(access: Access, values: list[NativeValue]) -> None:
    to = access.to
    for element, value in enumerate(values):
        cell = to.frame.field("%vals", element * LANES * access.type.bytes)
        to.writer.do(f"store {vector_ll(access.type)} {value.vector()}, ptr {cell}, align 16")
    access.runtime("store_lanes")


def _store_consecutive(access: Access, value: NativeValue) -> None:
    to, writer, frame = access.to, access.to.writer, access.to.frame
    ll = vector_ll(access.type)
    vector = value.vector()
    found = _Consecutive(access)
    fast, slow, done = writer.label("fast"), writer.label("slow"), writer.label("done")
    writer.do(f"br i1 {found.test}, label %{fast}, label %{slow}")
    writer.start(slow)
    _store_slowly(access, [to.value(access.type, vector)])
    access.count_slowly()
    writer.do(f"br label %{done}")
    writer.start(fast)
    host = found.host()
    if frame.wide:
        masked(to, "store", ll, [(ll, vector), ("ptr", host)], access.mask, access.type.bytes)
    else:
        writer.do(f"store {ll} {vector}, ptr {host}, align {access.type.bytes}")
    found.count()
    tracked = writer.op(f"load i64, ptr {frame.field(access.cache(), 16)}")
    mark = writer.label("mark")
    writer.do(f"br i1 {writer.op(f'icmp eq i64 {tracked}, 0')}, label %{done}, label %{mark}")
    writer.start(mark)
    arguments = [
        ("i64", pointer_number(to, "%ctx")), ("i64", writer.op(f"zext i32 {access.mask} to i64")),
        ("i64", found.zero), ("i64", str(access.bytes)),
    ]  # fmt: skip
    writer.call("mark_lanes", "i64", *arguments)
    writer.do(f"br label %{done}")
    writer.start(done)


def _store_shared(access: Access, value: NativeValue) -> None:
    to, writer = access.to, access.to.writer
    ll = vector_ll(access.type)
    vector = value.vector()
    test = _shared_test(access)
    fast, slow, done = writer.label("fast"), writer.label("slow"), writer.label("done")
    plain = writer.op(f"and i1 {test}, {writer.op(f'xor i1 {_blank(access, vector)}, true')}")
    writer.do(f"br i1 {plain}, label %{fast}, label %{slow}")
    writer.start(slow)
    _store_slowly(access, [to.value(access.type, vector)])
    writer.do(f"br label %{done}")
    writer.start(fast)
    pointers = _shared_pointers(access)
    masked(to, "scatter", ll, [(ll, vector), (f"<{LANES} x ptr>", pointers)], access.mask, access.type.bytes)
    writer.do(f"br label %{done}")
    writer.start(done)
    _count_shape(access)


def _native(value: object) -> NativeValue:
    assert isinstance(value, NativeValue)
    return value
