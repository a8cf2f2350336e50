"""Launches that cannot be: shapes, arguments, sizes, names."""

from __future__ import annotations

import contextlib
import tracemalloc
from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.hostile.kernels import module, refusal, success
from tests.hostile.sandbox import Job, Sandbox

EMPTY = module("ret;")


@pytest.mark.parametrize(
    ("grid", "block", "part"),
    [
        (0, 32, "grid.x is 0"),
        (-3, 32, "grid.x is -3"),
        (1 << 40, 32, "grid.x is 1,099,511,627,776"),
        ((1, 1 << 16), 32, "grid.y is 65,536"),
        (1, 0, "block.x is 0"),
        (1, 1025, "block.x is 1,025"),
        (1, (32, 32, 2), "has 2,048 threads"),
        (None, 32, "grid is None"),
        (1, 32.0, "block is 32.0"),
        ("x", 1, "grid is 'x'"),
        ([[1]], 1, "grid is [[1]]"),
        (1, (1, 1, 1, 1), "block is (1, 1, 1, 1)"),
    ],
)
def test_shapes(sandbox: Sandbox, backend: str, grid: Any, block: Any, part: str) -> None:
    refusal(sandbox, Job(EMPTY, backend=backend, grid=grid, block=block), "LaunchError", part)


@pytest.mark.parametrize(
    ("params", "args"),
    [
        (".param .u32 n", []),
        (".param .u32 n", [1, 2]),
        (".param .u32 n", ["1"]),
        (".param .u32 n", [None]),
        (".param .u32 n", [1 << 32]),
        (".param .u32 n", [np.int64(1)]),
        (".param .u32 n", [np.float32(1)]),
        (".param .u32 n", [1.5]),
        (".param .u32 n", [np.zeros(4)]),
        (".param .f32 x", [np.float64(1)]),
        (".param .f32 x", [1e60]),
        (".param .u64 p", [[1, 2]]),
        (".param .u64 p", [{}]),
        (".param .u64 p", [-(1 << 70)]),
        (".param .align 8 .b8 s[24]", [b"short"]),
        (".param .align 8 .b8 s[24]", [1]),
        (".param .align 8 .b8 s[24]", [None]),
        (".param .u64 p", [float("nan")]),
    ],
)
def test_arguments(sandbox: Sandbox, backend: str, params: str, args: list[object]) -> None:
    refusal(
        sandbox,
        Job(module("ret;", params), backend=backend, args=args),
        "LaunchError",
        "k.ptx:",
        "kernel 'k'",
    )


@pytest.mark.parametrize("size", [-1, 228 * 1024, 1 << 62, 1.5, "8", None])
def test_dynamic_shared_memory(sandbox: Sandbox, backend: str, size: object) -> None:
    refusal(sandbox, Job(EMPTY, backend=backend, options={"shared_bytes": size}), "LaunchError")


@pytest.mark.parametrize("value", [0, -1, 1.5, "many"])
def test_instruction_budgets_that_are_none(sandbox: Sandbox, backend: str, value: object) -> None:
    refusal(
        sandbox,
        Job(EMPTY, backend=backend, options={"max_instructions": value}),
        "LaunchError",
        "max_instructions",
    )


def test_huge_budgets(sandbox: Sandbox, backend: str) -> None:
    success(sandbox, Job(EMPTY, backend=backend, options={"max_instructions": 10**30}))


def test_unknown_kernel(sandbox: Sandbox) -> None:
    refusal(
        sandbox,
        Job(module("ret;").replace("k(", "saxpy("), entry="sapxy"),
        "UnknownName",
        "did you mean 'saxpy'?",
    )
    refusal(
        sandbox, Job(module("ret;", before=".func f() { ret; }"), entry="f"), "UnknownName", "no kernel 'f'"
    )
    refusal(sandbox, Job(f"{EMPTY}", entry=""), "UnknownName")


@pytest.mark.parametrize("static", ["49153", "1000000", "1099511627776", "9223372036854775807"])
def test_static_shared_memory(sandbox: Sandbox, backend: str, static: str) -> None:
    text = module("mov.u32 %r1, s;\nret;", before=f".shared .b8 s[{static}];")
    outcome = sandbox.run(Job(text, backend=backend))
    assert outcome.kind == "error", outcome
    assert outcome.type in ("LaunchError", "PtxError", "PtxSyntaxError")
    assert "k.ptx:" in outcome.text


@pytest.mark.parametrize(
    "declaration",
    [
        ".global .b8 g[1099511627776];",
        ".global .b64 g[1073741824][1073741824];",
        ".global .align 4 .b32 g[4294967296] = {1};",
        ".const .b8 g[1000000000000];",
    ],
)
def test_huge_variables(sandbox: Sandbox, backend: str, declaration: str) -> None:
    text = module("mov.u64 %rd1, g;\nret;", before=declaration)
    outcome = sandbox.run(Job(text, backend=backend))
    assert outcome.kind == "error", outcome
    assert outcome.type in ("LaunchError", "PtxError", "PtxSyntaxError"), outcome
    assert len(outcome.text.splitlines()) <= 5


def test_huge_local_memory(sandbox: Sandbox, backend: str) -> None:
    """512 KiB is what a thread may have (CUDA programming guide, technical specifications)."""
    text = module(".local .b8 l[1099511627776];\nmov.u64 %rd1, l;\nst.local.u8 [%rd1], %r1;\nret;")
    outcome = sandbox.run(Job(text, backend=backend, grid=100, block=1024))
    assert outcome.kind == "error", outcome
    assert outcome.type in ("LaunchError", "PtxError"), outcome


@pytest.mark.parametrize("size", [524288, 400000])
def test_the_largest_local_memory_runs(sandbox: Sandbox, backend: str, size: int) -> None:
    text = module(f".local .b8 l[{size}];\nmov.u64 %rd1, l;\nst.local.u8 [%rd1+{size - 1}], %r1;\nret;")
    success(sandbox, Job(text, backend=backend, block=64))


def test_more_memory_than_the_device_has() -> None:
    device = ge.Device(memory_bytes=1 << 20)
    device.zeros(1000)
    with pytest.raises(
        ge.LaunchError, match=r"^an array needs 8,388,608 bytes(.|\n)*memory_bytes="
    ) as raised:
        device.zeros(1 << 20, np.float64)
    assert "of 1,048,576 bytes of device memory are left" in str(raised.value)
    with pytest.raises(ge.LaunchError, match="memory_bytes="):
        device.empty((1 << 40, 1 << 40), np.uint8)
    with pytest.raises(ge.LaunchError):
        device.empty(1 << 62, np.float64)


@pytest.mark.parametrize("size", [-1, 1 << 62, 1 << 80, 1.5, "4G"])
def test_devices_that_cannot_be(size: Any) -> None:
    with pytest.raises(ge.LaunchError, match="memory_bytes"):
        ge.Device(memory_bytes=size)


def test_names_that_do_not_exist() -> None:
    with pytest.raises(ge.UnknownName, match="did you mean 'memory'"):
        ge.Device(observe={"memroy"})
    with pytest.raises(ge.UnknownName, match="did you mean 'llvm'"):
        ge.Device(backend="llv")
    device = ge.Device(memory_bytes=1 << 20)
    kernel = ge.parse(EMPTY, path="k.ptx")["k"]
    with pytest.raises(ge.UnknownName, match="no demand 'value'"):
        device.launch(kernel, 1, 32, demand="value")
    with pytest.raises(ge.UnknownName, match="no variable 'coeffs'"):
        device.symbol(kernel, "coeffs")


def test_an_array_of_another_device(backend: str) -> None:
    one, two = (ge.Device(backend=backend, memory_bytes=1 << 20) for _ in range(2))
    kernel = ge.parse(module("ret;", ".param .u64 a"), path="k.ptx")["k"]
    with pytest.raises(ge.LaunchError, match="another device"):
        two.launch(kernel, 1, 1, [one.zeros(4)])
    with pytest.raises(ge.LaunchError, match="another device"):
        two.launch(kernel, 1, 1, [one.zeros(4)[1:]])
    with pytest.raises(ge.LaunchError, match="another device"):
        two.copy(two.zeros(4), one.zeros(4))


@pytest.mark.parametrize("what", [None, "k", 3, EMPTY])
def test_what_is_no_kernel(what: Any) -> None:
    with pytest.raises(ge.LaunchError, match="is not a kernel"):
        ge.Device(memory_bytes=1 << 20).launch(what, 1, 32)


def test_a_device_function_is_no_kernel(backend: str) -> None:
    module_ = ge.parse(module("ret;", before=".func f() { ret; }"), path="k.ptx")
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    with pytest.raises(ge.LaunchError, match="'f' is a device function"):
        device.launch(module_.function("f"), 1, 32)
    with pytest.raises(ge.LaunchError, match="is not a kernel"):
        device.launch(module_, 1, 32)  # type: ignore[arg-type]


def test_a_grid_larger_than_memory_runs_on_what_there_is(sandbox: Sandbox, backend: str) -> None:
    """A thread beyond the array faults; the grid's size alone costs nothing before."""
    body = """
    ld.param.u64 %rd0, [a];
    mov.u32 %r0, %ctaid.x;
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd0, %rd0, %rd1;
    st.global.u32 [%rd0], %r0;
    ret;"""
    job = Job(
        module(body, ".param .u64 a"),
        backend=backend,
        grid=2**31 - 1,
        block=1,
        args=[np.zeros(64, np.uint32)],
    )
    refusal(sandbox, job, "MemoryFault", "of block (64, 0, 0)")


def test_a_wide_cooperative_grid(sandbox: Sandbox, backend: str) -> None:
    job = Job(EMPTY, backend=backend, grid=2**31 - 1, block=1024, options={"cooperative": True})
    refusal(sandbox, job, "LaunchError", "cooperative")


BIG = "".join(f".global .b8 g{number}[{{size}}];\n" for number in range(2)) + ".const .b32 c = 7;\n"
TOUCH = "ld.global.u32 %r0, [g1+199999996]; st.global.u32 [g0+199999996], %r0; ret;"


@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize(("size", "named"), [(300_000_000, "g1"), (100_000_000_000_000, "g0")])
def test_variables_that_do_not_fit(sandbox: Sandbox, backend: str, used: bool, size: int, named: str) -> None:
    """The error is the same whether the variables are used or not: a driver refuses to load the module either way."""
    text = module(TOUCH if used else "ret;", before=BIG.format(size=size))
    refusal(
        sandbox,
        Job(text, backend=backend, memory_bytes=1 << 29),
        "LaunchError",
        f"variable '{named}' (.global) needs {size:,} bytes, but",
        "of 536,870,912 bytes of device memory are left",
        "k.ptx:4:13" if named == "g0" else "k.ptx:5:13",
    )


@pytest.mark.parametrize(("size", "fits"), [(200_000_000, True), (300_000_000, False)])
def test_large_variables_that_hold_zeros_cost_nothing(backend: str, size: int, fits: bool) -> None:
    device = ge.Device(backend=backend, memory_bytes=1 << 29)
    kernel = ge.parse(module(TOUCH, before=BIG.format(size=size)))["k"]
    tracemalloc.start()
    try:
        with contextlib.nullcontext() if fits else pytest.raises(ge.LaunchError):
            profile = device.launch(kernel, 1, 1, [])
            assert not profile.notes
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 50 << 20
    pages = device.memory.shadow[: 1 << 29 : 4096]
    assert np.count_nonzero(pages) < 100


@pytest.mark.parametrize(
    ("text", "type", "part"),
    [
        (module("ret;", ".param .b8 a[1000000000]"), "PtxError", "parameters of 'k' have 1,000,000,000 bytes"),
        (module("ret;", ".param .b8 a[5000]"), "PtxError", "parameters of 'k' have 5,000 bytes"),
        (module(".param .b8 a[3000000000]; st.param.u32 [a], 1; ret;"), "LaunchError", "3,000,000,000 bytes in a call"),
        (module(".local .b8 a[3000000000]; st.local.u32 [a], 1; ret;"), "LaunchError", "3,000,000,000 bytes of local"),
        (module(".shared .b8 a[3000000000]; st.shared.u32 [a], 1; ret;"), "LaunchError", "3,000,000,000 bytes of static"),
    ],
)  # fmt: skip
def test_other_memory_that_does_not_fit(
    sandbox: Sandbox, backend: str, text: str, type: str, part: str
) -> None:
    refusal(sandbox, Job(text, backend=backend), type, part)
