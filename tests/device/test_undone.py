"""Launches that only count: memory is afterwards what it was before, and the recorded program can do without them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.engine.running import GLOBAL_THREAD, launch

STORE = f"""
    {GLOBAL_THREAD}
    ld.param.u64 %rd0, [data];
    mul.wide.u32 %rd1, %r19, 4;
    add.u64 %rd0, %rd0, %rd1;
    st.global.u32 [%rd0], %r19;
    ret;"""
READ = STORE.replace("st.global.u32 [%rd0], %r19;", "ld.global.u32 %r1, [%rd0];")


def run(backend: str, device: ge.Device, body: str, array: Any, **options: Any) -> ge.Profile:
    return launch(backend, body, parameters=".param .u64 data", args=[array], device=device, **options)


@pytest.mark.parametrize("observe", [{"memory"}, {"memory", "values"}], ids=["memory", "values"])
def test_contents_and_what_was_written_are_as_before(backend: str, observe: set[str]) -> None:
    device = ge.Device(observe, backend=backend, memory_bytes=1 << 20)
    full, half, none = (
        device.array(np.full(32, 9, np.uint32)),
        device.empty(32, np.uint32),
        device.empty(32, np.uint32),
    )
    half[:16].fill(9)
    counted = [run(backend, device, STORE, array, keep=False) for array in (full, half, none)]
    assert {profile.thread_instructions for profile in counted} == {counted[0].thread_instructions}
    assert full.numpy().tolist() == [9] * 32
    assert half.numpy().tolist() == [9] * 16 + [0] * 16
    assert not any("uninitialised" in note for note in run(backend, device, READ, full).notes)
    for array in (half, none):
        assert any("uninitialised" in note for note in run(backend, device, READ, array).notes)
    run(backend, device, STORE, none)
    assert none.numpy().tolist() == list(range(32))


def test_a_launch_that_fails_leaves_nothing_either(backend: str) -> None:
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    array = device.array(np.full(32, 9, np.uint32))
    with pytest.raises(ge.MemoryFault):
        run(backend, device, STORE, array, grid=1, block=64, keep=False)
    assert array.numpy().tolist() == [9] * 32


def test_the_program_without_a_launch() -> None:
    device = ge.Device({"memory", "values"}, memory_bytes=1 << 20)
    array = device.array(np.arange(32, dtype=np.uint32))
    run("llvm", device, STORE, array)
    whole, without = device.program, device.program_without([device.events[-1]])
    by_launch = [finding.rule for finding in ge.find_patterns(whole) if finding.kernel]
    assert "redundant-values" in by_launch
    assert not any(finding.kernel for finding in ge.find_patterns(without))
    assert [event.kind for event in device.events] == ["copy-in", "launch"]
