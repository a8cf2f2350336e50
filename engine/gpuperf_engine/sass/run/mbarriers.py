"""Machine instructions of mbarriers.

From Hopper on, instructions of their own (``SYNCS``) change an mbarrier, and the run uses the mbarriers of PTX. On Ampere, ``ptxas``
implements them by ordinary accesses to their 64-bit state, except for the arrival (``ATOMS.ARRIVE``).
"""

from __future__ import annotations

from ...isa.mbarriers import Mbarrier
from ..listing import Decoded
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
    """An arrival when the copies of the lane have completed, which they do at once. From Hopper on, ``ARVCNT`` is an arrival, and
    ``TRANSCNT`` the end of the transaction that ``SYNCS`` expected before (``A0T1``)."""
    place = op.operands[0]
    if op.words == ("LDGSTSBAR", "64"):
        _arrived(op, to, place)
    elif op.words == ("LDGSTSBAR", "64", "ARVCNT"):
        to.do(f"cp.async.mbarrier.arrive.noinc.shared.b64 {to.address32(place)}")
    elif op.words == ("LDGSTSBAR", "64", "TRANSCNT"):
        to.do(f"mbarrier.complete_tx.relaxed.cta.shared::cta.b64 {to.address32(place)}, 1")
    else:
        raise NotRun(f"{op.item.opcode} is not known here")


#: Tests of a phase, by the function of ``LOP3``.
_TESTS = frozenset(("0x48", "0xc0", "0xc"))


def note_phase(op: Op, to: Writer, where: str) -> None:
    """Keeps the address of a phase that ``LDS R5, [R4+0x4]`` loads for a test on Ampere (``await_phase``)."""
    number = op.item.ptx
    if not op.words and 0 < number <= len(to.instructions) and "_wait" in to.instructions[number - 1].opcode:
        base, _, offset = where[1:-1].partition("+")
        to.phases[op.texts[0]] = to.r("add.s32", base, offset or 0)


def test_of(item: Decoded, register: str) -> tuple[int, str] | None:
    """The test of a phase in a register: the function of ``LOP3``, and the text of the state for ``0x48``; ``None`` if it is none.

    ``LOP3.LUT P0, RZ, R5, 0x80000000, R10, 0x48, !PT`` tests whether a loaded phase is another one than that of a state; with a
    constant parity, ``0xc0`` whether it is odd, and ``0xc`` whether it is even.
    """
    texts = [text.removesuffix(".reuse") for text in item.operands]
    tests = _TESTS.intersection(texts)
    if item.base != "LOP3" or item.predicate or len(tests) != 1 or texts.count(register) != 1:
        return None
    (test,) = tests
    states = [
        text
        for text in texts
        if text != register
        and isinstance(one := read_operand(text), (Register, Constant))
        and not (isinstance(one, Register) and one.is_zero)
    ]
    if len(states) != (test == "0x48"):
        raise NotRun(f"{item.text} is not known here")
    return int(test, 16), states[0] if states else ""


def await_phase(op: Op, to: Writer) -> None:
    """A wait counts as one test (``ordering``), so at a test of a phase the phase is loaded again until it succeeds."""
    for loaded in {text.removesuffix(".reuse") for text in op.texts} & to.phases.keys():
        test = test_of(op.item, loaded)
        target = read_operand(loaded)
        if test is None or not isinstance(target, Register):
            continue
        held, state = to.name(target), to.word(read_operand(test[1])) if test[1] else "0"
        label, after = (f"W{len(to.lines)}{name}" for name in ("", "D"))
        to.lines.append(f"{label}:")
        done = to.p("setp.ne.b32", to.r("lop3.b32", held, 1 << 31, state, test[0]), 0)
        to.lines.append(f"@{done} bra {after};")
        to.line(f"ld.volatile.shared.b32 {held}, [{to.phases[loaded]}]")
        to.lines += [f"bra {label};", f"{after}:"]


def initialise(op: Op, to: Writer) -> None:
    """``STS.64 [R2], R4`` or ``SYNCS.EXCH.64 URZ, [R2], R4`` with the state of a new mbarrier, which contains 2²⁰ minus the arrivals
    twice, from bits 1 and 43 on."""
    place, source = op.operands[-2:]
    state = to.r("shr.u32", to.word(source), 1)
    to.do(f"mbarrier.init.shared.b64 {to.address32(place)}, {to.r('sub.s32', 1 << 20, state)}")


_HALVES = {"Rpc.LO": "%RPCLO", "Rpc.HI": "%RPCHI"}
#: The changes of an mbarrier: the number of arrivals (A) and of transactions (T) of a lane, each none, one, or that in a register.
_CHANGES = {
    "A1T0": "arrive", "ART0": "arrive", "": "arrive.expect_tx", "A0TR": "expect_tx", "A0TX": "complete_tx", "A0T1": "expect_tx",
}  # fmt: skip


def _signal(op: Op, to: Writer, target: Register, where: str) -> None:
    """``SYNCS.ARRIVE.TRANS64.ART0 R2, [UR4], R2``: arrivals and expected transactions; with ``OPTOUT``, fewer arrivals in the phases
    to come; with ``RED`` without result, and perhaps in another CTA. The upper word of the result is the state before: the parity in
    bit 31, and 2²⁰ minus the pending arrivals from bit 11 on, where ``mbarrier.pending_count`` reads them.

    With ``TMASK`` (``.noComplete``) lanes at the same mbarrier get the state before all of them, and in the lower word a mask of these
    lanes, with which code computes the states of the others. Here each gets its own state, and an empty mask.
    """
    known = [word for word in op.words[2:] if word in _CHANGES]
    change = known[0] if known else ""
    others = [word for word in op.words[2:] if word not in _CHANGES]
    if len(known) > 1 or not {*others} <= {"RED", "TMASK", "OPTOUT"}:
        raise NotRun(f"{op.item.opcode} is not known here")
    kind, once = _CHANGES[change], change == "A0T1"
    count = "" if change == "A1T0" else f", {1 if once else to.word(op.operands[2])}"
    space = "shared::cluster" if "RED" in others else "shared::cta"
    if kind in ("expect_tx", "complete_tx"):
        to.do(f"mbarrier.{kind}.relaxed.cluster.{space}.b64 {where}{count}")
        return
    name = kind.replace("arrive", "arrive_drop") if "OPTOUT" in others else kind
    if "RED" in others:
        to.do(f"mbarrier.{name}.release.cluster.{space}.b64 _, {where}{count}")
        return
    name += ".noComplete" * ("TMASK" in others)
    state = to.fresh("q")
    to.do(f"mbarrier.{name}.{space}.b64 {state}, {where}{count}")
    if target.is_zero:
        return
    count = to.r("shl.b32", to.r("sub.s32", 1 << 20, to.r("mbarrier.pending_count.b64", state)), 11)
    parity = to.high(to.q("shl.b64", state, 63 - Mbarrier.PARITY))
    to.put(target, "0")
    to.put(target, to.r("lop3.b32", parity, 1 << 31, count, 0xE2), 1)


@opcodes("SYNCS")
def _syncs(op: Op, to: Writer) -> None:
    """The highest bit of a register is the parity to wait for, also of the state that an arrival returns."""
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
    elif op.words[:2] == ("ARRIVE", "TRANS64") and isinstance(target, Register):
        _signal(op, to, target, where)
    elif op.words in (("PHASECHK", "TRANS64", "TRYWAIT"), ("PHASECHK", "TRANS64")):
        parity, done = to.r("shr.u32", to.word(source), 31), to.fresh("p")
        name = "try_wait" if "TRYWAIT" in op else "test_wait"
        to.do(f"mbarrier.{name}.parity.shared.b64 {done}, {where}, {parity}")
        to.put_flag(target, done)
    else:
        raise NotRun(f"{op.item.opcode} is not known here")


@opcodes("RPCMOV")
def _program_counter(op: Op, to: Writer) -> None:
    """``RPCMOV.32 Rpc.HI, R3`` and back: keeps a word of a state in half of the register of a program counter."""
    op.allow("32")
    name = _HALVES.get(op.texts[0])
    if name is not None:
        to.registers.add(name)
        to.do(f"mov.b32 {name}, {to.word(op.operands[1])}")
        return
    name = _HALVES[op.texts[1]]
    to.registers.add(name)
    to.put(op.operands[0], name)


@opcodes("USETMAXREG")
def _registers(op: Op, to: Writer) -> None:
    """Registers are available immediately."""
    if isinstance(op.operands[0], Predicate):
        to.put_flag(op.operands[0], "%PT")
