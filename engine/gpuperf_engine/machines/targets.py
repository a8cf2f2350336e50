"""The machines on which PTX runs: the rules of ``.target`` (PTX manual, "PTX Module Directives: .target")."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .machine import Machine

__all__ = ["assembled_for", "can_run", "highest", "most_specific", "parse_target", "stand_in"]

_TARGET = re.compile(r"(?:sm|compute)_(\d+)(\d)([af]?)")


def parse_target(target: str) -> tuple[int, int, str] | None:
    """``sm_90a`` → ``(9, 0, "a")``; the suffix is ``""``, ``"a"`` (architecture-specific) or ``"f"`` (family-specific).

    ``None`` for text that names no architecture (``texmode_unified``, ``debug``, …).
    """
    match = _TARGET.fullmatch(target.strip())
    return (int(match[1]), int(match[2]), match[3]) if match else None


def _family(capability: tuple[int, int]) -> int:
    return 11 if capability == (10, 1) else capability[0]


def can_run(target: str, machine: Machine) -> bool:
    """Whether PTX of this ``.target`` can be compiled for and run on the machine.

    - ``sm_XY``: on every machine of compute capability X.Y or higher;
    - ``sm_XYa``: on X.Y alone;
    - ``sm_XYf``: from X.Y on in the same family, which is that of the same major version (10.1 is of the family of 11.x).

    ``target`` may be the whole operand list of the directive (``sm_90a, debug``): options that name no architecture are
    passed over. False if no architecture is named at all.
    """
    for part in target.split(","):
        parsed = parse_target(part)
        if parsed is None:
            continue
        major, minor, suffix = parsed
        have = machine.compute_capability
        if suffix == "a":
            return have == (major, minor)
        if suffix == "f":
            return _family((major, minor)) == _family(have) and have >= (major, minor)
        return have >= (major, minor)
    return False


def most_specific(targets: Iterable[str], machine: Machine) -> str | None:
    """The target that a driver would select among those that run on the machine: the highest compute capability; of equal ones ``a``
    (for this architecture only) before ``f`` (for its family) before the plain one. ``None`` if none runs."""

    return max((target for target in targets if can_run(target, machine)), key=_rank, default=None)


def stand_in(ptx: Iterable[str], code: Iterable[str], machine: Machine) -> tuple[str, str] | None:
    """For a program without PTX that runs on the machine: a target of its machine code (``code``) that the machine runs, and the
    target of the closest PTX (``ptx``), that of the nearest higher architecture. ``None`` if there is no such machine code or PTX; PTX
    for ``a`` and ``f`` architectures is not used."""
    ptx = list(ptx)
    runs = [target for target in code if _runs_code(target, machine)]
    higher = [target for target in ptx if parse_target(target) and not _rank(target)[2]]
    if not runs or not higher or most_specific(ptx, machine):
        return None
    return max(runs, key=_rank), min(higher, key=_rank)


def _runs_code(target: str, machine: Machine) -> bool:
    """Whether the machine runs machine code for an architecture: its own, and lower ones of the same major version (CUDA Programming
    Guide, "Binary Compatibility"); for ``a`` and ``f`` architectures the rules of PTX apply."""
    parsed = parse_target(target)
    if parsed is None or not can_run(target, machine):
        return False
    return bool(parsed[2]) or parsed[0] == machine.compute_capability[0]


def highest(targets: Iterable[str]) -> str:
    """The target with the highest compute capability, on whatever machine it runs."""
    return max(targets, key=_rank)


def _rank(target: str) -> tuple[int, int, int]:
    major, minor, suffix = parse_target(target.split(",")[0]) or (0, 0, "")
    return major, minor, ("", "f", "a").index(suffix)


def assembled_for(target: str, machine: Machine) -> str | None:
    """The architecture that a driver assembles PTX of this ``.target`` for on the machine: its own, with the letter of the target
    (``sm_90a``). ``None`` if the PTX does not run there."""
    if not can_run(target, machine):
        return None
    parsed = next(filter(None, map(parse_target, target.split(","))))
    major, minor = machine.compute_capability
    return f"sm_{major}{minor}{parsed[2]}"
