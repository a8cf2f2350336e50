"""Runtime functions for the memory accesses of a whole warp, as LLVM IR. PYTEST_DONT_REWRITE

Each takes the lanes' addresses as one vector and tries what is cheap first: consecutive lanes as one (masked) vector access,
half warps that are consecutive or all the same, a gather or scatter on hosts with AVX-512, and at last the loops of
``native_runtime_memory``. Every access is checked whichever way it goes. A refused one sets ``Context.FAULTED``, which the generated
code tests at the end of the block; it gives zeros meanwhile. Sectors and wavefronts are counted where ``Context.COUNTING`` says so.
"""

from __future__ import annotations

from .native_access_shared import shared_access
from .native_access_text import V1, V64, Text, declarations, finish, head, slow
from .native_layout import SITE_BYTES, Context, Counter
from .native_writer import LANES

__all__ = ["access_functions", "access_names"]


def access_names(width: int) -> tuple[str, ...]:
    """What ``access_functions`` defines for a width."""
    spaces = ("global", "shared") if width >= 4 else ("global",)
    return tuple(f"{space}_{what}_{width}" for space in spaces for what in ("load", "store"))


def access_functions(width: int, wide: bool) -> str:
    """The functions for elements of ``width`` bytes. ``wide``: the host has AVX-512."""
    texts = [_global(width, wide, False), _global(width, wide, True)]
    if width >= 4:
        texts += [shared_access(width, wide, False), shared_access(width, wide, True)]
    return declarations(width) + "\n".join(texts)


def _global(width: int, wide: bool, stores: bool) -> str:
    """Arena and generic addresses. ``%how``: space, + 4 where sectors are not counted."""
    to = Text()
    vector, shift = f"<{LANES} x i{8 * width}>", width.bit_length() - 1
    name = f"global_{'store' if stores else 'load'}_{width}"
    to.do(*head(name, width, stores, V64, ", i64 %how"))
    cache = to.place(to.field("%ctx", Context.CACHE, "ptr"), to.op("shl i64 %site, 5"))
    low, span = to.field(cache, 0), to.field(cache, 8)
    zero = to.op(f"extractelement {V64} %a, i32 0")
    ladder = ", ".join(f"i64 {lane * width}" for lane in range(LANES))
    expected = to.op(f"add {V64} {to.splat(zero, 'i64')}, <{ladder}>")
    equal = to.bits(to.op(f"icmp eq {V64} %a, {expected}"))
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
        to.do(
            f"call void @llvm.masked.store.v{LANES}i{8 * width}.p0({vector} %v, ptr align {width} {host}, {V1} %lanes)"
        )
    elif stores:
        to.do(f"store {vector} %v, ptr {host}, align {width}")
    elif wide:
        zeros = f"{vector} zeroinitializer"
        found = to.op(
            f"call {vector} @llvm.masked.load.v{LANES}i{8 * width}.p0(ptr align {width} {host}, {V1} %lanes, {zeros})"
        )
    else:
        found = to.op(f"load {vector}, ptr {host}, align {width}")
    tracked = to.field(cache, 16)
    to.do(f"br i1 {to.op(f'icmp eq i64 {tracked}, 0')}, label %whole, label %shadow", "shadow:")
    context = to.number("%ctx")
    if stores:
        to.op(f"call i64 @mark_lanes(i64 {context}, i64 %mask64, i64 {zero}, i64 {width})")
    else:
        to.op(f"call i64 @seen_lanes(i64 {context}, i64 %site, i64 %mask64, i64 {zero}, i64 {width})")
    to.do("br label %whole", "whole:")
    to.do(f"br i1 {quiet}, label %done, label %count", "count:")
    shifted = to.op(f"lshr i64 %mask64, {first}")
    holes = to.op(f"and i64 {shifted}, {to.op(f'add i64 {shifted}, 1')}")
    to.do(f"br i1 {to.op(f'icmp eq i64 {holes}, 0')}, label %ends, label %holes", "ends:")
    record = to.place(to.field("%ctx", Context.SITES, "ptr"), to.op(f"mul i64 %site, {SITE_BYTES}"))
    reached = [to.op(f"add i64 {zero}, {to.op(f'shl i64 {place}, {shift}')}") for place in (first, last)]
    for counter, bits in ((Counter.SECTORS, 5), (Counter.LINES, 7)):
        pieces = [to.op(f"lshr i64 {place}, {bits}") for place in reached]
        to.bump(record, counter, to.op(f"add i64 {to.op(f'sub i64 {pieces[1]}, {pieces[0]}')}, 1"))
    to.do("br label %done", "holes:", f"store {V64} %a, ptr %area, align 64")
    to.op(
        f"call i64 @count_sectors(i64 {to.number('%ctx')}, i64 %site, i64 %mask64, i64 {to.number('%area')})"
    )
    to.do("br label %done", "done:")
    finish(to, width, stores, found)
    to.do("scattered:")
    if wide:
        offsets = to.op(f"sub {V64} %a, {to.splat(low, 'i64')}")
        indices = to.op(
            f"call {V64} @llvm.fshr.v{LANES}i64({V64} {offsets}, {V64} {offsets}, {V64} splat (i64 {shift}))"
        )
        inside = to.bits(to.op(f"icmp ult {V64} {indices}, {to.splat(limit, 'i64')}"))
        outside = to.op(f"and i32 %mask, {to.op(f'xor i32 {inside}, -1')}")
        plain = to.op(f"icmp eq i32 {outside}, 0")
        plain = to.op(f"and i1 {plain}, {to.op(f'icmp eq i64 {to.field(cache, 16)}, 0')}")
        to.do(f"br i1 {plain}, label %gather, label %slow", "gather:")
        base = to.op(f"inttoptr i64 {arena} to ptr")
        pointers = to.op(f"getelementptr i8, ptr {base}, {V64} %a")
        if stores:
            to.do(
                f"call void @llvm.masked.scatter.v{LANES}i{8 * width}.v{LANES}p0({vector} %v, "
                f"<{LANES} x ptr> align {width} {pointers}, {V1} %lanes)"
            )
            gathered = "%v"
        else:
            gathered = to.op(
                f"call {vector} @llvm.masked.gather.v{LANES}i{8 * width}.v{LANES}p0(<{LANES} x ptr> align {width} {pointers}, "
                f"{V1} %lanes, {vector} zeroinitializer)"
            )
        to.do(f"store {V64} %a, ptr %area, align 64", "br label %tally")
    else:
        to.do("br label %slow")
    to.do("slow:")
    slow(to, width, stores, "%a", space)
    slowly = "%v" if stores else to.op(f"load {vector}, ptr %out, align 64")
    to.do("br label %tally", "tally:")
    result = "%v"
    if not stores:
        result = to.op(f"phi {vector} [ {slowly}, %slow ]" + (f", [ {gathered}, %gather ]" if wide else ""))
    to.do(f"br i1 {quiet}, label %out2, label %sum", "sum:")
    generic = to.op(f"icmp eq i64 {space}, 3")
    to.do(f"br i1 {generic}, label %windows, label %sectors", "windows:")
    area, context = to.number("%area"), to.number("%ctx")
    given = f"i64 {context}, i64 %site, i64 %mask64, i64 {area}, i64 {width}, i64 {int(not stores)}"
    to.op(f"call i64 @count_windows({given})")
    to.do("br label %out2", "sectors:")
    area, context = to.number("%area"), to.number("%ctx")
    to.op(f"call i64 @count_sectors(i64 {context}, i64 %site, i64 %mask64, i64 {area})")
    to.do("br label %out2", "out2:")
    finish(to, width, stores, result)
    return "\n".join([*to.lines, "}", ""])
