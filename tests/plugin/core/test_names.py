"""Names of kernels: what a compiler counts or hashes is not part of a case's id; overloads and templates stay apart."""

from __future__ import annotations

import pytest

from pytest_gpuperf.core.mangling import function_name, stable_id, stable_name
from tests.plugin.conftest import ptx

ARRAYS = "5ArrayIfLi1E1C7mutable7alignedE5ArrayIfLi1E1C7mutable7alignedEx"
FLAGS = "cw51cXTLSUwv1sDUYKthoaNgpqmjAE8StqAkBQxStNhFEoYkJCQB1MQBk0ByrG21OiwI1a0UoFGhDpQE8gxqNQE_3d"


def numba(name: str, number: int, namespace: str = "6cudapy8__main__") -> str:
    """As numba-cuda mangles it: the number of the function and the compiler's flags are ABI tags."""
    return f"_ZN{namespace}{len(name)}{name}B{len(f'v{number}')}v{number}B{len(FLAGS)}{FLAGS}E{ARRAYS}"


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        (numba("saxpy", 1), "saxpy"),
        (numba("saxpy", 12), "saxpy"),
        (numba("histogram", 1, "8__main__"), "histogram"),
        (numba("kernel", 3, "6cudapy3pkg3mod4make12_3clocals_3e"), "kernel"),
        (f"_ZN6cudapy8__main__9saxpy_241E{ARRAYS}", "saxpy"),
        (f"_ZN6cudapy8__main__10saxpy$2412E{ARRAYS}", "saxpy"),
        (f"_ZN6cudapy8__main__5saxpyE{ARRAYS}", "saxpy"),
        ("cudapy___main___2E_saxpy_24_1_2E_array_28_float32_2C__20_1d_2C__20_C_29_", "saxpy"),
        ("cudaPy_prog_2E_util_2E_awesome_kernel_24_51_2E_float64_2E_int64", "awesome_kernel"),
        ("_Z9saxpy_241f", "_Z9saxpy_241f"),  # C++ may call a function so
        ("_ZN43_INTERNAL_c7d64fba_12_histogram_cu_23df3d096kernelEPjj", "_ZN12_GLOBAL__N_16kernelEPjj"),
        (
            "_ZN57_GLOBAL__N__c7d64fba_12_histogram_cu_23df3d09_17_name_abc6kernelEv",
            "_ZN12_GLOBAL__N_16kernelEv",
        ),
        ("saxpy", "saxpy"),
        ("cudamemset", "cudamemset"),
        ("_Z", "_Z"),
        ("_ZN", "_ZN"),
        ("_Z99x", "_Z99x"),
        ("", ""),
    ],
)
def test_the_stable_name(mangled: str, name: str) -> None:
    assert stable_name(mangled) == name
    assert stable_name(name) == name
    assert stable_id(f"test_a[1/2]/{mangled}@sm_80") == f"test_a[1/2]/{name}@sm_80"


def test_overloads_and_instances_of_templates_keep_their_names_apart() -> None:
    names = [
        "_Z5scaleiPf",
        "_Z5scaleiPd",
        "_Z9transposeILi32EEviiPKfPf",
        "_Z9transposeILi33EEviiPKfPf",
        "_ZN7cutlass6KernelINS_4gemm6kernel4GemmIfLi3EEEEEvNT_6ParamsE",
        "_ZN7cutlass6KernelINS_4gemm6kernel4GemmIdLi3EEEEEvNT_6ParamsE",
        "_ZN3abcB5cxx115sizesEv",
    ]
    assert [stable_name(name) for name in names] == names


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("_ZN43_INTERNAL_c7d64fba_12_histogram_cu_23df3d099atomicAddEPjj", "atomicAdd"),
        ("_Z9transposeILi32EEviiPKfPf", "transpose"),
        ("_ZN7cutlass6KernelINS_4gemm6kernel4GemmIfLi3EEEEEvNT_6ParamsE", "Kernel"),
        ("_ZNK3foo3barIfEEvT_", "bar"),
        (numba("saxpy", 1), "saxpy"),
        ("reduce", "reduce"),
    ],
)
def test_the_name_for_people(mangled: str, name: str) -> None:
    assert function_name(mangled) == name


NUMBA_TEST = """\
import numpy as np

def test_scale(gpuperf):
    x = gpuperf.array(np.arange(64, dtype=np.float32))
    gpuperf.kernel("scale.ptx"{entry})[2, 32](x, np.float32(2))
"""


@pytest.mark.parametrize("layout", ["module", "case"])
def test_a_baseline_outlives_the_number_of_a_compilation(project, layout: str) -> None:
    """Also one that an earlier version wrote, whose ids held that number."""
    project.write(
        "pytest.ini", f"[pytest]\naddopts = -p no:cacheprovider\ngpuperf_baseline_layout = {layout}\n"
    )
    project.write("test_k.py", NUMBA_TEST.format(entry=""))
    project.write("scale.ptx", ptx(name=numba("scale", 1)))
    assert project.update().ret == 0
    files = sorted((project.path / "baselines").rglob("*.yaml"))
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    assert any("  test_scale/scale:\n" in text for text in texts.values())
    project.write("scale.ptx", ptx(name=numba("scale", 2)))
    assert project.run().ret == 0
    project.write("test_k.py", NUMBA_TEST.format(entry=", entry='scale'"))
    assert project.run().ret == 0
    for path, text in texts.items():
        path.write_text(
            text.replace("  test_scale/scale:", f"  test_scale/{numba('scale', 7)}:"), encoding="utf-8"
        )
    result = project.run()
    assert result.ret == 0, result.stdout.str()
    result.stdout.no_fnmatch_line("*stale*")
    assert project.update().ret == 0
    assert {
        path: path.read_text(encoding="utf-8")
        for path in sorted((project.path / "baselines").rglob("*.yaml"))
    } == texts
