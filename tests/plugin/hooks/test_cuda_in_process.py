"""``--gpuperf-cuda``: tests that call CUDA in their own process, here the driver API by ``ctypes``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.binaries.build import entry, fatbin
from tests.cudart.launches import COMPILER, DIVIDED, PTX, WORSE, needs_compiler
from tests.support import needs_assembler

#: ``add`` adds a number to the 32 elements of an array. ``kept`` is released when modules are gone.
HOST = """
import ctypes, os
from pathlib import Path

cuda = ctypes.CDLL("libcuda.so.1")

def right(code):
    assert code == 0, code

class Array:
    def __init__(self):
        self.address = ctypes.c_uint64()
        self.fill, self.release, self.write = cuda.cuMemsetD32_v2, cuda.cuMemFree_v2, os.write
        right(cuda.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(128)))
        right(self.fill(self.address, 0, 32))

    def add(self, number, blocks):
        value = ctypes.c_uint(number)
        arguments = (ctypes.c_void_p * 2)(ctypes.addressof(self.address), ctypes.addressof(value))
        return cuda.cuLaunchKernel(add, blocks, 1, 1, 32, 1, 1, 0, None, arguments, None)

    def values(self):
        host = (ctypes.c_uint * 32)()
        right(cuda.cuMemcpyDtoH_v2(host, self.address, ctypes.c_size_t(128)))
        return list(host)

    def __del__(self):
        self.write(1, b"fill %d, release %d\\n" % (self.fill(self.address, 0, 32), self.release(self.address)))

add = ctypes.c_void_p()
right(cuda.cuInit(0))
right(cuda.cuModuleLoadData(ctypes.byref(add), Path("k.ptx").read_bytes()))
right(cuda.cuModuleGetFunction(ctypes.byref(add), add, b"add"))
kept = Array()

def test_out_of_bounds():
    array = Array()
    right(array.add(1, blocks=1000))
    assert cuda.cuCtxSynchronize() == 700

def test_add():
    right(kept.add(2, blocks=1))
    right(kept.add(3, blocks=1))
    assert kept.values() == [5] * 32
"""
LINE = next(number for number, line in enumerate(HOST.splitlines(), 1) if "cuLaunchKernel" in line)


def run(project: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:hypothesispytest",
        *options,
    ]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120, check=False)


@needs_compiler
def test_tests_that_call_cuda_are_gated(tmp_path: Path) -> None:
    (tmp_path / "test_host.py").write_text(HOST)
    (tmp_path / "k.ptx").write_text(PTX)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --gpuperf-cuda\ngpuperf_targets = a100-sxm-80gb\n"
    )
    done = run(tmp_path, "--gpuperf", "--gpuperf-update")
    # a kernel that failed leaves nothing to the next test; what Python releases at its end is released (success), and the rest is told
    # that the driver has shut down (CUDA_ERROR_DEINITIALIZED)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert "2 passed" in done.stdout and done.stdout.endswith("fill 4, release 0\n")
    (tmp_path / "k.ptx").write_text(WORSE)
    (tmp_path / "pytest.ini").write_text("[pytest]\ngpuperf_targets = a100-sxm-80gb\n")
    done = run(tmp_path, "--gpuperf-cuda", "--gpuperf")
    assert done.returncode == 1
    assert "pytest --gpuperf-cuda --gpuperf --gpuperf-update test_host.py::test_add" in done.stdout
    # 11 instructions of 32 threads, and one more, twice
    assert "thread_instructions 704 → 768 " in " ".join(done.stdout.split())
    assert f"launched at test_host.py:{LINE}" in done.stdout


@needs_compiler
def test_a_target_that_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\ngpuperf_targets = b9000\n")
    done = run(tmp_path, "--gpuperf-cuda")
    assert done.returncode == 4
    assert "gpuperf_targets" in done.stderr and "b9000" in done.stderr


def test_where_the_libraries_cannot_be_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path / "empty"))
    done = run(tmp_path, "--gpuperf-cuda")
    assert done.returncode == 4
    assert done.stderr.startswith("ERROR: --gpuperf-cuda: ") and "set CC to a C compiler" in done.stderr
    assert "Traceback" not in done.stderr


#: CUDA Driver API: CU_FUNC_ATTRIBUTE_PTX_VERSION, CU_FUNC_ATTRIBUTE_BINARY_VERSION
ATTRIBUTES = """
def test_versions():
    found = ctypes.c_int()
    for attribute, expected in ((5, 120), (6, 80)):
        right(cuda.cuFuncGetAttribute(ctypes.byref(found), attribute, add))
        assert found.value == expected
"""


@needs_compiler
def test_higher_ptx_stands_for_machine_code(tmp_path: Path) -> None:
    """As in CuPy's wheel. CUB asks which architecture the PTX was compiled for, to launch it with the block of that."""
    higher = PTX.replace("sm_80", "sm_120").replace("8.0", "8.7")
    (tmp_path / "k.fatbin").write_bytes(
        fatbin(
            entry(b"\x7fELF", kind=2, architecture=80),
            entry(higher.encode(), architecture=120),
        )
    )
    (tmp_path / "test_host.py").write_text(HOST.replace("k.ptx", "k.fatbin") + ATTRIBUTES)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --gpuperf-cuda\ngpuperf_targets = a100-sxm-80gb\n"
    )
    done = run(tmp_path, "--gpuperf", "--gpuperf-update", "-s")
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout + done.stderr
    assert done.stderr.count("PTX for sm_120 runs instead of machine code for sm_80, as ") == 1
    said = "this is PTX for sm_120, instead of machine code for sm_80, which a GPU would run"
    assert said in done.stdout
    (stored,) = yaml.safe_load((tmp_path / "baselines" / "test_host.yaml").read_text())["cases"].values()
    assert stored["counts"]["thread_instructions"] == 11 * 2 * 32


#: the runtime, which finds no driver, and a module with host code as nvcc generates it
RUNTIME = "".join(
    f"int {name}(void) {{ return 35; }}\n"
    for name in ("cudaMalloc", "cudaMemset", "cudaMemcpy", "cudaLaunchKernel", "__cudaRegisterFunction")
)
MODULE = """
typedef struct { unsigned x, y, z; } dim3;
extern void **__cudaRegisterFatBinary(void *);
extern int __cudaRegisterFunction(void **, void *, char *, char *, int, void *, void *, void *, void *, void *);
extern int cudaLaunchKernel(void *, dim3, dim3, void **, unsigned long, void *), cudaMalloc(void **, unsigned long);
extern int cudaMemset(void *, int, unsigned long), cudaMemcpy(void *, const void *, unsigned long, int);
__asm__(".section .nv_fatbin, \\"a\\"\\n.balign 8\\nfat: .incbin \\"k.fatbin\\"\\n.text");
extern char fat[];
static struct { int magic, version; void *data, *unused; } wrapper = {0x466243b1, 1, fat, 0};
static void add(void) {}
__attribute__((constructor, used)) static void registers(void) __asm__("_ZL24__sti____cudaRegisterAllv");
static void registers(void)
{
    __cudaRegisterFunction(__cudaRegisterFatBinary(&wrapper), add, "add", "add", -1, 0, 0, 0, 0, 0);
}
int sum(int number)
{
    void *memory;
    unsigned values[32], *pointer = values;
    void *arguments[] = {&memory, &number};
    dim3 grid = {1, 1, 1}, block = {32, 1, 1};
    if (cudaMalloc(&memory, 128) || cudaMemset(memory, 0, 128) || cudaLaunchKernel(add, grid, block, arguments, 0, 0))
        return -1;
    cudaMemcpy(values, memory, 128, 2);
    return values[0] + values[31];
}
"""


@needs_compiler
def test_modules_that_were_loaded_before_register_again(tmp_path: Path) -> None:
    """As CuPy's are by pytest, where a filter of warnings names a class of it."""
    (tmp_path / "k.fatbin").write_bytes(fatbin(entry(PTX.encode())))
    (tmp_path / "module.c").write_text(MODULE)
    (tmp_path / "runtime.c").write_text(
        RUNTIME + "void *__cudaRegisterFatBinary(void *wrapper) { return 0; }\nvoid behind(void) {}\n"
    )
    flags = ["-w", "-shared", "-fPIC", "-O1", "-falign-functions=32"]
    for command in (["runtime.c", "-o", "libruntime.so"], ["module.c", "-o", "module.so", "./libruntime.so"]):
        subprocess.run([str(COMPILER), *flags, *command], cwd=tmp_path, check=True)
    (tmp_path / "test_sum.py").write_text(
        "import __main__\n\ndef test():\n    assert __main__.module.sum(21) == 42\n"
    )
    code = (
        "import ctypes, pytest; module = ctypes.CDLL('./module.so'); assert module.sum(21) == -1; "
        "raise SystemExit(pytest.main(['-q', '-p', 'no:cacheprovider', '--gpuperf-cuda']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_compiler
@needs_assembler
def test_machine_code_of_their_launches_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words are 0 in the first launch, which calls the slow path of the division, and 2 in the second one."""
    monkeypatch.delenv("GPUPERF_NVDISASM")
    (tmp_path / "test_host.py").write_text(HOST)
    (tmp_path / "k.ptx").write_text(DIVIDED)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --gpuperf-cuda\ngpuperf_targets = a100-sxm-80gb\n"
    )
    done = run(tmp_path, "--gpuperf-update", "--gpuperf-report=out", "-k", "test_add")
    assert done.returncode == 0, done.stdout + done.stderr
    (case,) = json.loads((tmp_path / "out" / "gpuperf.json").read_text())["cases"]
    assert case["measured"]["launches"] == 2
    assert case["measured"]["targets"]["a100-sxm-80gb"]["machine_code"]["residue"] == 0
    code = case["detail"]["targets"]["a100-sxm-80gb"]["machine_code"]
    assert (code["notes"], code["by_opcode"]["CALL"]) == ([], 1)


#: by another name of the driver than that of ``HOST``, and without anything that this process has set
CHILD = """
import multiprocessing, subprocess, sys

def sums(queue):
    from test_host import Array, right
    array = Array()
    right(array.add(2, blocks=1))
    queue.put(sum(array.values()))

def test_started():
    done = subprocess.run([sys.executable, "child.py"], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("5\\n", 0), done.stderr

def test_spawned():
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=sums, args=(queue,))
    process.start()
    assert queue.get(timeout=60) == 64
    process.join()

def test_of_c():
    subprocess.run(["COMPILER", "-w", "linked.c", "-o", "linked", "-lcuda"], check=True)
    done = subprocess.run(["./linked"], capture_output=True, text=True)
    assert done.stdout == "1 GPU of 8.0\\n", done.stderr

def test_own_process():
    import ctypes
    count = ctypes.c_int()
    assert ctypes.CDLL("libcuda.so").cuDeviceGetCount(ctypes.byref(count)) == 0
    assert count.value == 1
"""
LINKED = """
#include <stdio.h>
extern int cuInit(unsigned), cuDeviceGetCount(int *), cuDeviceGetAttribute(int *, int, int);
int main(void)
{
    int count = 0, major = 0, minor = 0;
    cuInit(0), cuDeviceGetCount(&count), cuDeviceGetAttribute(&major, 75, 0), cuDeviceGetAttribute(&minor, 76, 0);
    return printf("%d GPU of %d.%d\\n", count, major, minor) < 0;
}
"""


@needs_compiler
def test_processes_that_a_test_starts_find_the_gpu(tmp_path: Path) -> None:
    """Of Python, and of C that is compiled there, and linked to the driver by the name that linkers look for."""
    (tmp_path / "test_host.py").write_text(HOST.replace("libcuda.so.1", "libcuda.so"))
    (tmp_path / "child.py").write_text(
        "from test_host import Array, right\narray = Array()\nright(array.add(5, blocks=1))\nprint(array.values()[31], flush=True)\n"
        "import os\nos._exit(0)\n"
    )
    (tmp_path / "test_child.py").write_text(CHILD.replace("COMPILER", str(COMPILER)))
    (tmp_path / "k.ptx").write_text(PTX)
    (tmp_path / "linked.c").write_text(LINKED)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --gpuperf-cuda\ngpuperf_targets = a100-sxm-80gb\n"
    )
    done = run(tmp_path, "test_child.py")
    assert done.returncode == 0 and "4 passed" in done.stdout, done.stdout + done.stderr
