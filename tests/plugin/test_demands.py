"""What users of other gates keep asking for or complaining about, one test each, named after it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_gpuperf.cli import main
from pytest_gpuperf.commands.common import FAILED, NOT_JUDGED, OK
from pytest_gpuperf.core.metrics import ANALYSIS
from tests.plugin.hooks.test_stale import CONFTEST, MANY, entries

from .conftest import HERE, PLUGIN, TEST, action, action_here, ptx

LOAD = "ld.global.f32 %f3, [%rd1];"
MORE = "mov.f32 %f4, %f2;"


def test_noise_never_moves_a_number(project):
    """Ten runs, other hash seeds, other work beside them: no difference at all, and the tolerance stays 0."""
    project.write("test_k.py", MANY.format(count=5))
    project.update()
    before = project.baseline()
    for seed in range(5):
        document = project.report("-p", "no:randomly", f"--basetemp={project.path / 'tmp'}")
        assert document["counts"] == {"ok": 6}
        assert {
            row["allowed"] for case in document["cases"] for row in case["rows"] if row["class"] == "exact"
        } == {"0"}
        project.update("-k", f"many and {seed}")
        assert project.baseline() == before


def test_a_green_gate_has_measured_something(project):
    project.write("test_k.py", "def test_nothing():\n    pass\n")
    result = project.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*nothing-analysed*at least 1 expected*"])
    project.write("test_k.py", "import pytest\n@pytest.mark.gpuperf\ndef test_marked():\n    pass\n")
    assert project.run("--gpuperf-min-cases=0").ret == 1
    project.write("test_k.py", TEST)
    plain = project.plain()
    plain.assert_outcomes(skipped=1)


def test_a_budget_per_test_fails_it(project):
    project.write("test_k.py", TEST.replace('"])', '"], limits={"thread_instructions": 100})'))
    result = project.update()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*thread_instructions*320*limit: at most 100*over limit*"])
    assert not (project.path / "baselines").exists()


def test_a_tolerance_per_test_and_metric(project):
    tolerant = TEST.replace('"])', '"], tolerance={"*_instructions": "+100"})').replace(
        "test_scale", "test_tolerant"
    )
    project.write("test_k.py", TEST + tolerant.removeprefix("import numpy as np\nimport pytest\n"))
    project.update()
    project.kernel(MORE)
    project.run().assert_outcomes(passed=1, failed=1)


def test_it_says_so_when_a_kernel_got_faster(project):
    project.kernel(MORE)
    project.update()
    project.kernel()
    result = project.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["gpuperf: scale is better than its baseline: *", "*--gpuperf-update*"])
    assert project.run("-o", "gpuperf_on_improvement=warn").ret == 0


def test_unused_entries_are_found_but_filters_delete_nothing(project):
    project.write("test_k.py", MANY.format(count=4))
    project.update()
    project.write("test_k.py", MANY.format(count=3))
    assert project.run().ret == 1
    project.update("-k", "other")
    assert len(entries(project)) == 5
    project.update()
    assert len(entries(project)) == 4


def test_pull_requests_of_forks_need_no_token(project, monkeypatch):
    """The summary is a file, the annotations are lines of output: no request is made."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project.path / "summary.md"))
    monkeypatch.setattr("socket.socket", None)
    project.update()
    project.kernel(LOAD)
    result = project.run()
    assert "::error file=test_k.py,line=8" in result.stdout.str()
    assert "ld.global.f32" in (project.path / "summary.md").read_text(encoding="utf-8")


def test_comment_only_when_something_changed(monkeypatch, tmp_path):
    """The recipe writes no comment for an uneventful run, and renews the one it wrote, never another's."""
    comment = action("comment")
    calls: list[tuple[str, ...]] = []
    existing: list[dict] = []

    def api(*arguments, body=None):
        calls.append(arguments)
        if "state=open" in arguments:
            return [{"number": 7, "head": {"sha": "abc"}}, {"number": 8, "head": {"sha": "other"}}]
        comments = {"data": {"repository": {"pullRequest": {"comments": {"nodes": existing}}}}}
        return [comments] if "--slurp" in arguments else {}

    monkeypatch.setattr(comment, "api", api)
    for name, value in {"REPOSITORY": "o/r", "SHA": "abc", "HEAD": "o:branch"}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "gpuperf.md").write_text("## all well\n" * 20_000, encoding="utf-8")

    def written(verdict: str) -> list[tuple[str, ...]]:
        calls.clear()
        (tmp_path / "gpuperf.json").write_text(json.dumps({"verdict": verdict}), encoding="utf-8")
        comment.main(tmp_path)
        return [call for call in calls if "POST" in call or "PATCH" in call]

    assert written("ok") == []
    assert written("regressed") == [("-X", "POST", "repos/o/r/issues/7/comments")]
    existing.append({"databaseId": 1, "viewerDidAuthor": False, "body": comment.MARKER})
    existing.append({"databaseId": 2, "viewerDidAuthor": True, "body": "of another workflow"})
    assert written("ok") == []
    existing.append({"databaseId": 3, "viewerDidAuthor": True, "body": comment.MARKER + "\nold"})
    assert written("ok") == [("-X", "PATCH", "repos/o/r/issues/comments/3")]
    assert len(comment.comment_text("x\n" * 100_000)) < 65_536


def test_ci_offers_the_new_files_to_be_taken_over(project, monkeypatch):
    project.update()
    project.kernel(MORE)
    project.report()
    monkeypatch.chdir(project.path)
    assert main(["accept", "out"]) == OK
    assert project.run().ret == 0


def test_baselines_do_not_churn_and_merge(project):
    """No volatile line; two branches that change different cases merge without a conflict."""
    project.write("test_k.py", _two("a", "b"))
    project.write("a.ptx", ptx(name="a"))
    project.write("b.ptx", ptx(name="b"))
    git = ["git", "-c", "user.name=n", "-c", "user.email=e"]

    def run(*arguments: str) -> None:
        subprocess.run([*git, *arguments], cwd=project.path, check=True, capture_output=True)

    project.update()
    run("init", "-q", "-b", "main")
    run("add", "baselines", "a.ptx", "b.ptx")
    run("commit", "-qm", "base")
    for branch in ("a", "b"):
        run("checkout", "-qb", f"change-{branch}", "main")
        project.write(f"{branch}.ptx", ptx(MORE, branch))
        project.update()
        run("commit", "-qam", branch)
    run("merge", "-q", "--no-edit", "change-a")
    assert project.run().ret == 0
    project.update()
    assert not subprocess.run([*git, "status", "-s", "-uno"], cwd=project.path, capture_output=True).stdout


def _two(first: str, second: str) -> str:
    return "import numpy as np\n" + "".join(
        f"def test_{name}(gpuperf):\n    gpuperf.kernel('{name}.ptx')[1, 32](gpuperf.zeros(4, np.float32), 1.0)\n"
        for name in (first, second)
    )


def test_a_change_of_the_tool_is_no_regression(project, monkeypatch):
    project.update()
    later = {**ANALYSIS, "time": 99}
    monkeypatch.setattr("pytest_gpuperf.core.metrics.ANALYSIS", later)
    for module in ("commands.gate", "store.update", "store.baseline", "judge.judge"):
        monkeypatch.setattr(f"pytest_gpuperf.{module}.ANALYSIS", later)
    document = project.report()
    assert document["counts"] == {"incomparable": 1}
    assert not [r for r in document["cases"][0]["rows"] if r["verdict"] == "regressed"]


def test_an_unknown_instruction_is_refused_without_a_traceback(project):
    project.kernel("frobnicate.f32 %f1, %f2;")
    result = project.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*scale.ptx:10:*frobnicate*"])
    assert "Traceback" not in result.stdout.str() and "lark" not in result.stdout.str()


def test_results_for_machines_have_a_schema_and_exit_codes(project, monkeypatch, capsys):
    jsonschema = pytest.importorskip("jsonschema")
    from pytest_gpuperf.report.validate import load_schema

    project.update()
    project.kernel(LOAD)
    jsonschema.validate(project.report(), load_schema("report-1"))
    monkeypatch.chdir(project.path)
    assert main(["check", "out/gpuperf.json"]) == FAILED
    Path("broken.json").write_text("{", encoding="utf-8")
    assert main(["check", "broken.json"]) == NOT_JUDGED


def test_the_report_travels_as_one_file_with_failures_first(project):
    project.write("test_k.py", _two("a", "b"))
    project.write("a.ptx", ptx(name="a"))
    project.write("b.ptx", ptx(name="b"))
    project.update()
    project.write("b.ptx", ptx(LOAD, "b"))
    project.report()
    page = (project.path / "out" / "gpuperf.html").read_text(encoding="utf-8")
    assert page.index("Failed: worse") < page.index(">Failing ") < page.index(">Equal to the baseline ")
    assert "src=" not in page and 'href="http' not in page


def test_a_rename_does_not_reset_the_history_silently(project):
    project.update()
    project.write("test_k.py", TEST.replace("test_scale", "test_scaled"))
    result = project.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*renamed? test_scale/scale → test_scaled/scale (same PTX)*"])


def test_direction_is_a_sign_and_a_word_never_a_ratio_or_a_colour(project):
    project.update()
    project.kernel(MORE)
    text = project.run("--color=no").stdout.str()
    assert "+20 %" in text and "worse" in text and "▲" in text and "120 %" not in text
    assert project.run("--gpuperf-tolerance", "thread_instructions=150 percent").ret == 4


def test_registers_and_shared_memory_have_a_committed_baseline_without_a_gpu(project):
    project.update()
    assert "registers: 8" in project.baseline()
    project.write("test_k.py", TEST.replace("[2, 32]", "[2, 32, 4096]"))
    project.run().stdout.fnmatch_lines(["*▲ resources.shared_bytes*4,096*worse*"])


def test_the_action_tells_slower_from_broken(project, tmp_path, monkeypatch):
    gate = action("gate")
    project.write("conftest.py", CONFTEST.format(here=str(HERE)))
    project.update()
    monkeypatch.chdir(project.path)
    out = tmp_path / "out"
    args = "\n".join([*PLUGIN, "-q", "-p", "no:cacheprovider"])
    settings = {"GPUPERF_REPORT_DIR": "report", "GPUPERF_ARGS": args, "GITHUB_OUTPUT": str(out)}

    def written() -> dict[str, str]:
        lines = out.read_text(encoding="utf-8").splitlines()
        out.unlink()
        return dict(line.split("=", 1) for line in lines)

    def outputs(**inputs: str) -> tuple[int, dict[str, str]]:
        command, environment = [sys.executable, gate.__file__], {**os.environ, **settings, **inputs}
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        return done.returncode, written()

    def outputs_here(**inputs: str) -> tuple[int, dict[str, str]]:
        """The same, and pytest too, in this process."""
        with monkeypatch.context() as patch:
            for name, value in {**settings, "GPUPERF_ARGS": "-q", **inputs}.items():
                patch.setenv(name, value)
            return action_here(project, gate, patch), written()

    code, found = outputs_here()
    assert code == 0 and found["verdict"] == "ok" and found["cases"] == "1"
    project.kernel(LOAD)
    code, found = outputs()
    assert code == 1 and (found["verdict"], found["regressed"], found["stale"]) == ("regressed", "1", "0")
    assert Path(found["json-path"]).is_file() and Path(found["report-path"]).is_file()
    assert outputs_here(GPUPERF_FAIL_ON="never")[0] == 0
    code, found = outputs(GPUPERF_ARGS=args + "\n; touch hacked\n$(touch hacked)")
    assert code == 4 and found == {"verdict": "error", "cases": "0"}
    assert not (project.path / "hacked").exists()
