"""Explanations of real, random, sliced and summed launches, and their limits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import SMALL, execute

import gpuperf_engine as ge
from gpuperf_engine.results import Cause, Explanation
from tests.engine.random_kernels import ACCUMULATORS, INPUTS, WORDS, Seeded, structured, tangled
from tests.engine.running import Engine
from tests.profile.explaining import BRANCH, NEST, START, THREAD, explained, kernel_of, trips

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_unreached_code_is_left_out() -> None:
    found = explained(f"setp.eq.u32 %p2, %r1, 99; @!%p2 ret; setp.lt.u32 %p1, %r0, 5; {BRANCH} {NEST}")
    assert found.branches == () and found.loops == ()
    assert {line.divergent for line in found.lines} == {0}


def test_hot_lines_are_the_hottest() -> None:
    found = explained(NEST, n=7)
    assert {line.thread_instructions for line in found.lines[:3]} == {32 * 28}
    counts = [line.thread_instructions for line in found.lines]
    assert counts == sorted(counts, reverse=True) and 0 not in counts


def test_several_launches_add_up_and_name_all_objects() -> None:
    kernel = kernel_of(
        f"{START} ld.global.u32 %r3, [%rd1]; setp.lt.u32 %p1, %r3, 2; {BRANCH} ret;",
        ".param .u64 given, .param .u32 n",
    )
    device = ge.Device(memory_bytes=1 << 20)
    arrays = [device.array(np.arange(32, dtype=np.uint32), name=name) for name in ("left", "right")]
    profiles = [device.launch(kernel, 1, 32, [array, 3]) for array in arrays]
    (branch,) = ge.explain(ge.add_profiles(profiles)).branches
    assert (branch.executed, branch.divergent) == (2, 2)
    assert branch.causes == (Cause("data", "left", True), Cause("data", "right", True))


def test_more_threads_than_64_bits_count() -> None:
    """A grid of 2⁶³ threads whose loop takes 2¹⁰ trips, twice: by classes of blocks."""
    kernel = kernel_of(
        """
        ld.param.u32 %r1, [n];
        mov.u32 %r0, %tid.x;
        setp.ge.u32 %p1, %r0, 1000;
        @%p1 bra DONE;
        mov.u32 %r3, 0;
        LOOP: add.u32 %r3, %r3, 1;
        setp.lt.u32 %p1, %r3, %r1;
        @%p1 bra LOOP;
        DONE: ret;
        """,
        ".param .u32 n",
    )
    device = ge.Device(observe=())
    grid = (2**31 - 1, 2**16 - 1, 2**6)
    profile = device.launch(kernel, grid, 1024, [1 << 10], demand="control")
    assert profile.method == "classes"
    ctas = grid[0] * grid[1] * grid[2]
    for total, launches in ((profile, 1), (ge.add_profiles([profile, profile]), 2)):
        found = ge.explain(total)
        assert [trips(loop) for loop in found.loops] == [
            (launches * 1000 * ctas, launches * 1000 * ctas << 10, 1024, 1)
        ]
        assert [(branch.divergent, branch.executed) for branch in found.branches] == [
            (launches * ctas, launches * 32 * ctas)
        ]
        assert found.branches[0].causes == (THREAD,)


@pytest.mark.parametrize("demand", ["control", "addresses"])
def test_a_slice_explains_as_much_as_the_whole(demand: str) -> None:
    kernel = kernel_of(
        f"{START} ld.global.u32 %r6, [%rd1]; {NEST} setp.lt.u32 %p1, %r6, %r1; {BRANCH} ret;",
        ".param .u64 given, .param .u32 n",
    )
    found = []
    for needed in ("values", demand):
        device = ge.Device(memory_bytes=1 << 20)
        given = device.array(np.arange(64, dtype=np.uint32), name="given")
        found.append(ge.explain(device.launch(kernel, 2, 64, [given, 5], demand=needed)))
    assert found[0] == found[1] and found[0].branches and found[0].loops


def test_a_sum_over_kernels_cannot_be_explained() -> None:
    device = ge.Device(memory_bytes=1 << 20)
    one, other = (
        device.launch(kernel_of(body, ".param .u32 n"), 1, 32, [3]) for body in ("ret;", "bar.sync 0; ret;")
    )
    with pytest.raises(ge.NotObserved, match="different kernels"):
        ge.explain(ge.add_profiles([one, other]))


@pytest.mark.parametrize(
    "name",
    ["bfs-300x450", "spmv_vector-37x150", "mandelbrot-35x20x40", "expressions-200x40", "histogram_shared-10"],
)
def test_every_divergence_has_a_cause(name: str) -> None:
    """Something on which the condition depends must be able to differ between lanes."""
    (case,) = (case for case in SMALL if case.name == name)
    engine = Engine(case.text, "llvm")
    execute(case.program(), engine)
    for profile in engine.profiles:
        found = ge.explain(profile)
        assert sum(branch.divergent for branch in found.branches) == profile.branches.divergent
        assert all(branch.causes[0].varies for branch in found.branches)


@pytest.mark.parametrize("shape", ["structured", "tangled"])
@pytest.mark.parametrize("seed", range(3))
def test_random_kernels(shape: str, seed: int) -> None:
    """Every divergence has a cause, and what single threads tell adds up to what is told of all."""
    choices = Seeded(seed)
    text = {"structured": structured, "tangled": tangled}[shape](choices)
    start = [
        np.arange(INPUTS, dtype=np.uint32) * 77,
        np.zeros(64 * WORDS, np.uint32),
        np.zeros(ACCUMULATORS, np.uint32),
    ]
    device = ge.Device(observe={"threads"}, memory_bytes=1 << 24)
    kernel = ge.parse(text, path="k.ptx")["k"]
    profile = device.launch(kernel, 2, 32, [device.array(array) for array in start])
    found = ge.explain(profile)
    assert sum(branch.divergent for branch in found.branches) == profile.branches.divergent
    assert all(branch.causes and branch.causes[0].varies for branch in found.branches)
    for loop in found.loops:
        assert loop.head_thread_executions <= 32 * loop.head_warp_executions
        if loop.iterations is not None and loop.entries:
            assert 0 <= loop.least <= loop.most >= loop.mean
            assert loop.entries <= loop.head_thread_executions >= loop.iterations


def test_an_imported_profile_cannot_be_explained() -> None:
    kernel = kernel_of("ret;", ".param .u32 n")
    profile = ge.Device(memory_bytes=1 << 20).launch(kernel, 1, 32, [3])
    with pytest.raises(ge.NotObserved, match="explain the profile"):
        ge.explain(replace(profile, records=()))


def example(stem: str, entry: str, grid: int, block: int, *args: Any) -> Explanation:
    path = EXAMPLES / "kernels" / f"{stem}.ptx"
    kernel = ge.parse(path.read_text(encoding="utf-8"), path=path.name)[entry]
    device = ge.Device(memory_bytes=1 << 26)
    arrays = [
        device.array(value, name=name) if isinstance(value, np.ndarray) else value for name, value in args
    ]
    return ge.explain(device.launch(kernel, grid, block, arrays))


def test_collatz() -> None:
    """The number of steps of 1, 2, … n is known; nvcc closes the loop on the line of the ``while``."""
    steps = [0, 1, 7, 2, 5, 8, 16, 3, 19, 6, 14, 9, 9, 17, 17, 4]  # OEIS A006577
    found = example("collatz", "collatz", 1, 32, ("n", np.uint32(16)), ("length", np.zeros(16, np.uint32)))
    (loop,) = found.loops
    assert (loop.entries, loop.iterations) == (15, sum(steps))
    assert loop.source.startswith("collatz.cu:") and loop.head_warp_executions == max(steps)
    assert loop.causes[0] == THREAD


def test_sparse_rows() -> None:
    """The lengths of rows come from the offsets; one row per thread, unrolled by four behind a remainder."""
    rng = np.random.default_rng(7)
    lengths = rng.integers(4, 40, 64)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    columns = rng.integers(0, 9, offsets[-1]).astype(np.int32)
    found = example(
        "spmv",
        "spmv_scalar",
        1,
        64,
        ("rows", np.int32(64)),
        ("offsets", offsets),
        ("columns", columns),
        ("values", np.ones(columns.size, np.float32)),
        ("x", np.ones(9, np.float32)),
        ("y", np.zeros(64, np.float32)),
    )
    offsets_data = Cause("data", "offsets", True)
    assert {loop.causes for loop in found.loops} == {(offsets_data,)}
    unrolled, remainder = found.loops
    assert unrolled.iterations == (lengths // 4).sum() and remainder.iterations == (lengths % 4).sum()
    assert (unrolled.entries, remainder.entries) == (64, np.count_nonzero(lengths % 4))
    assert {branch.causes for branch in found.branches} == {(offsets_data,)}


def test_breadth_first_search() -> None:
    offsets = np.array([0, 1, 3, 3, 4], np.int32)
    found = example(
        "bfs",
        "bfs_expand",
        1,
        32,
        ("vertices", np.int32(4)),
        ("level", np.int32(0)),
        ("offsets", offsets),
        ("neighbours", np.array([1, 0, 3, 1], np.int32)),
        ("distance", np.array([-1, 0, -1, -1], np.int32)),
        ("marked", np.zeros(4, np.uint8)),
    )
    by_name = [{cause.name for cause in branch.causes if cause.varies} for branch in found.branches]
    assert {"tid.x"} in by_name and {"distance"} in by_name
    assert found.loops and all("offsets" in {cause.name for cause in loop.causes} for loop in found.loops)
