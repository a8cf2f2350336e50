"""The sectors that loads read from L2: random replacement, CTAs that share L1, and launches whose sectors follow from arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.sass.run.writer import NotRun
from gpuperf_engine.sass.sm import reads
from gpuperf_engine.sass.sm.asynchronous import Copies
from gpuperf_engine.sass.sm.classes import Classes
from gpuperf_engine.sass.sm.operations import Operations
from gpuperf_engine.sass.sm.reads import ctas_of_sms
from gpuperf_engine.sass.sm.simulate import Ran, run_sms
from gpuperf_engine.timing.estimate import Predictor
from tests.sass.sm.machines import access, run
from tests.support import needs_assembler

HEAD = """.version 6.4
.target sm_75
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b)
{
.reg .b32 %r<12>; .reg .b64 %q<12>; .reg .f32 %f<8>; .reg .pred %p<4>;
ld.param.u64 %q1, [a]; ld.param.u64 %q2, [b];
mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r1, %r2, %r3;
mul.wide.u32 %q3, %r4, 4; mul.wide.u32 %q4, %r3, 4;
add.u64 %q5, %q1, %q3; add.u64 %q6, %q2, %q3; add.u64 %q7, %q1, %q4;
"""
COPY = HEAD + "ld.global.f32 %f1, [%q5]; st.global.f32 [%q6], %f1; ret; }"
TABLE = HEAD + "ld.global.f32 %f1, [%q7]; st.global.f32 [%q6], %f1; ret; }"
SHARED = (
    HEAD
    + "ld.global.f32 %f1, [%q5]; ld.global.f32 %f2, [%q5+4096]; add.f32 %f1, %f1, %f2; st.global.f32 [%q6], %f1; ret; }"
)


def misses(lines: int, room: int, passes: int, seed: int) -> int:
    """How often a cache of ``room`` lines that replaces a random one misses when ``lines`` lines are read in turn."""
    draws, cache = np.random.default_rng(seed), []
    missed = 0
    for line in list(range(lines)) * passes:
        if line in cache:
            continue
        missed += 1
        if len(cache) < room:
            cache.append(line)
        else:
            cache[int(draws.integers(room))] = line
    return missed


def test_a_random_line_is_evicted() -> None:
    lines, room, passes = 48, 32, 6
    code = ["LDG.E R0, [R2]"] * lines * passes + ["EXIT"]
    words = [word for _ in range(passes) for line in range(lines) for word in access(1, {line: 15})]
    seen = run(code, [words], lines=lines, l1_lines=room, drawn=True, together=True)
    expected = np.array([misses(lines, room, passes, seed) for seed in range(200)])
    assert abs(int(seen.reads.sum()) / 4 - expected.mean()) < 4 * expected.std()
    # the least recently used line is always the next one that is read
    oldest = run(code, [words], lines=lines, l1_lines=room, together=True)
    assert int(oldest.reads.sum()) == 4 * lines * passes
    assert expected.max() < lines * passes


def test_what_fits_is_read_once_by_all_ctas() -> None:
    code = ["LDG.E R0, [R2]", "LDG.E R1, [R2]", "EXIT"]
    words = [*access(1, {0: 3}), *access(1, {1: 15})]
    seen = run(code, [words], lines=2, ctas=5, resident=2, drawn=True, together=True)
    assert seen.reads.tolist() == [6, 0, 0, 0, 0]
    assert len(run(code, [words], lines=2, ctas=5, resident=2).reads) == 0


def test_stores_need_room_in_l1() -> None:
    code = ["LDG.E R0, [R2]", "STG.E [R2], R4", "LDG.E R1, [R2]", "EXIT"]
    words = [*access(1, {0: 1}), *access(1, {1: 15}), *access(1, {0: 1})]
    for together, sectors in ((True, 2), (False, 1)):
        seen = run(code, [words], lines=2, l1_lines=1, drawn=True, together=together)
        assert seen.l2_sectors - 4 == sectors


def test_each_cta_runs_on_one_sm() -> None:
    whole = ctas_of_sms(1000, 8, 4, 1000)
    assert sorted(np.concatenate(whole).tolist()) == list(range(1000))
    for sm, ctas in enumerate(whole):
        assert ctas[:4].tolist() == [sm, sm + 8, sm + 16, sm + 24]
        assert (np.diff(ctas) > 0).all()
    assert [ctas.tolist() for ctas in ctas_of_sms(3, 8, 2, 100)] == [[0], [1], [2]]


def test_a_part_of_a_long_launch_is_taken_from_the_middle() -> None:
    (part,) = ctas_of_sms(1_000_000, 68, 16, 128)
    assert len(part) == 128
    assert (np.diff(part) > 0).all()
    # the mean of 127 steps, whose variance is that of a Poisson variable of mean 67
    assert abs(np.diff(part).mean() - 68) < 4 * (67 / 127) ** 0.5
    assert abs(part.mean() - 500_000) < 128 * 68
    with pytest.raises(NotRun, match="too much"):
        ctas_of_sms(1_000_000, 68, 16, 47)


def read(text: str, grid: int, elements: int, machine: str = "t4") -> int | None:
    device = ge.Device(races="off", memory_bytes=1 << 28)
    arrays = [device.zeros(elements, np.float32) for _ in range(2)]
    profile = device.launch(ge.parse(text, path="k.ptx")["k"], grid, 256, arrays)
    found = ge.estimate(profile, machine, model="simulation").l2_read_sectors
    twice = (
        Predictor(machine, model="simulation").estimate(ge.add_profiles([profile, profile])).l2_read_sectors
    )
    assert found is not None
    assert twice == 2 * found
    return found


@needs_assembler
@pytest.mark.parametrize("grid", [5, 68, 1000, 20_000])
def test_sectors_that_are_touched_once_are_read_once(grid: int) -> None:
    assert read(COPY, grid, 256 * grid) == 32 * grid


@needs_assembler
def test_a_table_that_fits_is_read_once_by_each_sm() -> None:
    assert read(TABLE, 40 * 4, 256 * 40 * 4) == 32 * 40
    assert read(TABLE, 60, 256 * 60) == 32 * 40
    assert read(TABLE, 24, 256 * 24) == 32 * 24


@needs_assembler
def test_what_ctas_share_is_read_again_on_another_sm() -> None:
    """A CTA and the one that is 4 further on read 1 KiB both; 1 of 40 pairs is on one SM, so few are."""
    grid = 20_000
    found = read(SHARED, grid, 256 * (grid + 4))
    assert found is not None
    assert 0.95 * 64 * grid < found <= 64 * grid


@needs_assembler
def test_what_a_gpu_reads_besides_counts_too() -> None:
    device = ge.Device(races="off", memory_bytes=1 << 28)
    arrays = [device.zeros(256 * 5000, np.float32) for _ in range(2)]
    found = ge.estimate(
        device.launch(ge.parse(COPY, path="k.ptx")["k"], 5000, 256, arrays), "rtx-2080-ti", model="simulation"
    )
    assert found.l2_read_sectors == pytest.approx(32 * 5000 + found.cycles / 128, abs=1)


MBARRIERS = """.version 7.8
.target sm_80
.address_size 64
.shared .align 8 .b64 phases[3];
.visible .entry k(.param .u64 a)
{
.reg .b32 %t, %w; .reg .b64 %p, %s; .reg .pred %q;
ld.param.u64 %p, [a]; mov.u32 %t, %tid.x; mul.wide.u32 %s, %t, 4; add.u64 %p, %p, %s; mov.u32 %w, phases;
setp.ne.u32 %q, %t, 0; @%q bra READY;
mbarrier.init.shared.b64 [%w], 64; mbarrier.init.shared.b64 [%w+8], 64; mbarrier.init.shared.b64 [%w+16], 64;
READY: bar.sync 0;
mbarrier.arrive.shared.b64 %s, [%w]; mbarrier.arrive.shared.b64 %s, [%w+8]; mbarrier.arrive.shared.b64 %s, [%w+16];
ld.global.b32 %t, [%p]; st.global.b32 [%p], %t; ret;
}
"""


@needs_assembler
def test_there_is_room_for_the_mbarriers_of_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrivals at an mbarrier without room would overwrite other memory."""
    monkeypatch.setenv("GPUPERF_CACHE", "off")
    given = []

    def noting(operations: Operations, classes: Classes, copies: Copies, *more: Any) -> Ran:
        given.append(copies.mbarriers)
        return run_sms(operations, classes, copies, *more)

    monkeypatch.setattr(reads, "run_sms", noting)
    device = ge.Device(races="off")
    array = device.zeros(64 * 64)
    profile = device.launch(ge.parse(MBARRIERS, path="k.ptx")["k"], 64, 64, [array])
    found = ge.estimate(profile, "h100-sxm", model="simulation")
    assert found.l2_read_sectors == 64 * 64 * 4 // 32
    assert given and set(given) == {3}
