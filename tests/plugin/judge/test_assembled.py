"""What the gate says with real machine code; skipped where ``ptxas`` or ``nvdisasm`` is missing."""

from __future__ import annotations

import pytest

import gpuperf_engine as ge
from tests.plugin.conftest import Project

try:
    ge.machine_code_tools()
    HERE = True
except ge.MachineError:
    HERE = False

pytestmark = pytest.mark.skipif(not HERE, reason="ptxas and nvdisasm are not here")

LOAD = "    ld.global.f32 %f1, [%a];\n"
VALUES = range(40)
PTX = """\
.version 7.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x) LIMIT
{
    .reg .b64 %a; .reg .b32 %t; .reg .f32 %f<3>; .reg .f32 %v<40>;
    ld.param.u64 %a, [x];
    mov.u32 %t, %tid.x;
    mad.wide.u32 %a, %t, 4, %a;
LOADS    st.global.f32 [%a], %f1;
MORE    ret;
}
"""
MANY = (
    "".join(f"    ld.volatile.global.f32 %v{n}, [%a+{128 * n}];\n" for n in VALUES)
    + "    bar.sync 0;\n"
    + "".join(f"    st.volatile.global.f32 [%a+{128 * n}], %v{39 - n};\n" for n in VALUES)
)
TEST = """\
import numpy as np
import pytest

@pytest.mark.gpuperf(targets=["a100-sxm-80gb"])
def test_k(gpuperf):
    x = gpuperf.array(np.arange(32 * 41, dtype=np.float32))
    gpuperf.kernel("k.ptx", entry="k")[1, 32](x)
"""


@pytest.fixture
def assembled(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.delenv("GPUPERF_NVDISASM")
    project = Project(pytester)
    project.write("test_k.py", TEST)
    return project


def write(project: Project, loads: str = LOAD, more: str = "", limit: str = "") -> None:
    text = PTX.replace("LOADS", loads).replace("MORE", more).replace("LIMIT", limit)
    project.write("k.ptx", text)


def rows(project: Project) -> dict[str, dict]:
    (case,) = project.report()["cases"]
    return {row["metric"]: row for row in case["rows"]}


def test_a_load_that_the_assembler_removes_is_green_and_shown(assembled: Project) -> None:
    write(assembled)
    assert assembled.update().ret == 0
    write(assembled, loads=2 * LOAD)
    judged = rows(assembled)
    assert assembled.result.ret == 0
    sectors = judged["memory.global_load_sectors"]
    assert (sectors["old"], sectors["new"], sectors["verdict"]) == (4, 8, "changed")
    assert sectors["note"] == "the machine code is the same"
    assert judged["machine.global_load_sectors"]["new"] == 4
    assert judged["machine.warp_instructions"]["verdict"] == "ok"
    # the store waits for the load, in the table of machine code
    html = (assembled.path / "out" / "gpuperf.html").read_text(encoding="utf-8")
    (store,) = (line for line in html.split("<tr") if "<td>STG.E [" in line)
    assert "<td>long_scoreboard<td>" in store


def test_spills_are_red(assembled: Project) -> None:
    write(assembled, more=MANY)
    assert assembled.update().ret == 0
    write(assembled, more=MANY, limit=".maxnreg 24")
    judged = rows(assembled)
    assert assembled.result.ret == 1
    assert judged["thread_instructions"]["verdict"] == "ok"
    assert (
        judged["machine.spill_loads"]["verdict"] == judged["machine.spill_stores"]["verdict"] == "regressed"
    )
    assert judged["machine.spill_loads"]["old"] == 0 < judged["machine.spill_loads"]["new"]
    assert judged["machine.registers"]["new"] <= 24 < judged["machine.registers"]["old"]


CHASE = (
    "    mov.u32 %t, 0;\nL: ld.volatile.global.f32 %f1, [%a];\n    add.f32 %f2, %f1, %f2;\n    add.u32 %t, %t, 1;\n"
    "    setp.lt.u32 %p, %t, TURNS;\n    @%p bra L;\n"
)


def test_the_line_whose_stalls_grew_is_named(assembled: Project) -> None:
    """A loop has a load in each of its turns, of which there are more."""
    write(assembled, loads=CHASE.replace("TURNS", "40").replace("L:", ".reg .pred %p;\nL:"))
    assert assembled.update().ret == 0
    stored = assembled.baseline()
    assert " wait | PTX: ld.volatile.global.f32" in stored
    write(assembled, loads=CHASE.replace("TURNS", "90").replace("L:", ".reg .pred %p;\nL:"))
    found = assembled.run()
    assert found.ret == 1
    # the adds that nothing needs are gone: each load waits for the stall count of the one before
    found.stdout.fnmatch_lines(
        ["*stalls for k.ptx:* (ld.volatile.global.f32) grew on a100-sxm-80gb: wait * us of the time*"]
    )
