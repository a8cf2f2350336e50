"""Writes PTX for machine instructions.

Machine registers are 32-bit PTX registers of the same number (``%R4``, ``%U4`` for ``UR4``), predicates are PTX predicates (``%P0``,
``%UP0``). Intermediate values have their own registers; only statements that change machine state are guarded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...ptx.syntax import Instruction
from ..listing import Decoded
from .operands import Address, Constant, Immediate, Operand, Predicate, Register, read_operand

__all__ = ["WITHIN", "NotRun", "Op", "Writer", "both", "opcode_row", "opcodes"]

#: The destinations of a statement: ``mov.b64 {%R4, %R5}``.
_TARGET = re.compile(r"(?:@\S+ )?\S+ (?:\{[^}]*\}|[^,]*)")
#: Machine registers, and registers of 64-bit values that are set once.
_MACHINE, _WIDE = re.compile(r"%[RU]\d+"), re.compile(r"%q\d+")
#: Intermediate values that one register holds.
_VALUE = re.compile(r"%[rp]\d+")
#: Instructions that lanes may skip whose result is not needed.
_WITHOUT_EFFECT = frozenset(
    ["abs", "add", "and", "bfe", "bfi", "bfind", "brev", "clz", "cvt", "fma", "lop3", "mad", "max", "min", "mov", "mul", "neg", "not",
     "or", "popc", "prmt", "selp", "setp", "shf", "shl", "shr", "sub", "xor"]
)  # fmt: skip
#: Bits of an address within the shared memory of a CTA.
WITHIN = 0xFFFFFF


class NotRun(Exception):
    """Machine code cannot be run or simulated; the message names what is not supported."""


#: Reads a word of a constant bank: the bank, the offset, a 32-bit register that is added to it (or an empty string), and the type.
ReadConstant = Callable[["Writer", int, int, str, str], str]


@dataclass(slots=True)
class Writer:
    """``lines``: the statements so far. ``guard``: that of the current machine instruction, ``@%P0 `` or empty."""

    read_constant: ReadConstant
    #: Reads 64 bits of a constant bank at once; an empty string if it cannot.
    read_pair: Callable[[Writer, int, int], str] | None = None
    #: The PTX of the kernel: machine instruction ``ptx`` is made of the one with this number, which starts at 1.
    instructions: Sequence[Instruction] = ()
    lines: list[str] = field(default_factory=list)
    guard: str = ""
    encoding: int = 0
    #: Addresses of phases of mbarriers that registers were loaded with, since the last label.
    phases: dict[str, str] = field(default_factory=dict)
    #: Numbers of the PTX instructions that initialise an mbarrier, if the run uses those of PTX.
    initialising: frozenset[int] = frozenset()
    #: Whether the architecture has clusters.
    clusters: bool = False
    #: Whether the CTAs of a cluster run independently.
    apart: bool = False
    #: Whether the result of the current instruction, which is approximate, is moved by a unit in its last place.
    moving: bool = False
    registers: set[str] = field(default_factory=set)
    predicates: set[str] = field(default_factory=set)
    #: By the position of a line, the reason for which the run ends there.
    reasons: dict[int, str] = field(default_factory=dict)
    #: The last intermediate value with the position of its line.
    last: tuple[str, int] = "", -1
    #: Values whose lines set machine registers instead: the position, and the statements that set both.
    redirected: dict[str, tuple[int, str]] = field(default_factory=dict)
    made: dict[str, int] = field(default_factory=lambda: {"r": 0, "q": 0, "p": 0, "h": 0, "b": 0})
    #: Registers that hold words of the parameters, by offset and type, since the last label.
    constants: dict[tuple[int, str], str] = field(default_factory=dict)
    #: Registers that hold the 64 bits of two machine registers, lower one first, since the last label.
    pairs: dict[tuple[str, str], str] = field(default_factory=dict)

    # -- statements ----------------------------------------------------------------------------------------------------

    def fresh(self, kind: str) -> str:
        self.made[kind] += 1
        return f"%{kind}{self.made[kind] - 1}"

    def line(self, text: str) -> None:
        """Adds a statement without guard."""
        self.lines.append(f"{text};")
        self._forget(text)

    def do(self, text: str) -> None:
        """Adds a statement with the guard."""
        self.lines.append(f"{self.guard}{text};")
        self._forget(text)

    def start(self, label: str) -> None:
        """Adds a label."""
        self.lines.append(f"{label}:")
        self.constants.clear()
        self.pairs.clear()
        self.phases.clear()

    def _forget(self, text: str) -> None:
        """Forgets the pairs of which a statement sets a register."""
        if self.pairs:
            target = _TARGET.match(text)
            changed = _MACHINE.findall(target[0]) if target is not None else []
            if changed:
                self.pairs = {pair: value for pair, value in self.pairs.items() if not {*changed} & {*pair}}

    def _value(self, kind: str, opcode: str, operands: tuple[object, ...]) -> str:
        target = self.fresh(kind)
        self.last = target, len(self.lines)
        self.lines.append(f"{opcode} {', '.join([target, *map(str, operands)])};")
        return target

    def _redirect(self, name: str, value: str, move: str) -> None:
        """Sets a register to a value. If this is the value of the last line, that line sets the register instead of the value."""
        lines = self.lines
        line = lines[-1] if lines else ""
        redirects = self.last == (value, len(lines) - 1) and len(lines) > 1 and lines[-2][-1] != ":"
        if self.guard and line.partition(" ")[0].partition(".")[0] not in _WITHOUT_EFFECT:
            redirects = False
        if not redirects:
            self.do(move)
            return
        text = line[:-1].replace(value, name, 1)
        self.redirected[value] = len(lines) - 1, f"{line} {self.guard}{move};"
        lines[-1] = f"{self.guard}{text};"
        self._forget(text)

    def settle(self) -> None:
        """Sets the values too that are used although their lines set registers instead."""
        used = self.redirected.keys() & {*_VALUE.findall("\n".join(self.lines))}
        for value in used:
            position, statements = self.redirected[value]
            self.lines[position] = statements

    def r(self, opcode: str, *operands: object) -> str:
        """A 32-bit value."""
        return self._value("r", opcode, operands)

    def q(self, opcode: str, *operands: object) -> str:
        """A 64-bit value."""
        return self._value("q", opcode, operands)

    def h(self, opcode: str, *operands: object) -> str:
        """A 16-bit value."""
        return self._value("h", opcode, operands)

    def p(self, opcode: str, *operands: object) -> str:
        """A predicate."""
        return self._value("p", opcode, operands)

    # -- what is read --------------------------------------------------------------------------------------------------

    def name(self, register: Register, above: int = 0) -> str:
        """The register, or one ``above`` it; 0 for RZ."""
        if register.is_zero:
            return "0"
        name = f"%{'U' if register.uniform else 'R'}{register.number + above}"
        self.registers.add(name)
        return name

    def turned(self, register: Register) -> str:
        """A register for the angle in radians that a register holds in turns."""
        name = f"%V{register.number}"
        self.registers.add(name)
        return name

    def plain(self, operand: Operand | None, above: int = 0, kind: str = "b32") -> str:
        """The 32 bits of an operand, or of a register ``above`` it, without its sign, complement and selectors. ``kind``: the type of
        a constant."""
        if isinstance(operand, Register):
            return self.name(operand, above)
        if isinstance(operand, Immediate):
            value = operand.value
            if value is None:
                return "0" if above else str(self.encoding >> 32 & 0xFFFFFFFF)
            return str(value >> 32 * above & 0xFFFFFFFF)
        if isinstance(operand, Constant):
            index = self.name(operand.index) if operand.index is not None else ""
            return self.read_constant(
                self, operand.bank, operand.offset + 4 * above, "" if index == "0" else index, kind
            )
        raise NotRun("an operand that is not known here")

    def word(self, operand: Operand | None) -> str:
        """A 32-bit integer."""
        value = self.plain(operand)
        if isinstance(operand, (Register, Constant)):
            if operand.absolute:
                value = self.r("abs.s32", value)
            if operand.negated:
                value = self.r("neg.s32", value)
            if operand.inverted:
                value = self.r("not.b32", value)
        return value

    def real(self, operand: Operand | None) -> str:
        """A 32-bit floating-point number."""
        value = self.plain(operand)
        if isinstance(operand, (Register, Constant)):
            if operand.absolute:
                value = self.r("and.b32", value, 0x7FFFFFFF)
            if operand.negated:
                value = self.r("xor.b32", value, 0x80000000)
        return self._register(value)

    def _register(self, value: str) -> str:
        return value if value.startswith("%") else self.r("mov.b32", value)

    def wide(self, operand: Operand | None, *, floating: bool = False) -> str:
        """The 64 bits of a register pair."""
        if isinstance(operand, Immediate) and (floating or operand.value is None):
            return self.q("mov.b64", f"{(self.encoding >> 32 & 0xFFFFFFFF) << 32:#x}")
        if isinstance(operand, Immediate):
            assert operand.value is not None
            return self.q("mov.b64", f"{operand.value & 0xFFFFFFFFFFFFFFFF:#x}")
        value = self._pair(operand)
        if isinstance(operand, (Register, Constant)) and floating:
            if operand.absolute:
                value = self.q("and.b64", value, "0x7FFFFFFFFFFFFFFF")
            if operand.negated:
                value = self.q("xor.b64", value, "0x8000000000000000")
        if isinstance(operand, (Register, Constant)) and not floating:
            if operand.negated:
                value = self.q("neg.s64", value)
            if operand.inverted:
                value = self.q("not.b64", value)
        return value

    def _pair(self, operand: Operand | None) -> str:
        """The 64 bits of two registers or words, without their sign."""
        if isinstance(operand, Constant) and operand.index is None and self.read_pair is not None:
            value = self.read_pair(self, operand.bank, operand.offset)
            if value:
                return value
        pair = self.plain(operand), self.plain(operand, 1)
        if pair not in self.pairs:
            low, high = map(self._register, pair)
            value = self.q("mov.b64", f"{{{low}, {high}}}")
            if not all(map(_MACHINE.fullmatch, pair)):
                return value
            self.pairs[pair] = value
        return self.pairs[pair]

    def low(self, value: str) -> str:
        return self.r("cvt.u32.u64", value)

    def high(self, value: str) -> str:
        return self.r("cvt.u32.u64", self.q("shr.u64", value, 32))

    def zext(self, value: str) -> str:
        return self.q("cvt.u64.u32", value)

    def predicate(self, operand: Operand | None) -> str:
        """A predicate as an operand; ``%PT`` or ``%PF`` for constant ones."""
        if not isinstance(operand, Predicate):
            raise NotRun("an operand that is not known here")
        if operand.number < 0:
            return "%PF" if operand.inverted else "%PT"
        name = self.flag(operand)
        return self.p("not.pred", name) if operand.inverted else name

    def flag(self, operand: Predicate) -> str:
        """The register of a predicate."""
        name = f"%{'UP' if operand.uniform else 'P'}{operand.number}"
        self.predicates.add(name)
        return name

    def bit(self, operand: Operand | None) -> str:
        """A predicate as 0 or 1."""
        name = self.predicate(operand)
        return {"%PT": "1", "%PF": "0"}.get(name) or self.r("selp.b32", 1, 0, name)

    # -- what is written -----------------------------------------------------------------------------------------------

    def put(self, target: Operand | None, value: str, above: int = 0) -> None:
        if not isinstance(target, Register):
            raise NotRun("a destination that is not known here")
        if not target.is_zero:
            name = self.name(target, above)
            self._redirect(name, value, f"mov.b32 {name}, {value}")

    def compute(self, target: Operand | None, opcode: str, *operands: object) -> None:
        """Computes a 32-bit value directly in its destination, without a move."""
        if not isinstance(target, Register):
            raise NotRun("a destination that is not known here")
        if not target.is_zero:
            self.do(f"{opcode} {', '.join([self.name(target), *map(str, operands)])}")

    def put_wide(self, target: Operand | None, value: str) -> None:
        if not isinstance(target, Register):
            raise NotRun("a destination that is not known here")
        if not target.is_zero:
            pair = self.name(target), self.name(target, 1)
            self.do(f"mov.b64 {{{pair[0]}, {pair[1]}}}, {value}")
            if not self.guard and _WIDE.fullmatch(value):
                self.pairs[pair] = value

    def put_flag(self, target: Operand | None, value: str) -> None:
        if not isinstance(target, Predicate):
            raise NotRun("a destination that is not known here")
        if target.number >= 0:
            name = self.flag(target)
            self._redirect(name, value, f"and.pred {name}, {value}, %PT")

    def targets(self, register: Register, count: int) -> str:
        """``count`` registers as the destination of a vector; unused ones for RZ."""
        names = [
            self.fresh("r") if register.is_zero else self.name(register, above) for above in range(count)
        ]
        return names[0] if count == 1 else f"{{{', '.join(names)}}}"

    def sources(self, register: Register, count: int) -> str:
        names = [self._register(self.name(register, above)) for above in range(count)]
        return names[0] if count == 1 else f"{{{', '.join(names)}}}"

    def vector(self, register: Operand | None, count: int) -> str:
        """``count`` registers as an operand in braces."""
        assert isinstance(register, Register)
        return f"{{{', '.join(self._register(self.name(register, above)) for above in range(count))}}}"

    def stop(self, reason: str) -> None:
        """Ends the run if a lane for which the guard holds gets here."""
        self.reasons[len(self.lines)] = reason
        self.do("trap")

    def stop_unless(self, known: str, reason: str) -> None:
        """Ends the run if a lane for which the guard holds, and ``known`` does not, gets here."""
        if self.guard:
            flag = self.guard.strip()[1:]
            off = flag[1:] if flag.startswith("!") else self.p("not.pred", flag)
            held = self.p("or.pred", known, off)
        else:
            held = known
        self.reasons[len(self.lines)] = reason
        self.lines.append(f"@!{held} trap;")

    # -- addresses -----------------------------------------------------------------------------------------------------

    def pointer(self, operand: Operand | None) -> str:
        """The address of global or generic memory, as a value."""
        base, _, offset = self.address64(operand).strip("[]").partition("+")
        return self.q("add.s64", base, offset or "0")

    def address64(self, operand: Operand | None) -> str:
        """The operand of global or generic memory."""
        if not isinstance(operand, Address):
            raise NotRun("an address that is not known here")
        total = ""
        for part in operand.parts:
            if part.is_zero:
                continue
            scaled = [word for word in part.words if word not in ("64", "U32")]
            if scaled:
                raise NotRun("an address that is not known here")
            value = (
                self.zext(self.name(part))
                if "U32" in part.words
                else self.wide(Register(part.uniform, part.number))
            )
            total = self.q("add.s64", total, value) if total else value
        if not total:
            return f"[{self.q('mov.b64', operand.offset)}]"
        return f"[{total}+{operand.offset}]"

    def address32(self, operand: Operand | None) -> str:
        """The operand of shared or local memory."""
        if not isinstance(operand, Address):
            raise NotRun("an address that is not known here")
        total = ""
        for part in operand.parts:
            if part.is_zero:
                continue
            value = self.name(part)
            for word in part.words:
                if word not in ("X4", "X8", "X16", "U32"):
                    raise NotRun("an address that is not known here")
                value = self.r("shl.b32", value, {"X4": 2, "X8": 3, "X16": 4, "U32": 0}[word])
            total = self.r("add.s32", total, value) if total else value
        if not total:
            return f"[{self.r('mov.b32', operand.offset)}]"
        if operand.offset < 0:
            return f"[{self.r('add.s32', total, operand.offset)}]"
        return f"[{total}+{operand.offset}]"

    def own(self, operand: Operand | None) -> str:
        """The operand of the CTA's own shared memory. Upper bits of the address may hold its rank in the cluster, which is not valid
        if ``apart``."""
        text = self.address32(operand)
        if not self.apart:
            return text
        base, _, offset = text[1:-1].partition("+")
        return f"[{self.r('and.b32', self.r('add.s32', base, offset or 0), WITHIN)}]"


def both(to: Writer, test: str) -> str:
    """The guard, with an additional predicate."""
    if to.guard:
        flag = to.guard.strip()[1:]
        flag = to.p("not.pred", flag[1:]) if flag.startswith("!") else flag
        test = to.p("and.pred", flag, test)
    return f"@{test} "


@dataclass(slots=True)
class Op:
    """A machine instruction. ``base`` has no ``U`` prefix if the uniform datapath has the same instruction."""

    item: Decoded
    base: str
    words: tuple[str, ...]
    operands: list[Operand | None]
    texts: tuple[str, ...]

    def __contains__(self, word: str) -> bool:
        return word in self.words

    def allow(self, *words: str) -> None:
        """Raises ``NotRun`` for other modifiers."""
        for word in self.words:
            if word not in words:
                raise NotRun(f"{self.item.opcode} has a modifier that is not known here")


Handler = Callable[[Op, Writer], None]
_ROWS: dict[str, Handler] = {}


def opcodes(*names: str) -> Callable[[Handler], Handler]:
    """Registers a function as the handler of these opcodes."""

    def keep(handler: Handler) -> Handler:
        _ROWS.update(dict.fromkeys(names, handler))
        return handler

    return keep


def opcode_row(item: Decoded) -> tuple[Handler, Op] | None:
    """The handler and the operands of an instruction; ``None`` for an unknown opcode."""
    base, *words = item.opcode.split(".")
    handler = _ROWS.get(base)
    if handler is None and base.startswith("U"):
        base = base[1:]
        handler = _ROWS.get(base)
    if handler is None:
        return None
    return handler, Op(
        item, base, tuple(words), [read_operand(text) for text in item.operands], item.operands
    )
