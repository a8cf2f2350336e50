"""Every example kernel at small size: results and counts equal those of the one-thread-at-a-time interpreter."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from cases import SMALL, Case, execute

import gpuperf_engine as ge
from tests.engine.running import Engine
from tests.examples.interpreter import Interpreter
from tests.oracle.scalar import Result

BY_NAME = {case.name: case for case in SMALL}
#: both run an approximation of their own where PTX leaves the last bits open
APPROXIMATE = (".approx", "sin.", "cos.", "ex2.", "lg2.", "tanh.")


@cache
def yardstick(name: str) -> tuple[list[np.ndarray], list[Result]]:
    """What the interpreter makes of a case: buffers after the last launch and one result per launch."""
    case = BY_NAME[name]
    interpreter = Interpreter(case.text)
    return execute(case.program(), interpreter), interpreter.results


@cache
def engine_run(name: str, backend: str) -> tuple[list[np.ndarray], list[ge.Profile]]:
    """The same from a backend of the engine."""
    engine = Engine(BY_NAME[name].text, backend)
    return execute(BY_NAME[name].program(), engine), engine.profiles


def is_approximate(results: list[Result]) -> bool:
    return any(mark in opcode for result in results for opcode in result.opcodes for mark in APPROXIMATE)


def by_line(profile: ge.Profile, field: str) -> dict[int, int]:
    return {line.line: getattr(line, field) for line in profile.by_line if getattr(line, field)}


def compare_counts(profile: ge.Profile, result: Result, *, warps: bool = True) -> None:
    assert profile.thread_instructions == result.thread_instructions
    assert profile.thread_instructions_predicated_on == result.predicated_on
    assert dict(profile.opcodes) == dict(result.opcodes)
    if not warps:
        return
    assert by_line(profile, "thread_instructions") == dict(result.lines)
    assert profile.warp_instructions == result.warp_instructions
    assert dict(profile.warp_opcodes) == dict(result.warp_opcodes)
    assert by_line(profile, "warp_instructions") == dict(result.warp_lines)
    assert profile.branches.executed == result.branches_executed
    assert profile.branches.divergent == result.branches_divergent
    found = {
        (branch.function, branch.line, branch.opcode): (branch.executed, branch.divergent)
        for branch in profile.branch_sites
        if branch.executed
    }
    assert found == {
        (branch.function, branch.line, branch.opcode): (branch.executed, branch.divergent)
        for branch in result.branches
    }


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_equal_to_the_interpreter(case: Case, backend: str) -> None:
    buffers, results = yardstick(case.name)
    outputs, profiles = engine_run(case.name, backend)

    case.program().check(outputs)
    if case.fixed_schedule and not is_approximate(results):
        for output, expected in zip(outputs, buffers, strict=True):
            np.testing.assert_array_equal(output.view(np.uint8), expected.view(np.uint8))
    for profile, result in zip(profiles, results, strict=True):
        compare_counts(profile, result, warps=case.fixed_schedule)


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_both_backends_profile_alike(case: Case) -> None:
    """Everything a profile tells, memory behaviour included, and every byte of the results."""
    lanes, native = engine_run(case.name, "lanes"), engine_run(case.name, "native")
    for ours, theirs in zip(lanes[1], native[1], strict=True):
        assert ours.to_dict() == theirs.to_dict()
    for one, other in zip(lanes[0], native[0], strict=True):
        np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8))


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_totals_are_sums_of_parts(case: Case) -> None:
    for profile in engine_run(case.name, "native")[1]:
        threads, warps = profile.thread_instructions, profile.warp_instructions
        assert sum(profile.opcodes.values()) == sum(profile.by_category.values()) == threads
        assert sum(profile.warp_opcodes.values()) == sum(profile.units.values()) == warps
        assert sum(block.thread_executions * block.instructions for block in profile.blocks) == threads
        assert sum(block.warp_executions * block.instructions for block in profile.blocks) == warps
        assert sum(line.thread_instructions for line in profile.by_line) == threads
        assert sum(line.warp_instructions for line in profile.by_line) == warps
        assert sum(line.instructions for line in profile.by_line) <= profile.static_instructions
        assert sum(line.divergent for line in profile.by_line) == profile.branches.divergent
        assert sum(site.executed for site in profile.branch_sites) == profile.branches.executed
        assert sum(line.conflicts for line in profile.by_line) == sum(
            site.wavefronts - site.ideal_wavefronts for site in profile.sites
        )
        assert profile.thread_instructions_predicated_on <= threads <= 32 * warps
        total = ge.add_profiles([profile, profile])
        assert total.thread_instructions == 2 * threads
        assert total.launches == 2
