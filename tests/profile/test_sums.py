"""Counts that are sums of counters: exact beyond 64 bits, and made when they are first asked for."""

from __future__ import annotations

import copy
from dataclasses import fields, replace

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.profile.sums import Row, Sums

PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x)
{
    .reg .pred %p;
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, %tid.x;
    setp.lt.u32 %p, %r1, 5;
    @%p bra some;
    add.u32 %r1, %r1, 1;
some:
    st.global.u32 [%rd1], %r1;
    ret;
}
"""


def profile() -> ge.Profile:
    device = ge.Device(races="off")
    return device.launch(ge.parse(PTX)["k"], 2, 32, [device.zeros(1, np.uint32)])


def test_sums_are_exact_beyond_64_bits() -> None:
    sums = Sums([Row({0: 3, 1: 1}), Row(), Row({1: 2})])
    assert sums.of(np.array([1 << 62, 5])) == [3 * (1 << 62) + 5, 0, 10]
    assert sums.of(np.array([1 << 70, 5], dtype=object)) == [3 * (1 << 70) + 5, 0, 10]
    assert sums.of(np.zeros(0, np.int64)) == [0, 0, 0]


def test_every_field_is_there_whichever_is_asked_for_first() -> None:
    names = [item.name for item in fields(ge.Profile)]
    for name in ("opcodes", "sites", "by_line", "slice_share"):
        found = profile()
        getattr(found, name)
        assert all(hasattr(found, other) for other in names)
    assert not hasattr(profile(), "nothing")


def test_counts_that_nobody_asked_for_yet_are_compared_copied_and_replaced() -> None:
    # 2 warps of 7 instructions, of which 5 lanes leave one out
    assert replace(profile(), path="other").thread_instructions == 2 * (7 * 32 - 5)
    assert copy.copy(profile()) == copy.deepcopy(profile()) == profile()
    assert profile().opcodes["add.u32"] == 2 * 27
    with pytest.raises(AttributeError, match="'Profile' object has no attribute 'opcode'"):
        profile().opcode  # type: ignore[attr-defined]  # noqa: B018
