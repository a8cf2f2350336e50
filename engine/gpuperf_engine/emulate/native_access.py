"""Runtime functions for the memory accesses of a whole warp, as LLVM IR.

Each takes the lanes' addresses as one vector and tries what is cheap first: consecutive lanes as one (masked) vector access,
half warps that are consecutive or all the same, a gather or scatter on hosts with AVX-512, and at last the loops of
``native_runtime_memory``. Every access is checked whichever way it goes. A refused one sets ``Context.FAULTED``, which the generated
code tests at the end of the block; it gives zeros meanwhile. Sectors and wavefronts are counted where ``Context.COUNTING`` says so.
"""

from __future__ import annotations

from .native_layout import SHAPE_BYTES, UNWRITTEN, Context, Cta
from .native_values import LANES

__all__ = ["access_functions", "access_names"]

_SITE_BYTES = 56
_SECTORS, _WAVEFRONTS, _IDEAL = 16, 24, 32
_V64, _V32, _V1 = f"<{LANES} x i64>", f"<{LANES} x i32>", f"<{LANES} x i1>"


class _Text:
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
        return self.op(f"bitcast {_V1} {lanes} to i32")

    def number(self, pointer: str) -> str:
        return self.op(f"ptrtoint ptr {pointer} to i64")

    def splat(self, value: str, kind: str) -> str:
        one = self.op(f"insertelement <{LANES} x {kind}> poison, {kind} {value}, i32 0")
        return self.op(f"shufflevector <{LANES} x {kind}> {one}, <{LANES} x {kind}> poison, {_V32} zeroinitializer")


def access_names(width: int) -> tuple[str, ...]:
    """What ``access_functions`` defines for a width."""
    spaces = ("global", "shared") if width >= 4 else ("global",)
    return tuple(f"{space}_{what}_{width}" for space in spaces for what in ("load", "store"))


def access_functions(width: int, wide: bool) -> str:
    """The functions for elements of ``width`` bytes. ``wide``: the host has AVX-512."""
    texts = [_global(width, wide, False), _global(width, wide, True)]
    if width >= 4:
        texts += [_shared(width, wide, False), _shared(width, wide, True)]
    return _declarations(width) + "\n".join(texts)


def _declarations(width: int) -> str:
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
            f"declare {_V64} @llvm.fshr.v{LANES}i64({_V64}, {_V64}, {_V64})",
            f"declare {_V32} @llvm.fshr.v{LANES}i32({_V32}, {_V32}, {_V32})",
            f"declare {vector} @llvm.masked.load.{name}.p0(ptr, {_V1}, {vector})",
            f"declare void @llvm.masked.store.{name}.p0({vector}, ptr, {_V1})",
            f"declare void @llvm.masked.store.v16i{bits}.p0({halves}, ptr, <16 x i1>)",
            f"declare {vector} @llvm.masked.gather.{name}.v{LANES}p0({pointers}, {_V1}, {vector})",
            f"declare void @llvm.masked.scatter.{name}.v{LANES}p0({vector}, {pointers}, {_V1})",
            f"declare i64 @load_lanes({', '.join(['i64'] * 10)})",
            f"declare i64 @store_lanes({', '.join(['i64'] * 10)})",
            "declare i64 @mark_lanes(i64, i64, i64, i64)",
            "declare i64 @count_sectors(i64, i64, i64, i64)",
            "declare i64 @count_windows(i64, i64, i64, i64, i64)",
            "declare i64 @count_wavefronts(i64, i64, i64, i64, i64)",
            "",
        ]
    )


def _head(name: str, width: int, stores: bool, addresses: str, extra: str) -> list[str]:
    vector = f"<{LANES} x i{8 * width}>"
    value = f", {vector} %v" if stores else ""
    return [
        f"define {'void' if stores else vector} @{name}(ptr %ctx, i64 %site, i32 %mask, {addresses} %a{extra}{value}) nounwind {{",
        "entry:",
        f"%area = alloca {_V64}, align 64",
        f"%out = alloca {vector}, align 64",
        f"%lanes = bitcast i32 %mask to {_V1}",
        "%mask64 = zext i32 %mask to i64",
    ]


def _slow(to: _Text, width: int, stores: bool, wide_addresses: str, space: str) -> None:
    """Lane by lane, then out."""
    vector = f"<{LANES} x i{8 * width}>"
    to.do(f"store {_V64} {wide_addresses}, ptr %area, align 64")
    if stores:
        to.do(f"store {vector} %v, ptr %out, align 64")
    else:
        to.do(f"store {vector} zeroinitializer, ptr %out, align 64")
    numbers = [to.number("%ctx"), to.field("%ctx", Context.CTA), to.field("%ctx", Context.STATE)]
    area, out = to.number("%area"), to.number("%out")
    given = ", ".join(f"i64 {item}" for item in (*numbers, "%site", "%mask64", area, out, width, 1, space))
    to.op(f"call i64 @{'store' if stores else 'load'}_lanes({given})")


def _finish(to: _Text, width: int, stores: bool, value: str) -> None:
    to.do("ret void" if stores else f"ret <{LANES} x i{8 * width}> {value}")


def _global(width: int, wide: bool, stores: bool) -> str:
    """Arena and generic addresses. ``%how``: space, + 4 where sectors are not counted."""
    to = _Text()
    vector, shift = f"<{LANES} x i{8 * width}>", width.bit_length() - 1
    name = f"global_{'store' if stores else 'load'}_{width}"
    to.do(*_head(name, width, stores, _V64, ", i64 %how"))
    cache = to.place(to.field("%ctx", Context.CACHE, "ptr"), to.op("shl i64 %site, 5"))
    low, span = to.field(cache, 0), to.field(cache, 8)
    zero = to.op(f"extractelement {_V64} %a, i32 0")
    ladder = ", ".join(f"i64 {lane * width}" for lane in range(LANES))
    expected = to.op(f"add {_V64} {to.splat(zero, 'i64')}, <{ladder}>")
    equal = to.bits(to.op(f"icmp eq {_V64} %a, {expected}"))
    stray = to.op(f"and i32 %mask, {to.op(f'xor i32 {equal}, -1')}")
    first = to.op(f"zext i32 {to.op('call i32 @llvm.cttz.i32(i32 %mask, i1 false)')} to i64")
    behind = to.op(f"zext i32 {to.op('call i32 @llvm.ctlz.i32(i32 %mask, i1 false)')} to i64")
    last = to.op(f"sub i64 31, {behind}")
    offset = to.op(f"sub i64 {zero}, {low}")
    index = to.op(f"call i64 @llvm.fshr.i64(i64 {offset}, i64 {offset}, i64 {shift})")
    limit = to.op(f"lshr i64 {span}, {shift}")
    tests = [to.op(f"icmp ult i64 {to.op(f'add i64 {index}, {place}')}, {limit}") for place in (first, last)]
    tests += [to.op(f"icmp eq i32 {stray}, 0"), to.op("icmp ne i32 %mask, 0")]
    if not wide:
        tests.append(to.op("icmp eq i32 %mask, -1"))
    good = tests[0]
    for test in tests[1:]:
        good = to.op(f"and i1 {good}, {test}")
    arena = to.field("%ctx", Context.ARENA)
    counting = to.field("%ctx", Context.COUNTING)
    quiet = to.op(f"or i1 {to.op(f'icmp eq i64 {counting}, 0')}, {to.op('icmp uge i64 %how, 4')}")
    space = to.op("and i64 %how, 3")
    to.do(f"br i1 {good}, label %fast, label %scattered", "fast:")
    host = to.op(f"inttoptr i64 {to.op(f'add i64 {arena}, {zero}')} to ptr")
    found = "%v"
    if stores and wide:
        to.do(f"call void @llvm.masked.store.v{LANES}i{8 * width}.p0({vector} %v, ptr align {width} {host}, {_V1} %lanes)")
    elif stores:
        to.do(f"store {vector} %v, ptr {host}, align {width}")
    elif wide:
        zeros = f"{vector} zeroinitializer"
        found = to.op(f"call {vector} @llvm.masked.load.v{LANES}i{8 * width}.p0(ptr align {width} {host}, {_V1} %lanes, {zeros})")
    else:
        found = to.op(f"load {vector}, ptr {host}, align {width}")
    if stores:
        tracked = to.field(cache, 16)
        to.do(f"br i1 {to.op(f'icmp eq i64 {tracked}, 0')}, label %stored, label %mark", "mark:")
        to.op(f"call i64 @mark_lanes(i64 {to.number('%ctx')}, i64 %mask64, i64 {zero}, i64 {width})")
        to.do("br label %stored", "stored:")
    to.do(f"br i1 {quiet}, label %done, label %count", "count:")
    shifted = to.op(f"lshr i64 %mask64, {first}")
    holes = to.op(f"and i64 {shifted}, {to.op(f'add i64 {shifted}, 1')}")
    to.do(f"br i1 {to.op(f'icmp eq i64 {holes}, 0')}, label %ends, label %holes", "ends:")
    sectors = [
        to.op(f"lshr i64 {to.op(f'add i64 {zero}, {_times(to, place, shift)}')}, 5") for place in (first, last)
    ]
    amount = to.op(f"add i64 {to.op(f'sub i64 {sectors[1]}, {sectors[0]}')}, 1")
    record = to.place(to.field("%ctx", Context.SITES, "ptr"), to.op(f"mul i64 %site, {_SITE_BYTES}"))
    to.bump(record, _SECTORS, amount)
    to.do("br label %done", "holes:", f"store {_V64} %a, ptr %area, align 64")
    to.op(f"call i64 @count_sectors(i64 {to.number('%ctx')}, i64 %site, i64 %mask64, i64 {to.number('%area')})")
    to.do("br label %done", "done:")
    _finish(to, width, stores, found)
    to.do("scattered:")
    if wide:
        offsets = to.op(f"sub {_V64} %a, {to.splat(low, 'i64')}")
        indices = to.op(f"call {_V64} @llvm.fshr.v{LANES}i64({_V64} {offsets}, {_V64} {offsets}, {_V64} splat (i64 {shift}))")
        inside = to.bits(to.op(f"icmp ult {_V64} {indices}, {to.splat(limit, 'i64')}"))
        outside = to.op(f"and i32 %mask, {to.op(f'xor i32 {inside}, -1')}")
        plain = to.op(f"icmp eq i32 {outside}, 0")
        if stores:
            plain = to.op(f"and i1 {plain}, {to.op(f'icmp eq i64 {to.field(cache, 16)}, 0')}")
        to.do(f"br i1 {plain}, label %gather, label %slow", "gather:")
        base = to.op(f"inttoptr i64 {arena} to ptr")
        pointers = to.op(f"getelementptr i8, ptr {base}, {_V64} %a")
        if stores:
            to.do(
                f"call void @llvm.masked.scatter.v{LANES}i{8 * width}.v{LANES}p0({vector} %v, "
                f"<{LANES} x ptr> align {width} {pointers}, {_V1} %lanes)"
            )
            gathered = "%v"
        else:
            gathered = to.op(
                f"call {vector} @llvm.masked.gather.v{LANES}i{8 * width}.v{LANES}p0(<{LANES} x ptr> align {width} {pointers}, "
                f"{_V1} %lanes, {vector} zeroinitializer)"
            )
        to.do(f"store {_V64} %a, ptr %area, align 64", "br label %tally")
    else:
        to.do("br label %slow")
    to.do("slow:")
    _slow(to, width, stores, "%a", space)
    slowly = "%v" if stores else to.op(f"load {vector}, ptr %out, align 64")
    to.do("br label %tally", "tally:")
    result = "%v"
    if not stores:
        result = to.op(f"phi {vector} [ {slowly}, %slow ]" + (f", [ {gathered}, %gather ]" if wide else ""))
    to.do(f"br i1 {quiet}, label %out2, label %sum", "sum:")
    generic = to.op(f"icmp eq i64 {space}, 3")
    to.do(f"br i1 {generic}, label %windows, label %sectors", "windows:")
    area, context = to.number("%area"), to.number("%ctx")
    to.op(f"call i64 @count_windows(i64 {context}, i64 %site, i64 %mask64, i64 {area}, i64 {width})")
    to.do("br label %out2", "sectors:")
    area, context = to.number("%area"), to.number("%ctx")
    to.op(f"call i64 @count_sectors(i64 {context}, i64 %site, i64 %mask64, i64 {area})")
    to.do("br label %out2", "out2:")
    _finish(to, width, stores, result)
    return "\n".join([*to.lines, "}", ""])


def _times(to: _Text, place: str, shift: int) -> str:
    return to.op(f"shl i64 {place}, {shift}")


def _shared(width: int, wide: bool, stores: bool) -> str:
    """Shared memory, 32-bit addresses, words of 4 or 8 bytes."""
    to = _Text()
    kind = f"i{8 * width}"
    vector, half, shift = f"<{LANES} x {kind}>", f"<16 x {kind}>", width.bit_length() - 1
    to.do(*_head(f"shared_{'store' if stores else 'load'}_{width}", width, stores, _V32, ""))
    cta = to.field("%ctx", Context.CTA, "ptr")
    base = to.field(cta, Cta.SHARED, "ptr")
    size = to.field("%ctx", Context.SHARED_BYTES)
    starts = to.op(f"shufflevector {_V32} %a, {_V32} poison, {_V32} <{', '.join(f'i32 {lane & 16}' for lane in range(LANES))}>")
    distance = to.op(f"sub {_V32} %a, {starts}")
    ladder = ", ".join(f"i32 {(lane & 15) * width}" for lane in range(LANES))
    rows = to.op(f"icmp eq i32 {to.bits(to.op(f'icmp eq {_V32} {distance}, <{ladder}>'))}, -1")
    lows = [to.op(f"extractelement {_V32} %a, i32 {lane}") for lane in (0, 16)]
    near = [to.op(f"zext i32 {low} to i64") for low in lows]
    odd = to.op(f"and i32 {to.op(f'or i32 {lows[0]}, {lows[1]}')}, {width - 1}")
    room = to.op(f"sub i64 {size}, {16 * width}")
    tests = [to.op(f"icmp sle i64 {place}, {room}") for place in near]
    tests.append(to.op(f"icmp eq i32 {odd}, 0"))
    precise = to.field("%ctx", Context.WATCH)
    tests.append(to.op(f"icmp eq i64 {precise}, 2"))
    blank = _blank(to, "%v", width) if stores else ""
    if stores:
        tests.append(to.op(f"icmp eq i32 {blank}, 0"))
        if not wide:
            tests.append(to.op("icmp eq i32 %mask, -1"))
    inside = tests[0]
    for test in tests[1:]:
        inside = to.op(f"and i1 {inside}, {test}")
    to.do(f"br i1 {to.op(f'and i1 {rows}, {inside}')}, label %rows, label %norows", "rows:")
    places = [to.place(base, item) for item in near]
    if stores:
        for number, place in enumerate(places):
            part = ", ".join(f"i32 {16 * number + lane}" for lane in range(16))
            data = to.op(f"shufflevector {vector} %v, {vector} poison, <16 x i32> <{part}>")
            if wide:
                on = to.op(f"shufflevector {_V1} %lanes, {_V1} poison, <16 x i32> <{part}>")
                to.do(f"call void @llvm.masked.store.v16{kind}.p0({half} {data}, ptr align {width} {place}, <16 x i1> {on})")
            else:
                to.do(f"store {half} {data}, ptr {place}, align {width}")
        to.do("br label %kinds")
    else:
        parts = [to.op(f"load {half}, ptr {place}, align {width}") for place in places]
        order = ", ".join(f"i32 {lane}" for lane in range(LANES))
        row = to.op(f"shufflevector {half} {parts[0]}, {half} {parts[1]}, {_V32} <{order}>")
        unwritten = _blank(to, row, width)
        to.do(f"br i1 {to.op(f'icmp eq i32 {unwritten}, 0')}, label %kinds, label %slow")
    to.do("norows:")
    if stores:
        to.do("br label %any")
    else:
        same = to.op(f"icmp eq i32 {to.bits(to.op(f'icmp eq {_V32} {distance}, zeroinitializer'))}, -1")
        room2 = to.op(f"sub i64 {size}, {width}")
        fits = [to.op(f"icmp sle i64 {place}, {room2}") for place in near]
        both = to.op(f"and i1 {fits[0]}, {fits[1]}")
        both = to.op(f"and i1 {both}, {tests[2]}")
        both = to.op(f"and i1 {both}, {tests[3]}")
        to.do(f"br i1 {to.op(f'and i1 {same}, {both}')}, label %same, label %any", "same:")
        ones = [to.op(f"load {kind}, ptr {to.place(base, item)}, align {width}") for item in near]
        pair = to.op(f"insertelement <2 x {kind}> poison, {kind} {ones[0]}, i32 0")
        pair = to.op(f"insertelement <2 x {kind}> {pair}, {kind} {ones[1]}, i32 1")
        order = ", ".join(f"i32 {lane >> 4}" for lane in range(LANES))
        repeated = to.op(f"shufflevector <2 x {kind}> {pair}, <2 x {kind}> poison, {_V32} <{order}>")
        unwritten = _blank(to, repeated, width)
        to.do(f"br i1 {to.op(f'icmp eq i32 {unwritten}, 0')}, label %kinds, label %slow")
    to.do("any:")
    gathered = "zeroinitializer"
    if wide:
        indices = to.op(f"call {_V32} @llvm.fshr.v{LANES}i32({_V32} %a, {_V32} %a, {_V32} splat (i32 {shift}))")
        limit = to.splat(to.op(f"trunc i64 {to.op(f'lshr i64 {size}, {shift}')} to i32"), "i32")
        bad = to.op(f"and i32 %mask, {_outside(to, indices, limit)}")
        plain = to.op(f"and i1 {to.op(f'icmp eq i32 {bad}, 0')}, {tests[3]}")
        if stores:
            plain = to.op(f"and i1 {plain}, {to.op(f'icmp eq i32 {blank}, 0')}")
        to.do(f"br i1 {plain}, label %gather, label %slow", "gather:")
        pointers = to.op(f"getelementptr i8, ptr {base}, {_V32} %a")
        if stores:
            to.do(
                f"call void @llvm.masked.scatter.v{LANES}{kind}.v{LANES}p0({vector} %v, "
                f"<{LANES} x ptr> align {width} {pointers}, {_V1} %lanes)",
                "br label %shapes",
            )
        else:
            gathered = to.op(
                f"call {vector} @llvm.masked.gather.v{LANES}{kind}.v{LANES}p0(<{LANES} x ptr> align {width} {pointers}, "
                f"{_V1} %lanes, {vector} zeroinitializer)"
            )
            unwritten = _blank(to, gathered, width)
            to.do(f"br i1 {to.op(f'icmp eq i32 {unwritten}, 0')}, label %shapes, label %slow")
    else:
        to.do("br label %slow")
    to.do("slow:")
    wide_addresses = to.op(f"zext {_V32} %a to {_V64}")
    _slow(to, width, stores, wide_addresses, "1")
    slowly = "%v" if stores else to.op(f"load {vector}, ptr %out, align 64")
    to.do("br label %shapes")
    counting = "icmp eq i64 {}, 0"
    # half warps: the wavefronts follow from the distance of the halves and the mask
    to.do("kinds:")
    held = "%v"
    if not stores:
        held = to.op(f"phi {vector} [ {row}, %rows ], [ {repeated}, %same ]")
    flag = to.field("%ctx", Context.COUNTING)
    to.do(f"br i1 {to.op(counting.format(flag))}, label %end, label %memo", "memo:")
    shape = to.place(to.field("%ctx", Context.SHAPES, "ptr"), to.op(f"mul i64 %site, {SHAPE_BYTES}"))
    apart = to.op(f"zext i32 {to.op(f'sub i32 {lows[1]}, {lows[0]}')} to i64")
    key = to.op(f"or i64 {to.op(f'shl i64 {apart}, 2')}, {to.op(f'select i1 {rows}, i64 1, i64 2')}")
    hit = to.op(f"icmp eq i64 {key}, {to.field(shape, 144)}")
    hit = to.op(f"and i1 {hit}, {to.op(f'icmp eq i64 %mask64, {to.field(shape, 128)}')}")
    to.do(f"br i1 {hit}, label %known, label %fresh", "fresh:")
    to.do(f"store i64 {key}, ptr {to.place(shape, 144)}", "br label %measure")
    to.do("shapes:")
    loose = "%v"
    if not stores:
        loose = to.op(f"phi {vector} [ {slowly}, %slow ]" + (f", [ {gathered}, %gather ]" if wide else ""))
    flag2 = to.field("%ctx", Context.COUNTING)
    to.do(f"br i1 {to.op(counting.format(flag2))}, label %end, label %compare", "compare:")
    shape2 = to.place(to.field("%ctx", Context.SHAPES, "ptr"), to.op(f"mul i64 %site, {SHAPE_BYTES}"))
    start = to.splat(to.op(f"and i32 {lows[0]}, -4"), "i32")
    relative = to.op(f"sub {_V32} %a, {start}")
    differs = to.bits(to.op(f"icmp ne {_V32} {relative}, {to.op(f'load {_V32}, ptr {shape2}, align 64')}"))
    alike = to.op(f"icmp eq i32 {to.op(f'and i32 {differs}, %mask')}, 0")
    alike = to.op(f"and i1 {alike}, {to.op(f'icmp eq i64 %mask64, {to.field(shape2, 128)}')}")
    alike = to.op(f"and i1 {alike}, {to.op(f'icmp eq i64 3, {to.field(shape2, 144)}')}")
    to.do(f"br i1 {alike}, label %known2, label %renew", "renew:")
    to.do(f"store {_V32} {relative}, ptr {shape2}, align 64", f"store i64 3, ptr {to.place(shape2, 144)}", "br label %measure")
    to.do("known2:", "br label %known", "measure:")
    shape3 = to.op(f"phi ptr [ {shape}, %fresh ], [ {shape2}, %renew ]")
    if not stores:
        value3 = to.op(f"phi {vector} [ {held}, %fresh ], [ {loose}, %renew ]")
    to.do(f"store i64 %mask64, ptr {to.place(shape3, 128)}", f"store {_V64} {to.op(f'zext {_V32} %a to {_V64}')}, ptr %area, align 64")
    given = f"i64 {to.number('%ctx')}, i64 %site, i64 %mask64, i64 {to.number('%area')}, i64 {width}"
    to.do(f"store i64 {to.op(f'call i64 @count_wavefronts({given})')}, ptr {to.place(shape3, 136)}", "br label %end", "known:")
    shape4 = to.op(f"phi ptr [ {shape}, %memo ], [ {shape2}, %known2 ]")
    if not stores:
        value4 = to.op(f"phi {vector} [ {held}, %memo ], [ {loose}, %known2 ]")
    result = to.field(shape4, 136)
    record = to.place(to.field("%ctx", Context.SITES, "ptr"), to.op(f"mul i64 %site, {_SITE_BYTES}"))
    to.bump(record, _WAVEFRONTS, to.op(f"and i64 {result}, 63"))
    to.bump(record, _IDEAL, to.op(f"lshr i64 {result}, 6"))
    to.do("br label %end", "end:")
    final = "%v"
    if not stores:
        final = to.op(
            f"phi {vector} [ {held}, %kinds ], [ {loose}, %shapes ], [ {value3}, %measure ], [ {value4}, %known ]"
        )
    _finish(to, width, stores, final)
    return "\n".join([*to.lines, "}", ""])


def _outside(to: _Text, indices: str, limit: str) -> str:
    inside = to.bits(to.op(f"icmp ult {_V32} {indices}, {limit}"))
    return to.op(f"xor i32 {inside}, -1")


def _blank(to: _Text, value: str, width: int) -> str:
    """The active lanes of a vector in which a word holds what unwritten words hold, as i32 mask."""
    words = LANES * width // 4
    raw = to.op(f"bitcast <{LANES} x i{8 * width}> {value} to <{words} x i32>")
    equal = to.op(f"icmp eq <{words} x i32> {raw}, splat (i32 {UNWRITTEN})")
    if words == LANES:
        return to.op(f"and i32 {to.bits(equal)}, %mask")
    pairs = [
        to.op(
            f"shufflevector <{words} x i1> {equal}, <{words} x i1> poison, {_V32} "
            f"<{', '.join(f'i32 {2 * lane + part}' for lane in range(LANES))}>"
        )
        for part in (0, 1)
    ]
    return to.op(f"and i32 {to.bits(to.op(f'or {_V1} {pairs[0]}, {pairs[1]}'))}, %mask")
