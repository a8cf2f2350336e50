"""Tensor memory (tcgen05): kernels with it are parsed and counted; a run ends where a thread reaches it, with name and line."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.isa.effects import TENSOR

KERNEL = """.version 9.0
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 reached)
{
.reg .pred %p<3>;
.reg .b32 %r<9>;
.reg .b64 %rd<5>;
.shared .align 8 .b8 smem[32];
ld.param.u64 %rd1, [out];
ld.param.u32 %r1, [reached];
mov.u32 %r2, %tid.x;
setp.eq.u32 %p1, %r1, 0;
@%p1 bra DONE;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [smem], 32;
tcgen05.mma.cta_group::1.kind::f16 [%r3], %rd2, %rd3, %r4, %p2;
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [smem];
tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r5, %r6}, [%r3];
tcgen05.wait::ld.sync.aligned;
DONE:
mul.wide.u32 %rd4, %r2, 4;
add.u64 %rd4, %rd1, %rd4;
st.global.u32 [%rd4], %r2;
@BRANCH@
ret;
}
"""


def launch(backend: str, reached: int, branch: str = "", **options: object) -> tuple[ge.Profile, list[int]]:
    device = ge.Device(backend=backend)
    out = device.zeros(32, np.uint32)
    module = ge.parse(KERNEL.replace("@BRANCH@", branch), path="k.ptx")
    profile = device.launch(module["k"], 1, 32, [out, np.uint32(reached)], **options)  # type: ignore[arg-type]
    return profile, out.numpy().tolist() if not options else []


def test_not_reached(backend: str) -> None:
    profile, out = launch(backend, 0)
    assert out == list(range(32))
    assert profile.warp_instructions == 9


def test_reached(backend: str) -> None:
    with pytest.raises(ge.Unsupported, match=r"k\.ptx:15.*tcgen05\.alloc") as caught:
        launch(backend, 1)
    assert len(str(caught.value).splitlines()) <= 5


def test_counted_where_it_decides_nothing(backend: str) -> None:
    profile, _ = launch(backend, 1, demand="control")
    assert profile.warp_instructions == 14
    assert profile.opcodes["tcgen05.ld.sync.aligned.32x32b.x2.b32"] == 32


@pytest.mark.parametrize("register", ["%r5", "%r6"])
def test_refused_where_it_decides(backend: str, register: str) -> None:
    branch = f"setp.eq.u32 %p2, {register}, 7;\n@%p2 bra DONE;"
    with pytest.raises(ge.Unsupported, match=r"tcgen05\."):
        launch(backend, 1, branch, demand="control")


def test_refused_where_its_arrivals_decide(backend: str) -> None:
    """A wait for an mbarrier depends on the commit."""
    branch = "LOOP:\nmbarrier.test_wait.parity.shared.b64 %p2, [smem], 0;\n@!%p2 bra LOOP;"
    with pytest.raises(ge.Unsupported, match=r"tcgen05\."):
        launch(backend, 1, branch, demand="control")


def test_refused_where_addresses_are_asked_for(backend: str) -> None:
    with pytest.raises(ge.Unsupported, match=r"tcgen05\."):
        launch(backend, 1, demand="addresses")


def test_every_line_is_parsed_and_none_runs() -> None:
    from gpuperf_engine.isa.table import rows

    tensor = [row for row in rows() if row.name == "tcgen05"]
    assert len(tensor) > 50
    assert not any(row.runs for row in tensor)
    assert {row.effect for row in tensor} == {TENSOR}
