"""What launches of a program find in memory, kept to run them again when the program has gone on."""

from __future__ import annotations

import ctypes
import sys

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.device import first_inputs
from gpuperf_engine.device.first_inputs import FirstInputs, ReachedInputs
from tests.support import head

#: y[i] += more
ADD = head("7.0", "sm_80") + (
    ".global .align 4 .u32 more = 1;\n"
    ".visible .entry k(.param .u64 y)\n{\n.reg .u64 %a; .reg .u32 %t, %v, %m;\n"
    "ld.param.u64 %a, [y]; mov.u32 %t, %tid.x; mad.wide.u32 %a, %t, 4, %a;\n"
    "ld.global.u32 %v, [%a]; ld.global.u32 %m, [more]; add.u32 %v, %v, %m; st.global.u32 [%a], %v; ret;\n}\n"
)
#: out[0] = **p
FOLLOW = head("7.0", "sm_80") + (
    ".visible .entry k(.param .u64 out, .param .u64 p)\n{\n.reg .u64 %a, %b; .reg .u32 %v;\n"
    "ld.param.u64 %a, [p]; ld.param.u64 %b, [out]; ld.global.u64 %a, [%a]; ld.global.u32 %v, [%a];\n"
    "st.global.u32 [%b], %v; ret;\n}\n"
)


def program_device() -> ge.Device:
    device = ge.Device(history=0)
    device.first_inputs = FirstInputs()
    return device


def inputs_of(profile: ge.Profile) -> ReachedInputs | None:
    kept = profile.records[0].plan.inputs
    assert kept is None or isinstance(kept, ReachedInputs)
    return kept


def held(inputs: ReachedInputs, address: int) -> np.ndarray:
    (row,) = (row for row in inputs.arrays if row.allocation.address == address)
    return row.contents.view(np.uint32)


def test_a_launch_runs_again_when_its_memory_is_freed() -> None:
    device, kernel = program_device(), ge.parse(ADD)["k"]
    beside, y = device.array(np.full(32, 5, np.uint32)), device.array(np.full(32, 7, np.uint32))
    more = device.symbol(kernel, "more")
    profile = device.launch(kernel, 1, 32, [y])
    inputs = inputs_of(profile)
    assert inputs is not None
    # what the launch cannot reach is not kept
    assert {row.allocation.address for row in inputs.arrays} == {y.address, more.address}
    assert beside.address not in {row.allocation.address for row in inputs.arrays}
    address = y.address
    more.copy_from(np.array([9], np.uint32))
    device.free(y)
    (record,) = profile.records
    arrays = inputs.arrays_after(record.program, record.plan, record.plan.parameters)
    assert [array.view(np.uint32).tolist() for array in arrays if array.nbytes == 128] == [[8] * 32]
    assert held(inputs, address).tolist() == [7] * 32
    observation, first = inputs.run(record.program, record.plan, record.plan.parameters)
    assert (first, observation.block_warps.tolist()) == (
        inputs.run(record.program, record.plan, record.plan.parameters)[1],
        record.observation.block_warps.tolist(),
    )


def test_what_pointers_in_memory_reach_is_kept() -> None:
    device = program_device()
    value, out = device.array(np.array([41], np.uint32)), device.zeros(1, np.uint32)
    pointer = device.array(np.array([value.address], np.uint64))
    profile = device.launch(ge.parse(FOLLOW)["k"], 1, 1, [out, pointer])
    inputs = inputs_of(profile)
    assert inputs is not None
    assert held(inputs, value.address).tolist() == [41]
    (record,) = profile.records
    arrays = inputs.arrays_after(record.program, record.plan, record.plan.parameters)
    assert 41 in [int(array.view(np.uint32)[0]) for array in arrays if array.nbytes == 4]


def test_launches_that_find_the_same_have_the_same_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_inputs, "MOST_SMALL_KEPT", 2)
    device, kernel = program_device(), ge.parse(ADD)["k"]
    y = device.zeros(32, np.uint32)
    first, second, third = (inputs_of(device.launch(kernel, 1, 32, [y])) for _ in range(3))
    assert first is not None and second is not None
    assert [held(item, y.address)[0] for item in (first, second)] == [0, 1]
    assert first is not second
    assert third is None  # a third state, where two are kept
    y.copy_from(np.ones(32, np.uint32))
    assert inputs_of(device.launch(kernel, 1, 32, [y])) is second
    # another shape is another case
    assert inputs_of(device.launch(kernel, 1, 16, [y])) is not None
    monkeypatch.setattr(first_inputs, "LOOKED_AT_BYTES", 0)
    y.copy_from(np.ones(32, np.uint32))
    assert inputs_of(device.launch(kernel, 1, 32, [y])) is None


def test_no_more_is_kept_than_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_inputs, "KEPT_BYTES", 1000)
    device, kernel = program_device(), ge.parse(ADD)["k"]
    y = device.array(np.zeros(200, np.uint32))
    other = device.array(np.zeros(200, np.uint32))
    large = device.array(np.zeros(300, np.uint32))
    assert inputs_of(device.launch(kernel, 1, 16, [large])) is None
    first = inputs_of(device.launch(kernel, 1, 32, [y]))  # 800 bytes, and 4 of ``more``
    assert first is not None
    assert inputs_of(device.launch(kernel, 1, 32, [other])) is None
    y.copy_from(np.zeros(200, np.uint32))
    assert inputs_of(device.launch(kernel, 1, 32, [y])) is first


def test_what_was_never_written_is_kept_as_such() -> None:
    device, kernel = program_device(), ge.parse(ADD)["k"]
    y = device.empty(32, np.uint32)
    inputs = inputs_of(device.launch(kernel, 1, 32, [y]))
    assert inputs is not None and held(inputs, y.address).size == 0
    assert inputs.memory.shadow_of(inputs.memory.resolve(y.address)).sum() == 0  # type: ignore[arg-type]
    # now it is written
    assert inputs_of(device.launch(kernel, 1, 32, [y])) is not inputs


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mapping needs Linux")
def test_memory_of_the_host_is_not_kept() -> None:
    device = ge.Device(mapped=True, history=0, memory_bytes=1 << 24)
    device.first_inputs = FirstInputs()
    mine = np.zeros(32, np.uint32)
    kernel = ge.parse(ADD)["k"]
    assert inputs_of(device.launch(kernel, 1, 32, [device.adopt(mine)])) is None
    own = device.allocate(128)
    ctypes.memset(own, 0, 128)
    device.note_written(own, 128)
    assert inputs_of(device.launch(kernel, 1, 32, own.to_bytes(8, "little"))) is not None


def test_of_large_launches_fewer_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_inputs, "MOST_KEPT", 1)
    monkeypatch.setattr(first_inputs, "SMALL_THREADS", 32)
    for threads, kept in ((32, 3), (64, 1)):
        device, kernel = program_device(), ge.parse(ADD)["k"]
        y = device.zeros(64, np.uint32)
        found = [inputs_of(device.launch(kernel, 1, threads, [y])) for _ in range(3)]
        assert [item is not None for item in found] == [number < kept for number in range(3)]
