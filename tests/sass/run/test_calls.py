"""Calls through pointers and calls of code for debugging, run as machine code."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.sass.code import counted_code
from tests.cuda.running import module
from tests.support import head, needs_assembler

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


@pytest.mark.parametrize("machine", ["a100-sxm-40gb", "rtx-4090", "h100-sxm", "b200", "rtx-5090"])
@pytest.mark.parametrize("entry", ["function_pointers", "virtual_functions"])
def test_calls_through_pointers_are_simulated(entry: str, machine: str) -> None:
    """With the memory that holds the pointers. Each function is issued as often as a run of the machine code executes it."""
    x = np.arange(N, dtype=np.int32) * 5 % 17
    outs = [np.zeros(2 * N, np.int32)]
    if entry == "virtual_functions":
        x, outs = x.astype(np.float32), [np.zeros(N, np.float32), np.zeros(N, np.int32)]
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 24)
    profile = device.launch(module("language")[entry], 1, 32, [device.array(item) for item in (x, *outs)])
    code = ge.machine_code(profile, machine)
    assert "run" in code.ways, code.notes
    time = ge.estimate(profile, machine, model="simulation")
    assert time.model == "simulation", time.notes
    executed = {item.address: item.warps for item in code.instructions if item.warps}
    assert {item.address: item.issued for item in time.stalled if item.issued} == executed
    assert any(item.text.startswith("CALL.REL.NOINC R") for item in time.stalled)


#: A parameter decides which of two functions, with as many multiplications as their names say, is called.
CHOSEN = (
    head("8.0", "sm_80")
    + "".join(
        f".func (.param .b32 r) f{count}(.param .b32 a)\n{{\n.reg .b32 %r<3>;\nld.param.u32 %r1, [a];\n"
        + "mul.hi.u32 %r1, %r1, %r1;\n" * count
        + "st.param.b32 [r], %r1;\nret;\n}\n"
        for count in (3, 50)
    )
    + ".visible .entry k(.param .u64 out, .param .u32 which)\n{\n.reg .b32 %r<5>; .reg .b64 %q<5>; .reg .pred %p<3>;\n"
    "ld.param.u64 %q1, [out]; ld.param.u32 %r1, [which]; mov.u32 %r2, %tid.x; mov.u64 %q2, f3; mov.u64 %q3, f50;\n"
    "setp.eq.u32 %p1, %r1, 0; selp.b64 %q4, %q2, %q3, %p1; mad.wide.u32 %q1, %r2, 4, %q1;\n"
    "{ .param .b32 a; .param .b32 r; st.param.b32 [a], %r2; proto: .callprototype (.param .b32 _) _ (.param .b32 _);\n"
    "call (r), %q4, (a), proto; ld.param.b32 %r3, [r]; }\nst.global.u32 [%q1], %r3; ret;\n}\n"
)


@pytest.mark.parametrize("machine", ["a100-sxm-40gb", "h100-sxm", "rtx-5090"])
def test_calls_through_pointers_without_memory(machine: str) -> None:
    kernel, issued = ge.parse(CHOSEN, path="k.ptx")["k"], []
    for which in (0, 1):
        device = ge.Device(observe={"memory"}, memory_bytes=1 << 24)
        profile = device.launch(kernel, 1, 32, [device.zeros(32, np.uint32), np.uint32(which)])
        time = ge.estimate(profile, machine, model="simulation")
        assert time.model == "simulation", time.notes
        issued.append(sum(item.issued for item in time.stalled if "IMAD.HI" in item.text))
    assert issued[1] - issued[0] == 50 - 3


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
