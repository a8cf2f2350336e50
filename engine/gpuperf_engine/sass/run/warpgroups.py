"""Machine instructions of warpgroups: products with factors in shared memory."""

from __future__ import annotations

import re

from .operands import Immediate, Predicate, Register, read_operand
from .writer import NotRun, Op, Writer, opcodes

__all__: list[str] = []

_SHAPE = re.compile(r"64x(\d+)x(\d+)$")
_DESCRIPTOR = re.compile(r"gdesc\[(UR\d+)\]((?:\.tnsp[AB])*)$")


def _types(op: Op) -> tuple[str, str, str]:
    """The types of the sums and of both factors in PTX: ``QGMMA.64x128x32.F32.E4M3.E5M2``."""
    words = [word.lower() for word in op.words[1:]]
    if op.base == "IGMMA" and len(words) == 2 and {*words} <= {"s8", "u8"}:
        return "s32", words[0], words[1]
    if (
        op.base == "QGMMA"
        and len(words) == 3
        and words[0] in ("f32", "f16")
        and {*words[1:]} <= {"e4m3", "e5m2"}
    ):
        return words[0], words[1], words[2]
    kind = words[1] if len(words) > 1 else "f16"
    if (
        op.base == "HGMMA"
        and 0 < len(words) < 3
        and words[0] in ("f32", "f16")
        and kind in ("f16", "bf16", "tf32")
    ):
        return words[0], kind, kind
    raise NotRun(f"{op.item.opcode} is not known here")


@opcodes("HGMMA", "QGMMA", "IGMMA")
def _product(op: Op, to: Writer) -> None:
    """``HGMMA.64x128x16.F32 R24, gdesc[UR4].tnspB, R24, gsb0``: the descriptor of A is in UR4 and UR5, that of B in the next two. If A
    is in registers, the first of four registers precedes the descriptor of B."""
    shape, types = _SHAPE.match(op.words[0]), _types(op)
    texts = [text for text in op.texts if not text.startswith("gsb")]
    committed = len(texts) < len(op.texts)
    place = next(index for index, text in enumerate(texts) if text.startswith("gdesc"))
    described = _DESCRIPTOR.match(texts[place])
    target, start = op.operands[0], op.operands[place + 1]
    scale = read_operand(texts[place + 2]) if len(texts) > place + 2 else Predicate(True, -1, False)
    if shape is None or described is None or to.guard or place > 2 or len(texts) > place + 3:
        raise NotRun(f"{op.item.text} is not known here")
    if (
        not isinstance(target, Register)
        or not isinstance(start, Register)
        or not isinstance(scale, Predicate)
    ):
        raise NotRun(f"{op.item.text} is not known here")
    if start.is_zero:
        scale = Predicate(True, -1, True)
    elif start.number != target.number or start.negated:
        raise NotRun(f"{op.item.text} is not known here")
    columns = int(shape[1])
    sums = to.vector(target, columns // (4 if types[0] == "f16" else 2))
    first = read_operand(described[1])
    assert isinstance(first, Register)
    factors = [to.wide(Register(True, first.number)), to.wide(Register(True, first.number + 2))]
    transposed = [int(f".tnsp{name}" in described[2]) for name in "AB"]
    if place == 2:
        factors = [to.vector(op.operands[1], 4), factors[1]]
        transposed = transposed[1:]
    flag = to.p("and.pred", to.predicate(scale), "%PT")
    signs = [] if types[0] == "s32" else [1, 1, *(transposed if types[1] in ("f16", "bf16") else [])]
    name = f"wgmma.mma_async.sync.aligned.m64n{columns}k{shape[2]}.{'.'.join(types)}"
    to.line(f"{name} {', '.join([sums, *factors, flag, *map(str, signs)])}")
    if committed:
        to.line("wgmma.commit_group.sync.aligned")


@opcodes("WARPGROUP")
def _warpgroup(op: Op, to: Writer) -> None:
    if op.words == ("ARRIVE",):
        to.line("wgmma.fence.sync.aligned")
        return
    left = op.operands[1] if op.words == ("DEPBAR", "LE") and len(op.operands) == 2 else None
    if not isinstance(left, Immediate) or left.value is None or to.guard:
        raise NotRun(f"{op.item.text} is not known here")
    to.line(f"wgmma.wait_group.sync.aligned {left.value}")
