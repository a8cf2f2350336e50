"""Writes a machine description: the file of a base machine with its numbers replaced by measured ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from ...errors import MachineError
from ...machines.machine import Machine, load_machine
from .calibrate import Calibration

__all__ = ["MEASURED", "provenance", "render", "write_machine"]

MEASURED = "measured"
"""The key under ``sources`` of measured numbers."""


def provenance(about: Mapping[str, object]) -> str:
    """The source of measured numbers: the machine, the tools and the date."""
    commit = f", commit {str(about['commit'])[:12]}" if about.get("commit") else ""
    driver = about.get("driver") or "unknown"
    return (
        f"measured with tests/hardware/collect.py on {about['gpu']}, driver {driver}, CUDA {about['cuda']}, "
        f"{str(about['date'])[:10]}{commit}"
    )


def render(
    base: Machine, base_path: Path, identifier: str, about: Mapping[str, object], calibration: Calibration
) -> str:
    """The text of the file. Numbers that were not measured keep the value, source and note of the base."""
    held = yaml.safe_load(base_path.read_text(encoding="utf-8"))
    for number in calibration.numbers.values():
        group, key = number.path.split(".")
        value = int(number.value) if number.value == int(number.value) else number.value
        held.setdefault(group, {})[key] = {
            "value": value,
            "unit": number.unit,
            "source": MEASURED,
            "note": number.note,
        }
    used = set(_sources(held))
    sources = {key: text for key, text in held["sources"].items() if key in used and key != MEASURED}
    held["sources"] = {**sources, MEASURED: provenance(about)}
    held |= {"id": identifier, "name": str(about["gpu"])}
    held["revision"] = held["revision"] + 1 if identifier == base.id else 1
    return "".join([*_lines(held), *_remarks(calibration)])


def _remarks(calibration: Calibration) -> Iterator[str]:
    """Comments with measurements that have no field in a machine description."""
    if calibration.observed:
        yield "\n# Also measured, but used by no model:\n"
    for number in calibration.observed.values():
        yield f"# {number.value:g} {number.unit}: {number.path} ({number.note})\n"


def write_machine(
    path: Path, base: Machine, base_path: Path, about: Mapping[str, object], calibration: Calibration
) -> Machine:
    """Write ``path`` (its stem is the machine's id) and read it back; raises :class:`MachineError` for a path of another suffix."""
    if path.suffix != ".yaml":
        raise MachineError(
            f"{path} is not a name for a machine file", hint=f"write: {path.with_suffix('.yaml')}"
        )
    try:
        path.write_text(render(base, base_path, path.stem, about, calibration), encoding="utf-8")
    except OSError as problem:
        raise MachineError(f"cannot write {path}: {problem.strerror}") from None
    return load_machine(path)


def _sources(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        if "source" in node:
            yield str(node["source"])
        for value in node.values():
            yield from _sources(value)


def _lines(held: Mapping[str, object]) -> Iterator[str]:
    for key, value in held.items():
        if not isinstance(value, dict):
            yield f"{key}: {_scalar(value)}\n"
            continue
        yield f"\n{key}:\n"
        for name, entry in value.items():
            if isinstance(entry, dict):
                inner = ", ".join(f"{part}: {_scalar(item)}" for part, item in entry.items())
                yield f"  {name}: {{{inner}}}\n"
            else:
                yield f"  {name}: {_scalar(entry)}\n"


def _scalar(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
