"""One warp of compiled code as Python sees it: calls of the system, exchanges of lanes that stand at several instructions, and
everything that is an error.

The exchange operations of the reference backend read and write the warp's registers through ``read`` and ``put`` here.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import EngineError
from ..flow.blocks import BasicBlock
from ..interp.blocks import make_step, refusal
from ..interp.exchange import Exchange, mask_array, perform
from ..interp.mbarrier import WaitStep
from ..interp.operands import Prepare, every_lane, integer, lane_value
from ..interp.values import LaneValue, dtype_of
from ..isa.effects import ASYNC_COPY, BULK_COPY, MBARRIER, MBARRIER_WAIT, WARPGROUP
from ..isa.evaluation import extend
from ..isa.mbarriers import Mbarrier
from ..memory.access_faults import Access, memory_fault
from ..memory.images import image_fault
from ..memory.spaces import reachable
from ..ptx.syntax import Instruction, Register
from ..simt.clusters import reaches_peers, refused_address
from ..simt.effects import mbarrier_operation
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
from ..simt.stack_entries import AT_WAIT, PENDING, WAIT
from ..simt.system import SystemCall
from .codegen.barrier import ArrivesDiverged
from .host_arrays import address_of
from .ir.abi import Context, Cta, State
from .ir.codes import (
    AREA_SHIFT,
    CONVERGE_CODE,
    EXIT_CODE,
    GATHER_CODE,
    KIND,
    RETURN_CODE,
    SYNC_CODE,
    WAIT_CODE,
    Event,
    Reason,
    Status,
    Wait,
)
from .ir.copy_records import Bulk, instruction_at
from .launch import Launch
from .slots import Slot
from .stack_codes import decoded

if TYPE_CHECKING:
    from ..interp.warp import ReferenceWarp

__all__ = ["NativeWarp", "Worker"]

_SPACES = ("global", "shared", "local")
#: a warp that waits for others
_GROUPED = (Wait.BARRIER, Wait.CLUSTER, Wait.GATHERS, Wait.WARPGROUP)
#: moves of paths, which leave compiled code where its stack is full
_SPLITS = (
    Event.PARK, Event.SPIN, Event.CHOOSE, Event.EXITED, Event.DIVERGENT_BARRIER, Event.ARRIVES,
)  # fmt: skip


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

    def call(self, name: str, record: int, *more: int) -> int:
        """Call a function of the runtime on the record of a CTA, or on the state of a warp."""
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

    # ---------------------------------------------------------------------------------------------------- state

    def header(self, offset: int) -> int:
        """A field of the header, unsigned."""
        return int(struct.unpack_from("<I", self.state, offset)[0])

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
            slot = slots.get(register.index)
            if slot is not None and self.program.functions[number].registers[register.index] is register:
                return slot
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
        slot = self._slot(register)
        if slot is None:
            return integer(0, register.type)
        offset, uniform = slot
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
        slot = self._slot(register)
        if slot is None:
            return
        offset, uniform = slot
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

    def _entries(self) -> Iterator[tuple[int, int, int, int]]:
        """The entries of the stack, bottom first: place, lanes that live, kind, and what else stands in the kind."""
        live = self.header(State.LIVE)
        for depth in range(self.header(State.DEPTH)):
            place, mask, _, kind = struct.unpack_from("<4I", self.state, State.STACK + depth * State.ENTRY)
            yield place, mask & live, kind & KIND, kind >> AREA_SHIFT

    def _exchange(self, block: int) -> Exchange:
        exchange: object = self.exchanges.get(block)
        if not isinstance(exchange, Exchange):
            basic = self.program.blocks[block]
            prepare = Prepare(self.program, self.worker.launch.plan, basic.function)
            exchange = make_step(prepare, basic.instructions[0])
            assert isinstance(exchange, Exchange)
            self.exchanges[block] = exchange
        return exchange

    # --------------------------------------------------------------------------------------------------- events

    def attend(self, status: int) -> None:
        """Do what the compiled code left to Python. Raises what the kernel deserves."""
        if status == Status.FAULT:
            raise self._fault()
        if status == Status.SLICE_OVER:
            raise self._over_budget()
        event = self.header(State.EVENT)
        if event == Event.SYSTEM:
            self.worker.left[event, self.header(State.DETAIL)] += 1
            self._call_system()
        elif event == Event.CONVERGE:
            self._converge()
        else:
            raise self._error(event)

    def _converge(self) -> None:
        """Carry out an exchange of lanes that stand at several instructions, and let them go on."""
        members = self.header(State.CULPRITS)
        wanted = struct.unpack_from("<32I", self.state, State.MEMBERS)
        there = sum(1 << lane for lane in range(32) if wanted[lane] == members)
        entries = list(self._entries())
        place_of_first, _, _, reason = entries[self.header(State.DETAIL) - 1]
        parts = [
            (self._exchange(place), lanes & there)
            for place, lanes, kind, why in entries
            if kind == WAIT and why == reason and lanes & there
        ]
        self.worker.left[Event.CONVERGE, place_of_first] += 1
        perform(cast("ReferenceWarp", self), members & self.header(State.LIVE), parts)
        for _, lanes in parts:
            for lane in lanes_of(lanes):
                struct.pack_into("<I", self.state, State.MEMBERS + 4 * lane, 0)
        get = self.worker.get
        status = self.worker.call(
            "settle_again", get(Context.CTA), get(Context.STATE), self.header(State.STOPS)
        )
        if status:
            self.attend(status - 8)

    def _over_budget(self) -> EngineError:
        block = self.program.blocks[self.header(State.SLICE_END)]
        # where all lanes have ended, the state still has those of the last path
        return budget(self.place(), block, self.steps(), self.mask & self.header(State.LIVE))

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

    def _blocked(self) -> EngineError:
        """No lane can go on: what they wait for is in their own warp."""
        for block, lanes, kind, reason in self._entries():
            terminator = self.program.blocks[block].terminator if kind == WAIT else None
            if reason == Reason.ALIGNED and terminator is not None and lanes:
                return divergent_barrier(self.place(), terminator, lanes, self.header(State.LIVE) & ~lanes)
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
        if self.header(State.WAIT) in _GROUPED and self.mask:
            return False
        return bool(self.worker.call("force_yield", address_of(self.state)))

    def _error(self, event: int) -> EngineError:
        if event == Event.BLOCKED:
            return self._blocked()
        if event in _SPLITS:
            most, live = self.worker.launch.code.generated.stack_entries, self.header(State.LIVE)
            return EngineError(f"more than {most} paths of one warp: {self.place().lanes(live)}")
        if event == Event.UNEVEN:
            other, theirs = self.header(State.DETAIL), self.header(State.CULPRITS)
            own = self.header(State.INDEX), self.header(State.PRODUCTS)
            return uneven_products(self.place(), self.program.products[0], own, (other, theirs))
        place, block, detail = self.place(), self.block, self.header(State.DETAIL)
        lane = lanes_of(self.mask)[0]
        if event == Event.TRAP:
            return trap(place, block.instructions[detail], self.header(State.CULPRITS))
        if event == Event.DIVERGED and block.terminator is not None:
            return ArrivesDiverged(
                f"a warp is diverged at {block.terminator.opcode} ({block.terminator.span})"
            )
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
        arrives = instruction.effect is MBARRIER and mbarrier_operation(instruction) & 15 == Mbarrier.ARRIVE
        return refused_address(
            place.plan, place.cta, address, reaches_peers(instruction), group.states, arrives
        )

    def where(self) -> Iterable[Waiting]:
        """Where its lanes are or wait."""
        place, blocks = self.place(), self.program.blocks
        at_barrier = self.header(State.WAIT) in (Wait.BARRIER, Wait.CLUSTER)
        suspended = self.header(State.WAIT) in (Wait.SUSPENDED, Wait.GATHERS, Wait.WARPGROUP)
        mask = self.mask
        if mask and at_barrier:
            terminator = self.block.terminator
            opcode = terminator.opcode if terminator is not None else "a barrier"
            yield Waiting(place, mask, self.block, f"at {opcode}", terminator)
        elif suspended:
            instruction = self.block.instructions[0]
            prepare = Prepare(self.program, place.plan, self.block.function)
            if instruction.effect is MBARRIER_WAIT:
                reason = WaitStep(prepare, instruction).reason(cast("ReferenceWarp", self), self.slot.shared)
            else:
                reason = awaited_warps(instruction, self.missing)
            yield Waiting(place, mask, self.block, reason, instruction)
        elif mask:
            yield Waiting(place, mask, self.block, doing(decoded(self.header(State.PC))))
        for block, lanes, kind, why in self._entries():
            if kind != WAIT or not lanes:
                continue
            terminator = blocks[block].terminator
            if why < Reason.EXCHANGE and terminator is not None:
                yield Waiting(place, lanes, blocks[block], f"at {terminator.opcode}", terminator)
            else:
                opcode = blocks[block].instructions[0].opcode
                yield Waiting(place, lanes, blocks[block], f"at {opcode} for lanes that do not come")
        if mask and not at_barrier and not suspended:
            for code, lanes, kind, _ in self._entries():
                stands = decoded(code) & (AT_WAIT - 1)
                if kind == PENDING and stands < len(blocks) and lanes:
                    yield Waiting(place, lanes, blocks[stands], doing(decoded(code)))


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
