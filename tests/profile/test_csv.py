"""The table of launches: read back by the csv module and compared with closed forms."""

from __future__ import annotations

import csv
import io
import locale
from pathlib import Path

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.profile.csv import COLUMNS
from tests.engine.running import launch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "kernels"


def saxpy(n: int, block: int, path: str = "saxpy.ptx") -> ge.Profile:
    kernel = ge.parse((EXAMPLES / "saxpy.ptx").read_text(encoding="utf-8"), path=path)["saxpy"]
    device = ge.Device()
    arrays = [device.zeros(n), device.zeros(n)]
    return device.launch(kernel, -(-n // block), block, [np.int32(n), np.float32(2), *arrays])


def test_rows_of_saxpy_are_its_closed_form() -> None:
    profiles = [saxpy(1000, 256), saxpy(96, 32)]
    text = ge.csv_text(profiles)
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [list(row) for row in rows] == [list(COLUMNS)] * 2
    for row, n, block, launched in zip(rows, (1000, 96), (256, 32), "12", strict=True):
        ctas = -(-n // block)
        # nvcc's saxpy: 10 instructions and the return for every thread, 9 more for those with an element
        dynamic = 11 * ctas * block + 9 * n
        divergent = int(n % 32 != 0)
        duration = float(row.pop("duration_ms"))
        assert 0 < duration < 60_000
        assert row == {
            "file": "saxpy.ptx",
            "kernel": "saxpy",
            "launch": launched,
            "ptx_version": "9.0",
            "target": "sm_80",
            "address_size": "64",
            "file_instructions": "45",
            "ctas": str(ctas),
            "threads": str(ctas * block),
            "static_instructions": "20",
            "dynamic_instructions": str(dynamic),
            "floating_point_instructions": str(n),
            "executed_instructions": str(dynamic),
            "executed_percent": "100.0",
            "divergent_branches": str(divergent),
            "divergent_branches_per_cta": str(divergent / ctas),
            "branch_efficiency": str(100 - divergent * 100 / (ctas * block // 32)),
        }


def test_text_is_that_of_rfc_4180() -> None:
    """Lines end in CR LF, what holds separators or quotes is quoted, and columns can be added."""
    path = 'a "b", c.ptx'
    text = ge.csv_text([saxpy(32, 32, path)], {"time_us.h100-sxm": [1.5]})
    assert text.count("\r\n") == text.count("\n") == 2 and text.endswith("\r\n")
    head, row = text.split("\r\n")[:2]
    assert head == ",".join([*COLUMNS, "time_us.h100-sxm"])
    assert row.startswith('"a ""b"", c.ptx",saxpy,1,') and row.endswith(",1.5")


def test_numbers_do_not_follow_the_locale() -> None:
    before = locale.setlocale(locale.LC_NUMERIC)
    try:
        for name in ("de_DE.UTF-8", "fr_FR.UTF-8", "C"):
            try:
                locale.setlocale(locale.LC_NUMERIC, name)
                break
            except locale.Error:
                continue
        (row,) = csv.DictReader(io.StringIO(ge.csv_text([saxpy(1000, 256)])))
    finally:
        locale.setlocale(locale.LC_NUMERIC, before)
    assert row["branch_efficiency"] == "96.875" and row["dynamic_instructions"] == "20264"


def test_a_sum_of_launches_is_one_row() -> None:
    first, second = saxpy(1000, 256), saxpy(96, 32)
    (row,) = ge.csv_rows([ge.add_profiles([first, second])])
    assert (row["ctas"], row["threads"]) == (4 + 3, 1024 + 96)
    assert row["dynamic_instructions"] == first.thread_instructions + second.thread_instructions
    assert row["divergent_branches_per_cta"] == 1 / 7


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ptx")), ids=lambda path: path.stem)
def test_instructions_of_a_file_are_counted_without_reading_its_bodies(path: Path) -> None:
    module = ge.parse(path.read_text(encoding="utf-8"), path=path.name)
    counted = module.instruction_count
    for name in module.functions:
        module.function(name)
    assert module.instruction_count == counted > 0


def test_statements_that_are_no_instructions_are_not_counted() -> None:
    """Scopes, labels, declarations with initialisers, branch tables and lines of the source program."""
    text = """.version 8.0
.target sm_80
.address_size 64
.file 1 "a.cu"
.extern .func f(.param .b32 a);
.visible .entry k() {
    .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %d;
    .shared .align 4 .b32 s[2];
    .loc 1 3 4
    setp.eq.u32 %p, 1, 1; { .reg .b32 inner;
    mov.u32 inner, 1; } // mov.u32 inner, 2;
L1: mov.b64 {%r1, %r2}, %d;
    .loc 1 4 4, function_name L0, inlined_at 1 3 4
@%p bra L1;
L2:
L3: @!%p mov.b64 %d, {%r1, %r2};
T: .branchtargets L2, L3;
    .pragma "nounroll";
    ret;
}
.visible .entry unknown() { .reg .b32 %r; frobnicate.b32 %r, %r; ret; }
"""
    module = ge.parse(text, path="k.ptx")
    assert module.instruction_count == 6 + 2
    assert len(module["k"].instructions) == 6 and module.instruction_count == 6 + 2


def test_unknown_instructions_elsewhere_in_the_file_do_no_harm() -> None:
    profile = launch("llvm", "ret;", before=".entry other() { .reg .b32 %r; frobnicate.b32 %r, %r; ret; }")
    (row,) = ge.csv_rows([profile])
    assert row["file_instructions"] == 3
