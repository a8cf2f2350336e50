"""Kernels that a plugin compiles for the arguments of each launch: cases, arrays of the host, numbers of the width of parameters."""

from __future__ import annotations

import pytest

CONFTEST = '''
import numpy as np
from pytest_gpuperf.sources.base import Bound, JitFunction, PtxSource

PTX = """
.version 8.0
.target {arch}
.address_size 64
.visible .entry scale_{size}(.param .u64 x, .param .{kind} by)
{{
    .reg .b64 %rd<4>; .reg .b32 %r<2>; .reg .{kind} %f<3>;
    ld.param.u64 %rd1, [x]; ld.param.{kind} %f1, [by];
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, {size}; add.s64 %rd2, %rd1, %rd2;
    ld.global.{kind} %f2, [%rd2]; {mul}.{kind} %f2, %f2, %f1; st.global.{kind} [%rd2], %f2;
    ret;
}}"""


class Scale(JitFunction):
    name = "scale"

    def compile(self, arguments, arch, shared):
        size = arguments[0].dtype.itemsize
        kind, mul = {8: ("f64", "mul"), 4: ("u32", "mul.lo")}[size]
        text = PTX.format(arch=arch + ("" if shared else "a" if arch >= "sm_90" else ""), size=size, kind=kind, mul=mul)
        return PtxSource(text, f"scale[{arch}]", f"scale_{size}", "scaler 1"), False

    def bind(self, arguments, move):
        host, by = arguments
        array = move(host, "x", True)
        raw = np.float64(by).tobytes() if host.dtype.kind == "f" else int(by).to_bytes(8, "little")
        return Bound([array, raw], [lambda: np.copyto(host, array.numpy())])


def pytest_gpuperf_ptx_source(source):
    return Scale() if source == "scale!" else None
'''
TEST = """
import numpy as np
import pytest

def test_k(gpuperf):
    kernel = gpuperf.kernel("scale!", targets={targets})
    whole, real = np.arange(4, dtype=np.uint32), np.ones(4)
    kernel[1, 4](whole, 3)
    kernel[1, 4, "a stream", 0](real, 0.5)
    kernel[1, 4, 0](whole, 2)
    assert whole.tolist() == [0, 6, 12, 18] and real.tolist() == [0.5] * 4
    gpuperf.check("scale!", grid=1, block=4, args=(whole, 1), targets={targets})
    assert len(gpuperf.launches) == 4 and kernel.name == "scale"
    with pytest.raises(Exception, match=r"kernel 'scale' needs a grid and a block"):
        kernel[4]
"""


@pytest.fixture
def real(project, monkeypatch):
    monkeypatch.setattr("pytest_gpuperf._engine.NAME", "gpuperf_engine")
    project.write("conftest.py", CONFTEST)
    return project


def test_a_case_for_each_set_of_types(real) -> None:
    real.write("test_k.py", TEST.format(targets=["a100-sxm-80gb"]))
    real.update().assert_outcomes(passed=1)
    cases = real.report()["cases"]
    assert [case["id"] for case in cases] == ["test_k/scale", "test_k/scale#2"]
    assert [line.strip() for line in real.baseline().splitlines() if "launches" in line] == [
        "launches: 3",
        "launches: 1",
    ]
    assert "compiler: scaler 1" in real.baseline()


@pytest.mark.parametrize(("targets", "target"), [(["h100-sxm"], "sm_90a"), (["h100-sxm", "b200"], "sm_90")])
def test_what_only_one_architecture_has_is_left_out_where_others_are_declared(real, targets, target) -> None:
    real.write(
        "test_k.py",
        "import numpy as np\ndef test_k(gpuperf):\n"
        f"    kernel = gpuperf.kernel('scale!', targets={targets})\n"
        "    kernel[1, 4](np.ones(4), 2)\n"
        f"    assert next(iter(kernel._kernels.values())).function.module.target == {target!r}\n",
    )
    real.run("--gpuperf-update").assert_outcomes(passed=1)
