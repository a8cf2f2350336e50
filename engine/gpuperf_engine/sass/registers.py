"""The registers and predicates that a machine instruction reads and writes, for dependences between instructions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from .listing import NEVER, Decoded
from .products import product_registers
from .run.operands import Address, Constant, Operand, Predicate, Register, read_operand

__all__ = [
    "COPIES",
    "IMAGES",
    "PREDICATES",
    "REGISTERS",
    "TENSOR_PRODUCTS",
    "UNIFORM",
    "UNIFORM_PREDICATES",
    "WIDTHS",
    "Accesses",
    "Expanded",
    "Source",
    "accesses_of",
    "described_by",
    "fragment_of",
]

#: Numbers of uniform registers, predicates and uniform predicates start after the 256 registers; the last is the count of all.
UNIFORM, PREDICATES, UNIFORM_PREDICATES, REGISTERS = 256, 512, 520, 528
#: Bulk and tensor copies.
COPIES = frozenset(["UTMALDG", "UTMASTG", "UTMAREDG", "UTMAPF", "UBLKCP", "UBLKRED", "UBLKPF"])
#: Products on tensor memory.
TENSOR_PRODUCTS = frozenset(["UTCHMMA", "UTCQMMA", "UTCIMMA", "UTCOMMA"])
#: Instructions on textures and surfaces, without queries.
IMAGES = frozenset(["TEX", "TLD", "TLD4", "TXD", "SULD", "SUST", "SUATOM", "SURED"])
#: Fetches, whose results are in two operands.
_FETCHES = frozenset(["TEX", "TLD", "TLD4", "TXD", "TXQ"])
_SHAPE = re.compile(r"(ARRAY_)?([123])D(_ARRAY)?$")
#: The halves of the register of a program counter (``RPCMOV``) have numbers that no uniform register has.
_HALVES = {"Rpc.LO": PREDICATES - 2, "Rpc.HI": PREDICATES - 1}
_ALL_PREDICATES = tuple(range(PREDICATES, PREDICATES + 7))

_NO_RESULT = frozenset([
    "ST", "STG", "STS", "STL", "LDGSTS", "STSM", "RED", "REDG", "REDS", "BAR", "BRA", "BRX", "BRXU", "JMP", "JMX", "CALL",
    "RET", "EXIT", "KILL", "BSSY", "BSYNC", "BREAK", "WARPSYNC", "MEMBAR", "ERRBAR", "CCTL", "CCTLL", "DEPBAR", "LDGDEPBAR",
    "NANOSLEEP", "NOP", "YIELD", "BPT", "FENCE", "UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP", "UBLKRED", "UTMAPF", "UTMACCTL",
    "UTMACMDFLUSH", "ARRIVES", "WARPGROUP", "PREEXIT", "ACQBULK", "LDGSTSBAR", "UCGABAR_ARV", "UCGABAR_WAIT", "CGAERRBAR",
    "BMOV", "SUST", "SURED", "STAS", "REDAS", "UBLKPF",
])  # fmt: skip
#: Registers of a thread for ``.x1`` of a load or store of tensor memory, by shape; one for the others.
_FRAGMENTS = {"16dp128bit": 2, "16dp256bit": 4}
#: Operands that name registers: the shared memory of a matrix, an address of tensor memory, an instruction descriptor.
_DESCRIBED = re.compile(r"(gdesc|tmem|idesc)\[(UR\d+)")
#: Jumps to the next instruction plus a distance.
_INDIRECT = frozenset(["BRX", "BRXU", "JMX", "JMXU"])
_SETS = frozenset(
    ["ISETP", "FSETP", "DSETP", "HSETP2", "PSETP", "PLOP3", "UISETP", "UPLOP3", "UPSETP", "UFSETP", "CSETP"]
)
#: 32-bit words of a lane, by the suffix of the opcode.
WIDTHS = {"64": 2, "128": 4, "256": 8}
_PAIRS = frozenset(["DADD", "DMUL", "DFMA", "DMNMX", "DSETP", "LEPC", "FFMA2", "FADD2", "FMUL2", "MOV64"])
#: Integer opcodes whose 64-bit operands are register pairs (``IADD.64``, ``ISETP.GE.U64``).
_INTEGERS = frozenset(
    ["IADD", "IADD3", "UIADD3", "MOV", "UMOV", "SEL", "USEL", "ISETP", "UISETP", "IMNMX", "VIMNMX", "VIADD"]
)
_PAIR_TYPES = frozenset(("F64", "S64", "U64"))


@dataclass(frozen=True, slots=True)
class Source:
    """A register operand: its slot among the operands from the register file (0 to 2), its number and its number of registers."""

    slot: int
    number: int
    count: int


@dataclass(frozen=True, slots=True)
class Accesses:
    """The numbers of the registers and predicates that are read and written. ``sources``: the operands read through the register
    ports; ``deciding``: those read that determine addresses and active lanes of memory accesses."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    sources: tuple[Source, ...]
    deciding: tuple[int, ...]


@dataclass(frozen=True)
class Expanded(Decoded):
    """An instruction that stands for a part of a PTX instruction, without encoding. ``ports``: how many registers it reads from each
    of the two banks (4 bits each), in all and without those that the instruction before it has read."""

    accesses: Accesses
    ports: tuple[int, int]


def accesses_of(item: Decoded) -> Accesses:
    """The accesses of one instruction. Registers that may be written partially count as written."""
    return item.accesses if isinstance(item, Expanded) else _accesses(item.text)


@lru_cache(maxsize=1 << 14)
def _accesses(text: str) -> Accesses:
    item = Decoded("", "", 0, text, 0, 0)
    base, operands = item.base, [read_operand(text) for text in item.operands]
    # ``R10 -0x2d0``: the distance from the next instruction is the sum of both; ``CALL.REL.NOINC R8 `(kernel)``: an address
    if base in _INDIRECT or (base == "CALL" and operands):
        operands[:1] = [read_operand(item.operands[0].split()[0])]
    results = _results(base, operands)
    reads: list[int] = []
    writes: list[int] = []
    sources: list[Source] = []
    deciding: list[int] = []
    if item.predicate and item.predicate not in NEVER:
        _predicate(read_operand(item.predicate.lstrip("@")), reads)
    for place in results:
        operand = operands[place]
        if isinstance(operand, Predicate):
            _predicate(operand, writes)
        elif isinstance(operand, Register) and not operand.is_zero:
            writes += _numbers(operand, _result_width(item, place))
    for place, text in enumerate(item.operands):
        if text in _HALVES:
            (reads if place else writes).append(_HALVES[text])
    slot = 0
    for place, operand in enumerate(operands):
        if place in results:
            continue
        if isinstance(operand, Predicate):
            _predicate(operand, reads)
        elif isinstance(operand, Register):
            if not operand.is_zero:
                width = _source_width(item, slot)
                reads += _numbers(operand, width)
                if not operand.uniform:
                    sources.append(Source(slot, operand.number, width))
            slot += 1
        elif isinstance(operand, Address):
            for part in operand.parts:
                if not part.is_zero:
                    width = 2 if "64" in part.words or _is_wide(item, part) else 1
                    if base in COPIES:
                        width = _described(item, place)
                    elif base in IMAGES:
                        width = _coordinates(item)
                    deciding += _numbers(part, width)
                    if not part.uniform:
                        sources.append(Source(slot, part.number, width))
            slot += 1
        elif isinstance(operand, Constant):
            if operand.index is not None and not operand.index.is_zero:
                reads += _numbers(operand.index, 1)
            slot += 1
        elif (described := described_by(item.operands[place])) is not None:
            kind, first = described
            reads += _numbers(first, {"gdesc": 2 if base.startswith("UTC") else 4}.get(kind, 1))
            slot += 1
        elif "PR" in item.operands[place]:
            (writes if base == "R2P" else reads).extend(_ALL_PREDICATES)
        else:
            slot += 1
    deciding += [number for number in reads if number >= PREDICATES]
    every = tuple(dict.fromkeys((*reads, *deciding)))
    return Accesses(every, tuple(dict.fromkeys(writes)), tuple(sources), tuple(dict.fromkeys(deciding)))


def described_by(text: str) -> tuple[str, Register] | None:
    """The kind of an operand such as ``idesc[UR5]``, and its first register; ``None`` for others."""
    match = _DESCRIBED.match(text)
    register = read_operand(match[2]) if match is not None else None
    if match is None or not isinstance(register, Register):
        return None
    return match[1], register


def fragment_of(item: Decoded) -> int:
    """Registers of a thread that a load or store of tensor memory (``LDTM.16dp256bit.x4``) moves."""
    words = item.opcode.split(".")[1:]
    times = next((int(word[1:]) for word in words if word[0] == "x" and word[1:].isdigit()), 1)
    return times * next((_FRAGMENTS[word] for word in words if word in _FRAGMENTS), 1)


def _is_wide(item: Decoded, part: Register) -> bool:
    """Whether an address register without a suffix is the first of a pair, as up to Turing."""
    return (
        not part.uniform
        and "U32" not in part.words
        and "E" in item.opcode.split(".")[1:]
        and item.base[-1] != "S"
    )


def _described(item: Decoded, place: int) -> int:
    """Registers that an operand of a copy names by its first. Of a tensor copy: the address in shared memory, the mbarrier of a load
    and the coordinates; or the address of the map. Of a bulk copy: the address in global memory, or that in shared memory and the
    mbarrier of a load."""
    words = item.opcode.split(".")
    if item.base.startswith("UBLK"):
        return 2
    if place:
        return 2
    axes = next((int(word[0]) for word in words if len(word) == 2 and word[1] == "D"), 5)
    return axes + {"UTMALDG": 2, "UTMAPF": 0}.get(item.base, 1)


def _results(base: str, operands: list[Operand | None]) -> frozenset[int]:
    """The positions of the operands that are written."""
    if base in _NO_RESULT:
        return frozenset()
    if base in _SETS:
        return frozenset((0, 1))
    if base == "FCHK":
        return frozenset((0,))
    if base in _FETCHES:
        return frozenset((0, 1))
    results: list[int] = []
    written = False
    for place, operand in enumerate(operands):
        if isinstance(operand, Register) and not written:
            written = True
            results.append(place)
        elif isinstance(operand, Predicate) and not (
            base in ("VOTE", "VOTEU") and len(results) >= 1 + written
        ):
            results.append(place)
        else:
            break
    if not written and base in ("VOTE", "VOTEU"):
        results = results[:1]
    return frozenset(results if not _selects(base) else results[:1])


def _selects(base: str) -> bool:
    """Whether a predicate after the result is a source operand."""
    return base in ("SEL", "FSEL", "USEL", "P2R", "S2R", "CS2R")


def _numbers(register: Register, count: int) -> list[int]:
    start = register.number + (UNIFORM if register.uniform else 0)
    return list(range(start, start + count))


def _predicate(operand: Operand | None, into: list[int]) -> None:
    if isinstance(operand, Predicate) and operand.number >= 0:
        into.append(operand.number + (UNIFORM_PREDICATES if operand.uniform else PREDICATES))


def _is_pair(words: list[str], base: str) -> bool:
    return base in _PAIRS or (base in _INTEGERS and not {"64", "S64", "U64"}.isdisjoint(words))


def _result_width(item: Decoded, place: int) -> int:
    words, base = item.opcode.split("."), item.base
    if base in _FETCHES:
        return _components(item) - 2 if place == 0 else min(2, _components(item))
    if matrix := product_registers(item.opcode):
        return matrix[3]
    if base == "LDTM":
        return fragment_of(item)
    if base in ("LDSM", "MOVM"):
        return next((int(word) for word in words[1:] if word in ("2", "4")), 1)
    if base.startswith(("LD", "ATOM")) or base in ("ULDC", "SULD", "SUATOM"):
        return next((WIDTHS[word] for word in words if word in WIDTHS), 1)
    if base == "CS2R":
        return 1 if "32" in words else 2
    if base == "SYNCS":
        return 2
    if _is_pair(words, base) or "WIDE" in words:
        return 2
    if base in ("F2F", "I2F", "F2I") and words[1:2] and words[1] in _PAIR_TYPES:
        return 2
    return 1


def _components(item: Decoded) -> int:
    """The components of a texel that a fetch returns, by the mask that is its last operand (``0x5``); four without one."""
    mask = item.operands[-1]
    return int(mask, 16).bit_count() if mask.startswith("0x") else 4


def _coordinates(item: Decoded) -> int:
    """The registers of the first operand with coordinates of a texture or surface. With ``SCR``, at most two are in one operand."""
    words = item.opcode.split(".")
    shape = next((found for text in (*item.operands, *words) if (found := _SHAPE.match(text))), None)
    if shape is None:
        return 1
    count = int(shape[2]) + bool(shape[1] or shape[3])
    return min(2, count) if "SCR" in words else count


def _source_width(item: Decoded, slot: int) -> int:
    words, base = item.opcode.split("."), item.base
    if matrix := product_registers(item.opcode):
        return matrix[slot] if slot < 3 else 1
    if base == "STTM":
        return fragment_of(item)
    if base in _FETCHES or (base in IMAGES and slot == 0):
        return _coordinates(item) if slot == 0 else 1
    if base.startswith("ST") or base == "SUST":
        return next((WIDTHS[word] for word in words if word in WIDTHS), 1)
    if _is_pair(words, base):
        return 2
    if "WIDE" in words and slot == 2:
        return 2
    if base in ("F2F", "F2I", "FRND") and len(words) > 2 and words[2] in _PAIR_TYPES:
        return 2
    if base in ("ATOM", "ATOMG", "ATOMS", "RED", "REDG", "REDAS") and "64" in words:
        return 2
    if base in ("RET", "CALL", "BRX"):
        return 1 if base == "BRX" else 2
    return 1
