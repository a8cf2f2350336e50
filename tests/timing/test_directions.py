"""Changes with a known direction: what makes a kernel slower on every GPU makes its predicted time longer, for the right reason."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import load_machine, machine_ids
from gpuperf_engine.results import Estimate
from gpuperf_engine.timing.estimate import EXPANDED, MODELS

KERNELS = Path(__file__).parents[2] / "examples" / "kernels"
MACHINES = ("a100-sxm-80gb", "h100-sxm", "rtx-4090")
COUNTED = MODELS[0]
both = pytest.mark.parametrize("model", [COUNTED, EXPANDED])


@cache
def profile(stem: str, entry: str, grid: object, block: object, *args: object) -> ge.Profile:
    """A launch of an example kernel; an argument (shape, dtype) is an array of ones."""
    device = ge.Device()
    given = [device.array(np.ones(*arg)) if isinstance(arg, tuple) else arg for arg in args]
    text = (KERNELS / f"{stem}.ptx").read_text(encoding="utf-8")
    return device.launch(ge.parse(text, path=f"{stem}.ptx")[entry], grid=grid, block=block, args=given)


def sgemm(stage: str, size: int = 256) -> ge.Profile:
    grid, block = (
        ((size // 64, size // 64), 256) if stage == "register" else ((size // 16, size // 16), (16, 16))
    )
    matrices = [((size, size), np.float32)] * 3
    return profile("sgemm", f"sgemm_{stage}", grid, block, *[np.int32(size)] * 3, *matrices)


def transpose(kind: str, size: int = 512) -> ge.Profile:
    matrices = [((size, size), np.float32)] * 2
    return profile(
        "transpose", f"transpose_{kind}", (size // 32, size // 32), (32, 8), *[np.int32(size)] * 2, *matrices
    )


def saxpy(size: int) -> ge.Profile:
    arrays = [((size,), np.float32)] * 2
    return profile("saxpy", "saxpy", size // 256, 256, np.int32(size), np.float32(2), *arrays)


def on(machine: str, run: ge.Profile, model: str = COUNTED) -> Estimate:
    found = ge.estimate(run, machine, model=model)
    assert found.model == model
    return found


@both
@pytest.mark.parametrize("machine", MACHINES)
def test_each_stage_of_sgemm_is_faster(machine: str, model: str) -> None:
    naive, coalesced, tiled = (on(machine, sgemm(stage), model) for stage in ("naive", "coalesced", "tiled"))
    assert naive.time_us > 1.2 * coalesced.time_us
    assert coalesced.time_us > 1.2 * tiled.time_us
    if (
        model == COUNTED
    ):  # on a simulated SM, L1 still holds some of what the next turn of the naive loop reads
        assert naive.bounds["l2"] > 2 * coalesced.bounds["l2"]


@cache
def transposes() -> dict[str, ge.Profile]:
    """Of 1024² floats, by way of shared memory or by stores of single words."""
    lines = (
        "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ctaid.y; mov.u32 %r4, %tid.x; mov.u32 %r5, %tid.y;",
        "mad.lo.u32 %r6, %r2, 32, %r4; mad.lo.u32 %r7, %r3, 32, %r5;",
        *(
            f"add.u32 %r8, %r7, {8 * row}; mad.lo.u32 %r9, %r8, %r1, %r6; mul.wide.u32 %q3, %r9, 4; add.s64 %q3, %q3, %q1; "
            f"ld.global.u32 %v{row}, [%q3];"
            for row in range(4)
        ),
        *(
            f"add.u32 %r8, %r7, {8 * row}; mad.lo.u32 %r9, %r6, %r1, %r8; mul.wide.u32 %q3, %r9, 4; add.s64 %q3, %q3, %q2; "
            f"st.global.u32 [%q3], %v{row};"
            for row in range(4)
        ),
    )
    naive = "\n".join(
        [
            ".version 7.0\n.target sm_70\n.address_size 64",
            ".visible .entry transpose_naive(.param .u32 h, .param .u32 w, .param .u64 a, .param .u64 b)\n{",
            ".reg .b32 %r<10>, %v<4>; .reg .b64 %q<4>;",
            "ld.param.u32 %r1, [w]; ld.param.u64 %q1, [a]; ld.param.u64 %q2, [b];",
            *lines,
            "ret;\n}\n",
        ]
    )
    shared = (KERNELS / "transpose.ptx").read_text(encoding="utf-8").replace(".target sm_80", ".target sm_70")
    runs = {}
    for name, text in (("naive", naive), ("padded", shared)):
        device, size = ge.Device(), np.int32(1024)
        arrays = [device.zeros((1024, 1024), np.float32) for _ in range(2)]
        kernel = ge.parse(text, path="transpose.ptx")[f"transpose_{name}"]
        runs[name] = device.launch(kernel, (32, 32), (32, 8), [size, size, *arrays], demand="addresses")
    return runs


@pytest.mark.parametrize(
    "machine", [name for name in machine_ids() if load_machine(name).compute_capability >= (7, 0)]
)
def test_stores_of_single_words_are_slower_than_a_detour_through_shared_memory(machine: str) -> None:
    naive, padded = (ge.estimate(transposes()[name], machine, model=EXPANDED) for name in ("naive", "padded"))
    assert naive.time_us > 1.2 * padded.time_us


@both
@pytest.mark.parametrize("machine", MACHINES)
def test_bank_conflicts_cost_shared_memory_time(machine: str, model: str) -> None:
    conflicts, padded = (on(machine, transpose(kind), model) for kind in ("conflicts", "padded"))
    assert conflicts.bounds["shared"] > 8 * padded.bounds["shared"]
    assert conflicts.bounds["latency"] > padded.bounds["latency"]
    assert conflicts.time_us > padded.time_us or conflicts.limiter == "dram"
    assert conflicts.bounds["dram"] == padded.bounds["dram"]


@both
def test_a_long_saxpy_is_bound_by_dram_and_ranks_the_machines_by_bandwidth(model: str) -> None:
    run = saxpy(1 << 21)
    found = {machine: on(machine, run, model) for machine in MACHINES}
    assert {estimate.limiter for estimate in found.values()} == {"dram"}
    order = sorted(found, key=lambda machine: found[machine].time_us)
    assert order == ["h100-sxm", "a100-sxm-80gb", "rtx-4090"]
    # 12 bytes per element at the sustained rate, and the launch.
    for machine, estimate in found.items():
        least = 12 * (1 << 21) / data_sheet_bandwidth(machine) / 1e3
        assert least < estimate.time_us < 1.25 * least + 2


def data_sheet_bandwidth(machine: str) -> float:
    """GB/s of the data sheet."""
    return {"a100-sxm-80gb": 2039, "h100-sxm": 3350, "rtx-4090": 1008}[machine]


@both
def test_a_tiny_kernel_is_its_launch(model: str) -> None:
    assert {on(machine, saxpy(256), model).limiter for machine in MACHINES} == {"launch"}


@both
def test_more_of_the_same_takes_longer(model: str) -> None:
    times = [on("a100-sxm-80gb", saxpy(1 << bits), model).time_us for bits in (10, 14, 18, 20, 21)]
    assert times == sorted(times)


@both
def test_predictions_do_not_depend_on_names_and_comments(model: str) -> None:
    text = (KERNELS / "saxpy.ptx").read_text(encoding="utf-8")
    renamed = (
        text.replace("%rd", "%address").replace("%f", "%value").replace("$L__BB", "$BLOCK")
        + "\n// a remark\n"
    )
    found = []
    for version in (text, renamed):
        device = ge.Device()
        x, y = (device.array(np.ones(4096, np.float32)) for _ in range(2))
        run = device.launch(
            ge.parse(version)["saxpy"], grid=16, block=256, args=[np.int32(4096), np.float32(2), x, y]
        )
        found.append(on("h100-sxm", run, model))
    assert found[0] == found[1]


@cache
def strided(stride: int, threads: int = 1 << 16) -> ge.Profile:
    """Threads, each of which scales one float; ``stride`` floats apart."""
    text = """
.version 7.0
.target sm_60
.address_size 64
.visible .entry k(.param .u64 data)
{
.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>;
ld.param.u64 %rd1, [data]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
mad.lo.u32 %r4, %r1, %r2, %r3; mul.wide.u32 %rd2, %r4, STRIDE; add.s64 %rd3, %rd1, %rd2;
ld.global.f32 %f1, [%rd3]; add.f32 %f1, %f1, %f1; st.global.f32 [%rd3], %f1;
ret;
}
""".replace("STRIDE", str(4 * stride))
    device = ge.Device(memory_bytes=1 << 33)
    kernel, array = ge.parse(text, path="k.ptx")["k"], device.empty(stride * threads, np.float32)
    return device.launch(kernel, grid=threads // 256, block=256, args=[array], demand="addresses")


def any_target(run: ge.Profile) -> ge.Profile:
    """The profile of PTX that says it needs a later GPU than it does."""
    return replace(run, target="sm_60")


@pytest.mark.parametrize("machine", machine_ids())
def test_a_stride_of_a_sector_or_more_costs_whole_sectors(machine: str) -> None:
    """2²⁴ floats, each in a sector of 32 bytes of its own from a stride of 8 on, as the CUDA C++ Best Practices Guide measures
    ("Strided Accesses"): 1 GiB is read and written in place of 128 MiB, by the same instructions. Nothing moves it faster than
    the data sheet's rate, nothing makes it take more than 8 times as long, and a longer stride costs no more."""
    count = 1 << 24
    found = [on(machine, strided(stride, count)) for stride in (1, 8, 32)]
    dense, sectors, apart = (estimate.time_us - estimate.launch_us for estimate in found)
    assert sectors >= 2 * 32 * count / load_machine(machine).dram_bandwidth / 1000
    assert dense >= 2 * 4 * count / load_machine(machine).dram_bandwidth / 1000
    assert sectors <= 8.001 * dense
    assert apart == pytest.approx(sectors, rel=1e-3)


@pytest.mark.parametrize("machine", machine_ids())
def test_known_losses_have_their_direction_everywhere(machine: str) -> None:
    times = [on(machine, run).time_us for run in map(strided, (1, 2, 8, 32))]
    assert times == sorted(times) and times[3] > times[0]
    padded, conflicts = (on(machine, any_target(transpose(kind))) for kind in ("padded", "conflicts"))
    assert conflicts.time_us >= padded.time_us
    assert conflicts.bounds["latency"] > padded.bounds["latency"]
    tiled, coalesced, naive = (
        on(machine, any_target(sgemm(stage))).time_us for stage in ("tiled", "coalesced", "naive")
    )
    assert tiled < coalesced < naive
