"""Textures and surfaces in the simulation of an SM, by arithmetic: four lanes a clock, and the path through L1."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.profile.images import NOTE
from gpuperf_engine.sass.listing import Decoded
from gpuperf_engine.sass.registers import accesses_of
from tests.sass.sm.machines import TOY, Images, access, run, waited
from tests.support import needs_assembler

#: Four texture units, a hit takes 80 clocks; 128 bytes pass L1 in a clock, L2 moves two sectors a clock and DRAM a quarter of one.
SM = replace(TOY, lanes={**TOY.lanes, "tex": 1}, latencies={**TOY.latencies, "tex": 80}, turnaround=0)
FETCH = "TEX.SCR.LL RZ, R{}, R2, R4, 0x0, 0x58, 2D, 0x1"
COUNT = 64


def fetched(lanes: int = 32, quads: int | None = None) -> list[int]:
    """What a stream has of a fetch of the first ``lanes`` lanes, or of lanes in so many quads."""
    return [(-(-lanes // 4) if quads is None else quads) | lanes << 8]


def clocks(text: list[str], words: list[int], warps: int = 1, images: Images | None = None) -> int:
    return run([*text, "EXIT"], [words] * warps, numbers=SM, images=images or Images()).cycles


def fetches(count: int) -> list[str]:
    return [FETCH.format(8 + number % 64) for number in range(count)]


@pytest.mark.parametrize(("lanes", "quads", "each"), [(32, None, 8), (16, None, 4), (1, None, 1), (8, 8, 8)])
@pytest.mark.parametrize("warps", [1, 4])
def test_a_quad_a_clock(lanes: int, quads: int | None, each: int, warps: int) -> None:
    """Warps of all sub-partitions share the units; lanes of a quad that are off cost as much as active ones. A warp has 64 registers
    for results, each of which is free after a latency of 80 clocks."""
    took = [clocks(fetches(count), fetched(lanes, quads) * count, warps) for count in (COUNT, 2 * COUNT)]
    assert took[1] - took[0] == pytest.approx(max(each * warps * COUNT, 80), rel=0.05)


@pytest.mark.parametrize(
    ("images", "waits", "queue"),
    [
        (Images(), 80, 0),
        # eight sectors a fetch, which pass L2 in four clocks and DRAM in 32, unless the SM is ahead of others
        (Images(fetched=0.25, image_share=0.0), 80 + 200 - 30, 4),
        (Images(fetched=0.25), 80 + 500 - 30, 32),
        (Images(stored=0.25), 80, 0),
    ],
)
def test_the_latency_of_a_fetch(images: Images, waits: int, queue: int) -> None:
    """A chain: each fetch takes eight clocks in the units, and its latency."""
    chain = ["TEX.LL RZ, R2, R2, R4, UR4, 0x0, 2D, 0x1"] * COUNT
    took = [clocks(chain * times, fetched() * COUNT * times, images=images) for times in (1, 2)]
    assert COUNT * (8 + waits) <= took[1] - took[0] <= COUNT * (8 + waits + queue)


def test_texels_share_the_path_through_l1_with_loads() -> None:
    """A fetch of 32 texels of 16 bytes occupies it for four wavefronts, a load of shared memory here for 8."""
    load, bank = "LDS R6, [R7]", access(8)
    text = [line for number in range(COUNT) for line in (FETCH.format(8 + number % 64), load)]
    words = [word for _ in range(COUNT) for word in (*fetched(), *bank)]
    assert clocks(text, words, 4, Images(texel=16)) == pytest.approx(4 * COUNT * (4 + 8), rel=0.05)
    assert clocks(text, words, 4, Images(texel=4)) == pytest.approx(4 * COUNT * (1 + 8), rel=0.05)


def test_fetches_and_stores_move_their_share_of_sectors() -> None:
    """Half a sector for each lane."""
    store = ["SUST.D.BA.2D.STRONG.SM.TRAP [R2], R4, 0x0, 0x5a"] * COUNT
    for text, images in ((fetches(COUNT), Images(fetched=0.5)), (store, Images(stored=0.5))):
        seen = run([*text, "EXIT"], [fetched() * COUNT], numbers=SM, images=images)
        assert (seen.l2_sectors, seen.dram_sectors) == (16 * COUNT, 16 * COUNT)
        assert seen.cycles >= 16 * COUNT * 4
        near = replace(images, image_share=0.0)
        seen = run([*text, "EXIT"], [fetched() * COUNT], numbers=SM, images=near)
        assert (seen.l2_sectors, seen.dram_sectors) == (16 * COUNT, 0)
        assert seen.image_clocks == 8 * COUNT


def test_the_unit_is_named_where_warps_wait_for_it() -> None:
    text = [*fetches(8), "EXIT"]
    seen = run(text, [fetched() * 8] * 4, numbers=SM)
    causes = {cause for _, cause, _ in waited(text, seen, SM)}
    assert "tex_throttle" in causes
    chain = ["TEX.LL RZ, R2, R2, R4, UR4, 0x0, 2D, 0x1"] * 2 + ["EXIT"]
    seen = run(chain, [fetched() * 2], numbers=SM)
    assert (1, "long_scoreboard", 0) in waited(chain, seen, SM)


@pytest.mark.parametrize(
    ("text", "reads", "writes"),
    [
        ("TEX.SCR.LL RZ, R9, R8, R23, 0x0, 0x58, 2D, 0x1", (8, 9, 23), (9,)),
        ("TEX.SCR.LL R6, R4, R10, R23, 0x0, 0x58, 2D", (10, 11, 23), (6, 7, 4, 5)),
        ("TEX.SCR.LL R6, R4, R10, R23, 0x0, 0x58, 2D, 0x7", (10, 11, 23), (6, 4, 5)),
        ("TEX.LL RZ, R8, R8, R25, UR4, 0x0, 3D, 0x1", (8, 9, 10, 25, 260), (8,)),
        ("TLD.SCR.LZ RZ, R13, R8, 0x0, 0x58, 1D, 0x1", (8,), (13,)),
        ("SULD.D.BA.2D.STRONG.SM.TRAP R16, [R2], 0x0, 0x5a", (2, 3), (16,)),
        ("SULD.D.BA.2D.128.STRONG.SM.TRAP R16, [R2], 0x0, 0x5a", (2, 3), (16, 17, 18, 19)),
        ("SUST.D.BA.2D.64.STRONG.SM.TRAP [R2], R12, 0x0, 0x5a", (2, 3, 12, 13), ()),
    ],
)
def test_registers_of_images(text: str, reads: tuple[int, ...], writes: tuple[int, ...]) -> None:
    """As ``ptxas`` 13.0 assembles fetches of one, three and four components, and of one, two and three coordinates."""
    found = accesses_of(Decoded("", "", 0, text, 0, 0))
    assert (set(found.reads), found.writes) == (set(reads), writes)


#: each thread of a row of texels fetches one and stores it
COPY = """.version 7.0
.target sm_70
.address_size 64
.visible .entry k(.param .u64 from, .param .u64 to, .param .u64 out)
{
.reg .b32 %r<5>; .reg .b64 %q<5>; .reg .f32 %f<5>; .reg .pred %p;
ld.param.u64 %q1, [from]; ld.param.u64 %q2, [to]; ld.param.u64 %q3, [out];
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; shl.b32 %r3, %r1, 2;
tex.2d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%q1, {%r1, %r2}];
MORE
sust.b.2d.b32.trap [%q2, {%r3, %r2}], {%r4};
ret;
}"""
WIDTH, HEIGHT = 256, 1024


def copied(more: str, machine: str) -> ge.Estimate:
    device = ge.Device(races="off")
    ones = np.ones((HEIGHT, WIDTH), np.float32)
    images = [device.texture(device.array(ones)), device.surface(device.array(ones)), device.zeros(4)]
    kernel = ge.parse(COPY.replace("MORE", more), path="k.ptx")["k"]
    return ge.estimate(device.launch(kernel, HEIGHT, WIDTH, images), machine)


@needs_assembler
@pytest.mark.parametrize("name", ["t4", "rtx-a6000", "h100-sxm", "rtx-5090"])
def test_a_copy_of_an_image_is_simulated(name: str) -> None:
    """Every texel is read and written once: DRAM moves twice 1 MiB; a warp is in the texture units for 8 clocks, twice."""
    found, machine = copied("mov.b32 %r4, %f1;", name), load_machine(name)
    assert found.model == "simulation" and NOTE in found.notes and found.l2_read_sectors is None
    moved = 2 * 4 * WIDTH * HEIGHT
    least, most = (
        moved / 1e3 / rate for rate in (machine.dram_sustained_one_way, machine.dram_sustained_mixed)
    )
    assert 0.99 * least <= found.bounds["dram"] <= 1.01 * most
    ctas = -(-HEIGHT // machine.sm_count)
    assert found.bounds["tex"] == pytest.approx(ctas * 8 * 2 * 8 / machine.clock_mhz, rel=0.01)
    assert found.time_us >= found.launch_us + max(found.bounds["dram"], found.bounds["tex"])


@needs_assembler
def test_fetched_texels_may_not_decide() -> None:
    turns = "L: add.u32 %r4, %r4, 1; st.global.u32 [%q3], %r4; setp.lt.u32 %p, %r4, 4; @%p bra L;"
    more = f"mov.b32 %r4, %f1; and.b32 %r4, %r4, 7; {turns}"
    found = copied(more, "rtx-a6000")
    assert found.model != "simulation"
    assert "what textures or surfaces hold" in found.notes[0]
