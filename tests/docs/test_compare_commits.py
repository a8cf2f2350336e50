"""``benchmarks.compare_commits``: two reports, and two commits of a small repository with packages of its own."""

import subprocess
from pathlib import Path

import pytest

from benchmarks.compare_commits import differences, main

CASE = {"id": "test_a/k", "nodeid": "t.py::test_a", "verdict": "ok", "analysis": {"counts": 3}}
#: writes a report whose one count is the engine's
PLUGIN = """
import json, pathlib, time
import gpuperf_engine

def pytest_addoption(parser):
    parser.addoption("--gpuperf", action="store_true")
    parser.addoption("--gpuperf-report")

def pytest_sessionfinish(session):
    folder = pathlib.Path(session.config.getoption("--gpuperf-report"))
    folder.mkdir()
    case = {"id": "test_k", "count": gpuperf_engine.COUNT, "analysis": {"counts": time.time()}}
    (folder / "gpuperf.json").write_text(json.dumps({"cases": [case]}))
"""


def test_times_of_the_analysis_may_differ() -> None:
    slower = {**CASE, "analysis": {"counts": 300, "time": 1}}
    assert differences({"cases": [CASE]}, {"cases": [slower]}) == []


def test_differences_are_named_by_case() -> None:
    other = {**CASE, "id": "test_b/k", "nodeid": "t.py::test_b"}
    old = {"cases": [CASE, other], "counts": {"ok": 2}, "notes": ["a"]}
    new = {"cases": [{**other, "verdict": "worse"}], "counts": {"ok": 2}, "notes": ["b"]}
    assert differences(old, new) == [
        ("cases[t.py::test_a test_a/k].id", "test_a/k", None),
        ("cases[t.py::test_a test_a/k].nodeid", "t.py::test_a", None),
        ("cases[t.py::test_a test_a/k].verdict", "ok", None),
        ("cases[t.py::test_b test_b/k].verdict", "ok", "worse"),
        ("notes", ["a"], ["b"]),
    ]


def test_a_field_that_is_null_differs_from_none() -> None:
    assert differences({"a": None, "b": 1}, {"b": 1}) == [("a", None, None)]
    assert differences({"a": 1}, {"a": 2}, ignored=["a"]) == []


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Three commits; the engine of the last one counts otherwise."""

    def git(*arguments: str) -> None:
        subprocess.run(
            ("git", "-c", "user.name=n", "-c", "user.email=e", *arguments),
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )

    git("init", "-q")
    for folder in ("pytest_gpuperf", "engine/gpuperf_engine", "examples"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "pytest_gpuperf" / "__init__.py").touch()
    (tmp_path / "pytest_gpuperf" / "plugin.py").write_text(PLUGIN)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "examples" / "test_k.py").write_text("def test_k(): pass\n")
    for count in ("20", "0x14", "21"):
        (tmp_path / "engine" / "gpuperf_engine" / "__init__.py").write_text(f"COUNT = {count}\n")
        git("add", "-A")
        git("commit", "-q", "-m", count)
    return tmp_path


def test_two_commits(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["HEAD~2", "HEAD~1"], repository) == 0
    assert capsys.readouterr().out == "1 kernels at HEAD~1: the same as at HEAD~2\n"
    assert main(["HEAD~1"], repository) == 1
    assert (
        capsys.readouterr().out
        == "cases[test_k].count: 20 → 21\n1 kernels at HEAD: 1 differences from HEAD~1\n"
    )
    assert main(["HEAD", "--", "nowhere"], repository) == 2
    assert "file or directory not found: nowhere" in capsys.readouterr().err
    assert main(["no-such-commit"], repository) == 2
    assert "invalid reference: no-such-commit" in capsys.readouterr().err
