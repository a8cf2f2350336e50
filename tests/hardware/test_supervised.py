"""The collector as two processes, against a driver that fails in every way: what fails is written down, all else is run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
#: a driver whose calls succeed, but for what the case at hand is named after
CHILD = """
import os, signal, sys, time
sys.path.insert(0, {folder!r})
import collect

collect.PATIENCE, collect.CASE_LIMIT, collect.GRACE, collect.START_LIMIT = 0.2, 3.0, 0.5, 60.0
TEXT = ".version 7.8\\n.target sm_75\\n"
state = {{"case": "", "spoilt": False}}

def spoil(*arguments):
    state["spoilt"] = state["case"] == "launch error"
    return 0

def query(*arguments):
    if state["case"] == "hang":
        return 600
    return 700 if state["spoilt"] else 0

def load(*arguments):
    if state["case"] == "stuck":
        time.sleep(60)
    return 218 if state["case"] == "bad image" else 0

def begin(*arguments):
    place = {marker!r}
    if place and not os.path.exists(place):
        open(place, "w").close()
        return 46
    return 0

CALLS = {{"cuLaunchKernel": spoil, "cuStreamQuery": query, "cuModuleLoadDataEx": load, "cuInit": begin}}

class Library:
    def __getattr__(self, name):
        return CALLS.get(name, lambda *arguments: 0)

class Few(collect.Collector):
    def _run(self, case):
        state["case"] = case
        if case == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        with self._loaded(TEXT) as (module, said):
            self.driver.launch(self.driver.function(module, "k"), 1, 1, 0, [])
            self.driver.wait()
        return said

    def examples(self):
        for case in {cases!r}:
            yield case, lambda: self._run(case)

    def times(self):
        raise ImportError("no such catalogue")

    def micro(self):
        yield "after", lambda: {{}}

collect.Collector = Few
collect.__file__ = __file__
collect.write_kit = lambda: ""
collect.libraries = lambda: (Library(), None)
sys.exit(collect.main())
"""


def collected(
    tmp_path: Path, cases: list[str], *options: str, marker: str = ""
) -> tuple[dict[str, str], subprocess.CompletedProcess[str]]:
    """Case → what went wrong, in the order of the lines; and the process."""
    child, out = tmp_path / "child.py", tmp_path / "out"
    child.write_text(CHILD.format(folder=str(HERE), cases=cases, marker=marker), encoding="utf-8")
    command = [sys.executable, str(child), str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    lines: list[dict[str, Any]] = []
    for path in sorted(out.glob("*.jsonl")):
        lines += map(json.loads, filter(None, path.read_text(encoding="utf-8").splitlines()))
    assert not (out / "running.json").exists()
    return {line["case"]: line.get("error", "") for line in lines if "case" in line}, done


def test_whatever_fails_the_rest_is_run(tmp_path: Path) -> None:
    cases = ["first", "bad image", "launch error", "second", "hang", "stuck", "crash", "last"]
    found, done = collected(tmp_path, cases, "--parts", "examples", "times", "micro", "--budget", "60")
    assert list(found) == [*cases, "after"]
    assert [case for case, error in found.items() if not error] == ["first", "second", "last", "after"]
    assert found["bad image"].startswith("cuModuleLoadDataEx: ? (218)")
    assert found["launch error"].startswith("cuStreamQuery: ? (700)")
    assert found["hang"] == "a launch did not end in 0.2 s"
    assert found["stuck"] == "it did not end in 3 s"
    assert found["crash"] == "the process ended with code -9 in this case"
    # a refused module spoils nothing; the other four each need another process; a part without cases does not end the run
    assert (tmp_path / "out/examples.jsonl").read_text(encoding="utf-8").count('"part"') == 5
    assert "times: ImportError: no such catalogue" in done.stderr and done.returncode == 1
    assert "examples: stuck: it did not end in 3 s" in done.stdout


def test_failed_cases_are_run_again_once_when_asked(tmp_path: Path) -> None:
    parts = ("--parts", "examples")
    out = tmp_path / "out"
    out.mkdir()
    lines = [
        {"part": "examples"},
        {"case": "first"},
        {"case": "launch error", "error": "x"},
        {"case": "good", "error": "y"},
    ]
    (out / "examples.jsonl").write_text(
        "\n".join(map(json.dumps, lines)) + '\n{"case": "la', encoding="utf-8"
    )
    found, done = collected(tmp_path, ["first", "launch error", "good"], *parts, "--retry")
    # the one that fails again needs another process, which leaves it alone
    assert (
        "examples: 1 cases, 1 of them failed" in done.stdout
        and "examples: 1 cases, 0 of them failed" in done.stdout
    )
    assert list(found) == ["first", "launch error", "good"] and not found["good"]
    assert found["launch error"].startswith("cuStreamQuery: ? (700)")
    assert (out / "examples.jsonl").read_text(encoding="utf-8").count('"launch error"') == 1


def test_a_case_cut_off_by_the_budget_is_left_for_the_next_run(tmp_path: Path) -> None:
    began = time.monotonic()
    found, done = collected(tmp_path, ["first", "stuck"], "--parts", "examples", "--budget", "0.4")
    assert set(found) <= {"first"}
    assert done.returncode == 1 or "out of time" in done.stderr
    assert time.monotonic() - began < 20


def test_a_driver_that_refuses_for_a_moment_is_asked_again(tmp_path: Path) -> None:
    found, done = collected(tmp_path, ["first"], "--parts", "examples", marker=str(tmp_path / "refused"))
    assert found == {"first": ""} and done.returncode == 0
    assert "no GPU to measure: cuInit: ? (46)" in done.stderr
