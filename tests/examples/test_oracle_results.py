"""The interpreter counts what a person counts, without the emulator.

That it computes what NumPy computes, for every example, is checked where both are compared with the emulator: one run of each
kernel, thread by thread, is enough (``tests/engine/test_oracle_counts.py``).
"""

from __future__ import annotations

import pytest
from cases import SMALL, execute

from tests.examples import closed_forms
from tests.examples.interpreter import Interpreter

FORMULAS = {
    "saxpy-1": closed_forms.saxpy(1),
    "saxpy-256": closed_forms.saxpy(256),
    "saxpy-1000": closed_forms.saxpy(1000),
    "transpose_conflicts-32x64": closed_forms.transpose("transpose_conflicts", 32, 64),
    "transpose_padded-32x64": closed_forms.transpose("transpose_padded", 32, 64),
    "sgemm_tiled-16x32x16": closed_forms.sgemm_tiled(16, 32, 16),
    "cnn_relu6_activation-512": closed_forms.relu6(512, 64),
    "cnn_convolution_1x1-1x1x16x8x8x64": closed_forms.convolution_1x1(16, 64, 64),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_counts_equal_the_closed_form(name: str):
    (case,) = (case for case in SMALL if case.name == name)
    interpreter, expected = Interpreter(case.text), FORMULAS[name]
    execute(case.program(), interpreter)
    (result,) = interpreter.results

    assert result.thread_instructions == expected.thread_instructions
    assert result.warp_instructions == expected.warp_instructions
    assert result.branches_executed == expected.branches_executed
    assert result.branches_divergent == expected.branches_divergent
    assert {opcode: result.opcodes[opcode] for opcode in expected.opcodes} == expected.opcodes
