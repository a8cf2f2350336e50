"""Value findings of CUDA programs as they are: with lines, by symbols alone, and in the gate."""

from __future__ import annotations

import json

import pytest
import yaml

import gpuperf_engine as ge
from gpuperf_engine.device.events import CallSite
from gpuperf_engine.device.recorded import RecordedProgram
from pytest_gpuperf.authoring.call_sites import _parsed, named_after_sites
from pytest_gpuperf.cli import main
from pytest_gpuperf.core.metrics import ANALYSIS
from pytest_gpuperf.judge.compare import _findings
from pytest_gpuperf.report.message import unjudged
from tests.cudart.launches import needs_compiler
from tests.cudart.values import build, line_of
from tests.plugin.conftest import PLUGIN

TEST = """\
def test_app(gpuperf):
    assert gpuperf.run(["build/app", "build/k.fatbin"], values="objects").stdout == "42\\n"
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    for name in ("CI", "BUILD_NUMBER", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(pytester.path)
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider\ngpuperf_targets = h100-sxm\n")
    return pytester


@needs_compiler
def test_a_finding_appears_and_its_fix_removes_it(project):
    (project.path / "test_app.py").write_text(TEST)
    build(project.path / "build", "app", "-g", "-DFIXED")
    project.runpytest_inprocess(*PLUGIN, "-q", "--gpuperf-update").assert_outcomes(passed=1)
    path = project.path / "baselines" / "test_app.yaml"
    (case,) = yaml.safe_load(path.read_text())["cases"].values()
    assert "findings" not in case

    build(project.path / "build", "app", "-g")
    result = project.runpytest_inprocess(*PLUGIN, "-q", "--gpuperf", "--gpuperf-report=out")
    result.assert_outcomes(failed=1)
    copy = "cudaMemcpy(to, zeros, COUNT * 4, 1); /* zeros */"
    result.stdout.fnmatch_lines(
        [
            f"*new finding: dead-stores | cudaMalloc((void ??)&to, COUNT ? 4); in main | {copy.replace('*', '?')}*",
            "*the copy from the host writes 65,536 bytes of 'to' that the launch of 'halve' at values.c:*",
            "*to accept it: *dead-stores:to*",
        ]
    )
    # known to be floats, though the copy came before any kernel
    (case,) = json.loads((project.path / "out" / "gpuperf.json").read_text())["cases"]
    rows = {(row["rule"], row["object"]): row for row in case["detail"]["findings"]}
    heavy, dead = rows["heavy-type", "from"], rows["dead-stores", "to"]
    assert heavy["line"] == line_of("upload")
    assert (heavy["evidence"]["elements"], heavy["evidence"]["type"]) == (16384, "int8")
    assert (dead["waste"], dead["line"]) == (65536, line_of("zeros"))
    assert main(["flow", "out/gpuperf.json", "-o", "flow.txt"]) == 0
    vertices = [
        line.split(None, 1)[1]
        for line in (project.path / "flow.txt").read_text().splitlines()
        if line[3] == " "
    ]
    assert f"launch halve  values.c:{line_of('launch')}" in vertices
    assert f"copy from the host  values.c:{line_of('zeros')}" in vertices


@needs_compiler
def test_calls_without_lines_are_named_by_their_function_and_ordinal(project, capfd):
    """Calls of other functions before them leave their names as they are."""
    build(project.path / "build", "more", "-O1", "-DMORE")
    command = ["run", "--values=objects", "-o", "more.json", "--", "build/more", "build/k.fatbin"]
    assert main(command) == 0
    document = json.loads((project.path / "more.json").read_text())
    fail = {row["identity"]: row["path"] for row in document["findings"] if row["severity"] == "fail"}
    assert [*fail] == ["dead-stores | cudaMalloc #1 in main | cudaMemcpy #1 in main"]
    assert all(place.startswith("build/more+0x") for place in fail.values())
    assert any(vertex["label"] == "halve" for vertex in document["flow"]["vertices"])
    assert main(["flow", "more.json", "-o", "flow.txt"]) == 0
    assert "launch halve" in (project.path / "flow.txt").read_text()
    (project.path / "bad.json").write_text('{"schema_version": 1, "flow": {"vertices": []}}')
    assert main(["flow", "bad.json"]) == 2
    said = capfd.readouterr().err
    assert "gpuperf: 1 value finding, " in said and "bad.json: $.flow has no 'edges'" in said


def test_a_line_that_allocates_several_arrays_names_each():
    device = ge.Device(mapped=True, observe={"memory", "values"})
    two = CallSite("cudaMalloc(&x, 64); cudaMalloc((void **)&(p.y), 64);", "a.cu", 3)
    device.call_path = lambda: (two,)
    for _ in range(4):
        device.allocate(64)
    named = named_after_sites(RecordedProgram.of(device))
    assert [item.allocation.name for item in named.arrays] == ["x", "p.y", "x#2", "p.y#2"]


WRAPPERS = """\
template <typename T> T *alloc(int n)
{
    T *t;
    check(cudaMalloc((void **)&t, sizeof(T) * n));
    return t;
}
void reserve(float **pointer, int n) { cudaMalloc(pointer, 4 * n); }
int set_up(void)
{
    cudaMalloc(&kept, 64);
    return 0;
}
int main()
{
    float *flux = alloc<float>(n);
    state.old = alloc<float>(n);
    reserve(&mask, n);
    int code = set_up();
}
"""


@pytest.mark.parametrize(
    ("function", "line", "caller", "name"),
    [
        ("alloc", 4, 15, "flux"),
        ("memory::alloc<float>", 4, 16, "state.old"),
        ("reserve", 7, 17, "mask"),
        ("set_up", 10, 18, "kept"),
        ("", 4, 15, "t"),
    ],
)
def test_what_a_function_allocates_for_its_callers_has_their_names(tmp_path, function, line, caller, name):
    file = tmp_path / "a.cu"
    file.write_text(WRAPPERS)
    texts = WRAPPERS.splitlines()
    device = ge.Device(mapped=True, observe={"memory", "values"})
    path = (
        CallSite(texts[line - 1].strip(), str(file), line, function),
        CallSite(texts[caller - 1].strip(), str(file), caller, "main"),
    )
    device.call_path = lambda: path
    device.allocate(64)
    (array,) = named_after_sites(RecordedProgram.of(device)).arrays
    assert array.allocation.name == name


def test_lines_of_addresses_with_functions_that_were_inlined():
    rows = [
        "0x10",
        "inner",
        "/a/b.c:4 (discriminator 2)",
        "_ZN1n5outerEv",
        "/a/../c.cpp:9",
        "0x20",
        "??",
        "??:?",
    ]
    assert dict(_parsed(rows)) == {16: [("inner", "/a/b.c", 4), ("outer", "/c.cpp", 9)]}


@needs_compiler
def test_the_gate_without_pytest(project, capfd):
    """The same program with the finding accepted, which the baseline then lacks, and without."""
    ini = project.path / "tox.ini"
    before = f"{ini.read_text()}\ngpuperf_program_values = objects\n"
    ini.write_text(f"{before}gpuperf_accept = dead-*:t? = overwritten on purpose\n")
    build(project.path / "build", "app", "-g")
    command = ["run", "--gate", "--", "build/app", "build/k.fatbin"]
    assert main([*command[:2], "--update", *command[2:]]) == 0
    (path,) = (project.path / "baselines").rglob("*.yaml")
    (case,) = yaml.safe_load(path.read_text())["cases"].values()
    assert "findings" not in case
    ini.write_text(before)
    assert main(command) == 1
    assert "to accept it: gpuperf_accept = dead-stores:to = the reason" in capfd.readouterr().out


def test_findings_are_compared_where_as_much_was_observed():
    def verdicts(old: dict[str, object], new: dict[str, object]) -> list[tuple[str, str]]:
        rows = _findings(new, old, ANALYSIS, ANALYSIS, {"on_improvement": "fail"})  # type: ignore[arg-type]
        return [(row["verdict"], row["note"]) for row in rows]

    zero = {"values": "objects", "findings": ["single-zero | a"]}
    assert verdicts(zero, {"values": "objects"}) == [("improved", "single-zero | a")]
    assert verdicts({"values": "objects"}, zero) == [("regressed", "single-zero | a")]
    assert verdicts({"values": "objects"}, {}) == [("ok", "")]
    ((verdict, note),) = verdicts(zero, {})
    assert verdict == "unjudged"
    assert note == "objects were observed for the baseline, no values now (gpuperf_program_values)"
    row = {"verdict": verdict, "note": note, "metric": "findings", "old": 1, "new": 0}
    assert unjudged([{"rows": [row]}]) == f"findings of 1 kernel are not judged: {note}"
