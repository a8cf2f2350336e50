"""Where addresses point: their bases, and possible offsets from these.

A value is *based* on kernel parameters (a pointer, or a structure's member that is one), on variables whose address is taken,
or on nothing; its offset from the base is ``offset + stride · k`` for some integer k (stride 0: exactly ``offset``). Sums keep the
bases of both sides. Products and shifted values have none, as scaled values are indices. A 64-bit value loaded from memory may point
anywhere. Source of the strides: Granger, "Static Analysis of Arithmetical Congruences", 1989.

The analysis assumes, as CUDA C++ does, that an access stays in the object on which its address is based.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import gcd
from typing import NamedTuple

from ..isa.effects import ATOMIC, CALL, LOAD, PURE, STACK, STORE
from ..ptx.module import Function
from ..ptx.syntax import Address, Immediate, Instruction, Negated, Operand, Register, Sum, Symbol, Variable
from .operands import matched, reads
from .ssa import Merge, Node

__all__ = ["ANYWHERE", "Base", "Origin", "OriginFinder"]

#: an 8-byte word of the parameter buffer, by its byte offset; a variable; or ``None``: any object
Base = int | Variable | None
ANYWHERE = None


class Origin(NamedTuple):
    """One of ``bases`` (or their sum) plus ``offset + stride·k``, in bytes for addresses."""

    bases: frozenset[Base] = frozenset()
    stride: int = 0
    offset: int = 0

    def moved(self, distance: int) -> Origin:
        """The origin ``distance`` bytes further."""
        return Origin(self.bases, self.stride, self.offset + distance)._reduced()

    def _reduced(self) -> Origin:
        return Origin(self.bases, self.stride, self.offset % self.stride) if self.stride else self

    def joined(self, other: Origin) -> Origin:
        """An origin that covers both."""
        stride = gcd(self.stride, other.stride, self.offset - other.offset)
        return Origin(self.bases | other.bases, stride, self.offset)._reduced()

    def plus(self, other: Origin, sign: int = 1) -> Origin:
        """The sum (``sign`` −1: the difference)."""
        stride = gcd(self.stride, other.stride)
        return Origin(self.bases | other.bases, stride, self.offset + sign * other.offset)._reduced()

    def times(self, other: Origin) -> Origin:
        """The product, without bases."""
        a, b, c, d = self.stride, self.offset, other.stride, other.offset
        return Origin(frozenset(), gcd(a * c, a * d, b * c), b * d)._reduced()

    def wrapped(self, bits: int, signed: bool) -> Origin:
        """The value truncated to so many bits; pointers are assumed to fit."""
        if self.bases and bits >= 32:
            return self
        low = -(1 << (bits - 1)) if signed else 0
        if self.stride == 0 and low <= self.offset < low + (1 << bits):
            return self
        return Origin(self.bases, gcd(self.stride, 1 << bits), self.offset)._reduced()


_NOTHING = Origin()
_UNKNOWN = Origin(frozenset(), 1, 0)


class OriginFinder:
    """Computes origins of nodes on demand, and caches them."""

    def __init__(
        self,
        kernel: Function,
        sources: Callable[[Node], Iterable[Node]],
        uses: Callable[[Instruction], tuple[Node, ...]],
        kept: Callable[[Instruction], tuple[Node, ...]],
    ) -> None:
        self._kernel = kernel
        self._sources, self._uses, self._kept = sources, uses, kept
        self._found: dict[Node, Origin] = {}

    def of(self, node: Node) -> Origin:
        """The origin of the value, or of all values, of a node."""
        if node not in self._found:
            self._solve(self._needed(node))
        return self._found[node]

    def _needed(self, node: Node) -> list[Node]:
        """The node and those that its origin depends on, in postorder."""
        seen, order = {node}, []
        stack = [(node, iter(self._arguments(node)))]
        while stack:
            current, remaining = stack[-1]
            for source in remaining:
                if source not in seen and source not in self._found:
                    seen.add(source)
                    stack.append((source, iter(self._arguments(source))))
                    break
            else:
                order.append(current)
                stack.pop()
        return order

    def _arguments(self, node: Node) -> Iterable[Node]:
        if isinstance(node, Merge):
            return node.sources
        if node.effect in (PURE, STORE) or node.effect.exchanges:
            return (*self._uses(node), *self._kept(node))
        if node.effect in (LOAD, CALL):
            # loads of call parameters, and results of functions
            return (*self._sources(node), *self._kept(node))
        return self._kept(node)

    def _solve(self, order: list[Node]) -> None:
        fresh: dict[Node, Origin] = {}
        changed = True
        while changed:
            changed = False
            for node in order:
                origin = self._made(node, fresh)
                if origin is not None and origin != fresh.get(node):
                    fresh[node] = origin
                    changed = True
        for node in order:
            self._found[node] = fresh.get(node, _NOTHING)

    def _made(self, node: Node, fresh: dict[Node, Origin]) -> Origin | None:
        """The origin by those of the sources so far; ``None`` if none has one yet."""

        def known(sources: Iterable[Node]) -> list[Origin]:
            origins = (self._found.get(item) or fresh.get(item) for item in sources)
            return [item for item in origins if item is not None]

        if isinstance(node, Merge):
            # a register without a reaching definition is 0
            parts = known(node.sources) if node.sources else [_NOTHING]
            origin = _join(parts)
        else:
            parts = known(self._kept(node))
            own = self._computed(node, fresh, known)
            origin = _join([*parts, own]) if own is not None else _join(parts)
        before = fresh.get(node)
        return origin if before is None or origin is None else before.joined(origin)

    def _computed(
        self, node: Instruction, fresh: dict[Node, Origin], known: Callable[[Iterable[Node]], list[Origin]]
    ) -> Origin | None:
        if node.effect is LOAD:
            return self._loaded(node, known)
        if node.effect is CALL:
            return _join(known(self._sources(node)))
        if node.effect is STORE:  # to a parameter of a call
            return _anyhow(known(self._uses(node)))
        if node.effect is ATOMIC:
            return Origin(frozenset((ANYWHERE,)), 1, 0) if _widest(node) > 32 else _UNKNOWN
        if node.effect is STACK:
            return Origin(frozenset((ANYWHERE,)), 1, 0)
        if node.effect is not PURE and not node.effect.exchanges:
            return _UNKNOWN
        values = dict(zip(reads(node), self._uses(node)))

        def read(operand: Operand) -> Origin | None:
            if isinstance(operand, Register):
                source = values[operand]
                return self._found.get(source) or fresh.get(source)
            if isinstance(operand, Immediate):
                return Origin(frozenset(), 0, operand.value) if operand.kind == "int" else _UNKNOWN
            if isinstance(operand, Variable):
                return Origin(self._base(operand), 0, self._offset(operand))
            if isinstance(operand, Symbol) and isinstance(operand.target, Variable):
                target = operand.target
                return Origin(self._base(target), 0, self._offset(target) + operand.offset)
            if isinstance(operand, Sum):
                base = read(operand.register)
                return (
                    None
                    if base is None
                    else base.moved(operand.offset).wrapped(operand.register.type.bits, False)
                )
            if isinstance(operand, Negated):
                return read(operand.operand)
            return _UNKNOWN

        sources = [read(operand) for slot, operand in matched(node) if slot.role == "source"]
        known_sources = [item for item in sources if item is not None]
        # operands without an origin yet come from a later iteration of a loop
        return (
            _apply(node, known_sources, known(self._uses(node)))
            if len(known_sources) == len(sources)
            else None
        )

    def _base(self, variable: Variable) -> frozenset[Base]:
        if variable in self._kernel.params:
            return frozenset()  # the parameter buffer, which is never written
        return frozenset((variable,))

    def _offset(self, variable: Variable) -> int:
        return variable.offset if variable in self._kernel.params else 0

    def _loaded(self, node: Instruction, known: Callable[[Iterable[Node]], list[Origin]]) -> Origin | None:
        address = next(item for item in node.operands if isinstance(item, Address))
        bits = _widest(node)
        if node.form.space == "param":
            variable = address.base
            if isinstance(variable, Variable) and variable in self._kernel.params:
                first = variable.offset + address.offset
                bases = range(first & ~7, first + bits // 8, 8)
                exact = len(bases) == 1 and bits == 64
                return Origin(frozenset(bases), 0 if exact else 1, 0)
            if isinstance(variable, Variable):
                return _anyhow(known(self._sources(node)))
        return Origin(frozenset((ANYWHERE,)), 1, 0) if bits > 32 else _UNKNOWN


def _join(parts: Iterable[Origin]) -> Origin | None:
    origin: Origin | None = None
    for part in parts:
        origin = part if origin is None else origin.joined(part)
    return origin


def _widest(instruction: Instruction) -> int:
    """Bits of one access, including all elements of a vector."""
    kind = instruction.form.type
    return (kind.bits if kind is not None else 64) * instruction.form.vector


def _apply(node: Instruction, sources: list[Origin], everything: list[Origin]) -> Origin:
    """The origin of an instruction's result, from those of its value operands; ``everything``: those of all registers it reads. Other
    instructions keep the bases, with an unknown offset."""
    form = node.form
    name, kind = form.row.name, form.type
    mode = "wide" if form.modifier("wide") else form.modifier("mode")
    if name in _INDICES:
        return _UNKNOWN
    plain = kind is not None and (kind.is_integer or kind.is_bits) and kind.lanes == 1
    if kind is None or not plain or form.modifier("sat") or _packs(node):
        return _anyhow(everything)
    bits, signed = kind.bits, kind.is_signed
    if name in ("mov", "cvta", "mapa"):
        # the same offset in the shared memory of another CTA; origins do not distinguish CTAs
        return sources[0]
    if name in ("selp", "min", "max"):
        return sources[0].joined(sources[1])
    if name in ("add", "sub"):
        return sources[0].plus(sources[1], 1 if name == "add" else -1).wrapped(bits, signed)
    if name in ("mul", "mad") and mode == "lo":
        product = sources[0].times(sources[1])
        return (product.plus(sources[2]) if name == "mad" else product).wrapped(bits, signed)
    if name in ("mul", "mad") and mode == "wide":
        product = sources[0].wrapped(bits, signed).times(sources[1].wrapped(bits, signed))
        return product.plus(sources[2]) if name == "mad" else product
    if name == "mul":
        return _UNKNOWN
    if name == "shl":
        shift = sources[1]
        if shift.stride or not 0 <= shift.offset < bits:
            return _UNKNOWN
        origin = sources[0].times(Origin(frozenset(), 0, 1 << shift.offset))
        # a shift by half of the width assembles a pointer from its halves
        origin = origin._replace(bases=sources[0].bases) if shift.offset >= 16 else origin
        return origin.wrapped(bits, signed)
    if name == "cvt":
        address_type = form.operands[-1].type
        if address_type is not None and address_type.is_integer:
            return sources[0].wrapped(address_type.bits, address_type.is_signed).wrapped(bits, signed)
    return _anyhow(everything)


#: instructions whose results are not pointers
_INDICES = frozenset(("mul24", "rem", "div", "clz", "popc", "setp", "set", "bfind", "brev", "sad", "abs"))


def _packs(node: Instruction) -> bool:
    return any(hasattr(operand, "elements") for operand in node.operands)


def _anyhow(sources: Iterable[Origin]) -> Origin:
    """The bases of all sources, with an unknown offset."""
    return Origin(frozenset().union(*(item.bases for item in sources)), 1, 0)
