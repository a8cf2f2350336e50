"""The gate on changes of the kinds that reviews let through: each is red with the metric that it is about, and its line."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import shared_folder

from .changes import CHANGES, NO_OPS, Change
from .compiled import EXAMPLES, changed_text, compile_change, packed, source_digest
from .project import Project
from .rewrites import REWRITES

TARGETS = ("a100-sxm-80gb", "h100-sxm", "rtx-4090")
#: what kernels with clusters can run on
WITH_CLUSTERS = ("h100-sxm",)
EDITS = {change.name: change for change in (*CHANGES, *NO_OPS)}

Records = Mapping[str, list[dict[str, Any]]]


def _files(source: str, ptx: str, changed: Mapping[str, str]) -> dict[str, str]:
    """The source, the headers beside it and the PTX, by name."""
    folder = (EXAMPLES / source).parent
    texts = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.cuh")}
    texts[Path(source).name] = (EXAMPLES / source).read_text(encoding="utf-8")
    texts.update((Path(file).name, text) for file, text in changed.items())
    return {**texts, Path(source).with_suffix(".ptx").name: ptx}


def _original(source: str) -> str:
    return (EXAMPLES / source).with_suffix(".ptx").read_text(encoding="utf-8")


def _targets(name: str, source: str) -> tuple[str, ...]:
    """What the counts alone show needs none, and what shows in nothing no more than one."""
    if name in EDITS and EDITS[name].worse:
        return ()
    if "cluster" in source:
        return WITH_CLUSTERS
    return TARGETS if name in EDITS and EDITS[name].only_time else TARGETS[:1]


def _originals(
    sources: Mapping[str, str], runs: Mapping[str, Any], targets: Mapping[str, tuple[str, ...]]
) -> dict[str, str]:
    """The change by whose name the original of each is measured: one with the same kernel and program, and the most targets."""
    groups: dict[str, list[str]] = {}
    for name in runs:
        groups.setdefault(f"{sources[name]} {runs[name]}", []).append(name)
    return {
        name: max(groups[f"{sources[name]} {runs[name]}"], key=lambda other: len(targets[other]))
        for name in runs
    }


class Outcome:
    """What the gate said of each change, and what the kernels computed before and after it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        runs, sources, after = {}, {}, {}
        for name, change in EDITS.items():
            runs[name], sources[name] = change.case, change.source
            after[name] = _files(change.source, packed()[name]["ptx"], changed_text(change))
        for name, (stem, case, rewrite) in REWRITES.items():
            runs[name], sources[name] = case, f"{stem}.cu"
            text = _original(f"{stem}.cu")
            assert rewrite(text) != text, name
            after[name] = _files(f"{stem}.cu", rewrite(text), {})
        files = {name: Path(source).with_suffix(".ptx").name for name, source in sources.items()}
        targets = {name: _targets(name, source) for name, source in sources.items()}
        self.originals = _originals(sources, runs, targets)
        before = {
            name: _files(sources[name], _original(sources[name]), {})
            for name in sorted(set(self.originals.values()))
        }
        kept = folder / "records.json"
        if not kept.exists():
            project = Project(folder, runs, files, targets)
            project.update(before, self.originals)
            kept.write_text(json.dumps(project.judge(after)), encoding="utf-8")
        self.records: Records = json.loads(kept.read_text(encoding="utf-8"))

    def rows(self, name: str) -> list[dict[str, Any]]:
        return [row for record in self.records[name] for row in record["rows"]]

    def red(self, name: str) -> dict[str, str]:
        """What got worse of what is counted: metric and where it is said to have."""
        worse = (row for row in self.rows(name) if row["verdict"] == "regressed" and not row["target"])
        return {row["metric"]: row.get("where", "") for row in worse}

    def results(self, name: str) -> tuple[list[Any], list[Any]]:
        """The arrays before and after the change."""
        return self._arrays("before", self.originals[name]), self._arrays("after", name)

    def _arrays(self, when: str, name: str) -> list[Any]:
        with np.load(self.folder / when / f"{name}.npz") as arrays:
            return [arrays[key] for key in arrays]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    with shared_folder(tmp_path_factory, "changes") as folder:
        return Outcome(folder)


def _lines_of(change: Change, wanted: str) -> set[str]:
    """``file:line`` of the changed source's lines that hold a text."""
    ((file, text),) = changed_text(change).items()
    files = {
        Path(file).name: text,
        Path(change.source).name: (EXAMPLES / change.source).read_text(encoding="utf-8"),
    }
    if not change.header:
        files = {Path(file).name: text}
    return {
        f"{name}:{number}"
        for name, content in files.items()
        for number, line in enumerate(content.splitlines(), 1)
        if wanted in line
    }


def test_every_change_is_red_with_its_metric_and_its_line(outcome: Outcome) -> None:
    """The counts alone say so, whatever targets are declared."""
    wrong = []
    for change in CHANGES:
        red = outcome.red(change.name)
        for metric, line in change.worse.items():
            if metric not in red:
                wrong.append(f"{change.name}: {metric} is not worse; worse are {red}")
            elif line and not any(
                re.search(rf"{re.escape(place)}\b", red[metric]) for place in _lines_of(change, line)
            ):
                wrong.append(f"{change.name}: {metric} at {red[metric]}, not at {_lines_of(change, line)}")
    assert not wrong, "\n".join(wrong)


def test_changes_compute_what_the_kernels_did(outcome: Outcome) -> None:
    """A change that breaks a kernel would be another test's matter."""
    for name in [change.name for change in EDITS.values() if change.same_results] + list(REWRITES):
        for before, after in zip(*outcome.results(name), strict=True):
            if before.dtype.names or np.issubdtype(before.dtype, np.integer):
                np.testing.assert_array_equal(after, before, err_msg=name)
            else:
                np.testing.assert_allclose(after, before, rtol=2e-3, atol=1e-5, err_msg=name)


def test_what_no_count_shows_the_predicted_time_does(outcome: Outcome) -> None:
    for change in (change for change in CHANGES if change.only_time):
        slower = {
            row["target"] for row in outcome.rows(change.name) if row["metric"] == "time_us" and row["fails"]
        }
        assert slower == set(TARGETS), (change.name, slower)


def test_what_is_not_red_is_at_least_shown(outcome: Outcome) -> None:
    """And has a reason."""
    for change in (change for change in CHANGES if change.unseen):
        (record,) = outcome.records[change.name]
        assert record["verdict"] == change.verdict, change.name
        assert record["because"], change.name
    assert all(bool(change.worse) + bool(change.only_time) + bool(change.unseen) == 1 for change in CHANGES)


def test_edits_that_change_nothing_are_green(outcome: Outcome) -> None:
    for name in [*(change.name for change in NO_OPS), *REWRITES]:
        assert not any(record["fails"] for record in outcome.records[name]), (name, outcome.rows(name))


def test_the_packed_programs_are_those_of_the_edits() -> None:
    """Where it fails: ``python -m tests.regressions.compiled``."""
    assert {name: row["source"] for name, row in packed().items()} == {
        name: source_digest(change) for name, change in EDITS.items()
    }


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("change", [CHANGES[0], CHANGES[-1]], ids=lambda change: change.name)
def test_compiling_gives_what_is_packed(change: Change) -> None:
    made, known = compile_change(change), packed()[change.name]["ptx"]
    if _compiler(made) != _compiler(known):
        pytest.skip(f"packed with another nvcc: {_compiler(known)}")
    assert made == known


def _compiler(text: str) -> str:
    return next(line for line in text.splitlines() if "Cuda compilation tools" in line)
