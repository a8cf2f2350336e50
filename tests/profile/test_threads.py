"""Counts of single threads equal those of the one-thread-at-a-time interpreter, and add up to the launch's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cases import SMALL, execute

import gpuperf_engine as ge
from gpuperf_engine.jit import dispatch as native_threads
from gpuperf_engine.profile.groups import CLASSES
from tests.engine.random_kernels import (
    ACCUMULATORS,
    INPUTS,
    LOCK,
    WORDS,
    Choices,
    Seeded,
    gathered,
    structured,
    tangled,
)
from tests.engine.running import Engine, module
from tests.examples.interpreter import Interpreter
from tests.oracle.scalar import Buffer, Result, run
from tests.oracle.shapes import SHAPES, Shape


def launched(
    backend: str, text: str, grid: Any, block: Any, arrays: tuple[np.ndarray, ...] = (), **options: Any
) -> ge.Profile:
    device = ge.Device(observe={"threads"}, backend=backend, memory_bytes=1 << 22)
    kernel = ge.parse(text, path="k.ptx")["k"]
    return device.launch(kernel, grid, block, [device.array(array) for array in arrays], **options)


def agree(profile: ge.Profile, expected: Result) -> None:
    """Each thread by itself, then all together."""
    found = profile.by_thread
    for (cta, thread), own in expected.by_thread.items():
        counts = found[cta, thread]
        assert dict(counts.opcodes) == dict(own.opcodes), (cta, thread)
        assert counts.thread_instructions == sum(own.opcodes.values())
        assert counts.thread_instructions_predicated_on == sum(own.predicated_on.values())
        assert sum(counts.nvprof[name] for name in CLASSES) == counts.thread_instructions_predicated_on
    whole = found[:, :]
    assert whole.threads == len(expected.by_thread) == profile.threads
    for name in (
        "thread_instructions",
        "thread_instructions_predicated_on",
        "opcodes",
        "by_category",
        "flops",
    ):
        assert getattr(whole, name) == getattr(profile, name), name
    assert whole.nvprof == {name: profile.nvprof[name] for name in whole.nvprof}
    assert found.instructions.shape == (profile.ctas, profile.threads // profile.ctas)
    assert found.instructions.sum() == profile.thread_instructions
    blocks = found.blocks.sum(axis=(0, 1))
    for block in profile.blocks:
        assert blocks[block.index] == block.thread_executions
    for plain in (found.instructions[0, 0], found.blocks[0, 0, 0]):
        assert isinstance(plain, np.int64)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_shapes_of_control_flow(shape: Shape, backend: str) -> None:
    expected = run(shape.ptx, "k", shape.grid, shape.block, [], by_thread=True)
    agree(launched(backend, shape.ptx, shape.grid, shape.block), expected)


#: loops as often as the thread's place and CTA say, with guarded arithmetic, a guarded store and a guarded exit
UNEVEN = module(
    """
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %tid.y;
    mov.u32 %r2, %tid.z;
    mov.u32 %r3, %ctaid.y;
    mad.lo.u32 %r4, %r1, 3, %r0;
    mad.lo.u32 %r4, %r2, 5, %r4;
    add.u32 %r4, %r4, %r3;
    and.b32 %r5, %r4, 7;
    setp.eq.u32 %p0, %r5, 3;
@%p0 exit;
    setp.gt.u32 %p1, %r5, 4;
LOOP:
    setp.eq.u32 %p2, %r5, 0;
@%p2 bra DONE;
@%p1 add.f32 %f0, %f0, 0f3F800000;
@!%p1 fma.rn.f32 %f1, %f0, %f0, %f0;
    sub.u32 %r5, %r5, 1;
    bra LOOP;
DONE:
    ld.param.u64 %rd0, [out];
@%p1 st.global.f32 [%rd0], %f1;
    ret;
""",
    ".param .u64 out",
)


@pytest.mark.parametrize("grid, block", [((2, 3, 2), (5, 3, 3)), ((1, 2), (7, 1, 11)), (3, 33), (2, 1)])
def test_partial_warps_and_three_dimensions(backend: str, grid: Any, block: Any) -> None:
    out = np.zeros(1, np.float32)
    expected = run(UNEVEN, "k", grid, block, [Buffer(out)], by_thread=True)
    agree(launched(backend, UNEVEN, grid, block, (out,)), expected)


def test_places_sets_and_what_there_is_not() -> None:
    out = np.zeros(1, np.float32)
    profile = launched("llvm", UNEVEN, (2, 3), (5, 3), (out,))
    found = profile.by_thread
    assert found[(1, 2), (4, 1)] == found[1 + 2 * 2, 4 + 5] == found[(1, 2, 0), (4, 1, 0)]
    first, rest, whole = found[:2, 3:9], found[2:, 3:9], found[:, 3:9]
    assert (first.threads, rest.threads, whole.threads) == (12, 24, 36)
    assert first.thread_instructions + rest.thread_instructions == whole.thread_instructions
    assert first.groups() == first.nvprof and first.groups("categories") == first.by_category
    for some in ([3, 14, 3, (0, 2)], np.array([3, 14, 10])):
        assert found[[1, (1, 2)], some].threads == 6
        assert found[[1, 5], some].thread_instructions == found.instructions[[1, 5]][:, [3, 10, 14]].sum()
    assert found[3, []].opcodes == {} and found[::4, 0].threads == 2
    assert found[3, :].thread_instructions == found.instructions[3].sum()
    for key, message in (
        ((6, 0), "no CTA 6"),
        ((0, 15), "no thread 15"),
        ((-1, 0), "no CTA -1"),
        ((0, (5, 0)), r"no thread \(5, 0\)"),
        (((0, 0, 0, 0), 0), "no CTA"),
        (("0", 0), "no CTA '0'"),
        (0, "no thread 0"),
        ((0, [0, 15]), "no thread 15"),
        ((0, np.array([[0]])), "no thread"),
        ((True, 0), "no CTA True"),
    ):
        with pytest.raises(ge.UnknownName, match=message):
            found[key]
    with pytest.raises(ge.UnknownName, match="no groups 'all'"):
        first.groups("all")


def test_only_chosen_ctas_are_kept(backend: str) -> None:
    """The others count all the same, and the kept ones as if all were."""
    out = np.zeros(1, np.float32)
    every = launched(backend, UNEVEN, (4, 5, 3), 40, (out,))
    for chosen, ctas in (
        ("centre", [2 + 4 * (2 + 5 * 1)]),
        (3, [10, 30, 50]),
        (100, list(range(60))),
        ([59, (0, 0, 0), (1, 2), 59], [0, 9, 59]),
        (np.arange(0, 60, 20), [0, 20, 40]),
        (np.int64(1), [30]),
    ):
        some = launched(backend, UNEVEN, (4, 5, 3), 40, (out,), threads_of=chosen)
        assert list(some.by_thread.ctas) == ctas
        assert some.to_dict() == every.to_dict()
        np.testing.assert_array_equal(some.by_thread.blocks, every.by_thread.blocks[ctas])
        for cta in ctas:
            assert some.by_thread[cta, 7] == every.by_thread[cta, 7]
        assert some.by_thread[:, 7].threads == len(ctas)
    with pytest.raises(ge.NotObserved, match="threads of CTA 3 were not kept"):
        launched(backend, UNEVEN, 9, 40, (out,), threads_of="centre").by_thread[3, 0]


@pytest.mark.parametrize(
    "chosen", [0, -1, True, "center", [], [9], [(0, 1)], [True], 1.5, [(0, 0, 0, 0)], [()]]
)
def test_choices_that_mean_nothing(chosen: object) -> None:
    with pytest.raises(ge.LaunchError, match=r"threads_of|no CTA"):
        launched("llvm", UNEVEN, 9, 40, (np.zeros(1, np.float32),), threads_of=chosen)


def test_what_was_not_observed_says_so() -> None:
    kernel = ge.parse(module("ret;"), path="k.ptx")["k"]
    profile = ge.Device().launch(kernel, 1, 32)
    with pytest.raises(ge.NotObserved, match="counts of each thread of 'k'"):
        _ = profile.by_thread
    with pytest.raises(ge.NotObserved, match="threads_of"):
        ge.Device().launch(kernel, 1, 32, threads_of="centre")
    observed = ge.Device(observe={"threads"}).launch(kernel, 1, 32)
    with pytest.raises(ge.NotObserved, match="profile of a single launch"):
        _ = ge.add_profiles([observed, observed]).by_thread
    with pytest.raises(ge.LaunchError, match=r"take .* bytes, at most"):
        ge.Device(observe={"threads"}).launch(kernel, 1 << 24, 1024)


def test_several_host_threads_fill_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    out = np.zeros(1, np.float32)
    alone = launched("llvm", UNEVEN, 500, 64, (out,))
    monkeypatch.setattr("gpuperf_engine.device.device.host_threads", lambda: 3)
    monkeypatch.setattr(native_threads, "WORTH_IT", 0.0)
    together = launched("llvm", UNEVEN, 500, 64, (out,), threads_of=list(range(0, 500, 2)))
    np.testing.assert_array_equal(together.by_thread.blocks, alone.by_thread.blocks[::2])


def test_profiles_are_the_same_with_and_without_threads() -> None:
    """And code that counts single threads is not the code that does not."""
    kernel = ge.parse(UNEVEN, path="k.ptx")["k"]
    plain, watched = ge.Device(), ge.Device(observe={"memory", "threads"})
    profiles = [
        device.launch(kernel, 3, 70, [device.zeros(1)], threads_of=wanted)
        for device, wanted in ((plain, None), (watched, None), (plain, None), (watched, "centre"))
    ]
    assert all(profile.to_dict() == profiles[0].to_dict() for profile in profiles)


def test_demands_count_the_same_threads(backend: str) -> None:
    whole = launched(backend, UNEVEN, (2, 3), 70, (np.zeros(1, np.float32),))
    slim = launched(backend, UNEVEN, (2, 3), 70, (np.zeros(1, np.float32),), demand="control")
    assert slim.share_executed < 1
    np.testing.assert_array_equal(slim.by_thread.blocks, whole.by_thread.blocks)
    assert slim.by_thread[4, 30:50] == whole.by_thread[4, 30:50]


# -- samples


def sampled(backend: str, grid: Any, block: Any, ctas: object) -> tuple[Any, ge.Profile]:
    device = ge.Device(observe={"threads", "values"}, backend=backend, memory_bytes=1 << 22)
    kernel = ge.parse(UNEVEN, path="k.ptx")["k"]
    out = device.zeros(1)
    events = len(device.events)
    sample = device.sample(kernel, grid, block, [out], ctas=ctas)
    assert len(device.events) == events and out.numpy().tolist() == [0]
    return sample, device.launch(kernel, grid, block, [out])


def test_a_sample_is_its_threads_times_how_many_there_are(backend: str) -> None:
    sample, profile = sampled(backend, (4, 5), (9, 4), "centre")
    centre = profile.by_thread[(2, 2), (4, 2)]
    assert sample.places == (((2, 2, 0), (4, 2, 0)),)
    assert (sample.threads, sample.of_threads, sample.ctas_run) == (1, 720, 1)
    assert sample.thread_instructions == 720 * centre.thread_instructions
    assert sample.opcodes == {name: 720 * count for name, count in centre.opcodes.items()}
    sample, profile = sampled(backend, (4, 5), (9, 4), 4)
    threads = [profile.by_thread[cta, 4 + 9 * 2] for cta in (2, 7, 12, 17)]
    assert sample.threads == sample.ctas_run == 4
    assert sample.thread_instructions == 720 / 4 * sum(counts.thread_instructions for counts in threads)
    assert sample.nvprof["inst_integer"] == 180 * sum(counts.nvprof["inst_integer"] for counts in threads)
    kept = profile.by_thread.sample()
    assert kept.threads == 20 and kept.ctas_run == 20
    assert kept.to_dict()["estimate"] is True


def test_errors_of_a_sample_against_what_is_exact() -> None:
    sample, profile = sampled("llvm", 1, 8, "centre")
    # thread x goes x rounds, but thread 3 none; the centre is thread 4
    errors = sample.errors(profile)
    assert errors["thread_instructions"] == sample.thread_instructions / profile.thread_instructions - 1
    assert errors["inst_integer"] == 8 * sample_integer(4) / sum(map(sample_integer, range(8))) - 1
    assert set(errors) == {"thread_instructions"} | {
        name for name in sample.nvprof if sample.nvprof[name] or profile.nvprof[name]
    }
    assert errors["flop_count_sp_add"] == -1  # only threads 5 to 7 add
    by_category = sample.errors(profile, "categories")
    assert by_category["fp32"] == 8 * 4 / (1 + 2 + 4 + 5 + 6 + 7) - 1
    none = profile.by_thread[0, 3]
    assert none.opcodes["exit"] == 1 and "ret" not in none.opcodes


def sample_integer(x: int) -> int:
    """Integer instructions of thread x of one row: seven before the loop (six for x = 3), and 2 per round and its end."""
    before = 3 + 1 + 1  # two mad and an add, and, setp
    return before if x == 3 else before + 1 + (x + 1) + x


def test_a_sample_of_the_largest_grid_costs_its_threads(backend: str) -> None:
    """Nothing is as large as the grid: this one would need hours, or gigabytes."""
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    kernel = ge.parse(UNEVEN, path="k.ptx")["k"]
    sample = device.sample(kernel, (2**31 - 1, 65535), 32, [device.zeros(1)], ctas=5)
    assert sample.ctas_run == sample.threads == 5
    assert sample.of_threads == (2**31 - 1) * 65535 * 32
    assert sample.places[2] == ((2**30 - 1, 32767, 0), (16, 0, 0))
    with pytest.raises(ge.LaunchError, match="do not fit"):
        device.sample(kernel, (2**31 - 1, 65535), 32, [device.zeros(1)], ctas=10**9)


def test_a_sample_runs_all_ctas_where_others_could_notice(backend: str) -> None:
    body = """
    ld.param.u64 %rd0, [out];
    atom.global.add.u32 %r0, [%rd0], 1;   // each CTA sees how many came before
LOOP:
    setp.eq.u32 %p0, %r0, 0;
@%p0 bra DONE;
    sub.u32 %r0, %r0, 1;
    bra LOOP;
DONE:
    ret;
"""
    device = ge.Device(observe={"threads"}, backend=backend, memory_bytes=1 << 20)
    kernel = ge.parse(module(body, ".param .u64 out"), path="k.ptx")["k"]
    out = device.zeros(1, np.uint32)
    sample = device.sample(kernel, 9, 1, [out])
    assert sample.ctas_run == 9 and out.numpy().tolist() == [0]
    # the fifth CTA: 2 before the loop, 4 in each of 4 rounds, 2 at its end, and the return
    assert sample.thread_instructions == 9 * (2 + 4 * 4 + 2 + 1)
    profile = device.launch(kernel, 9, 1, [out])
    assert math.isclose(sample.errors(profile)["thread_instructions"], 0, abs_tol=0)
    assert out.numpy().tolist() == [9]
    cooperative = device.sample(kernel, 2, 1, [out], cooperative=True)
    assert cooperative.ctas_run == 2
    unused = module("ld.param.u64 %rd0, [out];\natom.global.add.u32 %r0, [%rd0], 1;\nret;", ".param .u64 out")
    assert device.sample(ge.parse(unused, path="k.ptx")["k"], 9, 1, [out]).ctas_run == 1


EXAMPLES = (
    "saxpy_grid_stride-1001",
    "scan-256",
    "reduce_shuffle-5",
    "histogram_shared-10",
    "bfs-20x25",
    "spmv_scalar-200x150",
    "expressions-200x40",
    "collatz-300",
    "fft512-1",
    "triton_softmax.sm_80-2x300",
)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_thread_by_thread(name: str) -> None:
    """Compiled kernels with barriers, shuffles, calls, atomics and data-dependent loops, several launches each."""
    (case,) = (case for case in SMALL if case.name == name)
    interpreter, engine = Interpreter(case.text, by_thread=True), Engine(case.text, "llvm", ("threads",))
    execute(case.program(), interpreter)
    execute(case.program(), engine)
    for profile, result in zip(engine.profiles, interpreter.results, strict=True):
        agree(profile, result)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", [structured, gathered, tangled], ids=lambda shape: shape.__name__)
def test_random_kernels_thread_by_thread(shape: Callable[[Choices], str], seed: int) -> None:
    """Loops per lane, switches, early returns, calls, recursion, barriers and exchanges; guards on anything."""
    choices = Seeded(seed)
    block, grid = (5, (33, 1, 2), (8, 5))[seed], seed + 1
    text = shape(choices)
    inputs = np.random.default_rng(seed).integers(0, 2**32, INPUTS, dtype=np.uint32)
    totals = np.arange(ACCUMULATORS, dtype=np.uint32)
    totals[LOCK] = 0
    arrays = (inputs, np.zeros(int(np.prod(block)) * grid * WORDS, np.uint32), totals)
    expected = run(text, "k", grid, block, [Buffer(array) for array in arrays], by_thread=True)
    for backend in ("reference", "llvm"):
        agree(launched(backend, text, grid, block, arrays), expected)
