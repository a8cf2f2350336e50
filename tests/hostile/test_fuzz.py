"""A sample of the mutants of ``make fuzz``: no crash, no hang, and no difference between the backends; and that one is seen."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.hostile.fuzz import QUANTUM, judge, run
from tests.hostile.kernels import module
from tests.hostile.mutants import mutant, sources
from tests.hostile.sandbox import ROOT, Job, Outcome, Sandbox

COUNT = 40


@pytest.mark.parametrize("seed", range(COUNT))
def test_mutants(sandbox: Sandbox, seed: int) -> None:
    found = mutant(seed)
    wrong, _ = run(sandbox, found)
    assert not wrong, f"{found.path}, {'; '.join(found.changes)}\n{wrong}"


def test_a_seed_is_always_the_same_mutant() -> None:
    sources.cache_clear()
    first = mutant(7)
    sources.cache_clear()
    second = mutant(7)
    assert first.job.text == second.job.text
    assert first.changes == second.changes
    assert repr(first.job.args) == repr(second.job.args)
    assert mutant(8).job.text != first.job.text


def test_mutants_are_changed_and_mostly_run() -> None:
    made = [mutant(seed) for seed in range(60)]
    assert all(one.changes for one in made)
    assert len({one.path for one in made}) > 20
    kinds = {change.split(" at ")[0] for one in made for change in one.changes}
    assert len(kinds) > 15


OK = Outcome("ok", outputs=[np.arange(4)], profile={"opcodes": {"add.u32": 3}, "memory": {"sectors": 2}})
ERROR = Outcome("error", "MemoryFault", "k.ptx:3:1: out-of-bounds")
DIFFERENT = {
    "an array": (OK, replace(OK, outputs=[np.array([0, 1, 9, 3])]), "array 0 differs in 1 bytes, first at element 2"),
    "a count": (OK, replace(OK, profile={**OK.profile, "memory": {"sectors": 3}}), "profile.memory.sectors: native 2, lanes 3"),
    "an opcode": (OK, replace(OK, profile={**OK.profile, "opcodes": {}}), "profile.opcodes.add.u32: native 3, lanes None"),
    "an error": (OK, ERROR, "lanes: MemoryFault"),
    "a kind of error": (ERROR, replace(ERROR, type="TrapError"), "lanes: TrapError"),
    "a position": (ERROR, replace(ERROR, text="k.ptx:4:1: out-of-bounds"), "k.ptx:4:1"),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs_is_told(name: str) -> None:
    native, lanes, told = DIFFERENT[name]
    assert judge([native, native]) == judge([lanes, lanes]) == ""
    assert told in judge([native, lanes])


def test_races_that_only_one_backend_looks_for_are_no_difference() -> None:
    plain = replace(OK, profile={**OK.profile, "notes": ["something else"]})
    notes = ["something else", "k.ptx:3:1: race on global memory (WAW): st.global.u32"]
    raced = replace(OK, profile={**OK.profile, "notes": notes, "races": [{"kind": "WAW"}]})
    assert not judge([raced, plain])
    assert "profile.notes" in judge([raced, OK])


def test_a_process_that_dies_or_hangs_is_its_mutants(sandbox: Sandbox) -> None:
    loop = module("mov.u64 %rd0, 0; L: add.u64 %rd0, %rd0, 1; setp.ne.u64 %p0, %rd0, 0; @%p0 bra L; ret;")
    endless = Job(loop, "k", options={"max_instructions": 1 << 40})
    assert sandbox.run(endless, seconds=1).kind == "hung"
    budget = replace(mutant(0), job=replace(endless, options={"max_instructions": 100}))
    wrong, outcomes = run(sandbox, budget)
    assert not wrong
    assert [outcome.type for outcome in outcomes] == ["BudgetExceeded"] * 2


def test_the_budget_ends_long_iterations_soon() -> None:
    """A slice of 4,096 iterations of 500 additions would take the reference backend a minute."""
    loop = module("L: " + "add.u64 %rd0, %rd0, 1; " * 500 + "setp.ne.u64 %p0, %rd0, 0; @%p0 bra L; ret;")
    sandbox = Sandbox(QUANTUM)
    try:
        wrong, outcomes = run(
            sandbox, replace(mutant(0), job=Job(loop, "k", options={"max_instructions": 100}))
        )
    finally:
        sandbox.close()
    assert not wrong
    # the iterations of one time slice: 500 additions, a comparison and a branch each
    assert f"{QUANTUM * 502:,} warp instructions executed" in outcomes[0].text


def test_the_command(tmp_path: Path) -> None:
    """``make fuzz`` runs it: the rule calls what is tested here."""
    rule = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nfuzz:")[2].partition("\n\n")[0]
    assert (
        "-m tests.hostile.fuzz --minutes $(or $(MINUTES),5) $(if $(SEED),--seed $(SEED)) --keep build/fuzz"
        in rule
    )
    # of two mutants that end soon
    command = [
        sys.executable,
        "-m",
        "tests.hostile.fuzz",
        "--minutes",
        "1",
        "--seed",
        "7",
        "--count",
        "2",
        "--keep",
        str(tmp_path),
    ]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "engine")])
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.startswith("from seed 7\n2 mutants from seed 7: ")
    assert ran.stdout.endswith("; 0 failed\n")
