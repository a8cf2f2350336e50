"""The gate on value findings: which fail, what they say, how they are accepted, and what older baselines make of them."""

from __future__ import annotations

import linecache
import re

import pytest
import yaml

from tests.plugin.commands.test_flow import FILL

TEST = """\
import numpy as np
import pytest


@pytest.mark.gpuperf({mark})
def test_fill(gpuperf):
    out = gpuperf.empty(64, np.uint32, name="out")
    kernel = gpuperf.kernel("fill.ptx")
    kernel[1, {threads}](out, np.uint32(7))
    {again}
    out.numpy()
"""
AGAIN = "kernel[1, 64](out, np.uint32(7))"
SITE = 'out = gpuperf.empty(64, np.uint32, name="out") in test_fill'
SINGLE = f"single-value | {SITE} | kernel[1, 64](out, np.uint32(7))"
REDUNDANT = f"redundant-values | {SITE} | kernel[1, 64](out, np.uint32(7)) #2"
#: a few bytes count
SMALL = "gpuperf_findings_bytes = 32\ngpuperf_findings_us = 0\n"
#: no single value: half of the array is as it was
HALF = {"threads": 32, "again": "pass"}


@pytest.fixture
def gate(project, monkeypatch):
    monkeypatch.setattr("pytest_gpuperf._engine.NAME", "gpuperf_engine")
    project.write("fill.ptx", FILL)

    def write(mark: str = "", threads: int = 64, again: str = "pass", ini: str = SMALL) -> None:
        linecache.clearcache()  # the same process runs what was written before
        project.write("test_k.py", TEST.format(mark=mark, threads=threads, again=again))
        project.write("pytest.ini", f"[pytest]\naddopts = -p no:cacheprovider\n{ini}")

    write()
    project.write_test = write
    return project


def failing(document) -> list[str]:
    (case,) = document["cases"]
    return [item["identity"] for item in case["detail"]["findings"] if item["severity"] == "fail"]


def test_new_findings_fail_and_say_what_to_do(gate):
    gate.update()
    assert SINGLE in yaml.safe_load(gate.baseline())["cases"]["test_fill/fill"]["findings"]
    gate.write_test("targets=['h100-sxm']", again=AGAIN)
    document = gate.report()
    assert REDUNDANT in failing(document) and gate.result.ret == 1
    gate.result.stdout.fnmatch_lines(
        [
            "*new finding: " + REDUNDANT.replace("[", "[[]"),
            "*the launch of 'fill' writes 64 elements of 'out'; 64 (100.0 %) already held the same value*",
            "*advice: store only elements that change* (saves 256 bytes, * us on h100-sxm)*",
            "*to accept it: @pytest.mark.gpuperf(accept={'redundant-values:out': 'the reason'})*",
        ]
    )


def test_gone_findings_are_improvements(gate):
    gate.update()
    gate.write_test(**HALF)
    (case,) = gate.report()["cases"]
    rows = [row for row in case["rows"] if row["metric"] == "findings"]
    assert [row["verdict"] for row in rows] == ["improved"]


@pytest.mark.parametrize(
    "key", ["single-value:out", "single-value", "single-*:o*"], ids=["object", "rule", "globs"]
)
def test_accepted_findings_do_not_fail(gate, key):
    gate.write_test(f"accept={{{key!r}: 'it is a fill'}}")
    document = gate.report()
    assert failing(document) == []
    (finding,) = document["cases"][0]["detail"]["findings"]
    assert (finding["rule"], finding["accepted"]) == ("single-value", "it is a fill")
    assert not [note for note in document["cases"][0]["detail"]["notes"] if "accept" in note]


def test_what_is_accepted_for_nothing_is_noted(gate):
    gate.write_test("accept={'single-zero:out': 'it is cleared'}")
    document = gate.report()
    assert failing(document) == [SINGLE]
    assert (
        "accept: 'single-zero:out' matches no finding; remove it" in document["cases"][0]["detail"]["notes"]
    )


@pytest.mark.parametrize(
    ("accept", "message"),
    [
        ("['single-zero']", "accept must be a dictionary"),
        ("{'single-zero': ''}", "'single-zero' needs a reason"),
        ("{':out': 'so'}", "':out' names no rule"),
    ],
)
def test_what_cannot_be_accepted(gate, accept, message):
    gate.write_test(f"accept={accept}")
    gate.run().stderr.fnmatch_lines([f"*{message}*"])


@pytest.mark.parametrize(
    ("ini", "fails"),
    [
        (SMALL, True),
        # a launch does not get faster without 256 bytes
        ("", False),
        ("gpuperf_findings_bytes = 32\n", False),
        (SMALL + "gpuperf_findings = single-value = note\n", False),
        (SMALL + "gpuperf_findings = single-* = off\n", False),
        (SMALL + "gpuperf_findings =\n  * = note\n  single-value = fail\n", True),
        ("gpuperf_findings_bytes = 257\ngpuperf_findings_us = 0\n", False),
        ("gpuperf_findings_bytes = 256\ngpuperf_findings_us = 0\n", True),
        ("gpuperf_findings_bytes = 32\ngpuperf_findings_us = 1000\n", False),
    ],
)
def test_severities_and_thresholds(gate, ini, fails):
    gate.write_test("targets=['h100-sxm']", ini=ini)
    document = gate.report()
    assert bool(failing(document)) is fails
    listed = [item["rule"] for item in document["cases"][0]["detail"]["findings"]]
    assert ("single-value" in listed) is ("off" not in ini)


@pytest.mark.parametrize(
    ("ini", "message"),
    [
        ("gpuperf_findings = single-zero\n", "*is not RULE=SEVERITY*"),
        ("gpuperf_findings = single-zero=error\n", "*'error' is not known*"),
        ("gpuperf_findings_us = much\n", "*is not a number*"),
        ("gpuperf_findings_us = -1\n", "*at least 0*"),
    ],
)
def test_settings_that_mean_nothing(gate, ini, message):
    gate.write_test(ini=ini)
    gate.run().stderr.fnmatch_lines([message])


def test_a_better_analysis_is_no_regression(gate):
    """A baseline of an earlier revision that does not have a finding is not judged by it."""
    gate.update()
    text = gate.baseline()
    older = re.sub(r"findings: \d+", "findings: 1", text, count=1)
    older = re.sub(r"    findings:\n(      - .*\n)+", "", older)
    (gate.path / "baselines" / "test_k.yaml").write_text(older)
    document = gate.report()
    (row,) = (row for row in document["cases"][0]["rows"] if row["metric"] == "findings")
    assert (row["verdict"], row["fails"]) == ("unjudged", False) and gate.result.ret == 0
    gate.update()
    assert gate.baseline() == text
