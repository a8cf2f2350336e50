"""The gate by the simulation that needs no assembler, on the real engine: the same with an assembler and without."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Project
from tests.support import needs_assembler

#: a loop of as many loads as a word in memory says
PTX = """\
.version 7.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 turns, .param .u64 x)
{
    .reg .b64 %a, %b; .reg .b32 %t, %n; .reg .f32 %f<3>; .reg .pred %p;
    ld.param.u64 %a, [turns];
    ld.global.u32 %n, [%a];
    ld.param.u64 %a, [x];
    mov.u32 %t, %tid.x;
    mad.wide.u32 %b, %t, 4, %a;
    mov.f32 %f2, 0f00000000;
L:  ld.volatile.global.f32 %f1, [%b];
    add.f32 %f2, %f1, %f2;
    sub.u32 %n, %n, 1;
    setp.gt.s32 %p, %n, 0;
    @%p bra L;
MORE    st.global.f32 [%b], %f2;
    ret;
}
"""
TEST = """\
import numpy as np
import pytest

@pytest.mark.gpuperf(targets=["a100-sxm-80gb"])
def test_k(gpuperf):
    turns = gpuperf.array(np.array([TURNS], np.uint32))
    gpuperf.kernel("k.ptx", entry="k")[1, 32](turns, gpuperf.zeros(32, np.float32))
"""
TIMES = "    bar.sync 0;\n    ld.volatile.global.f32 %f1, [%b];\n    add.f32 %f2, %f1, %f2;\n" * 4


@pytest.fixture
def expanded(pytester: pytest.Pytester) -> Project:
    """A project whose baseline was written where no assembler is."""
    project = Project(pytester)
    write(project)
    assert project.update().ret == 0
    return project


def write(project: Project, more: str = "", turns: int = 20) -> None:
    project.write("k.ptx", PTX.replace("MORE", more))
    project.write("test_k.py", TEST.replace("TURNS", str(turns)))


def time(project: Project) -> dict:
    (case,) = project.report()["cases"]
    (row,) = (row for row in case["rows"] if row["metric"] == "time_us")
    return row


@pytest.mark.parametrize("here", [False, pytest.param(True, marks=needs_assembler)])
def test_a_baseline_is_judged_equal_and_a_slower_kernel_regresses(
    expanded: Project, monkeypatch: pytest.MonkeyPatch, here: bool
) -> None:
    stored = expanded.baseline()
    # memory was kept: it decides how often the loop runs
    assert (
        "name: simulation-expanded\n" in stored and "long_scoreboard | PTX: ld.volatile.global.f32" in stored
    )
    if here:
        monkeypatch.delenv("GPUPERF_NVDISASM")
    row = time(expanded)
    assert (row["verdict"], row["new"]) == ("ok", row["old"])
    assert expanded.result.ret == 0 and expanded.baseline() == stored
    html = (expanded.path / "out" / "gpuperf.html").read_text(encoding="utf-8")
    assert "model simulation-expanded" in html
    # the table of machine code has no stalls, as other code was simulated
    assert ("<td>LDG.E.STRONG.SYS R" in html) == here and "<td>long_scoreboard<td>" not in html
    write(expanded, TIMES)
    row = time(expanded)
    assert row["verdict"] == "regressed" and row["new"] > 1.1 * row["old"] and expanded.result.ret == 1


def test_the_line_whose_stalls_grew_is_named(expanded: Project) -> None:
    write(expanded, turns=80)
    found = expanded.run()
    assert found.ret == 1
    found.stdout.fnmatch_lines(
        [
            "*stalls for k.ptx:* (ld.volatile.global.f32) grew on a100-sxm-80gb: long_scoreboard * us of the time*"
        ]
    )


def test_a_baseline_by_the_counts_is_judged_by_them(expanded: Project) -> None:
    assert expanded.update("-o", "gpuperf_time_model=kleimenov-popova").ret == 0
    stored = expanded.baseline()
    assert "model:" not in stored
    row = time(expanded)
    assert (row["verdict"], row["new"]) == ("ok", row["old"]) and expanded.baseline() == stored
    assert expanded.update().ret == 0
    assert "name: simulation-expanded\n" in expanded.baseline()
