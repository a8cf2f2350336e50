"""``gpuperf.run`` and ``gpuperf run --gate``: launches of a CUDA program in a process of its own are cases of the gate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from pytest_gpuperf.cli import main
from tests.cudart.launches import DIVIDED, PTX, WORSE, build, line_of, needs_compiler
from tests.plugin.conftest import PLUGIN
from tests.support import needs_assembler

pytestmark = needs_compiler
TEST = """\
import subprocess

import pytest


def test_app(gpuperf):
    done = gpuperf.run(["build/app", "build/k.fatbin", "6", "0"], env={"GREETING": "hello"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "right, hello\\n", "done\\n")
    assert [profile.launches for profile in gpuperf.launches][:4] == [6, 3, 3, 1]
"""
MORE = """\
import subprocess

import pytest


def test_code(gpuperf):
    with pytest.raises(subprocess.CalledProcessError, match="(?s)exit status 8.*done") as error:
        gpuperf.run(["build/app", "build/k.fatbin", "1", "8"])
    assert error.value.stdout == "right, silent\\n"
    assert gpuperf.run(["false"], check=False).returncode == 1


def test_no_program(gpuperf):
    gpuperf.run(["build/none"])


def test_lost(gpuperf):
    gpuperf.run(["build/app", "build/k.fatbin", "1", "99"])


@pytest.mark.gpuperf(budget=50)
def test_budget(gpuperf):
    gpuperf.run(["build/app", "build/k.fatbin", "6", "0"])
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    for name in ("CI", "BUILD_NUMBER", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    build(pytester.path / "build")
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider\ngpuperf_targets = h100-sxm\n")
    return pytester


def test_launches_of_a_program_are_cases(project):
    (project.path / "test_app.py").write_text(TEST)
    project.runpytest_inprocess(*PLUGIN, "-q", "--gpuperf-update").assert_outcomes(passed=1)
    cases = yaml.safe_load((project.path / "baselines" / "test_app.yaml").read_text())["cases"]
    # by line, and by grid: 6 of the first line; of the second 3 with one CTA, then 3 with two; one of each in the third
    found = {name: (case["launches"], case["counts"]["warp_instructions"]) for name, case in cases.items()}
    assert found == {
        "test_app/add": (6, 6 * 11),
        "test_app/add#2": (3, 3 * 11),
        "test_app/add#3": (3, 3 * 2 * 11),
        "test_app/add#4": (1, 11),
        "test_app/store": (1, 9),
    }
    build(project.path / "build", WORSE)
    result = project.runpytest_inprocess(
        *PLUGIN, "-q", "--gpuperf", "--gpuperf-kernels=ad?", "--gpuperf-report=out"
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "gpuperf: add is worse: *",
            f"*launched at *launches.c:{line_of('first')}",
            "*warp_instructions*66  →*72*worse",
            f"*launched at *launches.c:{line_of('second')}",
        ]
    )
    document = json.loads((project.path / "out" / "gpuperf.json").read_text())
    assert [case["id"].partition("/")[2] for case in document["cases"]] == ["add", "add#2", "add#3", "add#4"]


@needs_assembler
def test_machine_code_of_a_program_is_run(project, monkeypatch):
    """All words are 0 at first: one warp takes the slow path of the division in the first launch of all, and one, of the second block,
    in the first launch of two blocks."""
    monkeypatch.delenv("GPUPERF_NVDISASM")
    build(project.path / "build", DIVIDED)
    (project.path / "test_app.py").write_text(TEST)
    options = ("--gpuperf-update", "--gpuperf-kernels=add", "--gpuperf-report=out")
    project.runpytest_inprocess(*PLUGIN, "-q", *options).assert_outcomes(passed=1)
    cases = json.loads((project.path / "out" / "gpuperf.json").read_text())["cases"]
    codes = [case["detail"]["targets"]["h100-sxm"]["machine_code"] for case in cases]
    assert [code["notes"] for code in codes] == [[]] * 4
    assert [code["by_opcode"].get("CALL", 0) for code in codes] == [1, 0, 1, 0]
    measured = [case["measured"]["targets"]["h100-sxm"]["machine_code"] for case in cases]
    assert [code["residue"] for code in measured] == [0.0] * 4


def test_programs_that_fail(project):
    (project.path / "test_more.py").write_text(MORE)
    result = project.runpytest_inprocess(*PLUGIN, "-q", "--gpuperf-update")
    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines(
        [
            "*no program build/none",
            "*build it first; looked in *",
            "*app ended without the launches of 1 of its processes having been written",
            "*the test has executed 55 warp instructions, its budget is 50; most by add 55 in 5 launches",
            "*launch less (a smaller problem, fewer iterations), or allow more: gpuperf_budget*",
        ]
    )


def test_without_pytest(project, capfd, monkeypatch):
    monkeypatch.chdir(project.path)
    command = ["--", "build/app", "build/k.fatbin", "2"]
    assert main(["run", "--gate", "--update", *command, "0"]) == 0
    assert "right, silent\n" in capfd.readouterr().out
    path = project.path / "baselines" / "build" / "app.run.yaml"
    assert path.read_text().startswith(
        "# pytest-gpuperf baseline; refresh: gpuperf run --gate --update -- build/app …\n"
    )
    build(project.path / "build", WORSE)
    # another command line is another case, and takes nothing away
    assert main(["run", "--gate", "--update", *command, "0", "more"]) == 0
    names = {name.rpartition("/")[0] for name in yaml.safe_load(path.read_text())["cases"]}
    assert names == {"build/app build/k.fatbin 2 0", "build/app build/k.fatbin 2 0 more"}
    capfd.readouterr()
    assert main(["run", "--gate", *command, "0"]) == 1
    out = capfd.readouterr().out
    assert "add is worse: " in out
    assert "  gpuperf run --gate --update --target h100-sxm -- build/app build/k.fatbin 2 0\n" in out
    # pytest does not take it for the baseline of a test that is gone
    (project.path / "test_none.py").write_text("def test_none():\n    pass\n")
    result = project.runpytest_inprocess(*PLUGIN, "-q", "--gpuperf", "--gpuperf-min-cases=0")
    assert result.ret == 0
    assert main(["run", "--gate", "--", "false"]) == 3
    captured = capfd.readouterr()
    assert "exit status 1" in captured.out and "called no CUDA function" in captured.err


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--update"], "--update does nothing without --gate"),
        (["--kernels", "a*", "--report", "out"], "--kernels, --report do nothing without --gate"),
        (["--gate", "--triton"], "--gate is for CUDA programs"),
        (["--target", "h100-sxm", "--target", "l4"], "a program finds one GPU"),
    ],
)
def test_usage(arguments, words, capsys):
    assert main(["run", *arguments, "--", "true"]) == 2
    assert words in capsys.readouterr().err


def test_a_log_that_was_changed(tmp_path: Path):
    from gpuperf_engine.cudart.launch_log import read_launches
    from gpuperf_engine.errors import EngineError
    from gpuperf_engine.ptx.parse import parse

    log = tmp_path / "0-1.launches.json"
    case = {"module": 0, "kernel": "add", "site": {"file": "", "address": 0, "function": ""}, "launches": []}
    module = {"path": "k.ptx", "text": PTX}
    good = {"schema_version": 1, "over": "", "modules": [module], "cases": []}
    log.write_text(json.dumps(good))
    assert read_launches(tmp_path, parse).cases == ()
    for change, words in (
        ({"schema_version": 2}, "schema_version is not 1"),
        ({"cases": [{**case, "module": 1}]}, "there is no kernel 'add' in its module"),
        ({"cases": [case]}, "a case of 'add' has no launch"),
        ({"cases": [{**case, "launches": [{}]}]}, "grid is missing"),
        ({"modules": 3}, "modules is missing or no list"),
    ):
        log.write_text(json.dumps({**good, **change}))
        with pytest.raises(EngineError, match=words):
            read_launches(tmp_path, parse)
    log.write_text("{")
    with pytest.raises(EngineError, match="what the program launched cannot be read"):
        read_launches(tmp_path, parse)
