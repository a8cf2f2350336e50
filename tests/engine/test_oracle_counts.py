"""Every example kernel at small size: results and counts equal those of the one-thread-at-a-time interpreter."""

from __future__ import annotations

import re

import numpy as np
import pytest
from cases import SMALL, Case, execute

import gpuperf_engine as ge
from gpuperf_engine.profile.groups import CLASSES
from tests.engine.running import Engine
from tests.examples.interpreter import Interpreter
from tests.oracle.scalar import Result

#: both run an approximation of their own where PTX leaves the last bits open
APPROXIMATE = (".approx", "sin.", "cos.", "ex2.", "lg2.", "tanh.")
#: what takes the reference backend seconds and has a smaller or quicker sister
NATIVE_ONLY = (
    "bitonic-2048",
    "demo_sgemm_tiled_slow-33x17x20",
    "triton_attention.sm_90-1x80",
    "sgemm_register-70x65x9",
    "fft512-2",
    "hgemm_mma-64x64x160",
    "hgemm_specialised-128x128x320",
    "triton_attention.sm_80-1x80",
)


#: by kernel the case that the reference backend runs too
ON_BOTH = {case.name.split("-")[0]: case for case in reversed(SMALL) if case.name not in NATIVE_ONLY}


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


#: Metrics of nvprof as expressions over opcodes: (metric, weight, opcodes that count by thread).
THREADS = (
    *(
        (f"flop_count_{short}{suffix}", weight * lanes, rf"({names})(\.\w+)*\.{kind}")
        for short, kind, lanes in (("sp", "f32", 1), ("dp", "f64", 1), ("hp", "f16", 1), ("hp", "f16x2", 2))
        for suffix, weight, names in (
            ("_add", 1, "add|sub"),
            ("_mul", 1, "mul"),
            ("_fma", 1, "fma|mad"),
            ("_special", 1, "div|rcp|sqrt|rsqrt|sin|cos|lg2|ex2|tanh"),
            ("", 1, "add|sub|mul"),
            ("", 2, "fma|mad"),
        )
    ),
    ("inst_bit_convert", 1, r"cvt\..*"),
    ("inst_control", 1, r"(bra|ret|exit|call|brx)(\..*)?"),
    (
        "inst_compute_ld_st",
        1,
        r"(ld|ldu|st|atom|red|cp|prefetch|ldmatrix|stmatrix|wmma\.load|wmma\.store)\..*",
    ),
    ("inst_inter_thread_communication", 1, r"(shfl|vote|match|redux)\..*|activemask.*|elect.*"),
)
WARPS = tuple(
    (f"inst_executed_{space}_{plural}", 1, rf"{name}(\.(volatile|weak|relaxed|gpu|nc))*\.{space}\..*")
    for space in ("global", "shared", "local")
    for name, plural in (("ld", "loads"), ("st", "stores"), ("atom", "atomics"), ("red", "reductions"))
    if (space, name) not in (("local", "atom"), ("local", "red"), ("shared", "red"))
)


def compare_groups(profile: ge.Profile, result: Result, *, warps: bool = True) -> None:
    """Groups equal what expressions find among the interpreter's opcodes. Kernels whose guards drop arithmetic are left to
    the tests of ``profile``: the interpreter has only one total for guards."""
    found = profile.groups("nvprof")
    assert sum(found[name] for name in CLASSES) == result.predicated_on
    counts = [(WARPS, result.warp_opcodes)] if warps else []
    if profile.thread_instructions_predicated_on == result.thread_instructions:
        counts.append((THREADS, result.opcodes))
    if warps:
        assert found["inst_executed"] == result.warp_instructions
    for table, opcodes in counts:
        for name in {name for name, _, _ in table}:
            assert found[name] == sum(
                weight * count
                for metric, weight, pattern in table
                if metric == name
                for opcode, count in opcodes.items()
                if re.fullmatch(pattern, opcode)
            ), name


def check_sums(profile: ge.Profile) -> None:
    """Totals are the sums of their parts."""
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
    conflicts = sum(site.wavefronts - site.ideal_wavefronts for site in profile.sites)
    assert sum(line.conflicts for line in profile.by_line) == conflicts == profile.memory.shared_conflicts
    assert profile.thread_instructions_predicated_on <= threads <= 32 * warps
    total = ge.add_profiles([profile, profile])
    assert (total.thread_instructions, total.launches) == (2 * threads, 2)


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_example(case: Case) -> None:
    """The interpreter computes what NumPy computes; compiled code equals it, and for one size of each kernel the reference backend
    does, and both equal each other in everything that a profile tells."""
    interpreter = Interpreter(case.text)
    buffers = execute(case.program(), interpreter)
    case.program().check(buffers)
    profiles = []
    for backend in ("llvm", "reference") if ON_BOTH.get(case.name.split("-")[0]) is case else ("llvm",):
        engine = Engine(case.text, backend)
        outputs = execute(case.program(), engine)
        case.program().check(outputs)
        if case.fixed_schedule and not is_approximate(interpreter.results):
            for output, expected in zip(outputs, buffers, strict=True):
                np.testing.assert_array_equal(output.view(np.uint8), expected.view(np.uint8), err_msg=backend)
        for profile, result in zip(engine.profiles, interpreter.results, strict=True):
            compare_counts(profile, result, warps=case.fixed_schedule)
            compare_groups(profile, result, warps=case.fixed_schedule)
        for profile in engine.profiles:
            check_sums(profile)
        profiles.append([profile.to_dict() for profile in engine.profiles])
        profiles[-1].append({"outputs": [output.tobytes() for output in outputs]})
    assert profiles[0] == profiles[-1]
