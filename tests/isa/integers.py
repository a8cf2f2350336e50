"""Integer, logic and comparison instructions on Python integers, written from the manual alone: one function for each name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["MODELS", "calculate"]

#: the words of the opcode behind the name, and the operands' bits → the results' bits
Model = Callable[[Sequence[str], Sequence[int]], "int | tuple[int, ...]"]


def bits(kind: str) -> int:
    return 1 if kind == "pred" else int(kind[1:].split("x")[0])


def number(word: int, kind: str) -> int:
    size = bits(kind)
    word &= (1 << size) - 1
    return word - (1 << size) if kind[0] == "s" and word >> (size - 1) else word


def clamp(value: int, kind: str) -> int:
    size = bits(kind)
    low, high = (-(1 << (size - 1)), (1 << (size - 1)) - 1) if kind[0] == "s" else (0, (1 << size) - 1)
    return min(max(value, low), high)


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def kind_of(words: Sequence[str]) -> str:
    return words[-1]


def numbers(words: Sequence[str], given: Sequence[int]) -> list[int]:
    return [number(word, kind_of(words)) for word in given]


def packed(operation: Callable[..., int]) -> Model:
    """On numbers of the type, or lane by lane on two or four of them."""

    def model(words: Sequence[str], given: Sequence[int]) -> int:
        kind = kind_of(words)
        lanes = int(kind.partition("x")[2] or 1)
        one = kind.split("x")[0]
        size = bits(one)
        found = 0
        for lane in range(lanes):
            made = operation(*(number(word >> size * lane, one) for word in given[:2]))
            if "sat" in words:
                made = clamp(made, one)
            if "relu" in words:
                made = max(made, 0)
            found |= (made & ((1 << size) - 1)) << size * lane
        return found

    return model


def carried(operation: Callable[..., int]) -> Model:
    """With ``.cc`` or a carry: the sum in twice the width tells the carry. A difference is a + ~b + 1."""

    def model(words: Sequence[str], given: Sequence[int]) -> int | tuple[int, ...]:
        size = bits(kind_of(words))
        total = operation(words, [word & ((1 << size) - 1) for word in given], size)
        return (total, total >> size & 1) if "cc" in words else total

    return model


def half_of_product(words: Sequence[str], a: int, b: int) -> int:
    kind = kind_of(words)
    product = number(a, kind) * number(b, kind)
    return product >> bits(kind) if "hi" in words else product


def product(words: Sequence[str], given: Sequence[int]) -> int:
    kind = kind_of(words)
    if "wide" in words:
        return number(given[0], kind) * number(given[1], kind)
    return half_of_product(words, given[0], given[1])


def multiply_add(words: Sequence[str], given: Sequence[int]) -> int:
    kind = kind_of(words)
    total = product(words, given) + number(
        given[2], kind if "wide" not in words else f"{kind[0]}{2 * bits(kind)}"
    )
    return clamp(total, kind) if "sat" in words else total


def product24(words: Sequence[str], given: Sequence[int]) -> int:
    kind = f"{kind_of(words)[0]}24"
    found = number(given[0], kind) * number(given[1], kind)
    return found >> 16 if "hi" in words else found


def multiply_add24(words: Sequence[str], given: Sequence[int]) -> int:
    found = number(product24(words, given), kind_of(words)) + number(given[2], kind_of(words))
    return clamp(found, kind_of(words)) if "sat" in words else found


def divide(words: Sequence[str], given: Sequence[int]) -> int:
    a, b = numbers(words, given)
    return truncated(a, b) if b else -1


def remainder(words: Sequence[str], given: Sequence[int]) -> int:
    a, b = numbers(words, given)
    return a - truncated(a, b) * b if b else a


def find(words: Sequence[str], given: Sequence[int]) -> int:
    kind = kind_of(words)
    a = number(given[0], kind)
    word = ~a if a < 0 else a
    if word == 0:
        return -1
    place = word.bit_length() - 1
    return bits(kind) - 1 - place if "shiftamt" in words else place


def nth_set(words: Sequence[str], given: Sequence[int]) -> int:
    mask, base, offset = given[0], given[1], number(given[2], "s32")
    if base > 31:
        raise ValueError("the manual defines bases of 0 to 31")
    if offset == 0:
        return base if mask >> base & 1 else -1
    count, place = abs(offset) - 1, base
    while 0 <= place < 32:
        if mask >> place & 1:
            if count == 0:
                return place
            count -= 1
        place += 1 if offset > 0 else -1
    return -1


def extract(words: Sequence[str], given: Sequence[int]) -> int:
    kind = kind_of(words)
    a, position, length = given[0], given[1] & 255, given[2] & 255
    top = bits(kind) - 1
    sign = 0 if kind[0] == "u" or length == 0 else a >> min(position + length - 1, top) & 1
    return sum(
        ((a >> position + i & 1) if i < length and position + i <= top else sign) << i for i in range(top + 1)
    )


def insert(words: Sequence[str], given: Sequence[int]) -> int:
    a, b, position, length = given[0], given[1], given[2] & 255, given[3] & 255
    for i in range(length):
        if position + i < bits(kind_of(words)):
            b = b & ~(1 << position + i) | (a >> i & 1) << position + i
    return b


def extend(words: Sequence[str], given: Sequence[int]) -> int:
    a, b = given
    if "clamp" in words and b >= 32:
        return a
    width = b & 31
    return number(a, f"{kind_of(words)[0]}{width}") if width else 0


def mask_of(words: Sequence[str], given: Sequence[int]) -> int:
    """The manual's pseudo-code."""
    a, b = given
    first, width = a & 31, b & 31
    lower, upper = -1 << first, -1 << (first + width) if first + width < 32 else 0
    if "clamp" in words:
        if a >= 32 or b >= 32:
            upper = 0
        if a >= 32:
            lower = 0
    return lower & ~upper


def dot(words: Sequence[str], given: Sequence[int]) -> int:
    first, second = words[-2:]
    total = given[2]
    halves = "lo" in words or "hi" in words
    for i in range(2 if halves else 4):
        size = 16 if halves else 8
        place = i + (2 if "hi" in words else 0)
        total += number(given[0] >> size * i, f"{first[0]}{size}") * number(
            given[1] >> 8 * place, f"{second[0]}8"
        )
    return total


def table(words: Sequence[str], given: Sequence[int]) -> int | tuple[int, ...]:
    a, b, c, lut, *rest = given
    found = sum((lut >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1) << i for i in range(32))
    if not rest:
        return found
    holds = int(found != 0)
    return found, holds | rest[0] if "or" in words else holds & rest[0]


def shift_left(words: Sequence[str], given: Sequence[int]) -> int:
    return given[0] << given[1] if given[1] < 64 else 0


def shift_right(words: Sequence[str], given: Sequence[int]) -> int:
    return number(given[0], kind_of(words)) >> min(given[1], 64)


def funnel(words: Sequence[str], given: Sequence[int]) -> int:
    a, b, c = given
    amount = c & 31 if "wrap" in words else min(c, 32)
    return (b << 32 | a) << amount >> 32 if "l" in words else (b << 32 | a) >> amount


def permute(words: Sequence[str], given: Sequence[int]) -> int:
    a, b, c = given
    source = [(b << 32 | a) >> 8 * i & 255 for i in range(8)]
    mode = words[-1] if words[-1] != "b32" else ""
    i = c & 3
    chosen = {
        "f4e": [i, i + 1, i + 2, i + 3], "b4e": [i, i - 1 & 7, i - 2 & 7, i - 3 & 7], "rc8": [i] * 4,
        "ecl": [max(i, n) for n in range(4)], "ecr": [min(i, n) for n in range(4)],
        "rc16": [(i & 1) * 2 + (n & 1) for n in range(4)],
    }  # fmt: skip
    if mode:
        return sum(source[place] << 8 * n for n, place in enumerate(chosen[mode]))
    found = 0
    for n in range(4):
        selector = c >> 4 * n & 15
        byte = source[selector & 7]
        found |= (255 * (byte >> 7) if selector & 8 else byte) << 8 * n
    return found


def carryless(words: Sequence[str], given: Sequence[int]) -> int:
    a, b, c = given
    found = 0
    for i in range(64):
        found ^= (a << i) * (b >> i & 1)
    return (found >> 64 if "hi" in words else found & (1 << 64) - 1) ^ c


MODELS: dict[str, Model] = {
    "clmad": carryless,
    "add": packed(lambda a, b: a + b),
    "sub": packed(lambda a, b: a - b),
    "min": packed(min),
    "max": packed(max),
    "mul": product,
    "mad": multiply_add,
    "mul24": product24,
    "mad24": multiply_add24,
    "sad": lambda words, given: (
        numbers(words, given)[2] + abs(numbers(words, given)[0] - numbers(words, given)[1])
    ),
    "div": divide,
    "rem": remainder,
    "abs": lambda words, given: abs(numbers(words, given)[0]),
    "neg": packed(lambda a: -a),
    "popc": lambda words, given: given[0].bit_count(),
    "clz": lambda words, given: bits(kind_of(words)) - given[0].bit_length(),
    "bfind": find,
    "fns": nth_set,
    "brev": lambda words, given: int(f"{given[0]:0{bits(kind_of(words))}b}"[::-1], 2),
    "bfe": extract,
    "bfi": insert,
    "szext": extend,
    "bmsk": mask_of,
    "dp4a": dot,
    "dp2a": dot,
    "and": lambda words, given: given[0] & given[1],
    "or": lambda words, given: given[0] | given[1],
    "xor": lambda words, given: given[0] ^ given[1],
    "not": lambda words, given: ~given[0],
    "cnot": lambda words, given: int(given[0] == 0),
    "lop3": table,
    "shl": shift_left,
    "shr": shift_right,
    "shf": funnel,
    "prmt": permute,
    "addc": carried(lambda words, given, size: sum(given)),
    "subc": carried(lambda words, given, size: given[0] + (~given[1] & ((1 << size) - 1)) + given[2]),
    "madc": carried(
        lambda words, given, size: (
            (half_of_product(words, given[0], given[1]) & ((1 << size) - 1)) + given[2] + given[3]
        )
    ),
}
_WITH_CARRY: dict[str, Model] = {
    "add": MODELS["addc"],
    "sub": carried(lambda words, given, size: given[0] + (~given[1] & ((1 << size) - 1)) + 1),
    "mad": carried(
        lambda words, given, size: (half_of_product(words, given[0], given[1]) & ((1 << size) - 1)) + given[2]
    ),
}


def calculate(opcode: str, given: Sequence[int]) -> tuple[int, ...]:
    """The results of an instruction; the condition code is the last operand and the last result."""
    name, *words = opcode.split(".")
    model = _WITH_CARRY[name] if "cc" in words and name in _WITH_CARRY else MODELS[name]
    found = model(words, given)
    return found if isinstance(found, tuple) else (found,)
