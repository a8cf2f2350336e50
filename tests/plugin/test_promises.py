"""What the gate promises beyond the tools that it learnt from, one test per promise, numbered as they were made."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.plugin.hooks.test_stale import CONFTEST, MANY, entries

from .conftest import HERE, PLUGIN, TEST

LOAD = "ld.global.f32 %f3, [%rd1];"
REPEATS = int(os.environ.get("GPUPERF_REPEATS", "1"))


def obey_permissions() -> None:
    """In a child: from its exec on the superuser too is refused what a file's mode does not allow (Linux, capabilities(7))."""
    if sys.platform == "linux" and os.getuid() == 0:
        drop_from_bounding_set, override_modes = 24, 1
        ctypes.CDLL(None).prctl(drop_from_bounding_set, override_modes, 0, 0, 0)


def in_own_process(project, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """pytest in a project, in a process of its own, which obeys permissions."""
    if "PYTHONOPTIMIZE" in environment:  # compiled once, elsewhere, for all such processes and for later runs
        environment["PYTHONPYCACHEPREFIX"] = str(HERE.parents[1] / "build" / "pycache-optimised")
    paths = os.pathsep.join([str(HERE), str(HERE.parents[1]), str(HERE.parents[1] / "engine")])
    return subprocess.run(
        [sys.executable, "-m", "pytest", *PLUGIN, "--gpuperf", *arguments],
        cwd=project.path,
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        preexec_fn=obey_permissions if os.name == "posix" else None,
    )


@contextmanager
def read_only(root: Path):
    """Nothing in a folder or below it may be written; skips the test where that cannot be had."""
    folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        write = [sys.executable, "-c", "open('x', 'w')"]
        tried = subprocess.run(write, cwd=root, stderr=subprocess.DEVNULL, preexec_fn=obey_permissions)
        if tried.returncode == 0:
            pytest.skip("the superuser may write everywhere here")
        yield
    finally:
        for folder in folders:
            folder.chmod(0o755)


@pytest.fixture
def separate(project):
    """A project whose processes find the fake engine by themselves."""
    project.write("conftest.py", CONFTEST.format(here=str(HERE)))
    return project


def test_01_three_hundred_cases_updated_in_parallel_give_the_serial_bytes(separate):
    pytest.importorskip("xdist")
    separate.write("test_k.py", MANY.format(count=299))
    assert separate.update("-q").ret == 0
    serial = separate.baseline()
    for _ in range(REPEATS):
        (separate.path / "baselines" / "test_k.yaml").unlink()
        assert separate.report("-q", "-n2", "--gpuperf-update")["counts"] == {"new": 300}
        assert len(entries(separate)) == 300
        assert separate.baseline() == serial


def test_02_a_killed_worker_loses_no_finished_case_and_its_module_is_not_written(separate):
    pytest.importorskip("xdist")
    separate.write("test_k.py", MANY.format(count=8))
    separate.write("test_other.py", MANY.format(count=2))
    separate.update()
    before = separate.baseline()
    separate.kernel("mov.f32 %f4, %f2;")
    text = MANY.format(count=8)
    separate.write("test_k.py", text.replace("n):\n", "n):\n    if n == 5: __import__('os')._exit(1)\n"))
    document = separate.report("--gpuperf-update", "-n2", "--max-worker-restart=2")
    assert separate.result.ret == 1
    seen = {case["id"] for case in document["cases"] if case["module"] == "test_k.py"}
    assert seen == {f"test_many[{n}]/scale" for n in range(8) if n != 5} | {"test_other/scale"}
    assert separate.baseline() == before
    assert separate.baseline("test_other").count("thread_instructions: 192") == 2
    assert (
        "baselines/test_k.yaml: left unchanged, because a worker crashed in test_k.py" in document["problems"]
    )


def test_03_a_second_update_changes_nothing_whatever_surrounds_it(separate):
    separate.write("test_k.py", MANY.format(count=3) + "# ünïcode\n")
    separate.update()
    path = separate.path / "baselines" / "test_k.yaml"
    before, stamp = path.read_bytes(), path.stat().st_mtime_ns
    for environment in (
        {"PYTHONHASHSEED": "1", "LC_ALL": "C", "TZ": "Asia/Kathmandu", "PYTHONOPTIMIZE": "2"},
        {"PYTHONHASHSEED": "77", "LC_ALL": "de_DE.UTF-8", "PYTHONUTF8": "0", "COLUMNS": "40"},
    ):
        done = in_own_process(separate, "--gpuperf-update", **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, stamp)
    path.write_bytes(before.replace(b"\n", b"\r\n"))
    assert separate.run().ret == 0
    separate.update()
    assert path.read_bytes() == before


def test_04_the_plugin_costs_at_most_five_milliseconds_when_it_is_not_used():
    """The least of several processes, which is what it costs where nothing else takes the processor; that nothing heavy is
    imported is tested exactly in ``test_options.py``."""
    code = (
        "import pytest, time; start = time.perf_counter(); import pytest_gpuperf.plugin; "
        "print(time.perf_counter() - start)"
    )
    paths = os.pathsep.join([str(HERE.parents[1]), str(HERE.parents[1] / "engine")])
    environment = {**os.environ, "PYTHONPATH": paths}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # compiled modules are cached, as where it is installed
    seconds = []
    while not seconds or (min(seconds) > 0.005 and len(seconds) < 20):
        run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        seconds.append(float(run.stdout))
    assert min(seconds) <= 0.005


@pytest.mark.parametrize(
    "filters",
    [
        ("-k", "other", "-x"),
        ("-m", "not slow", "-k", "many"),
        ("test_k.py::test_other", "-k", "other"),
        ("-x", "test_k.py::test_many[0]"),
    ],
    ids=" ".join,
)
def test_05_combined_filters_lose_no_entry(project, filters):
    """More of this is in ``test_life.py``, at random, and in ``test_stale.py``."""
    project.write("test_k.py", MANY.format(count=4))
    project.update()
    before = entries(project)
    project.write("test_k.py", MANY.format(count=3))
    project.update("-W", "ignore", *filters)
    assert entries(project) == before


def test_06_the_page_says_the_same_without_network_and_script(project):
    """That it looks right is checked in a browser; that it needs none of the two is in the markup."""
    project.update()
    project.kernel("// <script>alert(1)</script>\n" + LOAD)
    project.report()
    page = (project.path / "out" / "gpuperf.html").read_text(encoding="utf-8")
    markup = page.split("<script>")[0] + page.split("</script>")[-1]
    assert "Failed: worse" in markup and "<svg" in markup and "&lt;script&gt;alert(1)" in markup
    assert "http" not in page.replace('http-equiv="Content-Security-Policy"', "")
    # What the script alone can do is not offered without it; nothing else waits for a script to be seen.
    assert re.findall(r"<([^>]*\shidden)\b", markup) == ['form id="filter" hidden']
    style = page.split("<style>")[1].split("</style>")[0]
    shown = re.sub(r"@media print \{.*?\n\}", "", style, flags=re.DOTALL)
    concealing = r"([^{}]*)\{[^{}]*(?:display: none|visibility: hidden|opacity: 0[;} ])"
    assert [rule.strip() for rule in re.findall(concealing, shown)] == ["#filter[hidden]"]
    assert markup.count("<details") == markup.count("<summary") == markup.count("</details>")


def test_07_neither_documentation_nor_machine_revisions_are_regressions(project, monkeypatch):
    project.update()
    project.write(
        "scale.ptx", "// a comment\n" + (project.path / "scale.ptx").read_text().replace("%rd", "%ptr")
    )
    project.write("README.md", "words\n")
    assert project.report()["counts"] == {"ok": 1}
    import fake_engine

    monkeypatch.setitem(fake_engine.REVISION, "h100-sxm", 4)
    document = project.report()
    rows = document["cases"][0]["rows"]
    assert document["counts"] == {"incomparable": 1}
    assert {r["verdict"] for r in rows if r["target"]} == {"incomparable"}
    assert {r["verdict"] for r in rows if not r["target"]} == {"ok"}


def test_08_no_gpu_case_is_a_failure(project):
    project.write("test_k.py", "def test_plain():\n    pass\n")
    document = project.report()
    assert project.result.ret == 1
    assert (document["verdict"], document["passed"]) == ("nothing-analysed", False)


def test_09_twenty_five_regressions_are_ten_annotations_and_one_notice(project, monkeypatch):
    summary = project.path / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    project.write("test_k.py", MANY.format(count=24))
    project.update()
    summary.unlink()
    project.kernel(LOAD)
    lines = project.run().outlines
    assert sum(line.startswith("::error ") for line in lines) == 10
    assert [line for line in lines if line.startswith("::notice")] == [
        "::notice title=gpuperf::15 more kernels are in the job summary"
    ]
    text = summary.read_text(encoding="utf-8")
    assert sum(line.startswith("- ▲") for line in text.splitlines()) == 25


def test_10_conflict_markers_name_file_line_and_command(project):
    project.update()
    path = project.path / "baselines" / "test_k.yaml"
    path.write_text(path.read_text().replace("cases:\n", "cases:\n<<<<<<< HEAD\n"))
    project.run().stdout.fnmatch_lines(
        [
            "*baselines/test_k.yaml:9: conflict markers of an unfinished merge",
            "*pytest --gpuperf --gpuperf-update test_k.py*",
        ]
    )


GOLDEN = """\
gpuperf: scale is worse: memory.global_load_sectors 0 → 64 (+64)

▲ test_scale/scale: worse
  scale.ptx:10, launched at test_k.py:8
  ▲ thread_instructions         320  →  384  +20 %  allowed 0  worse
  ▲ warp_instructions            10  →   12  +20 %  allowed 0  worse
  ▲ memory.global_load_sectors    0  →   64    +64  allowed 0  worse
    … and 3 that moved without failing (-vv shows all)
    because +64 ld.global.f32 at scale.ptx:10

If this is what you want, accept it and commit the baseline:
  pytest --gpuperf --gpuperf-update test_k.py::test_scale
"""


def test_11_the_terminal_text_is_this(project):
    """That every report is valid against its schema is checked wherever a test of the plugin makes one."""
    project.update()
    project.kernel(LOAD)
    assert GOLDEN in project.run("--color=no").stdout.str() + "\n"


SURROUNDINGS = {
    "warnings are errors, no capture, importlib, no xdist": (
        "-W",
        "error",
        "--strict-markers",
        "--strict-config",
        "-s",
        "--import-mode=importlib",
        "-p",
        "no:xdist",
    ),
    "xdist": ("-n2",),
    "optimised": (),
}


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_it_works_in_all_surroundings(separate, name):
    """Also in folders with spaces and letters outside ASCII, and below a rootdir where nothing may be written."""
    if name == "xdist":
        pytest.importorskip("xdist")
    home = separate.path / "ein Ördner 日本"
    for path, text in {"scale.ptx": (separate.path / "scale.ptx").read_text(), "test_k.py": TEST}.items():
        separate.write(f"{home.name}/tests dir/{path}", text)
    separate.write(f"{home.name}/conftest.py", (separate.path / "conftest.py").read_text())
    separate.write(f"{home.name}/pytest.ini", "[pytest]\naddopts = -p no:cacheprovider\n")
    separate.path = home
    environment = {"PYTHONDONTWRITEBYTECODE": "1"}
    if name == "optimised":
        environment = {"PYTHONOPTIMIZE": "2"}
    arguments = SURROUNDINGS[name]
    if name == "xdist":  # in parallel the first test updates
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(home)
            assert separate.update().ret == 0
    else:
        made = in_own_process(separate, "--gpuperf-update", *arguments, **environment)
        assert made.returncode == 0, made.stdout + made.stderr
    with read_only(home):
        report = f"--gpuperf-report={separate.path.parent / 'out'}"
        done = in_own_process(separate, *arguments, report, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 kernel analysed: 1 equal" in done.stdout
    assert (separate.path.parent / "out" / "gpuperf.html").is_file()
    assert Path(home / "baselines" / "tests dir" / "test_k.yaml").is_file()


def test_what_cannot_be_written_is_said_and_fails(separate):
    """An update, and a report, where nothing may be written."""
    assert separate.update().ret == 0
    before = separate.baseline()
    separate.kernel(LOAD)
    with read_only(separate.path):
        done = in_own_process(
            separate, "--gpuperf-update", "--gpuperf-report=out", PYTHONDONTWRITEBYTECODE="1"
        )
    assert done.returncode == 1
    assert "baselines/test_k.yaml: not written: Permission denied" in done.stdout
    assert "the report was not written: " in done.stdout and "Traceback" not in done.stdout + done.stderr
    assert separate.baseline() == before
