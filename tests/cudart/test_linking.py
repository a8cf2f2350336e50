"""What a program of ``nvcc -rdc=true`` says that it was linked from."""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from threading import RLock
from types import SimpleNamespace

import pytest

from gpuperf_engine import parse
from gpuperf_engine.cudart import calls
from gpuperf_engine.cudart.call_paths import object_at
from gpuperf_engine.cudart.codes import CudaError
from gpuperf_engine.cudart.registration import images_at, ptx_of
from gpuperf_engine.errors import PtxError
from gpuperf_engine.machines.machine import load_machine
from tests.binaries.build import entry, fatbin, ptx

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def test_a_linked_program_names_what_it_was_linked_from():
    """The wrapper has the version 2 then, and the addresses of fat binaries up to a null."""
    kept = [
        ctypes.create_string_buffer(fatbin(entry(text.encode()))) for text in (HEAD, HEAD + ".global .u32 x;")
    ]
    machine_code = ctypes.create_string_buffer(fatbin(entry(b"\x7fELF", kind=2)))
    others = (ctypes.c_void_p * 3)(*map(ctypes.addressof, kept), None)
    wrapper = (ctypes.c_uint64 * 3)(
        2 << 32 | 0x466243B1, ctypes.addressof(machine_code), ctypes.addressof(others)
    )
    assert images_at(ctypes.addressof(wrapper)) == [buffer.raw[:-1] for buffer in kept]
    wrapper[0] = 1 << 32 | 0x466243B1
    assert images_at(ctypes.addressof(wrapper)) == [machine_code.raw[:-1]]


@pytest.mark.skipif(sys.platform != "linux", reason="needs the dynamic linker of Linux")
def test_kernels_are_those_of_the_library_that_holds_them():
    """CuPy's, say, not Python's."""
    name = ctypes.util.find_library("z") or ctypes.util.find_library("m")
    library = ctypes.CDLL(name)
    function = library.zlibVersion if name.startswith("libz") else library.cos
    file, _ = object_at(ctypes.cast(function, ctypes.c_void_p).value)
    assert file.name.startswith(name.partition(".so")[0])
    assert object_at(ctypes.addressof(ctypes.create_string_buffer(1 << 20))) is None


def test_machine_code_without_ptx_for_the_machine(capsys):
    """PTX of a higher architecture runs in its place, as it is said once; what the machine has not is named."""
    text = ptx("sm_120", body=".reg .pred %p; @%p griddepcontrol.wait;").replace("8.0", "8.7")
    codes = [entry(b"\x7fELF", kind=2, architecture=number) for number in (80, 90)]
    data = fatbin(*codes, entry(text.encode(), architecture=120))
    for target, code in (("a100-sxm-80gb", "sm_80"), ("rtx-4090", "sm_80"), ("h100-sxm", "sm_90")):
        state = SimpleNamespace(machine=load_machine(target), said=set())
        ((taken, _),) = {ptx_of(data, state, "k.so") for _ in range(2)}
        assert (
            capsys.readouterr().err.count(f"k.so: PTX for sm_120 runs instead of machine code for {code}, ")
            == 1
        )
        module = parse(taken)
        major, minor = state.machine.compute_capability
        assert (module.target, module.compiled_for) == (f"sm_{major}{minor}", "sm_120")
        # no grid waits for another before sm_90
        assert ("griddepcontrol" in taken) == (target == "h100-sxm") and len(module.notes) == 1
    state = SimpleNamespace(machine=load_machine("b200"), said=set())
    with pytest.raises(CudaError, match=r"k\.so has no PTX that runs on b200: it has sm_120"):
        ptx_of(data, state, "k.so")
    elected = text.replace("@%p griddepcontrol.wait;", ".reg .b32 %r; elect.sync %r|%p, -1;")
    data = fatbin(*codes, entry(elected.encode(), architecture=120))
    state.machine = load_machine("a100-sxm-80gb")
    with pytest.raises(PtxError, match=r"elect.sync needs .target sm_90, this module has sm_80"):
        parse(ptx_of(data, state, "k.so")[0])["k"]


def test_an_interrupted_call_leaves_the_device_in_error(monkeypatch, capsys):
    """An exception in a function that C calls would else be lost, and the call seem to have succeeded."""

    def interrupted(state):
        raise KeyboardInterrupt

    monkeypatch.setitem(
        calls.FUNCTIONS, "cudaDeviceSynchronize", calls.Function(interrupted, (), ctypes.c_int, True)
    )
    work = SimpleNamespace(flights=[], operations=[])
    state = SimpleNamespace(
        lock=RLock(), sticky=0, last=0, called="", observed=False, launches=None, contexts=[1], work=work
    )
    call = calls.bound("cudaDeviceSynchronize", "libcudart.so.13", state)
    assert call() == call() == state.last == 999  # cudaErrorUnknown
    assert capsys.readouterr().err == (
        "gpuperf: cudaDeviceSynchronize was interrupted by KeyboardInterrupt: the device is in error\n"
    )
