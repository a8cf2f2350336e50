"""Reading and writing operands: from parsed operands to small closures over one thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from . import floats
from .integers import mask, signed
from .memory import WINDOWS, OracleError
from .syntax import (
    WIDTHS,
    Address,
    Arguments,
    Function,
    Not,
    Number,
    Pair,
    Register,
    Sink,
    Statement,
    Sum,
    Symbol,
    Variable,
    Vector,
)

if TYPE_CHECKING:
    from .machine import Machine
    from .threads import Thread

Get = Callable[["Thread"], int]
Put = Callable[["Thread", int], None]
Step = Callable[["Thread"], None]

ROUNDINGS = ("rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi")


def _vector(read: Callable[[Thread], tuple[int, ...]]) -> dict[str, Get]:
    return {axis: (lambda t, i=i: read(t)[i]) for i, axis in enumerate("xyz")}  # type: ignore[misc]


SPECIAL: dict[str, Get] = {
    "%laneid": lambda t: t.lane,
    "%warpid": lambda t: t.number // 32,
    "%nwarpid": lambda t: 64,
    "%smid": lambda t: 0,
    "%nsmid": lambda t: 1,
    "%gridid": lambda t: 0,
    "%lanemask_eq": lambda t: 1 << t.lane,
    "%lanemask_lt": lambda t: (1 << t.lane) - 1,
    "%lanemask_le": lambda t: (2 << t.lane) - 1,
    "%lanemask_gt": lambda t: 0xFFFFFFFF & -(2 << t.lane),
    "%lanemask_ge": lambda t: 0xFFFFFFFF & -(1 << t.lane),
    "%clock": lambda t: t.steps & 0xFFFFFFFF,
    "%clock_hi": lambda t: 0,
    "%clock64": lambda t: t.steps,
    "%globaltimer": lambda t: t.steps,
    "%globaltimer_lo": lambda t: t.steps & 0xFFFFFFFF,
    "%globaltimer_hi": lambda t: 0,
    "%dynamic_smem_size": lambda t: t.cta.machine.dynamic_shared,
    "%total_smem_size": lambda t: len(t.cta.shared),
    "%aggr_smem_size": lambda t: len(t.cta.shared),
    "%cluster_ctarank": lambda t: t.cta.rank,
    "%cluster_nctarank": lambda t: len(t.cta.cluster.ctas),
    "%is_explicit_cluster": lambda t: int(t.cta.machine.explicit),
}
for _name, _read in {
    "%tid": lambda t: t.tid,
    "%ntid": lambda t: t.cta.machine.block,
    "%ctaid": lambda t: t.cta.index,
    "%nctaid": lambda t: t.cta.machine.grid,
    "%clusterid": lambda t: t.cta.cluster.index,
    "%nclusterid": lambda t: t.cta.machine.clusters,
    "%cluster_ctaid": lambda t: t.cta.within,
    "%cluster_nctaid": lambda t: t.cta.machine.cluster,
}.items():
    SPECIAL.update({f"{_name}.{axis}": get for axis, get in _vector(_read).items()})


class Builder:
    """One statement about to become a closure: its modifiers, types and operand accessors."""

    def __init__(self, machine: Machine, function: Function, statement: Statement) -> None:
        self.machine, self.function, self.statement = machine, function, statement
        self.operands = statement.operands
        self.mods = [word.split("::")[0] for word in statement.modifiers]
        self.types = [word for word in self.mods if word in WIDTHS]
        self.type = self.types[0] if self.types else ""
        self.width = WIDTHS[self.type] if self.types else 0
        self.signed = self.type.startswith("s")
        self.float = floats.FORMATS.get(self.type.removesuffix("x2")) if self.types else None
        self.mode = next((word for word in self.mods if word in ROUNDINGS), "")
        # readers of whole registers with their index, of constants with their value, and writers with index and mask
        self.registers: dict[Get, int] = {}
        self.constants: dict[Get, int] = {}
        self.written: dict[Put, tuple[int, int]] = {}
        # the same as Python: what reads an operand, the statement as a whole ("" if it has to be called), and what both name
        self.texts: dict[Get, str] = {}
        self.text = ""
        self.names: dict[str, object] = {}

    def name(self, value: object) -> str:
        """How the Python of a function's statements names an object."""
        name = f"at{self.statement.index}_{len(self.names)}"
        self.names[name] = value
        return name

    def reading(self, get: Get) -> str:
        """The expression for a reader."""
        return self.texts.get(get) or f"{self.name(get)}(t)"

    def writing(self, put: Put, value: str) -> str:
        """The statement for a writer and the expression of what it writes."""
        if put not in self.written:
            return f"{self.name(put)}(t, {value})"
        index, bits = self.written[put]
        return f"regs[{index}] = ({value}) & {bits}"

    def given(self, width: int | None) -> int:
        """The width asked for, or that of the statement's type."""
        if width is None and not self.types:
            raise self.fail("has no type that the oracle knows")
        return self.width if width is None else width

    def has(self, word: str) -> bool:
        return word in self.mods

    def fail(self, why: str) -> OracleError:
        return OracleError(f"line {self.statement.line}: {self.statement.opcode}: {why}")

    def get(self, at: int | object, width: int | None = None, is_signed: bool = False) -> Get:
        """A reader of an operand's low ``width`` bits (this statement's type if not given)."""
        operand = self.operands[at] if isinstance(at, int) else at
        width = self.given(width)
        if is_signed:
            raw, top = self.get(operand, width), 1 << width - 1
            extended: Get = lambda t: signed(raw(t), width)  # noqa: E731
            if raw in self.texts:
                self.texts[extended] = f"(({self.texts[raw]} ^ {top}) - {top})"
            return extended
        if isinstance(operand, Register):
            index, bits = operand.index, mask(width)
            if operand.width <= width:
                get: Get = lambda t: t.regs[index]  # noqa: E731
                self.registers[get] = index
                self.texts[get] = f"regs[{index}]"
                return get
            low: Get = lambda t: t.regs[index] & bits  # noqa: E731
            self.texts[low] = f"(regs[{index}] & {bits})"
            return low
        if isinstance(operand, Number):
            value = self.literal(operand, width)
            get = lambda t: value  # noqa: E731
            self.constants[get] = value
            self.texts[get] = str(value)
            return get
        if isinstance(operand, Sum):
            base, offset, bits = (
                self.get(operand.register, operand.register.width),
                operand.offset,
                operand.register.width,
            )
            bits = mask(min(bits, width))
            return lambda t: (base(t) + offset) & bits
        if isinstance(operand, Not):
            inner = self.get(operand.operand, width)
            return lambda t: inner(t) ^ 1
        if isinstance(operand, Symbol):
            return self.symbol(operand, width)
        if isinstance(operand, Vector):
            return self.packed(operand, width)
        raise self.fail(f"cannot read the operand {operand!r}")

    def literal(self, number: Number, width: int) -> int:
        if number.width in (0, width):
            return number.value & mask(width)
        source = floats.F32 if number.width == 32 else floats.F64
        target = self.float or {32: floats.F32, 64: floats.F64}.get(width)
        if target is None:
            raise self.fail("a float literal does not fit the type")
        return floats.convert(source, target, number.value)

    def packed(self, vector: Vector, width: int) -> Get:
        part = width // len(vector.items)
        parts = [self.get(item, part) for item in vector.items]
        return lambda t: sum(read(t) << part * i for i, read in enumerate(parts))

    def symbol(self, symbol: Symbol, width: int) -> Get:
        bits = mask(width)
        target = symbol.target
        if isinstance(target, Variable):
            offset = target.offset + symbol.offset
            if target.space == "local":
                return lambda t: (t.frame.local_base + offset) & bits
            if target.space == "param":
                return lambda t: (t.frame.param_base + offset) & bits
            if target.space == "shared":
                return lambda t: (t.cta.rank << 24) + offset & bits
            return lambda t: offset & bits
        if symbol.name in SPECIAL:
            read = SPECIAL[symbol.name]
            return lambda t: read(t) & bits
        if symbol.name in self.machine.function_addresses:
            address = self.machine.function_addresses[symbol.name]
            return lambda t: address
        if symbol.name.startswith("%envreg") or symbol.name.startswith("%pm"):
            return lambda t: 0
        raise self.fail(f"unknown name {symbol.name!r}")

    def put(self, at: int | object, width: int | None = None, is_signed: bool = False) -> Put:
        """A writer of ``width`` bits; a wider register is sign- or zero-extended."""
        operand = self.operands[at] if isinstance(at, int) else at
        width = self.given(width)
        if isinstance(operand, Sink):
            return lambda t, value: None
        if isinstance(operand, Vector):
            part = width // len(operand.items)
            parts = [self.put(item, part) for item in operand.items]

            def unpack(t: Thread, value: int) -> None:
                for i, write in enumerate(parts):
                    write(t, value >> part * i)

            return unpack
        if not isinstance(operand, Register):
            raise self.fail("the destination is not a register")
        index, bits = operand.index, mask(min(width, operand.width))
        if is_signed and operand.width > width:
            wide = mask(operand.width)

            def extend(t: Thread, value: int) -> None:
                t.regs[index] = signed(value, width) & wide

            return extend

        def write(t: Thread, value: int) -> None:
            t.regs[index] = value & bits

        self.written[write] = index, bits
        return write

    def pair(self, at: int) -> tuple[object, object]:
        """The two destinations of ``d|p``; a sink where the second is not written."""
        operand = self.operands[at]
        return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, Sink())

    def address(self, at: int) -> Get:
        operand = self.operands[at]
        if not isinstance(operand, Address):
            raise self.fail("expected an address in brackets")
        offset = operand.offset
        if operand.base is None:
            return lambda t: offset
        base, bits = self.get(operand.base, 64), mask(64)
        if not offset:
            return base
        if (index := self.registers.get(base)) is not None:
            further: Get = lambda t: (t.regs[index] + offset) & bits  # noqa: E731
            self.texts[further] = f"(regs[{index}] + {offset} & {bits})"
            return further
        return lambda t: (base(t) + offset) & bits

    def space(self) -> str:
        return next((word for word in self.mods if word in ("global", *WINDOWS)), "generic")

    def arguments(self, at: int) -> tuple[object, ...]:
        operand = self.operands[at]
        assert isinstance(operand, Arguments)
        return operand.items
