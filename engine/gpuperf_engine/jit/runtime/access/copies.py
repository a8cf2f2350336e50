"""Runtime functions for ``cp.async`` of a whole warp where nothing is observed, as LLVM IR.

``copied_16`` copies 16 bytes per active lane from the arena to shared memory and returns 1, if all sources are in the allocation that
the site accessed last and all targets in shared memory of the CTA, aligned. Else it does nothing and returns 0: ``copy_lanes`` does
all that a copy may need.
"""

from __future__ import annotations

from ...ir.abi import UNWRITTEN, Context, Cta
from ...ir.access_records import SiteCache
from ...ir.operands import LANES, Ref, constant, vector_of
from .text import ADDRESSES, MASK, SITE, V64, AccessEmitter, Form, begin

__all__ = ["COPIED", "copied_function"]

#: the beginning of the names of these functions; the end is the number of bytes
COPIED = "copied_"
_TARGETS = Ref(V64, "%t")


def copied_function(name: str) -> str:
    """Return the IR of a function. Its parameters are context, site, active lanes, and the addresses of sources and targets."""
    to, form = AccessEmitter(), Form(int(name.removeprefix(COPIED)))
    begin(to, form)
    to.do(f"%there = alloca {V64}, align 64")
    cta = to.context(Context.CTA, "ptr")
    cache = to.place(to.context(Context.CACHE, "ptr"), to.shl(SITE, 5))
    busy = to.zext(to.race_flags(), "i64")
    for field in (Context.COUNTING, Context.RACE_WARP, Context.READS):
        busy = to.or_(busy, to.context(field))
    busy = to.or_(to.or_(busy, to.field(cache, SiteCache.TRACKED)), to.field(cta, Cta.CLUSTER))
    by_pattern = to.icmp("eq", to.context(Context.WATCH), 2)
    to.branch(to.and_(to.icmp("eq", busy, 0), by_pattern), "plain", "other")
    to.start("plain")
    low, span = to.field(cache, SiteCache.START), to.field(cache, SiteCache.SPAN)
    outside = [
        to.outside(to.rotated(offsets, form.shift), to.lshr(bytes_, form.shift))
        for offsets, bytes_ in (
            (to.sub(ADDRESSES, to.splat(low)), span),
            (_TARGETS, to.context(Context.SHARED_BYTES)),
        )
    ]
    some = to.icmp("ne", MASK, 0)
    to.branch(to.and_(to.icmp("eq", to.or_(*outside), 0), some), "inside", "other")
    to.start("inside")
    to.store(to.add(ADDRESSES, to.splat(to.context(Context.ARENA))), "%area", 64)
    to.store(to.add(_TARGETS, to.splat(to.field(cta, Cta.SHARED))), "%there", 64)
    before = to.block
    to.jump("lane")
    to.start("lane")
    rest = to.phi("i32", (MASK, before))
    lane = to.zext(to.ref("i32", f"call i32 @llvm.cttz.i32(i32 {rest}, i1 true)"), "i64")
    source, target = (to.load("i64", to.element(area, "i64", lane)) for area in ("%area", "%there"))
    words = form.size // 4
    value = to.load(vector_of(words, "i32"), to.pointer(source), form.align)
    to.store(value, to.pointer(target), form.align)
    blank = to.any(to.icmp("eq", value, UNWRITTEN))
    to.branch(blank, "mark", "next")
    to.start("mark")
    # a value that is the fill pattern: the words count as written
    to.put("i64", 1, to.place(cta, Cta.MARKED))
    shadow = to.pointer(to.add(target, to.field(cta, Cta.SHARED_SHADOW)))
    for word in range(words):
        to.put("i8", 1, to.place(shadow, 4 * word))
    to.jump("next")
    to.start("next")
    less = to.and_(rest, to.sub(rest, 1))
    rest.come(less)
    to.branch(to.icmp("eq", less, 0), "done", "lane")
    to.start("done")
    to.give(constant("i32", 1))
    to.start("other")
    to.give(constant("i32", 0))
    return "\n".join(
        [
            "declare i32 @llvm.cttz.i32(i32, i1)",
            f"declare {V64} @llvm.fshr.v{LANES}i64({V64}, {V64}, {V64})",
            to.function(f"i32 @{name}(ptr %ctx, i64 %site, i32 %mask, {V64} %a, {V64} %t)"),
        ]
    )
