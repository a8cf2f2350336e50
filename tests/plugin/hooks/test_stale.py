"""Unused entries: found when that can be proved, never lost to a filter, a skip, a failure or a crash."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gpuperf.store.baseline import Baseline
from pytest_gpuperf.store.outcomes import ModuleState, TestState
from tests.plugin.conftest import HERE, PLUGIN

CONFTEST = """\
import sys
sys.path.insert(0, {here!r})
import pytest_gpuperf._engine
pytest_gpuperf._engine.NAME = "fake_engine"
"""

MANY = """\
import numpy as np
import pytest

@pytest.mark.parametrize("n", range({count}))
def test_many(gpuperf, n):
    gpuperf.kernel("scale.ptx")[1 + n, 32](gpuperf.zeros(4, np.float32), 1.0)

def test_other(gpuperf):
    gpuperf.kernel("scale.ptx")[1, 32](gpuperf.zeros(4, np.float32), 1.0)
"""


@pytest.fixture
def many(project):
    project.write("test_k.py", MANY.format(count=4))
    project.update()
    return project


def entries(project, name="test_k"):
    return [
        line.strip().rstrip(":") for line in project.baseline(name).splitlines() if line.startswith("  test_")
    ]


def test_removed_test_is_stale_and_pruned_by_an_update_only(many):
    assert len(entries(many)) == 5
    many.write("test_k.py", MANY.format(count=3))
    result = many.run()
    assert result.ret == 1
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["− stale: 1 baseline entries without a test", "*test_many[[]3[]]/scale*"])
    assert many.run("--gpuperf-stale=warn").ret == 0
    assert many.run("--gpuperf-stale=ignore").ret == 0
    assert many.run("-o", "gpuperf_stale=warn").ret == 0
    assert many.update("--gpuperf-no-prune").ret == 0
    assert len(entries(many)) == 5
    assert many.update().ret == 0
    assert len(entries(many)) == 4


FILTERS = [
    ("-k", "other"),
    ("-k", "many and 2"),
    ("-m", "nothing", "--gpuperf-min-cases=0"),
    ("test_k.py::test_other",),
    ("test_k.py::test_many[1]",),
    ("--deselect", "test_k.py::test_other"),
    ("-x", "--maxfail=1"),
    ("--collect-only",),
]


@pytest.mark.parametrize("arguments", FILTERS, ids=lambda a: " ".join(a))
def test_filters_with_update_lose_nothing(many, arguments):
    before = many.baseline()
    many.update(*arguments)
    assert many.baseline() == before


@pytest.mark.parametrize(
    "body",
    ["pytest.skip('not today')", "raise ValueError('no')", "pytest.xfail('known')"],
    ids=["skip", "failure", "xfail"],
)
def test_tests_that_did_not_finish_keep_their_entries(many, body):
    before = many.baseline()
    many.write("test_k.py", (many.path / "test_k.py").read_text() + f"    {body}\n")
    many.update()
    assert many.baseline() == before


def test_interrupted_run_writes_nothing(many):
    before = many.baseline()
    many.write("conftest.py", CONFTEST.format(here=str(HERE)))
    many.kernel("mov.f32 %f4, %f2;")
    many.write("test_k.py", (many.path / "test_k.py").read_text() + "    raise KeyboardInterrupt\n")
    result = many.pytester.runpytest_subprocess(*PLUGIN, "--gpuperf-update")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert many.baseline() == before


def test_stopping_at_the_first_failure_keeps_what_did_not_run(many):
    before = many.baseline()
    many.write(
        "test_k.py",
        MANY.format(count=2).replace("    gpuperf.kernel", "    assert n != 0\n    gpuperf.kernel", 1),
    )
    many.update("-x")
    assert many.baseline() == before


def test_last_failed_keeps_what_it_leaves_out(many):
    before = many.baseline()
    many.write("pytest.ini", "[pytest]\n")
    text = (many.path / "test_k.py").read_text()
    many.write(
        "test_k.py", text.replace("def test_other(gpuperf):", "def test_other(gpuperf):\n    assert 0")
    )
    many.run()
    many.write("test_k.py", text)
    result = many.update("--lf")
    result.assert_outcomes(passed=1)
    assert many.baseline() == before


def test_partial_update_changes_only_what_ran(many):
    many.kernel("mov.f32 %f4, %f2;")
    before = entries(many)
    many.update("-k", "other")
    assert entries(many) == before
    assert many.baseline().count("thread_instructions: 192") == 1


def test_staleness_not_judged_is_said(many):
    many.write("test_k.py", MANY.format(count=3))
    result = many.run("-k", "other")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["unused entries of test_k.py not judged: 3 of 4 tests were deselected"])


def test_renamed_test_is_recognised(many):
    many.write("test_k.py", MANY.format(count=4).replace("test_other", "test_another"))
    many.run().stdout.fnmatch_lines(["*renamed? test_other/scale → test_another/scale (same PTX)*"])


def test_orphaned_file(many):
    many.path.joinpath("test_k.py").rename(many.path / "test_z.py")
    result = many.run()
    result.stdout.fnmatch_lines(["*− baselines/test_k.yaml*"])
    many.update("test_z.py")
    assert (many.path / "baselines" / "test_k.yaml").exists()
    assert many.update().ret == 0
    assert not (many.path / "baselines" / "test_k.yaml").exists()
    assert many.run().ret == 0


def test_baselines_of_text_files_are_no_orphans(project):
    project.write(
        "test_doc.md",
        ">>> gpuperf = getfixture('gpuperf')\n>>> _ = gpuperf.kernel('scale.ptx')[1, 32](None, 1.0)\n",
    )
    assert project.update("--doctest-glob=*.md").ret == 0
    assert "test_doc.md/scale" in project.baseline("test_doc.md")
    assert project.run("--doctest-glob=*.md").ret == 0


def test_classes_and_module_markers(project):
    project.write(
        "test_k.py",
        "import numpy as np, pytest\npytestmark = pytest.mark.gpuperf(targets=['h100-sxm'])\n"
        "class TestA:\n    @pytest.mark.gpuperf(limits={'launches': 2})\n    def test_b(self, gpuperf):\n"
        "        gpuperf.kernel('scale.ptx')[1, 32](gpuperf.zeros(4, np.float32), 1.0)\n",
    )
    assert project.update().ret == 0
    assert "TestA::test_b/scale:" in project.baseline() and "h100-sxm:" in project.baseline()
    assert project.run().ret == 0


def test_target_no_longer_declared_is_stale_and_narrowing_is_not(project):
    text = (project.path / "test_k.py").read_text()
    project.write("test_k.py", text.replace('["h100-sxm"]', '["h100-sxm", "a100-sxm-80gb"]'))
    project.update()
    both = project.baseline()
    assert project.run("--gpuperf-targets=a100-sxm-80gb").ret == 0
    project.update("--gpuperf-targets=a100-sxm-80gb")
    assert project.baseline() == both
    project.write("test_k.py", text)
    result = project.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*test_scale/scale → a100-sxm-80gb"])
    project.update()
    assert "a100-sxm-80gb" not in project.baseline()


def test_new_target_of_a_known_case(project):
    project.update()
    project.write(
        "test_k.py",
        (project.path / "test_k.py").read_text().replace('["h100-sxm"]', '["h100-sxm", "a100-sxm-80gb"]'),
    )
    project.run().stdout.fnmatch_lines(["gpuperf: scale has no baseline for a100-sxm-80gb*"])
    assert project.run("--gpuperf-update-new").ret == 0
    assert project.run().ret == 0


@pytest.fixture
def parallel(project):
    pytest.importorskip("xdist")
    project.write("conftest.py", CONFTEST.format(here=str(HERE)))
    project.write("test_k.py", MANY.format(count=12))
    return project


def test_xdist_makes_the_same_report(parallel):
    """The same bytes of baselines and dead workers are in ``test_promises.py``."""
    assert parallel.update().ret == 0
    document = parallel.report()
    assert document["counts"] == {"ok": 13}
    assert parallel.report("-n2") == document


def test_xdist_with_a_wrong_marker(parallel):
    parallel.write(
        "test_k.py", "import pytest\n@pytest.mark.gpuperf(target=['h100-sxm'])\ndef test_a(gpuperf): pass\n"
    )
    result = parallel.run("-n1")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*argument 'target' is not known; did you mean 'targets'?*"])


DYNAMIC = """

def test_dynamic(request):
    gpuperf = request.getfixturevalue("gpuperf")
    gpuperf.kernel("scale.ptx")[1, 32](gpuperf.zeros(4, np.float32), 1.0)

def test_plain():
    pass
"""


def test_only_judges_staleness_but_keeps_what_it_passed_over(many):
    text = (many.path / "test_k.py").read_text()
    many.write("test_k.py", text + DYNAMIC)
    many.update()
    assert len(entries(many)) == 6
    many.write("test_k.py", MANY.format(count=3) + DYNAMIC)
    many.update("--gpuperf-only")
    assert "test_dynamic/scale" in entries(many)
    assert len(entries(many)) == 5


OUTCOMES = ["passed", "failed", "skipped", "xfailed", "body failed", "not run", "deselected", "removed"]


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=8), st.booleans())
def test_nothing_is_pruned_that_a_test_might_still_make(fates, narrowed):
    """Any mix of fates: what is pruned are entries of tests that are gone, and only when the whole module ran."""
    stored = Baseline(cases={f"test_{n}/k": {"kernel": "k"} for n in range(len(fates))})
    state = ModuleState(narrowed=narrowed)
    for number, fate in enumerate(fates):
        if fate == "removed":
            continue
        state.collected += 1
        if fate == "deselected":
            continue
        state.selected += 1
        if fate == "not run":
            continue
        outcome = "failed" if fate == "body failed" else fate
        made = [{"id": f"test_{number}/k"}] if fate in ("passed", "failed") else []
        state.tests[f"test_{number}"] = TestState("", True, outcome, finished=True, records=made)
    pruned = state.stale(stored)
    gone = [f"test_{number}/k" for number, fate in enumerate(fates) if fate == "removed"]
    complete = not narrowed and not {"deselected", "not run"} & set(fates)
    assert pruned == (gone if complete else [])
