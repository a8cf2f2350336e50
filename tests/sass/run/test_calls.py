"""Calls through pointers and calls of code for debugging, run as machine code."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.sass.code import counted_code
from tests.cuda.running import module
from tests.support import needs_assembler

pytestmark = needs_assembler
N = 96


def counted(file: str, entry: str, architecture: str, *arguments: object) -> ge.MachineCode:
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 24)
    given = [device.array(item) if isinstance(item, np.ndarray) else item for item in arguments]
    profile = device.launch(module(file)[entry], 3, 32, given)
    return counted_code(profile, architecture)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize("entry", ["function_pointers", "virtual_functions"])
def test_calls_through_pointers_are_run(entry: str, architecture: str) -> None:
    """The addresses in memory are those of the PTX. PTX counts do not tell which call reached a function."""
    out = np.zeros(2 * N, np.int32)
    x = np.arange(N, dtype=np.int32) * 5 % 17
    real = x.astype(np.float32), np.zeros(N, np.float32), np.zeros(N, np.int32)
    code = counted("language", entry, architecture, *((x, out) if entry == "function_pointers" else real))
    assert code.ways in ("run", "flow and run"), code.notes
    returns = [item for item in code.instructions if item.opcode.startswith("RET")]
    calls = [
        item for item in code.instructions if item.opcode.startswith("CALL.REL") and "R" in item.operands[0]
    ]
    assert sum(item.threads for item in returns) == sum(item.threads for item in calls) > 0


@pytest.mark.parametrize("entry", ["virtual_functions", "dense_switch", "says"])
def test_code_for_debugging_is_run(entry: str) -> None:
    """It checks how far its stack reaches, and calls all functions by absolute addresses, those of the system by name."""
    rng = np.random.default_rng(3)
    x = rng.integers(0, 1000, (N, 8)).astype(np.int32)
    arguments: dict[str, tuple[object, ...]] = {
        "virtual_functions": (x[:, 0].astype(np.float32), np.zeros(N, np.float32), np.zeros(N, np.int32)),
        "dense_switch": (rng.permutation(24).astype(np.int32), x[:, 1], np.int32(9), np.zeros(N, np.int32)),
        "says": (np.zeros(N, np.int32),),
    }
    code = counted("language_debug", entry, "sm_80", *arguments[entry])
    assert code.ways in ("run", "flow and run"), code.notes
    assert any(item.opcode.startswith("CALL.ABS") and item.threads for item in code.instructions)
