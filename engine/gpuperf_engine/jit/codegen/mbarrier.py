"""mbarrier objects as LLVM IR: the runtime changes them lane by lane. A wait on an incomplete phase stops the warp."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...flow.operands import matched
from ...isa.effects import MBARRIER, MBARRIER_WAIT
from ...isa.mbarriers import Mbarrier
from ...isa.types import scalar_type
from ...ptx.syntax import Instruction, Operand
from ...simt.clusters import reaches_peers
from ...simt.effects import mbarrier_operation
from ..ir.abi import State
from ..ir.codes import WAIT_CODE, Event, Status
from ..ir.operands import LANES, constant
from ..ir.values import NativeValue
from .bulk import put_ranks
from .handlers import handles
from .memory import SPACES, address_value, pointer_number, takes_short
from .operands import address_operand

if TYPE_CHECKING:
    from .block import BlockWriter

__all__ = ["hold_warp", "write_mbarrier", "write_wait"]

B8, U32, U64, PRED = (scalar_type(name) for name in ("b8", "u32", "u64", "pred"))
_GENERIC, _REMOTE = 256, 512
#: flag: the arrival is that of earlier copies
_COPIES = 1024
#: flag: without release, or, for a wait, without acquire
_RELAXED = 2048


@handles(MBARRIER)
def write_mbarrier(to: BlockWriter, instruction: Instruction) -> None:
    """``mbarrier.init`` … ``arrive_drop`` and ``cp.async.mbarrier.arrive``."""
    writer = to.writer
    operands: dict[str, Operand] = {slot.name: operand for slot, operand in matched(instruction)}
    how = mbarrier_operation(instruction)
    moves = how & 15 in (Mbarrier.EXPECT, Mbarrier.COMPLETE)
    guard = to.guard(instruction)
    mask = to.effective_mask(guard)
    counts, moved = writer.at("%vals", 0), "0"
    count = to.constant(1, U32)
    if "count" in operands and not moves:
        count = to.source(operands["count"], U32)
    _put(to, count, counts)
    if moves or "tx" in operands:
        cell = writer.at("%vals", 4 * LANES)
        _put(to, to.source(operands["count" if moves else "tx"], U32), cell)
        moved = pointer_number(to, cell)
    generic = _put_addresses(to, instruction)
    words = []
    if "mask" in operands:
        ranks = writer.at("%vals", 8 * LANES)
        _put(to, put_ranks(to, instruction), ranks)
        words = _numbers(to, ranks)
    to.writer.call(
        "mbarrier_multicast" if words else "mbarrier_lanes",
        "i64",
        *_numbers(to, "%ctx", "%cta"),
        ("i64", _site(to, instruction)),
        ("i64", writer.zext(mask, "i64")),
        *_numbers(to, "%area", counts),
        ("i64", moved),
        (
            "i64",
            str(how | generic | _COPIES * instruction.opcode.startswith("cp.async.") | _relaxed(instruction)),
        ),
        *words,
    )
    to.faulting = True
    if instruction.form.destinations:
        state = to.value(U64, writer.load(f"<{LANES} x i64>", "%area", 64))
        if how & 15 == Mbarrier.LAYOUT:
            asked = Mbarrier.REPORTING if how & Mbarrier.REPORTS else Mbarrier.VALID
            state = _native(_native(state >> Mbarrier.TAG).compare("eq", asked))
        to.assign(instruction, [state], guard)


def _relaxed(instruction: Instruction) -> int:
    return _RELAXED * (instruction.form.modifier("sem") == "relaxed")


@handles(MBARRIER_WAIT)
def write_wait(to: BlockWriter, instruction: Instruction) -> None:
    """``mbarrier.test_wait`` and ``try_wait``, the first instruction of the block, where it continues after a stop."""
    to.guard(instruction)
    to.generator.resumable.add(WAIT_CODE + to.block.index)
    to.writer.jump(f"w{to.block.index}")
    to.writer.start(f"w{to.block.index}")
    to.restart()
    if instruction.guard is not None or not to.share(
        instruction, lambda writer: _write_wait(writer, instruction)
    ):
        _write_wait(to, instruction)


def _write_wait(to: BlockWriter, instruction: Instruction) -> None:
    writer, code = to.writer, to.wait_code
    operands: dict[str, Operand] = {slot.name: operand for slot, operand in matched(instruction)}
    guard = None if instruction.guard is None else to.predicate(instruction.guard)
    mask = to.effective_mask(guard)
    of_parity = "parity" in operands
    given = to.source(operands["parity"], U32) if of_parity else to.source(operands["state"], U64)
    _put(to, _native(given.convert(U64)), "%vals")
    conditional = instruction.form.modifier("phase_type") == "phase_type::conditional"
    how = _put_addresses(to, instruction) | int(of_parity) | 2 * conditional | _relaxed(instruction)
    complete = writer.call(
        "mbarrier_wait",
        "i64",
        *_numbers(to, "%ctx", "%cta", "%st"),
        ("i64", _site(to, instruction)),
        ("i64", writer.zext(mask, "i64")),
        *_numbers(to, "%area", "%vals"),
        ("i64", str(how)),
    )
    to.faulting = True
    to.check_faults()
    after, now = writer.label("after"), writer.label("now")
    writer.branch(writer.icmp("eq", complete, -1), after, now)
    writer.start(after)
    to.generator.stop(code, Status.STOPPED)
    writer.start(now)
    hold, over = writer.label("hold"), writer.label("over")
    writer.branch(writer.icmp("ult", complete, 4294967296), hold, over)
    writer.start(hold)
    hold_warp(to, code, Status.SUSPENDED)
    writer.start(over)
    # if others of the warp wait for lanes whose wait expires, the time slice ends at the next back edge
    gives_up = writer.icmp("uge", complete, 8589934592)
    apart = writer.icmp("ne", to.mask, writer.load("i32", "%live"))
    ends = writer.and_(gives_up, apart)
    quantum = writer.select(ends, constant("i32", 0), writer.load("i32", "%quantum"))
    writer.store(quantum, "%quantum")
    bits = writer.trunc(complete, "i32")
    answers = [to.value(PRED, writer.bitcast(bits, f"<{LANES} x i1>"))]
    if len(instruction.form.destinations) > 1:
        reported = to.value(U64, writer.load(f"<{LANES} x i64>", "%vals", 64))
        answers += [_native(reported.compare("ne", 0)), to.constant(0, B8)]
    to.assign(instruction, answers[: len(instruction.form.destinations)], guard)


def hold_warp(to: BlockWriter, code: str, status: int) -> None:
    """Stop the warp at a wait, to continue at ``code``; if other lanes of it can run, only until these have had a time slice."""
    writer, generator = to.writer, to.generator
    switch, rest = writer.label("switch"), writer.label("rest")
    # the runtime reads the state, which still has the values from when the warp was resumed
    for name, offset in (("depth", State.DEPTH), ("live", State.LIVE)):
        value = writer.load("i32", f"%{name}")
        writer.set_field("%st", offset, value)
    others = writer.call("others_can_run", "i64", *_numbers(to, "%st"))
    writer.branch(writer.icmp("ne", others, 0), switch, rest)
    writer.start(switch)
    writer.set_field("%st", State.AWAITED, constant("i32", 0))
    generator.stop(code, Status.EVENT, Event.SPIN, to.place)
    writer.start(rest)
    generator.stop(code, status)


def _site(to: BlockWriter, instruction: Instruction) -> str:
    return str(to.place_of(instruction))


def _put(to: BlockWriter, value: NativeValue, cell: str) -> None:
    to.writer.store(value.clean().vector(), cell, 64)


def _put_addresses(to: BlockWriter, instruction: Instruction) -> int:
    """Store the lanes' addresses in ``%area``. Returns flags: whether they are generic, and may be in other CTAs."""
    space = instruction.form.space or "generic"
    operand = address_operand(instruction)[1]
    address = address_value(to, operand, SPACES[space], takes_short(to, instruction))
    _put(to, _native(address.convert(U64)), "%area")
    return _GENERIC * (space == "generic") + _REMOTE * reaches_peers(instruction)


def _numbers(to: BlockWriter, *pointers: str) -> list[tuple[str, str]]:
    return [("i64", pointer_number(to, pointer)) for pointer in pointers]


def _native(value: object) -> NativeValue:
    assert isinstance(value, NativeValue)
    return value
