"""Every load, store and atomic that the table has, with values: what is in memory afterwards, and what the program got."""

from __future__ import annotations

import random
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.isa.effects import ATOMIC, LOAD, STORE
from gpuperf_engine.isa.model import Form
from gpuperf_engine.isa.table import rows
from tests.isa.assembler import forms
from tests.isa.reference import LAYOUTS, decode, encode, float_sum
from tests.support import BACKENDS, head, launch

HEAD = head("9.4", "sm_100a")
REGISTERS = {8: "c", 16: "h", 32: "r", 64: "l", 128: "q"}
DECLARED = (
    ".reg .b8 c<9>; .reg .b16 h<19>; .reg .b32 r<19>; .reg .b64 l<19>; .reg .b128 q<9>; .reg .pred p<3>;"
)


def bits_of(kind: str) -> int:
    known = {"f16x2": 32, "bf16x2": 32, "bf16": 16}
    return known.get(kind) or int(kind.lstrip("usbf"))


def registers(kind: str, count: int, first: int = 0) -> str:
    letter = REGISTERS[bits_of(kind)]
    names = [f"{letter}{first + place}" for place in range(count)]
    return names[0] if count == 1 else "{" + ", ".join(names) + "}"


def run(backend: str, text: str, *arrays: np.ndarray) -> list[np.ndarray]:
    return launch(backend, HEAD + text, 1, 32, arrays)[0]


# -- loads and stores ------------------------------------------------------------------------------------------------------


@cache
def moves() -> tuple[Form, ...]:
    """A few forms of each line, such that every type and vector of it comes."""
    found = []
    for row in rows():
        if row.name not in ("ld", "st", "ldu") or row.effect not in (LOAD, STORE) or "async" in row.words:
            continue
        seen: dict[tuple[object, ...], Form] = {}
        for form in forms(row, 400):
            space = form.space
            if space == "param" or "shared::cluster" in form.opcode:
                continue
            key = space, form.modifier("type"), form.modifier("vec")
            seen.setdefault(key, form)
        found += seen.values()
    return tuple(found)


def _address(form: Form, place: int) -> str:
    return {"shared": "[sha", "local": "[loc", "const": "[con"}.get(str(form.space), "[l10") + f"+{place}]"


def _policy(form: Form) -> str:
    return ", l17" if form.modifier("hint") else ""


@pytest.mark.parametrize("part", range(6))
def test_loads_and_stores(part: int) -> None:
    """Eight kernels' worth of accesses: memory is filled byte by byte, read in one form, and stored byte by byte; or the other way."""
    generator = random.Random(part)
    every = moves()
    assert len(every) > 500
    some = [every[index] for index in range(part, len(every), 6)]
    lines = [
        ".const .align 32 .b8 con[32] = {" + ", ".join(str((7 * i + 130) & 255) for i in range(32)) + "};"
    ]
    lines += [
        ".visible .entry k(.param .u64 from, .param .u64 to) {",
        DECLARED,
        ".shared .align 32 .b8 sha[64];",
    ]
    lines += [".local .align 32 .b8 loc[64]; .reg .b64 a; .reg .b64 b;"]
    lines += ["ld.param.u64 l10, [from]; ld.param.u64 b, [to]; mov.u32 r18, %tid.x; mov.u64 l17, 0;"]
    lines += ["mul.wide.u32 a, r18, 32; add.u64 l10, l10, a; mul.wide.u32 a, r18, 32; add.u64 b, b, a;"]
    data = np.array([[generator.getrandbits(8) for _ in range(32)] for _ in range(32)], np.uint8)
    constant = [(7 * i + 130) & 255 for i in range(32)]
    expected: list[list[list[int]]] = []
    for number, form in enumerate(some):
        kind, count = str(form.modifier("type")), form.vector
        size = bits_of(kind) // 8
        loads = form.effect is LOAD
        space = str(form.space)
        out = f"b+{1024 * number}"
        if loads:
            if space in ("shared", "local"):
                near = "sha" if space == "shared" else "loc"
                for place in range(
                    0, 32, 8
                ):  # all lanes write the same bytes of shared memory: those of lane 31 stay
                    lines.append(f"ld.global.b64 l11, [l10+{place}]; st.{space}.b64 [{near}+{place}], l11;")
            lines.append(f"{form.opcode} {registers(kind, count)}, {_address(form, 0)}{_policy(form)};")
            wide = kind if bits_of(kind) < 128 else "b128"
            for place in range(count):
                one = registers(f"b{bits_of(wide)}", 1, place)
                lines.append(f"st.global.b{bits_of(wide)} [{out}+{size * place}], {one};")
            rows_ = data.tolist()
            if space == "const":
                rows_ = [constant] * 32
            elif space == "shared":
                rows_ = [data[31].tolist()] * 32
            expected.append([row[: size * count] + [0] * (32 - size * count) for row in rows_])
        else:
            for place in range(count):
                one = registers(f"b{bits_of(kind)}", 1, place)
                lines.append(f"ld.global.b{bits_of(kind)} {one}, [l10+{size * place}];")
            target = _address(form, 0)
            if space not in ("shared", "local"):
                target = f"[{out}]"
            lines.append(f"{form.opcode} {target}, {registers(kind, count)}{_policy(form)};")
            if space in ("shared", "local"):
                near = "sha" if space == "shared" else "loc"
                lines += [
                    f"ld.{space}.b8 c8, [{near}+{place}]; st.global.b8 [{out}+{place}], c8;"
                    for place in range(size * count)
                ]
            rows_ = [data[31].tolist()] * 32 if space == "shared" else data.tolist()
            expected.append([row[: size * count] + [0] * (32 - size * count) for row in rows_])
    text = "\n".join([*lines, "ret; }"])
    wanted = np.array(expected, np.uint8)
    for backend in BACKENDS:
        _, found = run(backend, text, data, np.zeros_like(wanted))
        for number, lane, _ in np.argwhere(found != wanted)[:1]:
            raise AssertionError(
                (backend, some[number].opcode, lane, found[number, lane], wanted[number, lane])
            )


@pytest.mark.parametrize("kind", ["s8", "u8", "b8", "s16", "u16", "s32", "u32"])
def test_wider_registers(kind: str) -> None:
    """Loaded values are extended by their sign into wider registers, of stored ones the low bits are taken."""
    size = bits_of(kind) // 8
    wide = "l" if size == 4 else "r"
    words = [0x80, 0x7F, 0xFF, 0x8000, 0x7FFF, 0xFFFF, 0x80000000, 0xFFFFFFFF] * 4
    data = np.array(words, np.uint32)
    text = f""".visible .entry k(.param .u64 from, .param .u64 to) {{ {DECLARED}
ld.param.u64 l10, [from]; ld.param.u64 l11, [to]; mov.u32 r18, %tid.x; mul.wide.u32 l12, r18, 4; add.u64 l10, l10, l12;
mul.wide.u32 l12, r18, 16; add.u64 l11, l11, l12;
ld.global.{kind} {wide}0, [l10]; {"mov.u64 l1, l0" if wide == "l" else "cvt.s64.s32 l1, r0"}; st.global.u64 [l11], l1;
mov.u64 l2, -1; st.global.u64 [l11+8], l2; mov.u64 l3, 0x123456789abcdef0; st.global.{kind} [l11+8], l3;
ld.global.v2.{kind} {{l4, l5}}, [l11+8];
ret; }}"""
    for backend in BACKENDS:
        _, found = run(backend, text, data, np.zeros((32, 2), np.uint64))
        for word, (loaded, stored) in zip(words, found.tolist()):
            low = word & ((1 << 8 * size) - 1)
            negative = kind[0] == "s" and low >> (8 * size - 1)
            assert loaded == (low - (1 << 8 * size) if negative else low) % 2**64
            mask = (1 << 8 * size) - 1
            assert stored == (2**64 - 1 & ~mask) | (0x123456789ABCDEF0 & mask)


def test_stores_that_leave_out_elements() -> None:
    text = f""".visible .entry k(.param .u64 to) {{ {DECLARED}
ld.param.u64 l10, [to]; mov.u32 r18, %tid.x; mul.wide.u32 l12, r18, 32; add.u64 l10, l10, l12;
mov.u32 r0, 100; setp.lt.u32 p0, r18, 30; @p0 st.global.v8.b32 [l10], {{r18, _, _, r0, _, 7, _, _}};
setp.eq.u32 p1, r18, 31; mov.u64 l0, -1; @p1 st.global.v4.b64 [l10], {{_, l0, _, _}}; ret; }}"""
    for backend in BACKENDS:
        (found,) = run(backend, text, np.full((32, 8), 5, np.uint32))
        wanted = [[lane, 5, 5, 100, 5, 7, 5, 5] for lane in range(30)] + [
            [5] * 8,
            [5, 5, 2**32 - 1, 2**32 - 1, 5, 5, 5, 5],
        ]
        assert found.tolist() == wanted
    for line in ("st.global.v8.b16 [l10], {h0, _, h2, h3, h4, h5, h6, h7};", "st.global.v4.b64 [l10], {_, _, _, _};",
                 "st.global.v4.b32 [l10], {r0, _, r0, r0};", "ld.global.v4.b32 {_, _, _, _}, [l10];"):  # fmt: skip
        with pytest.raises(ge.PtxError):
            ge.parse(HEAD + text.replace("ret;", line + " ret;"), path="memory.ptx").function("k")


def test_uninitialised_elements_are_told() -> None:
    """What a store leaves out is not written."""
    text = f""".visible .entry k(.param .u64 to, .param .u64 from) {{ {DECLARED}
ld.param.u64 l10, [to]; mov.u32 r18, %tid.x; mul.wide.u32 l12, r18, 32; add.u64 l10, l10, l12;
st.global.v8.b32 [l10], {{r18, _, r18, r18, r18, r18, r18, r18}}; ld.global.b32 r0, [l10+PLACE]; st.global.b32 [l10], r0; ret; }}"""
    for place, said in ((0, False), (4, True), (8, False)):
        device = ge.Device(backend="reference")
        array = device.empty((32, 8), np.uint32)
        profile = device.launch(
            ge.parse(HEAD + text.replace("PLACE", str(place)), path="m.ptx")["k"], 1, 32, [array, None]
        )
        assert any("uninitialised" in note for note in (*profile.notes, *profile.remarks)) == said


# -- atomics ---------------------------------------------------------------------------------------------------------------


@cache
def atomics() -> tuple[Form, ...]:
    """All operations of all types and vectors, in global, shared and generic memory, one form each."""
    seen: dict[tuple[object, ...], Form] = {}
    for row in rows():
        if row.name in ("atom", "red") and row.effect.atomic and "async" not in row.words:
            for form in forms(row, 300):
                if "cluster" in form.opcode:
                    continue
                operation = form.modifier("op") or next(
                    word for word in form.opcode.split(".") if word in ("add", "exch", "cas")
                )
                key = row.name, operation, form.modifier("type"), form.modifier("vec"), form.space
                seen.setdefault(key, form)
    return tuple(seen.values())


def _operation(form: Form) -> str:
    words = form.opcode.split(".")
    return next(
        word
        for word in words
        if word in ("and", "or", "xor", "add", "inc", "dec", "min", "max", "exch", "cas")
    )


def _float(kind: str, operation: str, old: int, b: int, flush: bool) -> int:
    layout = LAYOUTS[kind]

    def flushed(word: int) -> int:
        return word & layout.sign if flush and not word & layout.infinity else word

    old, b = flushed(old), flushed(b)
    first, second = decode(kind, old), decode(kind, b)
    if first != first or second != second:
        if operation == "add" or (first != first and second != second):
            return layout.nan
        return b if first != first else old
    if operation == "add":
        if isinstance(first, float) or isinstance(second, float):
            total = float_sum(first, second)
            return layout.nan if total != total else layout.infinity | (layout.sign if total < 0 else 0)
        both = bool(old & layout.sign and b & layout.sign)
        return flushed(encode(kind, Fraction(first) + Fraction(second), negative_zero=both))
    if first == second:
        lower, higher = (old, b) if old & layout.sign else (b, old)
    else:
        lower, higher = (old, b) if first < second else (b, old)
    return lower if operation == "min" else higher


def combine(form: Form, old: int, b: int, c: int) -> int:
    """The manual's table of operations."""
    operation, kind = _operation(form), str(form.modifier("type"))
    bits = bits_of(kind)
    if operation == "exch":
        return b
    if operation == "cas":
        return c if old == b else old
    if "f" in kind:
        lanes = 2 if kind.endswith("x2") else 1
        width = bits // lanes
        flush = kind == "f32" and (form.modifier("vec") is not None or form.space in ("global", "generic"))
        found = 0
        for lane in range(lanes):
            one = _float(
                kind.split("x2")[0], operation, old >> width * lane & ((1 << width) - 1),
                b >> width * lane & ((1 << width) - 1), flush,
            )  # fmt: skip
            found |= one << width * lane
        return found

    def number(word: int) -> int:
        return word - (1 << bits) if kind[0] == "s" and word >> (bits - 1) else word

    made = {
        "and": lambda: old & b, "or": lambda: old | b, "xor": lambda: old ^ b, "add": lambda: old + b,
        "inc": lambda: 0 if old >= b else old + 1, "dec": lambda: b if old == 0 or old > b else old - 1,
        "min": lambda: min(number(old), number(b)), "max": lambda: max(number(old), number(b)),
    }[operation]()  # fmt: skip
    return made & ((1 << bits) - 1)


def _word(kind: str, generator: random.Random) -> int:
    bits, lanes = bits_of(kind), 2 if kind.endswith("x2") else 1
    layout = LAYOUTS.get(kind.split("x2")[0])
    word = 0
    for lane in range(lanes):
        if layout is None:
            part = generator.choice(
                (0, 1, 2, 3, (1 << bits) - 1, 1 << (bits - 1), generator.getrandbits(bits))
            )
        else:
            one = layout.bias << layout.fraction
            part = generator.choice(
                (
                    0,
                    1,
                    one,
                    layout.infinity,
                    layout.nan - 5,
                    layout.infinity - 1,
                    one + generator.getrandbits(layout.fraction),
                )
            ) | generator.choice((0, layout.sign))
        word |= part << (bits // lanes) * lane
    return word


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("several", [1, 5, 32])
def test_atomics(part: int, several: int) -> None:
    """Lanes meet at ``several`` places, in ascending order; lane 3 is guarded off."""
    generator = random.Random(f"{part} {several}")
    every = atomics()
    assert len(every) > 150
    # each form with one of the three
    some = every[part::4][(1, 5, 32).index(several) :: 3]
    lines = [
        ".visible .entry k(.param .u64 p_at, .param .u64 p_given, .param .u64 p_old) {",
        DECLARED,
        ".reg .b64 at, given, old, a;",
    ]
    lines += [".reg .b32 near, place; .shared .align 16 .b8 sha[1024];"]
    lines += [
        "ld.param.u64 at, [p_at]; ld.param.u64 given, [p_given]; ld.param.u64 old, [p_old]; mov.u32 r18, %tid.x;"
    ]
    lines += [
        f"rem.u32 place, r18, {several}; mul.wide.u32 a, place, 32; add.u64 at, at, a; setp.ne.u32 p0, r18, 3;"
    ]
    lines += [
        "mul.wide.u32 a, r18, 64; add.u64 given, given, a; mul.wide.u32 a, r18, 32; add.u64 old, old, a;"
    ]
    lines += ["mov.u32 near, sha; mul.lo.u32 place, place, 32; add.u32 near, near, place;"]
    memory = np.zeros((len(some), 32, 32), np.uint8)
    given = np.zeros((len(some), 32, 64), np.uint8)
    after, before = np.zeros_like(memory), np.zeros_like(memory)
    for number, form in enumerate(some):
        kind, count, operation = str(form.modifier("type")), form.vector, _operation(form)
        size = bits_of(kind) // 8
        values = [[_word(kind, generator) for _ in range(count)] for _ in range(32)]
        operands = [[[_word(kind, generator) for _ in range(count)] for _ in range(2)] for _ in range(32)]
        for lane in range(32):
            if operation == "cas" and generator.random() < 0.5:
                operands[lane][0] = list(values[lane % several])
            memory[number, lane, : size * count] = list(
                b"".join(v.to_bytes(size, "little") for v in values[lane])
            )
            for place in range(2):
                raw = b"".join(v.to_bytes(size, "little") for v in operands[lane][place])
                given[number, lane, 32 * place : 32 * place + len(raw)] = list(raw)
        for lane in range(32):
            if lane == 3:
                continue
            target = values[lane % several]
            seen = list(target)
            for element in range(count):
                target[element] = combine(
                    form, seen[element], operands[lane][0][element], operands[lane][1][element]
                )
            if form.effect is ATOMIC:
                raw = b"".join(v.to_bytes(size, "little") for v in seen)
                before[number, lane, : len(raw)] = list(raw)
        for lane in range(32):
            after[number, lane, : size * count] = list(
                b"".join(v.to_bytes(size, "little") for v in values[lane])
            )
        letter = REGISTERS[8 * size]
        for place in range(count):
            lines += [f"ld.global.b{8 * size} {letter}{place}, [given+{2048 * number + size * place}];"]
        second = registers(kind, 1, 1)
        if operation == "cas":
            lines.append(f"ld.global.b{8 * size} {second}, [given+{2048 * number + 32}];")
        shared = form.space == "shared"
        first = registers(kind, count, 0)
        result = registers(kind, count, 8 if size < 16 else 4)
        where = "[near]" if shared else f"[at+{1024 * number}]"
        if shared:
            lines += [
                f"ld.global.b64 l15, [at+{1024 * number + 8 * i}]; st.shared.b64 [near+{8 * i}], l15;"
                for i in range(4)
            ]
        operands_ = (
            ([result] if form.effect is ATOMIC else [])
            + [where, first]
            + ([second] if operation == "cas" else [])
        )
        policy = ["l17"] if form.modifier("hint") else []
        lines.append(f"@p0 {form.opcode} {', '.join(operands_ + policy)};")
        if shared:
            lines += [
                f"ld.shared.b64 l15, [near+{8 * i}]; st.global.b64 [at+{1024 * number + 8 * i}], l15;"
                for i in range(4)
            ]
        if form.effect is ATOMIC:
            start = 8 if size < 16 else 4
            lines += [
                f"@p0 st.global.b{8 * size} [old+{1024 * number + size * place}], {letter}{start + place};"
                for place in range(count)
            ]
    text = "\n".join([*lines, "ret; }"])
    for backend in BACKENDS:
        found, _, old = run(backend, text, memory, given, np.zeros_like(before))
        for what, one, other in (("memory", found, after), ("old", old, before)):
            for number, lane, _ in np.argwhere(one != other)[:1]:
                raise AssertionError(
                    (backend, what, some[number].opcode, int(lane), bytes(one[number, lane]).hex(), bytes(other[number, lane]).hex(),
                     bytes(memory[number, lane % several]).hex())
                )  # fmt: skip


def test_subnormals_where_a_generic_address_points(backend: str) -> None:
    """The sum is flushed in global memory and kept in shared memory, lane by lane."""
    text = f""".visible .entry k(.param .u64 to) {{ {DECLARED} .shared .align 4 .b8 sha[128];
ld.param.u64 l10, [to]; mov.u32 r18, %tid.x; mul.wide.u32 l12, r18, 4; add.u64 l10, l10, l12;
mov.u64 l0, sha; cvta.shared.u64 l0, l0; add.u64 l0, l0, l12; mov.u32 r0, 5; st.u32 [l0], r0; st.u32 [l10], r0;
and.b32 r1, r18, 1; setp.eq.u32 p0, r1, 1; selp.b64 l1, l0, l10, p0; mov.b32 r2, 3;
red.add.f32 [l1], r2; atom.add.f32 r3, [l1], r2; ld.u32 r4, [l1]; st.u32 [l10], r4; ret; }}"""
    (found,) = run(
        backend, text.replace("r2;", "0f00000003;", 2).replace("mov.b32 r2, 3;", ""), np.zeros(32, np.uint32)
    )
    # 5, and 3 twice more, as subnormal numbers: only their patterns add up
    assert found.tolist() == [0, 11] * 16
