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
    asked: list[bool] = []
    translate = machine.translate

    def noted(*arguments: Any, slow_paths: bool) -> Any:
        asked.append(slow_paths)
        return translate(*arguments, slow_paths=slow_paths)

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
