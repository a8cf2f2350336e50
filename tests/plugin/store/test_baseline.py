"""The YAML store: what is written can be read by anybody, and what is read is trusted in nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import pytest_gpuperf
from pytest_gpuperf.core.metric import put
from pytest_gpuperf.core.metrics import ANALYSIS, METRICS
from pytest_gpuperf.store.baseline import (
    Baseline,
    BaselineError,
    ordered,
    parse_baseline,
    render_baseline,
    write_if_changed,
)
from pytest_gpuperf.store.yaml_text import scalar

SCHEMAS = Path(pytest_gpuperf.__file__).parent / "schemas"
SCHEMA = json.loads((SCHEMAS / "baseline-1.json").read_text(encoding="utf-8"))

CASE = {
    "kernel": "905712345678",
    "inputs": "5e201234",
    "launches": 1,
    "counts": {
        "thread_instructions": 13631488,
        "warp_instructions": 425984,
        "by_category": {"fma": 2},
        "opcodes": {"fma.rn.f32": 2},
    },
    "branches": {"executed": 4, "divergent": 1, "efficiency": 75.0},
    "memory": {
        "global_load_sectors": 1,
        "global_store_sectors": 2,
        "shared_conflicts": 0,
        "local_bytes": 0,
    },
    "resources": {"from": "estimate", "registers": 8, "shared_bytes": 0, "local_bytes": 0},
    "findings": ["redundant-values | out | y = gpuperf.zeros(n, np.float32)"],
    "targets": {"h100-sxm": {"machine": 3, "time_us": 18.42, "limiter": "dram", "occupancy": 0.75}},
}

for metric in METRICS:
    if metric.since > 1 and metric.kind != "set":
        for entry in CASE["targets"].values() if metric.per_target else [CASE]:
            put(entry, metric.path, 0)
CASE["targets"]["h100-sxm"]["machine_code"] |= {
    "architecture": "sm_90",
    "assembler": "ptxas 13.0.88",
    "code": "5e20",
}
CASE = ordered(CASE)


def read(text: str):
    return parse_baseline(text.encode(), "tests/test_a.py", "baselines/tests/test_a.yaml")


def write(**cases) -> str:
    return render_baseline(Baseline(cases=cases), "tests/test_a.py").decode()


def test_round_trip_and_schema():
    text = write(**{"test_b/k": CASE, "test_a[1-x]/k": CASE})
    assert list(read(text).cases) == ["test_a[1-x]/k", "test_b/k"]
    assert read(text).cases["test_b/k"] == CASE
    jsonschema.validate(yaml.safe_load(text), SCHEMA)
    assert "- redundant-values | out | y = gpuperf.zeros(n, np.float32)" in text
    assert "{" not in text.replace("[", "") and "time_us: 18.42" in text


def test_bytes_depend_on_the_results_alone():
    shuffled = {key: CASE[key] for key in reversed(CASE)}
    assert write(**{"test_b/k": CASE, "test_a/k": CASE}) == write(
        **{"test_a/k": shuffled, "test_b/k": shuffled}
    )


@pytest.mark.parametrize(
    "key",
    [
        "on",
        "1e3",
        "12:30",
        "null",
        "2026-11-21",
        "a: b",
        "a #b",
        "é\x1b[31m",
        "\U0001f600",
        "x" * 1500,
        "- a",
        "'",
        '"',
        "a\nb",
        "",
        "0x1f",
        "1_000",
        "~",
        "=",
    ],
)
def test_awkward_names_survive(key):
    text = write(**{f"{key}/k": CASE, key: CASE})
    assert set(read(text).cases) == {f"{key}/k", key}
    assert all(char.isprintable() or char == "\n" for char in text)
    jsonschema.validate(yaml.safe_load(text), SCHEMA)


@settings(deadline=None, derandomize=True, database=None)
@given(st.text())
def test_any_text_is_read_as_the_same_text(text):
    assert yaml.safe_load(f"- {scalar(text)}\n") == [text]


@settings(deadline=None, derandomize=True, database=None)
@given(st.floats(min_value=0, max_value=1e300))
def test_any_number_is_read_as_the_same_number(value):
    loaded = yaml.safe_load(f"- {scalar(value)}\n")[0]
    assert isinstance(loaded, float) and loaded == value


TEXT = write(**{"test_a/k": CASE})

CONFLICT = "<<<<<<< HEAD\n    launches: 1\n=======\n    launches: 2\n>>>>>>> topic\n"
ALIAS = TEXT.replace("    branches:\n", "    branches: &b\n") + "  test_z/k:\n    branches: *b\n"
DAMAGE = {
    "conflict": (TEXT.replace("    launches: 1\n", CONFLICT), r":12: conflict markers of an unfinished merge"),
    "duplicate-case": (TEXT + TEXT[TEXT.index("  test_a/k:") :], r":6\d: 'test_a/k' is given twice"),
    "duplicate-key": (TEXT.replace("    launches: 1\n", "    launches: 1\n    launches: 2\n"), r":13: 'launches' is given twice"),
    "newer": (
        TEXT.replace("schema: 1", "schema: 2"),
        r":2: schema 2 is not known: pytest-gpuperf 0\.1\.0 reads schema 1\n.*: upgrade, pip install --upgrade pytest-gpuperf$",
    ),
    "newer-release": (
        TEXT.replace("schema: 1", "schema: 2\nrelease: '0.4'"),
        r":2: schema 2 is not known: .* reads schema 1\n.*: upgrade, pip install 'pytest-gpuperf>=0\.4'$",
    ),
    "newer-harm": (TEXT.replace("schema: 1", "schema: 2\nrelease: '0; rm -r x'"), r"pip install --upgrade pytest-gpuperf$"),
    "older": (TEXT.replace("schema: 1", "schema: 0"), r":2: schema 0 is not known: .* reads schema 1\n  rewrite it"),
    "no-schema": (TEXT.replace("schema: 1\n", ""), r"no 'schema': this is not a baseline"),
    "text-for-number": (TEXT.replace("launches: 1", "launches: 1e-3"), r":12: 'launches' must be a whole number, found '1e-3'"),
    "bool-for-number": (TEXT.replace("launches: 1", "launches: on"), r":12: 'launches' must be a whole number"),
    "negative": (TEXT.replace("executed: 4", "executed: -4"), r"'executed' must be a whole number"),
    "not-a-number": (TEXT.replace("time_us: 18.42", "time_us: .nan"), r"'time_us' must be a number"),
    "list-for-mapping": (TEXT.replace("    branches:\n", "    branches: [1]\n    x:\n"), r"'branches' must be a mapping|key 'x'"),
    "unknown-key": (
        TEXT + "speed: 2\n",
        r":\d+: key 'speed' is not known\n.*upgrade, pip install --upgrade pytest-gpuperf, else rewrite it",
    ),
    "cut-off": (
        TEXT[: TEXT.index("      global_atomic_serializations:")],
        r"'memory' has no 'global_atomic_serializations': the file was truncated",
    ),
    "cut-off-section": (TEXT.replace("    resources:", "    sources:"), r"'test_a/k' has no 'resources': the file was truncated"),
    "alias": (ALIAS, r"aliases \(\*name\) are not used"),
    "broken": ("schema: 1\ncases: {a: [\n", r":3: not YAML: "),
    "tag": (TEXT.replace("launches: 1", "launches: !!python/object:os.system 1"), r":12: 'launches' must be a whole number"),
    "list": ("- 1\n", r":1: the file must be a mapping"),
    "deep": ("schema: 1\ncases: " + "[" * 5000, r"not YAML|nested too deeply|must be a mapping"),
    "control": ("schema: \x01\n", r"not YAML: "),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_an_error_with_line_and_remedy(name):
    text, message = DAMAGE[name]
    with pytest.raises(BaselineError) as caught:
        read(text)
    said = str(caught.value)
    assert said.startswith("baselines/tests/test_a.yaml")
    assert re.search(message, said), said
    assert "--gpuperf-update" in said or "upgrade" in said
    assert said.count("\n") <= 2


def test_not_utf8():
    with pytest.raises(BaselineError, match="not UTF-8 text"):
        parse_baseline(b"schema: 1\n\xff", "t.py", "t.yaml")


@pytest.mark.parametrize(
    "text", ["", "# only a comment\n", "schema: 1\n", "schema: 1\ncases:\n", "schema: 1\ncases: {}\n"]
)
def test_empty_files_hold_no_case(text):
    found = read(text)
    assert found is None or found.cases == {}


def test_line_endings_of_other_systems_are_read():
    assert read(TEXT.replace("\n", "\r\n")).cases["test_a/k"] == CASE


def test_writing_keeps_permissions_and_leaves_nothing_behind(tmp_path):
    path = tmp_path / "b.yaml"
    assert write_if_changed(path, b"one")
    path.chmod(0o640)
    assert not write_if_changed(path, b"one")
    assert write_if_changed(path, b"two")
    assert path.stat().st_mode & 0o777 == 0o640
    assert [entry.name for entry in tmp_path.iterdir()] == ["b.yaml"]


def test_older_revisions_stay_with_the_cases_that_were_not_measured_anew(monkeypatch):
    older = TEXT.replace("  counts: 1\n", "  counts: 0\n", 1)
    kept = read(older)
    kept.cases["test_new/k"] = {**CASE, "analysis": dict(ANALYSIS)}
    text = render_baseline(kept, "tests/test_a.py").decode()
    again = read(text)
    assert again.analysis_of("test_a/k")["counts"] == 0
    assert again.analysis_of("test_new/k")["counts"] == 1
    assert text.count("analysis:") == 2


def test_conflict_markers_fail_the_tests_and_an_update_of_the_whole_module_resolves_them(project):
    project.update()
    path = project.path / "baselines" / "test_k.yaml"
    good = path.read_text()
    bad = good.replace(
        "    launches: 1\n", "<<<<<<< HEAD\n    launches: 1\n=======\n    launches: 2\n>>>>>>> topic\n"
    )
    path.write_text(bad)
    result = project.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "*baselines/test_k.yaml:12: conflict markers of an unfinished merge*",
            "*pytest --gpuperf --gpuperf-update test_k.py",
        ]
    )
    assert project.update("test_k.py::test_scale").ret == 1
    assert path.read_text() == bad
    assert project.update("test_k.py").ret == 0
    assert path.read_text() == good


def test_baseline_directory_of_nested_tests(project):
    project.write("tests/unit/test_n.py", (project.path / "test_k.py").read_text())
    assert project.update("-o", "gpuperf_baseline_dir=perf/stored").ret == 0
    assert (project.path / "perf/stored/tests/unit/test_n.yaml").exists()
    assert project.run("-o", "gpuperf_baseline_dir=perf/stored").ret == 0


def test_unreadable_and_unwritable_files_are_messages(project):
    (project.path / "baselines" / "test_k.yaml").mkdir(parents=True)
    result = project.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*baselines/test_k.yaml: a directory, no regular file*"])
    result = project.update()
    assert result.ret == 1
    assert "INTERNALERROR" not in result.stdout.str()


def test_a_read_only_baseline_is_not_replaced(project):
    project.update()
    path = project.path / "baselines" / "test_k.yaml"
    before = path.read_bytes()
    path.chmod(0o444)
    assert project.update().ret == 0  # nothing to write
    project.kernel("mov.f32 %f4, %f2;")
    result = project.update()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["baselines/test_k.yaml: not written: the file is read-only"])
    result.stdout.no_fnmatch_line("wrote *")
    result.stdout.no_fnmatch_line("accepted *")
    assert path.read_bytes() == before and path.stat().st_mode & 0o777 == 0o444
    assert list(path.parent.iterdir()) == [path]


def test_a_baseline_that_is_a_link_stays_one(project):
    project.update()
    path = project.path / "baselines" / "test_k.yaml"
    elsewhere = path.rename(project.path / "kept.yaml")
    path.symlink_to(elsewhere)
    project.kernel("mov.f32 %f4, %f2;")
    assert project.update().ret == 0
    assert path.is_symlink() and "thread_instructions: 384" in elsewhere.read_text()
