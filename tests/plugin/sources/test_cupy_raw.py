"""What is made of CuPy's kernels, with objects like them in the place of CuPy."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from gpuperf_engine.errors import EngineError
from pytest_gpuperf.sources import compiler, cupy_raw
from pytest_gpuperf.sources.base import Compilation, PtxSource

RAW = {
    "code": "text",
    "file_path": None,
    "options": ("-DA=1",),
    "backend": "nvrtc",
    "enable_cooperative_groups": False,
}


def like(kind: str, **fields: object) -> object:
    made = type(kind, (), {"__module__": "cupy._core.raw"})()
    made.__dict__.update(RAW | {"name_expressions": None} | fields)
    return made


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What the compiler was asked for."""
    calls: list[tuple[object, ...]] = []

    def compile_text(text, shown, options, arch, expression="", wanted="nvrtc"):
        calls.append((text, shown, options, arch, expression, wanted))
        return PtxSource("ptx", shown, "_Z1fIiEvPT_" if expression else "", "NVRTC 13.0")

    core = SimpleNamespace(assemble_cupy_compiler_options=lambda options: ("-Iheaders", *options))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(__version__="14.2.0"))
    monkeypatch.setitem(sys.modules, "cupy._core", SimpleNamespace(core=core))
    monkeypatch.setattr(compiler, "compile_text", compile_text)
    return calls


def test_a_raw_kernel_with_the_options_of_cupy(asked) -> None:
    made = cupy_raw.pytest_gpuperf_ptx_source(like("RawKernel", name="f"), None, "")
    assert isinstance(made, Compilation)
    assert made.compile("sm_90") == PtxSource("ptx", "f", "f", "cupy 14.2.0, NVRTC 13.0")
    assert asked == [("text", "f", ["-Iheaders", "-DA=1", "-ftz=true"], "sm_90", "", "nvrtc")]


def test_name_expressions_of_a_module(asked) -> None:
    module = like("RawModule", name_expressions=("f<int>",), backend="nvcc")
    made = cupy_raw.pytest_gpuperf_ptx_source(module, "f<int>", "sm_80")
    assert isinstance(made, PtxSource) and made.entry == "_Z1fIiEvPT_"
    assert asked[0][3:] == ("sm_80", "f<int>", "nvcc")
    with pytest.raises(EngineError, match=r"'f<float>' is not a name expression of this RawModule"):
        cupy_raw.pytest_gpuperf_ptx_source(module, "f<float>", "sm_80")


def test_what_else_there_is() -> None:
    assert cupy_raw.pytest_gpuperf_ptx_source("k.ptx", None, "") is None
    with pytest.raises(EngineError, match=r"no_such\.cu: No such file"):
        cupy_raw.pytest_gpuperf_ptx_source(like("RawModule", code=None, file_path="no_such.cu"), "f", "sm_80")
