"""Programs of the driver API on our ``libcuda``: one in C that checks itself, and Python as the host."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gpuperf_engine.cudart.build import build_libraries
from gpuperf_engine.cudart.driver_names import symbol_of
from tests.binaries.build import archive, elf, entry, fatbin
from tests.cudart.test_programs import COMPILER, HERE, PTX, needs_compiler

IMAGES = """
.visible .entry levels(.param .u64 image, .param .u64 p) {
    .reg .b64 %rd<4>; .reg .b32 %r<3>; .reg .f32 %f<6>;
    ld.param.u64 %rd1, [image]; ld.param.u64 %rd2, [p];
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4; add.s64 %rd2, %rd2, %rd3; cvt.rn.f32.u32 %f1, %r1;
    tex.level.2d.v4.f32.f32 {%f2, %f3, %f4, %f5}, [%rd1, {0f3F000000, 0f3F000000}], %f1;
    st.global.f32 [%rd2], %f2;
    ret;
}
.visible .entry faces(.param .u64 image, .param .u64 p) {
    .reg .b64 %rd<4>; .reg .b32 %r<5>; .reg .f32 %f<10>; .reg .pred %q<4>;
    ld.param.u64 %rd1, [image]; ld.param.u64 %rd2, [p];
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4; add.s64 %rd2, %rd2, %rd3;
    shr.u32 %r2, %r1, 1; and.b32 %r3, %r1, 1; setp.eq.u32 %q1, %r3, 0; selp.f32 %f1, 0f40000000, 0fC0000000, %q1;
    setp.eq.u32 %q1, %r2, 0; setp.eq.u32 %q2, %r2, 1; setp.eq.u32 %q3, %r2, 2;
    selp.f32 %f2, %f1, 0f3F000000, %q1; selp.f32 %f3, %f1, 0f3F000000, %q2; selp.f32 %f4, %f1, 0f3F000000, %q3;
    tex.cube.v4.f32.f32 {%f5, %f6, %f7, %f8}, [%rd1, {%f2, %f3, %f4, %f4}];
    st.global.f32 [%rd2], %f5;
    ret;
}
"""


def run(*command: str, target: str = "a100-sxm-80gb", output: str = "") -> subprocess.CompletedProcess[str]:
    options = ["--target", target, *(["-o", output] if output else [])]
    start = [sys.executable, "-m", "pytest_gpuperf.cli", "run", *options, "--"]
    return subprocess.run([*start, *command], capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("driver")
    (folder / "k.ptx").write_text(PTX + IMAGES)
    library = build_libraries() / "libcuda.so.1"
    command = [COMPILER, "-w", str(HERE / "driver.c"), "-o", "program", str(library)]
    subprocess.run(command, cwd=folder, check=True)
    return folder


@needs_compiler
def test_a_program_of_the_driver_checks_itself(program):
    result = run(str(program / "program"), str(program / "k.ptx"), "works")
    assert (result.stdout, result.returncode) == ("right\n", 0), result.stderr
    assert "Traceback" not in result.stderr
    for message in (
        "cuImportExternalMemory is not supported (CUDA_ERROR_NOT_SUPPORTED): memory and semaphores of graphics APIs",
        "cuArray3DCreate_v2: a cube map of 8 x 8 x 5 texels; accepted: faces as wide as high, 6 of them",
        "cuArray3DCreate_v2: arrays whose memory is mapped later (cudaArraySparse, cudaArrayDeferredMapping) are not supported",
        "cube maps are not filtered across the edges of their faces; accepted: seamlessCubemap 0",
    ):
        assert message in result.stderr


@needs_compiler
def test_errors_of_kernels_stay(program):
    result = run(str(program / "program"), str(program / "k.ptx"), "fails")
    assert (result.stdout, result.returncode) == ("right\n", 0), result.stderr
    assert "cuLaunchKernel: block.x is 2,000" in result.stderr
    assert "program[PTX]:10:5: out-of-bounds ld.global.u32" in result.stderr


@needs_compiler
def test_python_is_the_host(program, tmp_path):
    """The interpreter of the program is used, and stays usable; threads of it call the driver; what was counted is written."""
    code = f"""
import ctypes, sys, threading
cuda = ctypes.CDLL("libcuda.so.1")
handle, data = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuModuleLoadData(ctypes.byref(handle), open({str(program / "k.ptx")!r}, "rb").read()) == 0
assert cuda.cuModuleGetFunction(ctypes.byref(handle), handle, b"add") == 0
versions = ctypes.c_int(), ctypes.c_int()
for number, version in zip((5, 6), versions):
    assert cuda.cuFuncGetAttribute(ctypes.byref(version), number, handle) == 0
print(*[version.value for version in versions])
assert cuda.cuMemAlloc_v2(ctypes.byref(data), ctypes.c_size_t(128)) == 0
assert cuda.cuMemsetD32_v2(data, 0, ctypes.c_size_t(32)) == 0
value = ctypes.c_uint(4)
arguments = (ctypes.c_void_p * 2)(ctypes.addressof(data), ctypes.addressof(value))
def launch():
    assert cuda.cuLaunchKernel(handle, 1, 1, 1, 32, 1, 1, 0, None, arguments, None) == 0
threads = [threading.Thread(target=launch) for _ in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
host = (ctypes.c_uint * 32)()
assert cuda.cuMemcpyDtoH_v2(host, data, ctypes.c_size_t(128)) == 0
print(set(host))
"""
    # of the PTX, sm_80, and of the machine, to which a driver compiles it
    counted = tmp_path / "counted.json"
    result = run(sys.executable, "-c", code, target="h100-sxm", output=str(counted))
    assert (result.stdout, result.returncode) == ("80 90\n{15}\n", 0), result.stderr
    assert [(row["kernel"], row["launches"]) for row in json.loads(counted.read_text())["kernels"]] == [
        ("add", 3)
    ]


@needs_compiler
def test_nvrtc_gives_ptx_for_a_cubin(tmp_path):
    """A cubin has nothing that runs here, and NVRTC has the PTX that it was made of."""
    (tmp_path / "nvrtc.c").write_text(
        "".join(
            f"__attribute__((aligned(16))) int nvrtcGet{what}(void) {{ return {code}; }}\n"
            for what, code in (("CUBIN", 1), ("CUBINSize", 2), ("PTX", 3), ("PTXSize", 4))
        )
    )
    subprocess.run([COMPILER, "-shared", "-fPIC", "nvrtc.c", "-o", "libnvrtc.so"], cwd=tmp_path, check=True)
    code = f"import ctypes; n = ctypes.CDLL({str(tmp_path / 'libnvrtc.so')!r}); print(n.nvrtcGetCUBIN(), n.nvrtcGetCUBINSize())"
    assert run(sys.executable, "-c", code).stdout == "3 4\n"


def test_which_form_of_a_function_a_version_has():
    """``cudaTypedefs.h``: ``PFN_cuCtxCreate_v2000``, ``_v3020``, ``_v11040``, ``_v12050``."""
    assert [symbol_of("cuCtxCreate", version)[0] for version in (2000, 3020, 11040, 12040, 13000)] == [
        "cuCtxCreate", "cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v3", "cuCtxCreate_v4",
    ]  # fmt: skip
    assert symbol_of("cuMemcpyHtoD", 12000, per_thread=True) == ("cuMemcpyHtoD_v2_ptds", True)
    assert symbol_of("cuInit", 12000, per_thread=True) == ("cuInit", True)
    assert symbol_of("cuTensorMapEncodeTiled", 11000) == (None, True)
    assert symbol_of("cuNothing", 13000) == (None, False)
    # programs that were linked to these can be loaded
    assert symbol_of("cuProfilerInitialize", 13000) == ("cuProfilerInitialize", True)
    assert symbol_of("cuGraphicsMapResources", 13000, per_thread=True) == (
        "cuGraphicsMapResources_ptsz",
        True,
    )
    assert symbol_of("cuGraphicsResourceGetMappedPointer", 3020)[0] == "cuGraphicsResourceGetMappedPointer_v2"


@needs_compiler
def test_functions_that_end_a_context_succeed_when_python_ends(program):
    """Destructors of PyCUDA call them then, and abort if one of them fails; others answer that the driver shuts down."""
    code = """
import atexit, ctypes
cuda = ctypes.CDLL("libcuda.so.1")
def late():
    names = "cuCtxPushCurrent_v2 cuCtxPopCurrent_v2 cuCtxSetCurrent cuCtxDetach cuMemFree_v2 cuStreamSynchronize"
    print(*(getattr(cuda, name)(None) for name in names.split()))
atexit.register(late)
assert cuda.cuInit(0) == 0
"""
    assert run(sys.executable, "-c", code).stdout == "0 0 0 0 0 4\n"


@needs_compiler
def test_a_block_has_the_shared_memory_of_the_gpu(program):
    """PTX for sm_80 is compiled for an H100 there, whose blocks may have more."""
    code = f"""
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
module, kernel, data, most = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_int()
assert cuda.cuInit(0) == 0
assert cuda.cuModuleLoadData(ctypes.byref(module), open({str(program / "k.ptx")!r}, "rb").read()) == 0
assert cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"add") == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(data), 128) == 0
assert cuda.cuDeviceGetAttribute(ctypes.byref(most), 97, 0) == 0
assert most.value == 227 << 10
arguments = (ctypes.c_void_p * 2)(ctypes.addressof(data), ctypes.addressof(most))
for more, code in ((0, 0), (1, 1)):
    shared = most.value + more
    assert cuda.cuFuncSetAttribute(kernel, 8, shared) == code
    assert cuda.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, shared, None, arguments, None) == code
"""
    done = run(sys.executable, "-c", code, target="h100-sxm")
    assert done.returncode == 0, done.stderr
    assert "the GPU has at most 232,448 bytes per block" in done.stderr


@needs_compiler
def test_a_cubin_that_a_program_makes_is_named(tmp_path):
    """As nvJitLink makes one, of machine code alone."""
    (tmp_path / "k.cubin").write_bytes(elf({".text.k": b"x"}, machine=190, flags=0x500550, abi=7))
    code = f"""
import ctypes
cuda, module = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert cuda.cuModuleLoadData(ctypes.byref(module), open({str(tmp_path / "k.cubin")!r}, "rb").read()) == 209
"""
    done = run(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    assert "loads a cubin of machine code for sm_80" in done.stderr
    assert "link it with cuLinkAddData instead of nvJitLink" in done.stderr


@needs_compiler
def test_libraries_are_linked(tmp_path):
    """PTX of each object of a library; ``libcudadevrt``, which programs add for the device runtime, is left out."""
    head = ".version 8.0\n.target sm_80\n.address_size 64\n"
    parts = [head + f".visible .func give{number} {{ ret; }}" for number in range(2)]
    caller = (
        head
        + ".extern .func give0; .extern .func give1; .visible .entry calls() { call give0; call give1; ret; }"
    )
    runtime = (
        head + ".visible .func (.param .b64 r) __cudaCDP2GetParameterBufferV2() { st.param.b64 [r], 0; ret; }"
    )
    for name, texts in (("parts", parts), ("runtime", [runtime])):
        members = (elf({"__nv_relfatbin": fatbin(entry(text.encode()))}) for text in texts)
        (tmp_path / f"{name}.a").write_bytes(archive(*members))
    code = f"""
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
linking, module, kernel, image = (ctypes.c_void_p() for _ in range(4))
assert cuda.cuInit(0) == 0
assert cuda.cuLinkCreate_v2(0, None, None, ctypes.byref(linking)) == 0
text = {caller!r}.encode()
assert cuda.cuLinkAddData_v2(linking, 1, text, len(text), b"caller", 0, None, None) == 0
for name in ("parts", "runtime"):
    assert cuda.cuLinkAddFile_v2(linking, 4, f"{tmp_path}/{{name}}.a".encode(), 0, None, None) == 0
assert cuda.cuLinkAddFile_v2(linking, 5, b"{tmp_path}/parts.a", 0, None, None) == 801
assert cuda.cuLinkComplete(linking, ctypes.byref(image), None) == 0
assert cuda.cuModuleLoadData(ctypes.byref(module), image) == 0
assert cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"calls") == 0
assert cuda.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, None, None, None) == 0
"""
    done = run(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    assert "NVVM IR cannot be linked" in done.stderr


#: the flag is one that the host sets after the launch, as a GPU would see it
WAITS = """
import ctypes, os, sys
from ctypes import byref, c_size_t, c_uint64, c_void_p

cuda = ctypes.CDLL("libcuda.so.1")
PTX = b".version 8.0\\n.target sm_80\\n.address_size 64\\n.visible .entry k(.param .u64 p) {" \\
    b".reg .b64 %a; .reg .b32 %v; .reg .pred %q; ld.param.u64 %a, [p];" \\
    b"L: ld.volatile.global.u32 %v, [%a]; setp.eq.u32 %q, %v, 0; @%q bra L; ret; }"
flag, module, kernel = c_uint64(), c_void_p(), c_void_p()
cuda.cuInit(0)
if sys.argv[1] == "managed":
    cuda.cuMemAllocManaged(byref(flag), c_size_t(4), 1)
else:
    cuda.cuMemAlloc_v2(byref(flag), c_size_t(4))
cuda.cuMemsetD32_v2(flag, 0, c_size_t(1))
cuda.cuModuleLoadData(byref(module), PTX)
cuda.cuModuleGetFunction(byref(kernel), module, b"k")
cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, (c_void_p * 1)(ctypes.addressof(flag)), None)
print(cuda.cuCtxSynchronize(), flush=True)
os._exit(0)
"""


@needs_compiler
@pytest.mark.parametrize("kind", ["managed", "device"])
def test_a_kernel_that_waits_for_the_host(kind, tmp_path):
    """It cannot end if the host waits for it, and the message says so where the host could have set the flag."""
    (tmp_path / "program.py").write_text(WAITS)
    result = run(sys.executable, str(tmp_path / "program.py"), kind)
    assert (result.stdout, result.returncode) == ("702\n", 0), result.stderr
    assert "no thread can make progress" in result.stderr
    said = "the host waits for this kernel, so that nobody can write what it waits for"
    assert (said in result.stderr) == (kind == "managed")


SETTINGS = """
import ctypes, os
from ctypes import addressof, byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p, create_string_buffer

cuda = ctypes.CDLL("libcuda.so.1")

def right(code):
    assert code == 0, code

number, size, context, stream, other, pool = c_int(), c_size_t(), c_void_p(), c_void_p(), c_void_p(), c_void_p()
right(cuda.cuInit(0))
assert cuda.cuDevicePrimaryCtxRetain(byref(context), 1) == 101
right(cuda.cuDevicePrimaryCtxRetain(byref(context), 0))
right(cuda.cuCtxSetCurrent(context))

right(cuda.cuCtxSetCacheConfig(2))
right(cuda.cuCtxGetCacheConfig(byref(number)))
assert number.value == 2
right(cuda.cuCtxGetLimit(byref(size), 1))
assert size.value == 1 << 20
right(cuda.cuCtxSetLimit(1, c_size_t(2048)))
right(cuda.cuCtxGetLimit(byref(size), 1))
assert size.value == 2048
right(cuda.cuCtxSetFlags(4))
right(cuda.cuCtxGetFlags(byref(number)))
assert number.value == 4
for text, code in ((b"0000:00:00.0", 0), (b"0:0:0.0", 0), (b"00:00.0", 0), (b"0:0:0", 0), (b"0000:01:00.0", 101), (b"gpu", 101)):
    assert cuda.cuDeviceGetByPCIBusId(byref(number), c_char_p(text)) == code, text

# CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY: automatic, then yield; CU_STREAM_ATTRIBUTE_PRIORITY
value = create_string_buffer(64)
def policy(of, attribute=3):
    right(cuda.cuStreamGetAttribute(of, attribute, value))
    return c_int.from_buffer(value).value
right(cuda.cuStreamCreateWithPriority(byref(stream), 1, -2))
right(cuda.cuStreamCreate(byref(other), 0))
assert (policy(stream), policy(stream, 8), policy(other, 8)) == (1, -2, 0)
c_int.from_buffer(value).value = 3
right(cuda.cuStreamSetAttribute(stream, 3, value))
assert (policy(stream), policy(other)) == (3, 1)
right(cuda.cuStreamCopyAttributes(other, stream))
assert policy(other) == 3

# CU_MEMPOOL_ATTR_REUSE_…, …_RELEASE_THRESHOLD, …_USED_MEM_CURRENT
right(cuda.cuDeviceGetDefaultMemPool(byref(pool), 0))
wide, address = c_uint64(7), c_uint64()
def attribute(which, kind):
    found = kind(99)
    right(cuda.cuMemPoolGetAttribute(pool, which, byref(found)))
    return found.value
assert (attribute(3, c_int), attribute(4, c_uint64)) == (1, 0)
right(cuda.cuMemPoolSetAttribute(pool, 4, byref(wide)))
right(cuda.cuMemPoolSetAttribute(pool, 3, byref(c_int(0))))
assert (attribute(3, c_int), attribute(4, c_uint64)) == (0, 7)
right(cuda.cuMemAllocAsync(byref(address), c_size_t(4096), None))
right(cuda.cuMemAlloc_v2(byref(c_uint64()), c_size_t(4096)))
assert (attribute(7, c_uint64), attribute(8, c_uint64)) == (4096, 4096)
right(cuda.cuMemFreeAsync(address, None))
assert (attribute(7, c_uint64), attribute(8, c_uint64)) == (0, 4096)
assert cuda.cuMemPoolSetAttribute(pool, 8, byref(wide)) == 1
right(cuda.cuMemPoolSetAttribute(pool, 8, byref(c_uint64(0))))
assert attribute(8, c_uint64) == 0
right(cuda.cuMemGetInfo_v2(None, byref(size)))
assert size.value == 80 << 30  # of an A100 with 80 GB
assert cuda.cuMemPoolGetAttribute(pool, 9, byref(wide)) == 1
# batches of copies, from CUDA 12.8 on: by two pairs of attributes, the first for one copy; order 2: during the call
right(cuda.cuMemAlloc_v2(byref(address), c_size_t(12)))
given, back = (c_int * 3)(1, 2, 3), (c_int * 3)()
attributes = (c_int * 12)(*[1] + [0] * 5, *[2] + [0] * 5)
sizes, firsts = (c_size_t * 2)(4, 8), (c_size_t * 2)(0, 1)
def batch(to, source, orders=attributes, starts=firsts, of=stream, count=2):
    pairs = [(c_uint64 * 2)(start, start + 4) for start in (to, source)]
    return cuda.cuMemcpyBatchAsync_v2(*pairs, sizes, c_size_t(count), orders, starts, c_size_t(2), of)
right(batch(address.value, addressof(given)))
right(batch(addressof(back), address.value))
right(cuda.cuStreamSynchronize(stream))
assert list(back) == [1, 2, 3]
assert batch(address.value, addressof(given), of=None) == 1 and batch(address.value, addressof(given), count=1) == 1
assert batch(address.value, addressof(given), starts=(c_size_t * 2)(0, 2)) == 1
assert batch(address.value, addressof(given), orders=(c_int * 12)()) == 1
# by location (CU_MEM_LOCATION_TYPE_DEVICE, number) and CU_MEM_ALLOCATION_TYPE_PINNED; type 2 is the host, 2 also managed memory
here, found = (c_int * 2)(1, 0), c_uint64()
for get in (cuda.cuMemGetDefaultMemPool, cuda.cuMemGetMemPool):
    found.value = 0
    right(get(byref(found), here, 1))
    assert found.value == pool.value != 0
    assert get(byref(found), (c_int * 2)(1, 1), 1) == 101 and get(byref(found), here, 0) == 1
    assert get(byref(found), (c_int * 2)(0, 0), 1) == 1 and get(byref(found), (c_int * 2)(2, 0), 1) == 801
    assert get(byref(found), here, 2) == get(byref(found), (c_int * 2)(0, 0), 2) == 801
right(cuda.cuMemSetMemPool(here, 1, pool))
assert cuda.cuMemSetMemPool((c_int * 2)(9, 0), 1, pool) == 1
right(cuda.cuMemPoolGetAccess(byref(number), pool, (c_int * 2)(1, 0)))
assert number.value == 3
print("right", flush=True)
os._exit(0)
"""


@needs_compiler
def test_what_is_set_is_read_back(tmp_path):
    """Preferences, limits and attributes, as the manual gives them their first values, where it does."""
    (tmp_path / "program.py").write_text(SETTINGS)
    result = run(sys.executable, str(tmp_path / "program.py"))
    assert (result.stdout, result.returncode) == ("right\n", 0), result.stderr


@needs_compiler
def test_a_program_finds_the_memory_of_the_target(tmp_path):
    """As data sheets have it, and what of it is left decides which allocations succeed. Pages that nothing touches do not count."""
    lines = """
import ctypes, os
cuda = ctypes.CDLL("libcuda.so.1")
def allocated(size):
    return cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(size))
context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) and not cuda.cuCtxSetCurrent(context)
cuda.cuMemGetInfo_v2(None, ctypes.byref(total))
print(total.value >> 30, allocated(total.value - (1 << 20)), allocated(2 << 20), allocated(1 << 19), flush=True)
cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0)
cuda.cuMemGetInfo_v2(ctypes.byref(free), None)
print(total.value >> 30, free.value >> 10, flush=True)
os._exit(0)
"""
    (tmp_path / "program.py").write_text(lines)
    for target, size in (("gtx-1050", 2), ("t4", 16), ("h200-sxm", 141)):
        result = run(sys.executable, str(tmp_path / "program.py"), target=target)
        assert result.stdout == f"{size} 0 2 0\n{size} 512\n", result.stderr
    limited = f"ulimit -v 60000000; exec {sys.executable} {tmp_path / 'program.py'}"  # KiB of addresses
    assert run("bash", "-c", limited, target="h100-sxm").stdout == "4 0 2 0\n4 512\n"
