"""Each recipe of ``docs/adding.md`` is all that an addition takes: its diff is applied to a copy, and what follows is run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, Block, blocks_of

PAGE = "docs/adding.md"
#: how many files each recipe may touch, by the page's own table
TOUCHED = {
    "isa/rows": 1,
    "core": 1,
    "patterns": 1,
    "sources": 1,
    "machines": 1,
}


#: runs what belongs to the recipes one after the other, each in a folder of its own, and says how each went
ALL = """
import os
for number, text in enumerate({texts!r}):
    os.mkdir(str(number))
    os.chdir(str(number))
    try:
        exec(compile(text, "recipe.py", "exec"), {{"__name__": "__main__"}})
        print("passed")
    except BaseException:
        print("failed")
    os.chdir("..")
"""


def recipes() -> Iterator[tuple[Block, Block]]:
    """A diff and what is run after it."""
    blocks = blocks_of(PAGE)
    assert [block.language for block in blocks] == ["diff", "python"] * (len(blocks) // 2)
    yield from zip(blocks[::2], blocks[1::2])


def touched(diff: Block) -> set[str]:
    return set(re.findall(r"^\+\+\+ b/(\S+)$", diff.text, re.MULTILINE))


def test_every_recipe_touches_what_the_page_says() -> None:
    folders = [Path(path).parent.as_posix() for diff, _ in recipes() for path in touched(diff)]
    assert len(folders) == len(TOUCHED)
    for folder, count in TOUCHED.items():
        assert sum(path.endswith(folder) for path in folders) == count, folder


@pytest.mark.skipif(shutil.which("git") is None, reason="git applies the diffs")
@pytest.mark.parametrize(("diff", "code"), [*recipes()], ids=lambda block: str(block))
def test_recipe(diff: Block, code: Block, tmp_path: Path) -> None:
    copy, project = tmp_path / "copy", tmp_path / "project"
    project.mkdir()
    for package in ("engine/gpuperf_engine", "pytest_gpuperf", "templates"):
        # with what Python has compiled of it: what the diff changes is compiled anew, as its size is another
        shutil.copytree(ROOT / package, copy / package)
    apply(diff, copy)
    (project / "recipe.py").write_text(code.text, encoding="utf-8")
    done = run(project, copy)
    assert done.returncode == 0, f"{code}: {done.stdout}{done.stderr}"


def test_without_the_diffs_nothing_of_it_is_there(tmp_path: Path) -> None:
    """What is run does not pass by itself."""
    codes = [code for _, code in recipes()]
    (tmp_path / "recipe.py").write_text(ALL.format(texts=[code.text for code in codes]), encoding="utf-8")
    done = run(tmp_path, ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split()[-len(codes) :] == ["failed"] * len(codes), done.stdout


def apply(diff: Block, copy: Path) -> None:
    git = ["git", "apply", "--recount", "--whitespace=error", "-"]
    done = subprocess.run(git, cwd=copy, input=diff.text, text=True, capture_output=True, check=False)
    assert done.returncode == 0, f"{diff} does not fit the code any more: {done.stderr}"


def run(project: Path, root: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "PYTEST_"))
    }
    environment["PYTHONPATH"] = os.pathsep.join([str(root / "engine"), str(root)])
    return subprocess.run(
        [sys.executable, "recipe.py"],
        cwd=project,
        env=environment,
        text=True,
        capture_output=True,
        check=False,
    )
