"""The backward slice of control flow and addresses: a run that only needs these can omit all other instructions."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from functools import cache

from ..graph import Graph
from ..listing import NEVER, Decoded
from ..registers import (
    COPIES,
    IMAGES,
    PREDICATES,
    REGISTERS,
    TENSOR_PRODUCTS,
    UNIFORM,
    UNIFORM_PREDICATES,
    WIDTHS,
    accesses_of,
    described_by,
)
from .bits import BITWISE, bits_of_operands
from .guards import PURE, SELECTIONS, Guards, opposite
from .needs import ALWAYS, Needs, both
from .operands import Predicate, Register, read_operand
from .paths import Node, Omitted

__all__ = ["LOADS", "PRODUCTS", "STORES", "Needed", "needed_of"]

#: The memory that a load reads, and that a store or an atomic changes; ``any`` for generic addresses.
LOADS = {"LDG": "global", "LDS": "shared", "LDSM": "shared", "LDL": "local", "LD": "any"}
STORES = {
    "STG": "global", "STS": "shared", "STL": "local", "ST": "any", "LDGSTS": "shared", "ATOMS": "shared", "REDS": "shared",
    "ATOMG": "global", "ATOM": "any", "RED": "global", "REDG": "global", "STSM": "shared",
}  # fmt: skip
#: The arrival of copies at an mbarrier before Hopper, an ordinary word of shared memory.
_ARRIVAL = "ARRIVES.LDGSTSBAR.64"
#: Matrix products of a warpgroup.
PRODUCTS = frozenset(("HGMMA", "IGMMA", "QGMMA", "BGMMA"))
#: Instructions whose results are those of products.
_RESULTS = PRODUCTS | {"LDTM"}
#: Instructions of which a trace records operands that are not addresses of memory.
_RECORDED = COPIES | {"SYNCS", "ARRIVES", "UTCBAR", "STAS", "REDAS"}
_ATOMICS = frozenset(("ATOM", "ATOMG", "ATOMS"))
_CONTROL = frozenset(
    [
        "BRA",
        "BRX",
        "BRXU",
        "JMP",
        "JMX",
        "EXIT",
        "KILL",
        "CALL",
        "RET",
        "BSSY",
        "BSYNC",
        "BREAK",
        "WARPSYNC",
        "BAR",
        "NANOSLEEP",
    ]
)


#: An access to local memory at a constant offset from the stack pointer.
_ON_STACK = re.compile(r"\[R1(?:\+(-?0x[0-9a-f]+))?\]")
#: What the assembler writes behind accesses to the places in which it keeps registers.
_SPILL = '"SpillRefill"'
_LOCAL = frozenset(("LDL", "STL"))
_STACK_POINTER = 1
#: Suffixes of accesses to parts of a word.
_PARTS = frozenset(("U8", "S8", "U16", "S16"))
_PREDICATE_BITS = (1 << REGISTERS) - (1 << PREDICATES)


class Needed:
    """The slice. ``positions``: of its instructions; ``spaces``: state spaces that it loads from; ``atomics``: whether it contains
    results of global atomics. ``left``: stores that are not executed, as the results of products and copies are unknown: all stores to
    global memory, and stores of values that may depend on products. ``reserved``: loads whose values count as 0. ``stacked``: the
    words of the stack, as bits like registers, that accesses to local memory at a constant place read or write. ``states``:
    accesses to the states of mbarriers, whose operands are recorded; ``known``: those whose results do not depend on memory.
    ``before``: by node, the registers and words of the stack that are needed before it."""

    def __init__(
        self,
        left: frozenset[int] = frozenset(),
        settled: frozenset[int] = frozenset(),
        reserved: frozenset[int] = frozenset(),
        stacked: dict[int, int] | None = None,
        states: Container[int] = (),
        known: frozenset[int] = frozenset(),
    ) -> None:
        self.positions: set[int] = set()
        self.spaces: set[str] = set()
        self.atomics = False
        self.left = left
        self.settled = settled
        self.reserved = reserved
        self.stacked = stacked or {}
        self.states = states
        self.known = known
        self.before: dict[int, int] = {}

    def results_of(self, graph: Graph, omitted: Omitted) -> bool:
        """Whether the slice needs what a slow path that was left out computes: where it meets the path in line."""
        written = 0
        for node in omitted.nodes:
            for position in range(node.block.start, node.block.end):
                written |= _written(graph.listing.instructions[position])
        return any(self.before[node.index] & written for node in omitted.meets)


def needed_of(
    graph: Graph,
    nodes: list[Node],
    settled: frozenset[int] = frozenset(),
    known: frozenset[int] = frozenset(),
) -> Needed:
    """Computes the slice backwards from branches, barriers and addresses, through registers and predicates. ``settled``: branches with
    a known direction, whose conditions are not needed. ``known``: instructions whose results are known without memory."""
    stacked = _stacked(graph.listing.instructions)
    found = Needed(_left(graph, nodes), settled, _reserved(graph), stacked, graph.states, known)
    guards = Guards(graph.listing.instructions, nodes)
    while True:
        spaces = len(found.spaces)
        _registers(graph, nodes, found, guards)
        if len(found.spaces) == spaces:
            return found


def _reserved(graph: Graph) -> frozenset[int]:
    """Loads of the state that the system keeps in shared memory to allocate tensor memory, by the form that ``ptxas`` gives their
    address: ``MOV R0, 0x40``, then ``LEA R0, R18, R0, 0x18`` with the number of the CTA in the cluster. Only the parity of a wait for
    an mbarrier of the system depends on them."""
    items, found = graph.listing.instructions, set[int]()
    if not any(item.base == "UTCATOMSWS" for item in items):
        return frozenset()
    held: dict[str, str] = {}
    for position, item in enumerate(items):
        operands = item.operands
        if item.base == "LDS" and held.get(operands[1].strip("[]").partition("+")[0]) == "reserved":
            found.add(position)
        if item.base in ("MOV", "UMOV") and operands[1:] == ("0x40",):
            held[operands[0]] = "offset"
        elif item.base in ("LEA", "ULEA") and operands[3:4] == ("0x18",):
            held[operands[0]] = "reserved" if held.get(operands[2]) == "offset" else ""
        elif operands:
            held.pop(operands[0], None)
    return frozenset(found)


def _stacked(items: Sequence[Decoded]) -> dict[int, int]:
    """By position, the words of the stack that accesses to local memory at constant places read or write, as bits behind those of
    registers. Nothing else accesses these words: the stack pointer does not change between the accesses, and no other instruction
    reads it, or the assembler says that it keeps a register there."""
    bits: dict[int, int] = {}
    found: dict[int, int] = {}
    private, begun = True, False
    for position, item in enumerate(items):
        accesses = accesses_of(item)
        if _STACK_POINTER in accesses.writes:
            if begun:
                return {}
            continue
        if item.base not in _LOCAL:
            private &= _STACK_POINTER not in accesses.reads + accesses.deciding
            continue
        begun = True
        place = _ON_STACK.fullmatch(item.operands[item.base == "LDL"])
        if place is None or not _PARTS.isdisjoint(item.opcode.split(".")):
            private = False
            continue
        word = int(place[1] or "0", 16) >> 2
        for number in range(word, word + max(WIDTHS.get(part, 1) for part in item.opcode.split("."))):
            bit = bits.setdefault(number, 1 << REGISTERS + len(bits))
            found[position] = found.get(position, 0) | bit
    return {at: words for at, words in found.items() if private or _SPILL in items[at].text}


def _left(graph: Graph, nodes: list[Node]) -> frozenset[int]:
    items = graph.listing.instructions
    if not any(item.base in _RESULTS or item.base in COPIES for item in items):
        return frozenset()
    left: set[int] = set()
    before: dict[int, int] = {}
    going = list(nodes)
    while going:
        node = going.pop()
        held = before.setdefault(node.index, 0)
        for position in range(node.block.start, node.block.end):
            item = items[position]
            accesses = accesses_of(item)
            data = _bits(accesses.reads) & ~_bits(accesses.deciding)
            if (
                item.base in STORES
                and item.base != "LDGSTS"
                and (STORES[item.base] == "global" or data & held)
            ):
                left.add(position)
            written = _written(item)
            loaded = item.base in LOADS or item.base in _ATOMICS
            if item.base in _RESULTS or (_bits(accesses.reads) & held and not loaded):
                held |= written
            elif not item.predicate:
                held &= ~written
        for onward in node.ways:
            if held & ~before.get(onward.index, 0):
                before[onward.index] = before.get(onward.index, 0) | held
                going.append(onward)
    return frozenset(left)


def _registers(graph: Graph, nodes: list[Node], found: Needed, guards: Guards) -> None:
    starts: dict[int, Needs] = {}
    items = graph.listing.instructions
    left = list(nodes)
    leading: dict[int, list[Node]] = {}
    for node in nodes:
        for onward in node.ways:
            leading.setdefault(onward.index, []).append(node)
    while left:
        node = left.pop()
        behind = Needs()
        for onward in node.ways:
            if onward.index in starts:
                behind.join(starts[onward.index], apart=not guards.returns(node.index, onward.index))
        positions = range(node.block.start, node.block.end)
        for position, (guard, selects) in zip(
            reversed(positions), reversed(guards.of[node.index]), strict=True
        ):
            _through(items[position], position, guard, selects, behind, found)
        behind.settle()
        if node.index not in starts or not behind.same(starts[node.index]):
            starts[node.index] = behind
            left += leading.get(node.index, ())
    found.before = {index: behind.every() for index, behind in starts.items()}


def _through(item: Decoded, position: int, guard: int, selects: int, behind: Needs, found: Needed) -> None:
    """Updates the needed registers from those after an instruction, whose guard has the literal ``guard``, to those before it.
    ``selects``: the literal by which it selects an operand."""
    if item.predicate in NEVER or position in found.settled:
        return
    base, accesses = item.base, accesses_of(item)
    own = _guard_bits(item.predicate) if guard else 0
    reads, written = _bits(accesses.reads), _written(item)
    stacked = found.stacked.get(position, 0)
    if base in STORES:
        written |= stacked
    else:
        reads |= stacked
    wanted = bool(behind.every() & written) and not (stacked and position in found.left)
    if position in found.reserved:
        behind.written(guard, written)
        return
    where = frozenset([guard] if guard else [])

    def read(registers: int) -> None:
        behind.read(where, registers & ~own)
        behind.read(ALWAYS, registers & own)

    if position in found.known:
        found.positions.add(position)
        behind.written(guard, written)
        if base in LOADS or base in STORES:
            read(reads)
        return
    if base in LOADS and wanted and not stacked:
        found.spaces.add(LOADS[base])
    if base in _ATOMICS and wanted:
        found.spaces.add(STORES[base])
        found.atomics |= STORES[base] != "shared"
    if (
        base in STORES
        and position not in found.left
        and not stacked
        and (STORES[base] in found.spaces or "any" in found.spaces)
    ):
        wanted = True
        if base == "LDGSTS":
            found.spaces.add("global")
    if item.opcode == _ARRIVAL:
        wanted = "shared" in found.spaces or "any" in found.spaces
    if base in _CONTROL or wanted:
        found.positions.add(position)
        parts = bits_of_operands(item, behind.bits_of) if base in BITWISE else None
        wheres = behind.wanted(guard, written) if base in PURE or stacked else [where]
        behind.written(guard, written)
        for one in wheres:
            if selects and base in SELECTIONS:
                for chosen, bits in _selected(item, selects, reads):
                    if opposite(chosen) not in one:
                        wanted_parts = {
                            number: part for number, part in (parts or {}).items() if bits >> number & 1
                        }
                        behind.read(both(one, chosen), bits & ~own, wanted_parts)
            else:
                behind.read(one, reads & ~own, parts)
        behind.read(ALWAYS, reads & own)
    elif base in LOADS or base in STORES:
        read(_bits(accesses.deciding))
    recorded = base in _RECORDED or position in found.states
    if recorded or (base == "UTCATOMSWS" and len(item.operands) > 2):
        read(_bits(accesses.reads))
    elif base in TENSOR_PRODUCTS:
        read(_types_of(item) | own)
    elif base in IMAGES and guard:
        read(own)


def _selected(item: Decoded, selects: int, reads: int) -> Iterator[tuple[int, int]]:
    """What ``SEL R13, R40, R12, P0`` reads where which predicate holds: R40 where P0 does, R12 where it does not, P0 everywhere."""
    operands = [read_operand(text) for text in item.operands[1:3]]
    alone = [
        _bits((one.number + UNIFORM * one.uniform,)) & reads
        if isinstance(one, Register) and not one.is_zero
        else 0
        for one in operands
    ]
    yield selects, alone[0]
    yield opposite(selects), alone[1]
    yield 0, reads & ~(alone[0] | alone[1])


def _types_of(item: Decoded) -> int:
    """The register of the instruction descriptor of a product on tensor memory, as bits."""
    described = [described_by(text) for text in item.operands]
    numbers = [one[1].number + UNIFORM for one in described if one is not None and one[0] == "idesc"]
    return _bits(tuple(numbers))


def _written(item: Decoded) -> int:
    """The registers that an instruction writes, as bits. A product of a warpgroup names one register for all sums of a thread; two
    sums of half precision share a register."""
    written = _bits(accesses_of(item).writes)
    if item.base not in PRODUCTS or not written:
        return written
    _, shape, kind, *_ = item.opcode.split(".")
    count = int(shape.split("x")[1]) // (4 if kind == "F16" else 2)
    return written * ((1 << count) - 1) & ((1 << PREDICATES) - 1)


@cache
def _guard_bits(guard: str) -> int:
    predicate = read_operand(guard.lstrip("@"))
    if not isinstance(predicate, Predicate) or predicate.number < 0:
        return 0
    return 1 << predicate.number + (UNIFORM_PREDICATES if predicate.uniform else PREDICATES)


def _bits(numbers: tuple[int, ...]) -> int:
    bits = 0
    for number in numbers:
        bits |= 1 << number
    return bits
