"""Value flow from a test to the report, and what ``gpuperf flow`` prints of it."""

from __future__ import annotations

import html
import json
from xml.etree import ElementTree

import pytest

from pytest_gpuperf.cli import main
from pytest_gpuperf.commands.common import OK, USAGE
from pytest_gpuperf.report.flow import flow_svg

FILL = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry fill(.param .u64 out, .param .u32 value)
{
    .reg .u32 %r<3>;
    .reg .u64 %rd<4>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r2, [value];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r2;
    ret;
}
"""
TEST = """\
import numpy as np
import pytest

@pytest.mark.gpuperf
def test_fill(gpuperf):
    out = gpuperf.empty(64, np.uint32, name="out")
    kernel = gpuperf.kernel("fill.ptx")
    for _ in range(3):
        kernel[1, 64](out, np.uint32(7))
    assert out.numpy()[0] == 7
"""


@pytest.fixture
def report(project, monkeypatch) -> dict:
    monkeypatch.setattr("pytest_gpuperf._engine.NAME", "gpuperf_engine")
    project.write("fill.ptx", FILL)
    project.write("test_k.py", TEST)
    monkeypatch.chdir(project.path)
    return project.report()


def flow(capsys, *arguments: str) -> tuple[int, str, str]:
    code = main(["flow", "out/gpuperf.json", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_graph_of_a_test(report, project, capsys):
    (case,) = report["cases"]
    graph = case["detail"]["flow"]
    number = {(vertex["kind"], vertex["label"]): vertex["number"] for vertex in graph["vertices"]}
    host, made = number["host", "host"], number["allocation", "allocation"]
    launch, out = number["launch", "fill"], number["copy", "copy to the host"]
    first = {"object": made, "name": "out", "bytes": 256, "unchanged": 0, "size": 256}
    assert graph["edges"] == [
        {**first, "source": made, "target": launch, "kind": "write"},
        {
            **first,
            "source": launch,
            "target": launch,
            "kind": "write",
            "bytes": 512,
            "unchanged": 512,
            "size": 512,
        },
        {**first, "source": launch, "target": out, "kind": "read"},
        {**first, "source": out, "target": host, "kind": "sink"},
    ]
    vertex = graph["vertices"][launch]
    assert vertex["calls"] == 3 and "redundant-values out" in vertex["findings"]
    assert vertex["path"] == [
        {"text": "kernel[1, 64](out, np.uint32(7))", "path": "test_k.py", "line": 9, "function": "test_fill"}
    ]
    page = (project.path / "out" / "gpuperf.html").read_text(encoding="utf-8")
    assert "<title>Value flow of test_k.py::test_fill</title>" in page
    assert "fill (3 times)" in html.unescape(page)
    assert flow(capsys, "--format", "json")[1] == json.dumps(graph, indent=1) + "\n"


def test_forms_and_parts(report, capsys):
    graph = report["cases"][0]["detail"]["flow"]
    number = {vertex["label"]: vertex["number"] for vertex in graph["vertices"]}
    code, text, _ = flow(capsys, "--test", "test_fill")
    assert code == OK
    assert f"from {number['fill']:>3}: out 512 B, 100 % unchanged (write)" in text
    assert "launch fill (3 times)  test_k.py:9" in text and "managed" not in text
    picture = flow(capsys, "--format", "svg")[1]
    root = ElementTree.fromstring(picture)
    assert picture.count('class="edge back wasted"') == 1 and picture.count("<rect") == 4
    assert root.find("{*}title").text == "Value flow of test_k.py::test_fill"
    dot = flow(capsys, "--format", "dot")[1]
    assert dot.count("->") == 4 and dot.count("color=red") == 1
    part = json.loads(flow(capsys, "--format", "json", "--important", "500")[1])
    assert [edge["bytes"] for edge in part["edges"]] == [512]
    part = json.loads(flow(capsys, "--format", "json", "--slice", str(number["copy to the host"]))[1])
    assert len(part["vertices"]) == 4 and len(part["edges"]) == 4


def test_what_cannot_be_shown(report, project, capsys):
    code, _, error = flow(capsys, "--test", "other")
    assert code == USAGE and "fits 0 tests" in error and "test_k.py::test_fill" in error
    code, _, error = flow(capsys, "--slice", "99")
    assert code == USAGE and "have the numbers 0 to" in error
    del report["cases"][0]["detail"]["flow"]
    (project.path / "out" / "gpuperf.json").write_text(json.dumps(report))
    code, _, error = flow(capsys)
    assert code == USAGE and "has no value flow" in error
    assert main(["flow", "nothing.json"]) == USAGE


def test_a_box_has_room_for_the_most_severe_findings():
    vertex = {
        "number": 0, "kind": "launch", "label": "k", "calls": 1, "findings": [f"rule{i} x" for i in range(20)],
        "path": [{"text": "k[1, 1](x)", "path": "test_k.py", "line": 7, "function": "f"}],
    }  # fmt: skip
    edge = {
        "source": 0, "target": 0, "object": 0, "name": "x", "kind": "read", "bytes": 4, "unchanged": 0,
    }  # fmt: skip
    picture = flow_svg({"vertices": [vertex], "edges": [edge]}, "t")
    shown = ElementTree.fromstring(picture).iterfind(".//{*}text")
    lines = [item.text for item in shown if item.text and item.text[0] in "!…"]
    assert lines == [*(f"! rule{i} x" for i in range(7)), "… 13 more findings"]
