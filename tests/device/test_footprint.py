"""The footprint of a launch equals sets of bytes, worked out from the addresses that each thread accesses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.engine.running import launch

FORMS = {
    "u8": ("%h1", 1),
    "u16": ("%h1", 2),
    "u32": ("%r10", 4),
    "u64": ("%rd10", 8),
    "v2.u16": ("{%h1, %h2}", 4),
    "v4.f32": ("{%f1, %f2, %f3, %f4}", 16),
    "v4.u64": ("{%rd10, %rd11, %rd12, %rd13}", 32),
}


def kernel(form: str) -> ge.Kernel:
    """Each thread loads at ``from[thread]`` of one array and stores at ``to[thread]`` of another; −1 leaves it out."""
    registers = FORMS[form][0]
    text = f"""
    .version 8.8
    .target sm_100
    .address_size 64
    .visible .entry k(.param .u64 from, .param .u64 to, .param .u64 source, .param .u64 target)
    {{
    .reg .pred %p<3>; .reg .b16 %h<5>; .reg .b32 %r<12>; .reg .b64 %rd<14>; .reg .f32 %f<5>;
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;
    mad.lo.u32 %r1, %r2, %r3, %r1;
    mul.wide.u32 %rd1, %r1, 8;
    ld.param.u64 %rd2, [from]; add.u64 %rd2, %rd2, %rd1; ld.global.s64 %rd2, [%rd2]; setp.ge.s64 %p1, %rd2, 0;
    ld.param.u64 %rd3, [to]; add.u64 %rd3, %rd3, %rd1; ld.global.s64 %rd3, [%rd3]; setp.ge.s64 %p2, %rd3, 0;
    ld.param.u64 %rd4, [source]; add.u64 %rd2, %rd2, %rd4;
    ld.param.u64 %rd5, [target]; add.u64 %rd3, %rd3, %rd5;
    @%p1 ld.global.{form} {registers}, [%rd2];
    @%p2 st.global.{form} [%rd3], {registers};
    ret;
    }}"""
    return ge.parse(text, path="k.ptx")["k"]


def expected(name: str, size: int, read: set[int], written: set[int]) -> dict[str, Any]:
    either = read | written
    return {
        "object": name,
        "bytes": size,
        **{
            f"bytes_{what}": len(found)
            for what, found in (("read", read), ("written", written), ("touched", either))
        },
        **{
            f"sectors_{what}": len({byte // 32 for byte in found})
            for what, found in (("read", read), ("written", written), ("touched", either))
        },
        "share": 100 * len(either) / size,
    }


@pytest.mark.parametrize("form", FORMS)
def test_random_and_regular_accesses(backend: str, form: str) -> None:
    width, threads = FORMS[form][1], 3 * 64
    size = 300 * width + 7  # its last sector is not whole
    rng = np.random.default_rng(width)
    lanes = np.arange(threads)
    code = kernel(form)
    device = ge.Device(backend=backend, memory_bytes=1 << 20, observe={"footprint"})
    source, target = device.zeros(size, np.uint8, name="source"), device.zeros(size, np.uint8, name="target")
    patterns = {
        "random": rng.integers(0, 300, threads),
        "consecutive": lanes,
        "every second": lanes % 100 * 2,
        "one place": np.full(threads, 299),
        "some": np.where(rng.random(threads) < 0.3, rng.integers(0, 300, threads), -1),
    }
    for first, second in zip(patterns, [*list(patterns)[1:], "random"]):
        chosen = [np.where(places < 0, -1, places * width) for places in (patterns[first], patterns[second])]
        given = [device.array(places.astype(np.int64)) for places in chosen]
        profile = device.launch(code, 3, 64, [*given, source, target])
        found = {item.object: item.to_dict() for item in profile.footprint}
        touched = [{int(at) + k for at in places if at >= 0 for k in range(width)} for places in chosen]
        assert found["source"] == expected("source", size, touched[0], set()), (first, second)
        assert found["target"] == expected("target", size, set(), touched[1]), (first, second)
        assert len(found) == 4  # and the places, read once
        assert [item["bytes_read"] for item in profile.to_dict()["footprint"][2:]] == [8 * threads] * 2


def test_what_touches_an_object(backend: str) -> None:
    """Atomics read and write; a uniform load, a copy to shared memory and a constant read; shared and local memory are none."""
    body = """
    .local .align 4 .b8 scratch[64];
    ld.param.u64 %rd1, [counters];
    ld.param.u64 %rd2, [copied];
    ld.param.u64 %rd3, [uniform];
    mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 3;
    mul.wide.u32 %rd4, %r2, 4;
    add.u64 %rd4, %rd4, %rd1;
    atom.global.add.u32 %r3, [%rd4+64], 1;
    ld.global.u64 %rd5, [%rd3+40];
    ld.const.u32 %r4, [table+8];
    mul.wide.u32 %rd6, %r1, 8;
    add.u64 %rd7, %rd2, %rd6;
    mov.u32 %r5, tile;
    shl.b32 %r6, %r1, 3;
    add.u32 %r5, %r5, %r6;
    cp.async.ca.shared.global [%r5], [%rd7], 8, 4;
    cp.async.wait_all;
    st.local.u32 [scratch], %r1;
    ld.shared.u32 %r7, [%r5];
    ret;"""
    device = ge.Device(backend=backend, memory_bytes=1 << 20, observe={"footprint"})
    arrays = [device.zeros(512, np.uint8, name=name) for name in ("counters", "copied", "uniform")]
    profile = launch(
        backend, body, parameters=".param .u64 counters, .param .u64 copied, .param .u64 uniform",
        before=".const .align 4 .b32 table[4] = {1, 2, 3, 4};\n.shared .align 16 .b8 tile[512];", args=arrays, device=device,
    )  # fmt: skip
    found = {item.object: item.to_dict() for item in profile.footprint}
    used = set(range(64, 80))
    assert found["counters"] == expected("counters", 512, used, used)
    assert found["copied"] == expected(
        "copied", 512, {8 * lane + k for lane in range(32) for k in range(4)}, set()
    )
    assert found["uniform"] == expected("uniform", 512, set(range(40, 48)), set())
    assert found["table"] == expected("table", 16, set(range(8, 12)), set())
    assert len(found) == 4


def test_it_is_of_one_launch(backend: str) -> None:
    body = "ld.param.u64 %rd1, [data]; ld.global.u32 %r1, [%rd1+{}]; ret;"
    device = ge.Device(backend=backend, memory_bytes=1 << 20, observe={"footprint", "values"})
    data = device.zeros(64, np.uint32, name="data")
    parts = [
        launch(backend, body.format(place), parameters=".param .u64 data", args=[data], device=device)
        for place in (0, 128)
    ]
    for part in parts:
        assert [item.bytes_read for item in part.footprint] == [4]
    with pytest.raises(ge.MemoryFault):
        launch(backend, body.format(256), parameters=".param .u64 data", args=[data], device=device)
    empty = launch(backend, "ret;", parameters=".param .u64 data", args=[data], device=device)
    assert empty.footprint == ()
    with pytest.raises(
        ge.NotObserved, match=r'use Device\(observe=\{"footprint"\}\), and the profile of a single launch'
    ):
        ge.add_profiles(parts).footprint  # noqa: B018


def test_it_has_to_be_observed(backend: str) -> None:
    profile = launch(backend, "ret;")
    assert profile.to_dict()["footprint"] is None
    with pytest.raises(ge.NotObserved):
        profile.footprint  # noqa: B018
    device = ge.Device(backend=backend, memory_bytes=1 << 20, observe={"footprint"})
    assert launch(backend, "ret;", device=device, demand="auto").demand == "addresses"
    with pytest.raises(ge.NotObserved, match="demand='control' skips accesses"):
        launch(backend, "ret;", device=device, demand="control")
