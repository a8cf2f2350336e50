"""What memory held before launches, kept to run them again."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.device import inputs
from tests.support import head

#: y[i] += 1; x is read by a load that leads nowhere for more than 32 threads
PTX = head("7.0", "sm_80") + (
    ".visible .entry k(.param .u64 y)\n{\n.reg .u64 %a; .reg .u32 %t, %v;\n"
    "ld.param.u64 %a, [y]; mov.u32 %t, %tid.x; mad.wide.u32 %a, %t, 4, %a;\n"
    "ld.global.u32 %v, [%a]; add.u32 %v, %v, 1; st.global.u32 [%a], %v; ret;\n}\n"
)


@pytest.mark.parametrize("observe", [{"inputs"}, {"inputs", "values"}])
def test_inputs_are_what_memory_held_whoever_wrote_it(observe: set[str]) -> None:
    device = ge.Device({"memory", *observe})
    kernel = ge.parse(PTX)["k"]
    other, y = device.array(np.full(32, 7, np.uint32)), device.zeros(32, np.uint32)

    def launched(threads: int = 32) -> list[np.ndarray]:
        profile = device.launch(kernel, 1, threads, [y])
        kept = profile.records[0].plan.inputs
        assert kept is not None
        held = {item: contents for item, _, contents, _ in kept.saved.contents}
        return [held[array.allocation].view(np.uint32).copy() for array in (other, y)]

    def expected(first: int, second: int) -> list[np.ndarray]:
        return [np.full(32, value, np.uint32) for value in (first, second)]

    np.testing.assert_array_equal(launched(), expected(7, 0))
    np.testing.assert_array_equal(launched(), expected(7, 1))
    other.copy_from(np.full(32, 9, np.uint32))
    np.testing.assert_array_equal(launched(), expected(9, 2))
    # the first warp has stored when the second one faults
    with pytest.raises(ge.MemoryFault):
        device.launch(kernel, 1, 128, [y])
    before = y.numpy()
    assert before[0] > 2
    np.testing.assert_array_equal(launched(), [np.full(32, 9, np.uint32), before])


def test_arrays_that_nobody_wrote_to_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    device = ge.Device({"memory", "values", "inputs"})
    kernel = ge.parse(PTX)["k"]
    device.array(np.zeros(1 << 16, np.uint8))
    y = device.zeros(32, np.uint32)
    device.launch(kernel, 1, 32, [y])
    compared: list[int] = []

    def equal(old: np.ndarray, new: np.ndarray) -> bool:
        compared.append(old.size)
        return bool(np.array_equal(old, new))

    monkeypatch.setattr(inputs, "np", type("np", (), {"array_equal": staticmethod(equal), "uint8": np.uint8}))
    device.launch(kernel, 1, 32, [y])
    assert compared and max(compared) <= 128


def test_what_is_kept_of_arrays_that_were_written_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their bytes count, and nothing else of them; what they held comes back when the launch is run again."""
    monkeypatch.setattr(inputs, "KEPT_BYTES", 300)
    device = ge.Device({"memory", "inputs"})
    kernel = ge.parse(PTX)["k"]
    device.array(np.full(32, 7, np.uint32))
    y = device.array(np.full(32, 4, np.uint32))
    record = device.launch(kernel, 1, 32, [y]).records[0]
    kept = record.plan.inputs
    assert kept is not None
    for _ in range(2):
        after = kept.arrays_after(record.program, record.plan, record.plan.parameters)
        assert sorted({int(item.view(np.uint32)[0]) for item in after if item.size == 128}) == [5, 7]
        np.testing.assert_array_equal(y.numpy(), np.full(32, 5, np.uint32))
    assert device.launch(kernel, 1, 32, [y]).records[0].plan.inputs is None
