"""Notes about several instructions of a call that say the same of one object are shown as one."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_gpuperf.core.finding_groups import finding_groups, rounded


def row(place: int, *, rule: str = "silent-stores", object: str = "out", **more: Any) -> Any:
    return {
        "identity": f"{rule} | {object} | {place}", "rule": rule, "object": object, "severity": "note",
        "message": f"the store at line {place}", "path": "app.cu", "line": 40, "waste": 10 * place,
        "saving_us": {"h100-sxm": 0.5}, "evidence": {"opcode": "st.global.u32", "kind": "store", "line": place}, **more,
    }  # fmt: skip


def test_alike_notes_are_one() -> None:
    rows = [row(3), row(8, object="in"), row(3), row(5), row(4, rule="single-zero")]
    first, other, third = finding_groups(rows)
    assert first.message == "the store at line 3; likewise 2 more instructions, at line 5 too"
    assert first.saved() == "110 bytes, 1.5 us on h100-sxm" and first.saved("µs").endswith("µs on h100-sxm")
    assert (other.message, third.first["rule"]) == ("the store at line 8", "single-zero")


def test_of_many_places_few_are_named() -> None:
    (group,) = finding_groups([row(line) for line in range(1, 12)])
    assert group.message.endswith(
        "10 more instructions, at line 2, line 3, line 4, line 5, line 6, line 7, … too"
    )
    (group,) = finding_groups([row(7), row(7)])
    assert group.message == "the store at line 7; likewise 1 more instruction of that line"
    source = {"opcode": "st", "kind": "store", "line": 9, "source": "/a/k.cu:12"}
    (group,) = finding_groups([row(7), row(9, evidence=source)])
    assert group.message.endswith("1 more instruction, at k.cu:12 too")


def test_elements_of_a_vector_are_one_instruction() -> None:
    rows = [
        row(7, identity=f"single-zero | out | k st.global.v4.f32 #{which}[{n}]")
        for which in (1, 2)
        for n in range(4)
    ]
    (group,) = finding_groups(rows[:4])
    assert group.message == "the store at line 7; likewise 3 more elements of that vector"
    (group,) = finding_groups(rows)
    assert group.message == "the store at line 7; likewise 1 more instruction of that line"


def test_what_fails_is_accepted_or_is_about_objects_stands_by_itself() -> None:
    rows = [
        row(1, severity="fail"),
        row(1, severity="fail"),
        row(1, accepted="on purpose"),
        row(1, evidence={}),
    ]
    assert [group.more for group in finding_groups([*rows, *rows])] == [[]] * 8


def test_loads_and_stores_and_calls_are_apart() -> None:
    load = {"opcode": "ld.global.u32", "kind": "load", "line": 1}
    assert len(finding_groups([row(1), row(1, evidence=load), row(1, line=41), row(1)])) == 3


@pytest.mark.parametrize(
    "time, said",
    [
        (0.0, "0"),
        (0.04875, "0.049"),
        (0.9961, "1.0"),
        (1.158, "1.2"),
        (9.96, "10"),
        (99.4, "99"),
        (99.7, "100"),
        (123.4, "123"),
        (1234.5, "1,230"),
        (1e6, "1,000,000"),
    ],
)
def test_predicted_times_have_the_digits_that_a_prediction_is_worth(time: float, said: str) -> None:
    assert rounded(time) == said
