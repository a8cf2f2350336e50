"""Machine instructions of mbarriers.

From Hopper on, instructions of their own (``SYNCS``) change an mbarrier, and the run uses the mbarriers of PTX. On Ampere, ``ptxas``
implements them by ordinary accesses to their 64-bit state, except for the arrival (``ATOMS.ARRIVE``).
"""

from __future__ import annotations

from .operands import Address, Constant, Predicate, Register, read_operand
from .writer import NotRun, Op, Writer, both, opcodes

__all__: list[str] = []

#: The lower word of an Ampere state is 2³⁰ minus the expected arrivals. The upper word holds 2³¹ minus the pending arrivals in its
#: lower 31 bits, and the phase in bit 31, into which the last arrival carries.
_PENDING, _RELOAD = (1 << 31) - 1, 1 << 30


def _arrived(op: Op, to: Writer, place: object) -> tuple[str, str]:
    """Lets each lane arrive at a state in memory. Returns both words of the state before."""
    if not isinstance(place, Address):
        raise NotRun(f"{op.item.text} is not known here")
    base, _, offset = to.own(place)[1:-1].partition("+")
    start = to.r("add.s32", base, offset or 0)
    expected, pending = to.fresh("r"), to.fresh("r")
    to.do(f"ld.shared.b32 {expected}, [{start}]")
    to.do(f"atom.relaxed.cta.shared.add.u32 {pending}, [{start}+4], 1")
    # The last arrival of a phase starts the next one. Sums commute with arrivals of other lanes.
    last = to.p("setp.eq.b32", to.r("and.b32", pending, _PENDING), _PENDING)
    guard, to.guard = to.guard, both(to, last)
    to.do(f"red.relaxed.cta.shared.add.u32 [{start}+4], {to.r('add.s32', expected, _RELOAD)}")
    to.guard = guard
    return expected, pending


def arrive(op: Op, to: Writer) -> None:
    """``ATOMS.ARRIVE.64 R6, [R4]``: returns the state before the arrival."""
    if op.words != ("ARRIVE", "64"):
        raise NotRun(f"{op.item.opcode} is not known here")
    target, place = op.operands
    for above, value in enumerate(_arrived(op, to, place)):
        to.put(target, value, above)


@opcodes("ARRIVES")
def _arrives(op: Op, to: Writer) -> None:
    """An arrival when the copies of the lane have completed, which they do at once. From Hopper on, ``SYNCS`` added a pending
    arrival, and both cancel."""
    if op.words == ("LDGSTSBAR", "64"):
        _arrived(op, to, op.operands[0])
    elif op.words != ("LDGSTSBAR", "64", "TRANSCNT"):
        raise NotRun(f"{op.item.opcode} is not known here")


def note_phase(op: Op, to: Writer, where: str) -> None:
    """Keeps the address of a phase that ``LDS R5, [R4+0x4]`` loads for a test on Ampere (``await_phase``)."""
    number = op.item.ptx
    if not op.words and 0 < number <= len(to.instructions) and "_wait" in to.instructions[number - 1].opcode:
        base, _, offset = where[1:-1].partition("+")
        to.phases[op.texts[0]] = to.r("add.s32", base, offset or 0)


def await_phase(op: Op, to: Writer) -> None:
    """``LOP3.LUT P0, RZ, R5, 0x80000000, R10, 0x48, !PT`` tests whether a loaded phase is another one than that of a state. A wait
    counts as one test (``ordering``), so the phase is loaded again here until it succeeds."""
    loaded = [text for text in op.texts if text.removesuffix(".reuse") in to.phases]
    if to.guard or "0x48" not in op.texts or len(loaded) != 1:
        return
    states = [
        item
        for text, item in zip(op.texts, op.operands)
        if text != loaded[0]
        and isinstance(item, (Register, Constant))
        and not (isinstance(item, Register) and item.is_zero)
    ]
    target = read_operand(loaded[0])
    if len(states) != 1 or not isinstance(target, Register):
        raise NotRun(f"{op.item.text} is not known here")
    held, state = to.name(target), to.word(states[0])
    label, after = (f"W{len(to.lines)}{name}" for name in ("", "D"))
    to.lines.append(f"{label}:")
    done = to.p("setp.ne.b32", to.r("lop3.b32", held, 1 << 31, state, 0x48), 0)
    to.lines.append(f"@{done} bra {after};")
    to.line(f"ld.volatile.shared.b32 {held}, [{to.phases[loaded[0].removesuffix('.reuse')]}]")
    to.lines += [f"bra {label};", f"{after}:"]


def initialise(op: Op, to: Writer) -> None:
    """``STS.64 [R2], R4`` or ``SYNCS.EXCH.64 URZ, [R2], R4`` with the state of a new mbarrier, which contains 2²⁰ minus the arrivals
    twice, from bits 1 and 43 on."""
    place, source = op.operands[-2:]
    state = to.r("shr.u32", to.word(source), 1)
    to.do(f"mbarrier.init.shared.b64 {to.address32(place)}, {to.r('sub.s32', 1 << 20, state)}")


@opcodes("SYNCS")
def _syncs(op: Op, to: Writer) -> None:
    """The highest bit of a register is the parity to wait for, also of the state that an arrival returns.
    ``cp.async.mbarrier.arrive`` adds a pending arrival (``A0T1``) for copies, which complete here immediately (``ARRIVES``)."""
    if op.words == ("CCTL", "IVALL"):
        return
    if op.words == ("CCTL", "IV"):
        to.do(f"mbarrier.inval.shared.b64 {to.address32(op.operands[0])}")
        return
    target, place, source = op.operands[:3]
    where = to.address32(place)
    unused = isinstance(target, Register) and target.is_zero
    if op.words == ("EXCH", "64") and unused:
        initialise(op, to)
    elif op.words == ("ARRIVE", "TRANS64", "A1T0") and isinstance(target, Register):
        if not target.is_zero:
            odd = to.fresh("p")
            to.do(f"mbarrier.test_wait.parity.shared.b64 {odd}, {where}, 0")
            to.put(target, "0")
            to.put(target, to.r("selp.b32", 1 << 31, 0, odd), 1)
        to.do(f"mbarrier.arrive.shared.b64 {to.fresh('q')}, {where}")
    elif op.words == ("ARRIVE", "TRANS64", "OPTOUT", "A1T0") and unused:
        to.do(f"mbarrier.arrive_drop.shared.b64 {to.fresh('q')}, {where}")
    elif op.words == ("ARRIVE", "TRANS64", "RED", "A0TR") and unused:
        to.do(f"mbarrier.expect_tx.relaxed.cta.shared::cta.b64 {where}, {to.word(source)}")
    elif op.words == ("ARRIVE", "TRANS64", "RED", "A0T1") and unused:
        return
    elif op.words == ("ARRIVE", "TRANS64") and unused:
        to.do(f"mbarrier.arrive.expect_tx.shared.b64 {to.fresh('q')}, {where}, {to.word(source)}")
    elif op.words in (("PHASECHK", "TRANS64", "TRYWAIT"), ("PHASECHK", "TRANS64")):
        parity, done = to.r("shr.u32", to.word(source), 31), to.fresh("p")
        name = "try_wait" if "TRYWAIT" in op else "test_wait"
        to.do(f"mbarrier.{name}.parity.shared.b64 {done}, {where}, {parity}")
        to.put_flag(target, done)
    else:
        raise NotRun(f"{op.item.opcode} is not known here")


@opcodes("USETMAXREG")
def _registers(op: Op, to: Writer) -> None:
    """Registers are available immediately."""
    if isinstance(op.operands[0], Predicate):
        to.put_flag(op.operands[0], "%PT")
