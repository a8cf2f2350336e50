"""Compares the JSON reports of the examples at two commits: a change that only moves code must not change them.

``python -m benchmarks.compare_commits BASE [HEAD]`` checks both commits out into a temporary folder and runs ``pytest --gpuperf
examples`` in each, with the commit's own packages, an empty cache and the current environment. The documents must be the same but for
the fields in ``IGNORED``. What follows ``--`` are arguments for pytest instead of ``examples``. Exit codes: 0 the same, 1 different, 2
not run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

__all__ = ["IGNORED", "differences", "main"]

#: patterns of paths in the document → why they may differ
IGNORED = {
    r"cases\[.*\]\.analysis(\..*)?": "milliseconds that the analysis took",
}
#: what an object of a list is known by
_KEYS = ("nodeid", "id", "module", "metric", "target")
_SHOWN = 50


class NotRun(Exception):
    """A commit could not be run."""


def _values(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a document, each with its path; objects of lists are known by their keys, so that one more moves no others."""
    if isinstance(value, dict):
        if not value:
            yield path, {}
        for key, item in value.items():
            yield from _values(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        seen: dict[str, int] = {}
        for item in value:
            name = " ".join(str(item[key]) for key in _KEYS if item.get(key))
            seen[name] = seen.get(name, 0) + 1
            yield from _values(
                item, f"{path}[{name}]" if seen[name] == 1 else f"{path}[{name} #{seen[name]}]"
            )
    else:
        yield path, value


def differences(
    old: object, new: object, ignored: Sequence[str] = tuple(IGNORED)
) -> list[tuple[str, object, object]]:
    """Paths at which two documents differ, with both values, ``None`` where one has none; the order of keys does not count."""
    before, after = dict(_values(old)), dict(_values(new))
    skip = re.compile("|".join(ignored) or r"(?!)")
    return [
        (path, before.get(path), after.get(path))
        for path in dict.fromkeys((*before, *after))
        if not skip.fullmatch(path)
        and (path not in before or path not in after or before[path] != after[path])
    ]


def _run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def _git(*arguments: str, cwd: Path) -> str:
    done = _run("git", *arguments, cwd=cwd)
    if done.returncode:
        raise NotRun(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def document(tree: Path, work: Path, arguments: Sequence[str]) -> Any:
    """The JSON report of a source tree; ``work`` is an empty folder. Raises ``NotRun``."""
    environment = {
        "PYTHONPATH": os.pathsep.join((str(tree), str(tree / "engine"))),
        "PYTHONDONTWRITEBYTECODE": "1",
        "GPUPERF_CACHE": str(work / "cache"),
    }
    packages = (
        "import pytest_gpuperf, gpuperf_engine; print(pytest_gpuperf.__file__, gpuperf_engine.__file__)"
    )
    done = _run(sys.executable, "-c", packages, cwd=tree, **environment)
    if done.returncode or any(not Path(file).is_relative_to(tree) for file in done.stdout.split()):
        raise NotRun(f"{tree} does not run its own packages: {done.stdout}{done.stderr}")
    report = work / "report"
    options = ("-q", "-p", "no:cacheprovider", "--gpuperf", f"--gpuperf-report={report}")
    done = _run(sys.executable, "-m", "pytest", *options, *arguments, cwd=tree, **environment)
    if done.returncode not in (0, 1):
        raise NotRun(f"pytest ended with {done.returncode} in {tree}:\n{done.stdout}{done.stderr}")
    return json.loads((report / "gpuperf.json").read_text(encoding="utf-8"))


def _documents(root: Path, commits: Sequence[str], arguments: Sequence[str]) -> list[Any]:
    """The reports of commits of the repository at ``root``."""
    documents = []
    with tempfile.TemporaryDirectory(prefix="gpuperf-commits-") as folder:
        for number, commit in enumerate(commits):
            work = Path(folder).resolve() / str(number)
            work.mkdir()
            _git("worktree", "add", "--detach", str(work / "tree"), commit, cwd=root)
            try:
                documents.append(document(work / "tree", work, arguments))
            finally:
                _git("worktree", "remove", "--force", str(work / "tree"), cwd=root)
    return documents


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    """See the module; ``root`` is the repository, by default this one."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    end = given.index("--") if "--" in given else len(given)
    own, pytest_arguments = given[:end], given[end + 1 :] or ["examples"]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare_commits", description=__doc__)
    parser.add_argument("base")
    parser.add_argument("head", nargs="?", default="HEAD")
    parser.add_argument(
        "--ignore", action="append", default=[], metavar="REGEX", help="paths that may differ as well"
    )
    options = parser.parse_args(own)
    try:
        old, new = _documents(
            root or Path(__file__).resolve().parent.parent, (options.base, options.head), pytest_arguments
        )
    except NotRun as error:
        print(error, file=sys.stderr)
        return 2
    changed = differences(old, new, (*IGNORED, *options.ignore))
    for path, before, after in changed[:_SHOWN]:
        print(f"{path}: {before!r:.200} → {after!r:.200}")
    if len(changed) > _SHOWN:
        print(f"… and {len(changed) - _SHOWN:,} more")
    same = f"{len(changed):,} differences from" if changed else "the same as at"
    print(f"{len(new['cases'])} kernels at {options.head}: {same} {options.base}")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
