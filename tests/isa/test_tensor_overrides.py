"""Tensor copies of PTX 9.4: addresses, sizes and strides from operands, reports, stores of im2col::w.

The expected values are the manual's words ("Overriding tensor property value", "Report Mechanisms for Asynchronous Copy
Operations") in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gpuperf_engine as ge
from gpuperf_engine.memory.arena import GLOBAL_BASE

Array = NDArray[Any]
KERNEL = """
.version 9.4
.target sm_107f
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 in, .param .u64 out)
{{
    .reg .pred %p<9>;
    .reg .b8 %c<9>;
    .reg .b16 %h<9>;
    .reg .b32 %r<20>;
    .reg .b64 %rd<9>;
    .shared .align 1024 .b8 tile[1024];
    .shared .align 8 .b64 bar;
    mov.b64 %rd1, map;
    cvta.param.u64 %rd1, %rd1;
    ld.param.u64 %rd2, [in];
    ld.param.u64 %rd3, [out];
    mov.u32 %r1, tile;
    mov.u32 %r2, 0;
    mbarrier.init.layout::v1.shared::cta.b64 [bar], 1;
    {body}
    ret;
}}
"""
#: after a copy of so many bytes: whether something was reported, and what lies in shared memory
SHOW = """
    mbarrier.arrive.expect_tx.shared.b64 %rd4, [bar], {size};
    mbarrier.test_wait.phase_type::primary.shared.b64 %p1|%p2, [bar], %rd4;
    selp.u32 %r3, 1, 0, %p1;
    selp.u32 %r4, 1, 0, %p2;
    st.global.v2.u32 [%rd3], {{%r3, %r4}};
  SHOW:
    add.u32 %r5, %r1, %r2;
    ld.shared.u32 %r6, [%r5];
    add.u32 %r2, %r2, 4;
    cvt.u64.u32 %rd5, %r2;
    add.u64 %rd5, %rd5, %rd3;
    st.global.u32 [%rd5+4], %r6;
    setp.lt.u32 %p3, %r2, {size};
    @%p3 bra SHOW;
"""
FILL = """
    add.u32 %r5, %r2, 7;
    add.u32 %r6, %r1, %r2;
    st.shared.u32 [%r6], %r5;
    add.u32 %r2, %r2, 4;
    setp.lt.u32 %p3, %r2, 1024;
"""
TELLS = "mbarrier::complete_tx::bytes"
ADDRESS = ".override::global_address"
ATTRIBUTES = f"{ADDRESS}.override::global_dim_stride"


def run(
    backend: str, body: str, given: Array, out: Array, make: Callable[[Any], ge.TensorMap]
) -> tuple[Array, Array]:
    """The arrays after the launch; ``given`` is the tensor that the map is of."""
    device = ge.Device(backend=backend, memory_bytes=1 << 22)
    tensor, result = device.array(given, name="tensor"), device.array(out, name="out")
    kernel = ge.parse(KERNEL.format(body=body), path="k.ptx")["k"]
    device.launch(kernel, 1, 1, [make(tensor), tensor, result])
    return tensor.numpy(), result.numpy()


def numbered(count: int) -> Array:
    return np.arange(1, count + 1, dtype=np.uint32)


@pytest.mark.parametrize("registers", ["%c", "%h"])
def test_sizes_and_strides(registers: str, backend: str) -> None:
    """13 · 5 · 2 elements of a box of 16 · 4 · 3, whose rows are 320 bytes apart, and planes 1760; the map has other ones."""
    given = numbered(4096)
    sizes = "".join(
        f"mov.b16 %h{axis + 1}, {0x300 + size};\n"
        + f"cvt.u8.u16 %c{axis + 1}, %h{axis + 1};\n" * (registers == "%c")
        for axis, size in enumerate((13, 5, 2))
    )
    body = f"""
        {sizes}
        mov.u32 %r7, 20;
        mov.u32 %r8, 110;
        mov.b16 %h7, 0xf000;
        add.u64 %rd6, %rd2, 32;
        cp.async.bulk.tensor.3d.shared::cta.global.tile.{TELLS}{ATTRIBUTES}
            [%r1], [%rd1, %rd6, {{{registers}1, {registers}2, {registers}3}}, {{%r7, %r8}}, %h7, {{0, 0, 0}}], [bar];
    """
    size = 16 * 4 * 3 * 4
    _, found = run(
        backend, body + SHOW.format(size=size), given, np.zeros(2 + size // 4, np.uint32),
        lambda tensor: ge.TensorMap(tensor, shape=(4, 8, 64), box=(3, 4, 16)),
    )  # fmt: skip
    expected = np.zeros((3, 4, 16), np.uint32)
    for plane, row, column in np.ndindex(2, 4, 13):
        expected[plane, row, column] = given[8 + (plane * 1760 + row * 320) // 4 + column]
    assert found.tolist() == [1, 0, *expected.ravel()]


def test_one_axis(backend: str) -> None:
    given = numbered(64)
    body = f"""
        add.u64 %rd6, %rd2, 16;
        cp.async.bulk.tensor.1d.shared::cta.global.{TELLS}{ADDRESS}.override::global_dim [%r1], [%rd1, %rd6, {{5}}, {{0}}], [bar];
    """
    _, found = run(
        backend, body + SHOW.format(size=32), given, np.zeros(10, np.uint32),
        lambda tensor: ge.TensorMap(tensor, shape=(64,), box=(8,)),
    )  # fmt: skip
    assert found.tolist() == [1, 0, 5, 6, 7, 8, 9, 0, 0, 0]


def test_the_upper_bits_of_strides(backend: str) -> None:
    """A row 2^36 bytes on is not there."""
    body = f"""
        mov.b16 %h1, 8;
        mov.b16 %h2, 2;
        mov.u32 %r7, 0;
        mov.b16 %h7, 1;
        cp.async.bulk.tensor.2d.shared::cta.global.tile.{TELLS}{ATTRIBUTES}
            [%r1], [%rd1, %rd2, {{%h1, %h2}}, {{%r7}}, %h7, {{0, 0}}], [bar];
    """
    with pytest.raises(ge.MemoryFault, match=f"from {GLOBAL_BASE + (1 << 36):#x}"):
        run(
            backend, body, numbered(64), np.zeros(1, np.uint32),
            lambda tensor: ge.TensorMap(tensor, shape=(8, 8), box=(2, 8)),
        )  # fmt: skip


@pytest.mark.parametrize("operation", ["", "add"])
def test_stores(operation: str, backend: str) -> None:
    """2 rows of 6 elements, 64 bytes apart, of a box of 4 rows of 8."""
    given = numbered(256)
    opcode = f"cp.{'reduce.' if operation else ''}async.bulk.tensor.2d.global.shared::cta.{operation}"
    body = f"""
      AGAIN: {FILL}
        @%p3 bra AGAIN;
        fence.proxy.async;
        mov.b16 %h1, 6;
        mov.b16 %h2, 2;
        mov.u32 %r7, 4;
        mov.b16 %h7, 0;
        add.u64 %rd6, %rd2, 256;
        {opcode}{"." * bool(operation)}tile.bulk_group{ATTRIBUTES} [%rd1, %rd6, {{%h1, %h2}}, {{%r7}}, %h7, {{0, 0}}], [%r1];
    """
    after, _ = run(
        backend,
        body,
        given,
        np.zeros(1, np.uint32),
        lambda tensor: ge.TensorMap(tensor, shape=(8, 8), box=(4, 8)),
    )
    expected = given.copy()
    for row, column in np.ndindex(2, 6):
        place = 64 + row * 16 + column
        expected[place] = 7 + 4 * (row * 8 + column) + (given[place] if operation else 0)
    assert after.tolist() == expected.tolist()


def test_an_address_with_coordinates(backend: str) -> None:
    """Four rows of another tensor; those that are not in it are zeros."""
    given = numbered(512)
    body = f"""
        add.u64 %rd6, %rd2, 1024;
        cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.{TELLS}{ADDRESS}
            [%r1], [%rd1, %rd6, {{4, 3, 0, 9, 1}}], [bar];
    """
    _, found = run(
        backend, body + SHOW.format(size=64), given, np.zeros(18, np.uint32),
        lambda tensor: ge.TensorMap(tensor, shape=(4, 8), box=(1, 4)),
    )  # fmt: skip
    other = given[256:].reshape(-1, 8)
    rows = [other[3, 4:8], other[0, 4:8], np.zeros(4, np.uint32), other[1, 4:8]]
    assert found.tolist() == [1, 0, *np.concatenate(rows)]


@pytest.mark.parametrize(
    ("offset", "size", "start", "message"),
    [
        (8, 2, 0, "the tensor is to begin at 0x[0-9a-f]+8"),
        (0, 2, 1, "coordinate 1 is 1"),
        (0, 0, 0, "axis 1 is to have no elements"),
    ],
)
def test_what_must_not_be(offset: int, size: int, start: int, message: str, backend: str) -> None:
    body = f"""
        mov.b16 %h1, 8;
        mov.b16 %h2, {size};
        mov.u32 %r7, 2;
        mov.b16 %h7, 0;
        add.u64 %rd6, %rd2, {offset};
        cp.async.bulk.tensor.2d.shared::cta.global.tile.{TELLS}{ATTRIBUTES}
            [%r1], [%rd1, %rd6, {{%h1, %h2}}, {{%r7}}, %h7, {{0, {start}}}], [bar];
    """
    with pytest.raises(ge.TrapError, match=message):
        run(
            backend, body, numbered(64), np.zeros(1, np.uint32),
            lambda tensor: ge.TensorMap(tensor, shape=(8, 8), box=(2, 8)),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "dtype", "code"),
    [
        ("per_16bytes::80000000", np.uint32, 0x80000000),
        ("per_16bytes::8000", np.uint16, 0x8000),
        ("per_16bytes::80", np.uint8, 0x80),
        ("per_16bytes::8", np.uint8, 0x38),
        ("per_element::ff", np.uint8, 0xFF),
    ],
)
def test_reports(pattern: str, dtype: Any, code: int, backend: str) -> None:
    """What does not lie in the box, or not first in 16 bytes, is not reported."""
    columns = 64 // np.dtype(dtype).itemsize
    each = 16 // np.dtype(dtype).itemsize
    for row, column, expected in (
        (1, 0, 1),
        (1, each, 1),
        (1, 1, int("ff" in pattern)),
        (3, 0, 0),
        (1, 2 * each, 0),
    ):
        given = np.ones((4, columns), dtype)
        given[row, column] = code
        body = f"""
            cp.async.bulk.tensor.2d.shared::cta.global.tile.{TELLS}.mbarrier::report::validity::{pattern}
                [%r1], [%rd1, {{0, 1}}], [bar];
        """
        _, found = run(
            backend, body + SHOW.format(size=64), given, np.zeros(18, np.uint32),
            lambda tensor: ge.TensorMap(tensor, box=(2, 2 * each)),
        )  # fmt: skip
        assert found[:2].tolist() == [1, expected]
        assert found[2:].tobytes() == given[1:3, : 2 * each].tobytes()


def test_stores_of_im2col_along_w(backend: str) -> None:
    """Pixels are stored where loads without halo and offset take them from: along W, and on in the next image."""
    given = np.zeros((2, 5, 6, 4), np.uint32)
    body = f"""
      AGAIN: {FILL}
        @%p3 bra AGAIN;
        fence.proxy.async;
        cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs::w.bulk_group [%rd1, {{0, 4, 2, 0}}], [%r1];
    """
    after, _ = run(
        backend, body, given, np.zeros(1, np.uint32),
        lambda tensor: ge.TensorMap.im2col_wide(tensor, channels=4, pixels=5, lower=0, upper=0),
    )  # fmt: skip
    expected = np.zeros_like(given)
    place = 0
    for pixel in range(5):
        image, column = divmod(4 + pixel, 6)
        for channel in range(4):
            expected[image, 2, column, channel] = 7 + 4 * place
            place += 1
    assert after.tolist() == expected.tolist()
