"""One warp of the reference backend: its registers, and its execution block by block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ..flow.blocks import BasicBlock
from ..flow.clock_loops import LARGEST_GAP, MORE
from ..isa.evaluation import extend
from ..isa.rules import RULES
from ..isa.spaces import RANK_SHIFT
from ..isa.types import scalar_type
from ..ptx.syntax import Register, Variable
from ..simt.atomic_targets import AtomicTargets
from ..simt.barriers import Barriers
from ..simt.clusters import ClusterBarrier, broken_rule, refused_address
from ..simt.effects import convergence_key
from ..simt.faults import Waiting, WarpPosition, budget, deadlock, doing, uneven_products
from ..simt.launch import LaunchPlan
from ..simt.live_registers import live_at
from ..simt.padding import BlankRead, Overrun
from ..simt.program import Program
from ..simt.rule_breaches import Breach
from ..simt.schedule import Pending, Status
from ..simt.stack import AFTER, ALIGNED, AT_END, AT_WAIT, BARRIER, PENDING, Convergence, SimtStack
from ..simt.thread_counters import Columns, ThreadTable
from .calls import Activation, Call
from .exchange import mask_array, perform
from .operands import every_lane, integer, lane_value
from .regions import Arena, Region
from .tensor_memory import TensorMemory
from .value_recorder import ValueRecorder
from .values import Lanes, LaneValue

if TYPE_CHECKING:
    from .blocks import Block
    from .control import BarrierEnd

__all__ = ["Counters", "LanesCluster", "LanesCta", "ReferenceWarp"]

_PRED = scalar_type("pred")
_EMPTY = np.zeros(32, np.uint64)
_NEVER_WRITTEN = LaneValue(np.zeros(1, np.uint64), scalar_type("u64"))
_NO_CARRY = LaneValue(np.zeros(1, np.bool_), _PRED)

_lanes_array = lru_cache(maxsize=4096)(mask_array)


@dataclass(slots=True)
class Counters:
    """The counters of a running launch; see ``counters.Observation``."""

    block_warps: list[int]
    block_lanes: list[int]
    divergent: list[int]
    taken: list[int]
    predicated: list[int]
    sites: list[list[int]] | None
    #: the first read of uninitialised memory, by site
    blank: dict[int, BlankRead]
    breaches: list[Breach]
    beyond: dict[int, Overrun]
    threads: ThreadTable | None
    columns: Columns
    values: ValueRecorder | None = None
    #: lanes of atomics at each address, if the program has any
    targets: AtomicTargets | None = None
    #: operations of products in tensor memory, by type
    tensor_work: Counter[str] = field(default_factory=Counter)

    def threads_of(self, cta: int, warp: int) -> Lanes | None:
        """The counters of one warp's threads, if they are observed."""
        if self.threads is None or cta not in self.threads.ctas:
            return None
        counts: Lanes = self.threads.counts[self.threads.ctas.index(cta), warp]
        return counts


@dataclass(slots=True)
class LanesCluster:
    """The shared state of the CTAs of a cluster; ``members`` and ``states`` by rank."""

    members: list[LanesCta]
    states: list[int]
    barrier: ClusterBarrier
    #: the clusters of the launch that have not started
    pending: Pending


@dataclass(slots=True)
class LanesCta:
    """The shared state of the warps of a CTA. ``coordinates`` are ``%ctaid.x`` to ``.w``."""

    index: int
    coordinates: tuple[LaneValue, ...]
    program: Program
    plan: LaunchPlan
    blocks: list[Block]
    arena: Arena
    shared: Region
    barriers: Barriers
    counters: Counters
    cluster: LanesCluster
    #: ``%cluster_ctarank``, ``%clusterid`` and ``%cluster_ctaid``
    rank: int
    cluster_coordinates: tuple[LaneValue, ...]
    within: tuple[LaneValue, ...]
    #: number of warpgroup products that each ended warp executed
    products: dict[int, int] = field(default_factory=dict)
    #: number of groups of such products that each warp has committed
    groups: Counter[int] = field(default_factory=Counter)
    #: number of ``wgmma.fence`` that each warp has reached
    fences: Counter[int] = field(default_factory=Counter)
    tensor: TensorMemory = field(default_factory=TensorMemory)
    #: the offset of the mbarrier object, and the parity of its phase, for which each warp waits with all running lanes
    awaited: dict[ReferenceWarp, tuple[int, int]] = field(default_factory=dict)

    @property
    def window(self) -> int:
        """The offset of its shared memory in the shared window."""
        return self.rank << RANK_SHIFT

    def shared_of(self, rank: int, arrives: bool) -> tuple[Region | None, str | None]:
        """The shared memory of the CTA of that rank in its cluster, ``None`` if it is not accessible, and the rule that the access
        violates. ``arrives``: the access is an arrival at an mbarrier."""
        cluster = self.cluster
        if rank >= len(cluster.members):
            return None, None
        rule = broken_rule(cluster.states[rank], arrives)
        passes = rule is None or (RULES[rule].works and self.plan.strict != "error")
        return cluster.members[rank].shared if passes else None, rule

    def refusal(self, address: int, remote: bool, arrives: bool) -> tuple[str, str] | None:
        """Why an address of the shared window is not accessible, if it lies in another CTA."""
        if self.plan.cluster_ctas == 1:
            return None
        return refused_address(self.plan, self.index, address, remote, self.cluster.states, arrives)


class ReferenceWarp:
    """Registers hold values of their own type, initially 0. ``mask`` and ``active`` are the running lanes."""

    def __init__(self, cta: LanesCta, index: int, lanes: int, tid: tuple[LaneValue, ...]) -> None:
        self.cta = cta
        self.index = index
        self.tid = tid
        self.counters = cta.counters
        self.paths = SimtStack(cta.program.entries[0], lanes, self)
        self.registers: dict[Register, LaneValue] = {}
        self.parameters: dict[Variable, Lanes] = {}
        self.carry: dict[int, LaneValue] = {}
        self.local_bytes = cta.program.local_area
        #: addresses of the local variables of the current activations of recursive functions, and of the next activation
        self.frame_addresses: dict[int, Lanes] = {}
        self.stack_top: Lanes = np.full(32, cta.program.local_static, np.uint64)
        self.local = Region.fresh(32 * self.local_bytes)
        #: size of the stack of each function, which grows down from the end of local memory, in bytes
        self.stack_depths: dict[int, Lanes] = {}
        self.steps = 0
        #: of the clock (``flow.clock_loops``): what it is ahead of the steps, its gap, and the steps when it was last read in a loop
        self.clock_ahead = self.clock_gap = self.clock_steps = 0
        #: the running block
        self.block = 0
        #: number of warpgroup products that it has executed
        self.products = 0
        #: number of groups of products, or of fences, that all warps of its warpgroup must reach before it continues
        self.wanted = 0
        self.awaited = cta.groups
        self.quantum = 0
        self.mask = 0
        self.active: Lanes = mask_array(0)
        self.at_barrier: BarrierEnd | None = None
        #: whether it is suspended at the wait at the start of the running path's block
        self.suspended = False
        #: whether that wait has expired
        self.expired = False
        #: whether its phase was complete when its object was initialised again
        self.seen = False
        #: phases of mbarriers of the CTA that were completed when the warp last began to run
        self.began = 0
        #: whether it stops for other warps to see the phases completed since
        self.lets_others = False
        self._slice_end = 0  # the block after which the last time slice ended
        #: counters of this warp's threads, shape (columns, 32), if they are observed
        self.own = cta.counters.threads_of(cta.index, index)

    # -- registers -------------------------------------------------------------------------------------------------------

    @property
    def number(self) -> int:
        """The number of the warp in the launch + 1."""
        return 1 + self.cta.index * self.cta.plan.warps_per_cta + self.index

    def read(self, register: Register) -> LaneValue:
        """The value of a register."""
        value = self.registers.get(register)
        return integer(0, register.type) if value is None else value

    def write(self, register: Register, value: LaneValue, guard: Lanes | None) -> None:
        """Write a register in the running lanes whose guard holds; narrower values are extended."""
        if value.type is not register.type:
            value = lane_value(extend(value, register.type))
        if guard is not None:
            self.put(register, value, self.active & guard)
        elif self.mask == self.paths.live:
            self.registers[register] = value
        else:
            self.put(register, value, self.active)

    def put(self, register: Register, value: LaneValue, where: Lanes) -> None:
        """Write a register in any lanes."""
        if value.type is not register.type:
            value = lane_value(extend(value, register.type))
        data = np.where(where, value.data, self.read(register).data)
        self.registers[register] = LaneValue(data, register.type)

    def read_clock(self) -> int:
        """The clock: the instructions that the warp has executed, and what loops that wait for it have added."""
        length = self.cta.program.blocks[self.block].clock_loop
        if length:
            gap = self.clock_gap if self.steps - self.clock_steps <= length else 0
            self.clock_gap = gap + (gap >> MORE) + 1 if gap < LARGEST_GAP else LARGEST_GAP
            self.clock_steps = self.steps
            self.clock_ahead += gap
        return self.steps + self.clock_ahead

    def read_carry(self, function: int) -> LaneValue:
        """The condition code CC.CF."""
        return self.carry.get(function, _NO_CARRY)

    def put_carry(self, function: int, value: LaneValue, where: Lanes) -> None:
        """Write the condition code in some lanes."""
        self.carry[function] = LaneValue(np.where(where, value.data, self.read_carry(function).data), _PRED)

    def stack_depth(self, function: int) -> Lanes:
        """The size of the stack of a function, in bytes; callers that store it must copy it."""
        return self.stack_depths.get(function, _EMPTY)

    def parameter(self, variable: Variable) -> Lanes:
        """The bytes of a parameter of a call or device function, shape (32, bytes)."""
        data = self.parameters.get(variable)
        if data is None:
            data = self.parameters[variable] = np.zeros(
                (32, max(variable.size, variable.type.bytes)), np.uint8
            )
        return data

    def count_guard(self, counter: int, lanes: Lanes) -> None:
        """Count lanes whose guard holds at a predicated instruction."""
        self.counters.predicated[counter] += int(lanes.sum())
        if self.own is not None:
            self.own[len(self.cta.blocks) + counter] += lanes

    def count_taken(self, block: int, mask: int) -> None:
        """Count lanes whose guard holds at the counted branch of a block."""
        self.counters.taken[block] += mask.bit_count()
        if self.own is not None:
            self.own[self.counters.columns.taken[block]] += _lanes_array(mask)

    def lanes_array(self, mask: int) -> Lanes:
        """A mask as 32 ``bool``; read-only."""
        return _lanes_array(mask)

    # -- running ---------------------------------------------------------------------------------------------------------

    @property
    def live(self) -> int:
        return self.paths.live

    def begin_slice(self, quantum: int) -> None:
        self.quantum = quantum >> self.paths.yielding.slice_shift

    def resume(self) -> Status:
        status = self._run()
        if self.steps > self.cta.plan.max_instructions:
            raise budget(self.position(), self._block_at(self._slice_end), self.steps, self.paths.mask)
        return status

    def _run(self) -> Status:
        paths, blocks, counters = self.paths, self.cta.blocks, self.counters
        self.suspended = self.lets_others = False
        self.began = self.cta.barriers.phases
        if self.at_barrier is not None:
            end, self.at_barrier = self.at_barrier, None
            self._enter()
            status = self.go(end.block, end.block.successors[0])
            if status is not None:
                return status
        while paths.mask:
            self._enter()
            pc = paths.pc
            if pc >= AFTER:
                block = blocks[pc - AFTER]
            elif pc >= AT_END:
                status = blocks[pc - AT_END].end(self)
                if status is not None:
                    return status
                continue
            elif pc >= AT_WAIT:
                block = blocks[pc - AT_WAIT]
            else:
                block = blocks[pc]
                counters.block_warps[pc] += 1
                counters.block_lanes[pc] += self.mask.bit_count()
                if self.own is not None:
                    self.own[pc] += self.active
                self.steps += block.counts
                if block.sync is not None and not paths.arrive(
                    convergence_key(block.sync.instruction, pc), block.sync.masks(self)
                ):
                    continue
                if block.wait is not None:
                    block.wait.count(self)
            if block.wait is not None and not block.wait(self):
                return self._suspend(block)
            self.block = block.index
            for step in block.steps:
                step(self)
            status = block.end(self)
            if status is not None:
                return status
        return self._stopped()

    def _suspend(self, block: Block) -> Status:
        """The running path starts to wait for a phase of an mbarrier, for its warpgroup, or for other warps to run first."""
        self.paths.pc = AT_WAIT + block.index
        if self.lets_others:
            return Status.READY
        if self.paths.others_can_run():
            self.cta.awaited.pop(self, None)
            self.paths.switch_path()
            return Status.SLICE_OVER
        self.suspended = True
        assert block.wait is not None
        return block.wait.status

    def _enter(self) -> None:
        self.mask = self.paths.mask
        self.active = _lanes_array(self.mask)

    def _stopped(self) -> Status:
        """The status if no path can run: the warp has ended, waits for the CTA, or is in a deadlock with itself."""
        if self.paths.done:
            if self.cta.program.products:
                self._compare_products()
            return Status.DONE
        if any(wait.key in (BARRIER, ALIGNED) for _, _, wait in self.paths.waiting()):
            return Status.WAITS
        raise deadlock(self.waiting())

    def _compare_products(self) -> None:
        """Check that warps of the warpgroup that have already ended executed as many products."""
        ended = self.cta.products
        for other in (self.index ^ 1, self.index ^ 2, self.index ^ 3):
            if ended.get(other, self.products) != self.products:
                raise uneven_products(
                    self.position(),
                    self.cta.program.products[0],
                    (self.index, self.products),
                    (other, ended[other]),
                )
        ended[self.index] = self.products

    def pay(self, block: BasicBlock, target: int) -> bool:
        """Charge the quantum for the edge between two blocks. Returns whether the quantum is used up."""
        return target in block.back_edges and self.spend(block.back_edge_cost)

    def spend(self, cost: int) -> bool:
        """Charge the quantum. Returns whether it is used up."""
        self.quantum -= cost
        return self.quantum <= 0

    def go(self, block: BasicBlock, target: int) -> Status | None:
        """Move all running lanes from a block to another."""
        over = self.pay(block, target)
        self.paths.jump(target)
        return self.end_slice(block) if over else None

    def end_slice(self, block: BasicBlock) -> Status:
        """End the time slice, as the quantum is used up."""
        self._slice_end = block.index
        if block.back_edge_cost > 1 and self.paths.mask:
            self.paths.switch_path()
        return Status.SLICE_OVER

    # -- the interface that ``simt.stack.SimtStack`` uses --------------------------------------------------------------------

    def converge(self, convergence: Convergence) -> None:
        parts = []
        for block, lanes in convergence.paths:
            exchange = self.cta.blocks[block].sync
            assert exchange is not None
            parts.append((exchange, lanes))
        perform(self, convergence.participants, parts)

    def enter(self, function: tuple[Call, int], lanes: int) -> tuple[int, int, Activation]:
        call, number = function
        return number, self.cta.program.entries[number], call.enter(self, number, lanes)

    def leave(self, payload: Activation, lanes: int, others: bool) -> None:
        payload.call.leave(self, payload, lanes)

    @property
    def missing(self) -> list[int]:
        """Warps of the warpgroup that have not reached the fence or group that this one waits for."""
        first, end = self.index & ~3, self.cta.plan.warps_per_cta
        return [warp for warp in range(first, min(first + 4, end)) if self.awaited[warp] < self.wanted]

    # -- the interface that the schedule uses ------------------------------------------------------------------------------

    def expire(self) -> None:
        self.expired = True

    def is_complete(self) -> bool:
        return not self.missing

    def arrive_diverged(self) -> bool:
        return self.at_barrier is None and self.paths.arrive_diverged(self._arrive_diverged)

    def _arrive_diverged(self, block: int, lanes: int) -> tuple[int, bool]:
        barrier = self.cta.blocks[block].barrier
        assert barrier is not None
        return barrier.arrive_diverged(self, lanes)

    @property
    def runs(self) -> bool:
        return self.paths.mask != 0

    def force_yield(self) -> bool:
        return self.at_barrier is None and self.paths.force_yield()

    def release(self, lanes: int, true: int, false: int) -> None:
        if self.at_barrier is not None:
            self.at_barrier.result(self, lanes, true, false)
            return
        for block, waiting, wait in list(self.paths.waiting()):
            if wait.key == BARRIER and waiting & lanes:
                barrier = self.cta.blocks[block].barrier
                assert barrier is not None
                barrier.result(self, waiting, true, false)
        self.paths.release(lanes)

    def state(self) -> Iterator[bytes]:
        yield repr((self.paths.state(), self.at_barrier is not None)).encode()
        for register, lanes in self._live().items():
            value = self.registers.get(register, _NEVER_WRITTEN)
            data = np.where(_lanes_array(lanes), every_lane(value), 0)
            yield register.index.to_bytes(4, "little")
            yield repr(data).encode() if data.dtype == object else data.tobytes()
        for carry in self.carry.values():
            yield carry.data.tobytes()
        for data in (*self.parameters.values(), *self.stack_depths.values()):
            yield data.tobytes()
        yield self.local.bytes.tobytes()
        if self.cta.program.reads_clock:
            yield repr((self.steps, self.clock_ahead)).encode()

    def _live(self) -> dict[Register, int]:
        """The live registers, and the lanes in which they are live."""
        paths, live = self.paths, dict[Register, int]()
        positions = [
            (paths.pc, paths.mask, PENDING),
            *((item.pc, item.mask, item.kind) for item in paths.entries),
        ]
        for pc, mask, kind in positions:
            lanes = mask & paths.live
            for _, register in (live_at(self.cta.program, pc, kind) or ()) if lanes else ():
                live[register] = live.get(register, 0) | lanes
        return live

    def waiting(self) -> Iterable[Waiting]:
        position, blocks = self.position(), self.cta.blocks
        if self.at_barrier is not None:
            instruction = self.at_barrier.instruction
            reason = f"at {instruction.opcode}"
            yield Waiting(position, self.paths.mask, self.at_barrier.block, reason, instruction)
        elif self.suspended:
            held = blocks[self.paths.pc - AT_WAIT]
            assert held.wait is not None
            reason = held.wait.reason(self, self.cta.shared.bytes)
            yield Waiting(position, self.paths.mask, held.basic, reason, held.wait.instruction)
        elif self.paths.mask:
            yield Waiting(position, self.paths.mask, self._block_at(self.paths.pc), doing(self.paths.pc))
        for block, lanes, wait in self.paths.waiting():
            basic = blocks[block].basic
            if wait.key in (BARRIER, ALIGNED) and basic.terminator is not None:
                yield Waiting(position, lanes, basic, f"at {basic.terminator.opcode}", basic.terminator)
            else:
                yield Waiting(
                    position, lanes, basic, f"at {basic.instructions[0].opcode} for lanes that do not arrive"
                )
        if self.paths.mask and self.at_barrier is None and not self.suspended:
            for entry in self.paths.entries:
                if entry.kind == PENDING and entry.mask & self.paths.live:
                    side = entry.mask & self.paths.live
                    yield Waiting(position, side, self._block_at(entry.pc), doing(entry.pc))

    def _block_at(self, pc: int) -> BasicBlock:
        return self.cta.blocks[pc & (AT_WAIT - 1)].basic

    def position(self) -> WarpPosition:
        """The position of the warp, for messages."""
        return WarpPosition(self.cta.program, self.cta.plan, self.cta.index, self.index)
