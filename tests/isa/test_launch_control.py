"""``clusterlaunchcontrol``: requests for clusters that have not started, and what mbarriers and responses tell of them."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge

HEAD = ".version 8.6\n.target {target}\n.address_size 64\n"
BODY = """
.visible .entry k(.param .u64 out)
{{
    .shared .align 16 .b8 answer[16];
    .shared .align 8 .b8 bar[8];
    .reg .pred %p<4>;
    .reg .b32 %r<12>;
    .reg .b64 %rd<6>;
    .reg .b128 %q;
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, answer;
    mov.u32 %r2, bar;
    setp.ne.u32 %p0, %r0, 0;
    @%p0 bra READY;
    mov.b32 %r3, 0xFFFFFFFF;
    st.shared.v4.b32 [%r1], {{%r3, %r3, %r3, %r3}};
    mbarrier.init.shared::cta.b64 [%r2], 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 %rd1, [%r2], 16;
READY:
    barrier.cluster.arrive;
    barrier.cluster.wait;
    mov.u32 %r4, %cluster_ctarank;
    setp.ne.or.u32 %p1, %r4, {asks}, %p0;
    {addresses}
    @!%p1 clusterlaunchcontrol.try_cancel.async{form}.b128 [{a}], [{m}];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0;
    @!%p2 bra WAIT;
    ld.shared.b128 %q, [%r1];
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p3, %q;
    selp.u32 %r5, 7, 3, %p3;
    mov.u32 %r6, %ctaid.x;
    mad.lo.u32 %r6, %r6, 32, %r0;
    mul.wide.u32 %rd2, %r6, 4;
    ld.param.u64 %rd3, [out];
    add.u64 %rd3, %rd3, %rd2;
    st.global.u32 [%rd3], %r5;
    ret;
}}
"""
TOLD = ".mbarrier::complete_tx::bytes"
GENERIC = (
    "cvt.u64.u32 %rd4, %r1; cvta.shared.u64 %rd4, %rd4; cvt.u64.u32 %rd5, %r2; cvta.shared.u64 %rd5, %rd5;"
)


def kernel(form: str, asks: int = 0, generic: bool = False) -> str:
    target = "sm_100a" if "multicast" in form else "sm_100"
    a, m = ("%rd4", "%rd5") if generic else ("%r1", "%r2")
    return HEAD.format(target=target) + BODY.format(
        form=form, asks=asks, a=a, m=m, addresses=GENERIC if generic else ""
    )


@pytest.mark.parametrize("generic", [False, True], ids=["shared", "generic"])
def test_a_request_is_answered(backend: str, generic: bool) -> None:
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    out = device.zeros(3 * 32, np.uint32)
    text = kernel(TOLD if generic else f".shared::cta{TOLD}", generic=generic)
    profile = device.launch(ge.parse(text)["k"], 3, 32, [out])
    # block 0 cancels block 1, which stores nothing; none is left for block 2
    assert out.numpy().tolist() == [7] * 32 + [0] * 32 + [3] * 32
    (site,) = [item for item in profile.sites if item.opcode.startswith("clusterlaunchcontrol")]
    assert (site.requests, site.wavefronts) == (2, 2)
    assert not profile.remarks


@pytest.mark.parametrize("generic", [False, True], ids=["shared", "generic"])
@pytest.mark.parametrize("asks", [0, 1])
def test_all_blocks_of_the_cluster_are_answered(backend: str, asks: int, generic: bool) -> None:
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    out = device.zeros(6 * 32, np.uint32)
    form = f"{'' if generic else '.shared::cta'}{TOLD}.multicast::cluster::all"
    profile = device.launch(ge.parse(kernel(form, asks, generic))["k"], 6, 32, [out], cluster=2)
    # the first cluster cancels the second, nothing is left for the third
    assert out.numpy().tolist() == [7] * 64 + [0] * 64 + [3] * 64
    (site,) = [item for item in profile.sites if item.opcode.startswith("clusterlaunchcontrol")]
    assert (site.requests, site.wavefronts) == (2, 4)  # of the two blocks of a cluster one asks


def test_other_blocks_are_not_answered(backend: str) -> None:
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    out = device.zeros(2 * 32, np.uint32)
    with pytest.raises(ge.Deadlock, match=r"mbarrier\.try_wait"):
        device.launch(ge.parse(kernel(f".shared::cta{TOLD}"))["k"], 2, 32, [out], cluster=2)


def test_the_answer_goes_to_shared_memory(backend: str) -> None:
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    out = device.zeros(32, np.uint32)
    text = kernel(TOLD, generic=True).replace("cvta.shared.u64 %rd4, %rd4;", "ld.param.u64 %rd4, [out];")
    with pytest.raises(ge.TrapError, match="shared"):
        device.launch(ge.parse(text)["k"], 1, 32, [out])


def test_coordinates_are_words_of_the_answer(backend: str) -> None:
    """What they are is told only of a request that succeeded; they must be taken from the response without a fault."""
    text = """.version 8.6
.target sm_100
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .b32 %r<10>;
    .reg .b64 %rd<2>;
    .reg .b128 %q;
    mov.b32 %r0, 0;
    mov.b128 %q, {%r0, %r0, %r0, %r0};
    clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r1, %r2, %r3, _}, %q;
    clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r4, %q;
    clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128 %r5, %q;
    clusterlaunchcontrol.query_cancel.get_first_ctaid::z.b32.b128 %r6, %q;
    ld.param.u64 %rd0, [out];
    st.global.v4.b32 [%rd0], {%r1, %r2, %r3, %r4};
    st.global.v2.b32 [%rd0+16], {%r5, %r6};
    ret;
}"""
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    out = device.array(np.full(6, 9, np.uint32))
    device.launch(ge.parse(text)["k"], 1, 1, [out])
    assert out.numpy().tolist() == [0] * 6


def test_each_lane_that_asks_gets_one_of_its_own(backend: str) -> None:
    """Of six blocks the first takes three, one by each lane that asks; one is left for the fifth."""
    text = """.version 8.6
.target sm_100
.address_size 64
.visible .entry k(.param .u64 out)
{
    .shared .align 16 .b8 answer[64];
    .shared .align 8 .b8 bar[8];
    .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %rd<6>; .reg .b128 %q;
    mov.u32 %r0, %tid.x; mov.u32 %r1, answer; mov.u32 %r2, bar;
    setp.eq.u32 %p0, %r0, 0; setp.lt.u32 %p1, %r0, 3;
    @%p0 mbarrier.init.shared::cta.b64 [%r2], 1;
    @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 %rd1, [%r2], 48;
    bar.sync 0;
    mad.lo.u32 %r3, %r0, 16, %r1;
    @%p1 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r3], [%r2];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0;
    @!%p2 bra WAIT;
    @!%p1 bra END;
    ld.shared.b128 %q, [%r3];
    clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r5, %q;
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p3, %q;
    selp.u32 %r5, %r5, 99, %p3;
    mov.u32 %r6, %ctaid.x; mad.lo.u32 %r6, %r6, 3, %r0; mul.wide.u32 %rd2, %r6, 4;
    ld.param.u64 %rd3, [out]; add.u64 %rd3, %rd3, %rd2; st.global.u32 [%rd3], %r5;
END: ret;
}"""
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    out = device.zeros((6, 3), np.uint32)
    profile = device.launch(ge.parse(text)["k"], 6, 32, [out])
    none = [0, 0, 0]
    assert out.numpy().tolist() == [[1, 2, 3], none, none, none, [5, 99, 99], none]
    assert profile.cancelled_ctas == 4
