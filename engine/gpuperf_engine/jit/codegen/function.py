"""A program as LLVM IR: one function that runs one warp from where it stopped to where it must stop next.

``warp(context, cta, state) → status``. Registers that live across block edges have slots in the warp's state; inside a block
values are SSA, read at first use and written back at the block's end. Every block exists once and runs under the active mask.
Lanes that wait are on a stack in the state; each reconvergence point has its own small dispatch. See ``jit.ir.abi`` for
the state and ``flow.blocks`` for the blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import Unsupported
from ...flow.blocks import EXIT, BasicBlock
from ...flow.operands import matched
from ...isa.table import OperandSlot
from ...ptx.syntax import Address, CallTarget, Function, Instruction
from ...simt.program import Program
from ...simt.stack import CALL_FRAME, WAIT
from ...simt.thread_counters import COLUMN_BYTES, columns_of
from ...simt.value_records import ValueSlot, value_slots
from ..ir.abi import MATRICES_BYTES, Context, Cta, Entry, State
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
    Wait,
)
from ..ir.emitter import Ref, constant, typed
from ..ir.values import Emitter
from .recursion import CAPACITY, Areas, give_back
from .slots import Slots
from .waits import reasons_to_wait

__all__ = ["CodeGenerator", "Generated", "address_operand", "call_target", "generate"]


@dataclass(frozen=True)
class Generated:
    """What running a program's code needs to know. ``needs`` are the runtime functions it calls.

    ``slots`` and ``constants`` map, per function, indices of registers to ``(offset, same in all lanes)`` and to bit patterns;
    ``report`` is where values are left for messages, ``system`` where the arguments of system calls are; ``watch`` how unwritten
    shared memory is known (``Context.WATCH``); ``area_bytes`` the size of what a call inside a recursive function keeps.
    """

    needs: tuple[str, ...]
    state_bytes: int
    zero_start: int
    zero_bytes: int
    parameters_start: int
    area_bytes: int
    stack_entries: int
    report: int
    system: int
    watch: int
    slots: tuple[dict[int, tuple[int, bool]], ...]
    constants: tuple[dict[int, int], ...]


class CodeGenerator:
    """Everything that code generation of one program shares.

    ``watching``: shared memory has a shadow byte for byte, because pieces of words are stored. ``threads``: lanes are counted one
    by one as well. ``clustered``: its CTAs run in clusters. ``diverged``: warps may be diverged at its barriers.
    ``values``: what accesses carry is recorded.
    """

    def __init__(
        self,
        program: Program,
        watching: bool,
        threads: bool = False,
        clustered: bool = False,
        diverged: bool = False,
        values: bool = False,
    ) -> None:
        self.program = program
        self.watching = watching
        self.clustered = clustered
        self.diverged = diverged
        self.columns = columns_of(program) if threads else None
        self.values: Mapping[int, tuple[ValueSlot, ...]] = value_slots(program) if values else {}
        self.writer = Emitter()
        #: functions whose results are taken at places of their own, see ``return_place``
        self.returns: list[int] = []
        self.joins = _joins(program)
        #: lines that belong behind all blocks
        self.stubs: list[str] = []
        self.resumable: set[int] = {0}
        self.may_diverge = [item.may_diverge for item in program.uniformity]
        #: lanes may wait inside a block for others of their warp: at an exchange, or at a barrier
        self.parks = any(self.may_diverge) or any(block.kind == "barrier" for block in program.blocks)
        checked = any(self.may_diverge) or bool(program.recursive)
        # calls inside one another, and where lanes are apart in them
        most = CAPACITY if program.recursive else 0
        self.stack_entries = most + (512 if checked else 80 + len(program.functions))
        self.checked_stack = checked
        self.slots = Slots(program, State.STACK + self.stack_entries * State.ENTRY)
        self.areas = Areas(program, self.slots)
        self.reasons = reasons_to_wait(program)

    def exit_code(self, block: BasicBlock) -> int:
        """Identity of a block's reconvergence point."""
        return EXIT_CODE + block.function if block.reconvergence == EXIT else block.reconvergence

    def return_place(self, number: int) -> int:
        """A place to continue that is not a block's: the code of a label ``r…``, behind a call through a pointer of a function."""
        self.returns.append(number)
        return RETURN_CODE + len(self.program.blocks) + len(self.returns) - 1

    def count_lanes(self, base: str, offset: int, mask: Ref, column: int) -> None:
        """Count the lanes of an i32 mask: all together, and each in its own counter if that is wanted."""
        writer = self.writer
        writer.bump(base, offset, self.lanes_of(mask))
        if self.columns is not None:
            cell = writer.at("%threads", COLUMN_BYTES * column)
            lanes = writer.zext(writer.bitcast(mask, "<32 x i1>"), "i64")
            old = writer.load("<32 x i64>", cell, 64)
            writer.store(writer.add(old, lanes), cell, 64)

    def lanes_of(self, mask: Ref) -> Ref:
        """Number of lanes in an i32 mask, as i64."""
        return self.writer.zext(self.writer.intrinsic("ctpop.i32", "i32", mask), "i64")

    def stop(self, pc: int | str, status: int, event: int = 0, detail: int | str = 0) -> None:
        """Leave the warp function, to go on at ``pc`` (an i32 operand) later; ends the basic block."""
        self.writer.put("i32", pc, "%pc")
        if event:
            self.writer.set_field("%st", State.EVENT, constant("i32", event))
            self.writer.set_field("%st", State.DETAIL, typed("i32", detail))
        self.writer.jump(f"leave{status}")

    def guarded_stop(self, test: Ref, pc: int, event: int, detail: int | str = 0) -> None:
        """If an i1 holds, leave with an event that is an error."""
        writer = self.writer
        bad, good = writer.label("bad"), writer.label("good")
        writer.branch(test, bad, good)
        writer.start(bad)
        self.stop(str(pc), Status.EVENT, event, detail)
        writer.start(good)

    def push(self, pc: int | str, mask: Ref, identity: int | str, kind: int | str) -> None:
        """Push an entry on the stack; the kinds are those of ``simt.stack_entries``, with the number of an area where something
        is kept."""
        writer = self.writer
        depth = writer.load("i32", "%depth")
        if self.checked_stack:
            self.guarded_stop(writer.icmp("uge", depth, self.stack_entries), 0, Event.STACK)
        offset = writer.zext(writer.shl(depth, 4), "i64")
        base = writer.place(writer.at("%st", State.STACK), offset)
        for value, field in (
            (pc, Entry.PLACE),
            (mask, Entry.MASK),
            (identity, Entry.ID),
            (kind, Entry.KIND),
        ):
            writer.set_field(base, field, typed("i32", value))
        writer.store(writer.add(depth, 1), "%depth")

    def arrival(self, target: int) -> str:
        """Label where control enters a block."""
        return f"j{target}" if target in self.joins else f"b{target}"


def _joins(program: Program) -> dict[int, list[int]]:
    """Reconvergence points of branches that may diverge, with the sides that may wait when lanes arrive there."""
    joins: dict[int, list[int]] = {}
    for block in program.blocks:
        uniform = program.uniformity[block.function].uniform
        if block.kind == "branch" and block.guard is not None and block.guard.register in uniform:
            continue
        if block.kind not in ("branch", "indirect"):
            continue
        point = EXIT_CODE + block.function if block.reconvergence == EXIT else block.reconvergence
        waiting = joins.setdefault(point, [] if block.reconvergence == EXIT else [point])
        sides = block.successors[1:] if block.kind == "branch" else block.successors
        waiting += [side for side in dict.fromkeys(sides) if side not in (EXIT, block.reconvergence)]
    return joins


def _write_block(generator: CodeGenerator, block: BasicBlock, function: Function) -> None:
    """A block; instructions that cannot be run become an error that is met where they are reached."""
    from .block import BlockWriter

    writer, refused = generator.writer, set[Instruction]()
    start = len(writer.lines)
    while True:
        writer.forget()
        block_writer = BlockWriter(generator, block, function, refused)
        try:
            block_writer.write()
        except Unsupported:
            if block_writer.current is None or block_writer.current in refused:
                raise
            refused.add(block_writer.current)
            del writer.lines[start:]
        else:
            return


def generate(
    program: Program,
    watching: bool,
    threads: bool = False,
    clustered: bool = False,
    diverged: bool = False,
    values: bool = False,
) -> tuple[str, Generated]:
    """The IR of a program, and what goes with it; ``threads``: that counts lanes one by one as well; ``clustered``: for launches
    whose CTAs run in clusters; ``diverged``: with barriers at which warps are diverged; ``values``: that records what accesses carry.

    Raises ``Unsupported`` for what cannot be put off until it is reached.
    """
    generator = CodeGenerator(program, watching, threads, clustered, diverged, values)
    writer = generator.writer
    for number, function in enumerate(program.functions):
        for block in program.blocks_of(number):
            _write_block(generator, block, function)
    _write_joins(generator)
    body = [*writer.lines, *generator.stubs]
    writer.lines = []
    _write_entry(generator)
    entry = writer.lines
    writer.lines = []
    _write_exits(generator)
    declarations = sorted(set(writer.needs.values()))
    text = "\n".join(
        [
            *declarations,
            "define i32 @warp(ptr noalias %ctx, ptr noalias %cta, ptr noalias align 64 %st) nounwind {",
            *entry,
            *body,
            *writer.lines,
            "}",
            "!0 = !{}",
            "",
        ]
    )
    needs = tuple(sorted(name for name in writer.needs if not name.startswith("llvm.")))
    slots = generator.slots
    return text, Generated(
        needs, slots.bytes, slots.zero_start, slots.zero_bytes, slots.parameters_start, generator.areas.bytes, generator.stack_entries,
        slots.report, slots.system, 1 if watching else 2, _slot_table(generator), _constant_table(generator),
    )  # fmt: skip


def _slot_table(generator: CodeGenerator) -> tuple[dict[int, tuple[int, bool]], ...]:
    uniform = [item.uniform for item in generator.program.uniformity]
    return tuple(
        {register.index: (offset, register in same) for register, offset in slots.items()}
        for slots, same in zip(generator.slots.of, uniform)
    )


def _constant_table(generator: CodeGenerator) -> tuple[dict[int, int], ...]:
    from .block import BlockWriter

    tables = []
    for number, function in enumerate(generator.program.functions):
        first = generator.program.blocks[generator.program.entries[number]]
        reader = BlockWriter(generator, first, function)
        tables.append(
            {
                register.index: reader.read(register).number or 0
                for register in generator.slots.constants[number]
            }
        )
    return tuple(tables)


def _write_entry(generator: CodeGenerator) -> None:
    writer = generator.writer
    writer.start("entry")
    for name in ("pc", "mask", "id", "depth", "live", "quantum"):
        writer.named(f"%{name}", "ptr", "alloca i32")
    writer.named("%steps", "ptr", "alloca i64")
    writer.named("%loop", "ptr", "alloca i32")
    writer.named("%area", "ptr", "alloca [4096 x i8], align 64")
    writer.named("%vals", "ptr", "alloca [4096 x i8], align 64")
    if generator.program.products:
        writer.named("%matrices", "ptr", f"alloca [{MATRICES_BYTES} x i8], align 64")
    for name, offset in _SAVED:
        cell = writer.at("%st", offset)
        writer.store(writer.load("i32", cell), f"%{name}")
    cell = writer.at("%st", State.STEPS)
    writer.store(writer.load("i64", cell), "%steps")
    for name, offset in _POINTERS:
        writer.named(f"%{name}", "ptr", f"load ptr, ptr {writer.at('%ctx', offset)}, !invariant.load !0")
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
    writer.jump("dispatch")
    writer.start("dispatch")
    pc = writer.load("i32", "%pc")
    writer.switch(pc, "lost", ((target, _label(generator, target)) for target in sorted(generator.resumable)))
    # no stack leads here; a damaged one must not lead anywhere else
    writer.start("lost")
    writer.set_field("%st", State.EVENT, constant("i32", 0))
    writer.jump(f"leave{Status.EVENT}")


def _find_counters(generator: CodeGenerator, columns: int) -> None:
    """``%threads``: where the counters of this warp's lanes are, or room that is never read if its CTA is not kept. The place of
    the CTA among those kept is found by bisection."""
    writer = generator.writer
    base, spare, kept = (
        writer.field("%ctx", offset, "ptr")
        for offset in (Context.THREADS, Context.THREADS_SPARE, Context.KEPT)
    )
    cta, state = writer.at("%cta", Cta.INDEX), writer.at("%st", State.INDEX)
    index = writer.load("i64", cta)
    count = writer.field("%ctx", Context.KEPT_COUNT)
    for name, start in (("low", "0"), ("high", count)):
        writer.put("i64", start, writer.named(f"%{name}", "ptr", "alloca i64"))
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


def _label(generator: CodeGenerator, target: int) -> str:
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


def _write_joins(generator: CodeGenerator) -> None:
    """For each reconvergence point: the test for arrival, and what runs next there."""
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
        writer.start(f"pop{point}")
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
        dropped = _take_entry(generator, base, point) if program.recursive else f"pop{point}"
        writer.branch(writer.icmp("eq", alive, 0), dropped, matching)
        writer.start(matching)
        for value, cell in ((pc, "pc"), (alive, "mask"), (identity, "id")):
            writer.store(value, f"%{cell}")
        targets = [*dict.fromkeys(waiting)]
        if point >= EXIT_CODE:
            targets += [RETURN_CODE + index for index in _callers(program, point - EXIT_CODE)]
        generator.resumable.update(targets)
        writer.switch(pc, "dispatch", ((target, _label(generator, target)) for target in targets))


def _take_entry(generator: CodeGenerator, base: str, point: int) -> str:
    """Of an entry popped in a program with recursive functions: count the call that ends, and note the area, which is free if none of
    the lanes lives: the label for that."""
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


def call_target(block: BasicBlock) -> CallTarget:
    """The call operand of a call block."""
    assert block.terminator is not None
    for _, operand in matched(block.terminator):
        if isinstance(operand, CallTarget):
            return operand
    raise Unsupported("a call without target", span=block.terminator.span)


def address_operand(instruction: Instruction) -> tuple[OperandSlot, Address]:
    """The address operand of a memory instruction and its form."""
    for slot, operand in matched(instruction):
        if isinstance(operand, Address):
            return slot, operand
    raise Unsupported(f"{instruction.opcode} without an address", span=instruction.span)


def _compare_products(generator: CodeGenerator) -> None:
    """A warp ends: those of its warpgroup that have ended before it must have executed as many products."""
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


def _write_exits(generator: CodeGenerator) -> None:
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
    ):
        writer.start(f"leave{status}")
        if status == Status.DONE and generator.program.products:
            _compare_products(generator)
        for name, offset in _SAVED:
            value = writer.load("i32", f"%{name}")
            writer.set_field("%st", offset, value)
        steps = writer.load("i64", "%steps")
        writer.set_field("%st", State.STEPS, steps)
        writer.give(constant("i32", status))
