"""Other plugins bring sources of PTX, metrics and patterns; what they do wrong is told with their name."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys

import pytest
import yaml

from pytest_gpuperf.cli import main
from tests.docs.blocks import blocks_of
from tests.plugin.conftest import PLUGIN, SCHEMA
from tests.plugin.core.test_adding_a_metric import ROOT

# The example of the documentation, installed as a distribution, on the real engine


@pytest.fixture
def acme(tmp_path):
    """The project of ``docs/plugins.md`` without its conftest.py, and a function that runs pytest in it with the plugin installed."""
    files = {block.file: block.text for block in blocks_of("docs/plugins.md") if block.file}
    site = tmp_path / "site"
    about = site / "acme_gpuperf-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-gpuperf\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[pytest11]\nacme = acme\n")
    (site / "acme.py").write_text(files["acme.py"])
    project = tmp_path / "project"
    project.mkdir()
    (project / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    (project / "test_acme.py").write_text(files["test_acme.py"])
    names = (
        "CI",
        "GITHUB_ACTIONS",
        "GITHUB_STEP_SUMMARY",
        "PYTEST_ADDOPTS",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD",
    )
    environment = {name: value for name, value in os.environ.items() if name not in names}
    environment["PYTHONPATH"] = os.pathsep.join([str(site), str(ROOT), str(ROOT / "engine")])

    def run(*arguments: str, edit: tuple[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        if edit is not None:
            assert edit[0] in files["acme.py"]
            (site / "acme.py").write_text(files["acme.py"].replace(*edit))
        command = [sys.executable, "-m", "pytest", *PLUGIN, "--gpuperf", "--gpuperf-report=out", *arguments]
        return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)

    return project, run


def test_the_documented_plugin_from_source_to_report(acme):
    project, run = acme
    assert run("--gpuperf-update").returncode == 0
    (case,) = yaml.safe_load((project / "baselines" / "test_acme.yaml").read_text())["cases"].values()
    assert case["plugins"] == {"acme": {"lines": 8}}  # 128 words of 4 bytes are 4 lines, read and written
    assert [text.partition(" ")[0] for text in case["findings"]] == ["acme.unused-copy"]
    assert run().returncode == 0
    done = run(
        edit=("add.s64 %rd5, %rd2, %rd3;", "add.s64 %rd5, %rd2, %rd3;\n    ld.global.nc.f32 %f1, [%rd4];")
    )
    assert done.returncode == 1 and "Traceback" not in done.stdout + done.stderr
    document = json.loads((project / "out" / "gpuperf.json").read_text())
    SCHEMA.validate(document)
    (record,) = document["cases"]
    (row,) = (row for row in record["rows"] if row["metric"] == "acme.lines")
    assert (row["verdict"], row["old"], row["new"], row["class"]) == ("regressed", 8, 12, "exact")
    assert row["where"] == "mul.f32.ptx:16"
    failing = [item["rule"] for item in record["detail"]["findings"] if item["severity"] == "fail"]
    assert failing == ["acme.unused-copy"]
    page = html.unescape((project / "out" / "gpuperf.html").read_text())
    assert "acme.lines" in page and "acme.unused-copy" in page
    assert "▲ acme.lines" in done.stdout


# Plugins of all kinds, on the fake engine

ACME = """
import pytest
from gpuperf_engine import EngineError, Finding
from pytest_gpuperf import Metric, PtxSource

def pytest_gpuperf_metrics(config):
    return [
        Metric("warps", "exact", "lower", "", "warps", read=lambda profile: profile.warp_instructions),
        Metric("watts", "modelled", "lower", "W", "power", read=lambda e: 3 * e.time_us, digits=4, per_target=True),
    ]

class Everything:
    rules = ("loud",)
    def find(self, kernels):
        for name, stores, trap in kernels:
            yield None, Finding("loud", "x", "call", "is loud", kernel=name, line=3)

def pytest_gpuperf_patterns(config):
    return [Everything()]
"""


@pytest.fixture
def plugged(project, monkeypatch):
    """The project with a plugin of that text, loaded by its name."""
    monkeypatch.syspath_prepend(str(project.path))

    def write(text: str = ACME, name: str = "acme"):
        project.write(f"{name}.py", text)
        project.write("pytest.ini", f"[pytest]\naddopts = -p no:cacheprovider -p {name}\n")
        return project

    return write


def case_of(project) -> dict:
    (case,) = yaml.safe_load(project.baseline())["cases"].values()
    return case


def verdicts(document: dict, *metrics: str) -> dict[str, str]:
    (record,) = document["cases"]
    return {row["metric"]: row["verdict"] for row in record["rows"] if row["metric"] in metrics}


def told(result: pytest.RunResult) -> str:
    """What a run says, which is not a traceback."""
    text = result.stdout.str() + result.stderr.str()
    assert "Traceback" not in text and "INTERNALERROR" not in text, text
    assert not re.search(r"(pytest_gpuperf|acme)[\w/]*\.py:\d+: (in|\w+Error)", text), text
    return text


def test_a_baseline_made_without_the_plugin_does_not_judge_what_it_brings(project, plugged):
    project.update()
    plugged()
    document = project.report()
    assert project.result.ret == 0
    wanted = ("acme.warps", "findings")
    assert ("findings", "unjudged") in {(r["metric"], r["verdict"]) for r in document["cases"][0]["rows"]}
    assert verdicts(document, "acme.warps", "acme.watts") == {
        "acme.warps": "unjudged",
        "acme.watts": "unjudged",
    }
    assert f"not judged yet: {wanted[0]}, acme.watts, {wanted[1]} of 1 kernel" in project.result.stdout.str()
    assert project.update().ret == 0
    case = case_of(project)
    assert case["plugins"] == {"acme": {"warps": 10}}  # 2 warps of 5 instructions
    assert case["targets"]["h100-sxm"]["plugins"] == {"acme": {"watts": 0.03}}  # 3 × 10 ns
    assert case["findings"] == ["acme.loud | x | call"]
    document = project.report()
    assert project.result.ret == 0
    assert verdicts(document, *wanted) == {"acme.warps": "ok", "findings": "ok"}
    assert [plugin["name"] for plugin in document["plugins"]] == ["acme"]


def test_what_a_plugin_measures_is_judged(plugged):
    project = plugged()
    project.update()
    project.kernel("mov.f32 %f4, %f2;")
    document = project.report()
    assert project.result.ret == 1
    assert verdicts(document, "acme.warps", "acme.watts") == {
        "acme.warps": "regressed",
        "acme.watts": "regressed",
    }
    text = told(project.run("--gpuperf-tolerance", "acme.nothing=1"))
    assert "metric 'acme.nothing' is not known" in text


@pytest.mark.parametrize("by", ["tolerance", "limits"])
def test_settings_name_metrics_of_plugins(plugged, by):
    project = plugged()
    project.update()
    test = (project.path / "test_k.py").read_text()
    value = {"tolerance": '{"acme.*": "50%"}', "limits": '{"acme.warps": 1}'}[by]
    project.write("test_k.py", test.replace("gpuperf(targets", f"gpuperf({by}={value}, targets"))
    document = project.report()
    assert project.result.ret == (by == "limits")
    assert ("over-limit" in {row["verdict"] for row in document["cases"][0]["rows"]}) == (by == "limits")


def test_a_baseline_with_metrics_of_a_plugin_that_is_not_there(plugged):
    project = plugged()
    project.update()
    before = project.baseline()
    project.write("pytest.ini", "[pytest]\naddopts = -p no:cacheprovider\n")
    document = project.report()
    assert project.result.ret == 0 and document["verdict"] == "ok"
    assert not verdicts(document, "acme.warps") and verdicts(document, "findings") == {"findings": "ok"}
    assert [note for note in document["notes"] if "'acme'" in note] == document["notes"]
    told_once = [line for line in project.result.outlines if "plugin 'acme' is not loaded" in line]
    assert len(told_once) == 1 and "of 1 kernel are not judged" in told_once[0]
    assert project.update().ret == 0 and project.baseline() == before  # kept
    project.kernel("mov.f32 %f4, %f2;")
    assert project.update().ret == 0
    assert "acme" not in project.baseline()  # of another kernel


def test_reports_are_judged_anew_without_the_plugin(plugged, capsys):
    project = plugged()
    project.update()
    project.report()
    path = project.path / "baselines" / "test_k.yaml"
    path.write_text(path.read_text().replace("        warps: 10\n", "        warps: 9\n"))
    capsys.readouterr()
    assert main(["check", "out/gpuperf.json", "--baselines", "baselines"]) == 1
    assert "▲ acme.warps" in capsys.readouterr().out
    assert main(["compare", "out/gpuperf.json", "out/gpuperf.json"]) == 0


def test_a_conftest_is_a_plugin_too(project):
    project.write("conftest.py", ACME)
    assert project.update().ret == 0
    assert case_of(project)["plugins"] == {"conftest": {"warps": 10}}


SOURCE = """
import pytest
from gpuperf_engine import EngineError
from pytest_gpuperf import PtxSource

def pytest_gpuperf_ptx_source(source, entry, target, item, config):
    {body}
"""


def test_a_plugin_is_asked_before_the_built_in_sources(plugged):
    ptx = "(item.path.parent / 'scale.ptx').read_text()"
    project = plugged(
        SOURCE.format(body=f"return PtxSource({ptx}, 'made.ptx') if source == 'x.cu' else None")
    )
    project.write("test_k.py", (project.path / "test_k.py").read_text().replace('"scale.ptx"', '"x.cu"'))
    document = project.report()
    assert document["cases"][0]["kernel"]["path"] == "made.ptx"


def test_a_plugin_gives_variants_by_target(plugged):
    body = "return {'sm_70': 'scale.ptx', 'sm_80': 'new.ptx'} if source == 'both' else None"
    project = plugged(SOURCE.format(body=body))
    project.kernel(name="scale")
    text = (project.path / "scale.ptx").read_text()
    project.write("new.ptx", text.replace(".target sm_70", ".target sm_80"))
    project.write("test_k.py", (project.path / "test_k.py").read_text().replace('"scale.ptx"', '"both"'))
    document = project.report()
    assert sorted(record["id"] for record in document["cases"]) == [
        "test_scale/scale@sm_70",
        "test_scale/scale@sm_80",
    ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "return 1 / 0",
            "plugin 'acme' failed in pytest_gpuperf_ptx_source: ZeroDivisionError: division by zero",
        ),
        ("return 3", "plugin 'acme', pytest_gpuperf_ptx_source: 3 is not PTX"),
        ("return {'sm_80': 3}", "plugin 'acme', pytest_gpuperf_ptx_source: {'sm_80': 3} is not PTX"),
        ("raise EngineError('no compiler', hint='install one')", "plugin 'acme': no compiler"),
    ],
)
def test_errors_of_sources_name_the_plugin(plugged, body, message):
    if "sm_80" in body:
        body = f"{body} if target else {{'sm_70': 'scale.ptx'}}"
    project = plugged(SOURCE.format(body=body))
    result = project.run()
    assert result.ret == 1
    assert message in told(result)


def with_metric(row: str) -> str:
    return ACME.replace("    return [\n", f"    return [\n        {row},\n", 1)


METRIC = 'Metric("new", "exact", "lower", "", "new", read=lambda profile: {})'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (with_metric(METRIC.format("1 / 0")), "plugin 'acme' failed in metric 'acme.new': ZeroDivisionError"),
        (with_metric(METRIC.format("float('nan')")), "plugin 'acme': metric 'acme.new' must be a whole number"),
        (with_metric(METRIC.format("-1")), "metric 'acme.new' must be a whole number"),
        (with_metric(METRIC.format("0.5")), "metric 'acme.new' must be a whole number (digits="),
        (with_metric(METRIC.format("'many'")), "plugin 'acme' failed in metric 'acme.new': ValueError"),
        (ACME.replace("for name, stores", "self.x\n        for name, stores"), "'acme' failed in the pattern of loud: AttributeError"),
        (ACME.replace('Finding("loud"', 'Finding("quiet"'), "a finding has the rule 'quiet', which the pattern does not have"),
        (ACME.replace("[Everything()]", "[Everything]").replace('("loud",)', '["loud"]'), "is not a pattern"),
        (ACME.replace("[Everything()]", "[1 / 0]"), "plugin 'acme' failed in pytest_gpuperf_patterns: ZeroDivisionError"),
        (ACME.replace("[Everything()]", "3"), "plugin 'acme', pytest_gpuperf_patterns: 3 is not a list"),
    ],
)  # fmt: skip
def test_errors_in_a_test_name_the_plugin(plugged, text, message):
    project = plugged(text)
    result = project.run()
    assert result.ret == 1
    assert message in told(result)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (with_metric("1 / 0"), "plugin 'acme' failed in pytest_gpuperf_metrics: ZeroDivisionError"),
        (with_metric("3"), "plugin 'acme', pytest_gpuperf_metrics: 3 is not a pytest_gpuperf.Metric"),
        (with_metric(METRIC.replace('"new"', '"a b"', 1)), "metric 'a b': a name is letters"),
        (with_metric(METRIC.replace('"new"', '"warps"', 1)), "metric 'warps' is given twice"),
        (with_metric(METRIC.replace("exact", "set")), "metric 'new': class 'set' is not one of exact, ratio, modelled"),
        (with_metric(METRIC.replace("lower", "less")), "better 'less' is not one of lower, higher, neutral"),
        (with_metric('Metric("new", "exact", "lower", "", "new")'), "metric 'new': read is missing"),
        (with_metric(METRIC[:-1] + ', tolerance="much")'), "metric 'new': "),
    ],
)  # fmt: skip
def test_metrics_that_mean_nothing_end_the_run(plugged, text, message):
    project = plugged(text)
    result = project.run()
    assert result.ret == 4
    assert message in told(result)


def test_a_name_that_baselines_use_is_refused(plugged):
    result = plugged(name="memory").run()
    assert result.ret == 4
    assert "plugin 'memory': its metrics and patterns would be named memory." in told(result)


def test_two_plugins_of_one_name_are_refused(plugged, project):
    project.write("pack/__init__.py", "")
    project.write("pack/acme.py", ACME)
    result = plugged().run("-p", "pack.acme")
    assert result.ret == 4
    assert "two plugins have a metric named 'acme.warps'" in told(result)


def test_without_the_gate_no_plugin_is_asked(plugged):
    project = plugged(with_metric("1 / 0"))
    assert project.plain().ret == 0
