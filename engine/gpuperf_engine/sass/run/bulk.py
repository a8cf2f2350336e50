"""Machine instructions that copy boxes of tensors and ranges of bytes between shared and global memory.

One active lane issues a copy: uniform registers have one value for all lanes. If lanes may issue different copies, ``ptxas`` emits a
loop over the lanes.
"""

from __future__ import annotations

import re

from .operands import Address, Register, read_operand
from .writer import NotRun, Op, Writer, both, opcodes

__all__ = ["once"]

_AXES = re.compile(r"([1-5])D$")
_ARRIVES = "mbarrier::complete_tx::bytes"
#: Integer reductions, with their types.
_REDUCTIONS = {
    "ADD": "add.u32",
    "AND": "and.b32",
    "OR": "or.b32",
    "XOR": "xor.b32",
    "INC": "inc.u32",
    "DEC": "dec.u32",
}
_TENSOR_REDUCTIONS = {
    "ADD": "add",
    "MIN": "min",
    "MAX": "max",
    "AND": "and",
    "OR": "or",
    "XOR": "xor",
    "INC": "inc",
    "DEC": "dec",
}


def _uniform(op: Op, place: int) -> Register:
    """The first of the uniform registers that an operand names: ``[UR4]``, or ``UR4``."""
    where = read_operand(op.texts[place]) if place < len(op.texts) else None
    if isinstance(where, Address) and len(where.parts) == 1 and not where.offset:
        where = where.parts[0]
    if not isinstance(where, Register) or not where.uniform or where.is_zero:
        raise NotRun(f"{op.item.text} is not known here")
    return where


def _word(to: Writer, first: Register, above: int) -> str:
    return to.word(Register(True, first.number + above))


def once(to: Writer) -> None:
    """Adds to the guard that only the lowest lane for which it holds executes the following statements."""
    mask, there, below = to.fresh("r"), to.fresh("r"), to.fresh("r")
    to.line(f"activemask.b32 {there}")
    to.line(f"vote.sync.ballot.b32 {mask}, {to.guard.strip()[1:] or '%PT'}, {there}")
    to.line(f"mov.u32 {below}, %lanemask_lt")
    to.guard = both(to, to.p("setp.eq.u32", to.r("and.b32", mask, below), 0))


def _known(op: Op, count: int, *words: str) -> None:
    """Raises ``NotRun`` for other modifiers than ``words`` or another number of operands, not counting cache descriptors."""
    operands = [text for text in op.texts if not text.startswith("desc[")]
    if not {*op.words} <= {*words} or len(operands) != count:
        raise NotRun(f"{op.item.text} is not known here")


def _axes(op: Op) -> tuple[int, list[str]]:
    """The number of axes of a tensor, and the other modifiers."""
    axes = [int(match[1]) for word in op.words if (match := _AXES.match(word))]
    if len(axes) != 1:
        raise NotRun(f"{op.item.text} is not known here")
    return axes[0], [word for word in op.words if not _AXES.match(word)]


def _box(to: Writer, op: Op, axes: int, first: Register, start: int) -> str:
    """The operand of a tensor map and coordinates, which start at a register."""
    coordinates = ", ".join(_word(to, first, start + axis) for axis in range(axes))
    return f"[{to.wide(_uniform(op, 1))}, {{{coordinates}}}]"


@opcodes("UTMALDG")
def _load(op: Op, to: Writer) -> None:
    """``UTMALDG.2D.MULTICAST [UR8], [UR4], UR6``: UR8 is the address in shared memory, UR9 the mbarrier, and coordinates follow; the
    upper half of UR6 is the mask of destination CTAs."""
    axes, others = _axes(op)
    _known(op, 2 + len(others), f"{axes}D", "MULTICAST")
    first = _uniform(op, 0)
    box = _box(to, op, axes, first, 2)
    mask = to.h("cvt.u16.u32", to.r("shr.u32", _word(to, _uniform(op, 2), 0), 16)) if others else ""
    once(to)
    to.do(
        f"cp.async.bulk.tensor.{axes}d.shared::cluster.global.tile.{_ARRIVES}{'.multicast::cluster' * bool(mask)} "
        f"[{_word(to, first, 0)}], {box}, [{_word(to, first, 1)}]{f', {mask}' if mask else ''}"
    )


@opcodes("UTMASTG")
def _store(op: Op, to: Writer) -> None:
    axes, _ = _axes(op)
    _known(op, 2, f"{axes}D")
    first = _uniform(op, 0)
    box = _box(to, op, axes, first, 1)
    once(to)
    to.do(f"cp.async.bulk.tensor.{axes}d.global.shared::cta.tile.bulk_group {box}, [{_word(to, first, 0)}]")


@opcodes("UTMAREDG")
def _reduce(op: Op, to: Writer) -> None:
    axes, others = _axes(op)
    _known(op, 2, f"{axes}D", *_TENSOR_REDUCTIONS)
    if len(others) != 1:
        raise NotRun(f"{op.item.text} is not known here")
    first = _uniform(op, 0)
    box = _box(to, op, axes, first, 1)
    once(to)
    how = _TENSOR_REDUCTIONS[others[0]]
    to.do(
        f"cp.reduce.async.bulk.tensor.{axes}d.global.shared::cta.{how}.tile.bulk_group {box}, [{_word(to, first, 0)}]"
    )


@opcodes("UBLKCP")
def _bytes(op: Op, to: Writer) -> None:
    """``UBLKCP.S.G [UR6], [UR4], UR8``: UR7 is the mbarrier, UR8 the bytes / 16; ``UBLKCP.G.S [UR4], [UR6], UR8``; ``UBLKCP.S.S [UR6],
    [UR5], UR8`` to another CTA."""
    _known(op, 3, "S", "G")
    if op.words == ("S", "S"):
        target, barrier = (_word(to, _uniform(op, 0), above) for above in (0, 1))
        given, size = _word(to, _uniform(op, 1), 0), to.r("shl.b32", _word(to, _uniform(op, 2), 0), 4)
        once(to)
        to.do(
            f"cp.async.bulk.shared::cluster.shared::cta.{_ARRIVES} [{target}], [{given}], {size}, [{barrier}]"
        )
        return
    loads = op.words == ("S", "G")
    near, far = (_uniform(op, 0), _uniform(op, 1)) if loads else (_uniform(op, 1), _uniform(op, 0))
    size, place = to.r("shl.b32", _word(to, _uniform(op, 2), 0), 4), to.wide(far)
    once(to)
    if loads:
        target = f"[{_word(to, near, 0)}], [{place}], {size}, [{_word(to, near, 1)}]"
        to.do(f"cp.async.bulk.shared::cluster.global.{_ARRIVES} {target}")
    elif op.words == ("G", "S"):
        to.do(f"cp.async.bulk.global.shared::cta.bulk_group [{place}], [{_word(to, near, 0)}], {size}")
    else:
        raise NotRun(f"{op.item.text} is not known here")


@opcodes("UBLKRED")
def _reduce_bytes(op: Op, to: Writer) -> None:
    _known(op, 3, "S", "G", *_REDUCTIONS)
    if op.words[:2] != ("G", "S") or len(op.words) != 3:
        raise NotRun(f"{op.item.text} is not known here")
    size, place = to.r("shl.b32", _word(to, _uniform(op, 2), 0), 4), to.wide(_uniform(op, 0))
    near = _word(to, _uniform(op, 1), 0)
    once(to)
    to.do(
        f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{_REDUCTIONS[op.words[2]]} [{place}], [{near}], {size}"
    )


@opcodes("UTMACMDFLUSH")
def _flush(op: Op, to: Writer) -> None:
    """``DEPBAR`` waits for copies; here they have completed by then."""
    to.do("cp.async.bulk.commit_group")
    to.do("cp.async.bulk.wait_group 0")


@opcodes("UTMAPF", "UBLKPF", "UTMACCTL")
def _ahead(op: Op, to: Writer) -> None:
    """Prefetches and eviction hints change no values."""


def _signalled(op: Op, to: Writer) -> tuple[str, str]:
    """The address in the cluster, and that of the mbarrier there, which the next register holds."""
    place = op.operands[0]
    if not isinstance(place, Address) or len(place.parts) != 1 or place.offset:
        raise NotRun(f"{op.item.text} is not known here")
    first = place.parts[0]
    where, barrier = (to.word(Register(first.uniform, first.number + above)) for above in (0, 1))
    return where, barrier


@opcodes("REDAS")
def _signalling_reduction(op: Op, to: Writer) -> None:
    """``REDAS.ADD.S32 [R2.64], R4``: R2 is the address in the cluster, R3 the mbarrier there."""
    name, *types = op.words
    source = op.operands[1]
    if name not in _TENSOR_REDUCTIONS or types not in ([], ["S32"], ["64"]):
        raise NotRun(f"{op.item.text} is not known here")
    kind = {"S32": "s32", "64": "u64"}.get("".join(types), "b32" if name in ("AND", "OR", "XOR") else "u32")
    where, barrier = _signalled(op, to)
    value = to.wide(source) if kind == "u64" else to.word(source)
    to.do(
        f"red.async.relaxed.cluster.shared::cluster.{_ARRIVES}.{_TENSOR_REDUCTIONS[name]}.{kind} [{where}], {value}, [{barrier}]"
    )


@opcodes("STAS")
def _signalling_store(op: Op, to: Writer) -> None:
    """``STAS.64 [R6.64], R4``: R6 is the address in the cluster, R7 the mbarrier there."""
    source = op.operands[1]
    count = {(): 1, ("64",): 2, ("128",): 4}.get(op.words)
    if count is None:
        raise NotRun(f"{op.item.text} is not known here")
    where, barrier = _signalled(op, to)
    vector = f".v{count}" if count > 1 else ""
    assert isinstance(source, Register)
    to.do(
        f"st.async.shared::cluster.{_ARRIVES}{vector}.b32 [{where}], {to.sources(source, count)}, [{barrier}]"
    )
