"""The shared state of code generation for one program: slots, counters, the stack, and how code stops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from ...flow.blocks import EXIT, BasicBlock
from ...simt.program import Program
from ...simt.thread_counters import COLUMN_BYTES, columns_of
from ...simt.value_records import ValueSlot, value_slots
from ..ir.abi import Entry, State
from ..ir.codes import EXIT_CODE, RETURN_CODE, Event, Status
from ..ir.emitter import Emitter
from ..ir.operands import Ref, constant, typed
from .procedures import Procedure
from .recursion import CAPACITY, Areas
from .slots import Slots
from .waits import reasons_to_wait

__all__ = ["CodeGenerator", "Generated"]


@dataclass(frozen=True)
class Generated:
    """Metadata of a program's code. ``needs`` are the runtime functions that it calls.

    ``slots`` and ``constants`` map, per function, indices of registers to ``(offset, same in all lanes)`` and to bit patterns;
    ``report`` is the offset of values for messages, ``system`` that of the arguments of system calls; ``watch`` how the shadow of
    shared memory works (``Context.WATCH``); ``area_bytes`` the size of the saved state of a call in a recursive function.
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


#: blocks of a program from which on they share functions for their control flow
_BLOCKS = 12
#: events after which paths of a warp may wait; without any of them, other events of paths have nothing to do
_OF_PATHS = frozenset((Event.PARK, Event.SPIN, Event.DIVERGENT_BARRIER, Event.ARRIVES))


class CodeGenerator:
    """The shared state of code generation for one program.

    ``watching``: the shadow of shared memory is per byte, because parts of words are stored. ``threads``: with counters per thread.
    ``clustered``: its CTAs run in clusters. ``diverged``: warps may be diverged at its barriers. ``values``: accessed values are
    recorded.
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
        #: functions that instructions share (``outlined``): their places in a table, and by name the texts of those that are part of
        #: the module
        self.outlined: dict[Hashable, int] = {}
        self.functions: dict[str, str] = {}
        #: those of ``procedures`` by what they depend on, and the values of ``warp`` that they use
        self.procedures: dict[Hashable, Procedure] = {}
        self.framed: set[str] = set()
        #: whether there is enough control flow for functions, and how many instructions there are of each opcode
        self.shares_control = program.outlined and len(program.blocks) >= _BLOCKS
        self.opcodes = Counter(item.opcode for block in program.blocks for item in block.instructions)
        #: functions with a separate code of the place where their results are read, see ``return_place``
        self.returns: list[int] = []
        self.joins = _joins(program)
        #: lines after all blocks
        self.stubs: list[str] = []
        self.resumable: set[int] = {0}
        self.may_diverge = [item.may_diverge for item in program.uniformity]
        #: whether lanes may wait inside a block for others of their warp: at an exchange, or at a barrier
        self.parks = any(self.may_diverge) or any(block.kind == "barrier" for block in program.blocks)
        checked = any(self.may_diverge) or bool(program.recursive)
        # nested calls, and diverged lanes in them
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
        """The code of a label ``r…``, which is not that of a block: after an indirect call of a function."""
        self.returns.append(number)
        return RETURN_CODE + len(self.program.blocks) + len(self.returns) - 1

    def count_lanes(self, base: str, offset: int, mask: Ref, column: int) -> None:
        """Count the lanes of an i32 mask: in total, and per thread if requested."""
        self.writer.bump(base, offset, self.lanes_of(mask))
        self.count_threads(mask, column)

    def count_threads(self, mask: Ref, column: int) -> None:
        """Count the lanes of an i32 mask per thread, if requested."""
        writer = self.writer
        if self.columns is not None:
            cell = writer.at("%threads", COLUMN_BYTES * column)
            lanes = writer.zext(writer.bitcast(mask, "<32 x i1>"), "i64")
            old = writer.load("<32 x i64>", cell, 64)
            writer.store(writer.add(old, lanes), cell, 64)

    def lanes_of(self, mask: Ref) -> Ref:
        """Number of lanes in an i32 mask, as i64."""
        return self.writer.zext(self.writer.intrinsic("ctpop.i32", "i32", mask), "i64")

    def stop(self, pc: int | str, status: int, event: int = 0, detail: int | str = 0) -> None:
        """Leave the warp function, to continue at ``pc`` (an i32 operand) later; ends the basic block."""
        self.writer.put("i32", pc, "%pc")
        if event:
            self.writer.set_field("%st", State.EVENT, constant("i32", event))
            self.writer.set_field("%st", State.DETAIL, typed("i32", detail))
        if event in _OF_PATHS:
            self.writer.needs.setdefault("settle", "declare i64 @settle(i64, i64, i64)")
        self.writer.jump(f"leave{status}")

    def guarded_stop(
        self, test: Ref, pc: int | str, event: int, detail: int | str = 0, *, culprits: Ref | None = None
    ) -> None:
        """If an i1 holds, leave with an event that is an error, of the lanes ``culprits``."""
        writer = self.writer
        bad, good = writer.label("bad"), writer.label("good")
        writer.branch(test, bad, good)
        writer.start(bad)
        if culprits is not None:
            writer.set_field("%st", State.CULPRITS, culprits)
        self.stop(str(pc), Status.EVENT, event, detail)
        writer.start(good)

    def push(self, pc: int | str, mask: Ref, identity: int | str, kind: int | str) -> None:
        """Push an entry on the stack; the kinds are those of ``simt.stack_entries``, with the number of an area of saved state, if
        any."""
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
        """The label of the entry of a block."""
        return f"j{target}" if target in self.joins else f"b{target}"


def _joins(program: Program) -> dict[int, list[int]]:
    """Reconvergence points of branches that may diverge, with the sides that may be pending when lanes arrive."""
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
