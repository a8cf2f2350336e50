"""The semantics of matrix products: fragments of a warp as numbers, their products and sums.

Products are exact. Floating-point sums begin with c and add the products in ascending k in double precision (for a sparse matrix
A: in the order of its stored elements); the sum is rounded once, to nearest even, to the type of d. (Hardware adds in another
order and with fewer bits; the manual specifies neither.) For ``.f64`` every step is one ``fma``, as the manual requires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from ..formats import FORMATS, decode
from ..fragments import LANES, Layout, Place, gather, layouts, tile_of
from ..primitives import Value, choose, concat, fma, maximum, minimum, permute, popc, select, split
from ..types import ScalarType, scalar_type

__all__ = [
    "F32",
    "F64",
    "PER_REGISTER",
    "S32",
    "S64",
    "U32",
    "UNPACK",
    "Fetched",
    "Pairs",
    "Product",
    "clamped",
    "dense",
    "sizes",
    "small_number",
]

F32, F64, U32, S32, S64 = (scalar_type(name) for name in ("f32", "f64", "u32", "s32", "s64"))


def _halves(name: str) -> Callable[[Value], Sequence[Value]]:
    return lambda register: [half.bits(scalar_type(name)).convert(F32) for half in split(register, 2)]


def _tf32(register: Value) -> Sequence[Value]:
    """tf32 ignores the low 13 bits of a register."""
    return [(register.bits(U32) & 0xFFFFE000).bits(F32)]


def _integers(name: str) -> Callable[[Value], Sequence[Value]]:
    bits, signed = int(name[1:]), name[0] == "s"

    def unpack(register: Value) -> Sequence[Value]:
        whole = register.bits(S32 if signed else U32)
        return [
            ((whole << (32 - bits * (index + 1))) >> (32 - bits)).bits(S32) for index in range(32 // bits)
        ]

    return unpack


def _eights(name: str) -> Callable[[Value], Sequence[Value]]:
    return lambda register: [decode(byte, FORMATS[name]).convert(F64) for byte in split(register, 4)]


def small_number(code: Value, mantissa: int, bias: int) -> Value:
    """The magnitude (f32) of a code that consists of an exponent and a mantissa of so many bits, without special values."""
    exponent = code >> mantissa
    normal = exponent.compare("ne", 0)
    significand = (code & ((1 << mantissa) - 1)) + select(normal, code.constant(1 << mantissa, U32), 0)
    scale = (maximum(exponent, 1) + (127 - bias - mantissa)) << 23
    return significand.convert(F32, rounding="rn") * scale.bits(F32)


def _narrow(bits: int, mantissa: int, bias: int, every: int, low: int) -> Callable[[Value], Sequence[Value]]:
    """Formats of 4 and 6 bits (sign, exponent, mantissa): one number per ``every`` bits of a register, at bit ``low`` of these."""
    sign = 1 << (bits - 1)

    def unpack(register: Value) -> Sequence[Value]:
        numbers = []
        for index in range(32 // every):
            code = (register.bits(U32) >> (every * index + low)) & (2 * sign - 1)
            magnitude = small_number(code & (sign - 1), mantissa, bias).bits(U32)
            numbers.append((magnitude | ((code & sign) << (32 - bits))).bits(F32))
        return numbers

    return unpack


#: By element type. A register has eight numbers of ``e2m1x8``; all other 4-bit and 6-bit floats take a byte each (manual: cvt, and
#: ``.kind::f8f6f4`` of tcgen05.mma: 4-bit numbers are in the middle of the byte, 6-bit numbers in its low bits).
UNPACK: dict[str, Callable[[Value], Sequence[Value]]] = {
    "f16": _halves("f16"),
    "bf16": _halves("bf16"),
    "tf32": _tf32,
    "f64": lambda register: [register.bits(F64)],
    "b1": lambda register: [register.bits(U32)],
    **{name: _integers(name) for name in ("u8", "s8", "u4", "s4")},
    **{name: _eights(name) for name in ("e4m3", "e5m2")},
    "e2m3": _narrow(6, 3, 1, 8, 0),
    "e3m2": _narrow(6, 2, 3, 8, 0),
    "e2m1": _narrow(4, 1, 1, 8, 2),
    "e2m1x8": _narrow(4, 1, 1, 4, 0),
}
PER_REGISTER = {
    "f16": 2,
    "bf16": 2,
    "tf32": 1,
    "f64": 1,
    "b1": 1,
    "u8": 4,
    "s8": 4,
    "u4": 8,
    "s4": 8,
    "e4m3": 4,
    "e5m2": 4,
    "e2m3": 4,
    "e3m2": 4,
    "e2m1": 4,
    "e2m1x8": 8,
}


class Route:
    """The exchanges that bring every lane the element of a matrix that it uses (see ``gather``); one object per set of positions."""

    def __init__(self, steps: Sequence[tuple[int, tuple[int, ...], tuple[bool, ...]]]) -> None:
        self.steps = steps


@lru_cache(maxsize=4096)
def _route(layout: Layout, elements: int, wanted: tuple[Place, ...]) -> Route:
    return Route(gather(layout, elements, wanted))


class Fetched:
    """The elements of one matrix, exchanged to the lanes that use them; each exchange is computed once."""

    def __init__(self, fragment: Sequence[Value], layout: Layout, type: ScalarType) -> None:
        self.fragment, self.layout, self.type = fragment, layout, type
        self.moved: dict[tuple[int, tuple[int, ...]], Value] = {}
        self.fetched: dict[Route, Value] = {}

    def __call__(self, wanted: list[Place]) -> Value:
        """The element at each lane's position."""
        return self.along(_route(self.layout, len(self.fragment), tuple(wanted)))

    def along(self, route: Route) -> Value:
        """The same, by a route."""
        chosen = self.fetched.get(route)
        if chosen is not None:
            return chosen
        for element, lanes, marked in route.steps:
            value = self.moved.get((element, lanes))
            if value is None:
                value = self.moved[element, lanes] = permute(self.fragment[element], lanes).convert(self.type)
            chosen = value if chosen is None else choose(marked, value, chosen)
        assert chosen is not None
        self.fetched[route] = chosen
        return chosen


#: from the positions of the lanes in D to the two factors of each product, in order
Pairs = Callable[[list[Place]], Iterator[tuple[Value, Value]]]


def dense(first: Fetched, second: Fetched, depth: int) -> Pairs:
    layouts = first.layout, len(first.fragment), second.layout, len(second.fragment)

    def pairs(places: list[Place]) -> Iterator[tuple[Value, Value]]:
        for left, right in _dense_routes(*layouts, depth, tuple(places)):
            yield first.along(left), second.along(right)

    return pairs


@lru_cache(maxsize=1024)
def _dense_routes(
    left: Layout, lefts: int, right: Layout, rights: int, depth: int, places: tuple[Place, ...]
) -> list[tuple[Route, Route]]:
    """The routes of both factors of each product."""
    return [
        (
            _route(left, lefts, tuple((pair, row, k) for pair, row, _ in places)),
            _route(right, rights, tuple((pair, k, column) for pair, _, column in places)),
        )
        for k in range(depth)
    ]


def _add_up(
    c: Sequence[Value],
    before: Layout,
    after: Layout,
    pairs: Pairs,
    step: Callable[[Value, Value, Value], Value],
) -> list[Value]:
    """The elements of D: those of C, followed by ``step(x, y, sum)`` for each pair of factors."""
    start = Fetched(c, before, c[0].type)
    sums = []
    for element in range(len(c)):
        places = [after(lane, element) for lane in range(LANES)]
        total = start(places)
        for x, y in pairs(places):
            total = step(x, y, total)
        sums.append(total)
    return sums


def _sum(a: Value, b: Value, total: Value) -> Value:
    return total + a * b


def sizes(shape: str) -> tuple[int, int, int]:
    """m, n and k of a shape such as ``m16n8k16``."""
    m, _, rest = shape[1:].partition("n")
    n, _, k = rest.partition("k")
    return int(m), int(n), int(k)


class Product:
    """The semantics of one shape and its types: d = a · b + c. ``counts`` are the registers of a, b and c."""

    def __init__(
        self,
        shape: str,
        result: str,
        left: str,
        right: str,
        counts: tuple[int, int, int],
        added: str = "",
        tiles: bool = False,
    ) -> None:
        self.left, self.right, self.result, self.added = left, right, result, added or result
        self.rows, self.columns, self.depth = sizes(shape)
        self.counts, self.shape, self.tiles = counts, shape, tiles

    def __call__(
        self, registers: Sequence[Value], *, layout: tuple[str, str] = ("row", "col"), left: str = "", right: str = "",
        rounding: str = "rn", satfinite: bool = False, op: str = "", around: Callable[[Fetched, Fetched], Pairs] | None = None,
    ) -> tuple[Value, ...]:  # fmt: skip
        """The registers of d. ``around`` chooses the pairs of factors; by default all elements are multiplied."""
        left, right = left or self.left, right or self.right
        begin, end = self.counts[0], self.counts[0] + self.counts[1]
        a = [number for register in registers[:begin] for number in UNPACK[left](register)]
        b = [number for register in registers[begin:end] for number in UNPACK[right](register)]
        depth = self.depth // 32 if left == "b1" else self.depth
        if self.tiles:
            bits = 64 if left == "f64" else 32 // PER_REGISTER[left]
            tiles = tile_of(self.rows, depth, bits), tile_of(depth, self.columns, bits)
            sums = [
                tile_of(self.rows, self.columns, scalar_type(name).bits) for name in (self.added, self.result)
            ]
            a, b = a[: tiles[0].elements], b[: tiles[1].elements]
            before, after = (each.place("row") for each in sums)
            shape = tiles[0].place(layout[0]), tiles[1].place(layout[1]), before, after
        else:
            volta = self.shape == "m8n8k4" and left == "f16"
            singles = (*layout, self.added == "f32", self.result == "f32") if volta else None
            shape = layouts(self.rows, PER_REGISTER[left], singles)
        c = self._accumulators(registers[end : end + self.counts[2]], satfinite)
        step: Callable[[Value, Value, Value], Value] = _sum
        if left == "f64":
            step = lambda x, y, total: fma(x, y, total, rounding)  # noqa: E731
        elif left == "b1":
            step = lambda x, y, total: total + popc(x & y if op == "and" else x ^ y).bits(total.type)  # noqa: E731
        elif satfinite:
            step = lambda x, y, total: total + (x * y).convert(S64)  # noqa: E731
        placed_a, placed_b, before, after = shape
        type = F64 if a[0].type.is_float else a[0].type
        first, second = Fetched(a, placed_a, type), Fetched(b, placed_b, type)
        pairs = dense(first, second, depth) if around is None else around(first, second)
        return self._packed(_add_up(c, before, after, pairs, step))

    def _accumulators(self, registers: Sequence[Value], satfinite: bool) -> list[Value]:
        if self.added == "f16":
            return [
                half.bits(scalar_type("f16")).convert(F64)
                for register in registers
                for half in split(register, 2)
            ]
        if self.added == "s32":
            return [
                register.bits(S32).convert(S64) if satfinite else register.bits(S32) for register in registers
            ]
        return [register.bits(scalar_type(self.added)).convert(F64) for register in registers]

    def _packed(self, results: list[Value]) -> tuple[Value, ...]:
        if self.result == "f16":
            halves = [value.convert(scalar_type("f16"), rounding="rn") for value in results]
            return tuple(concat(halves[index : index + 2]) for index in range(0, len(halves), 2))
        if self.result == "s32":
            return tuple(value if value.type == S32 else clamped(value) for value in results)
        return tuple(
            value if value.type.name == self.result else value.convert(F32, rounding="rn")
            for value in results
        )


def clamped(value: Value) -> Value:
    return minimum(maximum(value, -(1 << 31)), (1 << 31) - 1).convert(S32)
