"""Runs mutants of real PTX on both backends: ``make fuzz MINUTES=5``, or ``python -m tests.hostile.fuzz --help``.

A mutant fails if a process dies or hangs, if anything but an error of the engine is raised, or if the backends differ: in what
arrays hold after a launch that went well, in any count, or in the kind and the position of the error. Each is named by its seed,
which makes the same mutant again: ``--seed N --count 1``. Exits with 1 if any failed.
"""

from __future__ import annotations

import argparse
import collections
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.hostile.mutants import Mutant, mutant
from tests.hostile.sandbox import Outcome, Sandbox

__all__ = ["BACKENDS", "QUANTUM", "judge", "run"]

BACKENDS = ("llvm", "reference")
#: of processor time for a launch
SECONDS = {"llvm": 60.0, "reference": 400.0}
#: a time slice ends before the budget is looked at, and one of 4,096 long iterations takes the reference backend minutes
QUANTUM = 128
#: says how a number was found, not what it is
OWN = frozenset(("method", "method_reason", "remarks"))


def run(sandbox: Sandbox, found: Mutant) -> tuple[str, list[Outcome]]:
    """What is wrong with the engine, ``""`` if nothing, and the outcome on each backend that was asked."""
    outcomes: list[Outcome] = []
    for backend in BACKENDS:
        outcome = sandbox.run(replace(found.job, backend=backend), SECONDS[backend])
        outcomes.append(outcome)
        if outcome.kind not in ("ok", "error"):
            return f"{backend} {outcome.kind}: {outcome.text}", outcomes
        if outcome.type in ("PtxError", "PtxSyntaxError") and outcome.kind == "error":
            break  # both ask the same parser
    return judge(outcomes), outcomes


def judge(outcomes: list[Outcome]) -> str:
    """How the outcomes are not as they must be."""
    for outcome in outcomes:
        lines = outcome.text.splitlines()
        if outcome.kind == "error" and (not 1 <= len(lines) <= 5 or outcome.type == "EngineError"):
            return f"an error that does not say enough: {outcome.type} {outcome.text}"
    if len(outcomes) < 2:
        return ""
    native, lanes = outcomes
    if (native.kind, native.type) != (lanes.kind, lanes.type):
        return f"native: {_told(native)}\nlanes: {_told(lanes)}"
    if native.kind == "error":
        return "" if native.text == lanes.text else f"native: {native.text}\nlanes: {lanes.text}"
    for number, (one, other) in enumerate(zip(native.outputs, lanes.outputs, strict=True)):
        differs = np.flatnonzero(one.reshape(-1).view(np.uint8) != other.reshape(-1).view(np.uint8))
        if differs.size:
            place = int(differs[0]) // one.dtype.itemsize
            values = f"native {one.reshape(-1)[place]}, lanes {other.reshape(-1)[place]}"
            return f"array {number} differs in {differs.size} bytes, first at element {place}: {values}"
    return _differ(_without_races(native.profile), _without_races(lanes.profile), "profile")


def _without_races(profile: dict[str, Any]) -> dict[str, Any]:
    """Races are looked for on the LLVM backend only."""
    kept = {key: value for key, value in profile.items() if key != "races"}
    return {**kept, "notes": [note for note in profile.get("notes", []) if ": race on " not in note]}


def _differ(one: Any, other: Any, where: str) -> str:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other} - OWN, key=str):
            if found := _differ(one.get(key), other.get(key), f"{where}.{key}"):
                return found
        return ""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return next((found for n, (a, b) in pairs if (found := _differ(a, b, f"{where}[{n}]"))), "")
    return "" if one == other else f"{where}: native {one!r:.300}, lanes {other!r:.300}"


def _told(outcome: Outcome) -> str:
    return f"{outcome.type} {outcome.text}" if outcome.kind == "error" else outcome.kind


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0, help="how long to go on (default: %(default)s)")
    parser.add_argument("--count", type=int, default=None, help="end after so many mutants")
    parser.add_argument("--seed", type=int, default=None, help="the first seed (default: drawn, and told)")
    parser.add_argument(
        "--keep", type=Path, default=None, metavar="DIR", help="write mutants that fail to this folder"
    )
    given = parser.parse_args()
    seed = int.from_bytes(os.urandom(3), "big") * 1000 if given.seed is None else given.seed
    until = time.monotonic() + 60 * given.minutes
    tell = time.monotonic() + 60
    ran: collections.Counter[str] = collections.Counter()
    failed: list[int] = []
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("GPUPERF_CACHE", cache)
        sandbox = Sandbox(QUANTUM)
        print(f"from seed {seed}", flush=True)
        try:
            for number in range(seed, seed + (given.count or 1 << 62)):
                if time.monotonic() > until:
                    break
                if time.monotonic() > tell:
                    tell = time.monotonic() + 60
                    print(f"… {ran.total()} mutants, {len(failed)} failed", flush=True)
                found = mutant(number)
                wrong, outcomes = run(sandbox, found)
                last = outcomes[0]
                ran[last.type if last.kind == "error" else last.kind] += 1
                if wrong:
                    failed.append(number)
                    print(f"--- seed {number}: {found.path}, {'; '.join(found.changes)}\n{wrong}", flush=True)
                    if given.keep is not None:
                        given.keep.mkdir(parents=True, exist_ok=True)
                        (given.keep / f"{number}.ptx").write_text(str(found.job.text), encoding="utf-8")
        finally:
            sandbox.close()
    kinds = ", ".join(f"{count} {kind}" for kind, count in ran.most_common())
    print(f"{ran.total()} mutants from seed {seed}: {kinds}; {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
