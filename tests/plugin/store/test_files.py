"""The gate's files and outcomes: nothing hangs, nothing is read or written where it should not be, nothing is hidden."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import pytest_gpuperf.store.files
from pytest_gpuperf.cli import main
from pytest_gpuperf.store.baseline import write_if_changed
from tests.plugin.conftest import action, action_here
from tests.plugin.judge.test_gate import LOAD

ROOT = Path(__file__).resolve().parents[3]
MORE = "mov.f32 %f4, %f2;"


@pytest.fixture
def stored(project) -> Path:
    project.update()
    return project.path / "baselines" / "test_k.yaml"


def link_out(path: Path, outside: Path) -> None:
    os.replace(path, outside / "kept.yaml")
    path.symlink_to(outside / "kept.yaml")


def fifo(path: Path, outside: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def device(path: Path, outside: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def directory(path: Path, outside: Path) -> None:
    path.unlink()
    path.mkdir()


ODD = {
    link_out: "a link leads out of *: nothing there is read or written; remove it",
    fifo: "a FIFO, no regular file: remove it",
    device: "a link leads out of *: nothing there is read or written; remove it",
    directory: "a directory, no regular file: remove it",
}


@pytest.mark.parametrize("odd", ODD, ids=lambda made: made.__name__)
def test_a_baseline_that_is_no_file_of_the_project_is_refused(project, stored, tmp_path_factory, odd):
    outside = tmp_path_factory.mktemp("outside")
    odd(stored, outside)
    before = {path: path.read_bytes() for path in outside.iterdir()}
    message = f"*baselines/test_k.yaml: {ODD[odd]}*"
    result = project.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines([message])
    project.kernel(MORE)
    result = project.update()
    assert result.ret == 1
    result.stdout.fnmatch_lines([message])
    result.stdout.no_fnmatch_line("*nothing to write*")
    assert {path: path.read_bytes() for path in outside.iterdir()} == before
    assert "INTERNALERROR" not in result.stdout.str()


def test_a_folder_of_baselines_that_leads_out_is_refused(project, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (project.path / "baselines").symlink_to(outside)
    result = project.update()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*baselines/test_k.yaml: not written: a link leads out of *"])
    assert list(outside.iterdir()) == []


def test_files_of_single_cases_are_looked_at_alike(project):
    layout = ["-o", "gpuperf_baseline_layout=case"]
    project.update(*layout)
    (path,) = (project.path / "baselines" / "test_k.cases").iterdir()
    path.unlink()
    os.mkfifo(path)
    result = project.run(*layout)
    assert result.ret == 1
    result.stdout.fnmatch_lines([f"*baselines/test_k.cases/{path.name}: a FIFO, no regular file*"])


def test_a_fifo_beside_the_baselines_does_not_stop_the_run(project, stored):
    os.mkfifo(stored.with_name("other.yaml"))
    assert project.run().ret == 0


def test_commands_refuse_them_too(project, stored, capsys):
    project.kernel(MORE)
    project.report()
    fifo(stored, project.path)
    for command in (
        ["check", "out/gpuperf.json", "--baselines", "baselines"],
        ["accept", "out"],
    ):
        code = main(command)
        said = capsys.readouterr()
        assert code not in (0, None) and "a FIFO, no regular file" in said.out + said.err


def test_what_a_killed_update_left_is_removed(project, stored):
    """Killed for real, between writing and replacing."""
    killed = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from pytest_gpuperf.store.baseline import write_if_changed\n"
        "os.replace = lambda *_: os._exit(9)\n"
        "write_if_changed(Path(sys.argv[1]), b'half')\n"
    )
    done = subprocess.run([sys.executable, "-c", killed, str(stored)], check=False)
    assert done.returncode == 9
    left = {path.name for path in stored.parent.iterdir()} - {stored.name}
    assert len(left) == 1 and re.fullmatch(r"\.test_k\.yaml\.\w{8}", *left)
    bystander = stored.with_name(".test_k.yaml.swp")
    bystander.touch()
    before = stored.read_bytes()
    assert project.run().ret == 0  # only an update writes, and so removes
    assert left < {path.name for path in stored.parent.iterdir()}
    assert project.update().ret == 0
    assert set(stored.parent.iterdir()) == {stored, bystander} and stored.read_bytes() == before


def test_two_writers_do_not_remove_each_others_files(tmp_path, monkeypatch):
    """The other one takes this one's temporary file for a leftover, once."""
    path, replace, times = tmp_path / "b.yaml", os.replace, []

    def other_first(source, target):
        times.append(source)
        if len(times) == 1:
            os.unlink(source)
        replace(source, target)

    monkeypatch.setattr(os, "replace", other_first)
    assert write_if_changed(path, b"one")
    assert path.read_bytes() == b"one" and [p.name for p in tmp_path.iterdir()] == ["b.yaml"]


def test_not_written_is_not_followed_by_nothing_to_write(project, stored):
    project.kernel(MORE)
    stored.chmod(0o444)
    result = project.update()
    result.stdout.fnmatch_lines(["baselines/test_k.yaml: not written: the file is read-only"])
    result.stdout.no_fnmatch_line("*nothing to write*")


XFAIL = "@pytest.mark.xfail(reason='slow on purpose', strict=False)\n"


def junit(project) -> ET.Element:
    (case,) = ET.parse(project.path / "junit.xml").getroot().iter("testcase")
    return case


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["here", "xdist"])
def test_xfail_hides_no_regression(project, stored, workers):
    project.write(
        "test_k.py", (project.path / "test_k.py").read_text().replace("@pytest", XFAIL + "@pytest", 1)
    )
    project.kernel(LOAD)
    result = project.run("--junit-xml=junit.xml", *workers)
    assert result.ret == 1
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "gpuperf: scale is worse: *",
            "the test is marked xfail (slow on purpose): that excuses no regression",
        ]
    )
    assert junit(project).find("failure") is not None and junit(project).find("skipped") is None
    if not workers:
        before = stored.read_bytes()
        document = project.report()
        assert document["verdict"] == "regressed" and not document["passed"]
        assert main(["accept", "out"]) == 0
        assert project.update().ret == 0
        assert stored.read_bytes() == before  # numbers of an xfail test are not stored


@pytest.mark.parametrize("body", ["raise ValueError('no')", "assert x.numpy()[0] == 99"])
def test_xfail_still_excuses_the_test_itself(project, stored, body):
    text = (project.path / "test_k.py").read_text().replace("@pytest", XFAIL + "@pytest", 1)
    project.write("test_k.py", f"{text}    {body}\n")
    project.kernel(LOAD)
    result = project.run("--gpuperf-min-cases=0")
    assert result.ret == 0
    result.assert_outcomes(xfailed=1)


def test_xfail_excuses_what_is_new_or_better(project):
    project.write(
        "test_k.py", (project.path / "test_k.py").read_text().replace("@pytest", XFAIL + "@pytest", 1)
    )
    assert project.run().ret == 0


def test_the_yaml_of_a_module_is_parsed_once(project, stored, monkeypatch):
    parsed = []
    real = pytest_gpuperf.store.files.parse_baseline
    monkeypatch.setattr(
        "pytest_gpuperf.store.files.parse_baseline", lambda *args: parsed.append(args[1]) or real(*args)
    )
    pytest_gpuperf.store.files._parsed.cache_clear()
    text = (project.path / "test_k.py").read_text()
    project.write("test_k.py", text.replace("test_scale", "test_renamed"))
    project.run().stdout.fnmatch_lines(["*renamed?*"])
    assert parsed == ["test_k.py"]


@pytest.mark.parametrize(
    ("given", "ini", "code"),
    [("", "0", 0), ("", "2", 1), ("0", "2", 0), ("2", "0", 1), ("", "", 1)],
)
def test_the_action_leaves_the_least_number_of_cases_to_the_project(project, monkeypatch, given, ini, code):
    project.write("pytest.ini", f"[pytest]\naddopts = -p no:cacheprovider\ngpuperf_min_cases = {ini}\n")
    project.write("test_k.py", "def test_nothing():\n    pass\n")
    monkeypatch.setenv("GPUPERF_MIN_CASES", given)
    monkeypatch.delenv("GITHUB_OUTPUT", raising=False)
    assert action_here(project, action("gate"), monkeypatch) == code


def test_the_action_has_no_default_of_its_own():
    import yaml

    inputs = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["inputs"]
    assert inputs["min-cases"]["default"] == ""
