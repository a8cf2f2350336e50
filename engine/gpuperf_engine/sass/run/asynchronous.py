"""What a trace records of mbarriers, of bulk and tensor copies, and of products on tensor memory, and how it replaces instructions
that would wait."""

from __future__ import annotations

from ..listing import Decoded
from ..registers import COPIES, IMAGES, TENSOR_PRODUCTS, WIDTHS
from .operands import Address, Operand, Predicate, Register, read_operand
from .writer import NotRun, Writer, opcode_row

__all__ = [
    "COORDINATES",
    "FIELDS",
    "HIGH",
    "LOW",
    "MASK",
    "PARAMETERS",
    "TOKEN",
    "copy_fields",
    "data_bytes",
    "following",
    "names_barrier",
    "recorded",
    "without_waiting",
]

#: Fields of a copy, one word each: its address in shared memory; the mbarrier, the destination's or the one that is read; the mask of
#: CTAs of a multicast, or its bytes / 16; the address of the tensor map, or the address in global memory, in two words; the
#: coordinates.
FIELDS = SHARED, MBARRIER, MASK, LOW, HIGH, COORDINATES = range(6)
#: The upper word of the address of the parameters.
PARAMETERS = 0xFFFE0000
#: The upper word of the state of an mbarrier. A wait with it waits for the phase in which the warp arrived.
TOKEN = 0x40000000


def recorded(item: Decoded) -> list[tuple[int, str]]:
    """The operands of an instruction that are recorded, each with its kind."""
    if item.base in COPIES:
        return [(0, "copy")]
    if item.base in TENSOR_PRODUCTS:
        return [(next(at for at, text in enumerate(item.operands) if text.startswith("idesc[")), "word")]
    if item.base == "UTCATOMSWS" and "FIND_AND_SET" in item.opcode:  # the units to allocate
        return [(2, "word")]
    if item.base == "UTCBAR":  # the last operand is the mask of a multicast
        return [(0, "mbarrier"), (len(item.operands) - 1, "value")]
    if item.base in IMAGES:
        return [(0, "image")]
    if names_barrier(item):
        return [(0, "word")]
    if data_bytes(item):
        return [(0, "mbarrier"), (0, "value")]
    if item.base not in ("SYNCS", "ARRIVES") or "CCTL" in item.opcode:
        return []
    place = next(at for at, text in enumerate(item.operands) if isinstance(read_operand(text), Address))
    return [(place, "mbarrier"), (place + (item.base == "SYNCS"), "value")]


def names_barrier(item: Decoded) -> bool:
    """Whether the number of a barrier, or the threads that it waits for, are in a register."""
    return item.base == "BAR" and any(
        isinstance(read_operand(text), Register) for text in item.operands[: 1 + (len(item.operands) > 1)]
    )


def data_bytes(item: Decoded) -> int:
    """The bytes of a lane that ``st.async`` stores (``STAS.64 [R6.64], R4``) or ``red.async`` changes (``REDAS.INC [R2.64], R4``); 0
    for other instructions."""
    if item.base not in ("STAS", "REDAS"):
        return 0
    return 4 * next((WIDTHS[word] for word in item.opcode.split(".") if word in WIDTHS), 1)


def following(where: Operand | None) -> Operand | None:
    """The register after that of an address."""
    if not isinstance(where, Address) or len(where.parts) != 1 or where.offset:
        raise NotRun("an address of st.async or red.async that is not known here")
    first = where.parts[0]
    return Address((Register(first.uniform, first.number + 1),), 0)


def copy_fields(item: Decoded, to: Writer) -> dict[int, str]:
    """The register that holds each field of a copy, by number of the field."""
    first, second = (_uniform(item, place) for place in (0, 1))
    base, words = item.base, item.opcode.split(".")[1:]
    # The descriptor of a cache policy is behind all others.
    operands = [text for text in item.operands if not text.startswith("desc[")]

    def word(register: Register, above: int) -> str:
        return to.word(Register(True, register.number + above))

    fields: dict[int, str] = {}
    if base.startswith("UBLK"):
        loads = words[0] == "S"
        place, other = (second, first) if loads else (first, second)
        fields |= {LOW: word(place, 0), HIGH: word(place, 1)}
        if base != "UBLKPF":
            fields[SHARED] = word(other, 0)
        if loads:
            fields[MBARRIER] = word(other, 1)
        size = read_operand(operands[-1])
        fields[MASK] = to.word(size)
        return fields
    fields |= {LOW: word(second, 0), HIGH: word(second, 1)}
    start = 0
    if base != "UTMAPF":
        fields[SHARED], start = word(first, 0), 1
    if base == "UTMALDG":
        fields[MBARRIER], start = word(first, 1), 2
    axes = next((int(part[0]) for part in words if len(part) == 2 and part[1] == "D"), 0)
    if not axes:
        raise NotRun(f"{item.text} is not known here")
    fields |= {COORDINATES + axis: word(first, start + axis) for axis in range(axes)}
    if len(operands) > 2:
        fields[MASK] = to.word(read_operand(operands[2]))
    return fields


def _uniform(item: Decoded, place: int) -> Register:
    where = read_operand(item.operands[place]) if place < len(item.operands) else None
    if isinstance(where, Register) and where.uniform:
        return where
    if not isinstance(where, Address) or len(where.parts) != 1 or where.offset or not where.parts[0].uniform:
        raise NotRun(f"{item.text} is not known here")
    return where.parts[0]


def without_waiting(item: Decoded, to: Writer) -> bool:
    """Writes an instruction that a trace executes differently. Returns whether it was one."""
    base = item.base
    if base in ("HGMMA", "IGMMA", "QGMMA", "BGMMA", "LDTM"):
        raise NotRun("its control flow or addresses depend on results of products")
    if base in IMAGES:
        raise NotRun("its control flow or addresses depend on what textures or surfaces hold")
    row = opcode_row(item)
    if row is None:
        return False
    _, op = row
    target = op.operands[0] if op.operands else None
    if base in ("CS2R", "S2R", "S2UR") and op.texts[1] in (
        "SR_GLOBALTIMERLO",
        "SR_GLOBALTIMERHI",
        "SR_CLOCKLO",
        "SR_CLOCKHI",
    ):
        to.put(target, "0")
        if base == "CS2R" and "32" not in op:
            to.put(target, "0", 1)
        return True
    if base == "UTCATOMSWS":  # the simulation decides when columns are free
        if isinstance(target, Predicate):
            to.put_flag(target, "%PT")
            to.put(op.operands[1], "0")
        return True
    if base != "SYNCS":
        return False
    if isinstance(target, Predicate):
        to.put_flag(target, "%PT")
    elif isinstance(target, Register):
        to.put(target, "0")
        to.put(target, str(TOKEN), 1)
    return True
