"""From real launches to predictions: counts, paths and footprints of small PTX kernels, worked out by hand on the toy machine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.errors import MachineError, NotObserved
from gpuperf_engine.machines.machine import Machine
from gpuperf_engine.results import Resources
from gpuperf_engine.timing.launch.adapt import timing_input
from gpuperf_engine.timing.launch.inputs import Block, Instruction, Loop, Path, TimingInput
from gpuperf_engine.timing.launch.schedule import schedule
from tests.timing.counted import estimate

HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"


def kernel(body: str, *, arrays: int = 1, before: str = "") -> str:
    parameters = ", ".join(f".param .u64 p{index}" for index in range(arrays))
    pointers = "".join(f"ld.param.u64 %rd{index}, [p{index}];\n" for index in range(arrays))
    registers = ".reg .pred %p<9>; .reg .b32 %r<19>; .reg .b64 %rd<29>; .reg .f32 %f<19>; .reg .f64 %fd<9>;\n"
    return f"{HEADER}{before}.visible .entry k({parameters})\n{{\n{registers}{pointers}{body}\nret;\n}}\n"


def run(text: str, *, grid: int = 1, block: int = 32, arrays: int = 1, elements: int = 4096) -> ge.Profile:
    device = ge.Device()
    given = [device.array(np.ones(elements, np.float32)) for _ in range(arrays)]
    return device.launch(ge.parse(text, path="k.ptx")["k"], grid=grid, block=block, args=given)


def adapted(profile: ge.Profile, machine: Machine) -> TimingInput:
    return timing_input(profile.records[0], machine, profile.resources)


INDEX = "mov.u32 %r1, %tid.x; mul.wide.u32 %rd10, %r1, 4; add.s64 %rd11, %rd0, %rd10;\n"


def test_counts_are_machine_instructions(toy: Machine) -> None:
    text = kernel(
        INDEX
        + "ld.global.f32 %f1, [%rd11]; fma.rn.f32 %f2, %f1, %f1, %f1; add.s64 %rd12, %rd11, 4;"
        + "st.global.f32 [%rd12], %f2;"
    )
    given = adapted(run(text, grid=3, block=48), toy)
    # 6 warps. ld.param and mov cost nothing; each 64-bit add is two; ret is the branch unit's.
    assert given.warp_instructions == {"imad": 6, "alu": 24, "lsu": 12, "fma": 6, "cbu": 6}
    assert (given.grid, given.block, given.ctas, given.warps_per_cta) == ((3, 1, 1), (48, 1, 1), 3, 2)


def test_a_loop_is_followed_by_its_trips(toy: Machine) -> None:
    text = kernel(
        "mov.u32 %r1, 0;\nmov.f32 %f1, 0f3F800000;\nL: fma.rn.f32 %f1, %f1, %f1, %f1;\nadd.u32 %r1, %r1, 1;\n"
        "setp.lt.u32 %p1, %r1, 100;\n@%p1 bra L;\n"
    )
    given = adapted(run(text), toy)
    (loop,) = [part for part in given.path if isinstance(part, Loop)]
    assert loop.trips == 100
    assert given.warp_instructions == {"fma": 100, "alu": 200, "cbu": 101}
    # Per iteration: add at 0, setp at 5, the branch at 10, the next add at 11; ret comes last, the last fma ends within.
    found = estimate(given, toy)
    assert found.cycles == pytest.approx(100 + 1100 + 1)
    assert found.limiter == "latency" or found.launch_us > found.cycles / 1000


def test_loops_nest_and_branches_count_by_their_share(toy: Machine) -> None:
    text = kernel(
        "mov.u32 %r9, %tid.x;\nmov.u32 %r1, 0;\n"
        "A: mov.u32 %r2, 0;\n"
        "B: add.u32 %r2, %r2, 1;\nsetp.lt.u32 %p1, %r2, 7;\n@%p1 bra B;\n"
        "and.b32 %r3, %r1, 1;\nsetp.eq.u32 %p3, %r3, 0;\n@%p3 bra C;\n"
        "fma.rn.f32 %f1, %f1, %f1, %f1;\n"
        "C: add.u32 %r1, %r1, 1;\nsetp.lt.u32 %p2, %r1, 4;\n@%p2 bra A;\n"
    )
    given = adapted(run(text), toy)
    (outer,) = [part for part in given.path if isinstance(part, Loop)]
    (inner,) = [part for part in outer.body if isinstance(part, Loop)]
    assert (outer.trips, inner.trips) == (4, 7)
    shares = [part.weight for part in outer.body if isinstance(part, Block) and _units(part) == ["fma"]]
    assert shares == [0.5]
    assert given.warp_instructions["fma"] == 2


def _units(part: Block) -> list[str]:
    return [item.unit for item in part.instructions]


def test_a_called_function_lies_on_the_path(toy: Machine) -> None:
    function = (
        ".func (.param .b32 out) twice(.param .b32 in)\n{\n.reg .f32 %g<3>;\nld.param.f32 %g1, [in];\n"
        "add.f32 %g2, %g1, %g1;\nadd.f32 %g2, %g2, %g2;\nst.param.f32 [out], %g2;\nret;\n}\n"
    )
    text = kernel(
        "mov.f32 %f1, 0f3F800000;\n{ .param .b32 a; .param .b32 b; st.param.f32 [a], %f1;\n"
        "call (b), twice, (a);\nld.param.f32 %f2, [b]; }\n",
        before=function,
    )
    given = adapted(run(text), toy)
    assert given.warp_instructions["fma"] == 2
    assert _count(given.path, "fma") == 2


def _count(path: Path, unit: str) -> float:
    return sum(
        part.trips * _count(part.body, unit)
        if isinstance(part, Loop)
        else part.weight * _units(part).count(unit)
        for part in path
    )


def test_path_and_counts_agree(toy: Machine) -> None:
    text = kernel(
        "mov.u32 %r1, %tid.x;\nshr.u32 %r1, %r1, 5;\nmov.u32 %r2, 0;\n"
        "L: add.u32 %r2, %r2, 1;\nfma.rn.f32 %f1, %f1, %f1, %f1;\nsetp.le.u32 %p1, %r2, %r1;\n@%p1 bra L;\n"
    )
    given = adapted(run(text, block=256), toy)
    # Eight warps with 1 to 8 iterations: the average warp has 4.5.
    assert _count(given.path, "fma") == pytest.approx(4.5)
    assert given.warp_instructions["fma"] == 36


def test_barriers_and_shared_memory(toy: Machine) -> None:
    text = kernel(
        ".shared .align 4 .b8 tile[4096];\nmov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 7; mov.u32 %r3, tile;"
        "add.u32 %r4, %r3, %r2;\nmov.u32 %r5, 0; st.shared.u32 [%r4], %r5;\nbar.sync 0;\nbar.sync 0;\n"
    )
    given = adapted(run(text), toy)
    assert given.barriers == 2
    # A stride of 128 bytes: all lanes in one bank.
    assert given.memory.shared_wavefronts == 32
    assert given.shared_bytes == 4096


def test_footprint_counts_an_array_once(toy: Machine) -> None:
    loads = "".join(f"ld.global.f32 %f{index}, [%rd11+{4 * index}];" for index in range(4))
    text = kernel(INDEX + loads + "add.s64 %rd12, %rd1, %rd10; st.global.f32 [%rd12], %f1;", arrays=3)
    memory = adapted(run(text, arrays=3, elements=40), toy).memory
    # Four loads of 32 lanes: 4 sectors and 5 + 5 + 5 where they are shifted; the array of 160 bytes has 5.
    assert memory.load_sectors == 19
    assert memory.read_footprint == 160
    assert (memory.store_sectors, memory.write_footprint) == (4, 128)


def test_footprint_of_a_pointer_that_walks(toy: Machine) -> None:
    text = kernel(
        INDEX
        + "mov.u32 %r2, 0;\nL: ld.global.f32 %f1, [%rd11];\nadd.s64 %rd11, %rd11, 0;\nadd.u32 %r2, %r2, 1;\n"
        "setp.lt.u32 %p1, %r2, 10;\n@%p1 bra L;\n",
        arrays=2,
    )
    memory = adapted(run(text, arrays=2, elements=64), toy).memory
    assert memory.load_sectors == 40
    assert memory.read_footprint == 256


def test_footprint_of_a_module_variable(toy: Machine) -> None:
    text = kernel(
        "mov.u64 %rd1, table; ld.global.f32 %f1, [%rd1]; ld.global.f32 %f2, [table+4]; ld.global.f32 %f3, [%rd1+8];",
        before=".global .align 4 .b8 table[32];\n",
    )
    memory = adapted(run(text), toy).memory
    assert (memory.load_sectors, memory.read_footprint) == (3, 32)


def test_several_launches_add_up(toy: Machine) -> None:
    text = kernel(INDEX + "st.global.f32 [%rd11], %f1;")
    device = ge.Device()
    array = device.zeros(4096, np.float32)
    loaded = ge.parse(text, path="k.ptx")["k"]
    profiles = [device.launch(loaded, grid=grid, block=32, args=[array]) for grid in (1, 1, 2)]
    single = [estimate(profile, toy) for profile in profiles]
    both = estimate(ge.add_profiles(profiles), toy)
    assert both.time_us == pytest.approx(sum(found.time_us for found in single))
    assert both.launch_us == 3
    assert both.bounds["latency"] == pytest.approx(sum(found.bounds["latency"] for found in single))


def test_resources_may_be_given(toy: Machine) -> None:
    profile = run(kernel(INDEX + "st.global.f32 [%rd11], %f1;"))
    given = estimate(profile, toy, resources=Resources(32, 40_000, 0, "ptxas 13.5"))
    assert given.ctas_per_sm == 1
    assert given.occupancy_limiter == "shared"
    assert "registers and shared memory: ptxas 13.5" in given.notes


def test_ptx_for_a_later_machine_is_refused(toy: Machine) -> None:
    profile = run(kernel(INDEX).replace("sm_80", "sm_90a"))
    with pytest.raises(
        MachineError, match=r"PTX for sm_90a cannot run on toy \(compute capability 8\.0\)"
    ) as caught:
        estimate(profile, toy)
    assert "kernel k of k.ptx" in str(caught.value)
    assert estimate(profile, "h100-sxm").time_us > 1


def test_memory_must_have_been_observed(toy: Machine) -> None:
    device = ge.Device(observe=())
    array = device.zeros(32, np.float32)
    text = kernel(INDEX + "st.global.f32 [%rd11], %f1;")
    profile = device.launch(ge.parse(text, path="k.ptx")["k"], grid=1, block=32, args=[array])
    with pytest.raises(NotObserved, match="predicted time of 'k' needs its memory behaviour") as caught:
        estimate(profile, toy)
    assert 'observe={"memory"}' in str(caught.value)


def test_a_profile_without_launches_is_refused(toy: Machine) -> None:
    profile = replace(run(kernel(INDEX)), records=())
    with pytest.raises(NotObserved, match="holds no launch"):
        estimate(profile, toy)


def test_loads_are_moved_up_but_not_over_stores(toy: Machine) -> None:
    latencies = {**toy.latencies, "global": 400.0}
    load = [Instruction("lsu", "global", (0,), (index,)) for index in (1, 2)]
    use = [Instruction("fma", "fma", (index,), (index + 10,)) for index in (1, 2)]
    assert schedule([load[0], use[0], load[1], use[1]], latencies) == (*load, *use)
    store = Instruction("lsu", "none", (11, -1), (-1,))
    behind = replace(load[1], reads=(0, -1))
    assert schedule([load[0], use[0], store, behind, use[1]], latencies) == (
        load[0],
        use[0],
        store,
        behind,
        use[1],
    )
    branch = Instruction("cbu")
    assert schedule([use[0], load[0], branch], latencies)[-1] is branch


def test_ptx_order_of_loads_does_not_matter(toy: Machine) -> None:
    def cycles(lines: list[str]) -> float:
        return estimate(run(kernel(INDEX + "\n".join(lines)), elements=4096), toy).cycles

    loads = [f"ld.global.f32 %f{index}, [%rd11+{128 * index}];" for index in (1, 2, 3)]
    uses = [f"fma.rn.f32 %f9, %f{index}, %f{index}, %f9;" for index in (1, 2, 3)]
    written = [line for pair in zip(loads, uses, strict=True) for line in pair]
    store = ["st.global.f32 [%rd11], %f9;"]
    assert cycles(written + store) == cycles(loads + uses + store)
