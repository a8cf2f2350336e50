"""Functions that parts of one program share: code with an effect, or of control flow, written once for all its places.

The variables of ``warp`` are reached through ``%frame``, an array of their addresses. What differs between places is passed:
numbers by name (``%site``), registers as offsets in the state. A function returns 0 where its code goes on behind it, otherwise the
number of one of the labels to which it branches.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..ir.emitter import Emitter
from ..ir.operands import Ref

if TYPE_CHECKING:
    from .generator import CodeGenerator

__all__ = ["PARAMETERS", "Procedure", "make_procedure", "write_call", "write_frame"]

_PREFIX = "part_"
#: the named values of ``warp``, in the order of the frame
_NAMES = {
    **dict.fromkeys(
        (
            "ctx", "cta", "pc", "mask", "id", "depth", "live", "quantum", "steps", "loop", "area", "vals", "matrices", "blocks",
            "sites", "predicated", "params", "symbols", "threads",
        ),
        "ptr",
    ),
    "sharedbytes": "i64",
}  # fmt: skip
_PLACES = {name: place for place, name in enumerate(_NAMES)}
_NAMED = re.compile(rf"%({'|'.join(_NAMES)})(?![\w.])")
_JUMP = re.compile(r"label %([\w.]+)")
#: numbers that code may take
PARAMETERS = {
    "place": "i32",
    "reason": "i32",
    "site": "i64",
    "where": "i64",
    "offset": "i64",
    "guard": "i32",
    "block": "i64",
    "charge": "i64",
    "taken": "i32",
    "code": "i32",
    "point": "i32",
}


@dataclass(frozen=True, slots=True)
class Procedure:
    """``place``: its number in the table of functions; ``takes``: the names of the numbers that it takes; ``exits``: the labels to
    which it branches; ``faulting``: whether an access may have failed in it."""

    place: int
    takes: tuple[str, ...]
    exits: tuple[str, ...]
    faulting: bool = False


def make_procedure(
    generator: CodeGenerator,
    registers: Sequence[str],
    write: Callable[[Emitter], bool],
    numbers: Mapping[str, str] = PARAMETERS,
) -> Procedure:
    """The function of code that ``write`` writes, which returns whether an access may have failed. ``registers``: its further
    parameters."""
    writer, outer = Emitter(), generator.writer
    generator.writer = writer
    try:
        writer.start("entry")
        faulting = write(writer)
        if not writer.lines[-1].startswith("  br label "):
            writer.do("ret i32 0")
    finally:
        generator.writer = outer
    text = "\n".join(writer.lines)
    inside = {line[:-1] for line in writer.lines if line[-1] == ":"}
    exits = [label for label in dict.fromkeys(_JUMP.findall(text)) if label not in inside]
    takes = [name for name in numbers if re.search(rf"%{name}(?![\w.])", text)]
    used = sorted(set(_NAMED.findall(text)), key=_PLACES.__getitem__)
    given = ["ptr %frame", "ptr %st", *(f"{numbers[name]} %{name}" for name in takes), *registers]
    loads = [line for name in used for line in _load(name)]
    ends = [f"{label}:\n  ret i32 {number}" for number, label in enumerate(exits, 1)]
    body = "\n".join(
        [f"({', '.join(given)}) nounwind {{", "entry:", *loads, text[len("entry:\n") :], *ends, "}"]
    )
    name = _PREFIX + hashlib.blake2b(body.encode(), digest_size=12).hexdigest()
    generator.framed.update(used)
    generator.writer.needs.update(writer.needs)
    generator.functions.setdefault(name, f"define internal i32 @{name}{body}")
    return Procedure(list(generator.functions).index(name), tuple(takes), tuple(exits), faulting)


def _load(name: str) -> tuple[str, str]:
    """The lines that load a value of the frame."""
    cell = f"  %frame.{name} = getelementptr i8, ptr %frame, i64 {8 * _PLACES[name]}"
    return cell, f"  %{name} = load {_NAMES[name]}, ptr %frame.{name}"


def write_call(
    generator: CodeGenerator,
    procedure: Procedure,
    numbers: Mapping[str, str],
    registers: Sequence[str],
    labels: Sequence[str],
    *,
    ends: bool = False,
) -> None:
    """Call a function, and branch to ``labels`` where it branches to its exits. Code goes on in a new basic block, unless the function
    always ends with an exit."""
    writer = generator.writer
    given = ["ptr %frame", "ptr %st"]
    given += [f"{PARAMETERS[name]} {numbers[name]}" for name in procedure.takes]
    call = f"call i32 %form{procedure.place}({', '.join([*given, *registers])})"
    if not procedure.exits:
        writer.op(call)
        return
    result = writer.ref("i32", call)
    for number, label in enumerate(labels, 1):
        if ends and number == len(labels):
            writer.jump(label)
            return
        on = writer.label("on")
        writer.branch(writer.icmp("eq", result, number), label, on)
        writer.start(on)


def write_frame(generator: CodeGenerator) -> None:
    """The values in the frame that functions load."""
    writer = generator.writer
    if generator.framed:
        writer.alloca(f"[{8 * len(_NAMES)} x i8]", 64, "%frame")
    for name in sorted(generator.framed, key=_PLACES.__getitem__):
        writer.store(Ref(_NAMES[name], f"%{name}"), writer.at("%frame", 8 * _PLACES[name]))
