"""Predicted time of kernels with textures and surfaces, worked out by hand on the toy machine with texture units."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.errors import Unsupported
from gpuperf_engine.machines.machine import Machine, load_machine
from gpuperf_engine.profile.images import NOTE
from gpuperf_engine.timing.launch.adapt import timing_input
from tests.timing.counted import estimate

WIDTH, HEIGHT = 64, 32


@pytest.fixture
def machine(toy: Machine) -> Machine:
    """Four texture units in an SM: a warp in 8 cycles. A hit takes 80."""
    lanes = MappingProxyType({**toy.lanes, "tex": 1.0})
    return replace(toy, lanes=lanes, latencies=MappingProxyType({**toy.latencies, "tex": 80}))


def kernel(fetches: str) -> ge.Kernel:
    text = f"""
    .version 7.0
    .target sm_70
    .address_size 64
    .visible .entry k(.param .u64 image)
    {{
    .reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %rd<2>; .reg .f32 %f<9>;
    ld.param.u64 %rd1, [image];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    {fetches}
    ret;
    }}"""
    return ge.parse(text, path="k.ptx")["k"]


FETCH = "tex.2d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd1, {%r1, %r2}];"


def run(text: str, *, surface: bool = False, grid: int = HEIGHT) -> ge.Profile:
    device = ge.Device()
    array = device.array(np.ones((HEIGHT, WIDTH), np.float32))
    image = device.surface(array) if surface else device.texture(array)
    return device.launch(kernel(text), grid, WIDTH, [image])


def test_every_texel_is_read_once(machine: Machine) -> None:
    # 32 rows of 64 texels of 4 bytes, one fetch each: 8 KiB, and each fetch waits for memory.
    profile = run(FETCH)
    given = timing_input(profile.records[0], machine, profile.resources)
    assert (given.memory.read_footprint, given.memory.load_sectors, given.memory.texture_misses) == (
        8192,
        256,
        1,
    )
    assert given.notes == (NOTE,)
    found = estimate(profile, machine)
    # 2 SMs: 16 CTAs of 2 warps on each, 8 cycles a warp.
    assert found.bounds["tex"] == pytest.approx(16 * 2 * 8 / 1000)
    assert found.bounds["dram"] == pytest.approx(8192 / 100 / 1000)
    # Turnaround 100, the fetch 80, and 400 − 40 more than a hit in L1 takes. The return, which waits for nothing, is within.
    assert found.bounds["latency"] == pytest.approx((100 + 80 + 360) / 1000 * found.waves, rel=0.01)
    assert NOTE in found.notes


def test_texels_that_were_read_stay_in_the_texture_cache(machine: Machine) -> None:
    # Four fetches of the same texel: a quarter of them waits.
    memory = timing_input((four := run(4 * FETCH)).records[0], machine, four.resources).memory
    assert (memory.read_footprint, memory.texture_misses) == (8192, 0.25)


def test_guarded_fetches_count_the_lanes_that_make_them(machine: Machine) -> None:
    # 8 of 64 threads: 32 rows of 8 texels.
    profile = run(f"setp.lt.u32 %p1, %r1, 8;\n@%p1 {FETCH}")
    memory = timing_input(profile.records[0], machine, profile.resources).memory
    assert (memory.read_footprint, memory.texture_misses) == (32 * 8 * 4, 1)


def test_stores_to_surfaces_are_written(machine: Machine) -> None:
    store = "shl.b32 %r3, %r1, 2;\nsust.b.2d.b32.trap [%rd1, {%r3, %r2}], %r1;"
    profile = run(store, surface=True)
    memory = timing_input(profile.records[0], machine, profile.resources).memory
    assert (memory.write_footprint, memory.store_sectors, memory.read_footprint) == (8192, 256, 0)
    assert estimate(profile, machine).bounds["dram"] == pytest.approx(8192 / 100 / 1000)


def test_no_more_is_read_than_the_image_holds(machine: Machine) -> None:
    # 64 CTAs: the upper 32 read beyond the last row, where nothing is.
    profile = run(FETCH, grid=2 * HEIGHT)
    memory = timing_input(profile.records[0], machine, profile.resources).memory
    assert (memory.read_footprint, memory.texture_misses) == (8192, 0.5)


def test_launches_that_differ_in_their_image_are_predicted_apart(machine: Machine) -> None:
    device = ge.Device()
    images = [device.texture(device.array(np.ones((rows, WIDTH), np.float32))) for rows in (1, HEIGHT)]
    profile = None
    for image in images:
        one = device.launch(kernel(FETCH), HEIGHT, WIDTH, [image])
        assert estimate(one, machine).bounds["dram"] == pytest.approx((256, 8192)[profile is not None] / 1e5)
        profile = one


def test_a_machine_without_texture_units_says_so(toy: Machine) -> None:
    with pytest.raises(Unsupported, match="does not describe the unit 'tex'"):
        estimate(run(FETCH), toy)


def test_every_shipped_machine_has_texture_units() -> None:
    """Texture fill rates as data sheets state them, billions of texels a second."""
    for identifier, fill in (("rtx-4090", 1290), ("rtx-3090", 556), ("rtx-5090", 1636.8), ("gtx-1050", 58.2)):
        found = load_machine(identifier)
        rate = found.lanes["tex"] * found.sub_partitions * found.sm_count * found.clock_mhz / 1e3
        assert rate == pytest.approx(fill, rel=0.01), identifier
