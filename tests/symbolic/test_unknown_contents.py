"""What a launch did not compute cannot be read afterwards, and everything else can."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.engine.running import module

PARAMETERS = ".param .u64 n, .param .u64 source, .param .u64 target"
#: target[i] = source[i] + 1 where i < n
COPY = """
    ld.param.u64 %rd0, [n];
    ld.param.u64 %rd1, [source];
    ld.param.u64 %rd2, [target];
    mov.u32 %r0, %tid.x;
    cvt.u64.u32 %rd3, %r0;
    setp.ge.u64 %p0, %rd3, %rd0;
    @%p0 ret;
    shl.b64 %rd3, %rd3, 2;
    add.u64 %rd4, %rd1, %rd3;
    ld.global.u32 %r1, [%rd4];
    add.u32 %r1, %r1, 1;
    add.u64 %rd5, %rd2, %rd3;
    st.global.u32 [%rd5], %r1;
    ret;
"""
#: branches on source[i], and leaves target[i] as a count of something that decides nothing
BRANCHING = COPY.replace(
    "    add.u32 %r1, %r1, 1;",
    "    setp.gt.u32 %p1, %r1, 7;\n    @%p1 ret;\n    add.u32 %r1, %r1, 1;",
)
#: what it stores is what it branches on
SELF = """
    ld.param.u64 %rd1, [source];
    ld.param.u64 %rd2, [target];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd3, %r0, 4;
    add.u64 %rd4, %rd1, %rd3;
    add.u64 %rd5, %rd2, %rd3;
    ld.global.u32 %r1, [%rd4];
    add.u32 %r1, %r1, 1;
    st.global.u32 [%rd5], %r1;
    xor.b64 %rd3, %rd3, 4;
    add.u64 %rd5, %rd2, %rd3;
    bar.sync 0;
    ld.global.u32 %r2, [%rd5];
    setp.gt.u32 %p1, %r2, 7;
    @%p1 ret;
    mul.lo.u32 %r2, %r2, 3;
    ret;
"""


class Device(ge.Device):
    """With three arrays of 32, and launches of a body on two of them."""

    def __init__(self, observe: tuple[str, ...] = ()) -> None:
        super().__init__(observe, memory_bytes=1 << 20)
        self.a, self.b, self.c = (
            self.array(np.arange(32, dtype=np.uint32) + start, name=name)
            for start, name in ((0, "a"), (100, "b"), (200, "c"))
        )

    def go(
        self, body: str, source: object, target: object, demand: str = "control", **options: bool
    ) -> ge.Profile:
        kernel = ge.parse(module(body, PARAMETERS), path="k.ptx")["k"]
        return self.launch(kernel, 1, 32, [np.uint64(32), source, target], demand=demand, **options)


@pytest.mark.parametrize("demand", ["control", "addresses"])
def test_what_a_launch_would_have_stored_is_unknown(demand: str) -> None:
    device = Device()
    device.go(COPY, device.a, device.b, demand)
    with pytest.raises(ge.NotObserved) as caught:
        device.b.numpy()
    lines = str(caught.value).splitlines()
    assert "'b'" in lines[0] and "launch 1 (of 'k', demand=" in lines[0] and demand in lines[0]
    assert 'demand="values"' in lines[-1] and len(lines) <= 5
    # what it only read, and what it was not given
    assert device.a.numpy()[3] == 3 and device.c.numpy()[3] == 203


def test_views_and_device_copies_raise_as_well() -> None:
    device = Device()
    device.go(COPY, device.a, device.b)
    with pytest.raises(ge.NotObserved):
        device.b[4:8].numpy()
    with pytest.raises(ge.NotObserved):
        device.c.copy_from(device.b)


def test_a_later_launch_that_reads_it_raises_and_one_that_does_not_runs() -> None:
    device = Device()
    device.go(COPY, device.a, device.b)
    with pytest.raises(ge.NotObserved) as caught:
        device.go(COPY, device.b, device.c, "values")
    assert "'b'" in str(caught.value) and "ld.global.u32 of 'k' at k.ptx:" in str(caught.value)
    assert device.c.numpy()[0] == 200  # it did not run
    device.go(COPY, device.b, device.c)  # its control flow does not ask for b
    device.go(COPY, device.b, device.c, "addresses")
    with pytest.raises(ge.NotObserved):
        device.go(BRANCHING, device.b, device.a)
    device.go(BRANCHING, device.a, device.b)


def test_the_host_makes_it_known_again_if_it_writes_all_of_it() -> None:
    device = Device()
    device.go(COPY, device.a, device.b)
    device.b[1:].fill(5)
    device.b[:31].copy_from(np.zeros(31, np.uint32))
    with pytest.raises(ge.NotObserved):
        device.b.numpy()
    device.b.fill(7)
    assert (device.b.numpy() == 7).all()
    device.go(COPY, device.a, device.b)
    device.b.copy_from(device.a)
    assert device.b.numpy()[9] == 9
    assert device.go(COPY, device.b, device.c, "values").thread_instructions
    assert device.c.numpy()[9] == 10


def test_a_values_launch_does_not_make_it_known() -> None:
    """It may write a part only."""
    device = Device()
    device.go(COPY, device.a, device.b)
    device.go(COPY, device.a, device.b, "values")
    with pytest.raises(ge.NotObserved):
        device.b.numpy()


def test_what_the_slice_stored_itself_is_known() -> None:
    device = Device()
    profile = device.go(SELF, device.a, device.b)
    assert device.b.numpy().tolist() == [1 + i for i in range(32)]
    assert profile.demand == "control" and profile.branches.executed == 1


def test_without_keeping_memory_nothing_becomes_unknown() -> None:
    device = Device()
    device.go(COPY, device.a, device.b, keep=False)
    assert device.b.numpy()[0] == 100


def test_a_pointer_out_of_memory_may_mean_any_array() -> None:
    body = """
    ld.param.u64 %rd1, [source];
    ld.global.u64 %rd2, [%rd1];
    st.global.u32 [%rd2], 1;
    ret;
"""
    device = Device()
    pointers = device.array(np.array([device.b.address], np.uint64), name="pointers")
    device.go(body, pointers, None)
    for array in (device.a, device.b, device.c, pointers):
        with pytest.raises(ge.NotObserved):
            array.numpy()


def test_module_variables() -> None:
    text = f""".version 8.0
.target sm_80
.address_size 64
.global .align 4 .u32 total;
.global .align 4 .u32 other = 3;
.visible .entry put() {{ .reg .b32 %r<2>; mov.u32 %r0, %tid.x; red.global.add.u32 [total], %r0; ret; }}
.visible .entry get({PARAMETERS}) {{ .reg .b32 %r<2>; .reg .b64 %rd<2>; ld.param.u64 %rd0, [target];
 ld.global.u32 %r0, [total]; st.global.u32 [%rd0], %r0; ret; }}
"""
    loaded = ge.parse(text, path="k.ptx")
    device = Device()
    device.launch(loaded["put"], 1, 32, demand="control")
    assert device.symbol(loaded["put"], "other").numpy() == 3
    with pytest.raises(ge.NotObserved, match="'total'"):
        device.symbol(loaded["put"], "total").numpy()
    with pytest.raises(ge.NotObserved, match="'total'"):
        device.launch(loaded["get"], 1, 1, [np.uint64(0), None, device.a], demand="values")
    device.symbol(loaded["put"], "total").fill(0)
    device.launch(loaded["put"], 1, 32)
    device.launch(loaded["get"], 1, 1, [np.uint64(0), None, device.a])
    assert device.a.numpy()[0] == sum(range(32))


@pytest.mark.parametrize(
    ("observe", "demand"),
    [
        ((), "control"),
        (("memory",), "addresses"),
        (("footprint",), "addresses"),
        (("values",), "values"),
        (("memory", "values"), "values"),
    ],
)
def test_auto_is_the_least_that_answers(observe: tuple[str, ...], demand: str) -> None:
    device = Device(observe)
    profile = device.go(COPY, device.a, device.b, "auto")
    assert profile.demand == demand
    assert (profile.slice_share == 1) is (demand == "values")


def test_memory_behaviour_needs_addresses() -> None:
    device = Device(("memory",))
    control = device.go(COPY, device.a, device.b, "control")
    with pytest.raises(ge.NotObserved, match='demand="addresses" or "values"'):
        _ = control.memory
    assert control.to_dict()["memory"] is None
    assert device.go(COPY, device.a, device.b, "addresses").memory.global_store_sectors == 4


def test_values_cannot_be_observed_without_values() -> None:
    device = Device(("values",))
    with pytest.raises(ge.NotObserved, match="computes no values"):
        device.go(COPY, device.a, device.b, "control")


def test_a_demand_that_is_none() -> None:
    with pytest.raises(ge.UnknownName, match="no demand 'adresses'") as caught:
        Device().go(COPY, None, None, "adresses")
    assert "did you mean 'addresses'?" in str(caught.value)
