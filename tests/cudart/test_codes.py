"""Error codes of CUDA for errors of the engine."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from gpuperf_engine import Device, MemoryFault, parse
from gpuperf_engine.cudart.codes import code_of


def test_a_misaligned_access_is_no_matter_of_words():
    """An array may be called ``aligned``."""
    text = """.version 8.0
    .target sm_80
    .address_size 64
    .visible .entry k(.param .u64 p) {
        .reg .b64 %a; .reg .b32 %v; ld.param.u64 %a, [p]; ld.global.u32 %v, [%a]; ret; }"""
    device = Device()
    array = device.array(np.zeros(4, np.uint32), name="aligned")
    kernel = parse(text)["k"]
    for place, code in ((16, 700), (2, 716)):
        with pytest.raises(MemoryFault) as caught:
            device.launch(kernel, 1, 1, [array.address + place])
        assert "align" in str(caught.value)
        assert code_of(caught.value, running=True) == code
        assert pickle.loads(pickle.dumps(caught.value)).misaligned == (code == 716)
