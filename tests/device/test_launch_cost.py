"""What a launch costs does not depend on what was launched and allocated before, nor on arrays that it does not touch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.jit import runtime_libraries
from gpuperf_engine.jit.compiled import Code
from gpuperf_engine.jit.runtime_objects import PARTICULAR

KERNELS = Path(__file__).resolve().parents[2] / "examples/kernels"
EMPTY = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a) { ret; }
"""
#: stores a thread's number where the second argument points; through the address that lies there if the first is not 0
STORE = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u32 chase, .param .u64 target)
{
    .reg .pred %p;
    .reg .b32 %c, %t;
    .reg .b64 %a, %o;
    ld.param.u32 %c, [chase];
    ld.param.u64 %a, [target];
    setp.eq.u32 %p, %c, 0;
    @%p bra HERE;
    ld.global.u64 %a, [%a];
HERE:
    mov.u32 %t, %tid.x;
    mul.wide.u32 %o, %t, 4;
    add.u64 %a, %a, %o;
    st.global.u32 [%a], %t;
    ret;
}
"""


def bytecodes(call: Callable[[], object]) -> int:
    """How many bytecodes of Python a call executes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("observe", [(), ("memory",), ("values",)], ids=["counts", "memory", "values"])
def test_earlier_launches_and_arrays_cost_nothing(backend: str, observe: tuple[str, ...]) -> None:
    kernel = ge.parse(EMPTY, path="k.ptx")["k"]
    device = ge.Device(observe, backend=backend)
    array = device.zeros(32, name="array")

    def launch() -> None:
        device.launch(kernel, 1, 32, [array])

    for _ in range(3):
        launch()
    before = bytecodes(launch)
    for number in range(300):
        (device.zeros if number % 2 else device.empty)(8, np.uint32)
        launch()
    # better code that has been compiled meanwhile is taken in by one launch; a loop of its own would be one more frame for it to name
    after = min(bytecodes(launch), bytecodes(launch), bytecodes(launch))
    assert after < 1.02 * before + 50


def test_naming_arrays_costs_the_same_each_time() -> None:
    kernel = ge.parse(EMPTY, path="k.ptx")["k"]
    device = ge.Device(observe=set())

    def launch() -> None:
        device.launch(kernel, 1, 32, [device.empty(8)])

    for _ in range(3):
        launch()
    before = bytecodes(launch)
    for _ in range(300):
        launch()
    assert bytecodes(launch) < 1.02 * before + 50
    assert [array.name for array in device.arrays[:3]] == ["a", "a#2", "a#3"]


def test_all_arrays_that_kernels_filled_are_found_in_time() -> None:
    """Also one to which only an address in memory leads."""
    kernel = ge.parse(STORE, path="k.ptx")["k"]
    device = ge.Device(observe=set())
    hidden = device.empty(32, np.uint32, name="hidden")
    for _ in range(20):
        device.empty(8)
    pointer = device.array(np.array([hidden.address], np.uint64))
    device.launch(kernel, 1, 32, [1, pointer])
    for _ in range(22):
        device.launch(kernel, 1, 32, [1, pointer])
    assert hidden.allocation.initialized


def test_values_are_known_of_what_is_stored_to(backend: str) -> None:
    kernel = ge.parse(STORE, path="k.ptx")["k"]
    device = ge.Device({"values"}, backend=backend)
    device.array(np.ones(1 << 20, np.uint8), name="untouched")
    written = device.array(np.arange(64, dtype=np.uint32), name="written")
    hidden = device.zeros(32, np.uint32, name="hidden")
    fresh = device.empty(32, np.uint32, name="fresh")
    pointer = device.array(np.array([hidden.address], np.uint64), name="pointer")
    writes = []
    for chase, target in ((0, written), (1, pointer), (0, fresh), (0, fresh)):
        device.launch(kernel, 2, 32, [chase, target])
        writes += [
            (item.array.name, item.elements, item.written, item.unchanged)
            for item in device.events[-1].writes
        ]
    assert writes == [
        ("written", 64, 32, 32),
        ("hidden", 32, 32, 1),  # element 0 was 0
        ("fresh", 32, 32, 0),
        ("fresh", 32, 32, 32),
    ]
    assert not device.launch(kernel, 1, 32, [0, written]).notes


def test_a_launch_like_the_one_before_decides_little_anew() -> None:
    """Shapes, what is checked for races, and what compiled code writes to are there already."""
    device = ge.Device(history=0)
    kernel, target = ge.parse(STORE)["k"], device.zeros(64, np.uint32)

    def launch() -> None:
        device.launch(kernel, 2, 32, [0, target])

    first, second = bytecodes(launch), bytecodes(launch)
    assert second < first / 3
    assert bytecodes(launch) <= second
    assert not device.events


def small_launches() -> Callable[[], object]:
    """Small launches with other arguments each, after the first ones."""
    saxpy = ge.parse((KERNELS / "saxpy.ptx").read_text(), path="saxpy.ptx")["saxpy"]
    device = ge.Device(observe=(), history=0)
    x, y = device.zeros(1000), device.zeros(1000)
    factors = iter(range(1000))

    def launch() -> None:
        device.launch(saxpy, 4, 256, [1000, float(next(factors)), x, y])

    for _ in range(5):
        launch()
    return launch


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="other versions of Python compile to other bytecode"
)
def test_a_small_launch_costs_little() -> None:
    """6,390 bytecodes; a limit of time would depend on the machine and its load."""
    launch = small_launches()
    # a launch looks for the line that called it, which takes longer in the deep stack of a worker of pytest-xdist
    with ThreadPoolExecutor(1) as pool:
        assert min(pool.map(bytecodes, [launch, launch])) < 6_800


def test_functions_that_other_kernels_need_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of products are compiled well only when their launches take long: until then each has to wait."""
    launch = small_launches()
    before = min(bytecodes(launch), bytecodes(launch))
    waiting = {f"{PARTICULAR[0]}{number}": "" for number in range(100)}
    monkeypatch.setattr(runtime_libraries, "_unoptimised", waiting)
    assert min(bytecodes(launch), bytecodes(launch)) <= before


def test_launches_of_many_shapes_cost_later_ones_nothing() -> None:
    """Each shape of CTAs has records for race detection of its own, which are kept."""
    launch = small_launches()
    before = min(bytecodes(launch), bytecodes(launch))
    device, kernel = ge.Device(), ge.parse(RECORDED, path="k.ptx")["k"]
    for warps in range(1, 33):
        device.launch(kernel, 1, 32 * warps)
    assert min(bytecodes(launch), bytecodes(launch)) <= before


#: accesses to shared memory, for which each CTA has records
RECORDED = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k()
{
    .reg .b32 %t, %a;
    .shared .b32 words[1024];
    mov.u32 %t, %tid.x;
    shl.b32 %t, %t, 2;
    mov.u32 %a, words;
    xor.b32 %t, %t, 64;
    add.u32 %a, %a, %t;
    st.shared.b32 [%a], %t;
    bar.sync 0;
    ld.shared.b32 %t, [%a];
    ret;
}
"""
LOOP = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u32 times, .param .u64 target)
{
    .reg .pred %p;
    .reg .b32 %c, %i;
    .reg .b64 %a, %o;
    ld.param.u32 %c, [times];
    ld.param.u64 %a, [target];
    mov.u32 %i, 0;
AGAIN:
    add.u32 %i, %i, 1;
    setp.lt.u32 %p, %i, %c;
    @%p bra AGAIN;
    mov.u32 %c, %ctaid.x;
    mul.wide.u32 %o, %c, 4;
    add.u64 %a, %a, %o;
    st.global.u32 [%a], %i;
    ret;
}
"""


def test_a_launch_is_brief_until_one_of_its_shape_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brief launches run all CTAs in one call; the next long one after that is the last that does."""
    monkeypatch.setattr("gpuperf_engine.device.device.host_threads", lambda: 3)
    kernel = ge.parse(LOOP)["k"]
    device = ge.Device(races="off")
    counts = device.zeros(8, np.uint32)

    def brief_after(times: int) -> object:
        device.launch(kernel, 8, 32, [times, counts])
        assert counts.numpy().tolist() == [times] * 8
        (code,) = (item for item in kernel.memo.values() if isinstance(item, Code))
        return code.brief

    brief_after(1)  # compiles
    assert brief_after(1) == ((8, 1, 1), (32, 1, 1))
    assert brief_after(10_000_000) is None
    assert brief_after(10_000_000) is None
    assert brief_after(1) == ((8, 1, 1), (32, 1, 1))
