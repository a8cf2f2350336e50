"""What launches are predicted to take less without some of their traffic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.timing.inputs import MemoryTraffic

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def profile() -> ge.Profile:
    n = 1 << 20
    device = ge.Device()
    kernel = ge.parse((ROOT / "examples/kernels/saxpy.ptx").read_text(), path="saxpy.ptx")["saxpy"]
    x, y = device.zeros(n, np.float32), device.zeros(n, np.float32)
    return device.launch(kernel, n // 256, 256, [np.int32(n), np.float32(2), x, y])


def test_less_traffic_takes_less_time(profile: ge.Profile) -> None:
    stored = 4 << 20
    now = ge.estimate(profile, "h100-sxm")
    whole = ge.saving_us(profile, "h100-sxm", stored=stored)
    assert now.limiter == "dram"
    # a third of what moves is gone, and with it a third of the time of memory, of which latency hides a part
    third = now.bounds["dram"] / 3
    assert third / 2 < whole <= third
    half = ge.saving_us(profile, "h100-sxm", stored=stored // 2)
    assert 0 < half < whole
    assert ge.saving_us(profile, "h100-sxm", stored=10 * stored) == whole
    assert ge.saving_us(profile, "h100-sxm") == 0
    both = ge.add_profiles([profile, profile])
    assert ge.saving_us(both, "h100-sxm", stored=2 * stored) == pytest.approx(2 * whole)
    assert ge.saving_us(profile, "h100-sxm", loaded=2 * stored) > whole


def test_shares_of_traffic() -> None:
    traffic = MemoryTraffic(
        load_requests=2, load_sectors=8, store_sectors=4, read_footprint=256, atomic_sectors=3
    )
    assert traffic.scaled(0.5, 0.25) == MemoryTraffic(
        load_requests=1, load_sectors=4, store_sectors=1, read_footprint=128, atomic_sectors=3
    )
    assert traffic.scaled(1, 1) == traffic
