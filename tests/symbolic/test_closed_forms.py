"""The closed forms of the measured kernels are right: running every block of small launches gives them too."""

from __future__ import annotations

import pytest

from tests.symbolic.measured import SMALL, Case, lanes_at
from tests.symbolic.running import every_block, module, text


@pytest.mark.parametrize("case", SMALL, ids=lambda case: f"{case.entry}-{case.numbers[0]}")
def test_small_launches(case: Case) -> None:
    counts = every_block(module("measured")[case.entry], case.grid, case.block, case.numbers)
    program = counts.program
    found = {part: lanes_at(program, counts.lanes, text("measured"), part) for part in case.expected}
    assert found == case.expected
    if case.branches is not None:
        assert (counts.executed, sum(counts.divergent)) == case.branches
