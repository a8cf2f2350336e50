"""The best tiling: what fits a machine, both solvers on random spaces, and sweeps."""

from __future__ import annotations

import csv
import random
import time
from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from statistics import mean

import pytest

from gpuperf_engine.errors import EngineError, LaunchError, UnknownName, Unsupported
from gpuperf_engine.machines.machine import load_machine, machine_ids
from gpuperf_engine.machines.occupancy import occupancy
from gpuperf_engine.warp_specialization import (
    GOALS,
    PAPER,
    Derived,
    Prediction,
    Problem,
    Search,
    TileSpace,
    Tiling,
    best_tiling,
    predict,
    predict_one,
    sweep,
)
from gpuperf_engine.warp_specialization.problem import DTYPES, feasible

SPACE = TileSpace()
with_z3 = pytest.mark.skipif(find_spec("z3") is None, reason="z3 is not installed (pytest-gpuperf[tune])")


def drawn(seed: int) -> Search:
    """A product, a machine and a part of the space of configurations."""
    draw = random.Random(seed)
    space = TileSpace(
        *(
            tuple(draw.sample(axis, min(count, len(axis))))
            for axis, count in zip(SPACE.axes, (2, 2, 1, 2, 2, 1), strict=True)
        )
    )
    machine = load_machine(draw.choice(machine_ids()))
    types = [name for name, of in DTYPES.items() if of.multiply_adds(machine)]
    problem = Problem(*(draw.choice((1, 100, 256, 777, 1024, 4096)) for _ in range(3)), draw.choice(types))
    return Search(
        problem, machine, space, draw.choice(GOALS), parameters=draw.choice((None, None, None, PAPER))
    )


def by_loops(search: Search) -> tuple[Tiling, Prediction] | None:
    """The best by trying all, one at a time, with the calculator of occupancy; what the goal counts is compared to a millionth."""
    best = None
    for numbers in product(*search.space.axes):
        tiling = Tiling(*numbers)
        words = -(-tiling.m * tiling.n * search.problem.elements.registers // (32 * tiling.math_warps))
        shared = tiling.depth * ((tiling.m + tiling.n) * tiling.k * search.problem.elements.bytes + 16)
        try:
            occupancy(
                search.machine,
                threads_per_cta=32 * (tiling.math_warps + tiling.dma_warps),
                registers_per_thread=words + search.space.spare_registers,
                shared_bytes=shared,
            )
        except LaunchError:
            continue
        found = predict_one(search.problem, tiling, search.chosen())
        value = found.total_us if search.goal == "time" else found.waiting_us
        if best is None or value < best[0]:
            best = value, tiling, found
    return None if best is None else best[1:]


def value(search: Search, found: Prediction) -> float:
    return found.total_us if search.goal == "time" else found.waiting_us


def test_trying_all_is_what_loops_find() -> None:
    fitting = 0
    for seed in range(60):
        search = drawn(seed)
        found, expected = search.run(), by_loops(search)
        if expected is None:
            assert isinstance(found, LaunchError)
        else:
            assert isinstance(found, Prediction)
            assert value(search, found) == pytest.approx(value(search, expected[1]), rel=1e-6)
            fitting += 1
    assert fitting > 30


@with_z3
def test_z3_finds_what_trying_all_finds() -> None:
    """The same configuration of all that are equally good, or that none fits."""
    for seed in range(200):
        search = drawn(seed)
        every = search.run()
        if isinstance(every, EngineError):
            every = None
        try:
            found = best_tiling(
                search.problem,
                search.machine,
                search.chosen(),
                space=search.space,
                goal=search.goal,
                solver="z3",
            )
        except LaunchError:
            found = None
        assert found == every, seed


@with_z3
def test_z3_on_the_whole_space() -> None:
    machine, problem = load_machine("h100-sxm"), Problem(4096, 4096, 4096)
    parameters = Derived(machine, "f16")
    for goal in GOALS:
        start = time.process_time()
        found = best_tiling(problem, machine, parameters, goal=goal, solver="z3")
        # 0.06 to 0.1 s where nothing else runs
        assert time.process_time() - start < 0.3
        assert found == best_tiling(problem, machine, parameters, goal=goal)


def test_without_z3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "z3", None)
    machine = load_machine("h100-sxm")
    with pytest.raises(Unsupported, match=r"pytest-gpuperf\[tune\]"):
        best_tiling(Problem(64, 64, 64), machine, PAPER, solver="z3")


@pytest.mark.parametrize("name", ["v100-pcie", "a40", "h100-sxm", "toy"])
def test_what_fits_is_what_the_calculator_of_occupancy_lets_start(name: str, machines: object) -> None:
    machine = load_machine(name, search=[str(machines)])
    problem = Problem(1024, 1024, 1024, "f32")
    every = TileSpace(k=(16, 64), depth=(1, 3, 8), math_warps=(1, 4, 12)).all()
    fits = feasible(problem, machine, every, 40)
    assert fits.any() and not fits.all()
    shared, registers = every.shared_bytes(problem), every.accumulator_registers(problem) + 40
    for index in range(len(every)):
        try:
            occupancy(
                machine,
                threads_per_cta=32 * int(every.warps()[index]),
                registers_per_thread=int(registers[index]),
                shared_bytes=int(shared[index]),
            )
            started = True
        except LaunchError:
            started = False
        assert fits[index] == started, every.at(index)


def test_derived_times_by_hand(machines: object) -> None:
    """On the toy machine a cycle is a nanosecond, DRAM moves 100 bytes in it, L2 200, the port of an SM 128; 128 lanes multiply."""
    machine = load_machine("toy", search=[str(machines)])
    problem, tiling = Problem(64, 64, 128, "f32"), Tiling(64, 32, 16, 2, 1, 4)
    found = predict_one(problem, tiling, Derived(machine, "f32"))
    assert (found.tiles, found.waves, found.stages) == (2, 1, 8)
    # A and B are 64 KiB, tiles load 2 · 8 · (4096 + 2048) bytes: two thirds come from DRAM
    share = 65536 / 98304
    latency = 200 + share * (400 - 200)
    # two CTAs: a byte takes 1/128 at the port, 2/200 in L2, and its share of 2/100 from DRAM
    of_byte = max(1 / 128, 2 / 200, share * 2 / 100)
    assert found.load_a_us == pytest.approx((latency + 4096 * of_byte) / 1e3)
    assert found.load_b_us == pytest.approx((latency + 2048 * of_byte) / 1e3)
    assert found.math_us == pytest.approx(64 * 32 * 16 / 128 / 1e3)
    # 8 KiB stored by each of two CTAs, through DRAM, and the start of a CTA
    assert found.epilogue_us == pytest.approx((100 + 8192 * 2 / 100) / 1e3)
    span = found.load_a_us + found.load_b_us
    assert found.total_us == pytest.approx(1 + 8 * span + found.math_us + found.epilogue_us)
    # side by side both loads share the rate, so that the longer ends when all bytes are there
    beside = predict_one(problem, Tiling(64, 32, 16, 2, 2, 4), Derived(machine, "f32"))
    assert beside.load_a_us == pytest.approx((latency + 6144 * of_byte) / 1e3)
    assert beside.load_b_us == pytest.approx((latency + 4096 * of_byte) / 1e3)


def test_derived_loads_beside_measured_bulk_copies() -> None:
    """An H800 PCIe is the chip, clock and DRAM of an H100 PCIe; no number of its description comes from these rows. A copy is a load
    of one DMA warp, with the wait at its barrier, which the model leaves out. ``docs/warp-specialization.md`` prints these errors."""
    machine = load_machine("h100-pcie")
    assert machine.sm_count == 114
    errors: dict[str, list[float]] = {"linear": [], "box": []}
    with (Path(__file__).parent / "data" / "h800_bulk_copies.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            moved = int(row["bytes"])
            measured_us = 114 * moved / float(row["GBps"]) / 1e3
            # a tile of a byte an element, whose rows nobody else reads, beside one column of B
            problem, tiling = Problem(114 * 1024, 1, moved // 1024, "s8"), Tiling(1024, 1, moved // 1024)
            found = predict_one(problem, tiling, Derived(machine, "s8")).load_a_us
            errors["linear" if row["box"] == "linear" else "box"].append(100 * (found / measured_us - 1))
    linear, boxes = errors["linear"], errors["box"]
    assert (len(linear), len(boxes)) == (6, 6)
    assert mean(map(abs, linear)) == pytest.approx(13, abs=0.5)
    assert (min(linear), max(linear)) == pytest.approx((-22, 17), abs=0.6)
    assert mean(map(abs, boxes)) == pytest.approx(18, abs=0.5)
    assert (min(boxes), max(boxes)) == pytest.approx((-38, 11), abs=0.6)


def test_every_derived_number_has_a_source() -> None:
    for name in machine_ids():
        for number in Derived(load_machine(name), "f32").numbers:
            assert number.value > 0 and number.unit and number.source
    assert {number.source for number in PAPER.numbers} == {"Table 2, back-solved"}


def test_a_faster_machine_is_not_predicted_slower() -> None:
    problem = Problem(4096, 4096, 4096)
    times = [
        best_tiling(problem, load_machine(name), Derived(load_machine(name), "f16")).total_us
        for name in ("h200-sxm", "h100-pcie", "a100-sxm-80gb", "v100-sxm2", "t4")
    ]
    assert times == sorted(times)
    # and none faster than its tensor cores: 2 · 4096³ operations at 989 TFLOP/s
    h100 = load_machine("h100-sxm")
    assert best_tiling(problem, h100, Derived(h100, "f16")).total_us > 2 * 4096**3 / 1070e6


@pytest.mark.parametrize("name", ["t4", "a100-sxm-80gb", "rtx-4090", "h100-sxm"])
def test_more_machine_is_never_slower_and_no_roof_is_broken(name: str) -> None:
    """Of every configuration: with more SMs, clock or bandwidth, and against units and DRAM at their full rates."""
    machine = load_machine(name)
    every = SPACE.all()
    for shape in ((4096, 4096, 4096), (1000, 300, 777)):
        problem = Problem(*shape, "f16")
        total = predict(problem, every, Derived(machine, "f16")).total
        rate = DTYPES["f16"].multiply_adds(machine) * machine.sm_count * machine.clock_mhz
        assert (total >= problem.m * problem.n * problem.k / rate).all()
        assert (total >= problem.input_bytes / (machine.dram_bandwidth * 1e3)).all()
        for change in ("sm_count", "clock_mhz", "l2_bandwidth", "l2_sm_bandwidth", "dram_sustained_one_way"):
            for factor in (2, 3):
                better = replace(machine, **{change: getattr(machine, change) * factor})
                faster = predict(problem, every, Derived(better, "f16")).total
                assert (faster <= total * (1 + 1e-12)).all(), (change, factor)


def test_sweeps_give_the_same_whoever_computes_them() -> None:
    searches = [drawn(seed) for seed in range(12)]
    alone = sweep(searches)
    assert list(map(str, sweep(searches, jobs=2))) == list(map(str, alone))

    class Cluster:
        def map(self, function, items, **options):
            return [(function, item) for item in items]

        def gather(self, futures):
            return [function(item) for function, item in futures]

    assert list(map(str, sweep(searches, cluster=Cluster()))) == list(map(str, alone))


@pytest.mark.skipif(find_spec("distributed") is None, reason="Dask is not installed (pytest-gpuperf[dask])")
def test_a_dask_cluster() -> None:
    """Not part of the requirements of the tests: run where Dask is installed."""
    from distributed import Client, LocalCluster

    searches = [drawn(seed) for seed in range(12)]
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        assert list(map(str, sweep(searches, cluster=client))) == list(map(str, sweep(searches)))


def test_what_means_nothing() -> None:
    machine = load_machine("t4")
    with pytest.raises(UnknownName, match="unknown goal 'tim'"):
        best_tiling(Problem(64, 64, 64), machine, PAPER, goal="tim")
    with pytest.raises(UnknownName, match="unknown element type 'f23'"):
        Problem(64, 64, 64, "f23")
    with pytest.raises(Unsupported, match="'t4' has no unit for products of bf16"):
        best_tiling(Problem(64, 64, 64, "bf16"), machine, Derived(machine, "bf16"))
    with pytest.raises(LaunchError, match="none of 1 configurations"):
        best_tiling(Problem(64, 64, 64), machine, PAPER, space=TileSpace(*((4096,),) * 3, (1,), (1,), (4,)))
