"""Machine instructions on tensor memory of Blackwell: allocation, loads and stores by warps, copies, and products by one thread.

``ptxas`` expands ``tcgen05.alloc``: the hardware keeps a bit for each 32 columns (``UTCATOMSWS``), and the reserved shared memory of
the system holds copies of it for the checks of ``tcgen05.dealloc``. Here all columns are allocated before the code starts, and the
bits are in the reserved memory too. Pairs of CTAs (``2CTA``) are not run: their allocation uses barriers in that memory, whose format
is not documented.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..listing import Decoded
from .bulk import once
from .operands import Address, Immediate, Predicate, Register, read_operand
from .writer import NotRun, Op, Writer, opcodes

__all__ = ["allocation"]

#: Unused offsets in the reserved memory: the allocation bits, and the address of the first column.
_TAKEN, _FIRST = 0x3F0, 0x3F8
#: Offsets of the words that ``tcgen05.alloc`` and ``.dealloc`` read.
_STATE = range(0x54, 0x60, 4)
_UNITS = 16
_TENSOR = re.compile(r"tmem\[(UR\d+)(?:\+(0x[0-9a-f]+))?\]$")
_MATRIX = re.compile(r"(gdesc|tmem)\[(UR\d+)\](?:\.[A-Z]_\w+)?$")  # the suffix concerns reuse
_INSTRUCTION = re.compile(r"idesc\[(UR\d+)\]$")
_HALF = "16dp32bit_t"
#: Shapes by modifier, and the registers of a thread for .x1.
_SHAPES = {
    "": ("32x32b", 1),
    "16dp64bit": ("16x64b", 1),
    "16dp128bit": ("16x128b", 2),
    "16dp256bit": ("16x256b", 4),
}
_COPIES = {
    "": "128x256b",
    "4dp256bit": "4x256b",
    "128dp128bit": "128x128b",
    "2x64dp128bit_lw02_lw13": "64x128b.warpx2::02_13",
    "2x64dp128bit_lw01_lw23": "64x128b.warpx2::01_23",
    "4x32dp128bit": "32x128b.warpx4",
}


def allocation(items: Iterable[Decoded]) -> list[str]:
    """Prologue of code that allocates tensor memory: the first warp allocates all of it, and no bit is set."""
    if not any(item.base == "UTCATOMSWS" for item in items):
        return []
    lines = [
        ".reg .b32 %Ta, %Tb;",
        ".reg .pred %Tp;",
        "mov.u32 %Ta, %tid.z; mov.u32 %Tb, %ntid.y; mul.lo.u32 %Ta, %Ta, %Tb; mov.u32 %Tb, %tid.y; add.u32 %Ta, %Ta, %Tb;",
        "mov.u32 %Tb, %ntid.x; mul.lo.u32 %Ta, %Ta, %Tb; mov.u32 %Tb, %tid.x; add.u32 %Ta, %Ta, %Tb; setp.lt.u32 %Tp, %Ta, 32;",
        f"@%Tp tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [pool+{_FIRST}], {32 * _UNITS};",
        *(f"@%Tp st.shared.u32 [pool+{place}], 0;" for place in (_TAKEN, *_STATE)),
        "barrier.sync 0;",
    ]
    return [f"{statement.strip()};" for line in lines for statement in line.split(";") if statement.strip()]


@opcodes("UTCATOMSWS")
def _allocated(op: Op, to: Writer) -> None:
    """``UTCATOMSWS.FIND_AND_SET.ALIGN UP0, UR6, UR6``: finds the first free run of UR6 bits at a multiple of its length, sets the
    bits, and reports whether there is one; ``UTCATOMSWS.AND URZ, UR4`` clears bits."""
    taken = to.fresh("r")
    if op.words == ("AND",) and len(op.texts) == 2 and op.texts[0] == "URZ":
        to.do(f"ld.shared.u32 {taken}, [pool+{_TAKEN}]")
        to.do(f"st.shared.u32 [pool+{_TAKEN}], {to.r('and.b32', taken, to.word(op.operands[1]))}")
        return
    if op.words != ("FIND_AND_SET", "ALIGN"):
        raise NotRun(f"{op.item.opcode} is not known here")
    found, target, wanted = op.operands
    count = to.r("mov.b32", to.word(wanted))
    to.do(f"ld.shared.u32 {taken}, [pool+{_TAKEN}]")
    free = to.r("and.b32", to.r("not.b32", taken), (1 << _UNITS) - 1)
    places = to.r("mov.b32", 0)
    size = 1
    while size <= _UNITS:
        places = to.r("selp.b32", free, places, to.p("setp.eq.u32", count, size))
        # Free runs of twice the size: both halves are free.
        starts = sum(1 << first for first in range(0, _UNITS, 2 * size))
        free = to.r("and.b32", to.r("and.b32", free, to.r("shr.u32", free, size)), starts)
        size *= 2
    lowest = to.r("and.b32", places, to.r("neg.s32", places))
    taking = to.r("sub.s32", to.r("shl.b32", 1, count), 1)
    # The product shifts the bits to the lowest position found; without one it is 0.
    to.do(f"st.shared.u32 [pool+{_TAKEN}], {to.r('or.b32', taken, to.r('mul.lo.u32', taking, lowest))}")
    to.put_flag(found, to.p("setp.ne.u32", places, 0))
    to.put(target, to.r("bfind.u32", lowest))


def _place(op: Op, to: Writer, text: str) -> str:
    """The address of tensor memory that an operand names."""
    match = _TENSOR.match(text)
    if match is None:
        raise NotRun(f"{op.item.text} is not known here")
    return to.r("add.u32", to.word(read_operand(match[1])), int(match[2] or "0", 16))


def _fragment(op: Op) -> tuple[str, int, str]:
    """The shape, the registers of a thread, and the half of the threads that participates (``t0_t15``)."""
    words = [word for word in op.words if word not in ("PACK16BIT", "EXPAND16BIT")]
    times = next((int(word[1:]) for word in words if re.fullmatch(r"x\d+", word)), 1)
    others = [word for word in words if not re.fullmatch(r"x\d+", word)]
    name = others[0] if others else ""
    half = name.removeprefix("16dp32bit_") if name.startswith(_HALF) else ""
    shape, count = ("16x32bx2", 1) if half in ("t0_t15", "t16_t31") else _SHAPES.get(name, ("", 0))
    if not count or len(others) > 1 or len(op.texts) != 2:
        raise NotRun(f"{op.item.text} is not known here")
    return f"{shape}.x{times}", times * count, half


@opcodes("LDTM")
def _load(op: Op, to: Writer) -> None:
    """If half of the threads participate, the others execute the same load and keep the values of their registers."""
    shape, count, half = _fragment(op)
    target, made = op.operands[0], [to.fresh("r") for _ in range(count)]
    packed = ".pack::16b" * ("PACK16BIT" in op)
    offset = ", 0" * bool(half)
    where = _place(op, to, op.texts[1])
    to.do(f"tcgen05.ld.sync.aligned.{shape}{packed}.b32 {{{', '.join(made)}}}, [{where}]{offset}")
    to.do("tcgen05.wait::ld.sync.aligned")
    if half:
        test = "lt" if half == "t0_t15" else "ge"
        to.guard = f"@{to.p(f'setp.{test}.u32', to.r('mov.u32', '%laneid'), 16)} "
    for above, value in enumerate(made):
        to.put(target, value, above)


@opcodes("STTM")
def _store(op: Op, to: Writer) -> None:
    """If half of the threads participate, the others store the same values to the same addresses."""
    shape, count, half = _fragment(op)
    source = op.operands[1]
    if not isinstance(source, Register):
        raise NotRun(f"{op.item.text} is not known here")
    names = [to.r("mov.b32", to.name(source, above)) for above in range(count)]
    if half:
        lane = to.r("mov.u32", "%laneid")
        lane = to.r("and.b32", lane, 15) if half == "t0_t15" else to.r("or.b32", lane, 16)
        values = [to.fresh("r") for _ in names]
        for value, name in zip(values, names):
            to.do(f"shfl.sync.idx.b32 {value}, {name}, {lane}, 31, -1")
        names = values
    expanded, offset = ".unpack::16b" * ("EXPAND16BIT" in op), ", 0" * bool(half)
    where = _place(op, to, op.texts[0])
    to.do(f"tcgen05.st.sync.aligned.{shape}{expanded}.b32 [{where}]{offset}, {{{', '.join(names)}}}")
    to.do("tcgen05.wait::st.sync.aligned")


@opcodes("UTCCP")
def _copy(op: Op, to: Writer) -> None:
    """``UTCCP.T.S.4x32dp128bit tmem[UR10], gdesc[UR6]``."""
    shape = _COPIES.get(".".join(op.words[2:]))
    if op.words[:2] != ("T", "S") or shape is None or len(op.texts) != 2:
        raise NotRun(f"{op.item.text} is not known here")
    where, matrix = _place(op, to, op.texts[0]), _matrix(op, to, 1)
    once(to)
    to.do(f"tcgen05.cp.cta_group::1.{shape} [{where}], {matrix}")


def _matrix(op: Op, to: Writer, place: int) -> str:
    """A descriptor, or an address of tensor memory in brackets."""
    match = _MATRIX.match(op.texts[place])
    register = read_operand(match[2]) if match is not None else None
    if match is None or not isinstance(register, Register):
        raise NotRun(f"{op.item.text} is not known here")
    return to.wide(register) if match[1] == "gdesc" else f"[{to.word(register)}]"


@opcodes("UTCHMMA", "UTCQMMA", "UTCIMMA", "UTCOMMA")
def _product(op: Op, to: Writer) -> None:
    """``UTCHMMA gdesc[UR6], gdesc[UR14], tmem[UR10], tmem[UR4], idesc[UR5], UP0``: A, B, D, metadata of a sparse A, the instruction
    descriptor, and whether to add D; addresses of scales precede it, in two registers."""
    texts = list(op.texts)
    scaled = len(texts) == 7
    described = _INSTRUCTION.match(texts[4]) if len(texts) > 4 else None
    adds = read_operand(texts[-1])
    if len(texts) not in (6, 7) or described is None or not isinstance(adds, Predicate):
        raise NotRun(f"{op.item.text} is not known here")
    kinds = {
        ("UTCQMMA", False): "f8f6f4",
        ("UTCIMMA", False): "i8",
        ("UTCQMMA", True): "mxf8f6f4.block_scale.block32",
    }
    if op.base == "UTCOMMA" and scaled:
        kind = "mxf4nvf4.block_scale.block16" if op.words else "mxf4.block_scale.block32"
    elif op.base == "UTCHMMA" and not scaled:
        kind = ""
    else:
        kind = kinds.get((op.base, scaled), "unknown")
    # code for sm_100 names the number of scales, that for sm_103 the size of their blocks
    if kind == "unknown" or (op.words and (op.base != "UTCOMMA" or op.words not in (("4X",), ("BLOCK16",)))):
        raise NotRun(f"{op.item.text} is not known here")
    types = to.r("mov.b32", to.word(read_operand(described[1])))
    first, second = _matrix(op, to, 0), _matrix(op, to, 1)
    sums = _place(op, to, texts[2])
    flag = to.p("and.pred", to.predicate(adds), "%PT")
    scales = ""
    if scaled:
        match = _TENSOR.match(texts[5])
        register = read_operand(match[1]) if match is not None else None
        if not isinstance(register, Register):
            raise NotRun(f"{op.item.text} is not known here")
        scales = "".join(f", [{to.word(Register(True, register.number + above))}]" for above in range(2))
    once(to)
    # Bit 2 of the instruction descriptor: sparsity.
    to.stop_unless(to.p("setp.eq.b32", to.r("and.b32", types, 4), 0), f"{op.item.opcode} of a sparse matrix")
    guard = to.guard
    for name, test in ((kind, ""),) if kind else (("f16", "ne"), ("tf32", "eq")):
        to.guard = guard
        if test:  # bits 7 to 9 of the instruction descriptor: the type of A
            kind_of_a = to.r("and.b32", to.r("shr.u32", types, 7), 7)
            to.guard = _and(to, to.p(f"setp.{test}.b32", kind_of_a, 2))
        to.do(f"tcgen05.mma.cta_group::1.kind::{name} [{sums}], {first}, {second}, {types}{scales}, {flag}")


def _and(to: Writer, test: str) -> str:
    held = to.p("and.pred", to.guard.strip()[1:], test)
    return f"@{held} "


@opcodes("UTCBAR")
def _commit(op: Op, to: Writer) -> None:
    """``UTCBAR.MULTICAST [UR4], URZ, UR5``: an mbarrier, and the mask of CTAs of the cluster."""
    multicast = "MULTICAST" in op
    place = op.operands[0]
    if (
        op.words not in ((), ("MULTICAST",))
        or len(op.texts) != 2 + multicast
        or op.texts[1] != "URZ"
        or not isinstance(place, Address)
    ):
        raise NotRun(f"{op.item.text} is not known here")
    where = to.address32(place)
    mask = to.h("cvt.u16.u32", to.word(op.operands[2])) if multicast else ""
    once(to)
    to.do(
        f"tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster{'.multicast::cluster' * multicast}.b64 "
        f"{where}{f', {mask}' if mask else ''}"
    )


@opcodes("UVIRTCOUNT")
def _counted(op: Op, to: Writer) -> None:
    """The occupancy decides how many CTAs an SM holds."""
    if not isinstance(op.operands[0], Immediate):
        raise NotRun(f"{op.item.text} is not known here")
