"""Times measured on GPUs: ``benchmarks/hardware/<gpu>.json``, from what ``tests/hardware/collect.py`` measured.

    python -m benchmarks.measurements DIR [--machine ID] [--out FOLDER]

``DIR`` is what the collector wrote (its part ``times``). Nothing is changed on the way but the form: the median and the spread of
each case, warm and cold, with the provenance that ``schema.json`` asks for.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuperf_engine.errors import MachineError
from gpuperf_engine.machines.machine import load_machine, machine_ids
from gpuperf_engine.timing.calibration.collected import Collected, read_part
from gpuperf_engine.timing.calibration.judged import judged, kernel_of

__all__ = ["FOLDER", "convert", "documents", "judged", "validate"]

FOLDER = Path(__file__).with_name("hardware")
SCHEMA = FOLDER / "schema.json"


def convert(found: Collected, machine: str | None = None) -> dict[str, Any]:
    """The document of one machine. Raises :class:`MachineError` for a machine that is not described, or of which several
    descriptions fit, and for a case without times."""
    about = found.machine
    cases: list[dict[str, Any]] = []
    for name, record in found.cases.items():
        if "error" in record:
            continue
        for caches in ("warm", "cold"):
            if f"{caches}_us" not in record:
                continue
            values = found.numbers(name, f"{caches}_us")
            low, middle, high = _quartiles(values)
            if middle <= 0:
                raise found.fault(name, f"its {caches} time is {middle} µs", "collect this case again")
            case: dict[str, Any] = {
                "name": name,
                "kernel": kernel_of(name),
                "size": name.partition("-")[2],
                "caches": caches,
                "median_us": round(middle, 4),
                "spread_us": round(high - low, 4),
                "runs": len(values),
                "ptx": record.get("ptx", ""),
            }
            if record.get("lowered"):
                case["lowered"] = record["lowered"]
            if record.get("kernels"):
                case["registers"] = {key: made["registers"] for key, made in record["kernels"].items()}
            cases.append(case)
    if not cases:
        raise MachineError(f"{found.path} holds no times", hint="collect the part 'times'")
    return {
        "schema": 1,
        "gpu": about["gpu"],
        "machine": described(about, machine),
        "driver": about.get("driver", ""),
        "cuda": about["cuda"],
        "compute_capability": f"{about['capability_major']}.{about['capability_minor']}",
        "clocks": {key: _range(found, key) for key in ("sm_mhz", "memory_mhz")},
        "date": about["date"],
        "commit": about.get("commit", ""),
        "cases": sorted(cases, key=lambda case: (case["name"], case["caches"])),
    }


def described(about: Mapping[str, Any], machine: str | None = None) -> str:
    """The id of the machine description for what the collector says of a machine, which must fit."""
    capability = (about["capability_major"], about["capability_minor"])
    fitting = [
        item.id
        for item in map(load_machine, [machine] if machine else machine_ids())
        if item.compute_capability == capability and item.sm_count == about["sm_count"]
    ]
    if len(fitting) == 1:
        return fitting[0]
    seen = f"{about['gpu']} (compute capability {capability[0]}.{capability[1]}, {about['sm_count']} SMs)"
    if machine:
        raise MachineError(f"{machine} does not describe {seen}")
    which = f"one of {', '.join(fitting)}" if fitting else f"none of {', '.join(machine_ids())} fits"
    raise MachineError(f"which machine is {seen}?", hint=f"say it with --machine: {which}")


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def _range(found: Collected, key: str) -> dict[str, float] | None:
    values = [record["clocks"][key] for record in found.cases.values() if key in record.get("clocks", {})]
    return (
        {"median": statistics.median(values), "least": min(values), "most": max(values)} if values else None
    )


def validate(document: Any) -> None:
    """Raises ``jsonschema.ValidationError`` for what is no such document, and ``ValueError`` for a case that is in it twice."""
    import jsonschema

    jsonschema.validate(document, json.loads(SCHEMA.read_text(encoding="utf-8")))
    seen: set[tuple[str, str]] = set()
    for case in document["cases"]:
        key = (case["name"], case["caches"])
        if key in seen:
            raise ValueError(f"{key[0]} ({key[1]}) is there twice")
        if case["kernel"] != kernel_of(case["name"]):
            raise ValueError(f"{case['name']} is not a case of {case['kernel']}")
        seen.add(key)


def documents(folder: Path = FOLDER) -> dict[str, Any]:
    """All measured machines: file name without suffix → document."""
    return {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*.json"))
        if path.name != SCHEMA.name
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Put measured times into benchmarks/hardware.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="what collect.py wrote")
    parser.add_argument("--machine", metavar="ID", help="the machine's description, where several fit")
    parser.add_argument("--out", type=Path, default=FOLDER, help="default: benchmarks/hardware")
    options = parser.parse_args(arguments)
    try:
        document = convert(read_part(options.folder, "times"), options.machine)
    except MachineError as error:
        print(error, file=sys.stderr)
        return 2
    validate(document)
    name = re.sub(r"[^a-z0-9]+", "-", document["gpu"].lower()).strip("-")
    path = options.out / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    half = sum(judged(case["name"]) for case in document["cases"])
    print(f"{path}: {len(document['cases'])} cases, {half} of them kept for judging")
    return 0


if __name__ == "__main__":
    sys.exit(main())
