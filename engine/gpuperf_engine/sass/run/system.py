"""Calls of functions of the system: ``CALL.ABS`` of an address that the code reads from constant bank 4."""

from __future__ import annotations

from collections.abc import Mapping

from ..listing import Decoded
from .operands import Register
from .writer import NotRun, Op, Writer, opcodes

__all__ = ["DECLARED", "MARK", "call", "call_named", "entries", "named"]

#: Sizes in bytes of the parameters and of the result. Parameters are in consecutive registers from R4 on, aligned to their sizes, and
#: so is the result.
_FUNCTIONS: dict[str, tuple[tuple[int, ...], int]] = {
    "vprintf": ((8, 8), 4),
    "malloc": ((8,), 8),
    "free": ((8,), 0),
    "__assertfail": ((8, 8, 4, 8, 8), 0),
}
#: The upper word of the address of such a function here; the lower one is its place in the bank.
MARK = 0x5A5A0000


def _declaration(name: str) -> str:
    given, result = _FUNCTIONS[name]
    types = ", ".join(f".param .b{8 * size} p{number}" for number, size in enumerate(given))
    return f".extern .func {f'(.param .b{8 * result} r) ' if result else ''}{name}({types});"


#: By name, the declaration in PTX.
DECLARED = {name: _declaration(name) for name in _FUNCTIONS}


def entries(relocations: Mapping[int, str]) -> dict[int, str]:
    """The functions of the system in constant bank 4, by place."""
    return {place: name for place, name in relocations.items() if name in _FUNCTIONS}


def named(item: Decoded) -> str:
    """The function of the system that a call names, as code for debugging does: ``CALL.ABS.NOINC `(vprintf)``."""
    names = item.targets if item.base == "CALL" else ()
    return next((name for name in names if name in _FUNCTIONS), "")


def call_named(to: Writer, name: str) -> None:
    """Calls a function of the system by its name."""
    _called(to, name)


def call(to: Writer, target: Register, known: Mapping[int, str]) -> None:
    """Calls the function whose address a register holds."""
    place = to.word(target)
    found = "%PF"
    for number in known:
        found = to.p("or.pred", found, to.p("setp.eq.b32", place, number))
    to.stop_unless(found, "a call that is not known here")
    for number, name in known.items():
        other = to.p("setp.ne.b32", place, number)
        past = f"S{len(to.lines)}"
        to.lines.append(f"@{other} bra {past};")
        _called(to, name)
        to.start(past)


def _called(to: Writer, name: str) -> None:
    given, result = _FUNCTIONS[name]
    to.lines.append("{")
    if result:
        to.line(f".param .b{8 * result} r")
    above = 4
    for number, size in enumerate(given):
        above += above % 2 if size == 8 else 0
        register = Register(False, above)
        value = to.wide(register) if size == 8 else to.r("mov.b32", to.word(register))
        to.line(f".param .b{8 * size} p{number}")
        to.line(f"st.param.b{8 * size} [p{number}], {value}")
        above += size // 4
    names = ", ".join(f"p{number}" for number in range(len(given)))
    to.line(f"call.uni {'(r), ' if result else ''}{name}, ({names})")
    if result:
        made = to.fresh("q" if result == 8 else "r")
        to.line(f"ld.param.b{8 * result} {made}, [r]")
        (to.put_wide if result == 8 else to.put)(Register(False, 4), made)
    to.lines.append("}")


@opcodes("LEPC")
def _lepc(op: Op, to: Writer) -> None:
    """The address of the instruction, from which a return address is made: control flow gives it here."""
    target = op.operands[0]
    if not isinstance(target, Register):
        raise NotRun(f"{op.item.text} is not known here")
    to.put_wide(target, "0")
