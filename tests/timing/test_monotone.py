"""More of any counted work never takes less predicted time: what was counted of every example, changed in one thing or in all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import fields, replace
from functools import cache
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from cases import SMALL

import gpuperf_engine as ge
from gpuperf_engine.flow.blocks import natural_loop
from gpuperf_engine.machines.machine import Machine, load_machine
from gpuperf_engine.machines.targets import can_run
from gpuperf_engine.profile.build import LaunchRecord
from gpuperf_engine.results import Resources
from gpuperf_engine.simt.counters import SITE_COLUMNS
from gpuperf_engine.simt.program import BasicBlock, Program
from gpuperf_engine.timing.launch.adapt import timing_input
from gpuperf_engine.timing.launch.inputs import TimingInput
from tests.timing.counted import estimate

TARGETS = ("gtx-1050", "v100-sxm2", "t4", "a100-sxm-80gb", "rtx-4090", "h100-sxm", "b200")
FACTORS = (1.01, 1.5, 3.0, 32.0)
#: one size of each kernel: the largest
CASES = {case.name.split("-")[0]: case for case in SMALL}
#: half of the kernels for each of the two properties
HALVES = sorted(CASES)[::2], sorted(CASES)[1::2]
COLUMN = {name: place for place, name in enumerate(SITE_COLUMNS)}


@cache
def launched(name: str) -> tuple[ge.Profile, ...]:
    """The profile of the first launch of each kernel of a case."""
    case = CASES[name]
    program = case.program()
    module = ge.parse(case.text, path=str(case.ptx))
    device = ge.Device()
    arrays = {id(buffer): device.array(buffer) for buffer in program.buffers}
    found: dict[str, ge.Profile] = {}
    for launch in program.launches:
        args = [arrays.get(id(argument), argument) for argument in launch.args]
        profile = device.launch(
            module[launch.entry],
            grid=launch.grid,
            block=launch.block,
            args=args,
            shared_bytes=launch.shared_bytes,
        )
        found.setdefault(launch.entry, profile)
    return tuple(found.values())


def grown(record: LaunchRecord, factor: int) -> LaunchRecord:
    """The launch on a grid so many times as long, each part of which does the same."""
    seen = copy(record.observation)
    seen.times(factor)
    x, y, z = record.plan.grid
    return replace(record, plan=replace(record.plan, grid=(x * factor, y, z)), observation=seen)


def changed(record: LaunchRecord, change: Callable[[np.ndarray, np.ndarray], None]) -> LaunchRecord:
    """The launch with other counters: ``change`` is given copies of those of the sites and of the blocks' warps."""
    seen = copy(record.observation)
    assert seen.sites is not None
    seen.sites, seen.block_warps = seen.sites.copy(), seen.block_warps.copy()
    change(seen.sites, seen.block_warps)
    return replace(record, observation=seen)


def raised(sites: np.ndarray, row: int, column: str, factor: float, most: float) -> None:
    now = int(sites[row, COLUMN[column]])
    sites[row, COLUMN[column]] = max(now, min(int(np.ceil(now * factor)), most))


def at_site(row: int, factor: float, sites: np.ndarray) -> None:
    """A memory instruction whose lanes lie further apart, or clash more."""
    requests = int(sites[row, COLUMN["requests"]])
    lanes = int(sites[row, COLUMN["lanes"]])
    for column in ("sectors", "lines", "wavefronts", "global_wavefronts", "local_sectors"):
        raised(sites, row, column, factor, 32 * requests)
    for column in ("serializations", "shared_serializations"):
        raised(sites, row, column, factor, lanes)


def iterated(program: Program, block: BasicBlock) -> set[int]:
    """The block; if it is the head of a loop, all of the loop, since it is executed once more than the loop's ends."""
    blocks = program.blocks_of(block.function)
    first = blocks[0].index
    members = {block.index}
    for other in blocks:
        if block.index in other.back_edges:
            members |= natural_loop(blocks, other.index, block.index, first)
    return members


def mutants(record: LaunchRecord, factor: float, random: Random) -> Iterator[tuple[str, LaunchRecord]]:
    """What was done, and the launch with more of it."""
    program, seen = record.program, record.observation
    assert seen.sites is not None
    rows = [row for row in range(len(seen.sites)) if seen.sites[row].any()]
    for row in random.sample(rows, min(2, len(rows))):
        line = program.sites[row].instruction.span.line
        for column in (
            "sectors",
            "wavefronts",
            "global_wavefronts",
            "local_sectors",
            "serializations",
            "shared_serializations",
        ):
            if seen.sites[row, COLUMN[column]]:
                most = int(seen.sites[row, COLUMN["requests"]]) * 32
                yield (
                    f"{column} of line {line}",
                    changed(record, lambda sites, _, c=column, r=row, m=most: raised(sites, r, c, factor, m)),
                )
        yield f"line {line}", changed(record, lambda sites, _, r=row: at_site(r, factor, sites))
    yield (
        "all memory",
        changed(record, lambda sites, _: [at_site(row, factor, sites) for row in rows] and None),
    )
    hotter = copy(seen)
    hotter.hottest = seen.hottest.times(int(np.ceil(factor)))
    yield "the hottest address", replace(record, observation=hotter)
    blocks = [block for block in program.blocks if seen.block_warps[block.index]]
    for block in random.sample(blocks, min(3, len(blocks))):
        members = iterated(program, block)

        def more(sites: np.ndarray, warps: np.ndarray, members: set[int] = members) -> None:
            for index in members:
                warps[index] = int(np.ceil(warps[index] * factor))
            for site in program.sites:
                if site.block in members:
                    sites[site.index] = np.ceil(sites[site.index] * factor)

        yield f"block {block.index} with {len(members) - 1} others", changed(record, more)

    def everything(sites: np.ndarray, warps: np.ndarray) -> None:
        warps[:] = np.ceil(warps * factor)
        sites[:] = np.ceil(sites * factor)

    yield "all", changed(record, everything)


def predicted(record: LaunchRecord, machine: Machine, resources: Resources) -> float:
    return estimate(timing_input(record, machine, resources), machine).time_us


def resources_of(profile: ge.Profile) -> Resources:
    return replace(profile.resources, shared_bytes=profile.records[0].plan.shared_bytes)


def machines_of(profile: ge.Profile, random: Random, count: int) -> list[Machine]:
    """Targets that can run the kernel and have the units that it uses."""
    units = {
        instruction.form.unit
        for block in profile.records[0].program.blocks
        for instruction in block.instructions
    }
    found = [
        machine
        for machine in map(load_machine, TARGETS)
        if can_run(profile.target, machine) and not (units & {"tensor", "tex"}) - machine.lanes.keys()
    ]
    return random.sample(found, min(count, len(found)))


def longer(given: TimingInput, factor: int) -> TimingInput:
    """The launch on a grid so many times as long, each part of which works on memory of its own."""
    memory = given.memory
    sizes = {
        item.name: getattr(memory, item.name) * factor
        for item in fields(memory)
        if item.name != "texture_misses" and getattr(memory, item.name) is not None
    }
    return replace(
        given,
        grid=(given.grid[0] * factor, *given.grid[1:]),
        warp_instructions={unit: count * factor for unit, count in given.warp_instructions.items()},
        operand_reads=given.operand_reads * factor,
        memory=replace(memory, **sizes),
    )


def on_the_same_data(given: TimingInput, factor: int) -> TimingInput:
    """The launch on a grid so many times as long, all parts of which work on the same memory."""
    made, memory = longer(given, factor), given.memory
    same = replace(made.memory, read_footprint=memory.read_footprint, write_footprint=memory.write_footprint)
    return replace(made, memory=same)


def climbs(times: list[float]) -> bool:
    return all(after >= before * (1 - 1e-12) for before, after in pairwise(times))


@pytest.mark.parametrize("name", HALVES[0])
def test_more_work_never_takes_less_time(name: str) -> None:
    random = Random(name)
    for profile in launched(name):
        resources = resources_of(profile)
        for machine, size in zip(machines_of(profile, random, 2), (1, 97), strict=False):
            record = grown(profile.records[0], size)
            before = predicted(record, machine, resources)
            where = f"{profile.kernel} x {size} on {machine.id}"
            for what, mutant in mutants(record, random.choice(FACTORS), random):
                after = predicted(mutant, machine, resources)
                assert after >= before * (1 - 1e-12), f"{what} of {where}"


@pytest.mark.parametrize("name", HALVES[1])
def test_larger_grids_more_registers_and_memory_never_take_less_time(name: str) -> None:
    random = Random(name)
    for profile in launched(name)[:1]:
        (machine,) = machines_of(profile, random, 1)
        own = resources_of(profile)
        small = timing_input(profile.records[0], machine, own)
        sizes = (1, 2, 3, 5, 9, 40, 41, 97, 1000)
        for way in (longer, on_the_same_data):
            assert climbs([estimate(way(small, size), machine).time_us for size in sizes]), (way, machine.id)

        given = longer(small, random.choice(sizes))
        most = machine.registers_per_cta // (-(-given.threads_per_cta // 128) * 128)
        times = [
            estimate(replace(given, registers_per_thread=registers), machine).time_us
            for registers in range(8, min(machine.max_registers_per_thread, most) + 1, 16)
        ]
        assert climbs(times), machine.id
        times = [
            estimate(replace(given, shared_bytes=shared), machine).time_us
            for shared in range(own.shared_bytes, machine.shared_per_cta, 11000)
        ]
        assert climbs(times), machine.id

        for side, sectors in (
            ("read_footprint", given.memory.load_sectors),
            ("write_footprint", given.memory.store_sectors),
        ):
            least = getattr(given.memory, side)
            values = [least + part * max(0, sectors * 32 - least) for part in (0, 0.25, 0.5, 1)]
            touched = [replace(given, memory=replace(given.memory, **{side: value})) for value in values]
            assert climbs([estimate(item, machine).time_us for item in touched]), (side, machine.id)

        time = estimate(given, machine).time_us
        for field in ("clock_mhz", "l1_bandwidth", "l2_bandwidth", "l2_sm_bandwidth", "dram_sustained_one_way", "cta_rate",
                      "l2_bytes", "register_read_rate"):  # fmt: skip
            better = replace(machine, **{field: getattr(machine, field) * 2})
            faster = estimate(given, better).time_us
            assert faster <= time * (1 + 1e-12), (field, machine.id)
        lanes = {unit: 2 * count for unit, count in machine.lanes.items()}
        assert estimate(given, replace(machine, lanes=lanes)).time_us <= time * (1 + 1e-12), machine.id


@pytest.mark.parametrize("machine", ["v100-sxm2", "a100-sxm-80gb", "rtx-4090", "h100-sxm"])
def test_a_small_launch_that_loses_its_coalescing_takes_longer(machine: str) -> None:
    text = CASES["saxpy"].text
    device = ge.Device()
    x, y = (device.array(np.ones(1 << 14, np.float32)) for _ in range(2))
    args = [np.int32(1 << 14), np.float32(2), x, y]
    record = device.launch(ge.parse(text)["saxpy"], grid=64, block=256, args=args).records[0]

    def scattered(sites: np.ndarray, _: np.ndarray) -> None:
        sites[:, COLUMN["sectors"]] *= 8
        sites[:, COLUMN["lines"]] *= 8

    times = [
        predicted(launch, load_machine(machine), Resources(16, 0, 0))
        for launch in (record, changed(record, scattered))
    ]
    assert times[1] > times[0]
