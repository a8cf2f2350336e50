"""Streams of launches: equal ones kept once with their number, and stored as JSON for another process."""

from __future__ import annotations

import json
from copy import deepcopy

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.errors import EngineError
from gpuperf_engine.profile.merged import DISTINCT, MergedLaunches
from gpuperf_engine.profile.stored import StoredError, profile_from, stored
from gpuperf_engine.simt.program import program_of
from tests.support import needs_assembler

MODEL = "kleimenov-popova"

#: 3 instructions, 4 in each of n rounds and 2 at the end; the atomics of all threads go to one address
LOOP = ge.parse(
    """.version 8.0
    .target sm_80
    .address_size 64
    .visible .entry k(.param .u64 p, .param .u32 n) {
        .reg .b64 %rd<2>; .reg .b32 %r<3>; .reg .pred %p;
        ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n]; mov.u32 %r2, 0;
    next:
        red.global.add.u32 [%rd1], 1; add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, %r1; @%p bra next;
        st.global.u32 [%rd1+4], %r2; ret;
    }"""
)["k"]
RACY = ge.parse(
    """.version 8.0
    .target sm_80
    .address_size 64
    .visible .entry k(.param .u64 p) {
        .reg .b64 %rd<2>; .reg .b32 %r<2>;
        ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; st.global.u32 [%rd1], %r1; ld.global.u32 %r1, [%rd1+8]; ret;
    }"""
)["k"]


#: an array of which nothing was written, and inputs of ``LOOP``, as they are stored
ARRAY = {
    "name": "p",
    "address": 0x3000_0000_0000,
    "size": 8,
    "kind": "global",
    "pad": 0,
    "initialized": False,
    "contents": [0, 0],
    "shadow": [0, 0],
}
KEPT: dict[str, object] = {"parameters": bytes(12).hex(), "symbols": [], "times": 1, "arrays": [ARRAY]}


def launches(rounds: list[int]) -> list[ge.Profile]:
    device = ge.Device(races="off")
    array = device.zeros(2, np.uint32, name="array")
    return [device.launch(LOOP, 2, 64, [array, np.uint32(n)]) for n in rounds]


def test_equal_launches_are_one_with_their_number():
    merged = MergedLaunches()
    (one,) = launches([5])
    for _ in range(1000):
        merged.add(one)
    (profile,) = merged.profiles()
    assert profile.launches == 1000
    # 2 CTAs of 2 warps of 32 threads: 3 + 4 · 5 + 2
    assert (profile.warp_instructions, profile.thread_instructions) == (1000 * 4 * 25, 1000 * 128 * 25)
    assert profile.memory.global_atomic_hottest == 1000 * 128 * 5
    alone, all_ = (ge.estimate(item, "a100-sxm-80gb", model=MODEL) for item in (one, profile))
    assert all_.time_us == pytest.approx(1000 * alone.time_us, rel=1e-12)
    assert "1000" not in str(profile.notes)


def test_few_that_differ_are_kept_apart_and_many_added_up():
    rounds = [1 + number % 50 for number in range(100)]
    every = launches(rounds)
    merged = MergedLaunches()
    for profile in every:
        merged.add(profile)
    profiles = merged.profiles()
    assert len(profiles) == DISTINCT + 1
    total = ge.add_profiles(profiles)
    assert (merged.launches, total.launches) == (100, 100)
    assert total.thread_instructions == 128 * sum(5 + 4 * n for n in rounds)
    assert total.opcodes["red.global.add.u32"] == 128 * sum(rounds)
    exact = ge.estimate(ge.add_profiles(every), "a100-sxm-80gb", model=MODEL).time_us
    assert ge.estimate(total, "a100-sxm-80gb", model=MODEL).time_us == pytest.approx(exact, rel=0.02)
    assert any("is predicted from their mean" in note for note in total.notes)


@needs_assembler
def test_no_launch_is_simulated_for_the_mean_of_several():
    merged = MergedLaunches()
    for profile in launches([1 + number for number in range(DISTINCT + 2)]):
        merged.add(profile)
    *each, rest = merged.profiles()
    assert ge.estimate(each[0], "a100-sxm-80gb").model == "simulation"
    found = ge.estimate(rest, "a100-sxm-80gb")
    assert found.model == "kleimenov-popova" and "mean of different launches" in found.notes[0]


def test_what_is_stored_is_what_is_read():
    device = ge.Device()
    array = device.empty(4, np.uint32, name="array")
    for profile in (device.launch(RACY, 1, 64, [array]), *launches([3])):
        program = profile.records[0].program
        again = profile_from(program, json.loads(json.dumps(stored(profile))))
        for name in (
            "launches",
            "grid",
            "opcodes",
            "branches",
            "memory",
            "by_line",
            "sites",
            "races",
            "resources",
        ):
            assert getattr(again, name) == getattr(profile, name), name
        assert sorted(again.notes) == sorted(profile.notes)
        for caches in ("cold", "warm"):
            first, second = (
                ge.estimate(item, "h100-sxm", model=MODEL, caches=caches) for item in (profile, again)
            )
            assert first == second
        assert ge.explain(again) == ge.explain(profile)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"times": 0}, "times is 0"),
        ({"times": True}, "times is missing or no int"),
        ({"grid": [1, 1]}, "grid has 2 numbers, 3 expected"),
        ({"block": [0, 1, 1]}, "block is empty"),
        ({"block_warps": [1]}, "block_warps has 1 numbers"),
        ({"taken": [1.5] * 4}, "taken"),
        ({"sites": [[1]]}, "sites has 1 rows"),
        ({"parameters": "0"}, "parameters is malformed"),
        ({"hottest": [1, -1, None]}, "hottest holds -1, which is no count"),
        ({"names": []}, "names and pointed_at are not of one length"),
        ({"races": [3]}, "a launch is no object"),
        ({"resources": {}}, "registers is missing"),
        ({"kept": 1}, "kept is missing or no list"),
        ({"kept": [{"times": 1}]}, "arrays is missing or no list"),
        ({"kept": [KEPT, KEPT]}, "more launches were kept than there were"),
        ({"kept": [KEPT | {"parameters": ""}]}, "parameters have another size"),
        ({"kept": [KEPT | {"symbols": [1]}]}, "symbols has 1 numbers, 0 expected"),
        ({"kept": [KEPT | {"arrays": [ARRAY | {"kind": "shared"}]}]}, "an array of shared memory is at"),
        (
            {"kept": [KEPT | {"arrays": [ARRAY | {"address": 4096}]}]},
            "an array of global memory is at 0x1000",
        ),
        ({"kept": [KEPT | {"arrays": [ARRAY, ARRAY]}]}, "an array of global memory is at"),
        ({"kept": [KEPT | {"arrays": [ARRAY | {"size": 1 << 60}]}]}, "an array of global memory is at"),
        ({"kept": [KEPT | {"arrays": [ARRAY | {"contents": [0, 8]}]}]}, "contents of memory are missing"),
        ({"kept": [KEPT | {"arrays": [ARRAY | {"pad": True}]}]}, "pad is missing or no int"),
    ],
)
def test_what_nobody_stored_is_refused(change, words):
    (profile,) = launches([2])
    row = {**deepcopy(stored(profile)), **change}
    with pytest.raises(StoredError, match=words):
        profile_from(program_of(LOOP), row)
    assert issubclass(StoredError, EngineError)
