"""Matrix instructions against NumPy, with the fragments laid out as the manual's tables and formulas say, on both backends."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import gpuperf_engine as ge
from gpuperf_engine.isa.table import Form, rows
from gpuperf_engine.jit.compiled import Code
from tests.isa.assembler import forms
from tests.isa.sample import is_drawn
from tests.support import BACKENDS, compiled

Fragment = npt.NDArray[np.uint64]
FLOATS = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}


def products() -> Iterator[Form]:
    """Every form of mma with a dense A and no kind; for the others see ``test_sparse_matrices``."""
    for row in rows():
        if row.name == "mma" and row.applied.checked is None and "kind::" not in row.syntax:
            yield from forms(row, 40)


PRODUCTS = {form.opcode: form for form in products()}


def module(form: Form, before: str = "") -> str:
    """Loads the sources' registers, 8 bytes apart, runs the instruction, stores those of the destination."""
    held = {"b32": "b32", "s32": "b32", "f32": "b32", "f64": "b64"}
    body, operands, place = [], [], 0
    for slot in form.operands:
        assert slot.type is not None
        kind = held[slot.type.name]
        names = [f"%{slot.name}{index}" for index in range(slot.vector)]
        body.append(f".reg .{kind} {', '.join(names)};")
        if slot.role != "destination":
            body += [
                f"ld.global.{kind} {name}, [%in+{8 * (place + index)}];" for index, name in enumerate(names)
            ]
            place += slot.vector
        operands.append("{" + ", ".join(names) + "}")
    body += [before, f"{form.opcode} {', '.join(operands)};"]
    result = form.operands[0]
    assert result.type is not None
    body += [
        f"st.global.{held[result.type.name]} [%out+{8 * index}], %d{index};" for index in range(result.vector)
    ]
    return f""".version 8.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{{
.reg .b64 %in, %out; .reg .b32 %t, %m; .reg .pred %p;
mov.u32 %t, %tid.x;
ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
mad.wide.u32 %in, %t, 192, %in;
mad.wide.u32 %out, %t, 64, %out;
{chr(10).join(body)}
ret;
}}
"""


def run(form: Form, sources: Fragment, backend: str) -> Fragment:
    """``sources``: (32, 24) words; the words that the destination's registers hold, (32, 8)."""
    device = ge.Device(backend=backend)
    given, out = device.array(sources), device.zeros((32, 8), np.uint64)
    kernel = ge.parse(module(form), path="mma.ptx")["k"]
    device.launch(kernel, grid=1, block=32, args=[given, out])
    if backend == "llvm":
        assert isinstance(compiled(kernel), Code)
    return out.numpy()


def shape(opcode: str) -> tuple[int, int, int]:
    """m, n, k."""
    found = re.search(r"\.m(\d+)n(\d+)k(\d+)", opcode)
    assert found is not None
    return int(found[1]), int(found[2]), int(found[3])


def types(form: Form) -> tuple[str, str, str, str]:
    """Types of d, a, b and c, in the order of the opcode."""
    words = [
        word
        for word in form.opcode.split(".")
        if word in (*FLOATS, "tf32", "f32", "f64", "s32", "u8", "s8", "u4", "s4", "b1")
    ]
    return words[0], words[1], words[2], words[3]


# The manual's formulas, by the number of bits of an element: (row, column) of element i of A, (row, column) of element i of B.


def a_place(bits: int, m: int, lane: int, i: int) -> tuple[int, int]:
    group, inner = lane >> 2, lane % 4
    if bits >= 32:  # .tf32, .f64: a0 (group, t), a1 (group + 8, t), a2 (group, t + 4), …
        row = group if i % 2 == 0 or m == 8 else group + 8
        return row, inner + 4 * (i // 2 if m == 16 else i)
    if bits == 16:  # row = group for i in 0, 1, 4, 5; column = 2 t + (i & 1), + 8 for i ≥ 4
        return group if i < 2 or 4 <= i < 6 else group + 8, 2 * inner + (i & 1) + (8 if i >= 4 else 0)
    if bits == 8:  # row = group for 0 ≤ i < 4 or 8 ≤ i < 12; column = 4 t + (i & 3), + 16 for i ≥ 8
        return group if i < 4 or 8 <= i < 12 else group + 8, 4 * inner + (i & 3) + (16 if i >= 8 else 0)
    if bits == 4:  # row = group for 0 ≤ i < 8 or 16 ≤ i < 24; column = 8 t + (i & 7), + 32 for i ≥ 16
        return group if i < 8 or 16 <= i < 24 else group + 8, 8 * inner + (i & 7) + (32 if i >= 16 else 0)
    # .b1: row = group for 0 ≤ i < 32 or 64 ≤ i < 96; column = 32 t + (i & 31), + 128 for i ≥ 64
    return group if i < 32 or 64 <= i < 96 else group + 8, 32 * inner + (i & 31) + (128 if i >= 64 else 0)


def b_place(bits: int, lane: int, i: int) -> tuple[int, int]:
    group, inner = lane >> 2, lane % 4
    per, block = {64: (1, 4), 32: (1, 4), 16: (2, 8), 8: (4, 16), 4: (8, 32), 1: (32, 128)}[bits]
    return per * inner + i % per + block * (i // per), group


def c_place(lane: int, i: int) -> tuple[int, int]:
    return (lane >> 2) + (8 if i >= 2 else 0), 2 * (lane % 4) + (i & 1)


def volta_places(
    layouts: tuple[str, str], single: tuple[bool, bool]
) -> tuple[Callable[[int, int], tuple[int, int]], ...]:
    """m8n8k4 of f16, within the matrices of a lane's quad pair (manual: "Matrix fragments for mma.m8n8k4 with .f16")."""

    def a(lane: int, i: int) -> tuple[int, int]:
        low = lane < 16
        if layouts[0] == "row":
            return (lane % 4 if low else lane % 4 + 4), i
        return (i % 4 if low else i % 4 + 4), lane % 4

    def b(lane: int, i: int) -> tuple[int, int]:
        low = lane < 16
        if layouts[1] == "row":
            return lane % 4, (i if low else i + 4)
        return i, (lane % 4 if low else lane % 4 + 4)

    def half(lane: int, i: int) -> tuple[int, int]:
        return (lane % 4 if lane < 16 else lane % 4 + 4), i

    def whole(lane: int, i: int) -> tuple[int, int]:
        row = (lane & 1) + (i & 2)
        return (row if lane < 16 else row + 4), (i & 4) + (lane & 2) + (i & 1)

    return a, b, whole if single[1] else half, whole if single[0] else half


def bits_of(kind: str) -> int:
    return {"bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "b1": 1}.get(kind) or int(kind[1:])


def decode(words: Fragment, kind: str) -> npt.NDArray[np.float64]:
    """The elements of registers, low bits first: (lanes, elements), as float64 (exact for every type here)."""
    bits = bits_of(kind)
    if bits == 64:
        return words.view(np.float64)
    low = np.ascontiguousarray(words.astype(np.uint32))
    if kind == "tf32":
        return (low & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    if kind in ("f32", "s32"):
        return low.view(np.float32 if kind == "f32" else np.int32).astype(np.float64)
    if kind in FLOATS:
        return low.view(FLOATS[kind]).astype(np.float64)
    pieces = (low[..., None] >> np.arange(0, 32, bits, dtype=np.uint32)) & np.uint32((1 << bits) - 1)
    values = pieces.astype(np.int64).reshape(len(low), -1)
    if kind[0] == "s":
        values = np.where(values >= 1 << (bits - 1), values - (1 << bits), values)
    return values.astype(np.float64)


def sources_for(form: Form, seed: int, small: bool) -> Fragment:
    """Words of the sources' registers. ``small``: numbers whose sums are exact in the result's type."""
    rng = np.random.default_rng(seed)
    _, a, b, c = types(form)
    words = np.zeros((32, 24), np.uint64)
    place = 0
    for slot, kind in zip(form.operands[1:], (a, b, c)):
        for _ in range(slot.vector):
            words[:, place] = random_words(rng, kind, small)
            place += 1
    return words


def random_words(rng: np.random.Generator, kind: str, small: bool) -> npt.NDArray[np.uint64]:
    if kind in ("f64", "f32", "tf32"):
        numbers = rng.integers(-8, 9, 32).astype(np.float64) if small else rng.standard_normal(32)
        if kind == "f64":
            return numbers.view(np.uint64)
        return numbers.astype(np.float32).view(np.uint32).astype(np.uint64)
    if kind in FLOATS:
        per = 32 // bits_of(kind)
        numbers = (
            rng.integers(-4, 5, (32, per)).astype(np.float32)
            if small
            else rng.standard_normal((32, per), np.float32)
        )
        return np.ascontiguousarray(numbers.astype(FLOATS[kind])).view(np.uint32)[:, 0].astype(np.uint64)
    return rng.integers(0, 1 << 32, 32, np.uint64)


def matrices(
    form: Form, words: Fragment
) -> Iterator[tuple[list[npt.NDArray[np.float64]], list[npt.NDArray[np.bool_]]]]:
    """A, B, C of each product that the instruction makes, with the lanes and places of D."""
    m, n, k = shape(form.opcode)
    _, a, b, c = types(form)
    counts = [slot.vector for slot in form.operands[1:]]
    pieces = np.split(words[:, : sum(counts)], np.cumsum(counts)[:-1], axis=1)
    a_values, b_values, c_values = (decode(piece, kind) for piece, kind in zip(pieces, (a, b, c)))
    for pair, places in products_of(form):
        left, right, added = np.zeros((m, k)), np.zeros((k, n)), np.zeros((m, n))
        for lane in pair:
            for target, values, place in zip((left, right, added), (a_values, b_values, c_values), places):
                for element in range(values.shape[1]):
                    target[place(lane, element)] = values[lane, element]
        yield [left, right, added], [np.array(pair)]


def products_of(
    form: Form,
) -> list[tuple[list[int], tuple[Callable[[int, int], tuple[int, int]], ...]]]:
    m, _, _ = shape(form.opcode)
    d, a, _, c = types(form)
    if ".m8n8k4." in form.opcode and a == "f16":
        words = form.opcode.split(".")
        places = volta_places((words[4], words[5]), (d == "f32", c == "f32"))
        return [
            ([*range(4 * quad, 4 * quad + 4), *range(16 + 4 * quad, 20 + 4 * quad)], places)
            for quad in range(4)
        ]
    bits = bits_of(a)
    return [
        (
            list(range(32)),
            (
                lambda lane, i: a_place(bits, m, lane, i),
                lambda lane, i: b_place(bits, lane, i),
                c_place,
                c_place,
            ),
        )
    ]


def result_of(
    form: Form, found: Fragment, pair: list[int], place: Callable[[int, int], tuple[int, int]]
) -> npt.NDArray[np.float64]:
    m, n, _ = shape(form.opcode)
    d = types(form)[0]
    values = decode(found[:, : form.operands[0].vector], d)
    result = np.full((m, n), np.nan)
    for lane in pair:
        for element in range(values.shape[1]):
            result[place(lane, element)] = values[lane, element]
    assert not np.isnan(result).any()
    return result


@pytest.mark.parametrize("opcode", PRODUCTS)
def test_products_are_those_of_numpy(opcode: str) -> None:
    form = PRODUCTS[opcode]
    words = sources_for(form, len(opcode), small=True)
    for backend in BACKENDS if is_drawn(opcode, 2) else ("reference",):
        found = run(form, words, backend)
        for ((left, right, added), (pair,)), (_, places) in zip(matrices(form, words), products_of(form)):
            if ".b1." in opcode:
                a, b = left.astype(np.int64), right.astype(np.int64)
                both = (a[:, :, None] & b[None]) if ".and.popc" in opcode else (a[:, :, None] ^ b[None])
                expected = added + both.sum(axis=1)
            else:
                expected = added + left @ right
            if types(form)[0] == "s32":
                whole = expected.astype(np.int64)
                limited = (
                    np.clip(whole, -(1 << 31), (1 << 31) - 1)
                    if "satfinite" in opcode
                    else whole.astype(np.int32)
                )
                expected = limited.astype(np.float64)
            np.testing.assert_array_equal(
                result_of(form, found, list(pair), places[3]), expected, err_msg=backend
            )


@pytest.mark.parametrize("opcode", [opcode for opcode in PRODUCTS if ".s32." not in opcode])
def test_sums_are_rounded_once_and_alike_on_both_backends(opcode: str) -> None:
    form = PRODUCTS[opcode]
    words = sources_for(form, 7, small=False)
    first, second = (run(form, words, backend) for backend in BACKENDS)
    np.testing.assert_array_equal(first, second)
    if "f64" in opcode:
        return
    kind = np.float16 if types(form)[0] == "f16" else np.float32
    for ((left, right, added), (pair,)), (_, places) in zip(matrices(form, words), products_of(form)):
        total = added.copy()
        for k in range(left.shape[1]):  # the documented order: from c on, ascending k, in double precision
            total = total + left[:, k, None] * right[None, k]
        expected = total.astype(kind).astype(np.float64)
        np.testing.assert_array_equal(result_of(form, first, list(pair), places[3]), expected)


def test_double_products_round_every_step_as_asked(backend: str) -> None:
    third = np.float64(1) / 3
    for rounding, direction in (("rp", 1), ("rm", -1)):
        form = PRODUCTS[f"mma.sync.aligned.m8n8k4.row.col.{rounding}.f64.f64.f64.f64"]
        words = np.full((32, 24), third.view(np.uint64), np.uint64)
        up = run(form, words, backend)[:, :2].view(np.float64)
        nearest = run(PRODUCTS["mma.sync.aligned.m8n8k4.row.col.rn.f64.f64.f64.f64"], words, backend)[
            :, :2
        ].view(np.float64)
        assert ((up - nearest) * direction > 0).all()


ROWS = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out, .param .u64 back)
{{
.reg .b64 %in, %out, %back; .reg .b32 %t, %a, %r<4>, %s, %w;
.shared .align 16 .b8 tile[1024];
mov.u32 %t, %tid.x;
ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; ld.param.u64 %back, [back];
mul.wide.u32 %in, %t, 4;
ld.param.u64 %back, [in]; add.u64 %in, %in, %back;
ld.param.u64 %back, [back];
mov.u32 %s, tile;
mad.lo.u32 %a, %t, 4, %s;
{fill}
bar.sync 0;
mad.lo.u32 %a, %t, {step}, %s;
{instructions}
bar.sync 0;
mad.wide.u32 %out, %t, 16, %out;
{stores}
mad.lo.u32 %a, %t, 4, %s;
mad.wide.u32 %back, %t, 4, %back;
{dump}
ret;
}}
"""


def rows_module(instructions: str, step: int = 16, count: int = 4) -> str:
    """Shared memory from ``in``, the instructions, the registers to ``out``, shared memory to ``back``."""
    fill = "\n".join(
        f"ld.global.b32 %w, [%in+{128 * i}]; st.shared.b32 [%a+{128 * i}], %w;" for i in range(8)
    )
    stores = "\n".join(f"st.global.b32 [%out+{4 * i}], %r{i};" for i in range(count))
    dump = "\n".join(
        f"ld.shared.b32 %w, [%a+{128 * i}]; st.global.b32 [%back+{128 * i}], %w;" for i in range(8)
    )
    return ROWS.format(fill=fill, step=step, instructions=instructions, stores=stores, dump=dump)


def run_rows(
    text: str, backend: str
) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint16], npt.NDArray[np.uint16], ge.Profile]:
    """Contents of shared memory before (rows of 8), registers (lane, register, half), contents after."""
    device = ge.Device(backend=backend)
    before = np.arange(512, dtype=np.uint16).reshape(64, 8)
    given, out, back = (
        device.array(before.view(np.uint32)),
        device.zeros((32, 4), np.uint32),
        device.zeros(256, np.uint32),
    )
    profile = device.launch(ge.parse(text, path="rows.ptx")["k"], 1, 32, [given, out, back])
    return (
        before,
        out.numpy().view(np.uint16).reshape(32, 4, 2),
        back.numpy().view(np.uint16).reshape(64, 8),
        profile,
    )


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_ldmatrix_gives_every_group_its_row(backend: str, count: int, trans: str) -> None:
    names = ", ".join(f"%r{i}" for i in range(count))
    text = rows_module(f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{names}}}, [%a];")
    memory, registers, _, profile = run_rows(text, backend)
    for matrix in range(count):
        tile = memory[8 * matrix : 8 * matrix + 8]
        for lane in range(32):
            group, inner = lane // 4, lane % 4
            pair = (
                tile[group, 2 * inner : 2 * inner + 2]
                if not trans
                else tile[2 * inner : 2 * inner + 2, group]
            )
            assert registers[lane, matrix].tolist() == pair.tolist()
    (site,) = [site for site in profile.sites if site.opcode.startswith("ldmatrix")]
    # consecutive rows of 16 bytes: eight of them fill the banks once
    assert (site.requests, site.lanes, site.wavefronts, site.ideal_wavefronts) == (1, 8 * count, count, count)


def test_rows_that_lie_in_the_same_banks_conflict(backend: str) -> None:
    text = rows_module(
        "and.b32 %a, %t, 7; mad.lo.u32 %a, %a, 128, %s;\nldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%a];"
    )
    *_, profile = run_rows(text, backend)
    (site,) = [site for site in profile.sites if site.opcode.startswith("ldmatrix")]
    assert (site.wavefronts, site.ideal_wavefronts) == (8, 1)


@pytest.mark.parametrize("trans", ["", ".trans"])
def test_stmatrix_puts_back_what_ldmatrix_took(backend: str, trans: str) -> None:
    names = "{%r0, %r1, %r2, %r3}"
    text = rows_module(
        f"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {names}, [%a];\nadd.u32 %a, %a, 512;\n"
        f"stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 [%a], {names};"
    )
    memory, _, after, _ = run_rows(text, backend)
    for matrix in range(4):
        tile = memory[8 * matrix : 8 * matrix + 8]
        np.testing.assert_array_equal(after[32 + 8 * matrix : 40 + 8 * matrix], tile.T if trans else tile)


def test_movmatrix_transposes(backend: str) -> None:
    load = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%a];"
    _, moved, _, _ = run_rows(
        rows_module(load + "\nmovmatrix.sync.aligned.m8n8.trans.b16 %r0, %r0;"), backend
    )
    _, loaded, _, _ = run_rows(rows_module(load.replace(".x1", ".x1.trans")), backend)
    np.testing.assert_array_equal(moved[:, 0], loaded[:, 0])


@pytest.mark.parametrize(
    ("address", "said"),
    [("add.u32 %a, %a, 8;", "misaligned"), ("add.u32 %a, %a, 1024;", "out-of-bounds")],
)
def test_a_row_that_cannot_be_read_is_an_error(backend: str, address: str, said: str) -> None:
    text = rows_module(f"{address}\nldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r0}}, [%a];")
    with pytest.raises(ge.EngineError, match=said) as caught:
        run_rows(text, backend)
    assert "rows.ptx" in str(caught.value)


SOME_LANES = {
    "branch": "setp.lt.u32 %p, %m, 16;\n@%p bra some;\nbra others;\nsome:\n{}\nothers:",
    "guard": "setp.lt.u32 %p, %m, 16;\n@%p {}",
    "exit": "setp.ge.u32 %p, %m, 16;\n@%p exit;\n{}",
}


@pytest.mark.parametrize("how", SOME_LANES)
def test_half_a_warp_cannot_multiply(backend: str, how: str) -> None:
    form = PRODUCTS["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"]
    head, product, tail = module(form).partition("mma.sync")
    line, end, tail = tail.partition(";")
    text = f"{head}mov.u32 %m, %laneid;\n{SOME_LANES[how].format(product + line + end)}{tail}"
    device = ge.Device(backend=backend)
    given, out = device.zeros((32, 24), np.uint64), device.zeros((32, 8), np.uint64)
    with pytest.raises(
        ge.EngineError, match=r"mma.ptx:\d+:\d+: mma.sync.*: 16 of the 32 lanes of a warp execute it"
    ):
        device.launch(ge.parse(text, path="mma.ptx")["k"], 1, 32, [given, out])


def test_two_instructions_are_not_one(backend: str) -> None:
    """ ".aligned": all threads in the warp execute the same instruction."""
    load = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%a];"
    halves = f"setp.lt.u32 %p, %m, 16;\n@%p bra some;\n{load}\nbra all;\nsome:\n{load}\nall:"
    text = rows_module(f".reg .pred %p; .reg .b32 %m;\nmov.u32 %m, %laneid;\n{halves}")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if line == load]
    with pytest.raises(ge.Deadlock) as error:
        run_rows(text, backend)
    for line, first in zip(lines, (16, 0), strict=True):
        said = f"16 threads at {load.split()[0]} for lanes that do not arrive at rows.ptx:{line}, first thread ({first}, 0, 0)"
        assert said in str(error.value)


def test_half_a_warp_cannot_load_rows(backend: str) -> None:
    load = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%a];"
    text = ".reg .pred %p; .reg .b32 %m;\nmov.u32 %m, %laneid;\n" + SOME_LANES["exit"].format(load)
    with pytest.raises(
        ge.EngineError, match=r"rows.ptx:\d+:\d+: ldmatrix.*: 16 of the 32 lanes of a warp execute it"
    ):
        run_rows(rows_module(text), backend)


def test_a_warp_that_is_not_whole_cannot_multiply(backend: str) -> None:
    form = PRODUCTS["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"]
    device = ge.Device(backend=backend)
    given, out = device.zeros((64, 24), np.uint64), device.zeros((64, 8), np.uint64)
    with pytest.raises(ge.EngineError, match="8 of the 32 lanes"):
        device.launch(ge.parse(module(form), path="mma.ptx")["k"], 1, 40, [given, out])
