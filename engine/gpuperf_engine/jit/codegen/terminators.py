"""Terminators: branches with their stack entries, calls and returns, barriers, and the quantum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import Unsupported
from ...flow.blocks import EXIT
from ...flow.operands import matched
from ...isa.effects import BRANCH, CALL, INDIRECT_BRANCH, RETURN, THREAD_EXIT
from ...isa.types import scalar_type
from ...ptx.syntax import CallTarget, Register
from ...simt.stack import PENDING, RECONVERGE
from ..ir.abi import State
from ..ir.codes import EXIT_CODE, RETURN_CODE, Event, Status
from ..ir.operands import LANES, Ref, constant
from ..ir.values import NativeValue
from . import barrier  # noqa: F401  (registers its handlers)
from .calls import load_results, pass_arguments, read_arguments, store_arguments, take_results
from .handlers import ends
from .operands import call_target
from .recursion import enter_activation, entry_of, keep

if TYPE_CHECKING:
    from .block import BlockWriter

__all__ = ["Sides", "edge", "write_push", "write_reconvergence", "write_split", "write_terminator"]

U32 = scalar_type("u32")


def write_terminator(to: BlockWriter) -> None:
    """The code after the last ordinary instruction of a block."""
    block = to.block
    if block.kind == "branch":  # includes guarded returns and exits, and the guard of a call or barrier
        _branch(to)
    elif block.terminator is None:
        (_end if block.kind == "return" else _go_on)(to)
    else:
        handler = ends.for_effect(block.terminator.effect)
        assert handler is not None, block.terminator.effect
        handler(to)
    for line in to.later:
        to.writer.lines.append(line)


@ends(BRANCH)
def _go_on(to: BlockWriter) -> None:
    block = to.block
    if block.counted and block.terminator is not None and block.terminator.guard is not None:
        _count_taken(to, to.effective_mask(to.predicate(block.terminator.guard)))
    to.flush()
    to.writer.jump(edge(to, block.successors[0]))


@ends(RETURN, THREAD_EXIT)
def _end(to: BlockWriter) -> None:
    to.flush()
    _leave(to, to.block.kind)


def edge(to: BlockWriter, target: int) -> str:
    """The label of the edge to a successor, where a back edge is charged."""
    block, generator, writer = to.block, to.generator, to.writer
    arrival = generator.arrival(target)
    if target not in block.back_edges:
        return arrival
    generator.resumable.add(target)
    label, out = writer.label("back"), writer.label("over")
    kept, writer.lines = writer.lines, []
    writer.start(label)
    left = writer.sub(writer.load("i32", "%quantum"), block.back_edge_cost)
    writer.store(left, "%quantum")
    writer.branch(writer.icmp("sgt", left, 0), arrival, out)
    writer.start(out)
    _end_slice(to, target)
    to.later += writer.lines
    writer.lines = kept
    return label


def _count_taken(to: BlockWriter, mask: Ref) -> None:
    generator, index = to.generator, to.block.index
    to.bump_block(3, generator.lanes_of(mask))
    if generator.columns is not None:
        generator.count_threads(mask, generator.columns.taken[index])


def _count_divergent(to: BlockWriter) -> None:
    to.bump_block(2, "1")


@dataclass(frozen=True, slots=True)
class Sides:
    """The two ways from a branch: the labels of their edges, the code of the second one, and that of the reconvergence point."""

    then: str
    other: str
    code: str
    point: str


def _branch(to: BlockWriter) -> None:
    block, writer = to.block, to.writer
    assert block.guard is not None
    then, other = block.successors
    if to.read(block.guard.register).uniform:
        guard = to.predicate(block.guard)
        test = guard.scalar()
        if block.counted:
            _count_taken(to, to.effective_mask(guard))
        to.flush()
        if then == EXIT:
            out = writer.label("out")
            writer.branch(test, out, edge(to, other))
            writer.start(out)
            _leave(to, block.leaves)
        else:
            writer.branch(test, edge(to, then), edge(to, other))
        return
    taken = to.guard_bits(block.guard)
    if block.counted:
        _count_taken(to, taken)
    to.flush()
    then_label = "" if then == EXIT else edge(to, then)
    if then != EXIT and block.reconvergence not in (then, other):
        to.generator.resumable.add(other)
    to.split(Sides(then_label, edge(to, other), str(other), str(to.generator.exit_code(block))), taken)


def write_split(to: BlockWriter, sides: Sides, taken: Ref) -> None:
    """See ``BlockWriter.split``."""
    block, writer, generator = to.block, to.writer, to.generator
    then, other = block.successors
    some, all_, parts = (writer.label(word) for word in ("some", "all", "parts"))
    writer.branch(writer.icmp("eq", taken, 0), sides.other, some)
    writer.start(some)
    if then == EXIT:
        writer.branch(writer.icmp("eq", taken, to.mask), all_, parts)
        writer.start(all_)
        _leave(to, block.leaves)
    else:
        writer.branch(writer.icmp("eq", taken, to.mask), sides.then, parts)
    writer.start(parts)
    if block.counted:
        _count_divergent(to)
    rest = writer.xor(to.mask, taken)
    if then == EXIT:
        if block.leaves == "exit" or block.function == 0:
            alive = writer.and_(writer.load("i32", "%live"), writer.xor(taken, -1))
            writer.store(alive, "%live")
        writer.store(rest, "%mask")
        _wake(to, other, sides.code)
        writer.jump(sides.other)
        return
    identity = to.push_reconvergence(sides.point)
    if then == block.reconvergence:
        writer.store(rest, "%mask")
        writer.jump(sides.other)
        return
    if other != block.reconvergence:
        generator.push(sides.code, rest, identity, PENDING)
    writer.store(taken, "%mask")
    writer.jump(sides.then)


def write_reconvergence(to: BlockWriter, code: str) -> Ref:
    """See ``BlockWriter.push_reconvergence``."""
    block, writer, generator = to.block, to.writer, to.generator
    point = generator.exit_code(block)
    if point >= EXIT_CODE and block.function in generator.program.recursive:
        return writer.load("i32", "%id")  # the exit of the current activation
    if point >= EXIT_CODE:
        return Ref("i32", code)
    identity = writer.load("i32", "%id")
    fresh, known = writer.label("fresh"), writer.label("known")
    writer.branch(writer.icmp("eq", identity, code), known, fresh)
    writer.start(fresh)
    generator.push(code, to.mask, identity, RECONVERGE)
    writer.put("i32", code, "%id")
    writer.enter(known)
    return Ref("i32", code)


def _leave(to: BlockWriter, how: str) -> None:
    """The active lanes return from the function, or exit."""
    block, writer = to.block, to.writer
    if how == "exit" or block.function == 0:
        alive = writer.and_(writer.load("i32", "%live"), writer.xor(to.mask, -1))
        writer.store(alive, "%live")
        _wake(to, None)
    writer.jump(f"pop{EXIT_CODE + block.function}")


def _wake(to: BlockWriter, onward: int | None, code: str = "0") -> None:
    """After lanes have exited: if others wait, possibly for them, the runtime checks these. Remaining lanes continue at ``onward``,
    whose code is given."""
    if not to.generator.parks:
        return
    writer, generator = to.writer, to.generator
    some, none = writer.label("wake"), writer.label("none")
    waits = writer.field("%st", State.WAITS, "i32")
    writer.branch(writer.icmp("ne", waits, 0), some, none)
    writer.start(some)
    if onward is None:
        writer.put("i32", 0, "%mask")
    else:
        generator.resumable.add(onward)
    generator.stop(code, Status.EVENT, Event.EXITED)
    writer.start(none)


@ends(INDIRECT_BRANCH)
def _indirect(to: BlockWriter) -> None:
    block, writer, generator = to.block, to.writer, to.generator
    assert block.terminator is not None
    source = next(operand for slot, operand in matched(block.terminator) if slot.role == "source")
    index = to.source(source, U32)
    guard = block.terminator.guard
    mask = to.effective_mask(to.predicate(guard)) if guard is not None else to.mask
    outside = index.apply("compare", index.constant(len(block.successors), U32), op="ge")
    assert isinstance(outside, NativeValue)
    to.report(index)
    to.error(writer.and_(to.bits_of(outside), mask), Event.INDEX)
    to.flush()
    targets = list(dict.fromkeys(block.successors))
    if index.uniform:
        fallback = edge(to, targets[-1])
        labels = {target: edge(to, target) for target in targets[:-1]} | {targets[-1]: fallback}
        cases = ((case, labels[target]) for case, target in enumerate(block.successors))
        writer.switch(index.scalar(), fallback, cases)
        return
    masks = {target: constant("i32", 0) for target in targets}
    for case, target in enumerate(block.successors):
        equal = index.apply("compare", index.constant(case, U32), op="eq")
        assert isinstance(equal, NativeValue)
        masks[target] = writer.or_(masks[target], to.bits_of(equal))
    masks = {target: writer.and_(bits, to.mask) for target, bits in masks.items()}
    for target in targets:
        onward = writer.label("next")
        test = writer.icmp("eq", masks[target], to.mask)
        writer.branch(test, edge(to, target), onward)
        writer.start(onward)
    _count_divergent(to)
    identity = to.push_reconvergence(str(generator.exit_code(block)))
    for target in reversed(targets):
        if target != block.reconvergence:
            generator.resumable.add(target)
            to.push_if(str(target), masks[target], identity)
    back = [mask for target, mask in masks.items() if target in block.back_edges]
    writer.jump(_fork(to, back, generator.exit_code(block)))


def _fork(to: BlockWriter, paying: list[Ref], point: int) -> str:
    """The label after a divergent branch or call, which runs the next path on the stack: it is charged once if any lane of these masks
    takes a back edge."""
    block, writer, generator = to.block, to.writer, to.generator
    if not paying:
        return f"pop{point}"
    generator.resumable.add(point)
    some = constant("i32", 0)
    for mask in paying:
        some = writer.or_(some, mask)
    cost = writer.select(writer.icmp("ne", some, 0), constant("i32", block.back_edge_cost), 0)
    left = writer.sub(writer.load("i32", "%quantum"), cost)
    writer.store(left, "%quantum")
    out, going, over = writer.label("over"), writer.label("going"), writer.icmp("sle", left, 0)
    paid = writer.and_(over, writer.icmp("ne", cost, 0))
    writer.branch(paid, out, going)
    writer.start(out)
    _end_slice(to, point)
    writer.start(going)
    return f"pop{point}"


def write_push(to: BlockWriter, code: str, mask: Ref, identity: Ref) -> None:
    """See ``BlockWriter.push_if``."""
    writer = to.writer
    some, none = writer.label("some"), writer.label("none")
    writer.branch(writer.icmp("eq", mask, 0), none, some)
    writer.start(some)
    to.generator.push(code, mask, identity, PENDING)
    writer.jump(none)
    writer.start(none)


@ends(CALL)
def _call(to: BlockWriter) -> None:
    block, writer, generator = to.block, to.writer, to.generator
    program = generator.program
    target = call_target(block)
    code = RETURN_CODE + block.index
    if target.function is not None and target.function.system is not None:
        store_arguments(to, target, target.function)
        generator.resumable.add(code)
        to.flush()
        generator.stop(str(code), Status.EVENT, Event.SYSTEM, str(block.index))
        writer.start(f"r{block.index}")
        load_results(to, target, target.function)
    elif target.function is not None:
        number = program.function_of.get(target.function.name)
        if number is None:
            raise Unsupported(
                f"call of {target.function.name!r}, which no module given defines", span=target.span
            )
        generator.resumable.add(code)
        moves = read_arguments(to, target, number)
        to.flush()
        area = keep(to) if block.index in generator.areas.of else None
        enter_activation(to, number, to.mask)
        _enter(to, number, to.mask)
        pass_arguments(to, moves, number, to.mask)
        kind, identity = entry_of(generator, number, area)
        generator.push(str(code), to.mask, writer.load("i32", "%id"), kind)
        writer.store(identity, "%id")
        if number in program.recursive:
            _pay(to, program.entries[number])
        writer.jump(f"b{program.entries[number]}")
        writer.start(f"r{block.index}")
        take_results(to, target, number)
    else:
        generator.resumable.add(code)
        _call_each(to, target, str(code))
        writer.start(f"r{block.index}")
        to.restart()
    writer.jump(edge(to, block.successors[0]))


def _pay(to: BlockWriter, target: int) -> None:
    """Charge a call of a recursive function like a back edge, as recursion may not terminate."""
    writer, generator = to.writer, to.generator
    generator.resumable.add(target)
    left = writer.sub(writer.load("i32", "%quantum"), 1)
    writer.store(left, "%quantum")
    out, going = writer.label("over"), writer.label("going")
    writer.branch(writer.icmp("sgt", left, 0), going, out)
    writer.start(out)
    _end_slice(to, target)
    writer.start(going)


def _end_slice(to: BlockWriter, pc: int) -> None:
    """The quantum is used up: the warp continues at ``pc`` in its next time slice or, if its lanes may wait for others, switches
    paths."""
    block, writer, generator = to.block, to.writer, to.generator
    writer.set_field("%st", State.SLICE_END, constant("i32", block.index))
    if block.back_edge_cost > 1:
        generator.stop(str(pc), Status.EVENT, Event.SPIN, str(block.index))
    else:
        generator.stop(str(pc), Status.SLICE_OVER)


def _call_each(to: BlockWriter, target: CallTarget, pc: str) -> None:
    """An indirect call: the functions are called one by one, each by its lanes, and each with code that reads its results. The lanes
    converge after the call, which is their reconvergence point."""
    writer, generator = to.writer, to.generator
    program = generator.program
    assert target.register is not None
    pointer = to.as_type(to.read(target.register), scalar_type("u64"))
    numbers = program.callees(target)
    masks = {number: _goes_to(to, pointer, number) for number in numbers}
    known = constant("i32", 0)
    for bits in masks.values():
        known = writer.or_(known, bits)
    to.report(pointer)
    to.error(writer.and_(to.mask, writer.xor(known, -1)), Event.TARGET)
    moves = {number: read_arguments(to, target, number) for number in numbers}
    to.flush()
    areas = {number: _keep_if(to, masks[number]) for number in numbers}
    for number in numbers:
        _enter(to, number, masks[number])
        pass_arguments(to, moves[number], number, masks[number])
    identity = writer.load("i32", "%id")
    generator.push(pc, to.mask, identity, RECONVERGE)
    codes, starts = [], []
    for number in reversed(numbers):
        code, entry = generator.return_place(number), program.entries[number]
        codes.append((code, number))
        if program.recursive:  # each call is made when its lanes run
            entry = generator.return_place(number)
            starts.append((entry, number))
        generator.resumable.update((code, entry))
        some, none = writer.label("some"), writer.label("none")
        writer.branch(writer.icmp("eq", masks[number], 0), none, some)
        writer.start(some)
        kind, within = entry_of(generator, number, areas[number])
        generator.push(str(code), masks[number], pc, kind)
        generator.push(str(entry), masks[number], within, PENDING)
        writer.jump(none)
        writer.start(none)
    paying = [masks[number] for number in numbers if number in program.recursive]
    writer.jump(_fork(to, paying, EXIT_CODE))
    for code, number in starts:
        writer.start(f"r{code - RETURN_CODE}")
        to.restart()
        enter_activation(to, number, to.mask)
        writer.jump(f"b{program.entries[number]}")
    for code, number in codes:
        writer.start(f"r{code - RETURN_CODE}")
        take_results(to, target, number)
        writer.jump(f"pop{EXIT_CODE}")


def _keep_if(to: BlockWriter, mask: Ref) -> Ref | None:
    """Like ``keep``, unless no lane makes the call."""
    if to.block.index not in to.generator.areas.of:
        return None
    writer = to.writer
    before, some, kept, none = (writer.label(word) for word in ("before", "some", "kept", "none"))
    writer.jump(before)
    writer.start(before)
    writer.branch(writer.icmp("eq", mask, 0), none, some)
    writer.start(some)
    area = keep(to)
    writer.jump(kept)
    writer.start(kept)
    writer.jump(none)
    writer.start(none)
    return writer.phi("i32", (0, before), (area, kept))


def _goes_to(to: BlockWriter, pointer: NativeValue, number: int) -> Ref:
    """Lanes whose function pointer is the address of a function."""
    program, writer = to.generator.program, to.writer
    symbol = program.symbol_of.get(program.functions[number])
    if symbol is None:
        return constant("i32", 0)
    cell = to.writer.at("%symbols", 8 * symbol)
    address = to.value(pointer.type, writer.load_fixed("i64", cell), True)
    equal = pointer.apply("compare", address, op="eq")
    assert isinstance(equal, NativeValue)
    return writer.and_(to.bits_of(equal), to.mask)


def _enter(to: BlockWriter, number: int, mask: Ref) -> None:
    """Zero the registers that a function may read before it writes them, in the calling lanes."""
    generator, writer = to.generator, to.writer
    entry = generator.program.blocks[generator.program.entries[number]]
    uniform = generator.program.uniformity[number].uniform
    lanes = to.spread(mask)
    for register in sorted(entry.live_in, key=_index):
        cell = writer.at("%st", generator.slots.of[number][register])
        if register.type.is_predicate:
            old = writer.load("i32", cell)
            kept = writer.and_(old, writer.xor(mask, -1))
            writer.store(kept, cell)
        elif register in uniform:
            writer.put(f"i{register.type.bits}", 0, cell)
        else:
            ll = f"<{LANES} x i{register.type.bits}>"
            old = writer.load(ll, cell, 64)
            cleared = writer.select(lanes, Ref(ll, "zeroinitializer"), old)
            writer.store(cleared, cell, 64)


def _index(register: Register) -> int:
    return register.index
