"""Bulk and tensor copies, mbarriers and products of warpgroups in ``model="simulation"``, from PTX of our own and of the examples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.timing.machine import load_machine
from tests.support import needs_assembler

pytestmark = needs_assembler
KERNELS = Path(__file__).parents[3] / "examples" / "kernels"
#: copies so many bytes %r1 times, one copy after the other; then runs ``END``
CHASE = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u32 turns, .param .align 64 .b8 unused[64], .param .u64 a)
{
.reg .b32 %r<12>; .reg .b64 %q<8>; .reg .pred %p<4>;
.shared .align 128 .b8 tile[4096];
.shared .align 8 .b64 full;
ld.param.u32 %r1, [turns]; ld.param.u64 %q1, [a];
mov.u32 %r2, tile; mov.u32 %r3, full; mov.u32 %r4, 0; mov.u32 %r5, 0;
mbarrier.init.shared::cta.b64 [%r3], 1;
L:
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 1024;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%q1], 1024, [%r3];
W:
mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r3], %r5;
@!%p1 bra W;
END
xor.b32 %r5, %r5, 1; add.u64 %q1, %q1, 1024; add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, %r1;
@%p2 bra L;
ret;
}
"""


def chased(ends: str, machine: str = "h100-sxm") -> ge.Estimate:
    device = ge.Device(races="off")
    kernel = ge.parse(CHASE.replace("END", ends), path="chase.ptx")["k"]
    profile = device.launch(kernel, 1, 1, [np.int32(64), bytes(64), device.zeros(1 << 16, np.uint8)])
    return ge.estimate(profile, machine, model="simulation")


@pytest.mark.parametrize("name", ["h100-sxm", "b200"])
def test_a_chase_of_bulk_copies_takes_their_latency(name: str) -> None:
    found = chased("ld.shared.u32 %r6, [%r2]; add.u32 %r2, %r2, 0; st.shared.u32 [%r2+4], %r6;", name)
    machine = load_machine(name)
    assert found.model == "simulation"
    # beside the latency, which is that of a few bytes, what 1024 take through the port
    step = (found.cycles - machine.cta_turnaround) / 64
    assert step == pytest.approx(machine.latencies["tma_dram"] + 1024 / machine.l2_sm_bandwidth, rel=0.05)
    assert found.bounds["l2"] < found.time_us


def test_what_copies_bring_may_not_decide() -> None:
    found = chased("ld.shared.u32 %r6, [%r2]; setp.eq.u32 %p3, %r6, 77; @%p3 bra L;")
    assert found.model != "simulation"
    assert "shared memory, where copies write, decides" in found.notes[0]


def product(entry: str, file: str, size: int, depth: int) -> ge.Estimate:
    device = ge.Device(races="off")
    a, b = (device.zeros((size, depth), np.float16) for _ in range(2))
    c = device.zeros((size, size), np.float32)
    if entry == "hgemm_tma":
        a, b = (ge.TensorMap(item, (128, 64), swizzle="128B") for item in (a, b))  # type: ignore[assignment]
    kernel = ge.parse((KERNELS / f"{file}.ptx").read_text(encoding="utf-8"), path=file)[entry]
    arguments = [np.int32(size), np.int32(depth), a, b, c]
    profile = device.launch(kernel, (size // 128, size // 128), 384, arguments, shared_bytes=98304)
    return ge.estimate(profile, "h100-sxm", model="simulation")


def test_products_of_the_examples() -> None:
    """Tensor copies beat copies of threads."""
    tma = product("hgemm_tma", "warpgroup_gemm_tma", 256, 512)
    specialised = product("hgemm_specialised", "warpgroup_gemm", 256, 512)
    found = (tma, specialised)
    assert {item.model for item in found} == {"simulation"}
    assert 1.1 * tma.time_us < specialised.time_us
    # of one CTA 8 stages of two times four products of 64 clocks, on the one SM that has most
    h100 = load_machine("h100-sxm")
    busy = 8 * 2 * 4 * 64
    assert tma.bounds["tensor"] == pytest.approx(h100.microseconds(busy, busy / tma.cycles))
    assert all(item.time_us >= max(item.bounds.values()) for item in found)
