"""Machine instructions that read textures, and read and write surfaces.

The geometry, the types and what is done to coordinates outside are those of the PTX instruction. Machine code for a texture with one
axis reads one with two axes, and names the components that are used.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ...memory.image_rows import HANDLE_BASE
from ...ptx.syntax import Instruction
from .operands import Address, Constant, Immediate, Predicate, Register
from .writer import NotRun, Op, Writer, opcodes

__all__: list[str] = []

#: Coordinates of a geometry, with the layer, which comes first; vectors of three have a fourth element that is not used.
_COORDINATES = {"1d": 1, "2d": 2, "3d": 3, "a1d": 2, "a2d": 3}
_SHAPE = re.compile(r"(?:ARRAY_)?[123]D(?:_ARRAY)?$")


def _instruction(op: Op, to: Writer, *names: str) -> Instruction:
    """The PTX instruction, which has one of these names. If the machine instruction has the number of one of its operands, it is the
    next one with its geometry; another one would leave other bytes in memory."""
    component = next(
        (f"tld4.{word.lower()}." for word in op.words if op.base == "TLD4" and word in "RGBA"), ""
    )
    shape = next((text for text in (*op.words, *op.texts) if _SHAPE.match(text)), "")
    layers, axes = "ARRAY" in shape, shape.replace("ARRAY_", "")[:2].lower()
    geometries = {f"{'a' * layers}{axes}", *(("1d",) if axes == "2d" and not layers else ())}
    found = [
        (number < op.item.ptx, abs(number - op.item.ptx), number)
        for number, item in enumerate(to.instructions, 1)
        if item.opcode.partition(".")[0] in names and item.opcode.startswith(component)
        if not geometries.isdisjoint(item.opcode.split("."))
    ]
    if not found:
        raise NotRun(f"{op.item.text} is not known here")
    return to.instructions[min(found)[2] - 1]


def _geometry(op: Op, made_of: Instruction) -> str:
    found = next((word for word in made_of.opcode.split(".") if word in _COORDINATES), "")
    if not found:
        raise NotRun(f"{op.item.opcode} of {made_of.opcode} is not known here")
    return found


def _handle(op: Op, to: Writer, place: int) -> str:
    """The handle of an image: two immediates, of which the second counts the words in front of it in constant bank 0, or a register.
    The code reads the lower word only."""
    item = op.operands[place]
    if isinstance(item, Immediate):
        bank, word = item.value, op.operands[place + 1]
        if bank or not isinstance(word, Immediate) or word.value is None:
            raise NotRun(f"{op.item.text} is not known here")
        low = to.plain(Constant(0, 4 * word.value))
    elif isinstance(item, Register):
        low = to.name(item)
    else:
        raise NotRun(f"{op.item.text} is not known here")
    return to.q("mov.b64", f"{{{low}, {HANDLE_BASE >> 32}}}")


def _vector(values: list[str]) -> str:
    """Coordinates as an operand: three have a fourth element."""
    return f"{{{', '.join([*values, values[-1]] if len(values) == 3 else values)}}}"


@opcodes("TEX", "TLD", "TLD4", "TXD")
def _fetch(op: Op, to: Writer) -> None:
    """``TEX.SCR.LL R8, R6, R4, R10, 0x0, 0x58, 2D, 0x5``: the components that the last operand names, the first two of them in R6 and
    R7, further ones in R8 and R9. With ``SCR`` the coordinates are in R4 and R5, the third one and the level of detail in R10 and R11,
    otherwise the coordinates are in consecutive registers. ``TEX.SCR.B.LL R8, R6, R4, R10, 2D`` has the handle in R10 and the level of
    detail in R11. A predicate in front, ``TEX.LL P0, …``, becomes whether a texel is not resident (``ptxas`` inverts that of PTX)."""
    missing = op.operands[0] if isinstance(op.operands[0], Predicate) else None
    if missing is not None:
        op = replace(op, operands=op.operands[1:], texts=op.texts[1:])
    made_of = _instruction(op, to, "tex", "tld4")
    geometry, name = _geometry(op, made_of), made_of.opcode
    shape = next(index for index, text in enumerate(op.texts) if _SHAPE.match(text))
    mask = op.operands[shape + 1] if len(op.operands) > shape + 1 else Immediate(15)
    sources = [item for item in op.operands[2:shape] if isinstance(item, Register) and not item.uniform]
    bound = next((at for at, item in enumerate(op.operands[:shape]) if isinstance(item, Immediate)), 0)
    uniform = next(
        (at for at, item in enumerate(op.operands[:shape]) if isinstance(item, Register) and item.uniform), 0
    )
    if not isinstance(mask, Immediate) or mask.value is None or not {*op.words} <= _KNOWN:
        raise NotRun(f"{op.item.text} is not known here")
    count = _COORDINATES[geometry]
    if not bound and not uniform and ("B" not in op or "SCR" not in op or count > 2 or len(sources) != 2):
        raise NotRun(f"{op.item.text} is not known here")
    handle = _handle(op, to, uniform or bound or 3)
    places = _places(op, sources, count)
    values = [to.r("mov.b32", to.name(register, above)) for register, above in places]
    more = ""
    if ".level." in name:
        last = sources[1] if len(sources) > 1 else sources[0]
        above = max(0, count - 2) + ("B" in op) if "SCR" in op else 0
        more = f", {to.r('mov.b32', to.name(last, above))}"
    elif ".grad." in name:
        axes = count - geometry.startswith("a")
        if axes != 2 or len(sources) != 2 or geometry.startswith("a"):
            raise NotRun(f"{op.item.text} is not known here")
        slopes = [to.r("mov.b32", to.name(sources[1], above)) for above in (0, 2, 1, 3)]
        more = f", {_vector(slopes[:2])}, {_vector(slopes[2:])}"
    results = [to.fresh("r") for _ in range(4)]
    resident = to.fresh("p") if missing is not None else ""
    pair = f"|{resident}" if resident else ""
    to.do(f"{name} {{{', '.join(results)}}}{pair}, [{handle}, {_vector(values)}]{more}")
    taken = [value for component, value in enumerate(results) if mask.value >> component & 1]
    for number, value in enumerate(taken):
        to.put(op.operands[1 if number < 2 else 0], value, number % 2)
    if resident:
        to.put_flag(missing, to.p("not.pred", resident))


_KNOWN = frozenset(["SCR", "B", "LL", "LZ", "R", "G", "A"])


def _places(op: Op, sources: list[Register], count: int) -> list[tuple[Register, int]]:
    """The register of each coordinate, as a register and an offset."""
    if not sources or ("SCR" in op and count > 2 and len(sources) < 2):
        raise NotRun(f"{op.item.text} is not known here")
    if "SCR" in op and op.base == "TLD4":  # TLD4.SCR.G R14, R12, R0, R13: each coordinate in its own register
        if count != 2 or len(sources) != 2:
            raise NotRun(f"{op.item.text} is not known here")
        return [(sources[0], 0), (sources[1], 0)]
    if "SCR" in op:
        return [(sources[at // 2], at % 2) for at in range(count)]
    return [(sources[0], at) for at in range(count)]


#: Registers of an access, by the size that the opcode names; narrow values are in the lower part of one.
_SIZES = {
    "": ("b32", 1),
    "U8": ("b8", 1),
    "S8": ("b8", 1),
    "U16": ("b16", 1),
    "S16": ("b16", 1),
    "64": ("v2.b32", 2),
    "128": ("v4.b32", 4),
}
_OUTSIDE = {"TRAP": "trap", "IGN": "zero"}
_HINTS = frozenset(["D", "BA", "STRONG", "WEAK", "SM", "GPU", "SYS", "CTA"])


def _surface(op: Op, to: Writer, place: int) -> tuple[str, str, int, str]:
    """The geometry, the type, the number of registers and the operand of an access; ``place``: of its address."""
    made_of = _instruction(op, to, "suld", "sust")
    geometry = _geometry(op, made_of)
    sizes = [word for word in op.words if word in _SIZES] or [""]
    outside = [_OUTSIDE[word] for word in op.words if word in _OUTSIDE] or ["clamp"]
    shapes = [word for word in op.words if _SHAPE.match(word)]
    where = op.operands[place]
    known = {*sizes, *_OUTSIDE, *_HINTS, *shapes}
    if not {*op.words} <= known or not {"D", "BA"} <= {*op.words} or len(outside) != 1 or geometry == "a1d":
        raise NotRun(f"{op.item.opcode} is not known here")
    if not isinstance(where, Address) or len(where.parts) != 1 or where.offset:
        raise NotRun(f"{op.item.text} is not known here")
    kind, count = _SIZES[sizes[0]]
    values = [to.r("mov.b32", to.name(where.parts[0], above)) for above in range(_COORDINATES[geometry])]
    if geometry == "a2d":  # the layer is the last one here, and the first one in PTX
        values = [values[2], *values[:2]]
    handles = [
        at for at, item in enumerate(op.operands) if at > place and isinstance(item, (Immediate, Register))
    ]
    handle = _handle(
        op,
        to,
        handles[
            1 if place == 0 and isinstance(op.operands[handles[0]], Register) and len(handles) > 1 else 0
        ],
    )
    return f"{geometry}.{kind}.{outside[0]}", kind, count, f"[{handle}, {_vector(values)}]"


@opcodes("SULD")
def _load(op: Op, to: Writer) -> None:
    """``SULD.D.BA.2D.STRONG.SM.IGN R5, [R4], 0x0, 0x58``: bytes, the first coordinate in bytes."""
    form, kind, count, where = _surface(op, to, 1)
    target = op.operands[0]
    if kind in ("b8", "b16"):
        half = to.fresh("h")
        to.do(f"suld.b.{form} {{{half}}}, {where}")
        signed = "S8" in op or "S16" in op
        value = to.r("cvt.u32.u16", half)
        to.put(
            target,
            to.r("bfe.s32", value, 0, int(kind[1:])) if signed else to.r("bfe.u32", value, 0, int(kind[1:])),
        )
        return
    values = [to.fresh("r") for _ in range(count)]
    to.do(f"suld.b.{form} {{{', '.join(values)}}}, {where}")
    for above, value in enumerate(values):
        to.put(target, value, above)


@opcodes("SUST")
def _store(op: Op, to: Writer) -> None:
    """``SUST.D.BA.2D.STRONG.SM.TRAP [R2], R0, 0x0, 0x5a``."""
    form, kind, count, where = _surface(op, to, 0)
    source = op.operands[1]
    if not isinstance(source, Register):
        raise NotRun(f"{op.item.text} is not known here")
    values = [to.r("mov.b32", to.name(source, above)) for above in range(count)]
    if kind in ("b8", "b16"):
        values = [to.h("cvt.u16.u32", values[0])]
    to.do(f"sust.b.{form} {where}, {{{', '.join(values)}}}")
