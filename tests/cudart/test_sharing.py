"""Memory that processes have in common: by handles of CUDA's runtime, and by files of its driver."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

import gpuperf_engine as ge
from gpuperf_engine.cudart.build import build_libraries
from gpuperf_engine.memory.shared_pages import Shared
from tests.binaries.build import entry, fatbin
from tests.cudart.launches import COMPILER, HERE, PTX, needs_compiler

RUN = (sys.executable, "-m", "pytest_gpuperf.cli", "run", "--target", "a100-sxm-80gb", "--")


@needs_compiler
def test_two_processes_share_memory_by_handles(tmp_path: Path) -> None:
    (tmp_path / "k.fatbin").write_bytes(fatbin(entry(PTX.encode())))
    command = [
        str(COMPILER),
        "-w",
        str(HERE / "sharing.c"),
        "-o",
        "app",
        str(build_libraries() / "libcudart.so.13"),
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(
        [*RUN, "./app"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout, done.returncode) == ("right\n", 0), done.stdout + done.stderr
    for line in (
        "cudaIpcOpenMemHandle: flags 0 are not supported; accepted: cudaIpcMemLazyEnablePeerAccess",
        "cudaIpcOpenMemHandle: a process cannot open memory that it shares itself",
        "cannot be shared with other processes",
        "cudaIpcCloseMemHandle: no memory of another process was opened at",
    ):
        assert line in done.stderr
    assert "Traceback" not in done.stderr


#: ``granule`` bytes are written by the first process and read by the second one, which has the file from it
BY_FILE = """
import ctypes, os, subprocess, sys
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

cuda = ctypes.CDLL("libcuda.so.1")
granule = 2 << 20

def right(code):
    assert code == 0, code

def mapped(made):
    address = c_uint64()
    access = (c_int * 3)(1, 0, 3)
    right(cuda.cuMemAddressReserve(byref(address), c_size_t(granule), c_size_t(0), c_void_p(), c_uint64(0)))
    right(cuda.cuMemMap(address, c_size_t(granule), c_size_t(0), made, c_uint64(0)))
    right(cuda.cuMemSetAccess(address, c_size_t(granule), access, c_size_t(1)))
    return address

right(cuda.cuInit(0))
made, value = c_uint64(), (c_int * 1)()
if len(sys.argv) > 1:
    right(cuda.cuMemImportFromShareableHandle(byref(made), c_void_p(int(sys.argv[1])), 1))
    address = mapped(made)
    right(cuda.cuMemcpyDtoH_v2(value, address, c_size_t(4)))
    assert value[0] == 77
    right(cuda.cuMemsetD32_v2(address, 78, c_size_t(1)))
    os._exit(0)
properties = (c_int * 8)(1, 1, 1, 0)
assert cuda.cuMemExportToShareableHandle(value, made, 1, c_uint64(0)) == 400
right(cuda.cuMemCreate(byref(made), c_size_t(granule), properties, c_uint64(0)))
assert cuda.cuMemExportToShareableHandle(value, made, 8, c_uint64(0)) == 1
right(cuda.cuMemExportToShareableHandle(value, made, 1, c_uint64(0)))
file = value[0]
os.set_inheritable(file, True)
address = mapped(made)
right(cuda.cuMemsetD32_v2(address, 77, c_size_t(1)))
subprocess.run([sys.executable, __file__, str(file)], check=True, close_fds=False)
right(cuda.cuMemcpyDtoH_v2(value, address, c_size_t(4)))
print(value[0])
"""


@needs_compiler
def test_two_processes_share_memory_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(BY_FILE)
    done = subprocess.run(
        [*RUN, sys.executable, "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("78\n", 0), done.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is mapped on Linux")
def test_what_cannot_be_opened() -> None:
    device = ge.Device(mapped=True, history=0, memory_bytes=1 << 20)
    address = device.allocate(100)
    handle = device.share(address)
    assert (len(handle), device.share(address + 99)) == (64, handle)
    ctypes.memset(address, 3, 100)
    for other, message in (
        (bytes(64), "not one for memory"),
        (b"", "not one for memory"),
        (handle[:20], "cannot open memory that it shares itself"),
        (handle, "cannot open memory that it shares itself"),
        # process 1 is another one, of which this file is none
        (
            handle[:8] + (1).to_bytes(4, "little") + handle[12:],
            "of process 1 cannot be opened|process 1, whose",
        ),
    ):
        with pytest.raises(ge.LaunchError, match=message):
            device.open_shared(other)
    # pages past the end of the file would end the process
    for part in ({"size": 1 << 40}, {"offset": 1 << 40}, {"size": 0}):
        with pytest.raises(ge.LaunchError, match="does not share"):
            Shared.from_handle(handle)._replace(**part).map(0)
    left = device.memory_left
    device.free(address)
    assert device.memory_left[0] == left[0] + 100
    assert device.read_bytes(device.allocate(100), 100) == bytes(100)
    with pytest.raises(ge.LaunchError, match="mapped"):
        ge.Device().share(0)
    del device
    observing = ge.Device(mapped=True, observe=["values"], memory_bytes=1 << 20)
    with pytest.raises(ge.LaunchError, match="values are observed"):
        observing.share(observing.allocate(100))
