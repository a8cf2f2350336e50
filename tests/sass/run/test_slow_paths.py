"""Slow paths of divisions and sines, of which each call would be written anew: they are left out until one is taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.sass.run import machine
from tests.support import head, needs_assembler

pytestmark = needs_assembler

DIVISIONS = 6
KERNEL = (
    head("8.0", "sm_80")
    + ".visible .entry k(.param .u64 p)\n{\n.reg .b64 %a; .reg .b32 %t; .reg .f64 %x, %y;\n"
    + "ld.param.u64 %a, [p];\nmov.u32 %t, %tid.x;\nmad.wide.u32 %a, %t, 8, %a;\n"
    + "ld.global.f64 %x, [%a];\nmov.f64 %y, 0d3FF8000000000000;\n"
    + "div.rn.f64 %y, %y, %x;\n" * DIVISIONS
    + "st.global.f64 [%a], %y;\nret;\n}\n"
)


def counted(values: np.ndarray[Any, Any]) -> ge.MachineCode:
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 24)
    args = [device.array(values)]
    profile = device.launch(ge.parse(KERNEL, path="k.ptx")["k"], 1, values.size, args)
    return ge.machine_code(profile, "a100-sxm-80gb")


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each translation whether slow paths are part of it."""
    # results of earlier sessions are kept
    monkeypatch.setenv("GPUPERF_CACHE", "off")
    asked: list[bool] = []
    translate = machine.translate

    def noted(*arguments: Any, slow_paths: bool, moving: bool) -> Any:
        asked.append(slow_paths)
        return translate(*arguments, slow_paths=slow_paths, moving=moving)

    monkeypatch.setattr(machine, "translate", noted)
    return asked


def test_slow_paths_that_nobody_takes_are_not_written(written: list[bool]) -> None:
    code = counted(np.linspace(1.0, 2.0, 64))
    assert (code.ways, code.residue) == ("flow and run", 0.0)
    assert written == [False]
    function = [item for item in code.instructions if "slow" in item.function or "full" in item.function]
    assert function and not any(item.warps for item in function)


def test_slow_paths_are_written_where_one_is_taken(written: list[bool]) -> None:
    """A thread of the second warp divides by a number with the least exponent: all its divisions go the slow way."""
    values = np.linspace(1.0, 2.0, 64)
    values[40] = 5e-324
    code = counted(values)
    assert (code.ways, code.residue) == ("flow and run", 0.0)
    assert written == [False, True]
    first = next(item for item in code.instructions if "slow" in item.function or "full" in item.function)
    calls = [item for item in code.instructions if item.opcode.startswith("CALL")]
    assert (first.warps, first.threads) == (DIVISIONS, DIVISIONS)
    assert [(item.warps, item.threads) for item in calls] == [(1, 1)] * DIVISIONS


QUOTIENT = (
    head("7.0", "sm_75")
    + ".visible .entry k(.param .u64 a, .param .u64 b)\n{\n.reg .b64 %a, %b; .reg .b32 %t, %c, %n; .reg .f32 %x, %y;\n"
    + "ld.param.u64 %a, [a];\nld.param.u64 %b, [b];\nmov.u32 %t, %tid.x;\nmov.u32 %c, %ctaid.x;\nmov.u32 %n, %ntid.x;\n"
    + "mad.lo.u32 %t, %c, %n, %t;\nmad.wide.u32 %a, %t, 4, %a;\nmad.wide.u32 %b, %t, 4, %b;\n"
    + "ld.global.f32 %x, [%a];\nld.global.f32 %y, [%b];\ndiv.rn.f32 %x, %x, %y;\nst.global.f32 [%a], %x;\nret;\n}\n"
)
MACHINES = ("t4", "a100-sxm-80gb", "rtx-3090", "rtx-4090", "h100-sxm", "b200", "rtx-5090")


def single(exponent: int, mantissa: int = 0, sign: int = 0) -> int:
    """The bits of ±2^exponent · (1 + mantissa / 2²³)."""
    return sign << 31 | exponent + 127 << 23 | mantissa


INFINITE, NOT_A_NUMBER, MOST = 0x7F800000, 0x7FC00000, (1 << 23) - 1
#: Dividends and divisors of the public measurement on a GPU of sm_120 (github.com/cicuvc/nvidia-sass-document, commit 2c5acd8,
#: ``tests/asm_construct/test_fchk.py``), by whether ``FCHK`` asked for the slow path there.
MEASURED = {
    False: [
        (single(0), single(1)),
        (single(1), single(0)),
        (single(0, sign=1), single(1, sign=1)),
        (single(0), single(100)),
        (single(100), single(0)),
        (single(-102), single(0)),
        (single(0), single(-125)),
        (single(0), single(124, MOST)),
        (single(126), single(0)),
        (single(126), single(1)),
        (single(-60), single(64)),
    ],
    True: [
        (NOT_A_NUMBER, single(0)),
        (single(0), NOT_A_NUMBER),
        (INFINITE, single(0)),
        (single(0), INFINITE),
        (INFINITE, INFINITE),
        (0, single(0)),
        (1 << 31, single(0)),
        (single(0), 0),
        (0, 0),
        (1, single(0)),
        (single(0), 1),
        (single(-103), single(0)),
        (single(-103, MOST), single(0)),
        (single(0), single(-126)),
        (single(0), single(-126, MOST)),
        (single(0), single(125)),
        (single(0), single(125, 0x400000)),
        (single(127), single(0)),
        (single(126), single(-1)),
        (single(-60), single(65)),
        (single(-100), single(25)),
        (single(127, sign=1), single(0)),
    ],
}


def divided(pairs: np.ndarray[Any, Any], block: int) -> ge.Profile:
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 24)
    args = [device.array(np.ascontiguousarray(part)) for part in pairs.T]
    return device.launch(ge.parse(QUOTIENT, path="k.ptx")["k"], len(pairs) // block, block, args)


@pytest.mark.parametrize("slow", [False, True])
def test_divisions_take_the_slow_path_as_measured_on_a_gpu(slow: bool) -> None:
    pairs = np.array(MEASURED[slow], np.uint32)
    profile = divided(pairs, len(pairs))
    for name in MACHINES:
        code = ge.machine_code(profile, name)
        calls = [item for item in code.instructions if item.opcode.startswith("CALL")]
        assert "run" in code.ways, (name, code.notes)
        assert [item.threads for item in calls] == [slow * len(pairs)], name


def test_divisions_in_line_are_those_of_ieee_754() -> None:
    """Each pair of exponents of normal numbers, with random fractions: a quotient that the fast path rounds wrongly would show in
    memory, and the run would not be valid."""
    exponents = np.stack(np.meshgrid(np.arange(1, 255), np.arange(1, 255)), -1).reshape(-1, 2)
    fractions = np.random.default_rng(5).integers(0, 1 << 23, exponents.shape)
    profile = divided((exponents << 23 | fractions).astype(np.uint32), 254)
    for name in MACHINES:
        code = ge.machine_code(profile, name)
        assert "run" in code.ways and code.residue == 0, (name, code.notes)


def test_approximate_results_that_are_only_stored_decide_nothing() -> None:
    """The slow path of a reciprocal square root depends on the operand. Its results go to another array than that of the operands."""
    text = (
        head("7.0", "sm_75")
        + ".visible .entry k(.param .u64 a, .param .u64 b)\n{\n.reg .b64 %a, %b; .reg .b32 %t; .reg .f64 %x;\n"
        + "ld.param.u64 %a, [a];\nld.param.u64 %b, [b];\nmov.u32 %t, %tid.x;\nmad.wide.u32 %a, %t, 8, %a;\n"
        + "mad.wide.u32 %b, %t, 8, %b;\nld.global.f64 %x, [%a];\nrsqrt.approx.f64 %x, %x;\nst.global.f64 [%b], %x;\nret;\n}\n"
    )
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 24)
    values = np.random.default_rng(1).random(64) + 0.1
    values[40] = 5e-324
    args = [device.array(values), device.zeros(64, np.float64)]
    profile = device.launch(ge.parse(text, path="k.ptx")["k"], 1, 64, args)
    for name in MACHINES:
        code = ge.machine_code(profile, name)
        calls = [item for item in code.instructions if item.opcode.startswith("CALL")]
        assert (code.ways, code.residue, code.notes) == ("flow and run", 0.0, ()), name
        assert [(item.warps, item.threads) for item in calls] == [(1, 1)], name


ROOTS = (
    head("7.0", "sm_75")
    + ".visible .entry k(.param .u64 p)\n{\n.reg .b64 %a; .reg .b32 %t; .reg .f32 %x, %y; .reg .pred %q;\n"
    + "ld.param.u64 %a, [p];\nmov.u32 %t, %tid.x;\nmad.wide.u32 %a, %t, 4, %a;\nld.global.f32 %x, [%a];\n"
    + "AGAIN:\nSTEP;\nsetp.lt.f32 %q, %y, 0f41200000;\nadd.f32 %x, %x, 0f3F800000;\n@%q bra AGAIN;\n"
    + "div.rn.f32 %x, %x, %y;\nst.global.f32 [%a], %x;\nret;\n}\n"
)
#: From 0 on, a root or a quotient exceeds 10 after so many steps.
STEPS = {"sqrt.rn.f32 %y, %x": 101, "rcp.rn.f32 %y, %x;\nrcp.rn.f32 %y, %y": 11}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("target", ["a100-sxm-80gb", "rtx-4090", "b200"])
def test_a_trace_takes_the_slow_path_whose_result_it_needs(step: str, target: str) -> None:
    """The path in line computes a NaN as the root of 0, with which no loop goes on."""
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 24)
    text = ROOTS.replace("STEP", step)
    profile = device.launch(ge.parse(text, path="k.ptx")["k"], 1, 64, [device.zeros(64, np.float32)])
    found = ge.estimate(profile, target, model="simulation", why=True)
    ran = ge.machine_code(profile, target)
    loop = max(item.warps for item in ran.instructions)
    # of two warps; `ptxas` may execute some steps before the loop
    assert 2 * (STEPS[step] - 3) <= loop <= 2 * STEPS[step]
    executed = {item.address: item.warps for item in ran.instructions if item.warps}
    assert {item.address: item.issued for item in found.stalled if item.issued} == executed
