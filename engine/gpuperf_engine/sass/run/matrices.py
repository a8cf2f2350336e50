"""Machine instructions that multiply matrices held by the lanes of a warp."""

from __future__ import annotations

import re

from .operands import Operand, Register
from .writer import NotRun, Op, Writer, opcodes

__all__: list[str] = []

#: Rows, columns and depth: ``HMMA.16816``, ``DMMA.8x8x4``.
_SHAPE = re.compile(r"(16|8)(x?)8\2(\d+)$")
_BITS = {"F16": 16, "BF16": 16, "TF32": 32, "S8": 8, "U8": 8, "S4": 4, "U4": 4, "E4M3": 8, "E5M2": 8, "B1": 1}


@opcodes("HMMA")
def _hmma(op: Op, to: Writer) -> None:
    op.allow(op.words[0], "F32", "F16", "BF16", "TF32")
    kind = next((word for word in op.words if word in ("BF16", "TF32")), "F16")
    _product(op, to, "f32" if "F32" in op else "f16", kind, kind)


@opcodes("QMMA")
def _qmma(op: Op, to: Writer) -> None:
    """A product of 8-bit numbers: ``QMMA.16832.F32.E4M3.E4M3 R44, R52.ROW, R56.COL, R44``, on Blackwell without ``ROW`` and
    ``COL``."""
    op.allow("16832", "F32", "F16", "E4M3", "E5M2")
    _product(op, to, "f32" if "F32" in op else "f16", *_two(op, "E4M3", "E5M2"))


@opcodes("IMMA")
def _imma(op: Op, to: Writer) -> None:
    op.allow(op.words[0], "S8", "U8", "S4", "U4", "SAT")
    _product(op, to, "s32", *_two(op, "S8", "U8", "S4", "U4"), limit=".satfinite" * ("SAT" in op))


@opcodes("BMMA")
def _bmma(op: Op, to: Writer) -> None:
    """A product of single bits: ``BMMA.168256.XOR.POPC R8, R4.ROW, R8.COL, R12``."""
    op.allow(op.words[0], "XOR", "AND", "POPC")
    _product(op, to, "s32", "B1", "B1", counted=f".{'xor' if 'XOR' in op else 'and'}.popc")


def _two(op: Op, *known: str) -> tuple[str, str]:
    """The types of the factors."""
    kinds = [word for word in op.words if word in known]
    if len(kinds) != 2:
        raise NotRun(f"{op.item.opcode} is not known here")
    return kinds[0], kinds[1]


def _product(
    op: Op, to: Writer, made: str, left: str, right: str, limit: str = "", counted: str = ""
) -> None:
    rows, depth = _shape(op)
    target, *sources = op.operands[:4]
    held = rows * depth * _BITS[left], 8 * depth * _BITS[right], rows * 8 * (16 if made == "f16" else 32)
    vectors = [_words(op, to, item, bits // 1024) for item, bits in zip(sources, held, strict=True)]
    results = [to.fresh("r") for _ in range(held[2] // 1024)]
    kinds = f"{made}.{left.lower()}.{right.lower()}.{made}{counted}"
    to.line(
        f"mma.sync.aligned.m{rows}n8k{depth}.row.col{limit}.{kinds} {{{', '.join(results)}}}, {', '.join(vectors)}"
    )
    for above, value in enumerate(results):
        to.put(target, value, above)


def _words(op: Op, to: Writer, item: Operand | None, count: int) -> str:
    if not isinstance(item, Register) or not count:
        raise NotRun(f"{op.item.text} is not known here")
    return to.vector(item, count)


@opcodes("DMMA")
def _dmma(op: Op, to: Writer) -> None:
    op.allow(op.words[0])
    rows, depth = _shape(op)
    target, *sources = op.operands[:4]
    vectors = []
    for item, count in zip(sources, (rows * depth // 32, depth // 4, rows // 4), strict=True):
        if not isinstance(item, Register) or not count:
            raise NotRun(f"{op.item.text} is not known here")
        above = [item if item.is_zero else Register(False, item.number + 2 * n) for n in range(count)]
        vectors.append(f"{{{', '.join(to.wide(register) for register in above)}}}")
    results = [to.fresh("q") for _ in range(rows // 4)]
    to.line(
        f"mma.sync.aligned.m{rows}n8k{depth}.row.col.f64.f64.f64.f64 {{{', '.join(results)}}}, {', '.join(vectors)}"
    )
    for number, value in enumerate(results):
        assert isinstance(target, Register)
        to.put_wide(target if target.is_zero else Register(False, target.number + 2 * number), value)


def _shape(op: Op) -> tuple[int, int]:
    """Rows and columns of the left factor."""
    shape = _SHAPE.match(op.words[0]) if op.words else None
    if shape is None:
        raise NotRun(f"{op.item.opcode} is not known here")
    return int(shape[1]), int(shape[3])
