"""What goes if the advice of a finding is followed: which steps' traffic, and which share of it, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import gpuperf_engine as ge
from tests.support import head

SIZE = 256
#: adds the elements of two arrays into a third
ADD = ge.parse(
    head("8.0", "sm_80")
    + """.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 out) {
    .reg .b64 %p<3>, %o; .reg .b32 %i, %v<2>;
    ld.param.u64 %p0, [a]; ld.param.u64 %p1, [b]; ld.param.u64 %p2, [out];
    mov.u32 %i, %tid.x;
    mul.wide.u32 %o, %i, 4;
    add.u64 %p0, %p0, %o; add.u64 %p1, %p1, %o; add.u64 %p2, %p2, %o;
    ld.global.u32 %v0, [%p0]; ld.global.u32 %v1, [%p1];
    add.u32 %v0, %v0, %v1;
    st.global.u32 [%p2], %v0;
    ret;
}""",
    path="add.ptx",
)["add"]
RANDOM = np.random.default_rng(5).integers(1 << 20, 1 << 31, SIZE, np.uint32)


class Program:
    """Arrays ``x`` (as given), ``y`` (random) and ``out``: out = x + y, again = x + x, x is cleared, again = x + x."""

    def __init__(self, x: NDArray[np.uint32], observe: set[str]) -> None:
        self.device = ge.Device(observe={"memory", *observe}, memory_bytes=1 << 20)
        self.x = self.device.array(x, name="x")
        y, out = self.device.array(RANDOM, name="y"), self.device.empty(SIZE, np.uint32, name="out")
        again = self.device.empty(SIZE, np.uint32, name="again")
        self.device.launch(ADD, 1, SIZE, [self.x, y, out])
        self.device.launch(ADD, 1, SIZE, [self.x, self.x, again])
        self.x.fill(3)
        self.device.launch(ADD, 1, SIZE, [self.x, self.x, again])
        self.numbers = [event.number for event in self.device.events if event.kind == "launch"]

    def finding(self, rule: str, name: str, kind: str = "") -> ge.Finding:
        findings = [
            item
            for item in ge.find_patterns(self.device.program)
            if (item.rule, item.object, item.evidence.get("kind", "")) == (rule, name, kind)
        ]
        return findings[0]


@pytest.mark.parametrize(
    ("rule", "x", "part"),
    [
        ("heavy-type", RANDOM % 200, 3 / 4),  # a byte would do
        ("structured-values", np.arange(SIZE, dtype=np.uint32) * 70_000, 1),
        ("single-value", np.full(SIZE, 7, np.uint32), 1),
        ("single-zero", np.zeros(SIZE, np.uint32), 1),
    ],
)
def test_loads_go_with_the_copy_until_the_array_is_written_again(
    rule: str, x: NDArray[np.uint32], part: float
) -> None:
    program = Program(x, {"values"})
    first, second, _ = program.numbers
    assert program.finding(rule, "x").traffic == (
        ge.Traffic(0, copied=int(part * 4 * SIZE), way="copy-in"),
        ge.Traffic(first, loads=part / 2),  # as much is loaded from y
        ge.Traffic(second, loads=part),
    )


def test_frequent_values_have_to_be_loaded_to_be_known() -> None:
    x = np.where(np.arange(SIZE) % 8 < 7, 5, RANDOM).astype(np.uint32)
    (gone,) = Program(x, {"values"}).finding("frequent-values", "x").traffic
    assert gone == ge.Traffic(0, copied=4 * SIZE * 7 // 8, way="copy-in")


def test_stores_of_a_launch() -> None:
    """What ``again`` holds after the second launch is single; nobody loads it, and the third overwrites it."""
    program = Program(np.full(SIZE, 7, np.uint32), {"values"})
    second = program.numbers[1]
    (gone,) = program.finding("single-value", "again").traffic
    assert gone == ge.Traffic(second, stores=1.0)
    (dead,) = program.finding("dead-stores", "again").traffic
    assert dead == ge.Traffic(second, stores=1.0, whole=True)


def test_instructions_have_their_share_of_all_that_is_moved() -> None:
    """Both loads of the first launch move as much; no array was written twice there."""
    program = Program(np.arange(SIZE, dtype=np.uint32) * 70_000, {"accesses"})
    (gone,) = program.finding("structured-values", "x", "load").traffic
    assert gone == ge.Traffic(program.numbers[0], loads=0.5)
