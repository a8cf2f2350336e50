"""One baseline file per case: read beside the other layout, written as configured, accepted, pruned and gated alike."""

from __future__ import annotations

import pytest

from pytest_gpuperf.cli import main
from pytest_gpuperf.commands.common import OK
from pytest_gpuperf.store.files import case_file
from tests.plugin.hooks.test_stale import MANY

PER_CASE = "[pytest]\naddopts = -p no:cacheprovider\ngpuperf_baseline_layout = case\n"


@pytest.fixture
def per_case(project):
    project.write("pytest.ini", PER_CASE)
    project.write("test_k.py", MANY.format(count=3))
    assert project.update().ret == 0
    return project


def files(project) -> list[str]:
    folder = project.path / "baselines"
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.yaml"))


def test_each_case_has_a_file_of_its_own(per_case):
    keys = [*(f"test_many[{n}]/scale" for n in range(3)), "test_other/scale"]
    assert files(per_case) == sorted(case_file("test_k.py", key) for key in keys)
    assert files(per_case)[0].startswith("test_k.cases/test_many-0-scale-")
    assert per_case.run().ret == 0


def test_only_the_file_of_the_changed_case_is_written(per_case):
    stamps = {path: path.stat().st_mtime_ns for path in (per_case.path / "baselines").rglob("*.yaml")}
    text = (per_case.path / "test_k.py").read_text()
    per_case.write(
        "test_k.py",
        text.replace(
            'def test_other(gpuperf):\n    gpuperf.kernel("scale.ptx")[1,',
            'def test_other(gpuperf):\n    gpuperf.kernel("scale.ptx")[2,',
        ),
    )
    assert per_case.run().ret == 1
    assert per_case.update().ret == 0
    assert [path.name[:10] for path, stamp in stamps.items() if path.stat().st_mtime_ns != stamp] == [
        "test_other"
    ]


def test_stale_files_are_pruned_and_orphans_found(per_case):
    per_case.write("test_k.py", MANY.format(count=2))
    assert per_case.run().ret == 1
    assert per_case.update().ret == 0
    assert len(files(per_case)) == 3
    (per_case.path / "test_k.py").rename(per_case.path / "test_z.py")
    per_case.run().stdout.fnmatch_lines(["*− baselines/test_k.cases/*"])
    assert per_case.update().ret == 0
    assert all(name.startswith("test_z.cases/") for name in files(per_case))


def test_the_layout_can_be_changed_both_ways_without_losing_a_case(per_case):
    first = {name: (per_case.path / "baselines" / name).read_bytes() for name in files(per_case)}
    per_case.write("pytest.ini", PER_CASE.replace("= case", "= module"))
    assert per_case.run().ret == 0
    per_case.update("-k", "other")
    assert files(per_case) == ["test_k.yaml"]
    assert per_case.run().ret == 0
    per_case.write("pytest.ini", PER_CASE)
    per_case.update()
    assert {name: (per_case.path / "baselines" / name).read_bytes() for name in files(per_case)} == first


def test_a_case_in_two_files_is_an_error_with_both_named(per_case):
    folder = per_case.path / "baselines" / "test_k.cases"
    twin = folder / "twin.yaml"
    twin.write_bytes(next(folder.glob("test_other*")).read_bytes())
    per_case.run().stdout.fnmatch_lines(
        ["*baselines/test_k.cases/twin.yaml: the case 'test_other/scale' is in another file too*"]
    )


def test_accept_and_check_follow_the_layout(per_case, monkeypatch, capsys):
    per_case.kernel("mov.f32 %f4, %f2;")
    per_case.report()
    monkeypatch.chdir(per_case.path)
    assert main(["check", "out/gpuperf.json", "--baselines", "out/candidates"]) == OK
    assert main(["accept", "out", "-k", "other"]) == OK
    per_case.run().assert_outcomes(passed=1, failed=3)


def test_an_unknown_layout_is_a_usage_error(project):
    assert project.run("-o", "gpuperf_baseline_layout=cases").ret == 4
