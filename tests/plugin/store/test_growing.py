"""Baselines and reports of earlier and later versions: what they do not know is not judged, and nothing else suffers."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from benchmarks.docs import PAGES, ROOT
from pytest_gpuperf.cli import main
from pytest_gpuperf.commands.gate import _analysis
from pytest_gpuperf.core.metric import MACHINE
from pytest_gpuperf.core.metrics import ANALYSIS, METRICS, TABLE, UNKNOWN
from pytest_gpuperf.report.validate import load_schema, problem
from pytest_gpuperf.store.baseline import BaselineError, parse_baseline, render_baseline
from tests.plugin.conftest import HERE

DATA = HERE / "data" / "before-metric-revisions.yaml"
"""The baseline of ``examples/test_histogram.py`` as it was committed when the table of metrics had its first revision."""

SECOND = DATA.with_name("metrics-2.yaml")
"""The same with the second revision of the table, and with the lines of the kernels."""

NEWER = "written by a newer pytest-gpuperf (metrics 99, this one has"

# machine code is there only where the assembler was
YOUNGER = [m for m in METRICS if m.since > 1 and m.kind != "set" and m.group != MACHINE]
NEW = "memory.global_atomic_serializations"
SENTENCE = (
    f"not judged yet: *{NEW}* of 1 kernel, which the baseline lacks; *pytest --gpuperf --gpuperf-update"
)


def read(text: str):
    return parse_baseline(text.encode(), "examples/test_histogram.py", "test_histogram.yaml")


def older(project) -> Path:
    """The project's baseline as a version with the first metrics would have written it."""
    path = project.path / "baselines" / "test_k.yaml"
    text = re.sub(r"^  metrics: \d+\n", "", path.read_text(), flags=re.M)
    for metric in YOUNGER:
        text = re.sub(rf"^ +{metric.path[-1]}: .*\n", "", text, flags=re.M)
    path.write_text(text)
    return path


def older_report(path: Path) -> None:
    """The report as such a version would have written it."""
    document = json.loads(path.read_text())
    for record in document["cases"]:
        del record["analysis"]["metrics"]
        for metric in YOUNGER:
            section = record["measured"]
            for key in metric.path[:-1]:
                section = section[key]
            del section[metric.path[-1]]
        record["rows"] = [row for row in record["rows"] if row["metric"] not in {m.name for m in YOUNGER}]
    path.write_text(json.dumps(document))


@pytest.fixture
def run_cli(capsys):
    def run(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        return main(list(arguments)), capsys.readouterr().out

    return run


def rows(record, verdict):
    return {row["metric"] for row in record["rows"] if row["verdict"] == verdict}


def test_a_baseline_of_the_first_revision_is_read_and_stays_what_it_was():
    found = read(DATA.read_text())
    assert len(found.cases) > 2
    for key, case in found.cases.items():
        assert found.analysis_of(key)["metrics"] == 1
        named = {metric.name for metric, _, _ in TABLE.flatten(case)}
        assert "memory.local_bytes" in named and not named & {metric.name for metric in YOUNGER}
    jsonschema.validate(yaml.safe_load(DATA.read_text()), load_schema("baseline-1"))
    text = render_baseline(found, "examples/test_histogram.py").decode()
    assert read(text).analysis_of(key)["metrics"] == 1  # the case says so where the file no longer does
    assert read(text).cases[key]["memory"] == found.cases[key]["memory"]


def test_a_metric_of_its_own_revision_must_be_there():
    text = DATA.read_text()
    with pytest.raises(
        BaselineError, match="'memory' has no 'local_bytes': the file was truncated or edited"
    ):
        read(text.replace("      local_bytes: 0\n", "", 1))
    with pytest.raises(BaselineError, match=r"has no '\w+': the file was truncated or edited"):
        read(text.replace("  time: 3\n", "  time: 3\n  metrics: 2\n", 1))


def test_what_another_version_knows_is_ignored_and_dropped():
    text = DATA.read_text().replace("  time: 3\n", "  time: 3\n  metrics: 999\n  warp: 2\n", 1)
    text = text.replace("      local_bytes: 0\n", "      local_bytes: 0\n      moon_phases: [1, {a: b}]\n", 1)
    text = text.replace("    launches: 1\n", "    launches: 1\n    energy:\n      joules: 3\n", 1)
    jsonschema.validate(yaml.safe_load(text), load_schema("baseline-1"))
    text = text.replace("      shared_conflicts: 0\n", "", 1)  # the later version may have dropped it
    found = read(text)
    kept = render_baseline(found, "examples/test_histogram.py").decode()
    assert found.cases.keys() == read(DATA.read_text()).cases.keys()
    for word in ("moon_phases", "energy", "joules", "warp:"):
        assert word not in kept


def test_an_older_baseline_does_not_judge_what_it_lacks(project):
    project.update()
    older(project)
    document = project.report()
    (record,) = document["cases"]
    assert project.result.ret == 0 and document["verdict"] == record["verdict"] == "ok"
    assert rows(record, "unjudged") == {metric.name for metric in YOUNGER if not metric.per_target}
    assert not any(row["fails"] for row in record["rows"])
    project.result.stdout.fnmatch_lines([SENTENCE])
    project.result.stdout.no_fnmatch_line("moved without failing*")
    for name in ("gpuperf.md", "gpuperf.html"):
        text = html.unescape((project.path / "out" / name).read_text())
        said = re.findall("not judged yet.*", text)[0]
        assert NEW in said and "--gpuperf-update" in said


def test_an_older_baseline_judges_what_it_has(project):
    project.update()
    older(project)
    project.kernel("mov.f32 %f4, %f2;")
    result = project.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*▲ thread_instructions  320  →  384*"])


def test_an_update_brings_the_metrics_in(project):
    project.update()
    now = project.baseline()
    path = older(project)
    assert project.update("--gpuperf-report=out").ret == 0
    assert path.read_text() == now
    result = project.run()
    assert result.ret == 0
    result.stdout.no_fnmatch_line("not judged yet*")


def test_an_update_of_one_test_leaves_the_others_unjudged(project):
    text = (project.path / "test_k.py").read_text()
    project.write("test_k.py", text + text[text.index("@pytest") :].replace("test_scale", "test_other"))
    project.update()
    path = older(project)
    assert project.update("test_k.py::test_other").ret == 0
    assert yaml.safe_load(path.read_text())["cases"]["test_scale/scale"]["analysis"] == {"metrics": 1}
    result = project.run()
    assert result.ret == 0
    result.stdout.fnmatch_lines([SENTENCE])


def test_reports_are_judged_against_older_baselines_and_accepted(project, run_cli):
    project.update()
    now = project.baseline()
    path = older(project)
    project.report()
    code, out = run_cli("check", "out/gpuperf.json", "--baselines", "baselines")
    assert code == 0 and "not judged yet: " in out
    code, out = run_cli("accept", "out")
    assert code == 0 and path.read_text() == now
    code, out = run_cli("check", "out/gpuperf.json", "--baselines", "baselines")
    assert code == 0 and "not judged yet" not in out


@pytest.mark.parametrize("first", ["older", "newer"])
def test_reports_of_two_versions_are_compared(project, run_cli, first):
    project.run("--gpuperf-report=older")
    project.run("--gpuperf-report=newer")
    older_report(project.path / "older" / "gpuperf.json")
    second = {"older": "newer", "newer": "older"}[first]
    code, out = run_cli("compare", f"{first}/gpuperf.json", f"{second}/gpuperf.json")
    assert code == 0 and "ok: 1 kernel" in out
    assert f"not judged yet: {YOUNGER[0].name}" in out


def test_a_report_that_says_nothing_is_of_the_first_revisions():
    assert _analysis({}) == {"counts": 1, "findings": 1, "time": 3, "metrics": 1}


def test_a_baseline_that_does_not_say_what_its_numbers_mean_is_not_comparable(project):
    project.update()
    path = project.path / "baselines" / "test_k.yaml"
    text = path.read_text()
    path.write_text(re.sub(r"^analysis:\n(  .*\n)+(?=cases:)", "", text, flags=re.M))
    document = project.report()
    (record,) = document["cases"]
    assert record["verdict"] == "incomparable" and project.result.ret == 1
    assert {"thread_instructions", "findings", "time_us"} <= rows(record, "incomparable")
    project.result.stdout.fnmatch_lines(["*does not say what its counts mean*"])
    assert read(path.read_text()).analysis == {**dict.fromkeys(ANALYSIS, UNKNOWN), "metrics": 1}
    project.update()
    assert path.read_text() == text


@pytest.mark.parametrize("name", ["baseline-1", "report-1"])
def test_the_published_schemas_are_those_of_the_metrics(name):
    page = f"pytest_gpuperf/schemas/{name}.json"
    assert PAGES[page]() + "\n" == (ROOT / page).read_text(encoding="utf-8"), "run `make docs`"


def test_the_schemas_want_what_a_reader_wants():
    schema = load_schema("baseline-1")
    whole = yaml.safe_load(DATA.read_text())
    assert not problem(whole, schema, schema)
    for case in whole["cases"].values():
        del case["memory"]["local_bytes"]
    assert "local_bytes" in problem(whole, schema, schema)


def test_a_baseline_of_the_second_revision_is_read_and_stays_what_it_was():
    found = read(SECOND.read_text())
    assert len(found.cases) > 2 and found.notes == ()
    of_second = {
        metric.name for metric in METRICS if metric.since <= 2 and metric.kind != "set" and not metric.family
    }
    for key, case in found.cases.items():
        assert found.analysis_of(key)["metrics"] == 2
        assert of_second <= {metric.name for metric, _, _ in TABLE.flatten(case)}
    jsonschema.validate(yaml.safe_load(SECOND.read_text()), load_schema("baseline-1"))
    again = read(render_baseline(found, "examples/test_histogram.py").decode())
    assert {key: {**case, "analysis": 0} for key, case in again.cases.items()} == {
        key: {**case, "analysis": 0} for key, case in found.cases.items()
    }


def newer(project) -> Path:
    """The project's baseline as a later release may write it: another revision, another metric, another section."""
    path = project.path / "baselines" / "test_k.yaml"
    text = re.sub(r"^  metrics: \d+\n", "  metrics: 99\n", path.read_text(), flags=re.M)
    text = text.replace("      shared_conflicts: 0\n", "      shared_conflicts: 0\n      l2_hits: 3\n")
    path.write_text(text.replace("    branches:\n", "    energy:\n      joules: 3\n    branches:\n"))
    return path


def test_a_baseline_of_a_newer_release_is_told_once_and_judged_as_far_as_it_is_known(project):
    text = (project.path / "test_k.py").read_text()
    project.write("test_k.py", text + text[text.index("@pytest") :].replace("test_scale", "test_other"))
    project.update()
    now = project.baseline()
    path = newer(project)
    document = project.report()
    assert project.result.ret == 0
    (note,) = document["notes"]
    assert note.startswith(f"baselines/test_k.yaml: {NEWER}")
    assert sum(NEWER in line for line in project.result.outlines) == 1
    project.kernel("mov.f32 %f4, %f2;")
    result = project.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*▲ thread_instructions  320  →  384*"])
    project.kernel()
    assert project.update().ret == 0
    assert path.read_text() == now


def test_a_report_is_judged_against_a_baseline_of_a_newer_release(project, run_cli):
    project.update()
    project.report()
    newer(project)
    code, out = run_cli("check", "out/gpuperf.json", "--baselines", "baselines", "-o", "judged")
    assert code == 0 and out.count(NEWER) == 1
    assert NEWER in html.unescape((project.path / "judged" / "gpuperf.md").read_text())


def test_another_format_is_an_error_that_names_the_release(project):
    project.update()
    path = project.path / "baselines" / "test_k.yaml"
    good = path.read_text()
    path.write_text(good.replace("schema: 1\n", "schema: 2\nrelease: 0.4\n"))
    document = project.report()
    assert project.result.ret == 1 and document["cases"][0]["verdict"] == "error"
    project.result.stdout.fnmatch_lines(
        [
            "*baselines/test_k.yaml:2: schema 2 is not known: pytest-gpuperf 0.1.0 reads schema 1",
            "*a newer release may have written it: upgrade, pip install 'pytest-gpuperf>=0.4'",
        ]
    )
    before = path.read_bytes()
    assert project.update().ret == 1 and path.read_bytes() == before  # nor does an update replace it
