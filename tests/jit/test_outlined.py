"""Programs whose instructions share functions of compiled code: results and counts are those of other programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import SMALL, Case, execute

import gpuperf_engine as ge
from gpuperf_engine.simt.program import build_program

#: One case of each file of PTX.
CASES = list({case.ptx: case for case in SMALL}.values())


def run(case: Case, *, outlined: bool) -> tuple[list[np.ndarray[Any, Any]], list[dict[str, Any]]]:
    """The buffers after all launches, and the profile of each."""
    module, profiles = ge.parse(case.text, path=str(case.ptx)), []

    def launch(one: Any, arguments: list[Any]) -> None:
        kernel = module[one.entry]
        kernel.memo["program"] = build_program(kernel, outlined=outlined)
        device = ge.Device(observe={"memory", "threads"}, backend="llvm")
        given = [device.array(item) if isinstance(item, np.ndarray) else item for item in arguments]
        profile = device.launch(kernel, one.grid, one.block, given, shared_bytes=one.shared_bytes)
        assert not profile.remarks
        assert {key[3] for key in kernel.memo if key[0] == "llvm"} == {outlined}
        profiles.append(profile.to_dict())
        for item, array in zip(arguments, given):
            if isinstance(item, np.ndarray):
                item[...] = array.numpy()

    outputs = execute(case.program(), launch)
    return outputs, profiles


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_results_and_counts_are_the_same(case: Case) -> None:
    outputs, profiles = run(case, outlined=True)
    case.program().check(outputs)
    expected, counted = run(case, outlined=False)
    assert profiles == counted
    for one, other in zip(outputs, expected):
        assert one.tobytes() == other.tobytes()
