"""What each instruction that one thread can carry out alone does to that thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from . import floats, integers
from .integers import clamp, mask, signed
from .memory import WINDOWS
from .operands import Builder, Get, Step
from .syntax import WIDTHS, Vector

if TYPE_CHECKING:
    from .machine import Thread

MEANINGS: dict[str, Callable[[Builder], Step]] = {}


def meaning(*names: str) -> Callable[[Callable[[Builder], Step]], Callable[[Builder], Step]]:
    def register(function: Callable[[Builder], Step]) -> Callable[[Builder], Step]:
        MEANINGS.update(dict.fromkeys(names, function))
        return function

    return register


def apply(b: Builder, function: Callable[..., int], gets: list[Get], width: int | None = None,
          is_signed: bool | None = None) -> Step:  # fmt: skip
    """Write ``function(operands…)`` to operand 0."""
    put = b.put(0, width, b.signed if is_signed is None else is_signed)
    if len(gets) == 1:
        (x,) = gets
        return lambda t: put(t, function(x(t)))
    if len(gets) == 2:
        x, y = gets
        return lambda t: put(t, function(x(t), y(t)))
    return lambda t: put(t, function(*[get(t) for get in gets]))


def sources(b: Builder, count: int, is_signed: bool = False, first: int = 1) -> list[Get]:
    return [b.get(i, None, is_signed) for i in range(first, first + count)]


def half_lanes(function: Callable[..., int], count: int = 2) -> Callable[..., int]:
    """The function on each 16-bit half of packed operands."""
    return lambda *xs: sum(
        (function(*[x >> 16 * i & 0xFFFF for x in xs]) & 0xFFFF) << 16 * i for i in range(count)
    )


def floating(b: Builder, function: Callable[..., int], count: int) -> Step:
    """A float instruction: ``.ftz`` around it, then ``.sat`` or ``.relu``, per half when packed."""
    f = b.float
    assert f is not None
    ftz, sat, relu = b.has("ftz"), b.has("sat"), b.has("relu")

    def one(*xs: int) -> int:
        if ftz:
            result = floats.flush(f, function(*[floats.flush(f, x) for x in xs]))
        else:
            result = function(*xs)
        if sat:
            return floats.saturate(f, result)
        return floats.relu(f, result) if relu else result

    return apply(b, half_lanes(one) if b.type.endswith("x2") else one, sources(b, count))


# -- arithmetic on integers and floats


@meaning("add", "sub")
def add(b: Builder) -> Step:
    sign = 1 if b.statement.base == "add" else -1
    f, mode = b.float, b.mode or "rn"
    if f is not None:
        if sign == 1:
            return floating(b, lambda x, y: floats.add(f, x, y, mode), 2)
        # a − b: subtracting is adding the negated operand; a NaN stays a NaN
        return floating(b, lambda x, y: floats.add(f, x, floats.negate(f, y), mode), 2)
    if b.type.endswith("x2"):
        return apply(b, half_lanes(lambda x, y: x + sign * y), sources(b, 2), is_signed=False)
    if b.has("cc"):
        return carry(b)
    if b.has("sat"):
        return apply(b, lambda x, y: clamp(x + sign * y, 32, True), sources(b, 2, True))
    return apply(b, lambda x, y: x + sign * y, sources(b, 2))


@meaning("addc", "subc")
def carry(b: Builder) -> Step:
    """Extended precision: ``.cc`` writes the carry (or borrow) flag, ``addc``/``subc`` read it."""
    base = b.statement.base
    reads, subtract, writes = base in ("addc", "subc"), base.startswith("sub"), b.has("cc")
    x, y = sources(b, 2)
    put, width = b.put(0), b.width

    def step(t: Thread) -> None:
        flag = t.carry if reads else 0
        total = x(t) - y(t) - flag if subtract else x(t) + y(t) + flag
        put(t, total)
        if writes:
            t.carry = total >> width & 1

    return step


@meaning("mul")
def mul(b: Builder) -> Step:
    f, mode = b.float, b.mode or "rn"
    if f is not None:
        return floating(b, lambda x, y: floats.mul(f, x, y, mode), 2)
    gets = sources(b, 2, b.signed)
    if b.has("wide"):
        return apply(b, lambda x, y: x * y, gets, 2 * b.width)
    shift = b.width if b.has("hi") else 0
    return apply(b, lambda x, y: x * y >> shift, gets)


@meaning("fma", "mad", "madc")
def mad(b: Builder) -> Step:
    f, mode = b.float, b.mode or "rn"
    if f is not None:
        return floating(b, lambda x, y, z: floats.fma(f, x, y, z, mode), 3)
    wide = 2 * b.width if b.has("wide") else b.width
    shift = b.width if b.has("hi") else 0
    x, y = sources(b, 2, b.signed)
    if b.has("sat"):  # mad.hi.sat.s32
        return apply(b, lambda p, q, r: clamp((p * q >> 32) + r, 32, True), [x, y, b.get(3, 32, True)])
    z = b.get(3, wide)
    if not (b.has("cc") or b.statement.base == "madc"):
        return apply(b, lambda p, q, r: (p * q >> shift) + r, [x, y, z], wide)
    reads, writes, put, width = b.statement.base == "madc", b.has("cc"), b.put(0), b.width

    def step(t: Thread) -> None:
        total = (x(t) * y(t) >> shift & mask(width)) + z(t) + (t.carry if reads else 0)
        put(t, total)
        if writes:
            t.carry = total >> width & 1

    return step


@meaning("mul24", "mad24")
def mul24(b: Builder) -> Step:
    shift = 16 if b.has("hi") else 0
    narrow = (lambda x: signed(x, 24)) if b.signed else (lambda x: x & 0xFFFFFF)
    gets = sources(b, 2)
    if b.statement.base == "mul24":
        return apply(b, lambda x, y: narrow(x) * narrow(y) >> shift, gets)
    gets.append(b.get(3, 32, b.signed))
    if b.has("sat"):
        return apply(b, lambda x, y, z: clamp((narrow(x) * narrow(y) >> 16) + z, 32, True), gets)
    return apply(b, lambda x, y, z: (narrow(x) * narrow(y) >> shift) + z, gets)


@meaning("div")
def div(b: Builder) -> Step:
    f = b.float
    if f is not None:  # .approx and .full: the correctly rounded quotient is within their bounds
        mode = b.mode or "rn"
        return floating(b, lambda x, y: floats.div(f, x, y, mode), 2)
    return apply(b, integers.quotient, sources(b, 2, b.signed))


@meaning("rem")
def rem(b: Builder) -> Step:
    return apply(b, integers.remainder, sources(b, 2, b.signed))


@meaning("abs", "neg")
def absolute(b: Builder) -> Step:
    negate = b.statement.base == "neg"
    f = b.float
    if f is not None:
        return floating(b, lambda x: floats.negate(f, x) if negate else floats.absolute(f, x), 1)
    return apply(b, lambda x: -x if negate else abs(x), sources(b, 1, True))


@meaning("min", "max")
def extremum(b: Builder) -> Step:
    largest = b.statement.base == "max"
    f = b.float
    count = len(b.operands) - 1
    if f is not None:
        nan, xorsign = b.has("NaN"), b.has("xorsign")

        def fold(*xs: int) -> int:
            result = xs[0]
            for x in xs[1:]:
                result = floats.extremum(f, result, x, largest, nan, xorsign)
            return result

        return floating(b, fold, count)
    pick = max if largest else min
    relu = b.has("relu")
    if b.type.endswith("x2"):

        def lane(x: int, y: int) -> int:
            result = pick(signed(x, 16), signed(y, 16)) if b.signed else pick(x, y)
            return max(result, 0) if relu else result

        return apply(b, half_lanes(lane), sources(b, 2), is_signed=False)
    return apply(b, lambda x, y: max(pick(x, y), 0) if relu else pick(x, y), sources(b, 2, b.signed))


@meaning("sad")
def sad(b: Builder) -> Step:
    return apply(b, lambda x, y, z: z + abs(x - y), [*sources(b, 2, b.signed), b.get(3)])


@meaning("rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
def unary(b: Builder) -> Step:
    f, base, mode = b.float, b.statement.base, b.mode
    assert f is not None
    if mode and base == "rcp":
        return floating(b, lambda x: floats.div(f, f.one, x, mode), 1)
    if mode and base == "sqrt":
        return floating(b, lambda x: floats.sqrt(f, x, mode), 1)
    if f is floats.F64 and b.has("ftz") and base in ("rcp", "rsqrt"):  # the upper words only
        return floating(b, lambda x: floats.approximate(f, base, x & ~mask(32)) & ~mask(32), 1)
    return floating(b, lambda x: floats.approximate(f, base, x), 1)


@meaning("copysign")
def copysign(b: Builder) -> Step:
    f = b.float
    assert f is not None
    return apply(b, lambda x, y: floats.absolute(f, y) | x & f.sign_bit, sources(b, 2))


@meaning("testp")
def testp(b: Builder) -> Step:
    f = b.float
    assert f is not None
    kind = b.mods[0]

    def test(x: int) -> int:
        magnitude = x & (f.sign_bit - 1)
        smallest_normal = 1 << f.mantissa_bits
        return int({
            "finite": magnitude < f.infinity, "infinite": magnitude == f.infinity,
            "number": magnitude <= f.infinity, "notanumber": magnitude > f.infinity,
            "normal": smallest_normal <= magnitude < f.infinity, "subnormal": magnitude < smallest_normal,
        }[kind])  # fmt: skip

    return apply(b, test, sources(b, 1), 1, False)


# -- bits


@meaning("and", "or", "xor")
def logic(b: Builder) -> Step:
    if b.statement.base == "and":
        return apply(b, lambda x, y: x & y, sources(b, 2))
    if b.statement.base == "or":
        return apply(b, lambda x, y: x | y, sources(b, 2))
    return apply(b, lambda x, y: x ^ y, sources(b, 2))


@meaning("not")
def invert(b: Builder) -> Step:
    return apply(b, lambda x: ~x, sources(b, 1))


@meaning("cnot")
def cnot(b: Builder) -> Step:
    return apply(b, lambda x: int(x == 0), sources(b, 1))


@meaning("lop3")
def lop3(b: Builder) -> Step:
    booleans = [word for word in b.mods if word in ("or", "and")]
    d, p = b.pair(0)
    put, put_p = b.put(d), b.put(p, 1)
    x, y, z = sources(b, 3)
    table = b.get(4, 8)
    q = b.get(5, 1) if booleans else None

    def step(t: Thread) -> None:
        result = integers.logic3(x(t), y(t), z(t), table(t))
        put(t, result)
        if q is not None:
            put_p(t, int(result != 0) | q(t) if booleans[0] == "or" else int(result != 0) & q(t))

    return step


@meaning("shl", "shr")
def shift(b: Builder) -> Step:
    width, amount = b.width, b.get(2, 32)
    if b.statement.base == "shl":
        return apply(b, lambda x, n: integers.shift_left(x, n, width), [b.get(1), amount])
    return apply(b, lambda x, n: integers.shift_right(x, n, width), [b.get(1, None, b.signed), amount])


@meaning("shf")
def shf(b: Builder) -> Step:
    left, clamped = b.has("l"), b.has("clamp")
    return apply(b, lambda x, y, n: integers.funnel(x, y, n, left, clamped), sources(b, 3))


@meaning("bfe")
def bfe(b: Builder) -> Step:
    width, is_signed = b.width, b.signed
    return apply(b, lambda x, y, z: integers.extract(x, y, z, width, is_signed),
                 [b.get(1), b.get(2, 32), b.get(3, 32)])  # fmt: skip


@meaning("bfi")
def bfi(b: Builder) -> Step:
    width = b.width
    return apply(b, lambda x, y, z, w: integers.insert(x, y, z, w, width),
                 [b.get(1), b.get(2), b.get(3, 32), b.get(4, 32)])  # fmt: skip


@meaning("bfind")
def bfind(b: Builder) -> Step:
    width, is_signed, amount = b.width, b.signed, b.has("shiftamt")
    return apply(b, lambda x: integers.find_leading(x, width, is_signed, amount), sources(b, 1), 32, False)


@meaning("fns")
def fns(b: Builder) -> Step:
    return apply(b, integers.find_nth_set, [b.get(1), b.get(2), b.get(3, 32, True)])


@meaning("bmsk")
def bmsk(b: Builder) -> Step:
    clamped = b.has("clamp")
    return apply(b, lambda x, y: integers.bit_mask(x, y, clamped), sources(b, 2))


@meaning("szext")
def szext(b: Builder) -> Step:
    is_signed, clamped = b.signed, b.has("clamp")
    return apply(b, lambda x, y: integers.extend(x, y, is_signed, clamped), sources(b, 2))


@meaning("brev")
def brev(b: Builder) -> Step:
    width = b.width
    return apply(b, lambda x: integers.reverse(x, width), sources(b, 1))


@meaning("popc")
def popc(b: Builder) -> Step:
    return apply(b, lambda x: x.bit_count(), sources(b, 1), 32, False)


@meaning("clz")
def clz(b: Builder) -> Step:
    width = b.width
    return apply(b, lambda x: width - x.bit_length(), sources(b, 1), 32, False)


@meaning("prmt")
def prmt(b: Builder) -> Step:
    mode = next((word for word in b.mods if word in integers.PRMT), "")
    return apply(b, lambda x, y, z: integers.permute(x, y, z, mode), sources(b, 3))


@meaning("dp4a", "dp2a")
def dot(b: Builder) -> Step:
    halves = next((word for word in b.mods if word in ("lo", "hi")), "")
    first, second = (name.startswith("s") for name in b.types[:2])
    return apply(b, lambda x, y, z: integers.dot(x, y, z, first, second, halves), sources(b, 3))


# -- comparison and selection


def comparison(b: Builder, type_name: str, op: str) -> Callable[[int, int], bool]:
    f = floats.FORMATS.get(type_name.removesuffix("x2"))
    if f is not None:
        ftz = b.has("ftz")
        if ftz:
            return lambda x, y: floats.compare(f, op, floats.flush(f, x), floats.flush(f, y))
        return lambda x, y: floats.compare(f, op, x, y)
    name = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(op, op)
    width = WIDTHS[type_name]
    if type_name.startswith("s"):
        flip = 1 << (width - 1)  # moves the signed order onto the unsigned one
    else:
        flip = 0
    tests: dict[str, Callable[[int, int], bool]] = {
        "eq": lambda x, y: x == y, "ne": lambda x, y: x != y,
        "lt": lambda x, y: x ^ flip < y ^ flip, "le": lambda x, y: x ^ flip <= y ^ flip,
        "gt": lambda x, y: x ^ flip > y ^ flip, "ge": lambda x, y: x ^ flip >= y ^ flip,
    }  # fmt: skip
    return tests[name]


def combined(b: Builder, at: int) -> Callable[[Thread, bool], int]:
    """The optional boolean operator of ``set``/``setp`` with its predicate operand."""
    if len(b.operands) <= at:
        return lambda t, x: int(x)
    c = b.get(at, 1)
    operator = next(word for word in b.mods if word in ("and", "or", "xor"))
    if operator == "and":
        return lambda t, x: int(x) & c(t)
    if operator == "or":
        return lambda t, x: int(x) | c(t)
    return lambda t, x: int(x) ^ c(t)


@meaning("setp")
def setp(b: Builder) -> Step:
    test, join = comparison(b, b.type, b.mods[0]), combined(b, 3)
    p, q = b.pair(0)
    put_p, put_q = b.put(p, 1), b.put(q, 1)
    x, y = sources(b, 2)
    if b.type.endswith("x2"):

        def halves(t: Thread) -> None:
            u, v = x(t), y(t)
            put_p(t, join(t, test(u & 0xFFFF, v & 0xFFFF)))
            put_q(t, join(t, test(u >> 16, v >> 16)))

        return halves

    def step(t: Thread) -> None:
        result = test(x(t), y(t))
        p_value, q_value = join(t, result), join(t, not result)
        put_p(t, p_value)
        put_q(t, q_value)

    return step


@meaning("set")
def set_(b: Builder) -> Step:
    target, source = b.types[-2:]
    width = WIDTHS[source]
    test, join = comparison(b, source, b.mods[0]), combined(b, 3)
    f = floats.FORMATS.get(target.removesuffix("x2"))
    x, y = b.get(1, width), b.get(2, width)
    put = b.put(0, WIDTHS[target])
    if source.endswith("x2"):
        true = f.one if f is not None else 0xFFFF

        def halves(t: Thread) -> None:
            u, v = x(t), y(t)
            low = true * join(t, test(u & 0xFFFF, v & 0xFFFF))
            put(t, low | true * join(t, test(u >> 16, v >> 16)) << 16)

        return halves
    true = f.one if f is not None else mask(WIDTHS[target])
    return lambda t: put(t, true * join(t, test(x(t), y(t))))


@meaning("selp")
def selp(b: Builder) -> Step:
    x, y = sources(b, 2)
    p, put = b.get(3, 1), b.put(0)
    return lambda t: put(t, x(t) if p(t) else y(t))


@meaning("slct")
def slct(b: Builder) -> Step:
    x, y = sources(b, 2)
    control = b.types[1]
    c, put = b.get(3, 32), b.put(0)
    if control == "f32":
        ftz = b.has("ftz")

        def step(t: Thread) -> None:
            value = floats.flush(floats.F32, c(t)) if ftz else c(t)
            put(t, x(t) if floats.compare(floats.F32, "ge", value, 0) else y(t))

        return step
    return lambda t: put(t, y(t) if c(t) >> 31 else x(t))


# -- moves and addresses


@meaning("mov")
def mov(b: Builder) -> Step:
    put, x = b.put(0), b.get(1)
    return lambda t: put(t, x(t))


@meaning("cvta")
def cvta(b: Builder) -> Step:
    window = WINDOWS.get(b.space(), 0)
    if b.has("to"):
        window = -window
    return apply(b, lambda x: x + window, sources(b, 1))


@meaning("isspacep")
def isspacep(b: Builder) -> Step:
    space = b.space()
    x, put = b.get(1, 64), b.put(0, 1)

    def step(t: Thread) -> None:
        actual, _ = t.resolve(space="generic", address=x(t))
        if actual == "global" and t.cta.machine.is_constant(x(t)):
            actual = "const"
        put(t, int(actual == space))

    return step


@meaning("ld", "ldu")
def ld(b: Builder) -> Step:
    space, address = b.space(), b.address(1)
    size = b.width // 8
    target = b.operands[0]
    items = target.items if isinstance(target, Vector) else (target,)
    puts = [b.put(item, b.width, b.signed) for item in items]
    if len(puts) == 1:
        put = puts[0]
        return lambda t: put(t, t.load(space, address(t), size))
    total = size * len(puts)

    def step(t: Thread) -> None:
        data = t.load(space, address(t), total)
        for i, put in enumerate(puts):
            put(t, data >> 8 * size * i)

    return step


@meaning("st")
def st(b: Builder) -> Step:
    space, address = b.space(), b.address(0)
    size, source = b.width // 8, b.operands[1]
    total = size * len(source.items) if isinstance(source, Vector) else size
    value = b.get(source, total * 8)
    return lambda t: t.store(space, address(t), total, value(t))


@meaning("cp")
def copy(b: Builder) -> Step:
    """``cp.async`` without its asynchrony: copied at once, its groups and waits do nothing."""
    if b.mods[:2] in (["async", "commit_group"], ["async", "wait_group"], ["async", "wait_all"]):
        return nothing(b)
    if b.mods[0] != "async" or not (b.has("ca") or b.has("cg")):
        raise b.fail("the oracle does not know this instruction")
    to, source, size = b.address(0), b.address(1), b.get(2, 32)
    has_size = len(b.operands) > 3 + ("L2::cache_hint" in b.statement.modifiers)
    given = b.get(3, 32) if has_size else size

    def step(t: Thread) -> None:
        count = min(given(t), size(t))
        data = t.load("global", source(t), count, size(t)) if count else 0
        t.store("shared", to(t), size(t), data)

    return step


def float_atomic(b: Builder, op: str) -> Callable[[int, int], int]:
    f = b.float
    assert f is not None
    one: Callable[[int, int], int] = {
        "add": lambda x, y: floats.add(f, x, y),
        "min": lambda x, y: floats.extremum(f, x, y, False),
        "max": lambda x, y: floats.extremum(f, x, y, True),
        "exch": lambda x, y: y,
    }[op]
    return half_lanes(one) if b.type.endswith("x2") else one


def integer_atomic(b: Builder, op: str) -> Callable[[int, int], int]:
    width, is_signed = b.width, b.signed

    def value(x: int) -> int:
        return signed(x, width) if is_signed else x

    table: dict[str, Callable[[int, int], int]] = {
        "add": lambda x, y: x + y,
        "and": lambda x, y: x & y,
        "or": lambda x, y: x | y,
        "xor": lambda x, y: x ^ y,
        "exch": lambda x, y: y,
        "min": lambda x, y: min(x, y, key=value),
        "max": lambda x, y: max(x, y, key=value),
        "inc": lambda x, y: 0 if x >= y else x + 1,
        "dec": lambda x, y: y if x == 0 or x > y else x - 1,
    }
    return table[op]


@meaning("atom", "red")
def atom(b: Builder) -> Step:
    at = 0 if b.statement.base == "red" else 1
    op = next(
        w for w in b.mods if w in ("add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas")
    )
    space, address, size, width = b.space(), b.address(at), b.width // 8, b.width
    target = b.operands[0]
    source = b.operands[at + 1]
    values = [b.get(x) for x in (source.items if isinstance(source, Vector) else (source,))]
    items = target.items if isinstance(target, Vector) else (target,)
    puts = [b.put(item) for item in items] if at else []
    swap = b.get(at + 2) if op == "cas" else None
    combine = None if swap else float_atomic(b, op) if b.float is not None else integer_atomic(b, op)
    # atom.add.f32 in global memory flushes subnormals, in shared memory it does not (manual, "atom")
    flushes = op == "add" and b.type == "f32" and len(values) == 1

    def step(t: Thread) -> None:
        start = address(t)
        flush = flushes and t.resolve(space, start)[0] == "global"
        t.check_alignment(start, size * len(values))
        for i, get in enumerate(values):
            old = t.load(space, start + size * i, size)
            new = get(t)
            if swap is not None:
                new = swap(t) if old == new else old
            elif flush:
                f = floats.F32
                new = floats.flush(f, floats.add(f, floats.flush(f, old), floats.flush(f, new)))
            elif combine is not None:
                new = combine(old, new)
            t.store(space, start + size * i, size, new & mask(width))
            if puts:
                puts[i](t, old)

    return step


@meaning("membar", "fence", "prefetch", "prefetchu", "nanosleep", "pmevent", "griddepcontrol", "discard",
         "applypriority", "setmaxnreg", "brkpt")  # fmt: skip
def nothing(b: Builder) -> Step:
    return lambda t: None


@meaning("createpolicy")
def createpolicy(b: Builder) -> Step:
    put = b.put(0, 64)
    return lambda t: put(t, 0)


# -- conversion


def narrow_float(b: Builder, source: floats.Format, target: floats.Format) -> Callable[[int], int]:
    """Float to float with the modifiers of ``cvt``."""
    mode = b.mode
    ftz, sat, relu, finite = b.has("ftz"), b.has("sat"), b.has("relu"), b.has("satfinite")

    def one(x: int) -> int:
        if ftz and source is floats.F32:
            x = floats.flush(source, x)
        if mode.endswith("i"):
            x = floats.round_to_integral(source, x, mode[:2])
        if source is target:
            result = floats.FORMATS[target.name].nan if floats.is_nan(target, x) else x
        else:
            result = floats.convert(source, target, x, mode if mode and not mode.endswith("i") else "rn")
        if ftz and target is floats.F32:
            result = floats.flush(target, result)
        if finite and floats.is_infinite(target, result):
            result = result & target.sign_bit | target.largest
        if sat:
            return floats.saturate(target, result)
        return floats.relu(target, result) if relu else result

    return one


def float_to_integer(b: Builder, source: floats.Format, target: str) -> Callable[[int], int]:
    """Out of range saturates; NaN gives 0, or the top bit alone from f64 or to 64 bits (manual, "cvt")."""
    mode = b.mode.removesuffix("i") or "rz"
    width, is_signed = WIDTHS[target], target.startswith("s")
    flush = b.has("ftz") and source is floats.F32

    def one(x: int) -> int:
        if floats.is_nan(source, x):
            return 1 << (width - 1) if source is floats.F64 or width == 64 else 0
        if floats.is_infinite(source, x):
            return clamp(-(1 << 200) if x & source.sign_bit else 1 << 200, width, is_signed)
        return clamp(
            floats.to_integer(source, floats.flush(source, x) if flush else x, mode), width, is_signed
        )

    return one


@meaning("cvt")
def cvt(b: Builder) -> Step:
    target, source = b.types[:2]
    if b.has("pack"):
        return pack(b)
    to, of = floats.FORMATS.get(target), floats.FORMATS.get(source)
    if target.endswith("x2") and source == "f32":  # d = {b, a}: the first source is the upper half
        half = floats.FORMATS.get(target.removesuffix("x2"))
        if half is None:
            raise b.fail("the oracle does not know this type")
        one = narrow_float(b, floats.F32, half)
        return apply(b, lambda x, y: one(x) << 16 | one(y), [b.get(1, 32), b.get(2, 32)])
    if target == "tf32":
        narrow = narrow_float(b, floats.F32, floats.TF32)
        return apply(b, lambda x: narrow(x) << 13, [b.get(1, 32)])
    x = b.get(1, WIDTHS[source], source.startswith("s"))
    saturating = b.has("sat")
    if to is not None and of is not None:
        return apply(b, narrow_float(b, of, to), [x])
    if to is not None and source[0] in "su":
        f, mode = to, b.mode or "rn"

        def from_integer(value: int) -> int:
            result = floats.pack(f, value, 0, mode)
            return floats.saturate(f, result) if saturating else result

        return apply(b, from_integer, [x])
    if of is not None and target[0] in "su":
        return apply(b, float_to_integer(b, of, target), [x])
    if target[0] in "su" and source[0] in "su":
        width, is_signed = b.width, b.signed
        return apply(b, lambda v: clamp(v, width, is_signed) if saturating else v, [x])
    raise b.fail("the oracle does not know this conversion")


def pack(b: Builder) -> Step:
    """``cvt.pack``: a in the upper, b in the lower part; c fills from above for the narrow forms."""
    target = b.type
    width, is_signed = WIDTHS[target], target.startswith("s")
    gets = [b.get(1, 32, True), b.get(2, 32, True)]
    if len(b.operands) > 3:
        gets.append(b.get(3, 32))

    def join(x: int, y: int, c: int = 0) -> int:
        low = clamp(x, width, is_signed) & mask(width)
        high = clamp(y, width, is_signed) & mask(width)
        return low << width | high | c << 2 * width

    return apply(b, join, gets, 32, False)
