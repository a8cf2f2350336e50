"""Video instructions on Python integers, written from the manual's pseudo-code alone."""

from __future__ import annotations

SEMANTICS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "absdiff": lambda a, b: abs(a - b),
    "min": min,
    "max": max,
    "avrg": lambda a, b: (a + b + 1) // 2 if a + b >= 0 else (a + b) // 2,
    "eq": lambda a, b: int(a == b),
    "ne": lambda a, b: int(a != b),
    "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b),
    "gt": lambda a, b: int(a > b),
    "ge": lambda a, b: int(a >= b),
}


def number(word: int, signed: bool, bits: int = 32) -> int:
    """The low bits of a word as a number."""
    word &= (1 << bits) - 1
    return word - (1 << bits) if signed and word >> (bits - 1) else word


def clamp(value: int, signed: bool, bits: int) -> int:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return min(max(value, low), high)


def selected(word: int, kind: str, part: str) -> int:
    """partSelectSignExtend: ``part`` is ``b0`` … ``h1`` or empty."""
    bits = {"b": 8, "h": 16}.get(part[:1], 32)
    return number(word >> (bits * int(part[1:] or 0)), kind == "s32", bits)


def scalar(opcode: str, parts: tuple[str, str, str], a: int, b: int, c: int) -> int:
    """``vadd … vset`` with the parts of destination, a and b."""
    name, *words = opcode.split(".")
    dsel, asel, bsel = parts
    kinds = [word for word in words if word in ("u32", "s32")]
    if name == "vset":
        kinds = ["u32", *kinds]
    first, second = selected(a, kinds[1], asel), selected(b, kinds[2], bsel)
    if name in ("vshl", "vshr"):
        amount = min(second, 32) if "clamp" in words else second & 31
        result = number(first << amount if name == "vshl" else first >> amount, True, 34)
    elif name == "vset":
        result = next(SEMANTICS[word](first, second) for word in words if word in SEMANTICS)
    else:
        result = SEMANTICS[name[1:]](first, second)
    signed = kinds[0] == "s32"
    bits = {"b": 8, "h": 16}.get(dsel[:1], 32)
    result = clamp(result, signed, bits) if "sat" in words else number(result, True, 33)
    third = number(c, signed)
    for word in words[2:]:
        if word in ("add", "min", "max"):
            result = {"add": result + third, "min": min(result, third), "max": max(result, third)}[word]
    if dsel:
        place = bits * int(dsel[1:])
        mask = ((1 << bits) - 1) << place
        result = (result << place & mask) | (c & ~mask)
    return result & 0xFFFFFFFF


def packed(opcode: str, parts: tuple[str, str, str], a: int, b: int, c: int) -> int:
    """``vadd2 … vset4`` with mask and selectors."""
    name, *words = opcode.split(".")
    lanes = int(name[-1])
    bits = 32 // lanes
    mask, asel, bsel = parts
    asel, bsel = asel or {2: "h10", 4: "b3210"}[lanes], bsel or {2: "h32", 4: "b7654"}[lanes]
    kinds = [word for word in words if word in ("u32", "s32")]
    if name.startswith("vset"):
        kinds = ["u32", *kinds]
    both = a | b << 32
    operation = (
        name[1:-1]
        if not name.startswith("vset")
        else next(word for word in words if word in SEMANTICS and word != "add")
    )
    results = []
    for i in range(lanes):
        one = number(both >> bits * int(asel[-1 - i]), kinds[1] == "s32", bits)
        other = number(both >> bits * int(bsel[-1 - i]), kinds[2] == "s32", bits)
        result = SEMANTICS[operation](one, other)
        results.append(clamp(result, kinds[0] == "s32", bits) if "sat" in words else result)
    places = [int(digit) for digit in mask[1:]] if mask else list(range(lanes))
    if "add" in words:
        return (c + sum(results[place] for place in places)) & 0xFFFFFFFF
    found = 0
    for i in range(lanes):
        piece = results[i] if i in places else c >> bits * i
        found |= (piece & ((1 << bits) - 1)) << bits * i
    return found


def multiply(
    opcode: str, parts: tuple[str, str, str], negated: tuple[bool, bool, bool], a: int, b: int, c: int
) -> int:
    """``vmad``."""
    words = opcode.split(".")[1:]
    kinds = [word for word in words if word in ("u32", "s32")]
    final = "s32" in kinds[1:] or negated[0] != negated[1] or negated[2]
    result = selected(a, kinds[1], parts[1]) * selected(b, kinds[2], parts[2])
    one = 0
    if "po" in words:
        one = 1
    elif negated[0] != negated[1]:
        result, one = ~result, 1
    elif negated[2]:
        c, one = ~c & 0xFFFFFFFF, 1
    result += number(c, final) + one
    if "shr7" in words or "shr15" in words:
        result = (result >> (7 if "shr7" in words else 15)) & (1 << 64) - 1
        result = number(result, final, 64)
    if "sat" in words:
        result = clamp(result, final, 32)
    return result & 0xFFFFFFFF
