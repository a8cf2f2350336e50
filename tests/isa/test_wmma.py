"""``wmma``: load, multiply, store; every type, shape and layout against NumPy, on both backends."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

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

Matrix = npt.NDArray[np.float64]
FLOATS = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "f32": np.float32,
    "f64": np.float64,
}


def products() -> Iterator[Form]:
    for row in rows():
        if row.name == "wmma" and row.syntax.startswith("wmma.mma"):
            yield from forms(row, 40)


PRODUCTS = {form.opcode: form for form in products()}


def types(opcode: str) -> tuple[str, str, str]:
    """Types of the factors, of d and of c."""
    known = [word for word in opcode.split(".") if word in (*FLOATS, "s32", "u8", "s8", "u4", "s4", "b1")]
    return (known[1], known[0], known[3]) if len(known) == 4 else ("f16", known[0], known[1])


def sizes(opcode: str) -> tuple[int, int, int]:
    found = re.search(r"\.m(\d+)n(\d+)k(\d+)", opcode)
    assert found is not None
    return int(found[1]), int(found[2]), int(found[3])


def bits_of(kind: str) -> int:
    return {"bf16": 16, "tf32": 32, "b1": 1}.get(kind) or int(kind[1:])


def values(rng: np.random.Generator, shape: tuple[int, int], kind: str) -> Matrix:
    """Small whole numbers that the type holds."""
    if kind == "b1":
        return rng.integers(0, 2, shape).astype(np.float64)
    low = 0 if kind[0] == "u" else -4
    return rng.integers(low, 5, shape).astype(np.float64)


def stored(matrix: Matrix, kind: str, layout: str, line: int) -> npt.NDArray[np.uint8]:
    """The bytes of a matrix in memory, its lines ``line`` elements apart."""
    lines = matrix if layout == "row" else matrix.T
    wide = np.zeros((lines.shape[0], line))
    wide[:, : lines.shape[1]] = lines
    if kind in FLOATS:
        return np.ascontiguousarray(wide.astype(FLOATS[kind])).view(np.uint8).reshape(-1)
    bits = bits_of(kind)
    if bits >= 8:
        return np.ascontiguousarray(wide.astype(f"i{bits // 8}")).view(np.uint8).reshape(-1)
    digits = wide.astype(np.int64).reshape(-1, 8 // bits) & ((1 << bits) - 1)
    return (digits << np.arange(0, 8, bits)).sum(axis=1).astype(np.uint8)


def read(raw: npt.NDArray[np.uint8], kind: str, layout: str, line: int, shape: tuple[int, int]) -> Matrix:
    dtype = FLOATS.get(kind, np.int32)
    lines = raw.view(dtype).astype(np.float64).reshape(-1, line)
    m, n = shape
    return lines[:m, :n] if layout == "row" else lines[:n, :m].T


def vector(name: str, count: int) -> str:
    return "{" + ", ".join(f"%{name}{i}" for i in range(count)) + "}"


def module(opcode: str, layouts: tuple[str, str], space: str, strided: bool) -> str:
    """Loads a, b and c, multiplies, stores d; the lines' distances are parameters, or left out."""
    form = PRODUCTS[opcode]
    factor, result, added = types(opcode)
    shape = re.search(r"m\d+n\d+k\d+", opcode)
    assert shape is not None
    d, a, b, c = form.operands
    alayout, blayout = (
        form.modifiers.get(name) or plain for name, plain in (("alayout", "row"), ("blayout", "col"))
    )
    held = [
        (slot.name, slot.vector, "f64" if slot.type is not None and slot.type.bits == 64 else "b32")
        for slot in (a, b, c, d)
    ]
    body = [f".reg .{kind} %{name}<{count}>;" for name, count, kind in held]

    def move(what: str, layout: object, kind: str, name: str, count: int) -> str:
        place, line = f"[%p{name}]", f", %s{name}" if strided else ""
        opcode = f"wmma.{what}.sync.aligned.{layout}.{shape[0]}{space}.{kind}"  # type: ignore[index]
        registers = vector(name, count)
        return (
            f"{opcode} {registers}, {place}{line};"
            if what[0] == "l"
            else f"{opcode} {place}, {registers}{line};"
        )

    body += [move("load.a", alayout, factor, "a", a.vector), move("load.b", blayout, factor, "b", b.vector)]
    body += [move("load.c", layouts[0], added, "c", c.vector)]
    body += [
        f"{opcode} {vector('d', d.vector)}, {vector('a', a.vector)}, {vector('b', b.vector)}, {vector('c', c.vector)};"
    ]
    body += [move("store.d", layouts[1], result, "d", d.vector)]
    pointers = [f"ld.param.u64 %p{name}, [p{name}]; ld.param.u32 %s{name}, [s{name}];" for name in "abcd"]
    parameters = ", ".join(f".param .u64 p{name}, .param .u32 s{name}" for name in "abcd")
    return (
        f".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k({parameters})\n{{\n"
        ".reg .b64 %pa, %pb, %pc, %pd; .reg .b32 %sa, %sb, %sc, %sd;\n"
        + "\n".join([*pointers, *body])
        + "\nret;\n}\n"
    )


@pytest.mark.parametrize("opcode", PRODUCTS)
def test_products_are_those_of_numpy(opcode: str) -> None:
    factor, result, added = types(opcode)
    m, n, k = sizes(opcode)
    form = PRODUCTS[opcode]
    alayout, blayout = (
        str(form.modifiers.get("alayout") or "row"),
        str(form.modifiers.get("blayout") or "col"),
    )
    rng = np.random.default_rng(len(opcode))
    left, right, start = (
        values(rng, shape, kind) for shape, kind in (((m, k), factor), ((k, n), factor), ((m, n), added))
    )
    expected = left @ right + start
    if factor == "b1":
        x, y = left.astype(np.int64)[:, :, None], right.astype(np.int64)[None]
        expected = ((x & y) if ".and." in opcode else (x ^ y)).sum(axis=1) + start
    layouts = list(itertools.product(("row", "col"), repeat=2))
    place = list(PRODUCTS).index(opcode)
    # all four layouts of c and d where each is another way through the code, else one after the other
    every = opcode.endswith(
        ("row.col.m16n16k16.f32.f32", "row.col.m16n16k16.f16.f16", "row.col.m8n8k4.rn.f64.f64.f64.f64")
    )
    for number, (clayout, dlayout) in enumerate(layouts) if every else [(place, layouts[place % 4])]:
        strided, space = number % 2 == 0, ("", ".global")[number // 2 % 2]
        kernel = ge.parse(module(opcode, (clayout, dlayout), space, strided), path="wmma.ptx")["k"]
        wide = [
            (left, factor, alayout),
            (right, factor, blayout),
            (start, added, clayout),
            (start, result, dlayout),
        ]
        extra = 128 // bits_of(factor) if strided else 0
        lines = [(matrix if layout == "row" else matrix.T).shape[1] + extra for matrix, _, layout in wide]
        for backend in BACKENDS if every or is_drawn(opcode, 3) else BACKENDS[:1]:
            device = ge.Device(backend=backend)
            arguments: list[object] = []
            for place, ((matrix, kind, layout), line) in enumerate(zip(wide, lines)):
                data = stored(matrix if place < 3 else matrix * 0, kind, layout, line)
                arguments += [device.array(data), np.uint32(line)]
            device.launch(kernel, 1, 32, arguments)
            assert backend == "reference" or isinstance(compiled(kernel), Code)
            out = arguments[6].numpy()  # type: ignore[attr-defined]
            found = read(out, result, dlayout, lines[3], (m, n))
            np.testing.assert_array_equal(found, expected, err_msg=f"{backend} {clayout} {dlayout}")


def test_memory_is_counted_in_pieces_of_sixteen_bytes(backend: str) -> None:
    opcode = "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"
    kernel = ge.parse(module(opcode, ("row", "row"), ".global", False), path="wmma.ptx")["k"]
    device = ge.Device(backend=backend)
    arguments = [
        item for size in (512, 512, 1024, 1024) for item in (device.zeros(size, np.uint8), np.uint32(16))
    ]
    profile = device.launch(kernel, 1, 32, arguments)
    sites = {
        site.opcode.split(".sync")[0]: (site.requests, site.lanes, site.sectors, site.bytes_per_lane)
        for site in profile.sites
    }
    # 16 × 16 halves are 16 sectors, 16 × 16 floats 32: neighbouring lanes hold neighbouring pieces
    assert sites == {
        "wmma.load.a": (1, 32, 16, 16),
        "wmma.load.b": (1, 32, 16, 16),
        "wmma.load.c": (1, 32, 32, 32),
        "wmma.store.d": (1, 32, 32, 32),
    }


def test_a_matrix_that_ends_too_soon_is_an_error(backend: str) -> None:
    kernel = ge.parse(
        module("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", ("row", "row"), ".global", False),
        path="wmma.ptx",
    )["k"]
    device = ge.Device(backend=backend)
    arguments = [
        item for size in (512, 496, 1024, 1024) for item in (device.zeros(size, np.uint8), np.uint32(16))
    ]
    with pytest.raises(ge.EngineError, match=r"wmma.ptx:\d+:\d+: out-of-bounds wmma.load.b") as caught:
        device.launch(kernel, 1, 32, arguments)
    assert "496" in str(caught.value)
