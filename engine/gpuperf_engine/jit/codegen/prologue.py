"""The entry of a warp function, which loads the warp's state, and its exit, which stores it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...simt.thread_counters import COLUMN_BYTES
from ..ir.abi import MATRICES_BYTES, Context, Cta, State
from ..ir.codes import Event, Status, Wait
from ..ir.operands import Ref, constant
from .procedures import write_frame
from .reconvergence import label_of
from .recursion import CAPACITY

if TYPE_CHECKING:
    from .generator import CodeGenerator

__all__ = ["write_entry", "write_exits"]


def write_entry(generator: CodeGenerator) -> None:
    writer = generator.writer
    writer.start("entry")
    for name in ("pc", "mask", "id", "depth", "live", "quantum", "status"):
        writer.alloca("i32", name=f"%{name}")
    writer.alloca("i64", name="%steps")
    writer.alloca("i32", name="%loop")
    writer.alloca("[4096 x i8]", 64, "%area")
    writer.alloca("[4096 x i8]", 64, "%vals")
    if generator.program.products:
        writer.alloca(f"[{MATRICES_BYTES} x i8]", 64, "%matrices")
    for name, offset in _SAVED:
        cell = writer.at("%st", offset)
        writer.store(writer.load("i32", cell), f"%{name}")
    cell = writer.at("%st", State.STEPS)
    writer.store(writer.load("i64", cell), "%steps")
    for name, offset in _POINTERS:
        writer.named(f"%{name}", "ptr", f"load ptr, ptr {writer.at('%ctx', offset)}, !invariant.load !0")
    if generator.functions:
        table = writer.ref("ptr", "getelementptr i8, ptr @outlined, i64 0")
        for place in range(len(generator.functions)):
            writer.named(f"%form{place}", "ptr", f"load ptr, ptr {writer.at(table, 8 * place)}")
    if generator.columns is not None:
        _find_counters(generator, generator.columns.count)
    if generator.areas.bytes:
        first = writer.field("%cta", Cta.AREAS, "ptr")
        warp = writer.field("%st", State.INDEX, "i32")
        warp = writer.zext(warp, "i64")
        distance = writer.mul(warp, CAPACITY * generator.areas.bytes)
        writer.named("%areas", "ptr", f"getelementptr i8, ptr {first}, i64 {distance}")
    limit = writer.at("%ctx", Context.SHARED_BYTES)
    writer.named("%sharedbytes", "i64", f"load i64, ptr {limit}, !invariant.load !0")
    write_frame(generator)
    writer.jump("dispatch")
    writer.start("dispatch")
    pc = writer.load("i32", "%pc")
    writer.switch(
        pc, "lost", ((target, label_of(generator, target)) for target in sorted(generator.resumable))
    )
    # the target of invalid codes in a damaged stack
    writer.start("lost")
    writer.set_field("%st", State.EVENT, constant("i32", 0))
    writer.jump(f"leave{Status.EVENT}")


def _find_counters(generator: CodeGenerator, columns: int) -> None:
    """``%threads``: the address of the counters of this warp's lanes, or a scratch row if its CTA has none. A bisection finds the
    index of the CTA."""
    writer = generator.writer
    base, spare, kept = (
        writer.field("%ctx", offset, "ptr")
        for offset in (Context.THREADS, Context.THREADS_SPARE, Context.KEPT)
    )
    cta, state = writer.at("%cta", Cta.INDEX), writer.at("%st", State.INDEX)
    index = writer.load("i64", cta)
    count = writer.field("%ctx", Context.KEPT_COUNT)
    for name, start in (("low", "0"), ("high", count)):
        writer.put("i64", start, writer.alloca("i64", name=f"%{name}"))
    writer.jump("seek")
    writer.start("seek")
    low, high = (writer.load("i64", f"%{name}") for name in ("low", "high"))
    writer.branch(writer.icmp("ult", low, high), "probe", "sought")
    writer.start("probe")
    middle = writer.lshr(writer.add(low, high), 1)
    before = writer.icmp("ult", _kept_at(generator, kept, middle), index)
    above = writer.add(middle, 1)
    writer.store(writer.select(before, above, low), "%low")
    writer.store(writer.select(before, high, middle), "%high")
    writer.jump("seek")
    writer.start("sought")
    is_kept = writer.icmp("eq", _kept_at(generator, kept, low), index)
    warps = writer.field("%ctx", Context.WARPS)
    warp = writer.zext(writer.load("i32", state), "i64")
    warp_index = writer.add(writer.mul(low, warps), warp)
    row = writer.mul(warp_index, columns * COLUMN_BYTES)
    own = writer.place(base, row)
    writer.named("%threads", "ptr", f"select i1 {is_kept}, ptr {own}, ptr {spare}")


def _kept_at(generator: CodeGenerator, kept: str, index: str) -> Ref:
    cell = generator.writer.element(kept, "i64", index)
    return generator.writer.load("i64", cell)


_SAVED = (
    ("pc", State.PC),
    ("mask", State.MASK),
    ("id", State.ID),
    ("depth", State.DEPTH),
    ("live", State.LIVE),
    ("quantum", State.QUANTUM),
)
_POINTERS = (
    ("blocks", Context.BLOCKS),
    ("sites", Context.SITES),
    ("predicated", Context.PREDICATED),
    ("params", Context.PARAMS),
    ("symbols", Context.SYMBOLS),
)


def _compare_products(generator: CodeGenerator) -> None:
    """Check at the end of a warp that warps of its warpgroup that have already ended executed as many products."""
    writer = generator.writer
    own = writer.field("%st", State.PRODUCTS, "i32")
    index = writer.field("%st", State.INDEX, "i32")
    size = writer.field("%ctx", Context.STATE_BYTES)
    warps = writer.field("%ctx", Context.WARPS)
    for distance in (1, 2, 3):
        other = writer.xor(index, distance)
        there = writer.icmp("ult", writer.zext(other, "i64"), warps)
        apart = writer.sext(writer.sub(other, index), "i64")
        offset = writer.select(there, writer.mul(apart, size), 0)
        state = writer.place("%st", offset)
        ended = writer.icmp("eq", writer.field(state, State.WAIT, "i32"), Wait.DONE)
        count = writer.field(state, State.PRODUCTS, "i32")
        uneven = writer.and_(ended, writer.icmp("ne", count, own))
        bad, good = writer.label("uneven"), writer.label("even")
        writer.branch(uneven, bad, good)
        writer.start(bad)
        writer.set_field("%st", State.CULPRITS, count)
        generator.stop("0", Status.EVENT, Event.UNEVEN, other)
        writer.start(good)


def write_exits(generator: CodeGenerator) -> None:
    writer = generator.writer
    for status in (
        Status.DONE,
        Status.BARRIER,
        Status.SLICE_OVER,
        Status.FAULT,
        Status.EVENT,
        Status.SUSPENDED,
        Status.GATHERS,
        Status.WARPGROUP,
        Status.STOPPED,
    ):
        writer.start(f"leave{status}")
        if status == Status.DONE and generator.program.products:
            _compare_products(generator)
        writer.put("i32", status, "%status")
        writer.jump("leave")
    # One for all: for each by itself, this would be the larger part of a small kernel.
    writer.start("leave")
    for name, offset in _SAVED:
        value = writer.load("i32", f"%{name}")
        writer.set_field("%st", offset, value)
    steps = writer.load("i64", "%steps")
    writer.set_field("%st", State.STEPS, steps)
    writer.give(writer.load("i32", "%status"))
