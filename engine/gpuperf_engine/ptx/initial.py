"""Initialisers: the bytes a variable starts with, and the addresses to be filled in (PTX manual, "Initializers")."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NoReturn

from ..errors import PtxError
from ..isa.types import ScalarType
from . import constants, raw
from .module import Function
from .syntax import Variable
from .text import Text

__all__ = ["Image"]

Relocation = tuple[int, int, Variable | Function, int, bool]


class Image:
    """The bytes of one initialised array, filled element by element in row-major order, missing ones zero."""

    def __init__(
        self,
        text: Text,
        base: int,
        type: ScalarType,
        vector: int,
        dims: tuple[int | None, ...],
        lookup: Callable[[str], Variable | Function | None],
    ) -> None:
        self.data = bytearray()
        self.relocations: list[Relocation] = []
        self._text = text
        self._base = base
        self._type = type
        self._dims = dims + ((vector,) if vector > 1 else ())
        self._vector = vector
        self._lookup = lookup

    def fill(self, node: raw.Node) -> tuple[int | None, ...]:
        """Store the values of an initialiser, and return the dimensions, with an open one resolved."""
        size = self._type.bytes
        dims = self._dims
        if dims and dims[0] is None and isinstance(node, raw.Braces):
            inner = prod(int(length or 0) for length in dims[1:])
            nested = bool(node.items) and isinstance(node.items[0], raw.Braces)
            dims = ((len(node.items) if nested else -(-len(node.items) // max(inner, 1))), *dims[1:])
        lengths = [int(length or 0) for length in dims]
        self.data = bytearray(prod(lengths) * size)
        # (node, dimension, first element) still to be stored; an explicit stack, as initialisers may be nested arbitrarily deep
        work: list[tuple[raw.Node, int, int]] = [(node, 0, 0)]
        while work:
            node, depth, first = work.pop()
            if not isinstance(node, raw.Braces):
                if first * size >= len(self.data):
                    self._fail(node, "more initial values than elements")
                self._store(node, first * size)
                continue
            if depth >= len(lengths):
                if len(node.items) == 1 and not isinstance(node.items[0], raw.Braces):
                    work.append((node.items[0], depth, first))
                    continue
                self._fail(node, "braces nested deeper than the variable has dimensions")
            stride = prod(lengths[depth + 1 :])
            if any(isinstance(item, raw.Braces) for item in node.items):
                if len(node.items) > lengths[depth]:
                    self._fail(node, f"{len(node.items)} initial values for a dimension of {lengths[depth]}")
                steps = ((item, depth + 1, first + index * stride) for index, item in enumerate(node.items))
            else:
                if len(node.items) > lengths[depth] * stride:
                    self._fail(
                        node, f"{len(node.items)} initial values for {lengths[depth] * stride} elements"
                    )
                steps = ((item, len(lengths), first + index) for index, item in enumerate(node.items))
            work.extend(reversed(list(steps)))
        self.relocations.sort(key=lambda relocation: relocation[0])
        return dims[: len(dims) - 1] if self._vector > 1 else dims

    def _fail(self, node: raw.Node, message: str, hint: str | None = None) -> NoReturn:
        raise PtxError(
            message, span=self._text.span(self._base + node.start, self._base + node.end), hint=hint
        )

    def _store(self, node: raw.Node, at: int) -> None:
        size = self._type.bytes
        if isinstance(node, raw.Number):
            self.data[at : at + size] = self._pattern(node).to_bytes(size, "little")
            return
        addend, shift, width, generic = 0, 0, size, False
        origin = node
        if isinstance(node, raw.Mask):
            mask = node.mask
            if mask not in tuple(0xFF << (8 * index) for index in range(8)):
                self._fail(
                    node, f"mask {mask:#x} does not select one byte", "masks are 0xFF, 0xFF00, 0xFF0000 …"
                )
            shift, node = mask.bit_length() // 8 - 1, node.argument
        if isinstance(node, raw.Offset):
            addend, node = node.addend, node.base
        if isinstance(node, raw.Apply):
            if node.function.text != "generic":
                self._fail(
                    node.function,
                    f"{node.function.text!r} is not an operator of initialisers",
                    "did you mean 'generic'?",
                )
            generic, node = True, node.argument
            if isinstance(node, raw.Offset):
                addend, node = addend + node.addend, node.base
        if isinstance(node, raw.Parens) and len(node.items) == 1:
            node = node.items[0]
        scale = 0
        if isinstance(node, raw.Element):
            scale, node = node.position, node.base
        if not isinstance(node, raw.Name):
            self._fail(origin, "an initial value is a constant, or a variable or function with an offset")
        target = self._lookup(node.text)
        if target is None:
            self._fail(node, f"initialiser names {node.text!r}, which is not declared before")
        if isinstance(target, Variable):
            if target.space in ("shared", "local", "param"):
                self._fail(
                    node,
                    f"{node.text!r} is in .{target.space}, which has no address before a launch",
                    "accepted: .global and .const variables, and functions",
                )
            addend += scale * target.type.bytes * target.vector
        if isinstance(origin, raw.Mask):
            if size != 1:
                self._fail(origin, "a masked address initialises single bytes")
            self._mask(origin, at, target, addend, shift, generic)
            return
        if self._type.is_float or width not in (4, 8):
            self._fail(
                origin,
                f"an address does not fit a .{self._type} element",
                "use .u64 or .b64 (.u32 with .address_size 32)",
            )
        self.relocations.append((at, width, target, addend, generic))

    def _mask(
        self, node: raw.Node, at: int, target: Variable | Function, addend: int, shift: int, generic: bool
    ) -> None:
        """Byte ``shift`` of an address; the bytes of one address, in order, become one relocation."""
        if not shift:
            self.relocations.append((at, 1, target, addend, generic))
            return
        start, width, *same = self.relocations[-1] if self.relocations else (at, 0)
        if same != [target, addend, generic] or width != shift or start + width != at:
            self._fail(node, "the bytes of an address stand side by side, from 0xFF upwards")
        self.relocations[-1] = (start, width + 1, target, addend, generic)

    def _pattern(self, number: raw.Number) -> int:
        """The bits of a constant as an element."""
        kind, bits = self._type, self._type.bits
        if number.kind[0] != "f":
            if kind.is_float:
                self._fail(
                    number, f"an integer initialises a .{kind} element", "write 0f…, 0d… or a decimal point"
                )
            return number.value & ((1 << bits) - 1)
        if kind.kind == "f" and bits in (32, 64) and kind.lanes == 1:
            if number.kind == f"f{bits}":
                return number.value
            value = float(constants.value_of((number.value, number.kind)))
            return constants.bits_of(value, f"f{bits}")
        if number.kind == f"f{bits}" and kind.is_bits:
            return number.value
        self._fail(number, f"a floating-point constant cannot initialise a .{kind} element")
