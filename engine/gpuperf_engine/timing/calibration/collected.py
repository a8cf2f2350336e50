"""Reads the JSON lines that ``tests/hardware/collect.py`` writes, a part per file, strictly."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import MachineError
from ...source import Span

__all__ = ["PARTS", "Collected", "read_part", "same_machine"]

PARTS = ("instructions", "kernels", "examples", "micro", "times")
#: Facts that are equal if two runs are of one machine.
IDENTITY = ("gpu", "driver", "cuda", "sm_count", "capability_major", "capability_minor", "memory_bytes")


@dataclass(frozen=True, slots=True)
class Collected:
    """One part. ``about``: the machine of the last run; ``cases``: for each case its last line that is not an error, else its last
    line. ``lines``: their line numbers; ``cut``: the numbers of lines that an interrupted run left incomplete."""

    path: Path
    machine: Mapping[str, object]
    cases: Mapping[str, Mapping[str, object]]
    lines: Mapping[str, int]
    cut: tuple[int, ...] = ()

    def fault(self, case: str, problem: str, hint: str | None = None) -> MachineError:
        """An error about the line of a case."""
        line = self.lines[case]
        return MachineError(f"{case}: {problem}", span=Span(str(self.path), line, 1, line, 1), hint=hint)

    def numbers(self, case: str, key: str) -> list[float]:
        """The list of non-negative numbers under a key of a case; raises :class:`MachineError` for anything else."""
        given = self.cases[case].get(key)
        if (
            not isinstance(given, list)
            or not given
            or not all(isinstance(item, (int, float)) and not isinstance(item, bool) for item in given)
            or not all(0 <= item < float("inf") for item in given)
        ):
            raise self.fault(case, f"{key!r} is not a list of numbers", "collect this case again")
        return [float(item) for item in given]


def read_part(folder: str | Path, part: str) -> Collected:
    """Read ``folder/part.jsonl``. Raises :class:`MachineError`, with position, for a file that is missing, that begins without a
    line about the machine, or that holds lines of different machines."""
    path = Path(folder) / f"{part}.jsonl"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise MachineError(
            f"cannot read {path}: {reason}", hint="collect.py writes it; see docs/hardware.md"
        ) from None
    machine: dict[str, object] | None = None
    cases: dict[str, Mapping[str, object]] = {}
    lines: dict[str, int] = {}
    cut = []
    for number, line in enumerate(text.splitlines(), 1):
        span = Span(str(path), number, 1, number, len(line) + 1)
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError:
            cut.append(number)
            continue
        if not isinstance(record, dict) or not ({"case", "part"} & set(record)):
            raise MachineError("this line describes neither a case nor a machine", span=span)
        if "case" not in record:
            if record["part"] != part:
                raise MachineError(f"this is part {record['part']!r}, not {part!r}", span=span)
            if machine is not None:
                _compare(machine, record, span)
            machine = record
        elif machine is None:
            raise MachineError("a case before any line about the machine", span=span)
        else:
            name = str(record["case"])
            if name not in cases or "error" not in record or "error" in cases[name]:
                cases[name], lines[name] = record, number
    if machine is None:
        raise MachineError(f"{path} holds no line about the machine", hint="collect it again")
    return Collected(path, machine, cases, lines, tuple(cut))


def same_machine(parts: Iterable[Collected]) -> None:
    """Raises :class:`MachineError` if parts were measured on different machines."""
    collected = list(parts)
    for other in collected[1:]:
        _compare(collected[0].machine, other.machine, Span(str(other.path), 1, 1, 1, 1))


def _compare(one: Mapping[str, object], other: Mapping[str, object], span: Span) -> None:
    for key in IDENTITY:
        if one.get(key) != other.get(key):
            raise MachineError(
                f"results of different machines: {key} was {one.get(key)!r}, here it is {other.get(key)!r}",
                span=span,
                hint="keep each machine's results in a folder of their own",
            )
