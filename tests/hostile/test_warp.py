"""Warp instructions whose masks cannot be met, and those that can, in different branches."""

from __future__ import annotations

import numpy as np
import pytest

from tests.hostile.kernels import line_of, module, refusal, success
from tests.hostile.sandbox import Job, Sandbox

START = """
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd1, %rd0, %rd1;
"""


def job(backend: str, body: str, block: int = 32) -> Job:
    text = module(f"{START}{body}\n    ret;", ".param .u64 out")
    return Job(text, backend=backend, block=block, args=[np.zeros(64, np.uint32)])


EXCHANGES = [
    "shfl.sync.idx.b32 %r1, %r0, 0, 31, {m};",
    "vote.sync.ballot.b32 %r1, %p1, {m};",
    "match.any.sync.b32 %r1, %r0, {m};",
    "redux.sync.add.u32 %r1, %r0, {m};",
    "bar.warp.sync {m};",
    "elect.sync %r1|%p2, {m};",
]


@pytest.mark.parametrize("line", EXCHANGES)
@pytest.mark.parametrize("mask", ["0", "0x0000fff0", "1"])
def test_a_mask_without_the_executing_lane(sandbox: Sandbox, backend: str, line: str, mask: str) -> None:
    """A shuffle by half of a warp: all of one exchange whatever the mask."""
    line = line.format(m=mask)
    lane = {"0": 0, "0x0000fff0": 0, "1": 1}[mask]
    body = line
    if line.startswith("shfl"):
        body, lane = f"setp.lt.u32 %p3, %r0, 16;\n    @%p3 bra END;\n    {line}\nEND:", 16
    made = job(backend, body)
    text = str(made.text)
    outcome = sandbox.run(made)
    assert outcome.kind == "error", outcome
    assert f"k.ptx:{line_of(text, line)}:" in outcome.text, outcome.text
    assert f"lane {lane}" in outcome.text or f"thread ({lane}, 0, 0)" in outcome.text, outcome.text
    assert "mask" in outcome.text
    assert len(outcome.text.splitlines()) <= 5


@pytest.mark.parametrize("line", EXCHANGES)
def test_lanes_that_never_come(sandbox: Sandbox, backend: str, line: str) -> None:
    """Half of the warp waits at a barrier that needs the other half, which waits for the first at the exchange."""
    body = f"""
    setp.lt.u32 %p3, %r0, 16;
    @%p3 bra LOW;
    {line.format(m="0xffffffff")}
    bra END;
LOW:
    vote.sync.any.pred %p4, %p3, -1;
END:"""
    if line.startswith("vote"):
        body = body.replace("vote.sync.any.pred %p4, %p3, -1;", "shfl.sync.bfly.b32 %r5, %r0, 1, 31, -1;")
    made = job(backend, body)
    refusal(sandbox, made, "Deadlock", "k.ptx:", "lanes", "kernel 'k'")


@pytest.mark.parametrize("line", EXCHANGES)
def test_lanes_that_exited_are_not_waited_for(sandbox: Sandbox, backend: str, line: str) -> None:
    body = f"setp.lt.u32 %p3, %r0, 16;\n    @%p3 ret;\n    {line.format(m='0xffffffff')}"
    success(sandbox, job(backend, body))
    later = f"""
    setp.lt.u32 %p3, %r0, 16;
    @%p3 bra LOW;
    {line.format(m="0xffffffff")}
    bra END;
LOW:
    add.u32 %r5, %r0, 1;
    exit;
END:"""
    success(sandbox, job(backend, later))


@pytest.mark.parametrize("block", [1, 7, 31])
def test_masks_that_name_lanes_beyond_the_block(sandbox: Sandbox, backend: str, block: int) -> None:
    body = "shfl.sync.bfly.b32 %r1|%p1, %r0, 1, 31, -1;\n    redux.sync.add.u32 %r2, 1, -1;\n    st.global.u32 [%rd1], %r2;"
    outcome = success(sandbox, job(backend, body, block))
    assert outcome.outputs[0][:block].tolist() == [block] * block


def test_exchanges_meet_in_different_branches(sandbox: Sandbox, backend: str) -> None:
    body = """
    setp.lt.u32 %p1, %r0, 16;
    @%p1 bra LOW;
    shfl.sync.bfly.b32 %r1, %r0, 16, 31, 0xffffffff;
    add.u32 %r1, %r1, 100;
    bra END;
LOW:
    shfl.sync.bfly.b32 %r1, %r0, 16, 31, 0xffffffff;
    add.u32 %r1, %r1, 200;
END:
    st.global.u32 [%rd1], %r1;"""
    outcome = success(sandbox, job(backend, body))
    expected = [(lane ^ 16) + (200 if lane < 16 else 100) for lane in range(32)]
    assert outcome.outputs[0][:32].tolist() == expected
    assert outcome.profile["warp_opcodes"]["shfl.sync.bfly.b32"] == 2


def test_masks_of_two_halves_at_one_instruction(sandbox: Sandbox, backend: str) -> None:
    body = """
    setp.lt.u32 %p1, %r0, 16;
    selp.b32 %r2, 0x0000ffff, 0xffff0000, %p1;
    redux.sync.add.u32 %r1, %r0, %r2;
    st.global.u32 [%rd1], %r1;"""
    outcome = success(sandbox, job(backend, body))
    assert outcome.outputs[0][:32].tolist() == [sum(range(16))] * 16 + [sum(range(16, 32))] * 16


def test_different_masks_in_different_branches(sandbox: Sandbox, backend: str) -> None:
    """Even lanes vote among themselves in one branch, odd ones in the other; both loop different times."""
    body = """
    and.b32 %r2, %r0, 1;
    setp.eq.u32 %p1, %r2, 0;
    @%p1 bra EVEN;
    redux.sync.max.u32 %r1, %r0, 0xaaaaaaaa;
    bra END;
EVEN:
    redux.sync.max.u32 %r1, %r0, 0x55555555;
END:
    bar.warp.sync 0xffffffff;
    st.global.u32 [%rd1], %r1;"""
    outcome = success(sandbox, job(backend, body))
    assert outcome.outputs[0][:32].tolist() == [30, 31] * 16


def test_shuffles_from_beyond_read_the_own_value(sandbox: Sandbox, backend: str) -> None:
    body = "shfl.sync.down.b32 %r1|%p1, %r0, 40, 31, -1;\n    st.global.u32 [%rd1], %r1;"
    outcome = success(sandbox, job(backend, body))
    # an amount of 40 is 8 modulo 32
    assert outcome.outputs[0][:32].tolist() == [lane + 8 if lane < 24 else lane for lane in range(32)]
