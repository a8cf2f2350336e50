"""One warp of compiled code as Python sees it: for the moves that are too rare to compile.

Lanes that wait for others at a ``.sync`` instruction, paths that spin, and everything that is an error.
The warp's registers and stack stay in its state; the reference backend's ``SimtStack`` decides, and its exchange operations
read and write registers through ``read`` and ``put`` here.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import EngineError
from ..flow.blocks import BasicBlock
from ..interp.blocks import make_step, refusal
from ..interp.control import BarrierEnd
from ..interp.exchange import Exchange, mask_array, perform
from ..interp.mbarrier import WaitStep, operation
from ..interp.operands import Prepare, every_lane, integer, lane_value
from ..interp.values import LaneValue, dtype_of
from ..isa.effects import ASYNC_COPY, BULK_COPY, CLUSTER_BARRIER, MBARRIER, MBARRIER_WAIT, WARPGROUP
from ..isa.evaluation import extend
from ..isa.mbarriers import Mbarrier
from ..memory.access_faults import Access, memory_fault
from ..memory.images import image_fault
from ..memory.spaces import reachable
from ..ptx.syntax import Instruction, Register
from ..simt.clusters import reaches_peers, refused_address
from ..simt.faults import (
    Place,
    Waiting,
    awaited_warps,
    bad_barrier,
    bad_cluster_barrier,
    bad_mbarrier,
    bad_stack,
    bad_target,
    budget,
    cta_of,
    deadlock,
    divergent_barrier,
    doing,
    incomplete_warp,
    lanes_of,
    long_line,
    meaningless_operands,
    no_warpgroup,
    stack_overflow,
    thread_of,
    too_deep,
    trap,
    unequal_descriptors,
    uneven_products,
)
from ..simt.program import MAX_DEPTH
from ..simt.stack import (
    AFTER,
    ALIGNED,
    AT_END,
    AT_WAIT,
    BARRIER,
    CALL_FRAME,
    PENDING,
    RECONVERGE,
    WAIT,
    Convergence,
    Entry,
    SimtStack,
    Yielding,
)
from ..simt.system import SystemCall
from .codegen.barrier import ArrivesDiverged
from .codegen.waits import put_wait, wait_of
from .ir.abi import (
    AREA_SHIFT,
    CONVERGE_CODE,
    EXIT_CODE,
    GATHER_CODE,
    KIND,
    RETURN_CODE,
    SYNC_CODE,
    WAIT_CODE,
    Bulk,
    Context,
    Cta,
    Event,
    State,
    Status,
    Wait,
    YieldBits,
    instruction_at,
)
from .launch import Launch
from .slots import Slot
from .stack_codes import decoded, encoded

if TYPE_CHECKING:
    from ..interp.warp import ReferenceWarp

__all__ = ["NativeWarp", "Worker"]

_SPACES = ("global", "shared", "local")
#: a warp that waits for others
_GROUPED = (Wait.BARRIER, Wait.CLUSTER, Wait.GATHERS, Wait.WARPGROUP)
#: of the barrier at which the warp stands
_OPERANDS = (State.BARRIER_ID, State.BARRIER_WARPS, State.BARRIER_KIND)


@dataclass(frozen=True)
class _Window:
    window: int


class Worker(Protocol):
    """What a warp needs of the host thread that runs it."""

    @property
    def launch(self) -> Launch: ...

    @property
    def left(self) -> Counter[tuple[int, int]]:
        """How often warps left compiled code, by event and block."""
        ...

    def get(self, offset: int) -> int:
        """A field of the context, unsigned."""
        ...

    def warp(self, slot: Slot, index: int) -> NativeWarp:
        """Another warp of the CTA."""
        ...

    def release(self, slot: Slot) -> None:
        """Release threads for which a barrier that Python keeps is complete."""
        ...


class NativeWarp:
    """A warp's state."""

    def __init__(self, worker: Worker, place: Place, state: NDArray[np.uint8], slot: Slot) -> None:
        self.worker = worker
        self.slot = slot
        self.where_it_is = place
        self.program = place.program
        self.state = state
        self.exchanges: dict[int, Exchange] = {}
        #: the block that ends with the barrier at which the whole warp waits, of those that Python keeps
        self.at_barrier: BasicBlock | None = None

    # ---------------------------------------------------------------------------------------------------- state

    def header(self, offset: int) -> int:
        """A field of the header, unsigned."""
        return int(struct.unpack_from("<I", self.state, offset)[0])

    def set_header(self, offset: int, value: int) -> None:
        """Set a field of the header."""
        struct.pack_into("<I", self.state, offset, value)

    @property
    def cta(self) -> _Window:
        """As much of the CTA as addresses of shared variables depend on."""
        return _Window(self.slot.get(Cta.WINDOW))

    @property
    def mask(self) -> int:
        return self.header(State.MASK)

    @property
    def active(self) -> NDArray[np.bool_]:
        return mask_array(self.mask)

    @property
    def block(self) -> BasicBlock:
        """The block where the warp stands."""
        place = self.header(State.PC)
        for code in (SYNC_CODE, RETURN_CODE, GATHER_CODE, WAIT_CODE, CONVERGE_CODE):
            if code <= place < EXIT_CODE:
                place -= code
        return self.program.blocks[min(place, len(self.program.blocks) - 1)]

    def place(self) -> Place:
        """For messages."""
        return self.where_it_is

    def steps(self) -> int:
        """SimtStack instructions executed."""
        return int(struct.unpack_from("<q", self.state, State.STEPS)[0])

    # ------------------------------------------------------------------------------------------------ registers

    def _slot(self, register: Register) -> tuple[int, bool] | None:
        for number, slots in enumerate(self.worker.launch.code.generated.slots):
            found = slots.get(register.index)
            if found is not None and self.program.functions[number].registers[register.index] is register:
                return found
        return None

    def read(self, register: Register) -> LaneValue:
        """The content of a register at the start of a block."""
        constants = self.worker.launch.code.generated.constants
        for number, known in enumerate(constants):
            if (
                register.index in known
                and self.program.functions[number].registers[register.index] is register
            ):
                return integer(known[register.index], register.type)
        found = self._slot(register)
        if found is None:
            return integer(0, register.type)
        offset, uniform = found
        if register.type.is_predicate:
            bits = struct.unpack_from("<I", self.state, offset)[0]
            return LaneValue(np.full(32, bool(bits)) if uniform else mask_array(bits), register.type)
        count, size = (1, register.type.bytes) if uniform else (32, register.type.bytes)
        raw = self.state[offset : offset + count * size]
        if size == 16:
            pairs = raw.view(np.uint64).reshape(count, 2)
            return LaneValue(
                np.array([int(low) | int(high) << 64 for low, high in pairs], object), register.type
            )
        return LaneValue(raw.view(dtype_of(register.type)).copy(), register.type)

    def put(self, register: Register, value: LaneValue, where: NDArray[np.bool_]) -> None:
        """Write some lanes of a register."""
        if value.type is not register.type:
            value = lane_value(extend(value, register.type))
        found = self._slot(register)
        if found is None:
            return
        offset, uniform = found
        data = np.where(where, value.data, every_lane(self.read(register)))
        if register.type.is_predicate:
            bits = int(np.packbits(data.astype(np.bool_), bitorder="little").view("<u4")[0])
            struct.pack_into("<I", self.state, offset, (bits != 0) if uniform else bits)
        elif register.type.bytes == 16:
            raw = b"".join(int(item).to_bytes(16, "little") for item in data)
            self.state[offset : offset + len(raw)] = np.frombuffer(raw, np.uint8)
        else:
            chosen = data[where][:1] if uniform else data
            raw_data = np.ascontiguousarray(chosen.astype(dtype_of(register.type), copy=False)).view(np.uint8)
            self.state[offset : offset + raw_data.size] = raw_data

    # ----------------------------------------------------------------------------------------------- the stack

    def paths(self) -> SimtStack:
        """The stack as the reference backend has it."""
        bits = self.header(State.YIELDING)
        yields, left_early = bool(bits & YieldBits.YIELDS), bool(bits & YieldBits.LEFT_EARLY)
        made = SimtStack(0, self.mask, self, Yielding(self.header(State.SLICES), yields, left_early))
        made.pc, made.id = decoded(self.header(State.PC)), decoded(self.header(State.ID))
        made.live = self.header(State.LIVE)
        made.call_depth = self.header(State.CALLS)
        if self.header(State.PC) >= EXIT_CODE:
            made.pc = made.id  # the exit of the function, whose number each activation has for itself
        elif self._returns():
            made.kept = self.header(State.AREA) or None
        for depth in range(self.header(State.DEPTH)):
            pc, mask, identity, kind = struct.unpack_from(
                "<4I", self.state, State.STACK + depth * State.ENTRY
            )
            kind, area = kind & KIND, kind >> AREA_SHIFT
            group, payload = 0, (area or None) if self.program.recursive else None
            if kind == RECONVERGE:
                group = decoded(pc)
            elif kind == CALL_FRAME:
                group = -area
                if self.program.recursive:
                    group = -1 - (len(self.program.functions) + area if area else self._callee(pc))
            elif kind == WAIT:
                payload = wait_of(self.program, self.state.data, pc, mask, area)
            made.entries.append(Entry(decoded(pc), mask, decoded(identity), kind, group, payload))
        return made

    def _callee(self, place: int) -> int:
        from .codegen.function import call_target

        further = place - RETURN_CODE - len(self.program.blocks)
        if further >= 0:
            return self.worker.launch.code.generated.returns[further]
        function = call_target(self.program.blocks[place - RETURN_CODE]).function
        return 0 if function is None else self.program.function_of[function.name]

    def adopt(self, paths: SimtStack) -> None:
        """Make a changed stack the warp's own. Raises ``EngineError`` if it is too deep."""
        if len(paths.entries) > self.worker.launch.code.generated.stack_entries:
            raise EngineError(
                f"more than {len(paths.entries)} paths of one warp: {self.place().lanes(paths.live)}"
            )
        self.set_header(State.PC, encoded(paths.pc))
        self.set_header(State.MASK, paths.mask)
        self.set_header(State.ID, encoded(paths.id))
        self.set_header(State.LIVE, paths.live)
        self.set_header(State.DEPTH, len(paths.entries))
        if self.program.recursive:
            self._keep_areas(paths)
        for depth, entry in enumerate(paths.entries):
            area = entry.payload if entry.kind in (PENDING, CALL_FRAME) and entry.payload else 0
            if entry.kind == WAIT:
                reasons = self.worker.launch.reasons
                area = put_wait(reasons, self.state.data, entry.pc, entry.mask, entry.payload)
            elif entry.kind == CALL_FRAME and not self.program.recursive:
                area = -entry.group
            fields = (encoded(entry.pc), entry.mask, encoded(entry.id), entry.kind | area << AREA_SHIFT)
            struct.pack_into("<4I", self.state, State.STACK + depth * State.ENTRY, *fields)
        self.set_header(State.WAITS, sum(entry.kind == WAIT for entry in paths.entries))
        self._keep_yielding(paths.yielding)

    def _keep_yielding(self, yielding: Yielding) -> None:
        self.set_header(State.SLICES, yielding.slices)
        self.set_header(
            State.YIELDING, YieldBits.YIELDS * yielding.yields | YieldBits.LEFT_EARLY * yielding.left_early
        )
        self.set_header(State.SLICE_SHIFT, yielding.slice_shift)

    def converge(self, convergence: Convergence) -> None:
        """Carry out a ``.sync`` operation for all paths."""
        parts = [(self._exchange(block), lanes) for block, lanes in convergence.paths]
        first = parts[0][0]
        if first.form.moves is not None and convergence.participants == 0xFFFFFFFF:
            raise ArrivesDiverged(
                f"a warp is diverged at {first.instruction.opcode} ({first.instruction.span})"
            )
        perform(cast("ReferenceWarp", self), convergence.participants, parts)

    def enter(self, function: object, lanes: int) -> tuple[int, int, Any]:
        """Pending indirect calls do not occur here."""
        raise AssertionError("indirect calls are entered by compiled code")

    def leave(self, payload: Any, lanes: int, others: bool) -> Any:
        """Results, and what the caller kept in an area, are copied by the compiled code behind the call; if others of the lanes that
        made it have not come back, these get an area of their own."""
        if payload is None or not others:
            return payload
        areas = self.slot.areas[self.where_it_is.warp]
        fresh = self.header(State.FREE)
        if fresh:
            self.set_header(State.FREE, int(areas[fresh, :4].view("<u4")[0]))
        else:
            fresh = self.header(State.AREAS) + 1
            self.set_header(State.AREAS, fresh)
        areas[fresh] = areas[payload]
        return fresh

    def _returns(self) -> bool:
        """Whether the lanes stand behind a call, where they have not yet taken back what was kept."""
        place = self.header(State.PC) - RETURN_CODE
        blocks = self.program.blocks
        if not self.program.recursive or not 0 <= place < SYNC_CODE - RETURN_CODE:
            return False
        return place >= len(blocks) or blocks[place].kind == "call"

    def _keep_areas(self, paths: SimtStack) -> None:
        """Note the calls and the area of the running lanes; what no entry has is free."""
        kept = paths.kept or 0
        self.set_header(State.CALLS, paths.call_depth)
        self.set_header(State.AREA, kept)
        used = {
            kept,
            *(
                entry.payload
                for entry in paths.entries
                if entry.kind in (PENDING, CALL_FRAME) and entry.payload
            ),
        }
        areas, free = self.slot.areas[self.where_it_is.warp], 0
        for number in range(self.header(State.AREAS), 0, -1):
            if number not in used:
                areas[number, :4].view("<u4")[0] = free
                free = number
        self.set_header(State.FREE, free)

    def _exchange(self, block: int) -> Exchange:
        found: object = self.exchanges.get(block)
        if not isinstance(found, Exchange):
            basic = self.program.blocks[block]
            prepare = Prepare(self.program, self.worker.launch.plan, basic.function)
            found = make_step(prepare, basic.instructions[0])
            assert isinstance(found, Exchange)
            self.exchanges[block] = found
        return found

    # --------------------------------------------------------------------------------------------------- events

    def attend(self, status: int) -> None:
        """Do what the compiled code left to Python. Raises what the kernel deserves."""
        if status == Status.FAULT:
            raise self._fault()
        if status == Status.SLICE_OVER:
            raise self._over_budget()
        event = self.header(State.EVENT)
        self.worker.left[event, self._where_left(event)] += 1
        if event == Event.SYSTEM:
            self._call_system()
            return
        paths = self.paths()
        if event == Event.ARRIVES:
            self._arrive(paths)
            return
        if event == Event.PARK:
            exchange = self._exchange(self.block.index)
            if paths.arrive(exchange.instruction.opcode, exchange.masks(cast("ReferenceWarp", self))):
                paths.pc = AFTER + self.block.index
        elif event == Event.CHOOSE:
            paths._choose()
        elif event == Event.EXITED:
            paths.exit(0)
        elif event == Event.CONVERGE:
            paths._complete_waits()
            if self.header(State.DETAIL):
                paths._choose()
            elif not paths.mask:
                paths._pop()
        elif event == Event.BLOCKED:
            self._wait(paths)
            return
        elif event == Event.DIVERGENT_BARRIER:
            paths.gather()
            self.set_header(State.HOLDS, self.header(State.HOLDS) | self.header(State.BARRIER_LANES))
            # until all are there, other lanes may come to another barrier
            for place, field in enumerate(_OPERANDS):
                self.set_header(State.GATHERED + 4 * place, self.header(field))
        elif event == Event.SPIN:
            paths.jump(paths.pc)
            if paths.mask:
                paths.switch_path()
            self.set_header(State.WAIT, Wait.SLICE_OVER)
        else:
            raise self._error(event)
        self.adopt(paths)
        if AT_END <= paths.pc < AFTER and paths.mask == paths.live:
            self.set_header(State.BARRIER_LANES, self.header(State.HOLDS))
            for place, field in enumerate(_OPERANDS):
                self.set_header(field, self.header(State.GATHERED + 4 * place))
            self.set_header(State.HOLDS, 0)
        if paths.blocked:
            self._wait(paths)
        elif event == Event.SPIN and self.slot.get(Cta.ACTIVE) >> 16:
            self.worker.release(self.slot)
        if event == Event.SPIN and self.steps() > self.worker.launch.plan.max_instructions:
            raise self._over_budget()

    def _over_budget(self) -> EngineError:
        block = self.program.blocks[self.header(State.SLICE_END)]
        return budget(self.place(), block, self.steps(), self.mask)

    def _where_left(self, event: int) -> int:
        """The block at whose instruction the warp has left compiled code."""
        if event in (Event.SYSTEM, Event.ARRIVES, Event.SPIN):
            return self.header(State.DETAIL)
        if event == Event.CONVERGE:
            entry = State.STACK + (self.header(State.DEPTH) - 1) * State.ENTRY
            place = self.header(entry) if self.header(State.DETAIL) else 0
            return place if place < len(self.program.blocks) else self.block.index
        return self.block.index

    def _arrive(self, paths: SimtStack) -> None:
        """The running lanes arrive at a barrier of the CTA, as in the reference backend (``interp.control.BarrierEnd``)."""
        block = self.program.blocks[self.header(State.DETAIL)]
        waits, whole = self.header(State.BARRIER_KIND) != 1, paths.mask == paths.live
        self.slot.barriers.arrive(
            self.header(State.BARRIER_ID),
            self.where_it_is.warp,
            paths.mask,
            live=paths.live,
            expected=32 * self.header(State.BARRIER_WARPS),
            waits=waits,
            holds=self.header(State.BARRIER_LANES),
        )
        self.slot.put(Cta.ACTIVE, self.slot.get(Cta.ACTIVE) | 1 << 16)
        if whole:
            if waits:
                self.at_barrier = block
                self.set_header(State.WAIT, Wait.BARRIER)
            self._end_visit()
        elif waits:
            paths.pc = block.index
            paths.wait(block.successors[0])
            self.adopt(paths)
            if paths.blocked:
                self._wait(paths)

    def _wait(self, paths: SimtStack) -> None:
        """No lane can go on by itself. Raises if all wait for lanes of their own warp."""
        if not any(wait.key == BARRIER for _, _, wait in paths.waiting()):
            raise self._blocked(paths)
        self.set_header(State.WAIT, Wait.BARRIER)
        self._end_visit()

    def _end_visit(self) -> None:
        """The warp has stopped: the next one runs, after the barriers that are complete now."""
        self.slot.put(Cta.POSITION, self.where_it_is.warp + 1)
        self.worker.release(self.slot)

    def release(self, lanes: int, true: int, false: int) -> None:
        """A barrier that Python keeps lets these lanes go; so many lanes arrived with a true and a false predicate."""
        if self.at_barrier is not None:
            self._result(self.at_barrier, lanes, true, false)
            self.at_barrier = None
            self.set_header(State.WAIT, Wait.RUNNABLE)
            return
        paths = self.paths()
        for block, waiting, wait in list(paths.waiting()):
            if wait.key == BARRIER and waiting & lanes:
                self._result(self.program.blocks[block], waiting, true, false)
        paths.release(lanes)
        self.adopt(paths)
        if paths.mask and self.header(State.WAIT) == Wait.BARRIER:
            self.set_header(State.WAIT, Wait.RUNNABLE)

    def _result(self, block: BasicBlock, lanes: int, true: int, false: int) -> None:
        prepare = Prepare(self.program, self.worker.launch.plan, block.function)
        BarrierEnd(prepare, block).result(cast("ReferenceWarp", self), lanes, true, false)

    def lanes_array(self, mask: int) -> NDArray[np.bool_]:
        """A mask as 32 ``bool``."""
        return mask_array(mask)

    def _call_system(self) -> None:
        """A call of a function of the system: its arguments are in the state, and there goes the result."""
        instruction = self.program.blocks[self.header(State.DETAIL)].terminator
        assert instruction is not None and instruction.system is not None
        launch, plan = self.worker.launch, self.where_it_is.plan
        start = launch.code.generated.system
        cells = self.state[start : start + 256 * max(1, len(instruction.system.arguments))]
        values = cells.view(np.uint64).reshape(-1, 32)
        call = SystemCall(
            instruction,
            self.place(),
            launch.memory,
            self.mask,
            tuple(row.copy() for row in values),
            self._local_memory,
            self.slot.shared[: plan.shared_bytes],
        )
        values[0] = call.perform()
        launch.refresh_heap()

    def _local_memory(self, lane: int) -> NDArray[np.uint8]:
        """A lane's local memory, which lies in rows of one word of each lane."""
        size, warp = self.program.local_area, self.where_it_is.warp
        own = self.slot.local[warp * 32 * size : (warp + 1) * 32 * size]
        return own.reshape(size // 4, 32, 4)[:, lane].reshape(-1)

    def _blocked(self, paths: SimtStack) -> EngineError:
        """No lane can go on: what they wait for is in their own warp."""
        for block, lanes, wait in paths.waiting():
            terminator = self.program.blocks[block].terminator
            if wait.key == ALIGNED and terminator is not None:
                return divergent_barrier(self.place(), terminator, lanes, paths.live & ~lanes)
        return deadlock(self.where())

    @property
    def missing(self) -> list[int]:
        """Warps of the warpgroup that have not come to what this one waits for."""
        first, end = self.where_it_is.warp & ~3, self.where_it_is.plan.warps_per_cta
        others = (self.worker.warp(self.slot, warp) for warp in range(first, min(first + 4, end)))
        wanted = self.header(State.WANTED)
        field = State.FENCES if self.header(State.WAIT) == Wait.GATHERS else State.COMMITS
        return [warp.where_it_is.warp for warp in others if warp.header(field) < wanted]

    def force_yield(self) -> bool:
        """The launch runs in circles; whether the warp can try something else from now on."""
        waits = self.header(State.WAIT) in _GROUPED and self.mask
        paths = self.paths()
        if waits or not paths.force_yield():
            return False
        self._keep_yielding(paths.yielding)
        return True

    def _error(self, event: int) -> EngineError:
        if event == Event.UNEVEN:
            other, theirs = self.header(State.DETAIL), self.header(State.CULPRITS)
            own = self.header(State.INDEX), self.header(State.PRODUCTS)
            return uneven_products(self.place(), self.program.products[0], own, (other, theirs))
        place, block, detail = self.place(), self.block, self.header(State.DETAIL)
        lane = lanes_of(self.mask)[0]
        if event == Event.TRAP:
            return trap(place, block.instructions[detail], self.header(State.CULPRITS))
        if event == Event.DIVERGED and block.terminator is not None:
            reason = ArrivesDiverged(
                f"a warp is diverged at {block.terminator.opcode} ({block.terminator.span})"
            )
            reason.bearable = block.terminator.effect is not CLUSTER_BARRIER
            return reason
        if event == Event.ALLOCA:
            lane = lanes_of(self.header(State.CULPRITS))[0]
            return bad_stack(place, block.instructions[detail], lane, self._reported(lane))
        if event == Event.IMAGE:
            lane = lanes_of(self.header(State.CULPRITS))[0]
            images = self.worker.launch.memory.images
            return image_fault(place.thread(lane), block.instructions[detail], self._reported(lane), images)
        if event == Event.REFUSED:
            return refusal(cast("ReferenceWarp", self), self.program, place.plan, block, detail)
        terminator = block.terminator
        instruction = terminator if terminator is not None else block.instructions[0]
        if event == Event.BARRIER_ID:
            return bad_barrier(place, instruction, lane, f"barrier {detail}")
        if event == Event.BARRIER_COUNT:
            return bad_barrier(
                place, instruction, lane, f"{detail} threads for barrier {self.header(State.BARRIER_ID)}"
            )
        if event == Event.CLUSTER_ORDER:
            return bad_cluster_barrier(place, instruction, lane)
        if event == Event.MEMBER_MASK:
            self._exchange(block.index).masks(cast("ReferenceWarp", self))
        if event == Event.INCOMPLETE:
            return incomplete_warp(place, block.instructions[0], self.mask)
        if event in (Event.NO_WARPGROUP, Event.DESCRIPTOR, Event.PATTERN):
            tell = {Event.NO_WARPGROUP: no_warpgroup, Event.DESCRIPTOR: unequal_descriptors}.get(
                event, long_line
            )
            return tell(place, block.instructions[0], self.header(State.CULPRITS))
        if event == Event.MEANINGLESS:
            return meaningless_operands(place, block.instructions[detail], self.header(State.CULPRITS))
        if event in (Event.INDEX, Event.TARGET):
            return self._bad_target(instruction)
        if event == Event.DEPTH:
            return too_deep(place, instruction, lane, MAX_DEPTH)
        if event == Event.LOCALS:
            room = self.program.local_area - self.program.local_static
            return stack_overflow(place, instruction, lanes_of(self.header(State.CULPRITS))[0], room)
        if event == Event.STACK:
            return too_deep(place, instruction, lane, self.worker.launch.code.generated.stack_entries)
        return EngineError(f"{instruction.opcode} cannot go on ({event})", span=instruction.span)

    def _bad_target(self, instruction: Instruction) -> EngineError:
        culprits = self.header(State.CULPRITS)
        lane = lanes_of(culprits)[0]
        return bad_target(self.place(), instruction, lane, self._reported(lane), len(self.block.successors))

    def _reported(self, lane: int) -> int:
        """What compiled code left of a lane for a message."""
        return int(struct.unpack_from("<32Q", self.state, self.worker.launch.code.generated.report)[lane])

    def _fault(self) -> EngineError:
        worker, place = self.worker, self.place()
        number, where = worker.get(Context.FAULT_SITE), worker.get(Context.FAULT_SPACE)
        lane, address = worker.get(Context.FAULT_LANE), worker.get(Context.FAULT_ADDRESS)
        if number >= 1 << 63:  # what is no site: an operation on an mbarrier, by its place in the block
            instruction, kind = instruction_at(self.program, number - (1 << 64)), "store"
            size = worker.get(Context.FAULT_SIZE) or 8
        else:
            site = self.program.sites[number & ~Bulk.SIGNALS]
            instruction, kind = site.instruction, site.kind
            moves = instruction.form.moves
            size = worker.get(Context.FAULT_SIZE) or (site.bytes if moves is None else moves.piece)
            if number & Bulk.SIGNALS:
                kind, size = "store", 8
        if where >= len(_SPACES):
            word, amount = worker.get(Context.FAULT_WORD), worker.get(Context.FAULT_AMOUNT)
            return bad_mbarrier(place, instruction, lane, where, address, word, amount)
        space = _SPACES[where]
        if space == "global" and instruction.form.space == "const":
            space = "const"
        plan = place.plan
        limit = {"shared": plan.shared_bytes, "local": self.program.local_area}.get(space, 0)
        if instruction.effect is ASYNC_COPY and space == "shared":
            kind = "store"
        if instruction.effect is BULK_COPY and number < Bulk.SIGNALS:
            kind = _end_kind(instruction, space, kind, worker.get(Context.FAULT_WORD) != 0)
        return memory_fault(
            worker.launch.memory,
            Access(
                instruction, self.program.kernel.name, kind, space, address, size,
                thread_of(plan, place.warp, lane), cta_of(plan, place.cta), limit,
                cluster=self._beyond(instruction, address) if space == "shared" else None,
                reaches=_reaches(instruction, space), parameters=plan.parameter_address,
            ),
        )  # fmt: skip

    def _beyond(self, instruction: Instruction, address: int) -> tuple[str, str] | None:
        """Why an address of the shared window cannot be reached, if it lies in another CTA of the cluster."""
        place, group = self.place(), self.slot.group
        if group is None or place.plan.cluster_ctas == 1:
            return None
        arrives = instruction.effect is MBARRIER and operation(instruction) & 15 == Mbarrier.ARRIVE
        return refused_address(
            place.plan, place.cta, address, reaches_peers(instruction), group.states, arrives
        )

    def where(self) -> Iterable[Waiting]:
        """Where its lanes are or wait."""
        place, blocks = self.place(), self.program.blocks
        at_barrier = self.header(State.WAIT) in (Wait.BARRIER, Wait.CLUSTER)
        suspended = self.header(State.WAIT) in (Wait.SUSPENDED, Wait.GATHERS, Wait.WARPGROUP)
        paths = self.paths()
        if paths.mask and at_barrier:
            terminator = self.block.terminator
            opcode = terminator.opcode if terminator is not None else "a barrier"
            yield Waiting(place, paths.mask, self.block, f"at {opcode}", terminator)
        elif suspended:
            instruction = self.block.instructions[0]
            prepare = Prepare(self.program, place.plan, self.block.function)
            if instruction.effect is MBARRIER_WAIT:
                reason = WaitStep(prepare, instruction).reason(cast("ReferenceWarp", self), self.slot.shared)
            else:
                reason = awaited_warps(instruction, self.missing)
            yield Waiting(place, paths.mask, self.block, reason, instruction)
        elif paths.mask:
            yield Waiting(place, paths.mask, self.block, doing(paths.pc))
        for block, lanes, wait in paths.waiting():
            terminator = blocks[block].terminator
            if wait.key in (BARRIER, ALIGNED) and terminator is not None:
                yield Waiting(place, lanes, blocks[block], f"at {terminator.opcode}", terminator)
            else:
                opcode = blocks[block].instructions[0].opcode
                yield Waiting(place, lanes, blocks[block], f"at {opcode} for lanes that do not come")
        if paths.mask and not at_barrier and not suspended:
            for entry in paths.entries:
                ready = entry.kind == PENDING and entry.pc & (AT_WAIT - 1) < len(blocks)
                if ready and entry.mask & paths.live:
                    stands = blocks[entry.pc & (AT_WAIT - 1)]
                    yield Waiting(place, entry.mask & paths.live, stands, doing(entry.pc))


def _reaches(instruction: Instruction, space: str) -> int:
    """What a refused access may reach; of an instruction with several ends, the one in that space."""
    if instruction.effect in (ASYNC_COPY, BULK_COPY, MBARRIER, MBARRIER_WAIT, WARPGROUP):
        return reachable(instruction, space)
    return reachable(instruction)


def _end_kind(instruction: Instruction, space: str, kind: str, read: bool) -> str:
    """What a bulk copy did in a space: it has two ends; ``read``: it was known to be reading."""
    if read:
        return "load"
    ends = {
        str(instruction.form.modifier(name)).split("::")[0]: way
        for name, way in (("src", "load"), ("dst", "reduction" if kind == "reduction" else "store"))
    }
    return ends.get(space, kind)
