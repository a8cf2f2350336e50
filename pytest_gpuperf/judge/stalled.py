"""Stalls of a simulated launch by causing line, in baselines, and lines whose stalls grew.

A baseline is compared with a kernel that was edited, so it has the text of a line, not its number. Amounts are parts of the predicted
time in µs: a line's stalls as a part of all clocks of the warps.

    10.9 long_scoreboard | saxpy.cu: y[i] = a * x[i] + y[i];
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..core.escaping import storable
from ..core.metric import significant
from ..core.records import Detail, Entry, Row, StalledCode, StalledLineRow
from .lines import PTX, named_line, opcodes_of

if TYPE_CHECKING:
    from gpuperf_engine import Estimate, MachineInstruction

__all__ = ["add_stalled_lines", "grown_stalls", "stalled_code", "stalled_rows"]

_MOST, _LEAST = 12, 0.01
"""Most rows in a baseline, and the least part of the time of a row."""
_NAMED, _MUCH = 2, 0.1
"""Most listed lines, and the least growth of a line's stalls, as a part of the growth of the time."""
_OF_PTX = "ptx:"
_STORED = re.compile(r"(\d[\d.e+-]*) (\w+) \| (.*)", re.DOTALL)


def stalled_rows(estimate: Estimate, shown: Callable[[str], str]) -> list[StalledLineRow]:
    """Those of a simulated launch, the longest first; of several launches those of the longest, as if all others did the same.
    ``shown`` is how a place in the source is written; lines of PTX are ``ptx:12``."""
    clocks = estimate.warp_clocks
    if not clocks:
        return []
    each = (estimate.time_us - estimate.launch_us) / clocks
    rows: list[StalledLineRow] = [
        {
            "at": line.at if line.at.startswith(_OF_PTX) else shown(line.at),
            "cause": cause,
            "us": significant(waited * each),
        }
        for line in estimate.stalled_lines()
        for cause, waited in line.waited_for.items()
        if waited >= _LEAST * clocks
    ]
    return sorted(rows, key=lambda row: (-row["us"], row["at"], row["cause"]))[:_MOST]


def stalled_code(estimate: Estimate, instructions: Iterable[MachineInstruction]) -> list[StalledCode]:
    """For each of these the part of all clocks of warps that they wait before it, for what most of them, and the part that it causes;
    nothing where these were not simulated."""
    clocks = estimate.warp_clocks if estimate.assembler else 0.0
    if not clocks:
        return []
    known = {(item.address, item.text): item for item in estimate.stalled}
    rows: list[StalledCode] = []
    for instruction in instructions:
        item = known.get((instruction.address, instruction.text))
        waited, caused = (0.0, 0.0) if item is None else (item.stalled / clocks, item.caused / clocks)
        reason = next(iter(item.stalls), "") if item is not None else ""
        rows.append([significant(waited), reason, significant(caused)])
    return rows


def add_stalled_lines(
    entry: Entry, detail: Detail, path: str, text: Mapping[int, str], texts: Mapping[str, str]
) -> None:
    """Adds to an entry the stalls that ``detail`` has, by the text of their lines; ``path`` and ``text`` are those of the PTX,
    ``texts`` the
    source by ``file:line``."""
    for target, shown in detail["targets"].items():
        sums: dict[tuple[str, str], float] = {}
        for row in shown.get("stalled_lines", ()):
            row["where"] = _where(row["at"], text, texts)
            if row["at"].startswith(_OF_PTX):
                row["at"] = f"{path}:{row['at'].removeprefix(_OF_PTX)}"
            key = row["where"], row["cause"]
            sums[key] = sums.get(key, 0.0) + row["us"]
        if sums:
            ordered = sorted(sums.items(), key=lambda item: (-item[1], item[0]))
            entry["targets"][target]["stalls"] = [
                f"{us:.4g} {cause} | {where}" for (where, cause), us in ordered
            ]


def _where(at: str, text: Mapping[int, str], texts: Mapping[str, str]) -> str:
    if not at.startswith(_OF_PTX):
        return storable(named_line(at, texts))
    opcodes = opcodes_of(text.get(int(at.removeprefix(_OF_PTX)), ""))
    return storable(f"{PTX}: {' '.join(opcodes)}" if opcodes else "machine code")


def grown_stalls(new: Entry, old: Entry | None, detail: Detail, rows: Iterable[Row]) -> list[str]:
    """A sentence for each of the lines whose stalls grew most, of targets whose predicted time fails, where both times were
    simulated."""
    lines = []
    for row in rows:
        target = row["target"]
        if row["metric"] != "time_us" or not row["fails"] or row["old"] is None or row["new"] is None:
            continue
        was = _read((old or {}).get("targets", {}).get(target, {}).get("stalls", ()))
        now = _read(new["targets"].get(target, {}).get("stalls", ()))
        if not was or not now:
            continue
        places = {
            (shown["where"], shown["cause"]): shown["at"]
            for shown in reversed(detail["targets"][target].get("stalled_lines", ()))
        }
        grown = sorted(
            ((us - was.get(key, 0.0), key) for key, us in now.items()), key=lambda item: (-item[0], item[1])
        )
        for more, key in grown[:_NAMED]:
            if more >= _MUCH * (row["new"] - row["old"]) > 0:
                where, cause = key
                at = f"{places[key]} ({where.partition(': ')[2] or where})" if key in places else where
                lines.append(
                    f"stalls for {at} grew on {target}: {cause} {was.get(key, 0.0):.3g} → {now[key]:.3g} us of the time"
                )
    return lines


def _read(stored: Sequence[str]) -> dict[tuple[str, str], float]:
    """Parse the rows of a baseline; skip unreadable ones."""
    found = {}
    for match in filter(None, map(_STORED.fullmatch, stored)):
        try:
            found[match[3], match[2]] = float(match[1])
        except ValueError:
            continue
    return found
