"""Arrays, views, copies, names, parameters by value, module variables, shapes of launches."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.engine.running import GLOBAL_THREAD, collect, launch, module

SCALE = f"""
    {GLOBAL_THREAD}
    ld.param.u64 %rd0, [data];
    ld.param.u32 %r1, [n];
    setp.ge.u32 %p1, %r19, %r1;
    @%p1 ret;
    mul.wide.u32 %rd1, %r19, 4;
    add.u64 %rd0, %rd0, %rd1;
    ld.global.f32 %f1, [%rd0];
    add.f32 %f1, %f1, %f1;
    st.global.f32 [%rd0], %f1;
    ret;"""
PARAMETERS = ".param .u64 data, .param .u32 n"


def device_of(backend: str, **options: Any) -> ge.Device:
    return ge.Device(backend=backend, memory_bytes=1 << 24, **options)


@pytest.mark.parametrize(
    "value",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4),
        np.arange(7, dtype=np.int8),
        np.array(5.5),
        np.zeros((0, 3), np.uint16),
        np.array([True, False]),
        np.array([1 + 2j], np.complex64),
        np.array([(1, 2.5)], dtype=[("i", "<i4"), ("x", "<f4")]),
        np.arange(12).reshape(3, 4).T,
        np.arange(10)[::-2],
    ],
)
def test_arrays_come_back_as_they_went_in(value: np.ndarray) -> None:
    array = device_of("reference").array(value)
    assert (array.shape, array.dtype, array.nbytes) == (value.shape, value.dtype, value.nbytes)
    np.testing.assert_array_equal(array.numpy(), value, strict=True)


def test_python_sequences_are_arrays() -> None:
    device = device_of("reference")
    assert device.array([1, 2, 3]).dtype == np.int64
    assert device.array(2.5).shape == ()


@pytest.mark.parametrize("value", [[[1], [1, 2]], ["a"], [object()], np.array([1], ">i4"), {"a": 1}])
def test_what_no_device_can_hold(value: object) -> None:
    with pytest.raises(ge.LaunchError):
        device_of("reference").array(value)


@pytest.mark.parametrize("dtype", [object, "U4", "M8[s]", "no such type", ">f4"])
def test_dtypes_that_no_device_has(dtype: Any) -> None:
    with pytest.raises(ge.LaunchError):
        device_of("reference").zeros(4, dtype)


def test_addresses_are_aligned_fixed_and_apart() -> None:
    sizes = (1, 0, 300, 4096)
    one, two = device_of("reference"), device_of("reference")
    first = [one.empty(size, np.uint8).address for size in sizes]
    assert [two.empty(size, np.uint8).address for size in sizes] == first
    assert first[0] == 0x3000_0000_0000
    assert all(address % 256 == 0 for address in first)
    assert all(b - a >= size + 4096 for a, b, size in zip(first, first[1:], sizes))


def test_views() -> None:
    device = device_of("reference")
    host = np.arange(24, dtype=np.int16).reshape(6, 4)
    array = device.array(host, name="x")
    for key in (slice(2, None), slice(1, 5), slice(-2, None), slice(4, 2), 3, -1, slice(None)):
        view = array[key]
        np.testing.assert_array_equal(view.numpy(), host[key], strict=True)
        assert view.name == "x"
    assert array[2].address == array.address + 16
    assert array[2:][1][1:].numpy().tolist() == [13, 14, 15]
    assert array[1][2].numpy() == 6
    assert len(array[1:]) == 5
    array[1:3].fill(-1)
    array[5].copy_from(np.zeros(4, np.int16))
    host[1:3], host[5] = -1, 0
    np.testing.assert_array_equal(array.numpy(), host)
    for key in (6, -7, slice(None, None, 2)):
        with pytest.raises(ge.LaunchError):
            array[key]
    with pytest.raises(ge.LaunchError):
        array[0][0][0]


def test_fills_and_copies() -> None:
    device = device_of("reference")
    a, b = device.empty((2, 3), np.float32), device.zeros(6, np.uint32)
    a.fill(1)
    assert a.numpy().tolist() == [[1, 1, 1]] * 2
    b.copy_from(a)
    assert b.numpy().tolist() == [0x3F800000] * 6
    b.copy_from([1, 2, 3, 4, 5, 6])
    assert b.numpy().tolist() == [1, 2, 3, 4, 5, 6]
    b[:2].copy_from(b[2:4])
    assert b.numpy().tolist() == [3, 4, 3, 4, 5, 6]
    a.copy_from(np.ones((2, 3)))
    assert a.numpy().dtype == np.float32


@pytest.mark.parametrize("value", [1.5, -1, 1 << 32, "x", None, [1, 2], float("nan")])
def test_fills_that_do_not_fit(value: object) -> None:
    array = device_of("reference").zeros(3, np.uint32)
    with pytest.raises(ge.LaunchError):
        array.fill(value)
    assert array.numpy().tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "value", [np.zeros(4), np.zeros(2, np.uint32), [1, 2], np.zeros(3), [1.5, 2, 3], ["a"] * 3]
)
def test_copies_that_do_not_fit(value: Any) -> None:
    with pytest.raises(ge.LaunchError):
        device_of("reference").zeros(3, np.uint32).copy_from(value)


def test_a_host_array_is_copied_not_shared(backend: str) -> None:
    device = device_of(backend)
    host = np.ones(40, np.float32)
    data = device.array(host)
    host[:] = 7
    launch(backend, SCALE, parameters=PARAMETERS, grid=2, args=[data, 40], device=device)
    before = data.numpy()
    launch(backend, SCALE, parameters=PARAMETERS, grid=2, args=[data, 40], device=device)
    assert before.tolist() == [2] * 40
    assert data.numpy().tolist() == [4] * 40


def test_a_view_as_an_argument(backend: str) -> None:
    device = device_of(backend)
    data = device.array(np.ones(40, np.float32))
    launch(backend, SCALE, parameters=PARAMETERS, args=[data[8:], 4], device=device)
    launch(backend, SCALE, parameters=PARAMETERS, args=[data.address + 4 * 20, 1], device=device)
    launch(backend, SCALE, parameters=PARAMETERS, args=[np.uint64(data.address + 4 * 30), 1], device=device)
    changed = np.flatnonzero(data.numpy() == 2).tolist()
    assert changed == [8, 9, 10, 11, 20, 30]


def test_a_view_ends_where_its_allocation_ends(backend: str) -> None:
    device = device_of(backend)
    data = device.array(np.ones(40, np.float32))
    launch(backend, SCALE, parameters=PARAMETERS, args=[data[8:10], 32], device=device)
    with pytest.raises(ge.MemoryFault, match="past the end of 'data'"):
        launch(backend, SCALE, parameters=PARAMETERS, grid=2, args=[data[8:], 33], device=device)


def test_two_arguments_may_be_the_same_array(backend: str) -> None:
    body = f"""
    {GLOBAL_THREAD}
    ld.param.u64 %rd0, [from];
    ld.param.u64 %rd1, [to];
    mul.wide.u32 %rd2, %r19, 4;
    add.u64 %rd0, %rd0, %rd2;
    add.u64 %rd1, %rd1, %rd2;
    ld.global.u32 %r1, [%rd0];
    add.u32 %r1, %r1, 1;
    st.global.u32 [%rd1], %r1;
    ret;"""
    device = device_of(backend)
    data = device.array(np.arange(33, dtype=np.uint32))
    launch(backend, body, parameters=".param .u64 from, .param .u64 to", args=[data, data[1:]], device=device)
    # all lanes of the one warp load before any stores
    assert data.numpy().tolist() == [0, *range(1, 33)]


def test_names_come_from_the_parameter_of_first_use(backend: str) -> None:
    device = device_of(backend)
    named, plain, other = device.zeros(32, name="mine"), device.zeros(32), device.zeros(32)
    for array in (named, plain, other, plain):
        launch(backend, SCALE, parameters=PARAMETERS, args=[array, 1], device=device)
    assert [array.name for array in (named, plain, other)] == ["mine", "data", "data#2"]
    nvcc = module("ret;", ".param .u64 k_param_0, .param .u64 k_param_1")
    unnamed = device.zeros(4)
    device.launch(ge.parse(nvcc)["k"], 1, 1, [None, unnamed])
    assert unnamed.name == "k[1]"


def test_structures_by_value(backend: str) -> None:
    dtype = np.dtype([("a", "<i4"), ("b", "<f8"), ("c", "u1", (3,))], align=True)
    value = np.zeros((), dtype)
    value["a"], value["b"], value["c"] = -7, 2.5, (1, 2, 3)
    body = """
    ld.param.s32 %r1, [s];
    ld.param.f64 %fd1, [s+8];
    cvt.rzi.s32.f64 %r2, %fd1;
    ld.param.u8 %r3, [s+18];
    mad.lo.s32 %r0, %r1, 100, %r2;
    mad.lo.s32 %r0, %r0, 100, %r3;"""
    for argument in (value[()], value, value.tobytes(), bytearray(value.tobytes())):
        out, _ = collect(backend, body, parameters=".param .align 8 .b8 s[24]", args=[argument])
        assert out.view(np.int32).tolist() == [(-7 * 100 + 2) * 100 + 3] * 32


def test_scalars_of_every_width(backend: str) -> None:
    body = """
    ld.param.u8 %r1, [a];
    ld.param.s16 %r2, [b];
    ld.param.u32 %r3, [c];
    ld.param.u64 %rd1, [d];
    cvt.u32.u64 %r4, %rd1;
    ld.param.f32 %f1, [e];
    cvt.rni.u32.f32 %r5, %f1;
    ld.param.f64 %fd1, [f];
    cvt.rni.u32.f64 %r6, %fd1;
    add.u32 %r0, %r1, %r2; add.u32 %r0, %r0, %r3; add.u32 %r0, %r0, %r4; add.u32 %r0, %r0, %r5;
    add.u32 %r0, %r0, %r6;"""
    parameters = ".param .u8 a, .param .s16 b, .param .u32 c, .param .u64 d, .param .f32 e, .param .f64 f"
    arguments = [
        np.uint8(200),
        np.int16(-100),
        np.uint32(1000),
        np.int64(10**4),
        np.float32(10**5),
        np.float64(10**6),
    ]
    for args in (arguments, [200, -100, 1000, 10**4, 1e5, 1e6]):
        out, _ = collect(backend, body, parameters=parameters, args=args)
        assert out.tolist() == [1111100] * 32


VARIABLES = """
.const .align 4 .f32 coeffs[4] = {0f3F800000, 0f40000000, 0f40400000};
.global .align 4 .u32 total = 5;
.global .align 8 .u64 where = total;
.global .align 4 .s32 numbers[4] = {-1, 2, 0x7fffffff, 65};
.global .align 8 .u64 inside[2] = {generic(numbers)+8, numbers};
.global .align 2 .b8 bytes[4] = {1, 2, 255};
"""


def test_module_variables_and_their_initial_values(backend: str) -> None:
    device = device_of(backend)
    body = """
    ld.global.u64 %rd1, [where];
    ld.u32 %r1, [%rd1];
    ld.global.u64 %rd2, [inside];
    ld.s32 %r2, [%rd2];
    ld.const.f32 %f1, [coeffs+8];
    cvt.rni.u32.f32 %r3, %f1;
    ld.global.u8 %r4, [bytes+2];
    ld.const.u32 %r5, [coeffs+12];
    shr.u32 %r2, %r2, 20;
    mad.lo.u32 %r0, %r1, 10, %r3;
    mad.lo.u32 %r0, %r0, 1000, %r4;
    mad.lo.u32 %r0, %r0, 10000, %r2;
    add.u32 %r0, %r0, %r5;"""
    out, _ = collect(backend, body, before=VARIABLES, device=device)
    assert out.tolist() == [(53 * 1000 + 255) * 10000 + 0x7FF] * 32


def test_symbols_are_arrays(backend: str) -> None:
    device = device_of(backend)
    body = """
    ld.const.f32 %f1, [coeffs+4];
    mov.b32 %r0, %f1;
    red.global.add.u32 [total], 1;"""
    out = device.zeros(32, np.uint32)
    text = module(
        f"{body}\n{GLOBAL_THREAD}\nld.param.u64 %rd1, [out];\nmul.wide.u32 %rd2, %r19, 4;\nadd.u64 %rd1, %rd1, %rd2;\n"
        "st.global.u32 [%rd1], %r0;\nret;",
        ".param .u64 out",
        VARIABLES,
    )
    kernel = ge.parse(text, path="k.ptx")["k"]
    coeffs, total = device.symbol(kernel, "coeffs"), device.symbol(kernel, "total")
    assert (coeffs.shape, coeffs.dtype, coeffs.name) == ((4,), np.float32, "coeffs")
    assert coeffs.numpy().tolist() == [1, 2, 3, 0]
    assert (total.shape, total.numpy()) == ((), 5)
    coeffs[1:].copy_from(np.array([7, 8, 9], np.float32))
    device.launch(kernel, 1, 32, [out])
    device.launch(kernel, 1, 32, [out])
    assert out.numpy().view(np.float32).tolist() == [7] * 32
    assert total.numpy() == 5 + 64  # variables keep their values from launch to launch
    assert device.symbol(kernel, "numbers").numpy().tolist() == [-1, 2, 0x7FFFFFFF, 65]


def variables_as_nvcc_declares_them() -> ge.Module:
    """``__constant__ float table[4]`` and ``__device__ double sum``, and a kernel that stores the last element of ``table``."""
    return ge.parse(
        """.version 8.0
.target sm_80
.address_size 64
.const .align 4 .b8 table[16];
.global .align 8 .f64 sum;
.visible .entry k(.param .u64 out) {
.reg .f32 %f;
.reg .b64 %rd;
ld.param.u64 %rd, [out];
ld.const.f32 %f, [table+12];
st.global.f32 [%rd], %f;
ret; }
"""
    )


def test_a_variable_is_viewed_as_the_type_that_the_program_gave_it(backend: str) -> None:
    kernel, device = variables_as_nvcc_declares_them()["k"], device_of(backend)
    table = device.symbol(kernel, "table")
    assert (table.dtype, table.shape) == (np.uint8, (16,))
    device.copy(table.view(np.float32), np.array([1, 2, 3, 4.5], np.float32))
    out = device.zeros(1, np.float32)
    device.launch(kernel, 1, 1, [out])
    assert out.numpy() == 4.5
    assert table.view(np.float32)[1:3].numpy().tolist() == [2, 3]
    assert table.view(np.dtype([("a", "f4"), ("b", "f4")])).numpy()["b"].tolist() == [2, 4.5]
    assert device.symbol(kernel, "sum").view(np.uint64).shape == ()
    grid = device.array(np.arange(12, dtype=np.uint16).reshape(3, 4))
    np.testing.assert_array_equal(grid.view(np.uint32).numpy(), grid.numpy().view(np.uint32))
    assert out.view(np.uint8).numpy().tolist() == [0, 0, 0x90, 0x40]


@pytest.mark.parametrize(
    ("dtype", "found"),
    [
        (np.dtype("V3"), "16 bytes of uint8 are not a whole number of"),
        ("O", "no device representation"),
        ("V0", "not a whole"),
    ],
)
def test_a_view_is_a_whole_number_of_elements(backend: str, dtype: object, found: str) -> None:
    table = device_of(backend).symbol(variables_as_nvcc_declares_them()["k"], "table")
    with pytest.raises(ge.LaunchError, match=found):
        table.view(dtype)  # type: ignore[arg-type]


def test_data_of_another_type_for_a_variable_of_bytes_says_how(backend: str) -> None:
    device = device_of(backend)
    table = device.symbol(variables_as_nvcc_declares_them()["k"], "table")
    with pytest.raises(
        ge.LaunchError, match=r"an array of float32, shape \(4,\), into an array of uint8"
    ) as error:
        device.copy(table, np.ones(4, np.float32))
    assert "view(np.float32)" in str(error.value)
    with pytest.raises(ge.LaunchError, match=r"astype\(np.int32\)"):
        device.copy(device.zeros(4, np.int32), np.ones(4, np.float32))


def sums_coeffs() -> ge.Module:
    """A kernel that adds its one argument to ``coeffs[0]``, and variables that have no array."""
    return ge.parse(
        """.version 8.0
.target sm_80
.address_size 64
.global .u32 coeffs[2] = {5};
.shared .u32 tile[4];
.extern .global .u32 elsewhere;
.visible .entry k(.param .u32 n) {
.reg .b32 %r;
ld.param.u32 %r, [n];
red.global.add.u32 [coeffs], %r;
ret; }
"""
    )


def test_a_kernels_symbol_is_the_array_on_the_current_device(backend: str) -> None:
    kernel = sums_coeffs()["k"]
    device = device_of(backend)
    coeffs = kernel.symbol("coeffs")
    assert coeffs.numpy().tolist() == [5, 0]
    coeffs.copy_from(np.array([7, 1], np.uint32))
    device.launch(kernel, 1, 1, [np.uint32(3)])
    assert kernel.symbol("coeffs").numpy().tolist() == [10, 1]
    assert kernel.symbol("coeffs") == device.symbol(kernel, "coeffs")

    # the device made or launched on last is the current one
    other = device_of(backend)
    assert kernel.symbol("coeffs").numpy().tolist() == [5, 0]
    other.launch(kernel, 1, 1, [np.uint32(1)])
    device.launch(kernel, 1, 1, [np.uint32(1)])
    assert kernel.symbol("coeffs").numpy().tolist() == [11, 1]
    assert other.symbol(kernel, "coeffs").numpy().tolist() == [6, 0]


def test_variables_set_on_one_device_are_not_silently_missing_on_another(backend: str) -> None:
    kernel = sums_coeffs()["k"]
    meant, _newest = device_of(backend), device_of(backend)
    kernel.symbol("coeffs").fill(1)
    with pytest.raises(ge.LaunchError, match=r"was not the current one") as error:
        meant.launch(kernel, 1, 1, [np.uint32(1)])
    assert "device.symbol(module['k'], …)" in str(error.value)
    meant.symbol(kernel, "coeffs").fill(2)
    meant.launch(kernel, 1, 1, [np.uint32(1)])
    assert kernel.symbol("coeffs").numpy().tolist() == [3, 2]


@pytest.mark.parametrize("name", ["tile", "elsewhere", "nothing"])
def test_what_has_no_memory_on_the_device_is_no_symbol(backend: str, name: str) -> None:
    device = device_of(backend)
    kernel = sums_coeffs()["k"]
    with pytest.raises(ge.UnknownName, match=name):
        kernel.symbol(name)
    with pytest.raises(ge.UnknownName, match=name):
        device.symbol(kernel, name)


def test_without_a_device_there_are_no_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuperf_engine.ptx.module._current", lambda: None)
    with pytest.raises(ge.LaunchError, match=r"'coeffs' is on no device yet"):
        sums_coeffs()["k"].symbol("coeffs")


@pytest.mark.parametrize(
    ("grid", "block"),
    [
        (1, 1),
        (3, 33),
        ((2, 3), (5, 7)),
        ((2, 2, 2), (4, 3, 5)),
        (1, (1, 1, 64)),
        (2, 1024),
        ((1, 1, 3), (31, 1, 1)),
    ],
)
def test_shapes_and_special_registers(backend: str, grid: Any, block: Any) -> None:
    names = ["tid", "ntid", "ctaid", "nctaid"]
    lines, place = [], 0
    for name in names:
        for axis in "xyz":
            lines.append(f"mov.u32 %r{place}, %{name}.{axis};")
            place += 1
    order = """
    mad.lo.u32 %r12, %r2, %r4, %r1; mad.lo.u32 %r12, %r12, %r3, %r0;
    mad.lo.u32 %r13, %r8, %r10, %r7; mad.lo.u32 %r13, %r13, %r9, %r6;
    mul.lo.u32 %r14, %r3, %r4; mul.lo.u32 %r14, %r14, %r5;
    mad.lo.u32 %r15, %r13, %r14, %r12;
    mov.u32 %r16, %laneid; mov.u32 %r17, %lanemask_lt;
    ld.param.u64 %rd0, [out]; mul.wide.u32 %rd1, %r15, 56; add.u64 %rd0, %rd0, %rd1;"""
    stores = " ".join(f"st.global.u32 [%rd0+{4 * i}], %r{i};" for i in range(12))
    stores += " st.global.u32 [%rd0+48], %r16; st.global.u32 [%rd0+52], %r17;"
    full = [(*np.atleast_1d(part), 1, 1)[:3] for part in (grid, block)]
    (gx, gy, gz), (bx, by, bz) = ([int(n) for n in part] for part in full)
    device = device_of(backend)
    out = device.zeros((gz, gy, gx, bz, by, bx, 14), np.uint32)
    launch(backend, "\n".join([*lines, order, stores, "ret;"]), parameters=".param .u64 out", grid=grid, block=block,
           args=[out], device=device)  # fmt: skip
    expected = np.zeros(out.shape, np.uint32)
    for place, (axis, size) in enumerate([(5, bx), (4, by), (3, bz)]):
        expected[..., place] = np.arange(size).reshape([-1 if a == axis else 1 for a in range(6)])
        expected[..., 3 + place] = size
    for place, (axis, size) in enumerate([(2, gx), (1, gy), (0, gz)]):
        expected[..., 6 + place] = np.arange(size).reshape([-1 if a == axis else 1 for a in range(6)])
        expected[..., 9 + place] = size
    lanes = np.arange(bx * by * bz).reshape(bz, by, bx) % 32
    expected[..., 12] = lanes
    expected[..., 13] = (1 << lanes) - 1
    np.testing.assert_array_equal(out.numpy(), expected)


def test_dynamic_shared_memory_lies_behind_the_static(backend: str) -> None:
    before = ".shared .align 4 .b8 first[20];\n.extern .shared .align 16 .b8 rest[];"
    body = """
    mov.u32 %r1, first; mov.u32 %r2, rest; sub.u32 %r3, %r2, %r1;
    mov.u32 %r4, %tid.x; shl.b32 %r5, %r4, 2; add.u32 %r6, %r2, %r5;
    st.shared.u32 [%r6], %r4;
    bar.sync 0;
    xor.b32 %r5, %r5, 4; add.u32 %r6, %r2, %r5;
    ld.shared.u32 %r0, [%r6];
    mov.u32 %r7, %dynamic_smem_size; mov.u32 %r8, %total_smem_size;
    mad.lo.u32 %r0, %r3, 1000, %r0; mad.lo.u32 %r0, %r7, 1000000, %r0;"""
    out, profile = collect(backend, body, before=before, shared_bytes=128)
    assert out.tolist() == [128 * 1000000 + 32 * 1000 + (lane ^ 1) for lane in range(32)]
    assert profile.resources.shared_bytes == 32 + 128


def test_shared_and_local_memory_start_as_zero_in_every_block(backend: str) -> None:
    body = """
    .local .align 4 .b32 scratch[4];
    mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, tile; add.u32 %r3, %r3, %r2;
    ld.shared.u32 %r4, [%r3]; ld.local.u32 %r5, [scratch+4];
    add.u32 %r0, %r4, %r5;
    st.shared.u32 [%r3], 99; st.local.u32 [scratch+4], 77;"""
    out, _ = collect(backend, body, before=".shared .align 4 .b32 tile[32];", grid=5)
    assert not out.any()


def test_sizes_of_64_bits(backend: str) -> None:
    """Offsets beyond 4 GiB reach the far end of a large sparse array."""
    device = ge.Device(backend=backend, memory_bytes=6 << 30)
    data = device.empty(5 << 30, np.uint8)
    body = """
    ld.param.u64 %rd0, [data];
    mov.u32 %r1, %tid.x;
    cvt.u64.u32 %rd1, %r1;
    add.u64 %rd0, %rd0, %rd1;
    mov.u64 %rd2, 0x13fffffe0;
    add.u64 %rd0, %rd0, %rd2;
    st.global.u8 [%rd0], %r1;
    ret;"""
    launch(backend, body, parameters=".param .u64 data", args=[data], device=device)
    assert data[-32:].numpy().tolist() == list(range(32))
    assert data[(1 << 30) - 32 : 1 << 30].numpy().tolist() == [0] * 32


def test_many_launches_share_memory_and_compilation(backend: str) -> None:
    device = device_of(backend)
    data = device.array(np.ones(64, np.float32))
    kernel = ge.parse(module(SCALE, PARAMETERS))["k"]
    profiles = [device.launch(kernel, 2, 32, [data, n]) for n in (64, 1, 33, 64)]
    assert data.numpy().tolist() == [16.0] + [8.0] * 32 + [4.0] * 31
    assert profiles[0] == profiles[3]
    total = ge.add_profiles(profiles)
    assert total.launches == 4
    assert total.thread_instructions == sum(profile.thread_instructions for profile in profiles)
    assert total.branches.executed == 8


def test_events_record_what_the_host_did(backend: str) -> None:
    device = device_of(backend)
    data = device.zeros(64)
    data.fill(1)
    launch(backend, SCALE, parameters=PARAMETERS, args=[data, 32], device=device)
    data.numpy()
    assert [event.kind for event in device.events] == ["memset", "memset", "launch", "copy-out"]
    assert device.events[1].site.text == "data.fill(1)"
    assert device.events[1].site.path == __file__
    assert device.events[2].kernel == "k"


def test_what_was_not_observed_raises(backend: str) -> None:
    device = ge.Device(observe=set(), backend=backend, memory_bytes=1 << 20)
    profile = launch(backend, "ret;", device=device)
    assert profile.thread_instructions == 32
    with pytest.raises(ge.NotObserved, match="memory behaviour of 'k' was not observed"):
        _ = profile.memory
    with pytest.raises(ge.NotObserved, match="values"):
        ge.find_patterns(device.program)


def test_bits_of_arguments_are_not_touched(backend: str) -> None:
    """A signalling NaN passes through a float parameter unchanged."""
    bits = 0x7F80_0001
    value = np.array([bits], np.uint32).view(np.float32)[0]
    out, _ = collect(
        backend, "ld.param.f32 %f1, [x]; mov.b32 %r0, %f1;", parameters=".param .f32 x", args=[value]
    )
    assert out.tolist() == [bits] * 32
    assert struct.pack("<I", bits) == value.tobytes()


@pytest.mark.parametrize(("former", "present"), [("native", "llvm"), ("lanes", "reference")])
def test_the_former_names_of_backends_work_with_a_warning(former, present):
    sentence = (
        f"Device(backend={former!r}) is now Device(backend={present!r}): write Device(backend={present!r})"
    )
    with pytest.warns(DeprecationWarning) as told:
        device = ge.Device(backend=former)
    assert [str(one.message) for one in told] == [sentence] and told[0].filename == __file__
    assert type(device._backend) is type(ge.Device(backend=present)._backend)
