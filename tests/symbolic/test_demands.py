"""Slices run like the whole program: every demand gives the same counts, block by block and branch by branch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import SMALL

import gpuperf_engine as ge
from gpuperf_engine.symbolic import choose as fewer
from gpuperf_engine.symbolic.backend import MOST_STEPS
from tests.engine.random_kernels import ACCUMULATORS, INPUTS, LOCK, WORDS, Seeded
from tests.engine.running import module
from tests.engine.test_random_kernels import BLOCKS, SHAPES

BACKENDS = ("llvm", "reference")


def counts(profile: ge.Profile) -> tuple[object, ...]:
    """Everything that every demand counts."""
    return (
        profile.blocks,
        profile.branch_sites,
        profile.branches,
        profile.opcodes,
        profile.warp_opcodes,
        profile.units,
        profile.flops,
        profile.thread_instructions_predicated_on,
        tuple((line.path, line.line, line.divergent, line.warp_instructions) for line in profile.by_line),
    )


def check(values: ge.Profile, addresses: ge.Profile, control: ge.Profile) -> None:
    assert counts(addresses) == counts(values)
    assert counts(control) == counts(values)
    assert (addresses.memory, addresses.sites, addresses.notes) == (values.memory, values.sites, values.notes)
    assert addresses.observed_footprint == values.observed_footprint
    assert (values.demand, addresses.demand, control.demand) == ("values", "addresses", "control")
    assert 0 < addresses.share_executed <= values.share_executed == 1
    if control.method == addresses.method == "every block":
        assert 0 < control.share_executed <= addresses.share_executed


@pytest.mark.parametrize("seed", range(1000, 1006))
@pytest.mark.parametrize("shape", SHAPES)
def test_random_kernels(shape: str, seed: int) -> None:
    choices = Seeded(seed)
    block, grid = BLOCKS[choices.number(0, len(BLOCKS) - 1)], choices.number(1, 3)
    kernel = ge.parse(SHAPES[shape](choices), path="k.ptx")["k"]
    threads = int(np.prod(block)) * grid
    inputs = np.random.default_rng(seed).integers(0, 2**32, INPUTS, dtype=np.uint64).astype(np.uint32)
    totals = np.arange(ACCUMULATORS, dtype=np.uint32) * 0x1000_0001
    totals[LOCK] = 0
    start = [inputs, np.zeros(threads * WORDS, np.uint32), totals]
    for backend in BACKENDS[: 2 if seed % 3 == 0 else 1]:
        found = [
            run(kernel, backend, demand, grid, block, start) for demand in ("values", "addresses", "control")
        ]
        if isinstance(found[0], str):
            assert found[1] == found[2] == found[0]
        else:
            check(*found)


def in_classes(patch: pytest.MonkeyPatch) -> None:
    """Have launches counted by warp classes, if these do not refuse."""
    patch.setattr(fewer, "_steps", lambda probe: MOST_STEPS)
    patch.setattr(fewer, "_quickly", lambda plan, standing, run: None)
    patch.setattr(fewer, "PART", 1 / fewer.RATE)


def run(
    kernel: ge.Kernel, backend: str, demand: str, grid: Any, block: Any, start: list[np.ndarray]
) -> ge.Profile | str:
    """The profile, or the kind of the error."""
    # races are looked for under ``values`` alone
    device = ge.Device(backend=backend, memory_bytes=1 << 22, max_instructions=100_000, races="off")
    arrays = [device.array(array, name=f"array{number}") for number, array in enumerate(start)]
    try:
        return device.launch(kernel, grid, block, arrays, demand=demand)
    except (ge.BudgetExceeded, ge.Deadlock) as error:
        return type(error).__name__


#: one size of each kernel: the last
EXAMPLES = {case.name.split("-")[0]: number for number, case in enumerate(SMALL)}


@pytest.mark.parametrize("number", EXAMPLES.values(), ids=lambda number: SMALL[number].name)
def test_examples(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first launches of each program, natively, with as few blocks as will do or, in every third, as it comes."""
    case = SMALL[number]
    if number % 3:
        in_classes(monkeypatch)
    module = ge.parse(case.text, path=str(case.ptx))
    for launch in case.program().launches[:2]:
        found = []
        for demand in ("values", "addresses", "control"):
            observe = set() if demand == "control" else {"memory", "footprint"}
            device = ge.Device(observe, memory_bytes=1 << 26)
            buffers = {id(item): item for item in launch.args if isinstance(item, np.ndarray) and item.shape}
            arrays = {key: device.array(item) for key, item in buffers.items()}
            args = [arrays.get(id(item), item) for item in launch.args]
            found.append(
                device.launch(
                    module[launch.entry],
                    launch.grid,
                    launch.block,
                    args,
                    shared_bytes=launch.shared_bytes,
                    demand=demand,
                )
            )
        check(*found)


THREAD = """
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %tid.y;
    mov.u32 %r2, %tid.z;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %ntid.y;
    mad.lo.u32 %r5, %r2, %r4, %r1;
    mad.lo.u32 %r5, %r5, %r3, %r0;
    mov.u32 %r6, %ctaid.x;
"""
#: count %r7 down to 0, which executes one branch more
COUNT_DOWN = """
LOOP:
    setp.eq.u32 %p1, %r7, 0;
    @%p1 bra DONE;
    sub.u32 %r7, %r7, 1;
    bra LOOP;
DONE:
    ret;
"""
SHAPES_OF_LAUNCHES: dict[str, tuple[str, Any, Any, tuple[int, int, int]]] = {
    # body, grid, block → thread instructions, branches executed, divergent
    "no branches": (THREAD + "ret;", 3, 33, (3 * 33 * 9, 0, 0)),
    "zero trips": (THREAD + "mov.u32 %r7, 0;" + COUNT_DOWN, 2, 40, (2 * 40 * (9 + 2 + 1), 2 * 2, 0)),
    "one thread": (THREAD + "mov.u32 %r7, 5;" + COUNT_DOWN, 4, 1, (4 * (9 + 5 * 4 + 2 + 1), 4 * 6, 0)),
    # lanes 0 to 7 of the second warp, which has 8: trips are the thread's index modulo 2, so the first test parts them
    "partial warp": (
        THREAD + "and.b32 %r7, %r5, 1;" + COUNT_DOWN,
        1,
        40,
        (40 * (9 + 3) + 20 * 4, 2 * 2, 2),
    ),
    # 4 x 3 x 5 = 60 threads: all those with z = 4 are in the second warp, from its lane 16 on
    "three dimensions": (
        THREAD + "setp.eq.u32 %p0, %r2, 4;\n@%p0 ret;\nadd.u32 %r5, %r5, 1;\nret;",
        (2, 1, 3),
        (4, 3, 5),
        (6 * (60 * 10 + 48 * 2), 6 * 2, 6),
    ),
    "one block parts, another does not": (
        THREAD + "add.u32 %r6, %r6, %r5;\nsetp.lt.u32 %p0, %r6, 31;\n@%p0 ret;\nret;",
        3,
        32,
        (32 * 11 * 3 + 1 + 2 + 3, 3, 3),
    ),
    "unreached code": (
        THREAD
        + "setp.gt.u32 %p0, %r5, 5000;\n@!%p0 ret;\nLOST: add.u32 %r7, %r7, 1;\nsetp.lt.u32 %p1, %r7, 9;\n"
        "@%p1 bra LOST;\nret;\nNEVER: add.u32 %r7, %r7, 1;\nbra NEVER;",
        1,
        64,
        (64 * 10, 2, 0),
    ),
}


@pytest.mark.parametrize("demand", ["control", "addresses", "values"])
@pytest.mark.parametrize("steps", [MOST_STEPS, 0], ids=["classes", "blocks"])
@pytest.mark.parametrize("name", SHAPES_OF_LAUNCHES)
def test_shapes_of_launches(
    name: str, steps: int, backend: str, demand: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if steps:
        in_classes(monkeypatch)
    body, grid, block, expected = SHAPES_OF_LAUNCHES[name]
    device = ge.Device(set(), backend=backend, memory_bytes=1 << 16)
    profile = device.launch(ge.parse(module(body), path="k.ptx")["k"], grid, block, demand=demand)
    branches = profile.branches
    assert (profile.thread_instructions, branches.executed, branches.divergent) == expected
    if demand == "control" and steps:
        assert profile.method == "classes", profile.method_reason


@pytest.mark.parametrize("demand", ["control", "addresses", "values"])
@pytest.mark.parametrize(
    "wait", ["cp.async.wait_group 0", "cp.async.bulk.wait_group 0", "cp.async.bulk.wait_group.read 0"]
)
def test_waits_for_copies_with_a_guard(wait: str, demand: str, backend: str) -> None:
    """A slice keeps the guard of an instruction without its operands."""
    body = f"mov.u32 %r0, %tid.x;\n setp.lt.u32 %p0, %r0, 5;\n @%p0 {wait};\n ret;"
    kernel = ge.parse(module(body).replace(".target sm_80", ".target sm_90"), path="k.ptx")["k"]
    device = ge.Device(set(), backend=backend, memory_bytes=1 << 16)
    profile = device.launch(kernel, 2, 64, demand=demand)
    # four instructions of 128 threads; 59 of each 64 do not wait
    assert (profile.thread_instructions, profile.thread_instructions_predicated_on) == (512, 512 - 2 * 59)
