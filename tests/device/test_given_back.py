"""The memory of a device is given back as soon as nobody needs it, without a collection of garbage."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.support import head

KERNEL = (
    head("8.0", "sm_80")
    + """.global .u32 table[4] = {1, 2, 3, 4};
.visible .entry k(.param .u64 out) {
    .reg .b64 %a; .reg .b32 %v;
    ld.param.u64 %a, [out];
    ld.global.u32 %v, [table];
    st.global.u32 [%a], %v;
    ret;
}"""
)


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    "observe", [{"memory"}, {"memory", "values"}, {"memory", "values", "accesses", "footprint"}]
)
def test_profiles_and_modules_do_not_keep_it(observe: set[str]) -> None:
    module = ge.parse(KERNEL)
    device = ge.Device(observe=observe, memory_bytes=1 << 20)
    array = device.array(np.arange(64, dtype=np.uint32))
    array[3:5].fill(3)
    device.texture(array)
    device.symbol(module["k"], "table").fill(3)
    profile = device.launch(module["k"], 1, 32, [array])
    assert array.numpy()[0] == 3
    if "values" in observe:
        ge.flow_graph(device.program)
    memory = weakref.ref(device.memory)
    del device
    assert memory() is not None
    assert array.numpy()[3] == 3  # the array keeps what it lies in
    del array
    assert memory() is None
    assert profile.opcodes["st.global.u32"] == 32


def test_arrays_of_the_record_are_arrays() -> None:
    device = ge.Device(memory_bytes=1 << 20)
    array = device.array(np.arange(64, dtype=np.uint32))
    (recorded,) = device.arrays
    device.launch(ge.parse(KERNEL)["k"], 1, 32, [recorded])
    assert array.numpy().tolist() == recorded.numpy().tolist() == [1, *range(1, 64)]
