"""Races in the gate: told first where a test fails, a note where it passes, an error if asked for."""

from __future__ import annotations

import pytest

from tests.plugin.test_end_to_end import real

__all__ = ["real"]

#: the last of two warps of each block writes over what both read
RACY = """\
.version 8.0
.target sm_80
.address_size 64
.file 1 "sum.cu"
.visible .entry sum(.param .u64 out)
{
    .reg .b32 %r<5>; .reg .b64 %rd<4>; .reg .pred %p; .shared .align 4 .b32 first;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    setp.eq.u32 %p, %r1, 0;
    @%p st.shared.b32 [first], 7;
    bar.sync 0;
    .loc 1 5 1
    ld.shared.b32 %r2, [first];
    .loc 1 6 1
    @%p st.shared.b32 [first], 99;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.b32 [%rd3], %r2;
    ret;
}
"""
TEST = """\
import numpy as np
import pytest

MARK
def test_sum(gpuperf):
    out = gpuperf.zeros(64, np.int32)
    gpuperf.kernel("sum.ptx")[1, 64](out)
    assert (out.numpy() == EXPECTED).all()
"""


@pytest.fixture
def racy(real):
    real.write("sum.ptx", RACY)

    return real


def expect(project, expected, mark=""):
    project.write("test_k.py", TEST.replace("EXPECTED", expected).replace("MARK", mark))


TOLD = "*sum.cu:5 (sum.ptx:14:5): race on shared memory (RAW): ld.shared.b32 by thread (32, 0, 0) of block (0, 0, 0) reads what*"


def test_a_test_that_fails_is_told_of_races_first(racy):
    expect(racy, "7")
    result = racy.run()
    result.stdout.fnmatch_lines(
        [
            "gpuperf: results of this test depend on the order of threads:",
            TOLD,
            "*def test_sum(gpuperf):",
            "E *",
        ]
    )
    quiet = racy.run("-o", "gpuperf_races=off")
    assert "race on" not in quiet.stdout.str() and quiet.ret == 1


def test_a_test_that_passes_notes_races(racy):
    expect(racy, "np.repeat([7, 99], 32)")
    result = racy.update()
    assert result.ret == 0
    result.stdout.fnmatch_lines([TOLD])
    expect(racy, "np.repeat([7, 99], 32)", '@pytest.mark.gpuperf(races="error")')
    racy.run().stdout.fnmatch_lines(["*RaceError: sum.cu:5*"])
    expect(racy, "7", '@pytest.mark.gpuperf(races="noted")')
    racy.run().stderr.fnmatch_lines(["*races='noted' is not known; did you mean 'note'?*"])


def test_notes_name_files_below_the_rootdir(racy):
    """A file compiled by its absolute path, as nvcc's and Triton's are: reports are the same on every host."""
    source = racy.write("kernels/sum.cu", "\n" * 7)
    racy.write("sum.ptx", RACY.replace('"sum.cu"', f'"{source}"'))
    expect(racy, "np.repeat([7, 99], 32)")
    result = racy.update("--gpuperf-report=report")
    result.stdout.fnmatch_lines(["note: *: kernels/sum.cu:5 (sum.ptx:14:5): race on shared memory*"])
    report = (racy.path / "report" / "gpuperf.json").read_text(encoding="utf-8")
    assert "race on shared memory" in report and str(racy.path) not in report
