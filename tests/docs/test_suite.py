"""``make help`` lists every target, ``tests/README.md`` every folder and variable of the tests, ``tests/fast.py`` what is there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from tests.fast import LEFT_OUT

TESTS = ROOT / "tests"
README = (TESTS / "README.md").read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_help_lists_every_target_and_says_what_it_is_for() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.+)$", text, re.MULTILINE)
    targets = re.findall(r"^([a-z][\w-]*):", text, re.MULTILINE)
    assert phony.split() == targets
    command = ["make", "--no-print-directory", "help"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    listed = [line.split(None, 1) for line in said.stdout.splitlines()]
    assert [name for name, _ in listed] == targets


def test_the_readme_lists_every_folder_of_tests() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", README, re.MULTILINE)
    there = {path.parent.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")}
    assert sorted(there) == sorted(name for name in listed if not name.startswith("GPUPERF_"))


def packages(folder: Path) -> set[str]:
    return {path.parent.name for path in folder.glob("*/__init__.py")}


#: they hold no behaviour: the tests of what fills them read them
RECORDS = {"results"}


def test_there_is_a_folder_of_tests_for_each_package() -> None:
    there = {path.name for path in TESTS.iterdir()}
    assert packages(ROOT / "engine" / "gpuperf_engine") - RECORDS <= there
    of_the_plugin = {path.parent.name for path in (TESTS / "plugin").glob("*/test_*.py")}
    assert of_the_plugin <= packages(ROOT / "pytest_gpuperf")


def test_the_readme_lists_every_variable_of_the_tests() -> None:
    read = {
        name
        for path in TESTS.rglob("*.py")
        for name in re.findall(r'environ\.get\("(GPUPERF_\w+)"', path.read_text(encoding="utf-8"))
    }
    assert read == set(re.findall(r"`(GPUPERF_\w+)[=`]", README))


def test_what_the_fast_run_leaves_out_is_there() -> None:
    """An entry for a file or a test that was renamed would leave out nothing."""
    names = [name for found in LEFT_OUT.values() for name in found]
    assert len(names) == len(set(names))
    for file, _, test in (name.partition("::") for name in names):
        assert (ROOT / file).exists(), file
        assert not test or f"def {test}" in (ROOT / file).read_text(encoding="utf-8"), (file, test)


def test_the_fast_run_leaves_them_out(pytester: pytest.Pytester) -> None:
    """A file is not imported, and of another file only the named tests are left out."""
    pytester.makepyfile(
        test_slow="raise RuntimeError",
        test_both="def test_a(): pass\ndef test_ab(): pass\ndef test_b(): pass",
    )
    conftest = (TESTS / "conftest.py").read_text(encoding="utf-8")
    conftest = conftest.replace("parents[1]", "parent").replace("from tests.fast import LEFT_OUT", LISTED)
    pytester.makeconftest(conftest)
    pytester.runpytest_inprocess("--fast").assert_outcomes(passed=1, deselected=2)
    pytester.runpytest_inprocess().assert_outcomes(errors=1)


def test_a_home_of_its_own_brings_no_cache_of_its_own(pytester: pytest.Pytester) -> None:
    """Else each process that such a test starts would compile the runtime anew."""
    assert Path.home().is_relative_to(pytester.path.parent)
    code = "from gpuperf_engine.jit import cache; print(cache.folder())"
    (folder,) = pytester.run(sys.executable, "-c", code).outlines
    assert not Path(folder).is_relative_to(Path.home())


LISTED = 'LEFT_OUT = {"slow": ("test_slow.py", "test_both.py::test_a")}'
