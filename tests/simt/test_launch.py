"""Launch shapes and arguments: what is refused, and what the message says."""

from __future__ import annotations

import struct

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.simt.launch import check_shape, marshal
from gpuperf_engine.simt.program import Program, build_program
from tests.support import head

HEAD = head("7.8", "sm_80")


def program(body: str = "ret;", params: str = "", directives: str = "", before: str = "") -> Program:
    text = f"{HEAD}{before}\n.visible .entry k({params})\n{directives}\n{{\n.reg .b32 %r<4>;\n{body}\n}}\n"
    return build_program(ge.parse(text, path="k.ptx")["k"])


@pytest.mark.parametrize(
    ("grid", "block", "what"),
    [
        (0, 32, "grid.x is 0"),
        (-1, 32, "grid.x is -1"),
        (2**31, 32, "grid.x is 2,147,483,648"),
        ((1, 65536), 32, "grid.y is 65,536"),
        ((1, 1, 65536), 32, "grid.z is 65,536"),
        (1, 0, "block.x is 0"),
        (1, 1025, "block.x is 1,025"),
        (1, (1, 1, 65), "block.z is 65"),
        (1, (32, 33), "has 1,056 threads"),
        (1.5, 32, "grid is 1.5"),
        ("8", 32, "grid is '8'"),
        (True, 32, "grid is True"),
        ((1, 2, 3, 4), 32, "grid is (1, 2, 3, 4)"),
        ((), 32, "grid is ()"),
    ],
)
def test_shapes_that_no_launch_can_have(grid: object, block: object, what: str) -> None:
    with pytest.raises(ge.LaunchError) as raised:
        check_shape(program(), grid, block, 0)
    assert what in str(raised.value)
    assert 1 <= len(str(raised.value).splitlines()) <= 5


@pytest.mark.parametrize("grid", [1, (7,), (2, 3), (1, 2, 3), np.int64(4), 2**31 - 1])
def test_shapes_that_are_right(grid: object) -> None:
    shape, block, _ = check_shape(program(), grid, (8, 4), 0)
    assert len(shape) == 3
    assert block == (8, 4, 1)


def test_required_and_maximal_block() -> None:
    exact = program(directives=".reqntid 64, 2")
    assert check_shape(exact, 1, (64, 2), 0)[1] == (64, 2, 1)
    with pytest.raises(ge.LaunchError, match=r"\.reqntid requires \(64, 2, 1\)"):
        check_shape(exact, 1, 128, 0)
    most = program(directives=".maxntid 128")
    with pytest.raises(ge.LaunchError, match=r"\.maxntid allows 128 threads"):
        check_shape(most, 1, 129, 0)


def test_shared_memory_over_the_limit_names_target_and_both_parts() -> None:
    made = program(
        "mov.u32 %r1, s;\nmov.u32 %r2, d;\nret;", before=".shared .b8 s[1000];\n.extern .shared .b8 d[];"
    )
    assert check_shape(made, 1, 32, 2000)[2] == 1008 + 2000
    with pytest.raises(ge.LaunchError) as raised:
        check_shape(made, 1, 32, 163 * 1024)
    message = str(raised.value)
    assert "1,008 static" in message
    assert "166,912 dynamic" in message
    assert "sm_80 has at most 166,912 bytes" in message


def test_static_shared_memory_over_48_kib() -> None:
    made = program("mov.u32 %r1, s;\nret;", before=".shared .b8 s[49153];")
    with pytest.raises(ge.LaunchError, match="49,153 bytes of static shared memory"):
        check_shape(made, 1, 32, 0)


def nothing(_: object) -> None:
    return None


def buffer(params: str, *arguments: object) -> bytes:
    return marshal(program(params=params).kernel, arguments, nothing)


def test_scalars_of_every_width_land_at_their_aligned_offsets() -> None:
    raw = buffer(
        ".param .u8 a, .param .u16 b, .param .f32 c, .param .u64 d, .param .f64 e, .param .s32 f",
        np.uint8(1),
        np.int16(-2),
        np.float32(1.5),
        None,
        np.float64(-0.5),
        -3,
    )
    assert raw == struct.pack("<BxhfQdi", 1, -2, 1.5, 0, -0.5, -3)


def test_negative_numbers_of_signed_parameters() -> None:
    """What is ``int`` in CUDA C++ is ``.u32`` in the PTX of nvcc: a NumPy scalar passes it."""
    raw = buffer(".param .u32 a, .param .s32 b, .param .b32 c", np.int32(-1), -1, -1)
    assert raw == struct.pack("<iii", -1, -1, -1)


def test_structures_by_value() -> None:
    pair = np.array((1, 2.5), dtype=np.dtype([("i", "<i4"), ("x", "<f4")]))[()]
    assert buffer(".param .align 4 .b8 s[8]", pair) == struct.pack("<if", 1, 2.5)
    assert buffer(".param .align 4 .b8 s[8]", b"12345678") == b"12345678"
    with pytest.raises(ge.LaunchError, match="3 bytes given, 8 expected"):
        buffer(".param .align 4 .b8 s[8]", b"123")


@pytest.mark.parametrize(
    ("params", "arguments", "what"),
    [
        (".param .u32 n", (), "takes 1 argument, 0 given"),
        ("", (1,), "takes 0 arguments, 1 given"),
        (".param .u32 n", (np.int64(1),), "has 64 bits, the parameter has 32"),
        (".param .u32 n", (2**32,), "outside 0 … 4294967295"),
        (".param .b32 n", (2**32,), "outside -2147483648 … 4294967295"),
        (".param .u32 n", (-1,), "-1 for an unsigned parameter"),
        (".param .u32 n", (-1,), "accepted: 0 … 4294967295; if it is signed in the source, np.int32(-1)"),
        (".param .u64 n", (-(2**70),), "accepted: 0 … 18446744073709551615"),
        (".param .u8 n", (-1,), "accepted: 0 … 255"),
        (".param .u32 n", (1.0,), "a float (1.0) for an integer parameter"),
        (".param .u32 n", (np.float32(1),), "a float32 for an integer parameter"),
        (".param .f32 x", (np.int32(1),), "an integer (int32) for a floating-point parameter"),
        (".param .f32 x", (1e300,), "does not fit .f32"),
        (".param .f32 x", (True,), "a bool for a floating-point parameter"),
        (".param .u32 n", (None,), "for a parameter that is not a pointer"),
        (".param .u64 p", (np.zeros(4),), "kernels see device memory only"),
        (".param .u64 p", ("text",), "cannot pass a str"),
        (".param .u64 p", (object(),), "cannot pass a object"),
    ],
)
def test_wrong_arguments(params: str, arguments: tuple[object, ...], what: str) -> None:
    with pytest.raises(ge.LaunchError) as raised:
        buffer(params, *arguments)
    assert what in str(raised.value)
    assert str(raised.value).startswith("k.ptx:")
