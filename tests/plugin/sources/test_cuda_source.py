"""CUDA C++ as a source: compiled once per content, with the compiler's version in the baseline. A stand-in for nvcc compiles "N" to a
kernel of N instructions; the real compilers are asked where they are installed."""

from __future__ import annotations

import ctypes
import os
import shutil
from importlib import util
from pathlib import Path
from unittest import mock

import pytest
import yaml

import gpuperf_engine
from pytest_gpuperf.sources.compiler import lowered
from pytest_gpuperf.sources.nvrtc import find_nvrtc

NVCC = """\
#!/usr/bin/env python3
import pathlib, re, sys

def read(path):
    text = pathlib.Path(path).read_text()
    folders = [pathlib.Path(path).parent, *(a[2:] for a in sys.argv if a.startswith("-I"))]
    for name in re.findall('#include "(.*)"', text):
        text += next(read(pathlib.Path(f) / name) for f in folders if (pathlib.Path(f) / name).is_file())
    return text

if "--version" in sys.argv:
    print("Cuda compilation tools, release 13.0, V{version}")
    sys.exit()
with open({log!r}, "a") as log:
    log.write(" ".join(a for a in sys.argv[1:] if a.startswith(("-arch", "-D", "-std"))) + "\\n")
source = sys.argv[sys.argv.index("cu") + 1]
text = read(source)
if "oops" in text:
    print(source + '(1): error: identifier "oops" is undefined', file=sys.stderr)
    sys.exit(2)
numbers = [int(n) + {more} for n in re.findall("instructions (\\\\d+)", text)] + [0]
name = re.search("__device__ auto (\\\\w+) =", text)
with open(sys.argv[sys.argv.index("-o") + 1], "w") as ptx:
    target = re.search("compute_(\\\\w+)", " ".join(sys.argv))[1]
    ptx.write(".version 8.0\\n.target sm_" + target + "\\n.address_size 64\\n.visible .entry _Z1kIfEvv() {{ .reg .b32 %r;\\n")
    ptx.write("mov.u32 %r, 1;\\n" * (sum(numbers) - 1) + "ret; }}\\n.visible .entry b() {{ ret; }}\\n")
    if name:
        ptx.write(".global .align 8 .u64 " + name[1] + " = _Z1kIfEvv;\\n")
"""
TEST = """\
import pytest
from pytest_gpuperf import CudaSource

@pytest.mark.gpuperf(targets={targets})
def test_k(gpuperf):
    gpuperf.kernel({source}, {entry!r})[1, 32]()
"""


@pytest.fixture
def real(project, monkeypatch, tmp_path):
    monkeypatch.setattr("pytest_gpuperf._engine.NAME", gpuperf_engine.__name__)
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GPUPERF_NVCC", str(project.path / "nvcc"))
    install(project)
    project.write("k.cu", "instructions 3\n")
    return project


def install(project, version="13.0.88", more=0):
    """Another program at the same path is another compiler, as for a toolkit that was updated."""
    file = project.path / "nvcc"
    file.unlink(missing_ok=True)
    file.write_text(NVCC.format(version=version, log=str(project.path / "log"), more=more))
    file.chmod(0o755)


def run(project, *options, source="'k.cu'", entry="k<float>", targets=("h100-sxm",)):
    project.write("test_k.py", TEST.format(source=source, entry=entry, targets=list(targets)))
    return project.run("--gpuperf", *options)


def compiled(project):
    """The options of each compilation so far."""
    log = project.path / "log"
    return log.read_text().splitlines() if log.is_file() else []


def case(project):
    (entry,) = yaml.safe_load((project.path / "baselines" / "test_k.yaml").read_text())["cases"].items()
    return entry[0], entry[1]["counts"]["thread_instructions"], entry[1]["compiler"]


def test_compiled_once_per_content(real):
    real.write("inner/n.h", "instructions 2\n")
    real.write("k.cu", 'instructions 3\n#include "n.h"\n')
    source = "CudaSource('k.cu', includes=['inner'], defines={'A': 1, 'B': None}, std='c++17')"
    for number, change in enumerate([None, "instructions 4\n"]):
        if change:
            real.write("inner/n.h", change)
        for _ in range(2):
            run(real, "--gpuperf-update", source=source)
        assert compiled(real) == ["-arch=compute_90 -DA=1 -DB -std=c++17"] * (number + 1)
        assert case(real) == ("test_k/_Z1kIfEvv", 32 * (5 + 2 * number), "nvcc 13.0.88")
    # the lowest of the targets, and what the source says before that
    run(real, source=source, targets=("h100-sxm", "a100-sxm-80gb"))
    run(real, source="CudaSource('k.cu', includes=['inner'], arch='sm_90a')")
    assert compiled(real)[2:] == ["-arch=compute_80 -DA=1 -DB -std=c++17", "-arch=compute_90a"]


def test_numbers_of_another_compiler_are_not_comparable(real):
    assert run(real, "--gpuperf-update").ret == 0
    install(real, "13.1.5")
    assert run(real).ret == 0  # the same PTX
    install(real, "13.2.7", more=2)
    result = run(real)
    assert result.ret != 0
    result.stdout.fnmatch_lines(
        [
            "*_Z1kIfEvv is not comparable: compiled by nvcc 13.2.7, the baseline by nvcc 13.0.88",
            "*because +64 mov.u32 at k.cu[[]sm_90[]]:*",
        ]
    )


@pytest.mark.parametrize(
    "source, lines",
    [
        ("'none.cu'", ["no CUDA file 'none.cu'", "did you mean 'k.cu'?", "known files: k.cu"]),
        (
            "'oops.cu'",
            [
                "oops.cu does not compile for compute_90 (nvcc 13.0.88)",
                'error: identifier "oops" is undefined',
            ],
        ),
        ("CudaSource('k.cu', includes=['nowhere'])", ["no folder 'nowhere' to include from"]),
        ("CudaSource('k.cu', arch='hopper')", ["arch='hopper' names no architecture"]),
        (
            "CudaSource('k.cu', compiler='clang')",
            ["compiler='clang' is not known", "known compilers: auto, nvcc, nvrtc"],
        ),
    ],
)
def test_messages(real, source, lines):
    real.write("oops.cu", "oops\n")
    text = run(real, source=source).stdout.str()
    assert any(line in text for line in lines[1:]) or len(lines) == 1
    assert lines[0] in text
    assert "does not compile" not in text or 'another architecture: arch="sm_90a"' in text


def test_without_a_compiler(real, monkeypatch):
    find_nvrtc.cache_clear()
    monkeypatch.setenv("GPUPERF_NVCC", "")
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(util, "find_spec", lambda _: None)
    monkeypatch.setattr("ctypes.util.find_library", lambda _: None)
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    text = run(real).stdout.str()
    assert "there is neither nvcc nor NVRTC to compile CUDA C++ with" in text
    assert "pip install 'pytest-gpuperf[nvrtc]'" in text
    assert "there is no nvcc" in run(real, source="CudaSource('k.cu', compiler='nvcc')").stdout.str()


@pytest.mark.skipif(os.name != "posix", reason="Windows finds them beside the library")
def test_the_built_in_functions_of_nvrtc_are_there_before_it(monkeypatch, tmp_path):
    """The library of the wheel ``nvidia-cuda-nvrtc`` 13.0.88 has no ``RUNPATH``, and opens them by name when it compiles."""
    for name in (
        "libnvrtc.so.13",
        "libnvrtc.alt.so.13",
        "libnvrtc-builtins.so.13.0",
        "libnvrtc-builtins.alt.so.13.0",
    ):
        (tmp_path / name).touch()
    opened = []

    def opens(path, mode=ctypes.DEFAULT_MODE):
        opened.append((Path(path).name, mode))
        return mock.MagicMock()

    find_nvrtc.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", opens)
    monkeypatch.setenv("GPUPERF_NVRTC", str(tmp_path / "libnvrtc.so.13"))
    find_nvrtc()
    find_nvrtc.cache_clear()
    assert opened == [
        ("libnvrtc-builtins.so.13.0", ctypes.RTLD_GLOBAL),
        ("libnvrtc.so.13", ctypes.DEFAULT_MODE),
    ]


def test_the_variable_of_a_name_expression_is_taken_out():
    text = (
        ".entry _Z1kIfEvv() { }\n.global .align 8 .u64 gpuperf_name_expression = _Z1kIfEvv;\n.entry b() { }\n"
    )
    assert lowered(text) == (".entry _Z1kIfEvv() { }\n\n.entry b() { }\n", "_Z1kIfEvv")


SAXPY = """\
#include "n.h"
template <typename T> __global__ void axpy(T a, const T *x, T *y) { y[threadIdx.x] += a * x[threadIdx.x] + N + MORE; }
"""
CHECK = """\
import numpy as np
from pytest_gpuperf import CudaSource

def test_axpy(gpuperf):
    source = CudaSource("axpy.cu", includes=["inner"], defines={{"MORE": 2}}, std="c++17", compiler={compiler!r})
    x, y = gpuperf.array(np.arange(32.0)), gpuperf.zeros(32, np.float64)
    gpuperf.kernel(source, "axpy<double>")[1, 32](np.float64(3), x, y)
    np.testing.assert_array_equal(y.numpy(), 3 * np.arange(32.0) + 42)
"""


def _nvrtc():
    try:
        return bool(find_nvrtc())
    except gpuperf_engine.EngineError:
        return False


@pytest.mark.parametrize(
    "compiler",
    [
        pytest.param(
            "nvcc", marks=pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
        ),
        pytest.param("nvrtc", marks=pytest.mark.skipif(not _nvrtc(), reason="NVRTC is not installed")),
    ],
)
def test_real_compilers(real, monkeypatch, compiler):
    monkeypatch.delenv("GPUPERF_NVCC")
    find_nvrtc.cache_clear()
    real.write("axpy.cu", SAXPY)
    real.write("inner/n.h", "#define N 40\n")
    real.write("test_k.py", CHECK.format(compiler=compiler))
    real.run("--gpuperf", "--gpuperf-update").assert_outcomes(passed=1)
