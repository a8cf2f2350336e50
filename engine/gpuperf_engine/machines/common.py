"""Hardware numbers that are the same for all machines, with their sources: ``machines/common.yaml``."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from .yaml_nodes import read_yaml

__all__ = ["common"]


def common(name: str) -> float:
    """A number by its path in the file, such as ``l2.kept_whole``. Raises ``MachineError``, with position, for a malformed file."""
    return _numbers()[name]


@cache
def _numbers() -> dict[str, float]:
    found: dict[str, float] = {}
    top = read_yaml(Path(str(files("gpuperf_engine") / "machines" / "common.yaml"))).mapping()
    for group, entries in top.items():
        for key, entry in entries.mapping().items():
            fields = entry.mapping()
            found[f"{group}.{key}"] = fields.take("value").number(minimum=0)
            source = fields.take("source")
            if not fields.take("unit").text() or not source.text():
                raise entry.fault("a number without unit or source")
            if source.text() == "assumed" and "note" not in fields:
                raise source.fault(
                    "an assumed number without a note", "state in note: what it was taken from"
                )
            fields.finish(["value", "unit", "source", "note"])
    return found
