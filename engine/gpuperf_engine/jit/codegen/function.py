"""A program as LLVM IR: one function that runs one warp from where it stopped to where it must stop next.

``warp(context, cta, state) → status``. Registers that live across block edges have slots in the warp's state; inside a block
values are SSA, read at first use and written back at the block's end. Every block exists once and runs under the active mask.
Lanes that wait are on a stack in the state; each reconvergence point has its own small dispatch. See ``jit.ir.abi`` for
the state and ``flow.blocks`` for the blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import Unsupported
from ...flow.blocks import EXIT, BasicBlock
from ...flow.operands import matched
from ...isa.table import OperandSlot
from ...ptx.syntax import Address, CallTarget, Function, Instruction
from ...simt.program import Program
from ...simt.stack import CALL_FRAME, WAIT
from ...simt.thread_counters import COLUMN_BYTES, columns_of
from ..ir.abi import (
    AREA_SHIFT,
    CONVERGE_CODE,
    EXIT_CODE,
    GATHER_CODE,
    KIND,
    MATRICES_BYTES,
    RETURN_CODE,
    SYNC_CODE,
    WAIT_CODE,
    Context,
    Cta,
    Event,
    State,
    Status,
    Wait,
)
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
    returns: tuple[int, ...]
    slots: tuple[dict[int, tuple[int, bool]], ...]
    constants: tuple[dict[int, int], ...]


class CodeGenerator:
    """Everything that code generation of one program shares.

    ``watching``: shared memory has a shadow byte for byte, because pieces of words are stored. ``threads``: lanes are counted one
    by one as well. ``clustered``: its CTAs run in clusters. ``diverged``: warps are diverged at its barriers, so Python keeps them.
    """

    def __init__(
        self,
        program: Program,
        watching: bool,
        threads: bool = False,
        clustered: bool = False,
        diverged: bool = False,
    ) -> None:
        self.program = program
        self.watching = watching
        self.clustered = clustered
        self.diverged = diverged
        self.columns = columns_of(program) if threads else None
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

    def field(self, base: str, offset: int) -> str:
        """Pointer to a field."""
        return base if offset == 0 else self.writer.op(f"getelementptr i8, ptr {base}, i64 {offset}")

    def bump(self, base: str, offset: int, amount: str) -> None:
        """Add an i64 to a counter."""
        cell = self.field(base, offset)
        old = self.writer.op(f"load i64, ptr {cell}")
        self.writer.do(f"store i64 {self.writer.op(f'add i64 {old}, {amount}')}, ptr {cell}")

    def count_lanes(self, base: str, offset: int, mask: str, column: int) -> None:
        """Count the lanes of an i32 mask: all together, and each in its own counter if that is wanted."""
        self.bump(base, offset, self.lanes_of(mask))
        if self.columns is not None:
            writer = self.writer
            cell = self.field("%threads", COLUMN_BYTES * column)
            lanes = writer.op(f"zext <32 x i1> {writer.op(f'bitcast i32 {mask} to <32 x i1>')} to <32 x i64>")
            old = writer.op(f"load <32 x i64>, ptr {cell}, align 64")
            writer.do(f"store <32 x i64> {writer.op(f'add <32 x i64> {old}, {lanes}')}, ptr {cell}, align 64")

    def lanes_of(self, mask: str) -> str:
        """Number of lanes in an i32 mask, as i64."""
        self.writer.needs["llvm.ctpop.i32"] = "declare i32 @llvm.ctpop.i32(i32)"
        return self.writer.op(f"zext i32 {self.writer.op(f'call i32 @llvm.ctpop.i32(i32 {mask})')} to i64")

    def stop(self, pc: str, status: int, event: int = 0, detail: str = "0") -> None:
        """Leave the warp function, to go on at ``pc`` (an i32 operand) later; ends the basic block."""
        self.writer.do(f"store i32 {pc}, ptr %pc")
        if event:
            self.writer.do(f"store i32 {event}, ptr {self.field('%st', State.EVENT)}")
            self.writer.do(f"store i32 {detail}, ptr {self.field('%st', State.DETAIL)}")
        self.writer.do(f"br label %leave{status}")

    def guarded_stop(self, test: str, pc: int, event: int, detail: str = "0") -> None:
        """If an i1 holds, leave with an event that is an error."""
        writer = self.writer
        bad, good = writer.label("bad"), writer.label("good")
        writer.do(f"br i1 {test}, label %{bad}, label %{good}")
        writer.start(bad)
        self.stop(str(pc), Status.EVENT, event, detail)
        writer.start(good)

    def push(self, pc: str, mask: str, identity: str, kind: int | str) -> None:
        """Push an entry on the stack; the kinds are those of ``simt.stack_entries``, with the number of an area where something
        is kept."""
        writer = self.writer
        depth = writer.op("load i32, ptr %depth")
        if self.checked_stack:
            self.guarded_stop(writer.op(f"icmp uge i32 {depth}, {self.stack_entries}"), 0, Event.STACK)
        offset = writer.op(f"zext i32 {writer.op(f'shl i32 {depth}, 4')} to i64")
        base = writer.op(f"getelementptr i8, ptr {self.field('%st', State.STACK)}, i64 {offset}")
        for position, value in enumerate((pc, mask, identity, str(kind))):
            writer.do(f"store i32 {value}, ptr {self.field(base, 4 * position)}")
        writer.do(f"store i32 {writer.op(f'add i32 {depth}, 1')}, ptr %depth")

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
    program: Program, watching: bool, threads: bool = False, clustered: bool = False, diverged: bool = False
) -> tuple[str, Generated]:
    """The IR of a program, and what goes with it; ``threads``: that counts lanes one by one as well; ``clustered``: for launches
    whose CTAs run in clusters; ``diverged``: with barriers at which warps are diverged.

    Raises ``Unsupported`` for what cannot be put off until it is reached.
    """
    generator = CodeGenerator(program, watching, threads, clustered, diverged)
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
        slots.report, slots.system, 1 if watching else 2, tuple(generator.returns), _slot_table(generator), _constant_table(generator),
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
        writer.do(f"%{name} = alloca i32")
    writer.do("%steps = alloca i64")
    writer.do("%loop = alloca i32")
    writer.do("%area = alloca [4096 x i8], align 64")
    writer.do("%vals = alloca [4096 x i8], align 64")
    if generator.program.products:
        writer.do(f"%matrices = alloca [{MATRICES_BYTES} x i8], align 64")
    for name, offset in _SAVED:
        cell = generator.field("%st", offset)
        writer.do(f"store i32 {writer.op(f'load i32, ptr {cell}')}, ptr %{name}")
    cell = generator.field("%st", State.STEPS)
    writer.do(f"store i64 {writer.op(f'load i64, ptr {cell}')}, ptr %steps")
    for name, offset in _POINTERS:
        writer.do(f"%{name} = load ptr, ptr {generator.field('%ctx', offset)}, !invariant.load !0")
    if generator.columns is not None:
        _find_counters(generator, generator.columns.count)
    if generator.areas.bytes:
        first = writer.op(f"load ptr, ptr {generator.field('%cta', Cta.AREAS)}")
        warp = writer.op(f"load i32, ptr {generator.field('%st', State.INDEX)}")
        warp = writer.op(f"zext i32 {warp} to i64")
        distance = writer.op(f"mul i64 {warp}, {CAPACITY * generator.areas.bytes}")
        writer.do(f"%areas = getelementptr i8, ptr {first}, i64 {distance}")
    writer.do(
        f"%sharedbytes = load i64, ptr {generator.field('%ctx', Context.SHARED_BYTES)}, !invariant.load !0"
    )
    writer.do("br label %dispatch")
    writer.start("dispatch")
    pc = writer.op("load i32, ptr %pc")
    cases = " ".join(
        f"i32 {target}, label %{_label(generator, target)}" for target in sorted(generator.resumable)
    )
    writer.do(f"switch i32 {pc}, label %lost [{cases}]")
    # no stack leads here; a damaged one must not lead anywhere else
    writer.start("lost")
    writer.do(f"store i32 0, ptr {generator.field('%st', State.EVENT)}")
    writer.do(f"br label %leave{Status.EVENT}")


def _find_counters(generator: CodeGenerator, columns: int) -> None:
    """``%threads``: where the counters of this warp's lanes are, or room that is never read if its CTA is not kept. The place of
    the CTA among those kept is found by bisection."""
    writer = generator.writer
    base, spare, kept = (
        writer.op(f"load ptr, ptr {generator.field('%ctx', offset)}")
        for offset in (Context.THREADS, Context.THREADS_SPARE, Context.KEPT)
    )
    cta, state = generator.field("%cta", Cta.INDEX), generator.field("%st", State.INDEX)
    index = writer.op(f"load i64, ptr {cta}")
    count = writer.op(f"load i64, ptr {generator.field('%ctx', Context.KEPT_COUNT)}")
    for name, start in (("low", "0"), ("high", count)):
        writer.do(f"%{name} = alloca i64")
        writer.do(f"store i64 {start}, ptr %{name}")
    writer.do("br label %seek")
    writer.start("seek")
    low, high = (writer.op(f"load i64, ptr %{name}") for name in ("low", "high"))
    writer.do(f"br i1 {writer.op(f'icmp ult i64 {low}, {high}')}, label %probe, label %sought")
    writer.start("probe")
    middle = writer.op(f"lshr i64 {writer.op(f'add i64 {low}, {high}')}, 1")
    before = writer.op(f"icmp ult i64 {_kept_at(generator, kept, middle)}, {index}")
    above = writer.op(f"add i64 {middle}, 1")
    writer.do(f"store i64 {writer.op(f'select i1 {before}, i64 {above}, i64 {low}')}, ptr %low")
    writer.do(f"store i64 {writer.op(f'select i1 {before}, i64 {high}, i64 {middle}')}, ptr %high")
    writer.do("br label %seek")
    writer.start("sought")
    is_kept = writer.op(f"icmp eq i64 {_kept_at(generator, kept, low)}, {index}")
    warps = writer.op(f"load i64, ptr {generator.field('%ctx', Context.WARPS)}")
    warp = writer.op(f"zext i32 {writer.op(f'load i32, ptr {state}')} to i64")
    warp_index = writer.op(f"add i64 {writer.op(f'mul i64 {low}, {warps}')}, {warp}")
    row = writer.op(f"mul i64 {warp_index}, {columns * COLUMN_BYTES}")
    own = writer.op(f"getelementptr i8, ptr {base}, i64 {row}")
    writer.do(f"%threads = select i1 {is_kept}, ptr {own}, ptr {spare}")


def _kept_at(generator: CodeGenerator, kept: str, index: str) -> str:
    cell = generator.writer.op(f"getelementptr i64, ptr {kept}, i64 {index}")
    return generator.writer.op(f"load i64, ptr {cell}")


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
            here = writer.op(f"icmp eq i32 {writer.op('load i32, ptr %id')}, {point}")
            writer.do(f"br i1 {here}, label %pop{point}, label %b{point}")
        writer.start(f"pop{point}")
        depth = writer.op("load i32, ptr %depth")
        more = writer.label("more")
        writer.do(f"br i1 {writer.op(f'icmp eq i32 {depth}, 0')}, label %leave{Status.DONE}, label %{more}")
        writer.start(more)
        below = writer.op(f"sub i32 {depth}, 1")
        offset = writer.op(f"zext i32 {writer.op(f'shl i32 {below}, 4')} to i64")
        base = writer.op(f"getelementptr i8, ptr {generator.field('%st', State.STACK)}, i64 {offset}")
        if generator.parks:
            kind = writer.op(f"and i32 {writer.op(f'load i32, ptr {generator.field(base, 12)}')}, {KIND}")
            waits = writer.op(f"icmp eq i32 {kind}, {WAIT}")
            blocked, free = writer.label("blocked"), writer.label("free")
            writer.do(f"br i1 {waits}, label %{blocked}, label %{free}")
            writer.start(blocked)
            writer.do("store i32 0, ptr %mask")
            generator.stop("0", Status.EVENT, Event.CHOOSE)
            writer.start(free)
        writer.do(f"store i32 {below}, ptr %depth")
        pc = writer.op(f"load i32, ptr {base}")
        mask = writer.op(f"load i32, ptr {generator.field(base, 4)}")
        identity = writer.op(f"load i32, ptr {generator.field(base, 8)}")
        alive = writer.op(f"and i32 {mask}, {writer.op('load i32, ptr %live')}")
        matching = writer.label("found")
        dropped = _take_entry(generator, base, point) if program.recursive else f"pop{point}"
        writer.do(f"br i1 {writer.op(f'icmp eq i32 {alive}, 0')}, label %{dropped}, label %{matching}")
        writer.start(matching)
        for value, cell in ((pc, "pc"), (alive, "mask"), (identity, "id")):
            writer.do(f"store i32 {value}, ptr %{cell}")
        targets = [*dict.fromkeys(waiting)]
        if point >= EXIT_CODE:
            targets += [RETURN_CODE + index for index in _callers(program, point - EXIT_CODE)]
        generator.resumable.update(targets)
        cases = " ".join(f"i32 {target}, label %{_label(generator, target)}" for target in targets)
        writer.do(f"switch i32 {pc}, label %dispatch [{cases}]")


def _take_entry(generator: CodeGenerator, base: str, point: int) -> str:
    """Of an entry popped in a program with recursive functions: count the call that ends, and note the area, which is free if none of
    the lanes lives: the label for that."""
    writer = generator.writer
    kind = writer.op(f"load i32, ptr {generator.field(base, 12)}")
    plain = writer.op(f"and i32 {kind}, {(1 << AREA_SHIFT) - 1}")
    calls = generator.field("%st", State.CALLS)
    ends = writer.op(f"zext i1 {writer.op(f'icmp eq i32 {plain}, {CALL_FRAME}')} to i32")
    left = writer.op(f"sub i32 {writer.op(f'load i32, ptr {calls}')}, {ends}")
    writer.do(f"store i32 {left}, ptr {calls}")
    area = writer.op(f"lshr i32 {kind}, {AREA_SHIFT}")
    writer.do(f"store i32 {area}, ptr {generator.field('%st', State.AREA)}")
    if not generator.areas.bytes:
        return f"pop{point}"
    kept, writer.lines = writer.lines, []
    dropped, free = writer.label("dropped"), writer.label("free")
    writer.start(dropped)
    writer.do(f"br i1 {writer.op(f'icmp eq i32 {area}, 0')}, label %pop{point}, label %{free}")
    writer.start(free)
    give_back(generator, area)
    writer.do(f"br label %pop{point}")
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
    own = writer.op(f"load i32, ptr {generator.field('%st', State.PRODUCTS)}")
    index = writer.op(f"load i32, ptr {generator.field('%st', State.INDEX)}")
    size = writer.op(f"load i64, ptr {generator.field('%ctx', Context.STATE_BYTES)}")
    warps = writer.op(f"load i64, ptr {generator.field('%ctx', Context.WARPS)}")
    for distance in (1, 2, 3):
        other = writer.op(f"xor i32 {index}, {distance}")
        there = writer.op(f"icmp ult i64 {writer.op(f'zext i32 {other} to i64')}, {warps}")
        apart = writer.op(f"sext i32 {writer.op(f'sub i32 {other}, {index}')} to i64")
        offset = writer.op(f"select i1 {there}, i64 {writer.op(f'mul i64 {apart}, {size}')}, i64 0")
        state = writer.op(f"getelementptr i8, ptr %st, i64 {offset}")
        ended = writer.op(
            f"icmp eq i32 {writer.op(f'load i32, ptr {generator.field(state, State.WAIT)}')}, {Wait.DONE}"
        )
        count = writer.op(f"load i32, ptr {generator.field(state, State.PRODUCTS)}")
        uneven = writer.op(f"and i1 {ended}, {writer.op(f'icmp ne i32 {count}, {own}')}")
        bad, good = writer.label("uneven"), writer.label("even")
        writer.do(f"br i1 {uneven}, label %{bad}, label %{good}")
        writer.start(bad)
        writer.do(f"store i32 {count}, ptr {generator.field('%st', State.CULPRITS)}")
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
            value = writer.op(f"load i32, ptr %{name}")
            writer.do(f"store i32 {value}, ptr {generator.field('%st', offset)}")
        steps = writer.op("load i64, ptr %steps")
        writer.do(f"store i64 {steps}, ptr {generator.field('%st', State.STEPS)}")
        writer.do(f"ret i32 {status}")
