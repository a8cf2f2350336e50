"""Loops without branches that an assembler unrolls, as PTX.

``ptxas`` makes the iterations of a loop straight code if their number is a constant and they do not load too much.

It makes four iterations of a short loop one if a counter with a constant step is compared with a bound that the loop does not
change: it tests once whether four are left, by the distance of the counter from the bound, and executes the rest one by one. The
order of loads in the unrolled body decides how many of them wait for memory at once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from ...flow.blocks import BasicBlock, synchronises
from ...flow.operands import reads, writes
from ...isa.effects import (
    ASYNC_COPY,
    ATOMIC,
    INDIRECT_BRANCH,
    LOAD,
    MATRIX,
    MATRIX_LOAD,
    MATRIX_STORE,
    REDUCTION,
    STORE,
)
from ...ptx import spell
from ...ptx.syntax import Address, Immediate, Instruction, Register
from ...simt.program import Program, program_of
from .chains import as_one, chains_of
from .merging import merges_of
from .rewriting import Rewriter, Rewritten
from .straight import Straight

__all__ = ["TIMES", "unrolled"]

TIMES = 4
"""Iterations that become one."""
#: The most instructions of a loop that ptxas 13.0 unrolls, besides its counter: with barriers, with loads from global memory, with
#: others, and without loads. Measured on loops of one kind for sm_80 and sm_86: 18 multiply-adds, 15 global loads with an addition
#: each, 32 shared ones, 6 multiply-adds with barriers, 16 with barriers and a shared load, 4 asynchronous copies, 8 stores, one
#: atomic, which counts as five instructions; 8 products and 16 with a load of matrices each, so that they count twice.
_WITH_BARRIER, _SHARED_WITH_BARRIER, _GLOBAL, _SHARED, _ARITHMETIC = 12, 24, 30, 64, 18
_COPIES, _STORES = 11, 13
#: Up to which number of iterations, how many loads a loop may have in all its iterations together that ptxas 13.0 makes straight
#: code, and the most instructions of all such code, measured on loops of loads with an addition each, and of multiply-adds alone,
#: for sm_86.
_LOADS = ((7, 128), (15, 152), (31, 192), (63, 256), (127, 320), (1 << 62, 384))
_STRAIGHT = 4096
#: The most words of a load.
_WORDS = 4
_SMALLER, _LARGER = frozenset(("lt", "le", "ne")), frozenset(("gt", "ge", "ne"))
_INVERSE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne"}
_GOING = {"lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__, "ne": int.__ne__}
_TYPES = frozenset(("s32", "u32", "s64", "u64"))
_ATOMICS = frozenset((ATOMIC, REDUCTION))
_MATRICES = frozenset((MATRIX, MATRIX_LOAD, MATRIX_STORE))


@dataclass(frozen=True, slots=True)
class _Counted:
    """A loop: its counter before an iteration (``held``), ``step``, ``bound`` and the comparison that continues it (``lt``, ``gt``,
    ``ne`` …), with its type; ``trips``: the number of iterations, 0 if it does not become straight code; ``whole``: it is a constant
    multiple of ``TIMES``; ``start``: the value of the counter before the first."""

    held: Register
    step: int
    bound: Register | Immediate
    comparison: str
    kind: str
    trips: int = 0
    whole: bool = False
    start: int = 0


def unrolled(program: Program) -> Rewritten | None:
    """The kernel of a program with unrolled loops; ``None`` if there are none."""
    if any(item.effect is INDIRECT_BRANCH for item in program.kernel.instructions):
        return None
    loops: dict[int, tuple[BasicBlock, _Counted]] = {}
    merged = merges_of(program, {}).gone
    found = [
        (block, counted)
        for block in map(as_one, chains_of(program))
        if block.instructions and (counted := _counted(block)) is not None
    ]
    starts = [_start(program, block, counted.held) for block, counted in found]
    total = [_trips(counted, start) for (_, counted), start in zip(found, starts)]
    constant = [
        trips if trips and _becomes_straight(program, block, counted, trips, start, merged) else 0
        for (block, counted), trips, start in zip(found, total, starts)
    ]
    if sum(len(block.instructions) * trips for (block, _), trips in zip(found, constant)) > _STRAIGHT:
        constant = [0] * len(found)
    for (block, counted), trips, every, start in zip(found, constant, total, starts):
        if trips or _short(block, merged):
            whole = every > 0 and every % TIMES == 0
            loops[block.instructions[0].index] = (
                block,
                replace(counted, trips=trips, whole=whole, start=start or 0),
            )
    if not loops:
        return None
    writer = _Writer(program.kernel)
    writer.loops = loops
    return writer.written()


def _start(program: Program, loop: BasicBlock, register: Register) -> int | None:
    """The constant that a register holds whenever a loop begins: that of its only definition outside of the loop, which
    also comes before each further time that the loop is entered."""
    defined: dict[Register, list[tuple[BasicBlock, Instruction]]] = {}
    for block in program.blocks_of(0):
        for item in block.instructions:
            for one in writes(item):
                defined.setdefault(one, []).append((block, item))
    inside = frozenset(loop.instructions)
    outside = [pair for pair in defined.get(register, ()) if pair[1] not in inside]
    if len(outside) != 1 or _returns(program, loop, outside[0][0]):
        return None
    seen: set[Instruction] = set()
    while len(outside) == 1 and outside[0][1] not in seen:
        item = outside[0][1]
        seen.add(item)
        if not item.opcode.startswith("mov.") or item.guard is not None:
            return None
        value = item.operands[1]
        if isinstance(value, Immediate) and value.kind == "int":
            return value.value
        if not isinstance(value, Register):
            return None
        outside = defined.get(value, [])
    return None


def _returns(program: Program, loop: BasicBlock, without: BasicBlock) -> bool:
    """Whether a loop may be entered again without a block in between."""
    seen, left = {loop.index}, [loop]
    while left:
        for at in left.pop().successors:
            if at >= 0 and at not in seen and program.blocks[at] is not without:
                seen.add(at)
                left.append(program.blocks[at])
    return any(loop.index in program.blocks[at].successors for at in seen if at != loop.index)


def _trips(counted: _Counted, start: int | None) -> int:
    """The number of iterations, if it is a constant and small enough for straight code; otherwise 0."""
    if start is None or not isinstance(counted.bound, Immediate):
        return 0
    bits = int(counted.kind[1:])

    def number(value: int) -> int:
        value %= 1 << bits
        return value - (1 << bits) if counted.kind[0] == "s" and value >> bits - 1 else value

    bound, at = number(counted.bound.value), number(start)
    going = _GOING[counted.comparison]
    # the iterations up to the one whose test fails
    if not going(number(at + counted.step), bound):
        return 1
    distance = (bound - at if counted.step > 0 else at - bound) % (1 << bits) // abs(counted.step)
    for trips in (distance, distance + 1, distance + 2):
        if trips > 1 and not going(number(at + trips * counted.step), bound):
            return trips if trips <= _STRAIGHT else 0
    return 0


def _becomes_straight(
    program: Program,
    block: BasicBlock,
    counted: _Counted,
    trips: int,
    start: int | None,
    merged: Collection[Instruction],
) -> bool:
    """Whether the iterations of a loop become straight code. ``merged``: loads that others include."""
    items = [item for item in block.instructions if item not in merged]
    loads = sum(map(_loads, items)) * trips
    allowed = next(most for last, most in _LOADS if trips <= last)
    if loads <= allowed:
        return len(items) * trips <= _STRAIGHT
    if loads > _WORDS * allowed or len(items) * trips > 2 * _STRAIGHT:
        return False
    # Loads of several iterations may be one.
    writer = _Writer(program.kernel)
    writer.loops = {block.instructions[0].index: (block, replace(counted, trips=trips, start=start or 0))}
    made, inside = writer.written(), frozenset(block.instructions)
    gone = merges_of(program_of(made.kernel), {}).gone
    items = [
        new for new, old in zip(made.kernel.instructions, made.origins) if old in inside and new not in gone
    ]
    return sum(map(_loads, items)) <= allowed and len(items) <= _STRAIGHT


def _loads(item: Instruction) -> float:
    """As how many loads an instruction counts among those that may become straight code: measured on loops of one kind for sm_86,
    of which up to 2 to 32 iterations became straight code."""
    if item.effect in _ATOMICS:
        return 4
    if item.effect is MATRIX_LOAD:
        return 0.25
    if item.effect is ASYNC_COPY:
        return float(any(isinstance(operand, Address) for operand in item.operands))
    return float(item.effect in (LOAD, STORE) and item.form.space not in ("param", "const"))


def _short(block: BasicBlock, merged: Collection[Instruction]) -> bool:
    items = [item for item in block.instructions if item not in merged]
    loads = {
        "shared" if item.effect is MATRIX_LOAD else item.form.space
        for item in items
        if item.effect in (LOAD, MATRIX_LOAD)
    }
    effects = [item.effect for item in items]
    size = len(items) + effects.count(MATRIX) + 4 * sum(effect in _ATOMICS for effect in effects)
    if any(effect.is_barrier for effect in effects):
        return size <= (_SHARED_WITH_BARRIER if "shared" in loads else _WITH_BARRIER)
    if ASYNC_COPY in effects:
        return size <= _COPIES
    if not loads and any(effect is STORE or effect in _ATOMICS for effect in effects):
        return size <= _STORES
    limit = _ARITHMETIC + 3
    if "shared" in loads:
        limit = _SHARED
    elif loads:
        limit = _GLOBAL + 4
    return size <= limit


def _exchanges(item: Instruction) -> bool:
    """Whether lanes exchange values, or wait for one another, but in products of matrices: ptxas 13.0 unrolls no loop with such an
    instruction."""
    return synchronises(item) and item.effect not in _MATRICES


def _counted(block: BasicBlock) -> _Counted | None:
    """The counter of a loop; ``None`` if it has none, or must not be unrolled."""
    last = block.instructions[-1]
    if (
        block.kind != "branch"
        or block.index not in block.back_edges
        or block.guard is None
        or not block.counted
    ):
        return None
    if block.successors[0] != block.index or last.pragmas or any(map(_exchanges, block.instructions)):
        return None
    if any(block.guard.register in reads(item) for item in block.instructions[:-1]):
        return None
    defined: dict[Register, list[Instruction]] = {}
    for item in block.instructions:
        for register in writes(item):
            defined.setdefault(register, []).append(item)
    tests = defined.get(block.guard.register, [])
    if len(tests) != 1 or tests[0].guard is not None or not tests[0].opcode.startswith("setp."):
        return None
    words = tests[0].opcode.split(".")
    if len(words) != 3 or words[2] not in _TYPES or len(tests[0].operands) != 3:
        return None
    _, counter, bound = tests[0].operands
    comparison = words[1]
    if block.guard.negated:
        comparison = _INVERSE.get(comparison, "")
    if not isinstance(counter, Register) or not isinstance(bound, (Register, Immediate)) or bound in defined:
        return None
    steps = defined.get(counter, [])
    if len(steps) != 1 or steps[0].guard is not None or not steps[0].opcode.startswith(("add.", "sub.")):
        return None
    # the test is of the counter behind its step
    if steps[0].index > tests[0].index:
        return None
    _, held, step = steps[0].operands
    if not isinstance(held, Register) or not isinstance(step, Immediate) or held.type is not counter.type:
        return None
    if held is not counter:
        copies = defined.get(held, [])
        if (
            len(copies) != 1
            or copies[0].guard is not None
            or not copies[0].opcode.startswith("mov.")
            or copies[0].operands[1] is not counter
        ):
            return None
        if copies[0].index < steps[0].index:
            held = counter
    by = step.value if steps[0].opcode.startswith("add.") else -step.value
    bits = 1 << int(words[2][1:])
    by = (by + bits // 2) % bits - bits // 2
    if by == 0 or comparison not in (_SMALLER if by > 0 else _LARGER):
        return None
    return _Counted(held, by, bound, comparison, words[2])


class _Writer(Rewriter):
    loops: dict[int, tuple[BasicBlock, _Counted]]

    def body(self) -> None:
        skipped = -1
        for item in self.kernel.instructions:
            if item.index in self.loops:
                block, counted = self.loops[item.index]
                self.loop(block, counted)
                skipped = item.index + len(block.instructions)
            if item.index >= skipped:
                self.labels(item.index)
                self.add(item)
        self.labels(len(self.kernel.instructions))

    def made(self, text: str) -> None:
        self.line(text, None)

    def loop(self, block: BasicBlock, counted: _Counted) -> None:
        names = self.names
        further, enough = names.fresh("%ahead"), names.fresh("%enough")
        self.declared += [f"\t.reg .{counted.held.type.name} {further};", f"\t.reg .pred {enough};"]
        start, rest, after = names.fresh("$unrolled"), names.fresh("$rest"), names.fresh("$after")
        bound = spell.operand(counted.bound, names)

        held, bits, step = names.register(counted.held), int(counted.kind[1:]), counted.step
        more = "ge" if counted.comparison in ("le", "ge") else "gt"

        def test(behind: str = "") -> None:
            """Whether the bound is further away than three steps. Where it is passed the distance is negative, as a signed number also
            for unsigned counters."""
            one, other = (bound, held) if step > 0 else (held, bound)
            self.made(f"sub.s{bits} {further}, {one}, {other};")
            joined, last = (".and", f", {behind}") if behind else ("", "")
            self.made(f"setp.{more}{joined}.s{bits} {enough}, {further}, {(TIMES - 1) * abs(step)}{last};")

        # Branches from elsewhere enter the loop here.
        self.labels(block.instructions[0].index)
        guard = block.guard
        assert guard is not None
        if counted.trips:
            self.copies(block, counted.trips, keep=guard.register in block.live_out, counted=counted)
            return
        if counted.whole:
            self.lines.append(f"{start}:")
            self.copies(block, TIMES, keep=True)
            self.line(
                f"@{'!' if guard.negated else ''}{names.register(guard.register)} bra {start};",
                block.instructions[-1],
            )
            return
        # The first iteration is executed even if the counter is beyond the bound, however far.
        self.made(f"setp.{counted.comparison}.{counted.kind} {enough}, {held}, {bound};")
        test(enough)
        self.made(f"@!{enough} bra {rest};")
        self.lines.append(f"{start}:")
        self.copies(block, TIMES, keep=True)
        leave = f"@{'' if guard.negated else '!'}{names.register(guard.register)} bra {after};"
        test()
        self.made(f"@{enough} bra {start};")
        self.made(leave)
        self.lines.append(f"{rest}:")
        entry = block.instructions[0].index
        names.at[entry], known = rest, names.at[entry]
        for item in block.instructions:
            self.add(item)
        names.at[entry] = known
        self.lines.append(f"{after}:")

    def copies(self, block: BasicBlock, times: int, keep: bool, counted: _Counted | None = None) -> None:
        """``times`` iterations without their branches; without their tests, but for the last one if it is to be kept. ``counted``: the
        counter, if it is a constant in front of them."""
        guard, last = block.guard, block.instructions[-1]
        assert guard is not None
        code = Straight(
            self.names, self.line, self.declare, {*block.live_in, *block.live_out, guard.register}
        )
        if counted is not None:
            code.start(counted.held, counted.start)
        body = block.instructions[:-1]
        self.straight.update(body)
        without = [item for item in body if writes(item) != (guard.register,)]
        for number in range(times):
            code.run(body if keep and number == times - 1 else without)
        code.finish(last)
