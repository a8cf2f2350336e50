"""Atomics of a warp at one address: the instructions that ptxas 13.0 makes of them for 8.0, without those that ``_PLAIN`` names."""

from __future__ import annotations

import pytest

from .machine_code import code, roots

HERE = "mov.u32 %r4, %tid.x; cvt.u64.u32 %rd6, %r4; "
_PLAIN = frozenset(["EXIT", "MOV", "IMAD", "IADD3", "STG", "LOP3"])
COUNTED = ["FLO", "ISETP", "POPC", "VOTE"]
REDUCED = ["FLO", "ISETP", "REDUX", "VOTE"]


def combining(body: str, architecture: int = 80) -> list[str]:
    made = sorted(name for name in roots(code(HERE + body, architecture=architecture)) if name not in _PLAIN)
    made.remove("S2R")  # the number of the thread
    return made


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("red.global.add.u32 [%rd1], 1;", [*COUNTED[:3], "RED", "S2R", "VOTE"]),
        ("red.global.add.u32 [%rd1], %r1;", [*COUNTED[:3], "RED", "S2R", "VOTE"]),
        ("red.global.add.u64 [%rd1], 1;", [*COUNTED[:3], "RED", "S2R", "VOTE"]),
        ("red.global.add.u32 [%rd1], %r4;", [*REDUCED[:2], "RED", "REDUX", "S2R", "VOTE"]),
        ("red.global.min.s32 [%rd1], %r4;", [*REDUCED[:2], "RED", "REDUX", "S2R", "VOTE"]),
        ("red.global.max.u32 [%rd1], %r1;", [*REDUCED[:2], "RED", "REDUX", "S2R", "VOTE"]),
        ("red.global.and.b32 [%rd1], %r4;", [*REDUCED[:2], "RED", "REDUX", "S2R", "VOTE"]),
        ("red.global.or.b32 [%rd1], 1;", [*REDUCED[:2], "RED", "REDUX", "S2R", "VOTE"]),
        ("red.global.xor.b32 [%rd1], %r4;", [*REDUCED[:2], "RED", "REDUX", "S2R", "VOTE"]),
        ("red.shared.add.u32 [tile], %r4;", ["ATOMS", *REDUCED[:3], "S2R", "VOTE"]),
        ("red.shared.add.u32 [tile], 1;", ["ATOMS"]),
        ("red.shared.inc.u32 [tile], -1;", ["ATOMS"]),
        ("red.shared.add.s32 [tile], 1;", ["ATOMS", *COUNTED[:3], "S2R", "VOTE"]),
        ("red.shared.add.u32 [tile], 2;", ["ATOMS", *COUNTED[:3], "S2R", "VOTE"]),
        ("red.global.add.f32 [%rd1], 0f3F800000;", ["RED"]),
        ("red.global.add.u64 [%rd1], %rd6;", ["RED"]),
        ("add.u64 %rd7, %rd1, %rd6; red.global.add.u32 [%rd7], 1;", ["RED"]),
    ],
)
def test_results_are_not_used(body: str, expected: list[str]) -> None:
    end = "mul.wide.u32 %rd8, %r4, 4; add.u64 %rd9, %rd2, %rd8; st.global.u32 [%rd9], %r4;"
    assert combining(body + end) == sorted(expected)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("atom.global.add.u32 %r6, [%rd1], 1;", ["ATOMG", "FLO", "ISETP", "POPC", "POPC", "S2R", "S2R", "SHFL", "VOTE"]),
        ("atom.shared.add.u32 %r6, [tile], 1;", ["ATOMS", "FLO", "ISETP", "POPC", "POPC", "S2R", "S2R", "SHFL", "VOTE"]),
        ("atom.global.inc.u32 %r6, [%rd1], %r1;", ["ATOMG"]),
        ("atom.global.exch.b32 %r6, [%rd1], %r4;", ["ATOMG"]),
        ("atom.global.cas.b32 %r6, [%rd1], 0, %r4;", ["ATOMG"]),
        ("atom.global.max.u32 %r6, [%rd1], 1;", ["ATOMG"]),
    ],
)  # fmt: skip
def test_results_are_used(body: str, expected: list[str]) -> None:
    end = "mul.wide.u32 %rd8, %r4, 4; add.u64 %rd9, %rd2, %rd8; st.global.u32 [%rd9], %r6;"
    assert combining(body + end) == expected


def test_without_redux_only_counts_are_combined() -> None:
    end = "mul.wide.u32 %rd8, %r4, 4; add.u64 %rd9, %rd2, %rd8; st.global.u32 [%rd9], %r4;"
    assert combining(f"red.global.max.u32 [%rd1], %r4;{end}", 75) == ["RED"]
    assert "VOTE" in combining(f"red.global.add.u32 [%rd1], 1;{end}", 75)
    assert "VOTE" in combining(f"red.shared.add.u32 [tile], 1;{end}", 75)
