"""What nvcc makes of CUDA's own headers is known: every instruction of every function, parsed and checked.

The whole list, ``GPUPERF_HEADERS=all``, takes ten minutes: five architectures, algorithms of whole devices. Without it, one source.
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

NVCC = shutil.which("nvcc")
SOURCES = Path(__file__).parent / "headers"
ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_120")
ALL = os.environ.get("GPUPERF_HEADERS") == "all"
CASES = [
    (source, architecture)
    for source in ("algorithms", "block", "groups", "library", "numbers")
    for architecture in ARCHITECTURES
    if ALL or (source, architecture) == ("numbers", "sm_90")
]

pytestmark = pytest.mark.skipif(NVCC is None, reason="no nvcc on the PATH")


@pytest.mark.parametrize(("source", "architecture"), CASES)
def test_compiled_headers(source: str, architecture: str, tmp_path: Path) -> None:
    assert NVCC is not None
    ptx = tmp_path / "headers.ptx"
    subprocess.run(
        [
            NVCC,
            "-std=c++17",
            "-ptx",
            f"-arch={architecture}",
            "-w",
            str(SOURCES / f"{source}.cu"),
            "-o",
            str(ptx),
        ],
        check=True,
    )
    module = ge.parse(ptx.read_text(encoding="utf-8"), path=ptx.name)
    assert module.functions
    for name in module.functions:
        module.function(name)
    assert module.instruction_count > 100


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
