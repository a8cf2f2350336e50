"""Errors of compiled kernels, and where the lanes of a warp are or wait: the content of messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from ..errors import EngineError
from ..interp.blocks import refusal
from ..interp.mbarrier import WaitStep
from ..interp.operands import Prepare
from ..interp.tensor_steps import AllocStep
from ..isa.effects import ASYNC_COPY, BULK_COPY, MBARRIER, MBARRIER_WAIT, TENSOR_ALLOC, WARPGROUP
from ..isa.mbarriers import Mbarrier
from ..memory.access_faults import Access, memory_fault
from ..memory.images import image_fault
from ..memory.spaces import reachable
from ..ptx.syntax import Instruction
from ..simt.clusters import reaches_peers, refused_address
from ..simt.effects import mbarrier_operation
from ..simt.faults import (
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
from .codegen.barrier import ArrivesDiverged
from .ir.abi import Context, State
from .ir.codes import Event, Reason, Wait
from .ir.copy_records import Bulk, instruction_at
from .stack_codes import decoded
from .warp_state import WarpState

if TYPE_CHECKING:
    from ..interp.warp import ReferenceWarp

__all__ = ["WarpErrors"]

_SPACES = ("global", "shared", "local")
#: events of diverging paths, which leave compiled code if its stack is full
_SPLITS = (
    Event.PARK, Event.SPIN, Event.CHOOSE, Event.EXITED, Event.DIVERGENT_BARRIER, Event.ARRIVES,
)  # fmt: skip


class WarpErrors(WarpState):
    """A warp's state, with the errors of its kernel."""

    def over_budget(self) -> EngineError:
        """The error of a warp that exceeded its instruction limit."""
        block = self.program.blocks[self.header(State.SLICE_END)]
        # if all lanes have ended, the state still has those of the last path
        return budget(self.position(), block, self.steps(), self.mask & self.header(State.LIVE))

    def error(self, event: int) -> EngineError:
        """The error of an event after which the warp cannot continue."""
        if event == Event.BLOCKED:
            return self._blocked()
        if event in _SPLITS:
            most, live = self.worker.launch.code.generated.stack_entries, self.header(State.LIVE)
            return EngineError(f"more than {most} paths of one warp: {self.position().lanes(live)}")
        if event == Event.UNEVEN:
            other, theirs = self.header(State.DETAIL), self.header(State.CULPRITS)
            own = self.header(State.INDEX), self.header(State.PRODUCTS)
            return uneven_products(self.position(), self.program.products[0], own, (other, theirs))
        position, block, detail = self.position(), self.block, self.header(State.DETAIL)
        if event == Event.ARRIVES_DIVERGED and block.terminator is not None:
            return self._divergent(block.terminator, self.header(State.CULPRITS))
        lane = lanes_of(self.mask)[0]
        if event == Event.TRAP:
            return trap(position, block.instructions[detail], self.header(State.CULPRITS))
        if event == Event.DIVERGED and block.terminator is not None:
            return _diverged(block.terminator)
        if event == Event.ALLOCA:
            lane = lanes_of(self.header(State.CULPRITS))[0]
            return bad_stack(position, block.instructions[detail], lane, self.reported(lane))
        if event == Event.IMAGE:
            lane = lanes_of(self.header(State.CULPRITS))[0]
            images = self.worker.launch.memory.images
            return image_fault(position.thread(lane), block.instructions[detail], self.reported(lane), images)
        if event == Event.REFUSED:
            return refusal(cast("ReferenceWarp", self), self.program, position.plan, block, detail)
        terminator = block.terminator
        instruction = terminator if terminator is not None else block.instructions[0]
        if event == Event.BARRIER_ID:
            return bad_barrier(position, instruction, lane, f"barrier {detail}")
        if event == Event.BARRIER_COUNT:
            return bad_barrier(
                position, instruction, lane, f"{detail} threads for barrier {self.header(State.BARRIER_ID)}"
            )
        if event == Event.CLUSTER_ORDER:
            return bad_cluster_barrier(position, instruction, lane)
        if event == Event.MEMBER_MASK:
            self.exchange(block.index).masks(cast("ReferenceWarp", self), strict=True)
        if event == Event.INCOMPLETE:
            return incomplete_warp(position, block.instructions[0], self.mask)
        if event in (Event.NO_WARPGROUP, Event.DESCRIPTOR, Event.PATTERN):
            tell = {Event.NO_WARPGROUP: no_warpgroup, Event.DESCRIPTOR: unequal_descriptors}.get(
                event, long_line
            )
            return tell(position, block.instructions[0], self.header(State.CULPRITS))
        if event == Event.MEANINGLESS:
            return meaningless_operands(position, block.instructions[detail], self.header(State.CULPRITS))
        if event in (Event.INDEX, Event.TARGET):
            return self._bad_target(instruction)
        if event == Event.DEPTH:
            return too_deep(position, instruction, lane, MAX_DEPTH)
        if event == Event.LOCALS:
            room = self.program.local_area - self.program.local_static
            return stack_overflow(position, instruction, lanes_of(self.header(State.CULPRITS))[0], room)
        if event == Event.STACK:
            return too_deep(position, instruction, lane, self.worker.launch.code.generated.stack_entries)
        return EngineError(f"{instruction.opcode} cannot continue ({event})", span=instruction.span)

    def _blocked(self) -> EngineError:
        """The error of a warp whose lanes all wait for lanes of their own warp."""
        return deadlock(self.waiting())

    def refuse_diverged(self) -> None:
        """Lanes at aligned barriers must arrive without the rest of the warp, but this code does not count lanes there. Raises the
        violation of the rule if that is an error, and ``ArrivesDiverged`` if the launch can restart."""
        launch = self.worker.launch
        for block, lanes, kind, reason in self.entries():
            terminator = self.program.blocks[block].terminator if kind == WAIT else None
            if reason == Reason.ALIGNED and terminator is not None and lanes:
                if launch.plan.strict == "error":
                    raise self._divergent(terminator, lanes)
                if launch.before is not None:
                    raise _diverged(terminator)

    def _divergent(self, instruction: Instruction, lanes: int) -> EngineError:
        return divergent_barrier(self.position(), instruction, lanes, self.header(State.LIVE) & ~lanes)

    def _bad_target(self, instruction: Instruction) -> EngineError:
        culprits = self.header(State.CULPRITS)
        lane = lanes_of(culprits)[0]
        return bad_target(self.position(), instruction, lane, self.reported(lane), len(self.block.successors))

    def fault(self) -> EngineError:
        """The error of an invalid access, which the context describes."""
        worker, position = self.worker, self.position()
        number, where = worker.get(Context.FAULT_SITE), worker.get(Context.FAULT_SPACE)
        lane, address = worker.get(Context.FAULT_LANE), worker.get(Context.FAULT_ADDRESS)
        if number >= 1 << 63:  # what is no site: an operation on an mbarrier, by its position in the block
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
            return bad_mbarrier(position, instruction, lane, where, address, word, amount)
        space = _SPACES[where]
        if space == "global" and instruction.form.space == "const":
            space = "const"
        plan = position.plan
        limit = {"shared": plan.shared_bytes, "local": self.program.local_area}.get(space, 0)
        if instruction.effect is ASYNC_COPY and space == "shared":
            kind = "store"
        if instruction.effect is BULK_COPY and number < Bulk.SIGNALS:
            kind = _end_kind(instruction, space, kind, worker.get(Context.FAULT_WORD) != 0)
        return memory_fault(
            worker.launch.memory,
            Access(
                instruction, self.program.kernel.name, kind, space, address, size,
                thread_of(plan, position.warp, lane), cta_of(plan, position.cta), limit,
                cluster=self._beyond(instruction, address) if space == "shared" else None,
                reaches=_reaches(instruction, space), parameters=plan.parameter_address,
            ),
        )  # fmt: skip

    def _beyond(self, instruction: Instruction, address: int) -> tuple[str, str] | None:
        """Why an address of the shared window is not accessible, if it lies in another CTA of the cluster."""
        position, group = self.position(), self.slot.group
        if group is None or position.plan.cluster_ctas == 1:
            return None
        arrives = instruction.effect is MBARRIER and mbarrier_operation(instruction) & 15 == Mbarrier.ARRIVE
        return refused_address(
            position.plan, position.cta, address, reaches_peers(instruction), group.states, arrives
        )

    def waiting(self) -> Iterable[Waiting]:
        """Where its lanes are or wait, and why."""
        position, blocks = self.position(), self.program.blocks
        at_barrier = self.header(State.WAIT) in (Wait.BARRIER, Wait.CLUSTER)
        suspended = self.header(State.WAIT) in (Wait.SUSPENDED, Wait.GATHERS, Wait.WARPGROUP)
        mask = self.mask
        if mask and at_barrier:
            terminator = self.block.terminator
            opcode = terminator.opcode if terminator is not None else "a barrier"
            yield Waiting(position, mask, self.block, f"at {opcode}", terminator)
        elif suspended:
            instruction = self.block.instructions[0]
            prepare = Prepare(self.program, position.plan, self.block.function)
            if instruction.effect is MBARRIER_WAIT:
                reason = WaitStep(prepare, instruction).reason(cast("ReferenceWarp", self), self.slot.shared)
            elif instruction.effect is TENSOR_ALLOC:
                reason = AllocStep(prepare, instruction).reason(cast("ReferenceWarp", self), self.slot.shared)
            else:
                reason = awaited_warps(instruction, self.missing)
            yield Waiting(position, mask, self.block, reason, instruction)
        elif mask:
            yield Waiting(position, mask, self.block, doing(decoded(self.header(State.PC))))
        for block, lanes, kind, why in self.entries():
            if kind != WAIT or not lanes:
                continue
            terminator = blocks[block].terminator
            if why < Reason.EXCHANGE and terminator is not None:
                yield Waiting(position, lanes, blocks[block], f"at {terminator.opcode}", terminator)
            else:
                opcode = blocks[block].instructions[0].opcode
                yield Waiting(position, lanes, blocks[block], f"at {opcode} for lanes that do not arrive")
        if mask and not at_barrier and not suspended:
            for code, lanes, kind, _ in self.entries():
                stands = decoded(code) & (AT_WAIT - 1)
                if kind == PENDING and stands < len(blocks) and lanes:
                    yield Waiting(position, lanes, blocks[stands], doing(decoded(code)))


def _diverged(instruction: Instruction) -> ArrivesDiverged:
    return ArrivesDiverged(f"a warp is diverged at {instruction.opcode} ({instruction.span})")


def _reaches(instruction: Instruction, space: str) -> int:
    """The memory that an access may reach; for an instruction with several ends, the end in that space."""
    if instruction.effect in (ASYNC_COPY, BULK_COPY, MBARRIER, MBARRIER_WAIT, WARPGROUP):
        return reachable(instruction, space)
    return reachable(instruction)


def _end_kind(instruction: Instruction, space: str, kind: str, read: bool) -> str:
    """The kind of access of a bulk copy in a space, which may be that of both ends; ``read``: it was a read."""
    if read:
        return "load"
    ends = {
        str(instruction.form.modifier(name)).split("::")[0]: way
        for name, way in (("src", "load"), ("dst", "reduction" if kind == "reduction" else "store"))
    }
    return ends.get(space, kind)
