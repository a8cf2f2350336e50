"""The packed PTX is that of the sources beside it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.cuda import compiled


def test_every_unit_is_packed_as_its_source_is_now() -> None:
    assert set(compiled.packed()) == set(compiled.UNITS)
    old = [
        name
        for name, unit in compiled.UNITS.items()
        if compiled.packed()[name]["source"] != compiled.source_digest(unit)
    ]
    assert not old, f"{old}: run python -m tests.cuda.compiled"


def test_what_is_not_packed_is_an_error_with_the_command() -> None:
    with pytest.raises(LookupError, match=r"no cuda/kernels/nothing\.ptx: python -m tests\.cuda\.compiled"):
        compiled.ptx("cuda/kernels/nothing")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_nvcc_makes_what_is_packed() -> None:
    """Of a compiler of the same build, byte for byte."""
    said = subprocess.run(["nvcc", "--version"], check=True, capture_output=True, text=True).stdout
    build = said[said.rindex("compiler.") :].split(".")[1].split("_")[0]
    text = compiled.ptx("symbolic/kernels/loops")
    if f"CL-{build}" not in text:
        pytest.skip(f"another nvcc: build {build}")
    assert compiled.compile_unit("symbolic/kernels/loops") == text
