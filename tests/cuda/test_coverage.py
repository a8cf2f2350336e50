"""Every device function of CUDA's headers for arithmetic is called by the kernels of this folder, those here listed excepted."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from .compiled import TESTS

NVCC = shutil.which("nvcc")
pytestmark = pytest.mark.skipif(NVCC is None, reason="no nvcc on the PATH")

#: header → how it declares device functions; what of them is not arithmetic, or only the headers' own
HEADERS: dict[str, tuple[str, str]] = {
    "crt/math_functions.h": ("__DEVICE_FUNCTIONS_DECL__", ""),
    "crt/device_functions.h": (
        "__DEVICE_FUNCTIONS_DECL__",
        "__brkpt __pm0 __pm1 __pm2 __pm3 __prof_trigger __threadfence_block",
    ),
    "crt/device_double_functions.h": ("__DEVICE_DOUBLE_FUNCTIONS_DECL__", ""),
    "crt/sm_80_rt.h": ("__SM_80_RT_DECL__", ""),
    "cuda_fp16.h": ("__CUDA_(?:HOSTDEVICE_)?FP16_DECL__", ""),
    "cuda_bf16.h": ("__CUDA_(?:HOSTDEVICE_)?BF16_DECL__", ""),
    "cuda_fp8.h": ("__CUDA_HOSTDEVICE_FP8_DECL__", ""),
    "cuda_fp6.h": ("__CUDA_HOSTDEVICE_FP6_DECL__", ""),
    "cuda_fp4.h": ("__CUDA_HOSTDEVICE_FP4_DECL__", ""),
}
#: Names that are macros, attributes, or begin with one underscore: the headers' own.
OWN = re.compile(
    r"_[A-Za-z]|defined$|__attribute__$|__\w*(?:DEPRECATED__|_TO_US|_BITS)$|__(?:is|finite|signbit|libcpp|cmath|pow)\w*$"
)


@cache
def include() -> Path:
    """The folder of CUDA's headers, as nvcc says it."""
    assert NVCC is not None
    done = subprocess.run([NVCC, "-dryrun", "-c", "x.cu"], capture_output=True, text=True, check=False)
    found = re.search(r"^#\$ INCLUDES=.*?-I(\S+?)\"?\s", done.stderr, re.MULTILINE)
    assert found is not None, done.stderr[:500]
    return Path(found[1].strip('"'))


def declared(header: str, macro: str) -> set[str]:
    text = (include() / header).read_text(encoding="utf-8", errors="replace")
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
    return set(re.findall(macro + r"[^;{(]*?\b([A-Za-z_]\w*)\s*\(", text))


@cache
def called() -> frozenset[str]:
    """Identifiers of the kernels' sources after their macros were expanded."""
    assert NVCC is not None
    words: set[str] = set()
    for source in sorted((TESTS / "cuda/kernels").glob("*.cu")):
        command = [NVCC, "-std=c++17", "-arch=sm_100", "-E", str(source)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        own = False
        for line in text.splitlines():
            if mark := re.match(r'# \d+ "([^"]*)"', line):
                own = mark[1].endswith(f"/{source.name}")
            elif own:
                words.update(re.findall(r"\w+", line))
    return frozenset(words)


@pytest.mark.parametrize("header", HEADERS)
def test_every_function_is_called(header: str) -> None:
    macro, left_out = HEADERS[header]
    functions = {name for name in declared(header, macro) if not OWN.match(name)}
    assert len(functions) > 5
    assert functions - called() == set(left_out.split())


def test_pairs_of_singles_are_called() -> None:
    """They are declared without a macro."""
    text = (include() / "crt/sm_100_rt.h").read_text(encoding="utf-8")
    functions = set(re.findall(r"\b(__f(?:add|mul|fma)2_r\w)\s*\(", text))
    assert len(functions) == 12
    assert functions <= called()
