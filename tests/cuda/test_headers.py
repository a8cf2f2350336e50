"""What nvcc makes of CUDA's own headers is known: every instruction of every function, parsed and checked.

The whole list, ``GPUPERF_HEADERS=all``, takes half an hour: seven architectures, algorithms of whole devices, and the kernels whose
results other tests of this folder look at. Without it, one source.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import gpuperf_engine as ge
from gpuperf_engine.isa.table import lookup

from .test_random import INCLUDE as CURAND

NVCC = shutil.which("nvcc")
SOURCES = {path.stem: path for path in sorted((Path(__file__).parent / "headers").glob("*.cu"))}
#: sources of the committed kernels, with the lowest architecture that has what they use
KERNELS = {path.stem: path for path in sorted((Path(__file__).parent / "kernels").glob("*.cu"))}
LOWEST = {
    "async_copy": 80,
    "clusters": 90,
    "bulk": 90,
    "tensor": 90,
    "halves": 80,
    "matrices": 80,
    "warps": 80,
}
ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_120")
ALL = os.environ.get("GPUPERF_HEADERS") == "all"
CASES = [
    (source, architecture)
    for source in [*SOURCES, *KERNELS]
    for architecture in ARCHITECTURES
    if int(architecture[3:].rstrip("a")) >= LOWEST.get(source, 75)
    and (ALL or (source, architecture) == ("numbers", "sm_90"))
]

pytestmark = pytest.mark.skipif(NVCC is None, reason="no nvcc on the PATH")


@pytest.mark.parametrize(("source", "architecture"), CASES)
def test_compiled_headers(source: str, architecture: str, tmp_path: Path) -> None:
    if source == "random" and CURAND is None:
        pytest.skip("no curand_kernel.h beside nvcc")
    path = SOURCES.get(source) or KERNELS[source]
    ptx = tmp_path / "headers.ptx"
    options = ["-std=c++17", "--extended-lambda", "-ptx", f"-arch={architecture}", "-w"]
    options += [f"-I{CURAND}"] if source == "random" else []
    subprocess.run([str(NVCC), *options, str(path), "-o", str(ptx)], check=True)
    module = ge.parse(ptx.read_text(encoding="utf-8"), path=ptx.name)
    assert module.functions
    for name in module.functions:
        module.function(name)
    assert module.instruction_count > 30


def test_wrapped_instructions() -> None:
    """The opcodes that ``cuda::ptx`` has functions for are in the table."""
    assert NVCC is not None
    toolkit = Path(NVCC).resolve().parent.parent
    headers = sorted(toolkit.rglob("include/**/cuda/__ptx/instructions/generated/*.h"))
    if not headers:
        pytest.skip("no cuda::ptx beside nvcc")
    found = set()
    for header in headers:
        for statement in re.findall(
            r"asm[^(\n]*\((.*?)\n?\s*:", header.read_text(encoding="utf-8"), re.DOTALL
        ):
            text = (
                "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', statement)).replace("\\n", "\n").replace("\\t", "")
            )
            for line in re.split(r"[;\n{}]", text):
                opcode = re.match(r"\s*(?:@!?\w+\s+)?([a-z]\w*(?:\.[\w:]+)+)(?=\s|$)", line)
                if opcode is not None:
                    found.add(opcode[1])
    assert len(found) > 400
    for name in sorted(found):
        assert lookup(name), name
