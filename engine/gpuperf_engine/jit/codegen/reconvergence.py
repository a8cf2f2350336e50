"""Reconvergence points as LLVM IR: the test for arrival, and the choice of the next path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ptx.module import Function
from ...simt.program import Program
from ...simt.stack import CALL_FRAME, WAIT
from ..ir.abi import Entry, State
from ..ir.codes import (
    AREA_SHIFT,
    CONVERGE_CODE,
    EXIT_CODE,
    GATHER_CODE,
    KIND,
    NO_AREA,
    RETURN_CODE,
    SYNC_CODE,
    WAIT_CODE,
    Event,
    Status,
)
from ..ir.emitter import Emitter
from ..ir.operands import Ref
from .operands import call_target
from .procedures import make_procedure, write_call
from .recursion import give_back

if TYPE_CHECKING:
    from .generator import CodeGenerator

__all__ = ["label_of", "write_joins"]


def label_of(generator: CodeGenerator, target: int) -> str:
    if target >= EXIT_CODE:
        return f"pop{target}"
    if target >= SYNC_CODE:
        return f"s{target - SYNC_CODE}"
    if target >= RETURN_CODE:
        return f"r{target - RETURN_CODE}"
    if target >= GATHER_CODE:
        return f"g{target - GATHER_CODE}"
    if target >= WAIT_CODE:
        return f"w{target - WAIT_CODE}"
    return f"m{target - CONVERGE_CODE}" if target >= CONVERGE_CODE else generator.arrival(target)


def write_joins(generator: CodeGenerator) -> None:
    """For each reconvergence point: the test for arrival, and the choice of the next path."""
    writer = generator.writer
    program = generator.program
    points = dict(generator.joins)
    for number in range(len(program.functions)):
        points.setdefault(EXIT_CODE + number, [])
    for point, waiting in points.items():
        if point < EXIT_CODE:
            writer.start(f"j{point}")
            here = writer.icmp("eq", writer.load("i32", "%id"), point)
            writer.branch(here, f"pop{point}", f"b{point}")
        pc = _next_path(generator, point)
        targets = [*dict.fromkeys(waiting)]
        if point >= EXIT_CODE:
            targets += [RETURN_CODE + index for index in _callers(program, point - EXIT_CODE)]
        generator.resumable.update(targets)
        writer.switch(pc, "dispatch", ((target, label_of(generator, target)) for target in targets))


def _next_path(generator: CodeGenerator, point: int) -> Ref:
    """Make the path of the next live entry of the stack the current one. Returns its program counter."""
    writer = generator.writer
    writer.start(f"pop{point}")
    if not generator.shares_control or generator.program.recursive:
        return _pop(generator, point)
    procedure = generator.procedures.get("pop")
    if procedure is None:

        def fill(inner: Emitter) -> bool:
            inner.jump(f"pop{EXIT_CODE}")
            inner.start(f"pop{EXIT_CODE}")
            _pop(generator, EXIT_CODE)
            return False

        procedure = generator.procedures["pop"] = make_procedure(generator, (), fill)
    write_call(generator, procedure, {}, (), procedure.exits)
    return writer.load("i32", "%pc")


def _pop(generator: CodeGenerator, point: int) -> Ref:
    writer = generator.writer
    depth = writer.load("i32", "%depth")
    more = writer.label("more")
    writer.branch(writer.icmp("eq", depth, 0), f"leave{Status.DONE}", more)
    writer.start(more)
    below = writer.sub(depth, 1)
    offset = writer.zext(writer.shl(below, 4), "i64")
    base = writer.place(writer.at("%st", State.STACK), offset)
    if generator.parks:
        kind = writer.and_(writer.field(base, Entry.KIND, "i32"), KIND)
        waits = writer.icmp("eq", kind, WAIT)
        blocked, free = writer.label("blocked"), writer.label("free")
        writer.branch(waits, blocked, free)
        writer.start(blocked)
        writer.put("i32", 0, "%mask")
        generator.stop("0", Status.EVENT, Event.CHOOSE)
        writer.start(free)
    writer.store(below, "%depth")
    pc = writer.load("i32", base)
    mask = writer.field(base, Entry.MASK, "i32")
    identity = writer.field(base, Entry.ID, "i32")
    alive = writer.and_(mask, writer.load("i32", "%live"))
    matching = writer.label("found")
    dropped = _take_entry(generator, base, point) if generator.program.recursive else f"pop{point}"
    writer.branch(writer.icmp("eq", alive, 0), dropped, matching)
    writer.start(matching)
    for value, cell in ((pc, "pc"), (alive, "mask"), (identity, "id")):
        writer.store(value, f"%{cell}")
    return pc


def _take_entry(generator: CodeGenerator, base: str, point: int) -> str:
    """For a popped entry in a program with recursive functions: decrement the call depth, and take its area, which is freed if no
    lane is live. Returns the label for that case."""
    writer = generator.writer
    kind = writer.field(base, Entry.KIND, "i32")
    plain = writer.and_(kind, (1 << AREA_SHIFT) - 1)
    calls = writer.at("%st", State.CALLS)
    ends = writer.zext(writer.icmp("eq", plain, CALL_FRAME), "i32")
    left = writer.sub(writer.load("i32", calls), ends)
    writer.store(left, calls)
    area = writer.lshr(kind, AREA_SHIFT)
    writer.set_field("%st", State.AREA, area)
    if not generator.areas.bytes:
        return f"pop{point}"
    kept, writer.lines = writer.lines, []
    dropped, free = writer.label("dropped"), writer.label("free")
    writer.start(dropped)
    none = writer.icmp("uge", writer.sub(area, 1), NO_AREA - 1)
    writer.branch(none, f"pop{point}", free)
    writer.start(free)
    give_back(generator, area)
    writer.jump(f"pop{point}")
    generator.stubs += writer.lines
    writer.lines = kept
    return dropped


def _callers(program: Program, number: int) -> list[int]:
    """Blocks that call a function directly."""
    if number == 0:
        return []
    function: Function = program.functions[number]
    callers = []
    for block in program.blocks:
        if block.kind == "call" and block.terminator is not None:
            target = call_target(block)
            if target.function is not None and target.function.name == function.name:
                callers.append(block.index)
    return callers
