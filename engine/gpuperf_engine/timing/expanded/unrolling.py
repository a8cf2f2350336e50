"""Loops without branches that an assembler unrolls, as PTX.

``ptxas`` makes the iterations of a loop straight code if their number is a constant and their instructions are few.

It makes four iterations of a short loop one if a counter with a constant step is compared with a bound that the loop does not
change: it tests once whether four are left, by the distance of the counter from the bound, and executes the rest one by one. The
order of loads in the unrolled body decides how many of them wait for memory at once.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ...flow.blocks import BasicBlock, synchronises
from ...flow.operands import reads, special_registers, writes
from ...isa.effects import (
    ASYNC_COPY,
    ATOMIC,
    INDIRECT_BRANCH,
    LOAD,
    MATRIX,
    MATRIX_LOAD,
    MATRIX_STORE,
    PURE,
    REDUCTION,
    STORE,
)
from ...ptx import spell
from ...ptx.syntax import Address, Immediate, Instruction, Register
from ...simt.program import Program
from .chains import as_one, chains_of, predecessors_of
from .opcodes import pieces_of
from .rewriting import Rewriter, Rewritten
from .straight import Straight

__all__ = ["TIMES", "unrolled"]

TIMES = 4
"""Iterations that become one."""
#: The largest size of loops that ptxas 13.0 unrolls. The size of an instruction is 1, of one that accesses memory 2 (each one, also of
#: words that become one access), of an asynchronous copy 3, of an atomic 11; what does not change in the loop, the counter and further
#: registers to which constants are added have none. Measured on loops of multiply-adds and up to 20 others: limits for sm_86 and
#: sm_90, where they are the same unless said otherwise; sizes for sm_90, of loads and atomics for sm_86 too.
#: By number of iterations, those that become straight code; from 9.0 on whatever they load.
_WHOLE = (
    (2, 192), (3, 123), (4, 97), (5, 74), (6, 71), (7, 58), (8, 57), (9, 51), (12, 42), (15, 37), (16, 34), (24, 27),
    (31, 24), (32, 23), (48, 17), (63, 14), (100, 11), (127, 9), (200, 7), (256, 6), (300, 5), (400, 4), (512, 4), (700, 3),
    (1024, 2), (2048, 1),
)  # fmt: skip
#: By how much more they may be for each instruction whose result is a constant in each iteration.
_FOLDED = 6
#: The factor by which they may be larger still, with n loads of constant memory, and up to 8.9 also loads and atomics of shared
#: memory, is 1 + f n ** 0.8, a fit to the limits for 1 to 16 loads; f by number of iterations, of loops that no other contains, and of
#: nested ones. The accesses are those at addresses that are constants in each iteration, and of a loop within one without other
#: branches those at addresses that are the same each time that it is entered.
_NEW, _PLACED = 90, ((2, 0.37), (4, 0.49), (8, 0.57), (16, 0.74), (32, 0.78))
_NESTED = ((4, 0.36), (8, 0.40), (16, 0.48), (32, 0.45))
#: Of which four become one: if their number is a constant; else without loads, with one from global memory; and with n from shared
#: memory 18 + 5 n up to a maximum.
_KNOWN, _ARITHMETIC, _GLOBAL, _FOR_SHARED, _SHARED = 72, 18, 46, 5, 96
#: The largest size of all iterations that become one if their number is a constant. Then more than four may; here a divisor of all, as
#: a rest of known length, which ptxas executes behind the loop, is not written.
_SEVERAL = 320
#: The most instructions of loops with barriers of which four become one: 6 multiply-adds, or 16 with a load from shared memory,
#: between two barriers, for sm_80 and sm_86.
_WITH_BARRIER, _SHARED_WITH_BARRIER = 9, 21
#: The most instructions of all straight code of a kernel.
_STRAIGHT = 4096
_ATOMIC, _COPY = 11, 3
#: Sizes of what ptxas expands before, for sm_80: integer divisions by a register, and functions without ``.ftz``.
_DIVISIONS = {"div.u32": 20, "rem.u32": 18, "div.s32": 26, "rem.s32": 23}
_FUNCTIONS = {
    "lg2.approx.f32": 6, "ex2.approx.f32": 6, "rsqrt.approx.f32": 6, "sqrt.approx.f32": 6, "div.approx.f32": 7, "div.full.f32": 12,
}  # fmt: skip
#: The pragma that forbids it (PTX manual, "Pragma Strings"): of a module, of a kernel, or in the first block of a loop, where
#: ptxas 13.0 heeds it in any place.
_NEVER = "nounroll"
_SMALLER, _LARGER = frozenset(("lt", "le", "ne")), frozenset(("gt", "ge", "ne"))
_INVERSE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne"}
_GOING = {"lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__, "ne": int.__ne__}
_TYPES = frozenset(("s32", "u32", "s64", "u64"))
_ATOMICS = frozenset((ATOMIC, REDUCTION))
_ACCESSES = frozenset((LOAD, STORE, MATRIX_LOAD, MATRIX_STORE))
_MATRICES = frozenset((MATRIX, MATRIX_LOAD, MATRIX_STORE))


@dataclass(frozen=True, slots=True)
class _Counted:
    """A loop: its counter before an iteration (``held``), ``step``, ``bound`` and the comparison that continues it (``lt``, ``gt``,
    ``ne`` …), with its type; ``trips``: the number of iterations, 0 if it does not become straight code; ``times``: of how many one is
    made; ``whole``: their number is a constant multiple of it; ``start``: the value of the counter before the first."""

    held: Register
    step: int
    bound: Register | Immediate
    comparison: str
    kind: str
    trips: int = 0
    times: int = TIMES
    whole: bool = False
    start: int = 0


def unrolled(program: Program, architecture: int) -> Rewritten | None:
    """The kernel of a program with the loops unrolled that an assembler unrolls for an architecture (``86``); ``None`` if there are
    none."""
    kernel = program.kernel
    if any(item.effect is INDIRECT_BRANCH for item in kernel.instructions):
        return None
    if _NEVER in kernel.module.pragmas or f'.pragma "{_NEVER}"' in kernel.directives:
        return None
    loops: dict[int, tuple[BasicBlock, _Counted]] = {}
    found = [
        (block, counted)
        for block in map(as_one, chains_of(program))
        if block.instructions and (counted := _counted(block)) is not None
    ]
    definitions = _Definitions(program)
    bodies = [_Body(block, counted, definitions, architecture) for block, counted in found]
    starts = [definitions.start(block, counted.held) for block, counted in found]
    total = [_trips(counted, start) for (_, counted), start in zip(found, starts)]
    constant = [
        trips if trips and body.becomes_straight(trips, architecture) else 0
        for body, trips in zip(bodies, total)
    ]
    if sum(len(block.instructions) * trips for (block, _), trips in zip(found, constant)) > _STRAIGHT:
        constant = [0] * len(found)
    for (block, counted), body, trips, every, start in zip(found, bodies, constant, total, starts):
        if trips or body.is_short(every > 0):
            times = body.times(every)
            whole = every > 0 and every % times == 0
            loops[block.instructions[0].index] = (
                block,
                replace(counted, trips=trips, times=times, whole=whole, start=start or 0),
            )
    if not loops:
        return None
    writer = _Writer(kernel)
    writer.loops = loops
    return writer.written()


class _Body:
    """What decides whether a loop is unrolled: its instructions that change from one iteration to the next."""

    def __init__(
        self, block: BasicBlock, counted: _Counted, definitions: _Definitions, architecture: int
    ) -> None:
        assert block.guard is not None
        body = block.instructions[:-1]
        steps = {counted.held}
        copies = {
            item.operands[0]: item.operands[1]
            for item in body
            if item.opcode.startswith("mov.") and item.guard is None
        }
        defined = Counter(register for item in body for register in writes(item))
        inside = {*defined}
        #: registers that the loop does not change, and those that are constants in each iteration
        constant: set[Register] = set()
        self.items: list[Instruction] = []
        #: instructions whose results are constants in each iteration, and steps of registers behind the first of each
        self.folded = self.further = 0
        for item in body:
            read, written = reads(item), writes(item)
            if block.guard.register in written or (counted.held in read and _is_step(item, copies)):
                continue
            if (
                _is_plain(item)
                and not inside.intersection(read)
                and all(defined[one] == 1 for one in written)
            ):
                inside.difference_update(written)
                continue
            if item.opcode.startswith(("mov.", "cvta.")):
                if constant.union((counted.held,)).issuperset(read) and read:
                    constant.update(written)
                continue
            if _is_step(item, copies):
                self.further += written[0] in steps
                steps.add(written[0])
                continue
            if read and _is_plain(item) and constant.union((counted.held,)).issuperset(read):
                constant.update(written)
                self.folded += 1
            self.items.append(item)
        parts = {
            register
            for item in self.items
            if item.opcode.startswith(("mul.wide.", "shr."))
            for register in writes(item)
        }
        #: products and shifts to the right whose results are added are one instruction with the sum
        self.fused = sum(
            item.opcode.startswith(("add.s", "add.u")) and not parts.isdisjoint(reads(item))
            for item in self.items
        )
        self.waits = any(item.effect.is_barrier for item in self.items)
        #: whether it calls a routine for operands that are rare, as divisions do: such a loop has branches, and stays one
        self.calls = any(
            piece.opcode.startswith("CALL")
            for item in self.items
            if item.effect is PURE
            for piece in pieces_of(item, architecture)
        )
        self.shared = sum(_loads(item, "shared") for item in self.items)
        around = definitions.around(block)
        self.nested = bool(around)
        changing = definitions.changing(block, around)
        fixed = {counted.held} | {one for one in steps if definitions.starts_alike(block, one, changing)}
        #: the state spaces of accesses at addresses that are constants in each iteration, or the same each time that it is entered
        self.placed = Counter[str]()
        for item in body:
            if _is_determined(item) and fixed.issuperset(changing.intersection(reads(item))):
                fixed.update(writes(item))
            if item.effect in (LOAD, MATRIX_LOAD) or item.effect in _ATOMICS:
                bases = {one.base for one in item.operands if isinstance(one, Address)}
                self.placed[item.form.space or ""] += fixed.issuperset(changing & bases)

    def size(self, matrix: int) -> int:
        """``matrix``: the size of a product of matrices."""
        return sum(_size(item, matrix) for item in self.items) - self.fused

    def becomes_straight(self, trips: int, architecture: int) -> bool:
        """Whether so many iterations become straight code."""
        if trips * len(self.items) > _STRAIGHT:
            return False
        if trips == 1:
            return True
        if self.calls:
            return False
        placed = self.placed["const"]
        if architecture < _NEW:
            placed += self.placed["shared"]
        factor = _between(_NESTED if self.nested else _PLACED, trips)
        limit = _between(_WHOLE, trips) * (1 + factor * float(placed) ** 0.8)
        return bool(self.size(1) <= limit + _FOLDED * self.folded)

    def is_short(self, known: bool) -> bool:
        """Whether four iterations become one. ``known``: their number is a constant."""
        if self.calls:
            return False
        if self.waits:
            return len(self.items) <= (_SHARED_WITH_BARRIER if self.shared else _WITH_BARRIER)
        limit = _KNOWN
        if not known:
            limit = _ARITHMETIC
            if self.shared:
                limit = min(_SHARED, _ARITHMETIC + _FOR_SHARED * self.shared)
            if any(_loads(item, "global") for item in self.items):
                limit = max(limit, _GLOBAL)
        return self.size(2) + self.further <= limit

    def times(self, every: int) -> int:
        """Of how many of ``every`` iterations (0: any number) one is made."""
        most = TIMES if self.waits else min(every // 2, _SEVERAL // max(1, self.size(2)))
        return next((times for times in range(most, TIMES, -1) if every % times == 0), TIMES)


def _between(table: Sequence[tuple[int, float]], at: int) -> float:
    """The value at a number between those of a table; outside of it that of the nearest."""
    place = bisect(table, (at, float("inf")))
    if not 0 < place < len(table):
        return table[-1 if place else 0][1]
    (first, low), (last, high) = table[place - 1 : place + 1]
    return low + (high - low) * (at - first) / (last - first)


def _is_plain(item: Instruction) -> bool:
    """Whether an instruction computes its results from its operands alone."""
    return item.effect is PURE and item.guard is None and bool(writes(item))


def _is_step(item: Instruction, copies: Mapping[Any, Any]) -> bool:
    """Whether an instruction adds a constant to a register from one iteration to the next. ``copies``: source by destination."""
    if not item.opcode.startswith(("add.", "sub.")) or item.guard is not None or len(item.operands) != 3:
        return False
    made, held, step = item.operands
    return isinstance(step, Immediate) and (held == made or copies.get(held) == made)


def _loads(item: Instruction, space: str) -> bool:
    return item.effect in (LOAD, MATRIX_LOAD) and item.form.space == space


def _size(item: Instruction, matrix: int) -> int:
    if item.effect in _ATOMICS:
        return _ATOMIC
    if item.effect is ASYNC_COPY:
        return _COPY if any(isinstance(operand, Address) for operand in item.operands) else 1
    if item.effect is MATRIX:
        return matrix
    if item.opcode in _DIVISIONS and isinstance(item.operands[2], Register):
        return _DIVISIONS[item.opcode]
    if item.opcode in _FUNCTIONS:
        return _FUNCTIONS[item.opcode]
    return 1 + (item.effect in _ACCESSES and item.form.space != "param")


class _Definitions:
    """The instructions that set the registers of a program, with their blocks."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.before = predecessors_of(program)
        #: the blocks of each loop, by its index
        self.loops = {chain[0].index: {block.index for block in chain} for chain in chains_of(program)}
        self.of: dict[Register, list[tuple[BasicBlock, Instruction]]] = {}
        for block in program.blocks_of(0):
            for item in block.instructions:
                for register in writes(item):
                    self.of.setdefault(register, []).append((block, item))

    @cached_property
    def variable(self) -> frozenset[Register]:
        """Registers that have several values, or one that depends on the launch: all but constants and addresses of variables."""
        return _varying(item for block in self.program.blocks_of(0) for item in block.instructions)

    def changing(self, loop: BasicBlock, around: Sequence[BasicBlock]) -> frozenset[Register]:
        """Registers that have different values each time that a loop is entered from the one ``around`` it; if there is none, or one
        with other branches, those that are ``variable``."""
        inside = {block.index for block in around} | self.loops[loop.index]
        if not around or any(_branches(block, inside) for block in around):
            return self.variable
        return _varying(item for at in inside for item in self.program.blocks[at].instructions)

    def starts_alike(self, loop: BasicBlock, register: Register, changing: Collection[Register]) -> bool:
        """Whether nothing that determines a register whenever a loop begins is ``changing``."""
        outside = self._outside(loop, register)
        return (
            outside is not None
            and _is_determined(outside)
            and not any(one in changing for one in reads(outside))
        )

    def around(self, loop: BasicBlock) -> list[BasicBlock]:
        """The other blocks of the innermost loop around a loop."""
        own = self.loops[loop.index]
        inside, found = set(range(len(self.program.blocks))), own
        while own < (inside := self._together(loop, inside)):
            found = inside
            headers = {at for at in inside if any(one not in inside for one in self.before.get(at, ()))}
            if not headers or loop.index in headers:
                break
            inside = inside - headers
        return [self.program.blocks[at] for at in sorted(found - own)]

    def _together(self, loop: BasicBlock, inside: Collection[int]) -> set[int]:
        """Those of some blocks that come before and behind a loop."""

        def reached(of: Callable[[int], Iterable[int]]) -> set[int]:
            seen, left = {loop.index}, [loop.index]
            while left:
                more = {at for at in of(left.pop()) if at in inside} - seen
                seen |= more
                left += more
            return seen

        blocks = self.program.blocks
        return reached(lambda at: blocks[at].successors) & reached(lambda at: self.before.get(at, ()))

    def start(self, loop: BasicBlock, register: Register) -> int | None:
        """The constant that a register holds whenever a loop begins."""
        item, seen = self._outside(loop, register), set[Instruction]()
        while item is not None and item not in seen:
            seen.add(item)
            if not item.opcode.startswith("mov.") or item.guard is not None:
                return None
            value = item.operands[1]
            if isinstance(value, Immediate) and value.kind == "int":
                return value.value
            found = self.of.get(value, ()) if isinstance(value, Register) else ()
            item = found[0][1] if len(found) == 1 else None
        return None

    def _outside(self, loop: BasicBlock, register: Register) -> Instruction | None:
        """The only definition outside of a loop, which also comes before each further time that the loop is entered."""
        inside = frozenset(loop.instructions)
        outside = [pair for pair in self.of.get(register, ()) if pair[1] not in inside]
        if len(outside) != 1 or _returns(self.program, loop, outside[0][0]):
            return None
        return outside[0][1]


def _branches(block: BasicBlock, inside: Collection[int]) -> bool:
    """Whether there are several ways from a block on inside of a loop, or were before short bodies were executed under predicates."""
    guarded = any(item.guard is not None for item in block.instructions[:-1])
    return guarded or [at in inside for at in block.successors].count(True) != 1


def _is_determined(item: Instruction) -> bool:
    """Whether an instruction computes its results from registers and constants alone."""
    return _is_plain(item) and not any(special_registers(item))


def _varying(items: Iterable[Instruction]) -> frozenset[Register]:
    """Of the registers that some instructions set, those that they do not determine from constants and registers that none of them
    sets."""
    given = list(items)
    times = Counter(register for item in given for register in writes(item))
    missing = {item: {*reads(item)} & times.keys() for item in given if _is_determined(item)}
    users: dict[Register, list[Instruction]] = {}
    for item, registers in missing.items():
        for register in registers:
            users.setdefault(register, []).append(item)
    left = [item for item, registers in missing.items() if not registers]
    varying = {*times}
    while left:
        for register in writes(left.pop()):
            if times[register] > 1:
                continue
            varying.discard(register)
            for user in users.get(register, ()):
                missing[user].discard(register)
                if not missing[user]:
                    left.append(user)
    return frozenset(varying)


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


def _exchanges(item: Instruction) -> bool:
    """Whether lanes exchange values, or wait for one another, but in products of matrices: ptxas 13.0 unrolls no loop with such an
    instruction."""
    return synchronises(item) and item.effect not in _MATRICES


def _counted(block: BasicBlock) -> _Counted | None:
    """The counter of a loop; ``None`` if it has none, or must not be unrolled."""
    if (
        block.kind != "branch"
        or block.index not in block.back_edges
        or block.guard is None
        or not block.counted
    ):
        return None
    if block.successors[0] != block.index or any(map(_exchanges, block.instructions)):
        return None
    if any(_NEVER in item.pragmas for item in block.instructions):
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
            self.copies(block, counted.times, keep=True)
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
