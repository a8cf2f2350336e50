"""Machine instructions on integers, bits and predicates.

The semantics follow NVIDIA's one-line descriptions ("CUDA Binary Utilities", instruction set reference), made precise by the
instructions that ``ptxas`` generates for PTX with exact definitions; ``tests/sass`` compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .mbarriers import await_phase
from .operands import Immediate, Operand, Predicate, Register
from .writer import NotRun, Op, Writer, opcodes

__all__: list[str] = []


def _flags(op: Op, start: int) -> list[Predicate]:
    """The consecutive predicate destinations from an operand on."""
    flags: list[Predicate] = []
    for operand in op.operands[start:]:
        if not isinstance(operand, Predicate):
            break
        flags.append(operand)
    return flags


def _unsigned(to: Writer, operand: Operand | None) -> str:
    """An operand zero-extended to 64 bits. A negated one is ~x + 1 of the zero-extended complement, whose sum has the carry of a
    subtraction."""
    if getattr(operand, "negated", False):
        inverse = to.zext(to.r("not.b32", to.plain(operand)))
        return to.q("add.s64", inverse, 1)
    if isinstance(operand, Immediate):
        return to.q("mov.b64", to.plain(operand))
    return to.zext(to.word(operand))


def _sum(to: Writer, target: Operand | None, flags: list[Predicate], terms: list[str]) -> None:
    """Writes a sum of 64-bit terms, with its carries in ``flags``."""
    total = terms[0]
    for term in terms[1:]:
        total = to.q("add.s64", total, term)
    to.put(target, to.low(total))
    carry = to.q("shr.u64", total, 32)
    for count, flag in enumerate(flags, 1):
        to.put_flag(flag, to.p("setp.ge.u64", carry, count))


@opcodes("IADD3")
def _iadd3(op: Op, to: Writer) -> None:
    op.allow("X", "64")
    flags = _flags(op, 1)
    if "64" in op:
        _wide_sum(op, to)
        return
    rest = op.operands[1 + len(flags) :]
    values, ins = rest[:3], rest[3:]
    carries = [flag for flag in ins if to.predicate(flag) != "%PF"] if "X" in op else []
    if not flags:
        _add(to, op.operands[0], [*map(to.word, values), *map(to.bit, carries)])
    elif len(flags) == 1 and not carries and _carry_of_two(to, op.operands[0], flags[0], values):
        return
    else:
        terms = [_unsigned(to, value) for value in values]
        _sum(to, op.operands[0], flags, [*terms, *(to.zext(to.bit(flag)) for flag in carries)])


def _add(to: Writer, target: Operand | None, terms: list[str]) -> None:
    """Writes a 32-bit sum."""
    terms = [term for term in terms if term != "0"] or ["0"]
    total = terms[0]
    for term in terms[1:-1]:
        total = to.r("add.s32", total, term)
    if len(terms) == 1:
        to.put(target, total)
    else:
        to.compute(target, "add.s32", total, terms[-1])


def _carry_of_two(to: Writer, target: Operand | None, flag: Predicate, values: list[Operand | None]) -> bool:
    """Writes a sum or difference of two registers and its carry, if the third operand is zero. Returns whether it did."""
    given = [value for value in values if not (isinstance(value, Register) and value.is_zero)]
    below = [value for value in given if getattr(value, "negated", False)]
    if len(given) != 2 or len(below) > 1 or not all(isinstance(value, Register) for value in given):
        return False
    if any(isinstance(value, Register) and value.is_zero and value.negated for value in values):
        return False
    if below:
        one = next(to.word(value) for value in given if value is not below[0])
        other = to.plain(below[0])
        total, carry = to.r("sub.s32", one, other), to.p("setp.ge.u32", one, other)
    else:
        one, other = map(to.word, given)
        total = to.r("add.s32", one, other)
        carry = to.p("setp.lt.u32", total, one)
    to.put(target, total)
    to.put_flag(flag, carry)
    return True


def _wide_sum(op: Op, to: Writer) -> None:
    """Adds register pairs, from Hopper on."""
    target, flags = op.operands[0], [flag for flag in _flags(op, 1) if flag.number >= 0]
    rest = [item for item in op.operands[1 + len(_flags(op, 1)) :] if not isinstance(item, Predicate)]
    ins = [item for item in op.operands[1 + len(_flags(op, 1)) :] if isinstance(item, Predicate)]
    if flags or ins:
        _wide_carry(op, to, flags, rest, ins)
        return
    total, *others = (to.wide(value) for value in rest)
    for other in others:
        total = to.q("add.s64", total, other)
    to.put_wide(target, total)


def _wide_carry(
    op: Op,
    to: Writer,
    flags: Sequence[Predicate],
    values: Sequence[Operand | None],
    carries: Sequence[Operand | None],
) -> None:
    """``IADD.64 R6, P2, R18, -R16`` and ``IADD.64.X R36, P0, R20, ~R14, P2``: with the carry out of bit 63, and a carry in."""
    values = sorted(values, key=lambda item: bool(getattr(item, "negated", False)))
    if (
        len(values) != 2
        or len(flags) > 1
        or len(carries) != ("X" in op)
        or getattr(values[0], "negated", False)
    ):
        raise NotRun(f"{op.item.text} is not known here")
    one, other = (
        to.wide(replace(item, negated=False) if isinstance(item, Register) else item) for item in values
    )
    minus = getattr(values[1], "negated", False)
    if minus:
        other = to.q("not.b64", other)
    more = to.bit(carries[0]) if carries else str(int(minus))
    total = to.q("add.s64", to.q("add.s64", one, other), to.zext(to.r("mov.b32", more)))
    # The sum is smaller than a term, or equal to it with a carry in, if it passed 2⁶⁴.
    over = to.p("setp.lt.u64", total, one)
    same = to.p("and.pred", to.p("setp.eq.u64", total, one), to.p("setp.ne.b32", more, 0))
    for flag in flags:
        to.put_flag(flag, to.p("or.pred", over, to.p("and.pred", same, to.p("setp.ne.u64", other, 0))))
    to.put_wide(op.operands[0], total)


@opcodes("VIADD", "IADD")
def _viadd(op: Op, to: Writer) -> None:
    op.allow("64", "16x2", "U8x4", *(("X",) if "64" in op else ()))
    if "64" in op:
        _wide_sum(op, to)
        return
    if "U8x4" in op:
        one, other = op.operands[1:3]
        minus = getattr(other, "negated", False)
        words = _named(to, to.plain(one)), _named(to, to.plain(other)), to.r("mov.b32", 0)
        to.put(op.operands[0], to.r(f"v{'sub' if minus else 'add'}4.u32.u32.u32", *words))
        return
    kind = "u16x2" if "16x2" in op else "s32"
    if "16x2" in op and any(getattr(item, "negated", False) for item in op.operands):
        raise NotRun(f"{op.item.text} is not known here")
    if kind == "s32":
        _add(to, op.operands[0], [to.word(item) for item in op.operands[1:3]])
        return
    to.put(op.operands[0], to.r(f"add.{kind}", *(_named(to, to.word(item)) for item in op.operands[1:3])))


@opcodes("IMAD")
def _imad(op: Op, to: Writer) -> None:
    op.allow("X", "WIDE", "HI", "U32", "MOV", "IADD", "SHL")
    target, flags = op.operands[0], _flags(op, 1)
    a, b, c, *ins = op.operands[1 + len(flags) :]
    kind = "u32" if "U32" in op else "s32"
    if "WIDE" in op or "HI" in op:
        if "WIDE" in op and not flags and "X" not in op:
            factors = to.word(a), to.word(b)
            if isinstance(c, Register) and c.is_zero:
                to.put_wide(target, to.q(f"mul.wide.{kind}", *factors))
            else:
                to.put_wide(target, to.q(f"mad.wide.{kind}", *factors, to.wide(c)))
            return
        product = to.q(f"mul.wide.{kind}", to.word(a), to.word(b))
        added = to.wide(c)
        total = to.q("add.s64", product, added)
        over = to.p("setp.lt.u64", total, added) if flags else ""
        if "X" in op:
            before, total = total, to.q("add.s64", total, to.zext(to.bit(ins[0])))
            if flags:
                over = to.p("or.pred", over, to.p("setp.lt.u64", total, before))
        if "WIDE" in op:
            to.put_wide(target, total)
        else:
            to.put(target, to.high(total))
        if len(flags) > 1:
            raise NotRun(f"the carry of {op.item.opcode} is not known here")
        for flag in flags:
            to.put_flag(flag, over)
        return
    if flags:
        raise NotRun(f"the carry of {op.item.opcode} is not known here")
    factors, added = (to.word(a), to.word(b)), to.word(c)
    if "X" in op:
        to.compute(target, "add.s32", to.r("mad.lo.s32", *factors, added), to.bit(ins[0]))
    elif "0" in factors:
        to.put(target, added)
    else:
        to.compute(target, "mad.lo.s32", *factors, added)


@opcodes("LEA")
def _lea(op: Op, to: Writer) -> None:
    op.allow("HI", "X", "SX32")
    target, flags = op.operands[0], _flags(op, 1)
    rest = op.operands[1 + len(flags) :]
    carry = rest.pop() if "X" in op else None
    a, b, *more = rest
    shift = more[-1]
    if not isinstance(shift, Immediate) or shift.value is None:
        raise NotRun("LEA shifts by a register")
    by = shift.value & 31
    if "HI" in op:
        if getattr(a, "negated", False):
            raise NotRun("LEA.HI of a negative")
        upper = to.r("shr.s32", to.word(a), 31) if "SX32" in op else to.word(more[0])
        if upper == "0":
            scaled = to.r("shr.u32", to.word(a), 32 - by)
        else:
            scaled = to.r("shf.r.clamp.b32", _named(to, to.word(a)), _named(to, upper), 32 - by)
    else:
        scaled = to.r("shl.b32", to.word(a), by)
    if not flags:
        _add(to, target, [scaled, to.word(b), *([] if carry is None else [to.bit(carry)])])
        return
    terms = [to.zext(scaled), _unsigned(to, b)]
    if carry is not None:
        terms.append(to.zext(to.bit(carry)))
    _sum(to, target, flags, terms)


def _named(to: Writer, value: str) -> str:
    return value if value.startswith("%") else to.r("mov.b32", value)


@opcodes("SHF")
def _shf(op: Op, to: Writer) -> None:
    op.allow("L", "R", "U32", "S32", "U64", "S64", "HI", "W")
    target, low, by, high = op.operands
    wide = "U64" in op or "S64" in op
    if isinstance(by, Immediate) and by.value is not None and by.value < 32:
        _funnel(op, to, str(by.value))
        return
    if not wide:
        _funnel(op, to, to.r("and.b32", to.word(by), 31) if "W" in op else to.word(by))
        return
    count = to.word(by)
    count = to.r("and.b32", count, 63) if "W" in op else to.r("min.u32", count, 64)
    both = to.q("mov.b64", f"{{{_named(to, to.word(low))}, {_named(to, to.word(high))}}}")
    signed = "S32" in op or "S64" in op
    moved = to.q("shl.b64" if "L" in op else f"shr.{'s' if signed else 'u'}64", both, count)
    to.put(target, to.high(moved) if "HI" in op else to.low(moved))


def _funnel(op: Op, to: Writer, count: str) -> None:
    """Shifts by at most 32: a funnel shift of two words, or a shift of the lower or upper word alone."""
    target, low, _, high = op.operands
    left, upper = "L" in op, "HI" in op
    if left == upper:
        way = "l" if left else "r"
        words = (_named(to, to.word(low)), _named(to, to.word(high)))
        to.compute(target, f"shf.{way}.clamp.b32", *words, count)
    elif left:
        to.compute(target, "shl.b32", to.word(low), count)
    else:
        to.compute(target, "shr.s32" if "S32" in op or "S64" in op else "shr.u32", to.word(high), count)


@opcodes("LOP3")
def _lop3(op: Op, to: Writer) -> None:
    op.allow("LUT", "PAND")
    await_phase(op, to)
    flags = _flags(op, 0)
    rest = op.operands[len(flags) :]
    target, a, b, c, table, combined = rest
    assert isinstance(table, Immediate)
    words = to.word(a), to.word(b), to.word(c)
    if not flags:
        to.compute(target, "lop3.b32", *words, table.value)
        return
    value = to.r("lop3.b32", *words, table.value)
    for flag in flags:
        some = to.p("setp.ne.b32", value, 0)
        how = "and.pred" if "PAND" in op else "or.pred"
        to.put_flag(flag, to.p(how, some, to.predicate(combined)))
    to.put(target, value)


@opcodes("PLOP3")
def _plop3(op: Op, to: Writer) -> None:
    op.allow("LUT")
    first, second, a, b, c, *tables = op.operands
    numbers = [to.bit(item) for item in (a, b, c)]
    for flag, table in zip((first, second), tables):
        if isinstance(flag, Predicate) and flag.number < 0:
            continue
        assert isinstance(table, Immediate)
        value = to.r("lop3.b32", *numbers, table.value)
        value = to.r("and.b32", value, 1)
        to.put_flag(flag, to.p("setp.ne.b32", value, 0))


@opcodes("ISETP")
def _isetp(op: Op, to: Writer) -> None:
    compare, *words = op.words
    kind = "u" if "U32" in words else "s"
    if not {*words} <= {"U32", "S32", "U64", "S64", "AND", "OR", "XOR", "EX"} or compare not in _COMPARES:
        raise NotRun(f"{op.item.opcode} is not known here")
    first, second, a, b, combined, *lower = op.operands
    wide = next((word for word in words if word in ("U64", "S64")), "")
    if wide:
        value = to.p(f"setp.{compare.lower()}.{wide.lower()}", to.wide(a), to.wide(b))
        set_flags(op, to, value, (first, second), combined)
        return
    x, y = to.word(a), to.word(b)
    if "EX" in words:
        low = to.predicate(lower[0])
        same = to.p("setp.eq.b32", x, y)
        if compare == "EQ":
            value = to.p("and.pred", same, low)
        else:
            strict = {"GE": "gt", "GT": "gt", "LE": "lt", "LT": "lt", "NE": "ne"}[compare]
            apart = to.p(f"setp.{strict}.{kind}32", x, y)
            value = to.p("or.pred", apart, to.p("and.pred", same, low))
    else:
        value = to.p(f"setp.{compare.lower()}.{kind}32", x, y)
    set_flags(op, to, value, (first, second), combined)


_COMPARES = ("EQ", "NE", "LT", "LE", "GT", "GE")


def set_flags(
    op: Op, to: Writer, value: str, targets: tuple[Operand | None, Operand | None], combined: Operand | None
) -> None:
    """Writes the result of a comparison, combined with a predicate, and the complement of the comparison."""
    how = next(word for word in op.words if word in ("AND", "OR", "XOR")).lower()
    other = to.predicate(combined)
    results: list[str] = []
    for negate in (False, True):
        target = targets[negate]
        if isinstance(target, Predicate) and target.number < 0:
            results.append("")
            continue
        tested = to.p("not.pred", value) if negate else value
        results.append(tested if (how, other) == ("and", "%PT") else to.p(f"{how}.pred", tested, other))
    for target, result in zip(targets, results):
        if result:
            to.put_flag(target, result)


@opcodes("SEL")
def _sel(op: Op, to: Writer) -> None:
    op.allow("64")
    target, a, b, flag = op.operands
    if "64" in op:
        to.put_wide(target, to.q("selp.b64", to.wide(a), to.wide(b), to.predicate(flag)))
        return
    to.compute(target, "selp.b32", to.word(a), to.word(b), to.predicate(flag))


@opcodes("IMNMX", "VIMNMX")
def _imnmx(op: Op, to: Writer) -> None:
    op.allow("U32", "S32", "U64", "S64", "U16x2", "S16x2", "U8x4", "RELU")
    if "U64" in op or "S64" in op:
        _wide_least(op, to)
        return
    target, a, b, flag = _without_flags(op)
    if "U8x4" in op:
        words = _named(to, to.word(a)), _named(to, to.word(b)), to.r("mov.b32", 0)
        ends = [to.r(f"v{name}4.u32.u32.u32", *words) for name in ("min", "max")]
        to.put(target, to.r("selp.b32", *ends, to.predicate(flag)))
        return
    if "U16x2" in op or "S16x2" in op:
        kind = f"{'u' if 'U16x2' in op else 's'}16x2{'.relu' * ('RELU' in op)}"
        ends = [
            to.r(f"{name}.{kind}", _named(to, to.word(a)), _named(to, to.word(b))) for name in ("min", "max")
        ]
        to.put(target, to.r("selp.b32", *ends, to.predicate(flag)))
        return
    to.put(target, _least(op, to, to.word(a), to.word(b), flag))


def _wide_least(op: Op, to: Writer) -> None:
    """``IMNMX.U64 PT, PT, R22, R4, R2, !PT, !PT`` of Blackwell: the flags in front are those of ``_without_flags``; the last operand
    is only known as ``!PT``."""
    least, unused = op.operands.pop(-2), op.operands.pop()
    if to.predicate(unused) != "%PF" or any(flag.number >= 0 for flag in _flags(op, 0)):
        raise NotRun(f"{op.item.text} is not known here")
    target, a, b = op.operands[2:]
    kind = "u64" if "U64" in op else "s64"
    ends = [to.q(f"{name}.{kind}", to.wide(a), to.wide(b)) for name in ("min", "max")]
    to.put_wide(target, to.q("selp.b64", *ends, to.predicate(least)))


@opcodes("VIADDMNMX")
def _viaddmnmx(op: Op, to: Writer) -> None:
    op.allow("U32", "RELU")
    target, a, b, c, flag = _without_flags(op)
    to.put(target, _least(op, to, to.r("add.s32", to.word(a), to.word(b)), to.word(c), flag))


@opcodes("VIMNMX3")
def _vimnmx3(op: Op, to: Writer) -> None:
    op.allow("U32", "RELU")
    target, a, b, c, flag = _without_flags(op)
    first = _least(op, to, to.word(a), to.word(b), flag)
    to.put(target, _least(op, to, first, to.word(c), flag))


def _without_flags(op: Op) -> list[Operand | None]:
    """The operands without the predicates after the destination: Blackwell has two, which must be PT."""
    flags = _flags(op, 1)
    if any(flag.number >= 0 for flag in flags):
        raise NotRun(f"{op.item.text} is not known here")
    return [op.operands[0], *op.operands[1 + len(flags) :]]


def _least(op: Op, to: Writer, x: str, y: str, flag: Operand | None) -> str:
    kind = "u32" if "U32" in op else "s32"
    smaller, larger = to.r(f"min.{kind}", x, y), to.r(f"max.{kind}", x, y)
    value = to.r("selp.b32", smaller, larger, to.predicate(flag))
    return to.r("max.s32", value, 0) if "RELU" in op else value


@opcodes("IABS")
def _iabs(op: Op, to: Writer) -> None:
    op.allow()
    to.put(op.operands[0], to.r("abs.s32", to.word(op.operands[1])))


@opcodes("VABSDIFF4")
def _vabsdiff4(op: Op, to: Writer) -> None:
    """Absolute differences of four bytes, or with ``ACC`` their sum."""
    op.allow("U8", "ACC")
    target, a, b, c = op.operands
    if "U8" not in op or not ("ACC" in op or (isinstance(c, Register) and c.is_zero)):
        raise NotRun(f"{op.item.text} is not known here")
    words = (_named(to, to.word(item)) for item in (a, b, c))
    to.put(target, to.r(f"vabsdiff4.u32.u32.u32{'.add' * ('ACC' in op)}", *words))


@opcodes("VABSDIFF")
def _vabsdiff(op: Op, to: Writer) -> None:
    op.allow("U32")
    target, a, b, c = op.operands
    kind = "u32" if "U32" in op else "s32"
    to.put(target, to.r(f"sad.{kind}", to.word(a), to.word(b), to.word(c)))


@opcodes("PRMT")
def _prmt(op: Op, to: Writer) -> None:
    op.allow()
    target, a, selector, b = op.operands
    to.put(target, to.r("prmt.b32", to.word(a), to.word(b), to.word(selector)))


@opcodes("SGXT")
def _sgxt(op: Op, to: Writer) -> None:
    op.allow("U32", "W")
    target, a, count = op.operands
    kind = "u32" if "U32" in op else "s32"
    if "W" in op:
        to.put(target, to.r(f"szext.wrap.{kind}", to.word(a), to.word(count)))
    else:
        to.put(target, to.r(f"bfe.{kind}", to.word(a), 0, to.word(count)))


@opcodes("BMSK")
def _bmsk(op: Op, to: Writer) -> None:
    op.allow("C", "W")
    target, start, count = op.operands
    to.put(target, to.r(f"bmsk.{'wrap' if 'W' in op else 'clamp'}.b32", to.word(start), to.word(count)))


@opcodes("FLO")
def _flo(op: Op, to: Writer) -> None:
    op.allow("U32", "SH")
    place = ".shiftamt" if "SH" in op else ""
    source = op.operands[-1]
    to.put(op.operands[0], to.r(f"bfind{place}.{'u32' if 'U32' in op else 's32'}", to.word(source)))


@opcodes("POPC")
def _popc(op: Op, to: Writer) -> None:
    op.allow()
    to.put(op.operands[0], to.r("popc.b32", to.word(op.operands[1])))


@opcodes("BREV")
def _brev(op: Op, to: Writer) -> None:
    op.allow()
    to.put(op.operands[0], to.r("brev.b32", to.word(op.operands[1])))


@opcodes("IDP")
def _idp(op: Op, to: Writer) -> None:
    """``IDP.4A.S8.U8`` and ``IDP.2A.LO.S16.U8``."""
    *form, first, second = op.words
    if form not in (["4A"], ["2A", "LO"], ["2A", "HI"]):
        raise NotRun(f"{op.item.opcode} is not known here")
    kinds = ".".join("u32" if word[0] == "U" else "s32" for word in (first, second))
    target, a, b, c = op.operands
    name = f"dp{'.'.join(form).lower()}"
    to.put(target, to.r(f"{name}.{kinds}", to.word(a), to.word(b), to.word(c)))


@opcodes("MOV", "R2UR")
def _mov(op: Op, to: Writer) -> None:
    op.allow("64", "BROADCAST", "SPILL", "FILL", *(("OR",) if op.base == "R2UR" else ()))
    if "64" in op:
        to.put_wide(op.operands[0], to.wide(op.operands[1]))
        return
    source = op.operands[-1] if not isinstance(op.operands[1], Register) else op.operands[1]
    if isinstance(source, Immediate) and len(op.operands) > 2:
        source = op.operands[1]
    if source is None and "@" in op.texts[1]:
        to.put(op.operands[0], "0")  # the return address of a call, which the control flow graph gives
        return
    if op.base == "R2UR" and (to.guard or isinstance(op.operands[0], Predicate)):
        _of_one_lane(op, to, to.word(op.operands[-1]))
        return
    to.put(op.operands[0], to.word(source))


def _of_one_lane(op: Op, to: Writer, value: str) -> None:
    """``@!P0 R2UR UR4, R2``: a uniform register is shared by all lanes and gets the value of the lowest lane for which the guard
    holds. ``@P0 R2UR P1, UR4, R2`` also tells each of these lanes whether its value is another one; ``OR``: or P1 held before."""
    flags, guard = _flags(op, 0), to.guard
    there, chosen, lane, given = (to.fresh("r") for _ in range(4))
    value = _named(to, value)
    to.line(f"activemask.b32 {there}")
    to.line(f"vote.sync.ballot.b32 {chosen}, {guard.strip()[1:] or '%PT'}, {there}")
    first = to.r("and.b32", chosen, to.r("neg.s32", chosen))
    to.line(f"bfind.u32 {lane}, {first}")
    to.line(f"shfl.sync.idx.b32 {given}, {value}, {lane}, 31, {there}")
    for flag in flags:
        other = to.p("setp.ne.b32", value, given)
        to.put_flag(flag, to.p("or.pred", other, to.predicate(flag)) if "OR" in op else other)
    to.guard = f"@{to.p('setp.ne.b32', chosen, 0)} "
    to.put(op.operands[len(flags)], given)


@opcodes("P2R")
def _p2r(op: Op, to: Writer) -> None:
    if op.words:
        raise NotRun(f"{op.item.opcode} is not known here")
    target, kept, mask = op.operands[0], op.operands[-2], op.operands[-1]
    if op.texts[1] not in ("PR", "UPR") or not isinstance(mask, Immediate) or mask.value is None:
        raise NotRun(f"{op.item.text} is not known here")
    value = to.r("and.b32", to.word(kept), ~mask.value & 0xFFFFFFFF)
    for number in range(7):
        if mask.value >> number & 1:
            bit = to.r("selp.b32", 1 << number, 0, to.flag(Predicate(op.texts[1] == "UPR", number, False)))
            value = to.r("or.b32", value, bit)
    to.put(target, value)


@opcodes("R2P")
def _r2p(op: Op, to: Writer) -> None:
    source, mask = op.operands[1], op.operands[2]
    if op.words or not isinstance(source, Register) or not isinstance(mask, Immediate) or mask.value is None:
        raise NotRun(f"{op.item.text} is not known here")
    byte = next((int(word[1]) for word in source.words if word in ("B1", "B2", "B3")), 0)
    for number in range(7):
        if mask.value >> number & 1:
            bit = to.r("and.b32", to.plain(source), 1 << number + 8 * byte)
            to.put_flag(Predicate(False, number, False), to.p("setp.ne.b32", bit, 0))
