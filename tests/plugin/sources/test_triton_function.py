"""What is made of Triton's objects, with some like them in the place of Triton."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpuperf_engine.errors import EngineError
from pytest_gpuperf.sources.base import PtxSource
from pytest_gpuperf.sources.triton_function import TritonFunction, pytest_gpuperf_ptx_source


def like(kind: str, module: str, **fields: object) -> Any:
    interface = type("KernelInterface", (), {"__module__": "triton.runtime.jit"})
    made = type(kind, (interface,), {"__module__": module})()
    made.__dict__.update(fields)
    return made


def written() -> None: ...


def test_functions_in_their_decorators() -> None:
    function = like("JITFunction", "triton.runtime.jit", fn=written)
    tuned = like("Tuner", "a.library", fn=like("Heuristics", "triton.runtime.autotuner", fn=function))
    made = pytest_gpuperf_ptx_source(tuned, "")
    assert isinstance(made, TritonFunction) and made.name == "written"
    # for a target of its own there is no function
    assert pytest_gpuperf_ptx_source(tuned, "sm_80") is None
    assert pytest_gpuperf_ptx_source(written, "") is None


def test_a_compiled_kernel() -> None:
    kernel = like("CompiledKernel", "triton.compiler.compiler", name="k", asm={"ptx": "text"})
    kernel.metadata = SimpleNamespace(triton_version="3.9.0")
    assert pytest_gpuperf_ptx_source(kernel, "") == PtxSource("text", "k.ptx", "k", "triton 3.9.0")


@pytest.mark.parametrize(
    ("kind", "module", "message"),
    [
        (
            "InterpretedFunction",
            "triton.runtime.interpreter",
            "written is a function of Triton's interpreter",
        ),
        (
            "CachingAutotuner",
            "torch._inductor.runtime.triton_heuristics",
            "written is from the output of Inductor",
        ),
    ],
)
def test_what_cannot_be_launched(kind: str, module: str, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        pytest_gpuperf_ptx_source(like(kind, module, fn=written), "")
