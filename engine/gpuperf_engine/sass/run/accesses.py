"""Machine instructions that access memory, exchange values between lanes, or wait at barriers."""

from __future__ import annotations

from ..listing import Decoded
from . import mbarriers
from .operands import Address, Immediate, Operand, Predicate, Register, read_operand
from .writer import NotRun, Op, Writer, both, opcodes

__all__ = ["barrier_values"]

_NARROW = {"U8": "u8", "S8": "s8", "U16": "u16", "S16": "s16"}
_VECTORS = {"64": 2, "128": 4}
_SPACES = {"LDG": "global", "STG": "global", "LDS": "shared", "STS": "shared", "LDL": "local", "STL": "local"}
#: Cache policies and memory ordering; neither changes the values that are loaded and stored.
_HINTS = frozenset(
    [
        "E",
        "CONSTANT",
        "STRONG",
        "WEAK",
        "GPU",
        "SYS",
        "SM",
        "CTA",
        "EF",
        "EL",
        "LU",
        "EU",
        "NA",
        "LTC64B",
        "LTC128B",
        "LTC256B",
        "BYPASS",
        "ACCESS",
        "32",
        "U",
        "INVALIDATE",
        "ZFILL",
        "PRIVATE",
        "MMIO",
    ]
)


def _form(op: Op) -> tuple[str, int]:
    """The type and the number of elements of an access."""
    for word in op.words:
        if word not in _HINTS and word not in _NARROW and word not in _VECTORS:
            raise NotRun(f"{op.item.opcode} has a modifier that is not known here")
    narrow = next((_NARROW[word] for word in op.words if word in _NARROW), "b32")
    return narrow, next((_VECTORS[word] for word in op.words if word in _VECTORS), 1)


def _space(op: Op) -> str:
    name = _SPACES.get(op.base)
    return f".{name}" if name else ""


def _place(op: Op, to: Writer, operand: object) -> str:
    if not isinstance(operand, Address):
        raise NotRun(f"{op.item.text} is not known here")
    if op.base[-1] == "S":
        return to.own(operand)
    return to.address32(operand) if op.base[-1] == "L" else to.address64(operand)


@opcodes("LDG", "LDS", "LDL", "LD")
def _load(op: Op, to: Writer) -> None:
    kind, count = _form(op)
    target, *rest = op.operands
    place = next((item for item in rest if isinstance(item, Address)), None)
    if not isinstance(target, Register) or any(isinstance(item, Predicate) for item in rest):
        raise NotRun(f"{op.item.text} is not known here")
    vector = f".v{count}" if count > 1 else ""
    strong = ".relaxed.gpu" if "STRONG" in op and op.base in ("LDG", "LD") else ""
    where = _place(op, to, place)
    if op.base == "LDS":
        mbarriers.note_phase(op, to, where)
    to.do(f"ld{strong}{_space(op)}{vector}.{kind} {to.targets(target, count)}, {where}")


@opcodes("STG", "STS", "STL", "ST")
def _store(op: Op, to: Writer) -> None:
    kind, count = _form(op)
    place, source = op.operands[0], op.operands[-1]
    if not isinstance(source, Register):
        raise NotRun(f"{op.item.text} is not known here")
    if op.base == "STS" and op.item.ptx in to.initialising:
        mbarriers.initialise(op, to)
        return
    vector = f".v{count}" if count > 1 else ""
    kind = kind.replace("s", "u")
    strong = ".relaxed.gpu" if "STRONG" in op and op.base in ("STG", "ST") else ""
    to.do(f"st{strong}{_space(op)}{vector}.{kind} {_place(op, to, place)}, {to.sources(source, count)}")


@opcodes("LDGSTS")
def _copy(op: Op, to: Writer) -> None:
    """A copy from global to shared memory; it fills with zeros where the predicate after the addresses is false."""
    _, count = _form(op)
    target, source, *flags = op.operands
    if "ZFILL" in op:
        _copy_some(op, to, 4 * count)
        return
    names = [to.fresh("r") for _ in range(count)]
    held = names[0] if count == 1 else f"{{{', '.join(names)}}}"
    vector = f".v{count}" if count > 1 else ""
    places = to.own(target), to.address64(source)
    if flags:
        for name in names:
            to.line(f"mov.b32 {name}, 0")
        test = to.predicate(flags[0])
        guard, to.guard = to.guard, both(to, test)
        to.do(f"ld.global{vector}.b32 {held}, {places[1]}")
        to.guard = guard
    else:
        to.do(f"ld.global{vector}.b32 {held}, {places[1]}")
    to.do(f"st.shared{vector}.b32 {places[0]}, {held}")


def _copy_some(op: Op, to: Writer, size: int) -> None:
    """``LDGSTS.E.BYPASS.128.ZFILL [R11], [R8.64], P2``: the low bits of the global address are the number of bytes at the end that are
    filled with zeros; without P2 all are."""
    target, source, *flags = op.operands
    place, address = to.own(target), to.pointer(source)
    left = to.r("and.b32", to.low(address), size - 1)
    some = to.r("sub.s32", size, left)
    for flag in flags:
        some = to.r("selp.b32", some, 0, to.predicate(flag))
    start = to.q("and.b64", address, -size)
    to.do(f"cp.async.ca.shared.global {place}, [{start}], {size}, {some}")
    to.do("cp.async.wait_all")


@opcodes("LDSM")
def _ldsm(op: Op, to: Writer) -> None:
    op.allow("16", "M88", "MT88", "2", "4")
    target, place = op.operands
    count = next((int(word) for word in op.words if word in ("2", "4")), 1)
    if not isinstance(target, Register):
        raise NotRun(f"{op.item.text} is not known here")
    names = [to.fresh("r") for _ in range(count)]
    transposed = ".trans" * ("MT88" in op)
    where = to.own(place)
    to.line(f"ldmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 {{{', '.join(names)}}}, {where}")
    for above, value in enumerate(names):
        to.put(target, value, above)


@opcodes("STSM")
def _stsm(op: Op, to: Writer) -> None:
    op.allow("16", "M88", "MT88", "2", "4")
    place, source = op.operands
    count = next((int(word) for word in op.words if word in ("2", "4")), 1)
    transposed = ".trans" * ("MT88" in op)
    where = to.own(place)
    to.line(f"stmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 {where}, {to.vector(source, count)}")


@opcodes("LDC", "LDCU")
def _ldc(op: Op, to: Writer) -> None:
    source = op.operands[1]
    wide = next((_VECTORS[word] for word in op.words if word in _VECTORS), 1)
    op.allow(*_VECTORS, *_NARROW)
    target = op.operands[0]
    narrow = next((word for word in op.words if word in _NARROW), "")
    if narrow:
        to.put(target, to.plain(source, kind=_NARROW[narrow]))
        return
    values = [to.plain(source, above) for above in range(wide)]
    for above, value in enumerate(values):
        to.put(target, value, above)


# -- atomics ---------------------------------------------------------------------------------------------------------------

_OPERATIONS = {"ADD", "MIN", "MAX", "INC", "DEC", "AND", "OR", "XOR", "EXCH", "CAS"}
_TYPES = {
    "S32": "s32",
    "U32": "u32",
    "64": "u64",
    "S64": "s64",
    "F32": "f32",
    "F64": "f64",
    "F16x2": "f16x2",
    "BF16x2": "bf16x2",
}


def _operation(op: Op) -> tuple[str, str]:
    """The operation and the type of an atomic."""
    for word in op.words:
        if word not in _OPERATIONS and word not in _TYPES and word not in (*_HINTS, "RN", "FTZ", "POPC"):
            raise NotRun(f"{op.item.opcode} has a modifier that is not known here")
    if "POPC" in op:  # Adds the number of lanes.
        return "add", "u32"
    name = next((word.lower() for word in op.words if word in _OPERATIONS), "")
    kinds = [_TYPES[word] for word in op.words if word in _TYPES]
    kind = "s64" if "S64" in op else kinds[-1] if kinds else "u32"
    if kind.endswith("16x2"):
        name = f"{name}.noftz"
    if name in ("and", "or", "xor", "exch", "cas"):
        kind = "b64" if kind.endswith("64") else "b32"
    elif kind.startswith("s") and name == "add":
        kind = "u64" if kind.endswith("64") else "u32"
    return name, kind


_WINDOWS = {"S": "shared", "D": "shared::cluster", "L": "local", "G": "global"}


@opcodes("QSPC")
def _qspc(op: Op, to: Writer) -> None:
    """Whether a generic address is in a window: ``QSPC.E.S P0, RZ, [R4]``."""
    flag, target, place = op.operands
    window = _WINDOWS.get(op.words[-1])
    if window is None or not isinstance(target, Register) or not target.is_zero:
        raise NotRun(f"{op.item.text} is not known here")
    to.put_flag(flag, to.p(f"isspacep.{window}", to.pointer(place)))


@opcodes("ATOMS", "ATOMG", "ATOM", "RED", "REDG", "REDS")
def _atomic(op: Op, to: Writer) -> None:
    if "CAST" in op or "ARRIVE" in op:
        (mbarriers.arrive if "ARRIVE" in op else _compare_and_store)(op, to)
        return
    name, kind = _operation(op)
    operands = [item for item in op.operands if not isinstance(item, Predicate)]
    place = next(index for index, item in enumerate(operands) if isinstance(item, Address))
    target = operands[0] if place else None
    sources = operands[place + 1 :]
    shared = op.base in ("ATOMS", "REDS")
    space = ".shared" if shared else "" if op.base == "ATOM" else ".global"
    where = to.own(operands[place]) if shared else to.address64(operands[place])
    wide = kind.endswith("64")
    values = ["1"] if "POPC" in op else [to.wide(item) if wide else to.word(item) for item in sources]
    scope = ".cta" if shared else ".gpu"
    flag = op.operands[0]
    if op.base == "ATOM" and isinstance(flag, Predicate) and flag.number >= 0:
        _where_possible(to, flag, operands[place], floating=kind[0] in "fb" and name.startswith("add"))
    if target is None or (isinstance(target, Register) and target.is_zero and name not in ("cas", "exch")):
        to.do(f"red.relaxed{scope}{space}.{name}.{kind} {where}, {values[0]}")
        return
    made = to.fresh("q" if wide else "r")
    to.do(f"atom.relaxed{scope}{space}.{name}.{kind} {made}, {where}, {', '.join(values)}")
    if wide:
        to.put_wide(target, made)
    else:
        to.put(target, made)


def _where_possible(to: Writer, flag: Predicate, place: Operand | None, *, floating: bool) -> None:
    """``ATOM.E.ADD.64.STRONG.GPU P0, RZ, [R6.64], R4``: P0 tells whether the atomic was executed. It is not in shared and in local
    memory, and floating-point sums not in that of other CTAs either: ``ptxas`` adds code for these."""
    address = to.pointer(place)
    windows = ["shared::cta", "local", *(["shared::cluster"] if floating and to.clusters else [])]
    done = "%PT"
    for window in windows:
        outside = to.p("not.pred", to.p(f"isspacep.{window}", address))
        done = to.p("and.pred", done, outside)
    to.put_flag(flag, done)
    to.guard = both(to, done)


def _compare_and_store(op: Op, to: Writer) -> None:
    """``ATOMS.CAST.SPIN P0, [R4], R6, R7``: compare-and-swap: stores R7 if the word equals R6. Reports success in a predicate, before
    Blackwell as 1 or 0 in a register. ``ptxas`` emits it in loops, which successful lanes leave."""
    op.allow("CAST", "SPIN", "64", *_HINTS)
    first, *rest = op.operands
    if len(rest) == 4 and isinstance(first, Predicate) and first.number < 0:  # ATOM.E.CAST.SPIN PT, R9, …
        first, *rest = rest
    done, (place, expected, value) = first, rest
    kind = "b64" if "64" in op else "b32"
    made, old, new = (
        (to.fresh("q"), to.wide(expected), to.wide(value))
        if kind == "b64"
        else (to.fresh("r"), *(to.r("mov.b32", to.word(item)) for item in (expected, value)))
    )
    shared = op.base == "ATOMS"
    where = to.own(place) if shared else to.address64(place)
    space = ".cta.shared" if shared else ".gpu.global" if op.base == "ATOMG" else ".gpu"
    to.do(f"atom.relaxed{space}.cas.{kind} {made}, {where}, {old}, {new}")
    stored = to.p(f"setp.eq.{kind}", made, old)
    if isinstance(done, Predicate):
        to.put_flag(done, stored)
        return
    for above in range(2 if kind == "b64" else 1):
        to.put(done, "0" if above else to.r("selp.b32", 1, 0, stored), above)


# -- other lanes -----------------------------------------------------------------------------------------------------------


@opcodes("SHFL")
def _shfl(op: Op, to: Writer) -> None:
    flag, target, value, lane, bounds = op.operands
    mask = active(to)
    mode = op.words[0].lower()
    made, inside = to.fresh("r"), to.fresh("p")
    source = to.r("mov.b32", to.word(value))
    to.do(f"shfl.sync.{mode}.b32 {made}|{inside}, {source}, {to.word(lane)}, {to.word(bounds)}, {mask}")
    to.put(target, made)
    to.put_flag(flag, inside)


def active(to: Writer) -> str:
    """The lanes of the warp that execute the instruction."""
    name = to.fresh("r")
    to.do(f"activemask.b32 {name}")
    return name


@opcodes("VOTE", "VOTEU")
def _vote(op: Op, to: Writer) -> None:
    op.allow("ANY", "ALL", "EQ")
    target, *flags = op.operands if isinstance(op.operands[0], Register) else (None, *op.operands)
    made, tested = flags[0], to.predicate(flags[1])
    mask = active(to)
    if target is not None:
        lanes = to.fresh("r")
        to.do(f"vote.sync.ballot.b32 {lanes}, {tested}, {mask}")
        to.put(target, lanes)
    if isinstance(made, Predicate) and made.number >= 0:
        flag = to.fresh("p")
        mode = {"ANY": "any", "ALL": "all", "EQ": "uni"}[op.words[0]]
        to.do(f"vote.sync.{mode}.pred {flag}, {tested}, {mask}")
        to.put_flag(made, flag)


@opcodes("ELECT")
def _elect(op: Op, to: Writer) -> None:
    """The lowest of the lanes that execute the instruction."""
    flag, target, others = op.operands
    if not isinstance(target, Register) or not target.is_zero or to.predicate(others) != "%PT":
        raise NotRun(f"{op.item.text} is not known here")
    mask, all_lanes, below = to.fresh("r"), to.fresh("r"), to.fresh("r")
    to.line(f"activemask.b32 {all_lanes}")
    to.line(f"vote.sync.ballot.b32 {mask}, {to.guard.strip()[1:] or '%PT'}, {all_lanes}")
    to.line(f"mov.u32 {below}, %lanemask_lt")
    to.put_flag(flag, to.p("setp.eq.u32", to.r("and.b32", mask, below), 0))


@opcodes("MATCH")
def _match(op: Op, to: Writer) -> None:
    op.allow("ANY", "ALL", "U32", "U64")
    mask, made = active(to), to.fresh("r")
    kind = "b64" if "U64" in op else "b32"
    source = op.operands[-1]
    value = to.wide(source) if "U64" in op else to.r("mov.b32", to.word(source))
    if "ALL" in op:  # MATCH.ALL P2, R5, R5
        same = to.fresh("p")
        to.do(f"match.all.sync.{kind} {made}|{same}, {value}, {mask}")
        to.put(op.operands[1], made)
        to.put_flag(op.operands[0], same)
        return
    to.do(f"match.any.sync.{kind} {made}, {value}, {mask}")
    to.put(op.operands[0], made)


_REDUCED = {
    "SUM": "add",
    "MIN": "min",
    "MAX": "max",
    "MINABS": "min.abs",
    "MAXABS": "max.abs",
    "OR": "or",
    "AND": "and",
    "XOR": "xor",
}


@opcodes("REDUX", "CREDUX")
def _redux(op: Op, to: Writer) -> None:
    """``CREDUX.MINABS.F32.NAN UR9, R0``: without a type the operands are unsigned integers, or bits."""
    op.allow(*_REDUCED, "S32", "U32", "F32", "NAN")
    names = [_REDUCED[word] for word in op.words if word in _REDUCED]
    name = names[0] if names else "and"
    if "F32" in op:
        kind, name = "f32", name + ".NaN" * ("NAN" in op)
    else:
        kind = "b32" if name in ("or", "and", "xor") else "s32" if "S32" in op else "u32"
    mask, made = active(to), to.fresh("r")
    to.do(f"redux.sync.{name}.{kind} {made}, {to.r('mov.b32', to.word(op.operands[1]))}, {mask}")
    to.put(op.operands[0], made)


# -- barriers and what has no effect of its own ----------------------------------------------------------------------------


def barrier_values(item: Decoded, to: Writer) -> list[str]:
    """The number of a barrier, and the threads that it waits for if it names them. If both are in one register (``BAR.SYNC R2, R2``),
    the number is in its lowest 4 bits and the threads in the 12 from bit 16 on, as ``ptxas`` packs them."""
    operands = [read_operand(text) for text in item.operands]
    values = [one for one in operands if isinstance(one, (Immediate, Register))]
    words = [to.word(one) for one in values]
    if not isinstance(values[0], Register):
        return words
    packed = len(values) > 1 and isinstance(values[1], Register) and values[0].number == values[1].number
    number = to.r("and.b32", words[0], 15)
    return [number, to.r("bfe.u32", words[0], 16, 12)] if packed else [number, *words[1:]]


@opcodes("BAR")
def _bar(op: Op, to: Writer) -> None:
    op.allow("SYNC", "DEFER_BLOCKING", "ARV", "RED", "POPC", "AND", "OR")
    values = ", ".join(barrier_values(op.item, to))
    if "ARV" in op:
        to.do(f"barrier.arrive {values}")
    elif "RED" in op:
        flags = [item for item in op.operands if isinstance(item, Predicate)]
        name = next(word.lower() for word in op.words if word in ("POPC", "AND", "OR"))
        made = to.fresh("r" if name == "popc" else "p")
        kind = "u32" if name == "popc" else "pred"
        tested = to.predicate(flags[-1])
        to.do(f"barrier.red.{name}.{kind} {made}, {values}, {tested}")
        to.do(f"mov.b32 %RB, {made}" if name == "popc" else f"selp.b32 %RB, 1, 0, {made}")
    else:
        to.do(f"barrier.sync {values}")


@opcodes("B2R")
def _b2r(op: Op, to: Writer) -> None:
    """The result of the last reduction of a barrier."""
    if "RESULT" not in op:
        raise NotRun(f"{op.item.text} is not known here")
    to.put(op.operands[0], "%RB")
    for flag in op.operands[1:]:
        if isinstance(flag, Predicate) and flag.number >= 0:
            to.put_flag(flag, to.p("setp.ne.b32", "%RB", 0))


@opcodes("UCGABAR_ARV")
def _arrive(op: Op, to: Writer) -> None:
    to.do("barrier.cluster.arrive")


@opcodes("UCGABAR_WAIT")
def _wait(op: Op, to: Writer) -> None:
    to.do("barrier.cluster.wait")


@opcodes(
    "NOP", "MEMBAR", "ERRBAR", "CGAERRBAR", "CCTL", "FENCE", "DEPBAR", "LDGDEPBAR", "YIELD", "NANOSLEEP", "PREEXIT",
    "ACQBULK", "LDGSTSBAR",
)  # fmt: skip
def _nothing(op: Op, to: Writer) -> None:
    """These affect only order and time: the engine executes accesses in order and completes copies when they are issued."""


_SPECIAL = {
    "SR_LANEID": "%laneid",
    "SR_LTMASK": "%lanemask_lt",
    "SR_LEMASK": "%lanemask_le",
    "SR_GTMASK": "%lanemask_gt",
    "SR_GEMASK": "%lanemask_ge",
    "SR_EQMASK": "%lanemask_eq",
    "SR_CgaCtaId": "%cluster_ctarank",
    # Selects one of several copies of the cluster size; all have the same value (``translate``).
    "SR_CgaSize": "0",
    "SR_CTAID.X": "%ctaid.x",
    "SR_CTAID.Y": "%ctaid.y",
    "SR_CTAID.Z": "%ctaid.z",
    "SR_TID.X": "%tid.x",
    "SR_TID.Y": "%tid.y",
    "SR_TID.Z": "%tid.z",
    "SR_CLOCKLO": "%clock",
    "SR_CLOCKHI": "%clock_hi",
    "SR_GLOBALTIMERLO": "%globaltimer_lo",
    "SR_GLOBALTIMERHI": "%globaltimer_hi",
    "SR_VIRTUALSMID": "%smid",
}
_WIDE_SPECIAL = {"SR_CLOCKLO": "%clock64", "SR_GLOBALTIMERLO": "%globaltimer"}


@opcodes("S2R", "S2UR", "CS2R", "CS2UR")
def _s2r(op: Op, to: Writer) -> None:
    name = op.texts[1]
    if op.base in ("CS2R", "CS2UR") and "32" not in op:
        if name != "SRZ" and name not in _WIDE_SPECIAL:
            raise NotRun(f"{name} is not known here")
        to.put_wide(op.operands[0], "0" if name == "SRZ" else to.q("mov.u64", _WIDE_SPECIAL[name]))
    elif name == "SRZ":
        to.put(op.operands[0], "0")
    elif name == "SR_SWINHI":
        to.put(op.operands[0], "256")
    elif name == "SR_LMEMHIOFF":  # the lowest address that the stack may reach
        to.put(op.operands[0], "0")
    elif name == "SR_VIRTID":
        to.put(op.operands[0], to.r("shl.b32", to.r("mov.u32", "%warpid"), 8))
    elif name == "SR_VIRTCFG":
        to.put(op.operands[0], to.r("shl.b32", to.r("mov.u32", "%nwarpid"), 8))
    elif name in _SPECIAL:
        to.put(op.operands[0], to.r("mov.u32", _SPECIAL[name]))
    else:
        raise NotRun(f"{name} is not known here")
