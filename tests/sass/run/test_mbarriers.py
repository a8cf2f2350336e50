"""Barriers of the CUDA C++ library as machine code: states in memory before Hopper, and loops over the barriers of lanes from then
on."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.sass.code import counted_code
from gpuperf_engine.timing.models.simulation import numbers_of
from tests.cuda import compiled
from tests.support import head, needs_assembler

pytestmark = needs_assembler


def launched(
    file: str, kernel: str, grid: int, block: int, values: list[np.ndarray | np.generic]
) -> ge.Profile:
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 24)
    module = ge.parse(compiled.ptx(f"cuda/kernels/{file}"), path=f"{file}.ptx")
    args = [device.array(value) if isinstance(value, np.ndarray) else value for value in values]
    return device.launch(module[kernel], grid, block, args)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_89", "sm_100a"])
def test_arrivals_and_waits(architecture: str) -> None:
    """Two blocks of three warps arrive twice in each of four rounds, and each wait is one test."""
    profile = launched("barriers", "ring", 2, 96, [np.zeros(192, np.int32), np.int32(4)])
    code = counted_code(profile, architecture)
    assert (code.ways, code.residue) == ("flow and run", 0.0), code.notes
    arrivals = sum(
        item.warps for item in code.instructions if item.text.startswith(("ATOMS.ARRIVE", "SYNCS.ARRIVE"))
    )
    assert arrivals == 2 * 3 * 4 * 2


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a", "sm_120a"])
def test_copies_and_roles(architecture: str) -> None:
    """Copies arrive, warps have roles, threads leave: a state counts fewer arrivals from then on."""
    x = np.arange(2048, dtype=np.int32)
    rows = np.arange(6 * 64, dtype=np.float32).reshape(6, 64)
    for profile in (
        launched("barriers", "copies", 4, 64, [x, np.zeros_like(x)]),
        launched("barriers", "drops", 2, 96, [np.zeros(2, np.int32)]),
        launched("barriers", "partitioned", 1, 96, [rows, np.zeros(64, np.float32), np.int32(6)]),
    ):
        code = counted_code(profile, architecture)
        # of the one with roles, the last thread to leave executes five instructions more: the order of threads decides
        assert code.ways == "flow and run" and code.residue < 0.01, code.notes


@pytest.mark.parametrize("architecture", ["sm_80", "sm_120a"])
def test_copies_of_some_bytes(architecture: str) -> None:
    """16, 8, 0 and 3 bytes of 16; the others become zero. Each seventh lane copies nothing."""
    given = np.random.default_rng(2).integers(0, 256, (32, 16), np.uint8)
    values = [given.view(np.uint32), np.zeros((32, 4), np.uint32), np.zeros((32, 4), np.uint32)]
    profile = launched("async_copy", "partial", 1, 32, list(values))
    code = counted_code(profile, architecture)
    assert (code.ways, code.residue) == ("flow and run", 0.0), code.notes
    assert sum(item.threads for item in code.instructions if "ZFILL" in item.text) in (28, 32)


@pytest.mark.parametrize("architecture", ["sm_90a", "sm_100a", "sm_120a"])
def test_clusters_of_the_launch(architecture: str) -> None:
    """The code asks whether the launch has clusters: each of the four warps arrives twice at the barrier of its cluster."""
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 24)
    kernel = ge.parse(compiled.ptx("cuda/kernels/clusters"), path="clusters.ptx")["pairs"]
    out = device.zeros((128, 8), np.uint32)
    profile = device.launch(kernel, 4, 32, [out, np.uint32(7)], cluster=2)
    code = counted_code(profile, architecture)
    assert (code.ways, code.residue) == ("flow and run", 0.0), code.notes
    assert code.by_opcode["UCGABAR_ARV"] == code.by_opcode["UCGABAR_WAIT"] == 4 * 2


@pytest.mark.parametrize("architecture", ["sm_89", "sm_90a", "sm_120a"])
def test_grids_that_synchronise(architecture: str) -> None:
    """The workspace of a cooperative launch is in bank 0. How often a block polls it depends on the order of threads."""
    x = np.arange(128, dtype=np.int32)
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 24)
    kernel = ge.parse(compiled.ptx("cuda/kernels/warps"), path="warps.ptx")["whole_grid"]
    args = [device.array(x), device.zeros(4, np.int32), device.zeros(128, np.int32)]
    code = counted_code(device.launch(kernel, 2, 64, args, cooperative=True), architecture)
    assert (args[2].numpy() == x.sum()).all()
    assert "run" in code.ways, code.notes
    assert len(code.notes) == 1 and "the order in which threads run decides" in code.notes[0]


#: Each block of the grid adds 1 to a word of its own in each round, and then waits for the grid; the library's code by hand.
GRID = """.visible .entry k(.param .u64 out)
{
.reg .b64 %q<6>; .reg .b32 %r<20>; .reg .pred %p<5>;
ld.param.u64 %q1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %nctaid.x;
mov.u32 %r4, %envreg2; mov.u32 %r5, %envreg1; mov.b64 %q2, {%r4, %r5}; add.s64 %q2, %q2, 4;
mad.wide.u32 %q3, %r2, 4, %q1; mov.u32 %r6, 0; setp.ne.s32 %p1, %r1, 0;
ROUND: @!%p1 red.global.add.u32 [%q3], 1; barrier.sync 0; @%p1 bra MEET;
setp.eq.u32 %p2, %r2, 0; mov.u32 %r7, -2147483647; sub.s32 %r7, %r7, %r3; selp.b32 %r7, %r7, 1, %p2;
atom.add.release.gpu.u32 %r8, [%q2], %r7;
POLL: ld.acquire.gpu.u32 %r9, [%q2]; xor.b32 %r10, %r9, %r8; setp.gt.s32 %p3, %r10, -1; @%p3 bra POLL;
MEET: barrier.sync 0; add.u32 %r6, %r6, 1; setp.lt.u32 %p4, %r6, @; @%p4 bra ROUND;
ret;
}
"""


@pytest.mark.parametrize("machine", ["t4", "a100-sxm-40gb", "rtx-4090", "h100-sxm", "b200", "rtx-5090"])
def test_simulated_waits_for_the_grid(machine: str) -> None:
    """A grid of one block never polls twice. Each wait takes an atomic, of which the load behind it needs the result."""
    times = []
    for rounds in (2, 6):
        device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 24)
        out = device.zeros(1, np.uint32)
        text = head("8.7", "sm_75") + GRID.replace("@;", f"{rounds};")
        profile = device.launch(ge.parse(text, path="k.ptx")["k"], 1, 64, [out], cooperative=True)
        assert out.numpy().tolist() == [rounds]
        time = ge.estimate(profile, machine, model="simulation")
        assert time.model == "simulation", time.notes
        executed = ge.machine_code(profile, machine)
        assert sum(item.issued for item in time.stalled) == executed.warp_instructions
        times.append(time.cycles)
    latencies = numbers_of(load_machine(machine)).latencies
    assert times[1] - times[0] > 4 * 2 * latencies["l2"]


def test_waits_for_the_grid_may_not_decide() -> None:
    """What is loaded behind a wait may be from another block, which the trace does not run."""
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 24)
    out = device.zeros(1, np.uint32)
    text = head("8.7", "sm_75") + GRID.replace("%r6, @;", "%r10, 2;").replace(
        "barrier.sync 0; add.u32", "ld.global.u32 %r10, [%q3]; barrier.sync 0; add.u32"
    )
    profile = device.launch(ge.parse(text, path="k.ptx")["k"], 1, 64, [out], cooperative=True)
    time = ge.estimate(profile, "a100-sxm-40gb", model="simulation")
    assert time.model == "kleimenov-popova" and "it synchronises the grid" in time.notes[0]


@pytest.mark.parametrize("architecture", ["sm_80", "sm_89"])
def test_groups_of_several_warps(architecture: str) -> None:
    """Their barriers are in reserved shared memory, at an address in bank 0."""
    x = np.random.default_rng(1).integers(0, 8, 256).astype(np.int32)
    profile = launched("warps", "large_tiles", 2, 128, [x, np.zeros_like(x)])
    code = counted_code(profile, architecture)
    assert "run" in code.ways, code.notes


#: Each of N rounds waits for copies of its own by one mbarrier, and adds what another thread has copied.
ROUNDS = 6
IN_ROUNDS = """.visible .entry k(.param .u64 out, .param .u64 in)
{{
.reg .b64 %q<6>; .reg .b32 %r<10>; .reg .pred %p<4>;
.shared .align 8 .b64 bar; .shared .align 16 .b32 tile[64];
ld.param.u64 %q1, [out]; ld.param.u64 %q2, [in]; mov.u32 %r1, %tid.x; mov.u32 %r2, tile; setp.eq.u32 %p1, %r1, 0;
mad.wide.u32 %q1, %r1, 4, %q1; mad.wide.u32 %q2, %r1, 4, %q2; mad.lo.u32 %r3, %r1, 4, %r2; xor.b32 %r4, %r1, 63;
mad.lo.u32 %r4, %r4, 4, %r2; mov.u32 %r5, 0; mov.u32 %r6, 0;
@%p1 mbarrier.init.shared.b64 [bar], 64;
bar.sync 0;
ROUND: cp.async.ca.shared.global [%r3], [%q2], 4;
cp.async.mbarrier.arrive.shared.b64 [bar];
mbarrier.arrive.shared.b64 %q3, [bar];
and.b32 %r7, %r6, 1;
WAIT: mbarrier.test_wait{parity}.shared.b64 %p2, [bar], {state};
@!%p2 bra WAIT;
ld.shared.u32 %r8, [%r4]; add.u32 %r5, %r5, %r8; bar.sync 0;
add.u64 %q2, %q2, 256; add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, {rounds};
@%p3 bra ROUND;
st.global.u32 [%q1], %r5;
ret;
}}
"""


@pytest.mark.parametrize(("parity", "state"), [("", "%q3"), (".parity", "%r7")])
@pytest.mark.parametrize("machine", ["a100-sxm-40gb", "rtx-4090"])
def test_simulated_waits_for_copies_of_unknown_values(machine: str, parity: str, state: str) -> None:
    """Without what the copies read, which is all that a wait could need of memory. Each round waits as long as its copies take."""
    text = head("8.0", "sm_80") + IN_ROUNDS.format(parity=parity, state=state, rounds=ROUNDS)
    kernel = ge.parse(text, path="k.ptx")["k"]
    times: list[ge.Estimate] = []
    for observe in ({"memory", "inputs"}, {"memory"}):
        device = ge.Device(observe=observe, memory_bytes=1 << 24)
        given = np.arange(64 * ROUNDS, dtype=np.uint32)
        out = device.zeros(64, np.uint32)
        profile = device.launch(kernel, 1, 64, [out, device.array(given)])
        assert np.array_equal(out.numpy(), given.reshape(ROUNDS, 64)[:, ::-1].sum(0))
        times.append(ge.estimate(profile, machine, model="simulation"))
        assert times[-1].model == "simulation", times[-1].notes
        if "inputs" in observe:
            executed = ge.machine_code(profile, machine)
    assert times[0].cycles == times[1].cycles
    assert sum(item.issued for item in times[1].stalled) == executed.warp_instructions
    waited = sum(item.stalls.get("mbarrier", 0.0) for item in times[1].stalled)
    latency = numbers_of(load_machine(machine)).latencies["l2"]
    # less what a warp does between its copies and its wait; both warps wait
    assert waited > 2 * ROUNDS * (latency - 60)
