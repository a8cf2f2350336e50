"""Which files hold the baseline of a test module: one for all its cases, or one for each.

Both are read whatever is configured; what is written is in the configured layout, so that changing it moves the cases with the next
update.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath

from ..core.fingerprint import digest_parts
from ..core.program_cases import update_command
from .baseline import Baseline, BaselineError, baseline_path, check_place, parse_baseline, render_baseline

__all__ = [
    "CASES",
    "LAYOUTS",
    "case_file",
    "digest_of",
    "read_files",
    "read_module",
    "render_files",
    "shown_file",
]

LAYOUTS = ("module", "case")
CASES = ".cases"
"""``tests/test_a.py`` → ``baselines/tests/test_a.cases/``, one file per case in it."""

_OTHER = re.compile(r"[^A-Za-z0-9_.=-]+")
_NAME_LENGTH = 80


def _folder(directory: Path, module: str) -> Path:
    return baseline_path(directory, module).with_suffix(CASES)


def case_file(module: str, key: str) -> str:
    """The file of one case, relative to the folder of all baselines: readable, and by its digest never that of another case."""
    name = _OTHER.sub("-", key).strip("-.")[:_NAME_LENGTH]
    folder = _folder(Path(), module).as_posix()
    return f"{folder}/{name}-{digest_parts([key], 8)}.yaml"


def shown_file(module: str, key: str, layout: str) -> str:
    """The file that holds a case in a layout, relative to the folder of all baselines."""
    return case_file(module, key) if layout == "case" else baseline_path(Path(), module).as_posix()


def read_files(directory: Path, module: str, root: Path) -> dict[str, bytes]:
    """The bytes of all files of a module, by path relative to ``directory``. Raises ``OSError``, also for links that lead out of
    ``root`` and for what is not a regular file."""
    whole, folder = baseline_path(directory, module), _folder(directory, module)
    paths = [whole] if whole.exists() else []
    paths += sorted(folder.glob("*.yaml")) if folder.is_dir() else []
    return {path.relative_to(directory).as_posix(): check_place(path, root).read_bytes() for path in paths}


@lru_cache(maxsize=4096)  # a run needs each twice: to judge, and to plan what an update would write
def _parsed(data: bytes, module: str, shown: str) -> Baseline | None:
    return parse_baseline(data, module, shown)


def read_module(files: Mapping[str, bytes], module: str, shown: str) -> Baseline | None:
    """The cases in the files of a module, ``None`` without any; ``shown`` is their folder in messages. Raises ``BaselineError``."""
    baseline: Baseline | None = None
    for name, data in sorted(files.items()):
        path = (PurePosixPath(shown) / name).as_posix()
        part = _parsed(data, module, path)
        if part is None:
            continue
        part = Baseline(dict(part.analysis), dict(part.cases), part.notes)
        if baseline is None:
            baseline = part
            continue
        baseline.notes += part.notes
        for key, case in part.cases.items():
            if key in baseline.cases:
                raise BaselineError(
                    f"{path}: the case {key!r} is in another file too\n"
                    f"  remove one and rewrite it: {update_command(module)}"
                )
            baseline.cases[key] = {**case, "analysis": dict(part.analysis_of(key))}
    return baseline


def render_files(baseline: Baseline, module: str, layout: str) -> dict[str, bytes]:
    """The bytes of the files, by path relative to the folder of all baselines; none for a baseline without cases."""
    if layout == "case":
        return {
            case_file(module, key): render_baseline(Baseline(baseline.analysis, {key: case}), module)
            for key, case in baseline.cases.items()
        }
    name = baseline_path(Path(), module).as_posix()
    return {name: render_baseline(baseline, module)} if baseline.cases else {}


def digest_of(files: Mapping[str, bytes]) -> str:
    """Hexadecimal digits that stand for the files; empty for none."""
    if not files:
        return ""
    digest = hashlib.sha256()
    for name, data in sorted(files.items()):
        digest.update(hashlib.sha256(name.encode() + b"\0" + data).digest())
    return digest.hexdigest()
