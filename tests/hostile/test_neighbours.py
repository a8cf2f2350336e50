"""The allocation that a fault names is one the program knows, never a buffer of the runtime's own."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge

TEXT = """
.version 7.8
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    ld.global.u32 %r1, [%rd1+4096];
    ret;
}
"""


def test_an_overrun_names_the_array_and_not_the_parameter_buffer_behind_it(backend: str) -> None:
    device = ge.Device(backend=backend)
    array = device.zeros(64, np.uint32, name="out")
    with pytest.raises(ge.MemoryFault) as raised:
        device.launch(ge.parse(TEXT, path="k.ptx")["k"], 1, 1, [array])
    # 4096 + 4 bytes from the start of an array of 256 bytes
    assert "3,844 bytes past the end of 'out' (256 bytes at " in str(raised.value)
    assert "parameters" not in str(raised.value)
