"""The numbers of ``docs/nvprof.md``: the page is current, and its machine code is what ptxas makes."""

from __future__ import annotations

import subprocess

import pytest

from benchmarks import fft512
from benchmarks.docs import PAGES, ROOT
from benchmarks.sass import executed, tools
from gpuperf_engine.isa.table import rows
from gpuperf_engine.profile.document import forms, members
from gpuperf_engine.profile.groups import METRICS


def test_the_page_is_current() -> None:
    text = (ROOT / "docs" / "nvprof.md").read_text(encoding="utf-8")
    assert text == PAGES["docs/nvprof.md"]().rstrip("\n") + "\n", "refresh: make docs"


def test_every_row_and_metric_is_on_the_page() -> None:
    assert all(list(forms(row)) for row in rows())
    listed = members()
    assert set(listed) <= {metric.name for metric in METRICS}
    assert {metric.name for metric in METRICS} - set(listed) == {"inst_executed_surface_atomics"}
    assert listed["inst_executed_surface_loads"] == ["suld"]
    assert listed["inst_executed_surface_reductions"] == ["sured"]
    assert listed["flop_count_sp_fma"] == ["fma.{f32 f32x2}", "mad.f32"]
    assert listed["inst_executed_shared_atomics"] == ["atom.shared", "red.shared"]
    assert listed["inst_bit_convert"] == ["cvt"]


def test_groups_of_machine_instructions_share_them_out() -> None:
    found = fft512.sass_groups(fft512.MACHINE_CODE)
    assert sum(count for name, count in found.items() if name.startswith("inst_")) == 1063
    assert found["flop_count_dp"] == 132 + 84 + 2 * 290


def test_machine_code_is_what_ptxas_makes() -> None:
    if not tools():
        pytest.skip("needs ptxas and nvdisasm")
    version = subprocess.run(["ptxas", "--version"], check=True, capture_output=True, text=True).stdout
    if "V13.0.88" not in version:
        pytest.skip("the page shows the code of ptxas V13.0.88")
    # of each sincos the first branch is for infinite angles, the second skips the slow path
    found = executed(fft512.KERNEL, "sm_80", "fft512", lambda number: number % 2 == 1)
    assert dict(sorted(found.items())) == fft512.MACHINE_CODE
