"""The entries of ``changes.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

__all__ = ["CHANGES", "NO_OPS", "Change"]


@dataclass(frozen=True)
class Change:
    """One edit of one example; the fields are explained in ``changes.yaml``."""

    name: str
    source: str
    case: Any
    edits: tuple[tuple[str, str], ...]
    worse: Mapping[str, str] = field(default_factory=dict)
    header: str = ""
    same_results: bool = True
    only_time: str = ""
    unseen: str = ""
    verdict: str = "changed"


def _read(rows: Mapping[str, Any]) -> tuple[Change, ...]:
    return tuple(
        Change(name, **{**row, "edits": tuple((edit["old"], edit["new"]) for edit in row["edits"])})
        for name, row in rows.items()
    )


_FILE = yaml.safe_load(Path(__file__).with_name("changes.yaml").read_text(encoding="utf-8"))
CHANGES = _read(_FILE["changes"])
NO_OPS = _read(_FILE["no_ops"])
