"""What a program of ``nvcc -rdc=true`` says that it was linked from."""

from __future__ import annotations

import ctypes
import ctypes.util
import sys

import pytest

from gpuperf_engine.cudart.call_paths import object_at
from gpuperf_engine.cudart.registration import images_at
from tests.binaries.build import entry, fatbin

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
