"""Maps names of earlier versions to the present ones.

The rows of metrics have their former names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .metrics import TABLE

__all__ = ["rename_keys", "rename_metrics", "renamed_line"]

_KEYS: Mapping[tuple[str, ...], Mapping[str, str]] = {
    ("cases", "detail", "accesses"): {
        "turns": "serializations",
        "shared_turns": "shared_serializations",
    },
    ("cases", "detail", "explanation", "loops"): {
        "passes": "head_thread_executions",
        "warp_passes": "head_warp_executions",
    },
}
"""Former and present keys of reports, by the path to the records that contain them."""

_COUNTS = {
    **{old.rpartition(".")[2]: new.rpartition(".")[2] for old, new in TABLE.formerly.items()},
    "shared_atomic_turns": "shared_atomic_serializations",
}
"""Former and present counts of the lines of a kernel in a baseline."""


def renamed_line(text: str) -> str:
    """Return an entry of a baseline's ``lines`` with present names."""
    if not any(f" {name}=" in text for name in _COUNTS):
        return text
    head, bar, code = text.rpartition(" | ")
    where, again, numbers = head.rpartition(" | ")
    parts = (part.partition("=") for part in numbers.split(" "))
    present = " ".join(_COUNTS.get(name, name) + sign + values for name, sign, values in parts)
    return where + again + present + bar + code


def rename_keys(document: object) -> None:
    """Rename the keys of a report that is not validated yet."""
    for way, names in _KEYS.items():
        for record in _records(document, way):
            for former, present in names.items():
                if former in record and present not in record:
                    record[present] = record.pop(former)


def rename_metrics(document: Mapping[str, Any]) -> None:
    """Rename the metrics of a report that its schema accepts."""
    for case in document["cases"]:
        for row in case["rows"]:
            row["metric"] = TABLE.formerly.get(row["metric"], row["metric"])
        for entry in (case["measured"], case["stored"]):
            _rename_entry(entry)
        policy = case["policy"]
        policy["limits"] = {TABLE.present(name)[0]: limit for name, limit in policy["limits"].items()}
        policy["tolerances"] = [
            [[name, tolerance] for former, tolerance in source for name in TABLE.present(former)]
            for source in policy["tolerances"]
        ]


def _rename_entry(entry: dict[str, Any] | None) -> None:
    for row in TABLE.rows if entry is not None else ():
        for section in _records(entry, row.path[:-1]) if row.formerly else ():
            if (former := row.key_in(section)) in section:
                section[row.path[-1]] = section.pop(former)
    if entry is not None and "lines" in entry:
        entry["lines"] = [renamed_line(text) for text in entry["lines"]]


def _records(node: object, way: Sequence[str]) -> Iterator[dict[str, object]]:
    """Yield the mappings at a path of keys; a list in the path stands for its items."""
    if isinstance(node, list):
        for item in node:
            yield from _records(item, way)
    elif isinstance(node, dict):
        if not way:
            yield node
        elif way[0] in node:
            yield from _records(node[way[0]], way[1:])
