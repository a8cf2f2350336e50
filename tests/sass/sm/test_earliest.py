"""The search for the warp that can issue first, for hosts with AVX-512 and for others, against NumPy."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import pytest

from gpuperf_engine.jit import llvm
from gpuperf_engine.jit.ir.sm_records import AT_BIT, NEVER, QUEUED, RANK_BIT
from gpuperf_engine.jit.runtime.earliest import earliest_words

WIDE = [False, pytest.param(True, marks=pytest.mark.skipif(not llvm.host().wide, reason="needs AVX-512"))]
LOW = (1 << AT_BIT) - 1


@cache
def compiled(wide: bool) -> llvm.Library:
    text = earliest_words(wide).replace("define internal i64", "define i64", 1)
    return llvm.link([llvm.compile_object(text, 2)], ("earliest",), {})


@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize("seed", range(50))
def test_the_least_key_of_all_but_one_warp(seed: int, wide: bool) -> None:
    random = np.random.default_rng(seed)
    count = int(random.choice([8, 16, 40]))
    at = random.choice([0, 5, 6, 1000, NEVER, NEVER - 1], count)
    ranks = random.permutation(count)
    keys = (at << AT_BIT | ranks << RANK_BIT | np.arange(count)).astype(np.int64)
    pipes = random.choice([0, 4, 5, 7, 1001], 16).astype(np.int64)
    number, queued = random.integers(16, size=count), random.integers(2, size=count)
    needs = (number + QUEUED * queued).astype(np.uint8)
    room, slot, out = (
        int(random.choice([0, 8, 2000])),
        int(random.integers(8)),
        int(random.integers(-1, count)),
    )
    from_ = np.maximum(np.maximum(pipes[number], np.where(queued, room, 0)), slot)
    raised = np.maximum(keys, from_ << AT_BIT | keys & LOW)
    expected = int(np.delete(raised, out).min() if out >= 0 else raised.min())
    function = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 7)(compiled(wide).addresses["earliest"])
    places = keys.ctypes.data, needs.ctypes.data, count, pipes.ctypes.data
    assert function(*places, room, slot, out) == min(expected, NEVER << AT_BIT | LOW)
