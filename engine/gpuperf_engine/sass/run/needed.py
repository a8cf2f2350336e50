"""Which machine instructions decide where control goes and which addresses are accessed: all others need not be run to know that."""

from __future__ import annotations

from functools import cache

from ..graph import Graph
from ..listing import NEVER, Decoded
from ..registers import COPIES, PREDICATES, REGISTERS, UNIFORM_PREDICATES, accesses_of
from .operands import Predicate, read_operand
from .paths import Node

__all__ = ["LOADS", "STORES", "Needed", "needed_of"]

#: the memory that a load reads, and that a store or an atomic changes; ``any`` for generic addresses
LOADS = {"LDG": "global", "LDS": "shared", "LDSM": "shared", "LDL": "local", "LD": "any"}
STORES = {
    "STG": "global", "STS": "shared", "STL": "local", "ST": "any", "LDGSTS": "shared", "ATOMS": "shared", "REDS": "shared",
    "ATOMG": "global", "ATOM": "any", "RED": "global", "REDG": "global", "STSM": "shared",
}  # fmt: skip
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


_PREDICATE_BITS = (1 << REGISTERS) - (1 << PREDICATES)


class Needed:
    """``positions`` of the instructions that are needed; ``spaces``: memory whose contents decide; ``atomics``: whether what atomics
    of global memory return does."""

    def __init__(self) -> None:
        self.positions: set[int] = set()
        self.spaces: set[str] = set()
        self.atomics = False


def needed_of(graph: Graph, nodes: list[Node]) -> Needed:
    """Backwards from branches, barriers and addresses, along registers and predicates."""
    found = Needed()
    while True:
        spaces = len(found.spaces)
        _registers(graph, nodes, found)
        if len(found.spaces) == spaces:
            return found


def _registers(graph: Graph, nodes: list[Node], found: Needed) -> None:
    before: dict[int, int] = {}
    left = list(nodes)
    leading: dict[int, list[Node]] = {}
    for node in nodes:
        for onward in node.ways:
            leading.setdefault(onward.index, []).append(node)
    while left:
        node = left.pop()
        live = 0
        for onward in node.ways:
            live |= before.get(onward.index, 0)
        behind = _Behind(live)
        for position in range(node.block.end - 1, node.block.start - 1, -1):
            _through(graph.listing.instructions[position], position, behind, found)
        live = behind.every()
        if live != before.get(node.index):
            before[node.index] = live
            left += leading.get(node.index, ())


class _Behind:
    """What is needed behind an instruction, as bits: ``always``, and where a guard holds, as long as its predicate stays the same."""

    def __init__(self, always: int) -> None:
        self.always = always
        self.where: dict[str, int] = {}

    def every(self) -> int:
        """All that may be needed."""
        needed = self.always
        for bits in self.where.values():
            needed |= bits
        return needed

    def written(self, guard: str, bits: int) -> None:
        """An instruction in front writes these where its guard holds."""
        if guard:
            self.where[guard] = self.where.get(guard, 0) & ~bits
        else:
            self.always &= ~bits
            self.where = {name: held & ~bits for name, held in self.where.items()}

    def read(self, guard: str, bits: int) -> None:
        if guard:
            self.where[guard] = self.where.get(guard, 0) | bits
            self.always |= bits & _PREDICATE_BITS
        else:
            self.always |= bits

    def changes(self, bits: int) -> None:
        """An instruction in front changes these predicates: what was needed under them is needed."""
        for guard in [name for name in self.where if _guard_bits(name) & bits]:
            self.always |= self.where.pop(guard)


def _through(item: Decoded, position: int, behind: _Behind, found: Needed) -> None:
    """From what is needed behind an instruction to what is needed before it."""
    if item.predicate in NEVER:
        return
    base, accesses, guard = item.base, accesses_of(item), item.predicate
    written = _bits(accesses.writes)
    wanted = bool(behind.every() & written)
    if base in LOADS and wanted:
        found.spaces.add(LOADS[base])
    if base in _ATOMICS and wanted:
        found.spaces.add(STORES[base])
        found.atomics |= STORES[base] != "shared"
    if base in STORES and (STORES[base] in found.spaces or "any" in found.spaces):
        wanted = True
        if base == "LDGSTS":
            found.spaces.add("global")
    if written & _PREDICATE_BITS:
        behind.changes(written)
    if base in _CONTROL or wanted:
        found.positions.add(position)
        behind.written(guard, written)
        behind.read(guard, _bits(accesses.reads))
    elif base in LOADS or base in STORES:
        behind.read(guard, _bits(accesses.deciding))
    if base in COPIES or base in ("SYNCS", "ARRIVES"):
        behind.read(guard, _bits(accesses.reads))


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
