"""What launches are predicted to take less without some of their traffic, worked out by hand on the toy machine: a cycle is a
nanosecond, DRAM moves 100 bytes in it one way, 80 both ways, and the link to the host 10."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import Machine
from gpuperf_engine.timing.estimate import MODELS, Predictor
from gpuperf_engine.timing.launch.inputs import MemoryTraffic, TimingInput
from tests.support import head
from tests.timing.counted import estimate
from tests.timing.test_estimate import met, streaming

KIB = 1024
#: one CTA, whose warps load 1 KiB and store 64 KiB, 256 bytes a thread
STORING = MemoryTraffic(
    load_requests=8,
    load_sectors=32,
    store_requests=8,
    store_sectors=2048,
    read_footprint=KIB,
    write_footprint=64 * KIB,
    cta_read_sectors=32,
)


def storing() -> TimingInput:
    one = streaming(1)
    return TimingInput(
        one.grid, one.block, one.registers_per_thread, 0, one.warp_instructions, one.path, STORING
    )


def transfer(one_way: float, turned: float) -> float:
    """Cycles of so many KiB in one direction, and in both: of 1 KiB in and 64 out the lesser direction and three times as much, 4 KiB,
    move at the rate of both ways."""
    return KIB * (one_way / 100 + turned / 80)


@pytest.mark.parametrize(
    ("loads", "stores", "latency", "one_way", "turned"),
    [
        # 100 until the CTA has started, 400 until the load is there, 5 for the fma, 1 to issue the store
        (0, 0, 506, 61, 4),
        (0, 0.5, 506, 29, 4),
        (0, 1, 506, 1, 0),
        (0.5, 0, 506, 62.5, 2),
        # without its sectors the load, which stays, finds everything in L1, 40 cycles away
        (1, 0, 146, 64, 0),
    ],
)
def test_less_traffic_takes_less_time(
    toy: Machine, loads: float, stores: float, latency: float, one_way: float, turned: float
) -> None:
    saved = Predictor(toy).saving_us(storing(), loads=loads, stores=stores)
    less = met(506, transfer(61, 4)) - met(latency, transfer(one_way, turned))
    assert saved == pytest.approx(less / 1000)


def test_no_more_than_all_can_go(toy: Machine) -> None:
    predictor = Predictor(toy)
    assert predictor.saving_us(storing(), stores=7) == predictor.saving_us(storing(), stores=1) > 0
    assert predictor.saving_us(storing(), stores=-1) == 0


FILL = (
    head("8.0", "sm_80")
    + """.visible .entry fill(.param .u64 out, .param .u32 value) {
    .reg .b64 %a, %o; .reg .b32 %i, %v;
    ld.param.u64 %a, [out]; ld.param.u32 %v, [value];
    mov.u32 %i, %tid.x;
    mul.wide.u32 %o, %i, 4;
    add.u64 %a, %a, %o;
    st.global.u32 [%a], %v;
    ret;
}"""
)


def test_a_launch_that_changes_nothing_is_saved_whole(toy: Machine) -> None:
    """Of a call that is made several times each launch counts; launches that are alike are predicted once."""
    device = ge.Device(observe={"memory", "values"}, memory_bytes=1 << 20)
    out = device.zeros(256, np.uint32, name="out")
    profiles = {}
    for _ in range(3):
        profile = device.launch(ge.parse(FILL)["fill"], 1, 256, [out, 0])
        profiles[device.events[-1].number] = profile
    (finding,) = (item for item in ge.find_patterns(device.program) if item.rule == "redundant-values")
    assert [(gone.step, gone.whole) for gone in finding.traffic] == [(number, True) for number in profiles]
    one = estimate(profile, toy).time_us
    assert ge.saving_us(finding, profiles, toy) == pytest.approx(3 * one)
    del profiles[finding.steps[0]]
    assert ge.saving_us(finding, profiles, Predictor(toy, model=MODELS[0])) == pytest.approx(2 * one)
    assert ge.saving_us(finding, profiles, Predictor(toy)) == pytest.approx(
        2 * ge.estimate(profile, toy).time_us
    )


def test_copies_and_memsets_are_saved_at_the_rate_of_their_link(toy: Machine) -> None:
    """64 KiB at 10 bytes in a nanosecond from and to the host; read and written at 80 within the device, filled at 100."""
    size = 64 * KIB
    device = ge.Device(observe={"memory", "values"}, memory_bytes=1 << 20)
    values = np.random.default_rng(3).integers(0, 256, size, np.uint8)
    x, y = device.array(values, name="x"), device.empty(size, np.uint8, name="y")
    for _ in range(2):
        y.copy_from(x)
        x.numpy()
        x.copy_from(values)
    found = {item.call: item for item in ge.find_patterns(device.program) if item.rule == "redundant-values"}
    saved = {call: ge.saving_us(item, {}, toy) for call, item in found.items()}
    # the host has x before the first copy out
    assert {call: (item.waste, item.calls) for call, item in found.items()} == {
        "y.copy_from(x)": (size, 1),
        "x.numpy()": (2 * size, 2),
        "x.copy_from(values)": (2 * size, 2),
    }
    assert saved == pytest.approx(
        {
            "y.copy_from(x)": 2 * size / 80 / 1000,
            "x.numpy()": 2 * size / 10 / 1000,
            "x.copy_from(values)": 2 * size / 10 / 1000,
        }
    )
    assert Predictor(toy).copy_us("memset", size) == pytest.approx(size / 100 / 1000)
    unlinked = Predictor(replace(toy, host_bandwidth=None))
    assert unlinked.copy_us("copy-in", size) == unlinked.copy_us("copy-out", size) == 0


def test_shares_of_traffic() -> None:
    traffic = MemoryTraffic(
        load_requests=2, load_sectors=8, store_sectors=4, read_footprint=256, atomic_sectors=3
    )
    assert traffic.scaled(0.5, 0.25) == MemoryTraffic(
        load_requests=1, load_sectors=4, store_sectors=1, read_footprint=128, atomic_sectors=3
    )
    assert traffic.scaled(1, 1) == traffic
