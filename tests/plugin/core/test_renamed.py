"""Names that have changed: the former ones work and a warning says the present one; where warnings are errors it is the only line."""

from __future__ import annotations

import json
import re

import pytest

from pytest_gpuperf.cli import main
from pytest_gpuperf.commands.common import NOT_JUDGED
from pytest_gpuperf.core.metrics import ANALYSIS
from pytest_gpuperf.store.baseline import parse_baseline
from tests.plugin.conftest import HERE, SCHEMA

BACKENDS = [("native", "llvm"), ("lanes", "reference")]


@pytest.mark.parametrize(("former", "present"), BACKENDS)
def test_a_former_backend_in_the_ini_file_warns(project, former, present):
    project.update()
    sentence = f"gpuperf_backend = {former} is now gpuperf_backend = {present}: write that"
    for way, code in (("default", 0), ("error", 4)):
        result = project.run("-o", f"gpuperf_backend={former}", "-W", f"{way}::DeprecationWarning")
        output = result.stdout.str() + result.stderr.str()
        assert result.ret == code and sentence in output and "Traceback" not in output


@pytest.mark.parametrize(("former", "present"), BACKENDS)
def test_a_former_backend_of_the_command_warns(tmp_path, capsys, former, present):
    path = tmp_path / "k.ptx"
    path.write_text(".version 8.0\n.target sm_70\n.address_size 64\n.entry k() { ret; }")
    assert main(["profile", str(path), "--grid", "1", "--block", "1", "--backend", former]) == 0
    told = capsys.readouterr()
    assert told.err == f"gpuperf profile: warning: --backend {former} is now --backend {present}\n"
    assert main(["profile", str(path), "--grid", "1", "--block", "1", "--backend", present]) == 0
    assert capsys.readouterr().out.splitlines()[:3] == told.out.splitlines()[:3]


DATA = HERE / "data" / "before-serializations"


def stored(name: str) -> str:
    """A file of the version before, as if what predicted times mean had not changed since, nor the table of metrics: only names did.
    All 128 lanes come to one address."""
    changed = (DATA / name).read_text()
    for before, after in (
        (r'(\btime"?: ?)4\b', rf"\g<1>{ANALYSIS['time']}"),
        (r'(\bmetrics"?: ?)2\b', rf"\g<1>{ANALYSIS['metrics']}"),
        (r'(global_atomic_)turns("?: ?)128(,"|\n +)', r"\g<0>\g<1>hottest\g<2>128\g<3>"),
    ):
        changed, times = re.subn(before, after, changed)
        assert times
    return changed


"""A kernel, its baseline, and a report that was judged against another one, as the version before the names changed wrote them."""

FORMER, PRESENT = "memory.global_atomic_turns", "memory.global_atomic_serializations"
NOW = f"metric '{FORMER}' is now '{PRESENT}': write '{PRESENT}'"
TEST = """\
import numpy as np
import pytest


@pytest.mark.gpuperf(targets=["h100-sxm"]{marker})
def test_counters(gpuperf):
    out = gpuperf.zeros(1, np.uint32)
    gpuperf.kernel("counters.ptx"{call})[2, 64](out)
"""
ADD = "    red.global.add.u32 [%rd2], 1;\n"


@pytest.fixture
def earlier(project, monkeypatch):
    """A project with a baseline of the version before, on the real engine."""
    monkeypatch.setattr("pytest_gpuperf._engine.NAME", "gpuperf_engine")
    (project.path / "test_k.py").unlink()
    project.write("test_counters.py", TEST.format(marker="", call=""))
    project.write("baselines/test_counters.yaml", stored("baseline.yaml"))
    project.write("counters.ptx", (DATA / "counters.ptx").read_text())
    return project


def twice(project) -> None:
    """Every lane adds to the counter in global memory a second time."""
    text = (DATA / "counters.ptx").read_text()
    assert text.count(ADD) == 1
    project.write("counters.ptx", text.replace(ADD, 2 * ADD))


def declare(project, marker="", call="") -> None:
    project.write("test_counters.py", TEST.format(marker=marker, call=call))


def row(document):
    (record,) = document["cases"]
    return [row for row in record["rows"] if row["metric"] == PRESENT][
        -1
    ]  # behind the comparison the limit, if any


def test_a_metric_is_judged_against_the_number_under_its_former_name(earlier):
    document = earlier.report()
    assert earlier.result.ret == 0 and document["cases"][0]["verdict"] == "ok"
    assert (row(document)["old"], row(document)["new"]) == (128, 128)
    assert "unjudged" not in {row["verdict"] for row in document["cases"][0]["rows"]}
    twice(earlier)
    found = row(earlier.report())
    assert (found["old"], found["new"], found["verdict"]) == (128, 256, "regressed")
    assert found["where"] == "counters.ptx:32"  # the counts of its lines had other names as well


def test_an_update_writes_the_present_names_and_calls_nothing_changed(earlier):
    # but for the names it is of the present: findings and the table of metrics have other revisions since,
    # and its times are of the model of counts
    before = (
        stored("baseline.yaml")
        .replace("findings: 1\n", f"findings: {ANALYSIS['findings']}\n")
        .replace("metrics: 2\n", "metrics: 3\n")
    )
    earlier.write("baselines/test_counters.yaml", before)
    result = earlier.update("-o", "gpuperf_time_model=kleimenov-popova")
    assert before.count("atomic_turns") == 3
    assert earlier.baseline("test_counters") == before.replace("atomic_turns", "atomic_serializations")
    result.stdout.fnmatch_lines(["wrote baselines/test_counters.yaml*"])
    result.stdout.no_fnmatch_line("*1 changed*")
    assert earlier.run().ret == 0


def test_the_baseline_of_an_example_is_read_as_if_it_had_the_present_names():
    text = (DATA.parent / "metrics-2.yaml").read_text()
    assert text.count("atomic_turns") == 10
    former, present = (
        parse_baseline(some.encode(), "test_histogram.py", "test_histogram.yaml")
        for some in (text, text.replace("atomic_turns", "atomic_serializations"))
    )
    assert former == present
    assert (
        former.cases["test_histogram[histogram_global-12345]/histogram_global"]["memory"][
            PRESENT.split(".")[1]
        ]
        == 1089
    )


DECLARED = {
    "marker tolerance": ({"marker": f", tolerance={{'{FORMER}': '+128'}}"}, []),
    "marker limit": ({"marker": f", tolerance={{'{PRESENT}': '+128'}}, limits={{'{FORMER}': 255}}"}, []),
    "call tolerance": ({"call": f", tolerance={{'{FORMER}': '+128'}}"}, []),
    "command line": ({}, [f"--gpuperf-tolerance={FORMER}=+128"]),
    "ini file": ({}, ["-o", f"gpuperf_tolerances={FORMER} = +128"]),
}


@pytest.mark.parametrize("where", DECLARED)
def test_what_names_a_metric_as_before_holds_for_it_with_a_warning(earlier, where):
    declared, options = DECLARED[where]
    twice(earlier)
    declare(earlier, **declared)
    found = row(earlier.report(*options))
    if "limit" in where:
        assert (found["verdict"], found["limit"], found["fails"]) == ("over-limit", 255, True)
    else:
        assert (found["verdict"], found["allowed"], found["fails"]) == ("ok", "+128", False)
    assert NOW in earlier.result.stdout.str()
    result = earlier.run(*options, "-W", "error::DeprecationWarning")
    output = result.stdout.str() + result.stderr.str()
    assert result.ret == (1 if "call" in where else 4) and NOW in output and "Traceback" not in output


def test_a_glob_that_fits_former_names_alone_stands_for_the_present_ones(earlier):
    twice(earlier)
    found = row(earlier.report("--gpuperf-tolerance=memory.*_turns=+128"))
    assert (found["verdict"], found["new"]) == ("ok", 256)
    assert f"metric 'memory.*_turns' is now '{PRESENT}'" in earlier.result.stdout.str()


def test_present_names_warn_of_nothing(earlier):
    declare(earlier, f", tolerance={{'{PRESENT}': 0, 'memory.*': 0}}", f", limits={{'{PRESENT}': 128}}")
    assert earlier.run("-W", "error").ret == 0


def test_reports_from_before_are_compared_judged_and_shown(earlier, capsys):
    def gpuperf(*arguments):
        capsys.readouterr()
        return main(list(arguments)), capsys.readouterr().out

    report = str(earlier.write("before.json", stored("report.json")))
    earlier.report()
    for pair in ((report, "out/gpuperf.json"), ("out/gpuperf.json", report)):
        code, out = gpuperf("compare", *pair)
        assert (code, out) == (0, "ok: 1 kernel: 1 ok\n")
    assert gpuperf("check", report, "--baselines", "baselines") == (0, "ok: 1 kernel: 1 ok\n")
    assert gpuperf("check", report)[0] == 1  # its run had another baseline
    assert gpuperf("report", report, "-o", "shown")[0] == 0
    shown = json.loads((earlier.path / "shown" / "gpuperf.json").read_text())
    SCHEMA.validate(shown)
    assert row(shown)["allowed"] == "1%" and shown["cases"][0]["policy"]["limits"] == {PRESENT: 256}
    (loop,) = shown["cases"][0]["detail"]["explanation"]["loops"]
    assert (loop["head_thread_executions"], loop["head_warp_executions"]) == (2112, 128)
    assert [access["serializations"] for access in shown["cases"][0]["detail"]["accesses"]] == [0, 2112, 128]
    twice(earlier)
    earlier.report()
    code, out = gpuperf("compare", report, "out/gpuperf.json")
    assert code == 1 and re.search(rf"{PRESENT} +128 +→ +256", out)


@pytest.mark.parametrize("damage", [3, "x", [3], [[{}]], {"turns": 3}, [{"turns": {}, "line": 1}]])
@pytest.mark.parametrize("where", ["accesses", "explanation"])
def test_reports_with_anything_where_names_changed_are_refused(tmp_path, capsys, where, damage):
    document = json.loads(stored("report.json"))
    document["cases"][0]["detail"][where] = damage
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(document))
    assert main(["check", str(path)]) == NOT_JUDGED
    assert f"bad.json: $.cases[0].detail.{where}" in capsys.readouterr().err
