"""Runtime functions for accesses of shared memory by a whole warp, as LLVM IR; see ``native_access``.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from .native_access_text import V1, V32, V64, Text, finish, head, slow
from .native_layout import SHAPE_BYTES, SITE_BYTES, UNWRITTEN, Context, Counter, Cta
from .native_writer import LANES

__all__ = ["shared_access"]


def shared_access(width: int, wide: bool, stores: bool) -> str:
    """Shared memory, 32-bit addresses, words of 4 or 8 bytes."""
    to = Text()
    kind = f"i{8 * width}"
    vector, half, shift = f"<{LANES} x {kind}>", f"<16 x {kind}>", width.bit_length() - 1
    to.do(*head(f"shared_{'store' if stores else 'load'}_{width}", width, stores, V32, ""))
    cta = to.field("%ctx", Context.CTA, "ptr")
    base = to.field(cta, Cta.SHARED, "ptr")
    size = to.field("%ctx", Context.SHARED_BYTES)
    starts = to.op(
        f"shufflevector {V32} %a, {V32} poison, {V32} <{', '.join(f'i32 {lane & 16}' for lane in range(LANES))}>"
    )
    distance = to.op(f"sub {V32} %a, {starts}")
    ladder = ", ".join(f"i32 {(lane & 15) * width}" for lane in range(LANES))
    rows = to.op(f"icmp eq i32 {to.bits(to.op(f'icmp eq {V32} {distance}, <{ladder}>'))}, -1")
    lows = [to.op(f"extractelement {V32} %a, i32 {lane}") for lane in (0, 16)]
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
                on = to.op(f"shufflevector {V1} %lanes, {V1} poison, <16 x i32> <{part}>")
                to.do(
                    f"call void @llvm.masked.store.v16{kind}.p0({half} {data}, ptr align {width} {place}, <16 x i1> {on})"
                )
            else:
                to.do(f"store {half} {data}, ptr {place}, align {width}")
        to.do("br label %kinds")
    else:
        parts = [to.op(f"load {half}, ptr {place}, align {width}") for place in places]
        order = ", ".join(f"i32 {lane}" for lane in range(LANES))
        row = to.op(f"shufflevector {half} {parts[0]}, {half} {parts[1]}, {V32} <{order}>")
        unwritten = _blank(to, row, width)
        to.do(f"br i1 {to.op(f'icmp eq i32 {unwritten}, 0')}, label %kinds, label %slow")
    to.do("norows:")
    if stores:
        to.do("br label %any")
    else:
        same = to.op(f"icmp eq i32 {to.bits(to.op(f'icmp eq {V32} {distance}, zeroinitializer'))}, -1")
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
        repeated = to.op(f"shufflevector <2 x {kind}> {pair}, <2 x {kind}> poison, {V32} <{order}>")
        unwritten = _blank(to, repeated, width)
        to.do(f"br i1 {to.op(f'icmp eq i32 {unwritten}, 0')}, label %kinds, label %slow")
    to.do("any:")
    gathered = "zeroinitializer"
    if wide:
        indices = to.op(f"call {V32} @llvm.fshr.v{LANES}i32({V32} %a, {V32} %a, {V32} splat (i32 {shift}))")
        limit = to.splat(to.op(f"trunc i64 {to.op(f'lshr i64 {size}, {shift}')} to i32"), "i32")
        bad = to.op(f"and i32 %mask, {_outside(to, indices, limit)}")
        plain = to.op(f"and i1 {to.op(f'icmp eq i32 {bad}, 0')}, {tests[3]}")
        if stores:
            plain = to.op(f"and i1 {plain}, {to.op(f'icmp eq i32 {blank}, 0')}")
        to.do(f"br i1 {plain}, label %gather, label %slow", "gather:")
        pointers = to.op(f"getelementptr i8, ptr {base}, {V32} %a")
        if stores:
            to.do(
                f"call void @llvm.masked.scatter.v{LANES}{kind}.v{LANES}p0({vector} %v, "
                f"<{LANES} x ptr> align {width} {pointers}, {V1} %lanes)",
                "br label %shapes",
            )
        else:
            gathered = to.op(
                f"call {vector} @llvm.masked.gather.v{LANES}{kind}.v{LANES}p0(<{LANES} x ptr> align {width} {pointers}, "
                f"{V1} %lanes, {vector} zeroinitializer)"
            )
            unwritten = _blank(to, gathered, width)
            to.do(f"br i1 {to.op(f'icmp eq i32 {unwritten}, 0')}, label %shapes, label %slow")
    else:
        to.do("br label %slow")
    to.do("slow:")
    wide_addresses = to.op(f"zext {V32} %a to {V64}")
    slow(to, width, stores, wide_addresses, "1")
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
    relative = to.op(f"sub {V32} %a, {start}")
    differs = to.bits(to.op(f"icmp ne {V32} {relative}, {to.op(f'load {V32}, ptr {shape2}, align 64')}"))
    alike = to.op(f"icmp eq i32 {to.op(f'and i32 {differs}, %mask')}, 0")
    alike = to.op(f"and i1 {alike}, {to.op(f'icmp eq i64 %mask64, {to.field(shape2, 128)}')}")
    alike = to.op(f"and i1 {alike}, {to.op(f'icmp eq i64 3, {to.field(shape2, 144)}')}")
    to.do(f"br i1 {alike}, label %known2, label %renew", "renew:")
    to.do(
        f"store {V32} {relative}, ptr {shape2}, align 64",
        f"store i64 3, ptr {to.place(shape2, 144)}",
        "br label %measure",
    )
    to.do("known2:", "br label %known", "measure:")
    shape3 = to.op(f"phi ptr [ {shape}, %fresh ], [ {shape2}, %renew ]")
    if not stores:
        value3 = to.op(f"phi {vector} [ {held}, %fresh ], [ {loose}, %renew ]")
    to.do(
        f"store i64 %mask64, ptr {to.place(shape3, 128)}",
        f"store {V64} {to.op(f'zext {V32} %a to {V64}')}, ptr %area, align 64",
    )
    given = f"i64 {to.number('%ctx')}, i64 %site, i64 %mask64, i64 {to.number('%area')}, i64 {width}, i64 {int(not stores)}"
    to.do(
        f"store i64 {to.op(f'call i64 @count_wavefronts({given})')}, ptr {to.place(shape3, 136)}",
        "br label %end",
        "known:",
    )
    shape4 = to.op(f"phi ptr [ {shape}, %memo ], [ {shape2}, %known2 ]")
    if not stores:
        value4 = to.op(f"phi {vector} [ {held}, %memo ], [ {loose}, %known2 ]")
    result = to.field(shape4, 136)
    record = to.place(to.field("%ctx", Context.SITES, "ptr"), to.op(f"mul i64 %site, {SITE_BYTES}"))
    to.bump(record, Counter.WAVEFRONTS, to.op(f"and i64 {result}, 63"))
    to.bump(record, Counter.IDEAL, to.op(f"lshr i64 {result}, 6"))
    to.do("br label %end", "end:")
    final = "%v"
    if not stores:
        final = to.op(
            f"phi {vector} [ {held}, %kinds ], [ {loose}, %shapes ], [ {value3}, %measure ], [ {value4}, %known ]"
        )
    finish(to, width, stores, final)
    return "\n".join([*to.lines, "}", ""])


def _outside(to: Text, indices: str, limit: str) -> str:
    inside = to.bits(to.op(f"icmp ult {V32} {indices}, {limit}"))
    return to.op(f"xor i32 {inside}, -1")


def _blank(to: Text, value: str, width: int) -> str:
    """The active lanes of a vector in which a word holds what unwritten words hold, as i32 mask."""
    words = LANES * width // 4
    raw = to.op(f"bitcast <{LANES} x i{8 * width}> {value} to <{words} x i32>")
    equal = to.op(f"icmp eq <{words} x i32> {raw}, splat (i32 {UNWRITTEN})")
    if words == LANES:
        return to.op(f"and i32 {to.bits(equal)}, %mask")
    pairs = [
        to.op(
            f"shufflevector <{words} x i1> {equal}, <{words} x i1> poison, {V32} "
            f"<{', '.join(f'i32 {2 * lane + part}' for lane in range(LANES))}>"
        )
        for part in (0, 1)
    ]
    return to.op(f"and i32 {to.bits(to.op(f'or {V1} {pairs[0]}, {pairs[1]}'))}, %mask")
