"""Kernels of functions whose own launcher makes each launch: a case for each kernel and compute capability, all from one memory."""

from __future__ import annotations

import pytest

CONFTEST = '''
import numpy as np
from pytest_gpuperf.sources.base import FunctionLaunch, LaunchedFunction, PtxSource

PTX = """
.version 8.0
.target {arch}
.address_size 64
.visible .entry add_{by}(.param .u64 x)
{{
    .reg .b64 %rd<4>; .reg .b32 %r<3>;
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd1, %rd2;
    ld.global.u32 %r2, [%rd2]; add.u32 %r2, %r2, {by}; st.global.u32 [%rd2], %r2;
    ret;
}}"""


class Add(LaunchedFunction):
    name = "add"

    def launches(self, grid, arguments, keywords, machines, move):
        (host,), by = arguments, keywords["BY"]
        array = move(host, "x", True)
        made = []
        for machine in machines:
            arch = "sm_{}{}".format(*machine.compute_capability)
            source = PtxSource(PTX.format(arch=arch, by=by), f"add[{arch}]", f"add_{by}", "adder 1")
            # the last argument is one that the kernel does not have
            made.append(FunctionLaunch(source, grid, host.size, 0, None, False, [array, None]))
        return [made] if all(grid) else [], lambda: np.copyto(host, array.numpy())


def pytest_gpuperf_ptx_source(source):
    return Add() if source == "add!" else None
'''
TEST = """
import numpy as np
import pytest

def test_k(gpuperf):
    kernel = gpuperf.kernel("add!", targets=["h100-sxm", "a100-sxm-80gb", "a100-pcie-80gb"])
    x = np.arange(4, dtype=np.uint32)
    assert kernel[1, 1, 1](x, BY=3).thread_instructions == 32
    kernel[1, 1, 1](x, BY=5)
    kernel[1, 1, 1](x, BY=3)
    assert x.tolist() == [11, 12, 13, 14] and kernel[0, 1, 1](x, BY=3) is None
    with pytest.raises(Exception, match=r"kernel 'add' needs a grid\\n  write kernel\\[grid\\]"):
        kernel(x, BY=3)
    with pytest.raises(Exception, match="the launcher of 'add' chooses its block"):
        gpuperf.check("add!", grid=1, block=4, args=(x,))
"""


def test_a_case_for_each_kernel_and_compute_capability(project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gpuperf._engine.NAME", "gpuperf_engine")
    project.write("conftest.py", CONFTEST)
    project.write("test_k.py", TEST)
    project.update().assert_outcomes(passed=1)
    cases = {case["id"]: case for case in project.report()["cases"]}
    assert set(cases) == {
        f"test_k/{name}@{target}" for name in ("add", "add#2") for target in ("sm_80", "sm_90")
    }
    launches = [line.strip() for line in project.baseline().splitlines() if "launches" in line]
    assert launches == ["launches: 1", "launches: 1", "launches: 2", "launches: 2"]
    assert "compiler: adder 1" in project.baseline()
