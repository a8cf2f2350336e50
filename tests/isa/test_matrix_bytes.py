"""ldmatrix and stmatrix of bytes and of packed elements of six and four bits, against loops over the manual's figures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gpuperf_engine as ge

Array = NDArray[Any]


def run(backend: str, body: str, given: Array, size: int, out: int) -> Array:
    """``body`` between the copy of ``given`` to shared memory and what ``out`` says: registers of each lane, or shared memory."""
    registers = ", ".join(f"%r{place}" for place in range(4))
    ending = (
        "".join(f"st.global.b32 [%rd2+{4 * place}], %r{place};\n" for place in range(out))
        if out
        else f"bar.warp.sync -1;\nld.shared.v4.b32 {{{registers}}}, [%r9];\nst.global.v4.b32 [%rd2], {{{registers}}};\n"
    )
    text = f"""
.version 9.4
.target sm_120f
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{{
    .reg .b32 %r<20>;
    .reg .b64 %rd<9>;
    .shared .align 16 .b8 tile[512];
    ld.param.u64 %rd1, [in];
    ld.param.u64 %rd2, [out];
    mov.u32 %r8, %tid.x;
    mov.u32 %r9, tile;
    mad.lo.u32 %r9, %r8, 16, %r9;
    mul.wide.u32 %rd3, %r8, 16;
    add.u64 %rd1, %rd1, %rd3;
    mul.wide.u32 %rd3, %r8, {4 * out or 16};
    add.u64 %rd2, %rd2, %rd3;
    ld.global.v4.b32 {{{registers}}}, [%rd1];
    st.shared.v4.b32 [%r9], {{{registers}}};
    bar.warp.sync -1;
    {body}
    {ending}
    ret;
}}
"""
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    source, result = device.array(given), device.zeros(size, np.uint8)
    device.launch(ge.parse(text, path="k.ptx")["k"], 1, 32, [source, result])
    return result.numpy()


def elements(row: Array, kind: str) -> list[int]:
    """The sixteen elements of a row as bytes."""
    whole = int.from_bytes(row.tobytes(), "little")
    if kind == "b6x16_p32":
        return [whole >> 6 * place & 63 for place in range(16)]
    if kind in ("b4x16_p64", "s4"):
        found = [whole >> 4 * place & 15 for place in range(16)]
        return [item | 0xF0 if kind == "s4" and item & 8 else item for item in found]
    return [int(item) for item in row]


def data() -> Array:
    return np.random.default_rng(5).integers(0, 256, 512).astype(np.uint8)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("kind", ["b6x16_p32", "b4x16_p64", "s4"])
def test_rows(kind: str, count: int, backend: str) -> None:
    """A lane gets four neighbouring elements of the row of its group; the addresses are those of rows, here in reverse."""
    given = data()
    registers = ", ".join(f"%r{place}" for place in range(count))
    target = "s8" if kind == "s4" else "b8x16"
    reverse = "mov.u32 %r10, tile;\nxor.b32 %r11, %r8, 31;\nmad.lo.u32 %r10, %r11, 16, %r10;\n"
    body = f"{reverse}ldmatrix.sync.aligned.m8n16.x{count}.shared.{target}.{kind} {{{registers}}}, [%r10];"
    found = run(backend, body, given, 128 * count, count).reshape(32, count, 4)
    rows = [elements(row, kind) for row in given.reshape(32, 16)[::-1]]
    for lane in range(32):
        for matrix in range(count):
            row = rows[8 * matrix + lane // 4]
            assert found[lane, matrix].tolist() == row[4 * (lane % 4) : 4 * (lane % 4) + 4]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("kind", ["", "b6x16_p32", "b4x16_p64"])
def test_columns(kind: str, count: int, backend: str) -> None:
    """A lane gets, of its group's column and the one eight further on, four neighbouring rows."""
    given = data()
    registers = ", ".join(f"%r{place}" for place in range(2 * count))
    types = f"b8x16.{kind}" if kind else "b8"
    body = f"ldmatrix.sync.aligned.m16n16.x{count}.trans.shared.{types} {{{registers}}}, [%r9];"
    found = run(backend, body, given, 256 * count, 2 * count).reshape(32, count, 2, 4)
    rows = [elements(row, kind) for row in given.reshape(32, 16)]
    for lane in range(32):
        for matrix in range(count):
            for half in (0, 1):
                first = 16 * matrix + 4 * (lane % 4)
                expected = [rows[first + place][lane // 4 + 8 * half] for place in range(4)]
                assert found[lane, matrix, half].tolist() == expected


@pytest.mark.parametrize("count", [1, 2, 4])
def test_store(count: int, backend: str) -> None:
    """Fragments as the results of products have them, two neighbouring columns in each half: a column to each address."""
    given = data()
    registers = ", ".join(f"%r{place}" for place in range(count))
    body = f"stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8 [%r9], {{{registers}}};"
    found = run(backend, body, given, 512, 0).reshape(32, 16)
    fragments = given.reshape(32, 4, 4)
    expected = given.reshape(32, 16).copy()
    for matrix in range(count):
        for lane in range(32):
            for place in range(4):
                column, row = 2 * (lane % 4) + place % 2, lane // 4 + 8 * (place // 2)
                expected[8 * matrix + column, row] = fragments[lane, matrix, place]
    assert found.tolist() == expected.tolist()
