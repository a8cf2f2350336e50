"""The repository around the project: which files are in it, and which the pull request changes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

__all__ = ["Repository"]

_SECONDS = 20


class Repository:
    """The git repository of the folder ``rootdir``; without git, or outside a repository, every file counts as part of it."""

    def __init__(self, rootdir: Path) -> None:
        self.rootdir = rootdir

    def path(self, path: str) -> str:
        """A path below the rootdir as GitHub knows it: below the folder into which the repository was checked out."""
        workspace = os.environ.get("GITHUB_WORKSPACE")
        if not workspace:
            return path
        try:
            return (self.rootdir / path).resolve().relative_to(Path(workspace).resolve()).as_posix()
        except ValueError:
            return path

    def holds(self, paths: Iterable[str]) -> set[str]:
        """Of these paths below the rootdir those that are in the repository."""
        wanted = sorted(set(paths))
        listed = (
            self._git("ls-files", "-z", "--", *(f":(literal){path}" for path in wanted)) if wanted else ""
        )
        return set(wanted) if listed is None else {path for path in listed.split("\0") if path}

    def changed(self) -> set[str]:
        """Paths below the rootdir that the pull request changes; none where that is not known. GitHub checks out the merge of the pull
        request into its base, so that the first parent is the base, if the checkout has it (``fetch-depth: 2``)."""
        bases = ["HEAD^1"] if self._git("rev-parse", "--quiet", "--verify", "HEAD^2") else []
        base = os.environ.get("GITHUB_BASE_REF", "")
        if base and not base.startswith("-"):
            bases.append(f"origin/{base}...HEAD")
        for revision in bases:
            listed = self._git("diff", "--name-only", "-z", "--relative", *revision.split(), "--")
            if listed is not None:
                return {path for path in listed.split("\0") if path}
        return set()

    def _git(self, *arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-c", "core.fsmonitor=false", "-C", str(self.rootdir), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None
