"""What the table says about ``.version`` and ``.target`` against ptxas: for each condition of a row, met exactly, and one version
or one target short of it.

For each condition one form is asked; with ``GPUPERF_AVAILABILITY=targets`` on all targets that ptxas knows, with ``=all`` all
forms are, which takes half an hour.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuperf_engine as ge
from gpuperf_engine.errors import PtxError
from gpuperf_engine.isa.special import SPECIAL_REGISTERS
from gpuperf_engine.isa.table import Form, check_available, needs, rows

from .assembler import PTXAS, forms, instruction_text, ptxas_version
from .near_misses import refused_by_ptxas, refused_by_us
from .ptxas_versions import departs

pytestmark = pytest.mark.skipif(PTXAS is None, reason="no ptxas on the PATH")

ASKED = os.environ.get("GPUPERF_AVAILABILITY", "")
ALL_TARGETS, ALL_SPELLINGS = ASKED in ("targets", "all"), ASKED == "all"
#: What ptxas takes on the whole of the families sm_100f and sm_110f, the manual on sm_120f alone.
LAX = re.compile(r"^mma\S*\.kind::f8f6f4\.")
Version = tuple[int, int]
Point = tuple[Version, str]

#: Versions of PTX since the oldest that ptxas of CUDA 13 has a target for.
VERSIONS = [
    *((6, minor) for minor in (3, 4, 5)),
    *((major, minor) for major in (7, 8) for minor in range(9)),
    *((9, minor) for minor in range(9)),
]


def targets() -> dict[str, Version]:
    """The targets that ptxas knows, without ``sm_``, each with the first version that has it."""
    assert PTXAS is not None
    said = subprocess.run([PTXAS, "--help"], capture_output=True, text=True, check=True).stdout
    return {
        name: first_version(name)
        for name in sorted(set(re.findall(r"'compute_(\d+[af]?)'", said)), key=order)
    }


def order(target: str) -> tuple[int, str]:
    """Ascending, ``sm_100`` before ``sm_100f`` before ``sm_100a``."""
    return int(target.rstrip("af")), {"": "", "f": "1", "a": "2"}[target.lstrip("0123456789")]


def first_version(target: str) -> Version:
    """PTX manual, "Release Notes"."""
    number, suffix = int(target.rstrip("af")), target.lstrip("0123456789")
    first = {75: (6, 3), 80: (7, 0), 86: (7, 1), 87: (7, 4), 88: (9, 0), 89: (7, 8), 90: (7, 8), 100: (8, 6), 103: (8, 8), 107: (9, 4),
             110: (9, 0), 120: (8, 7), 121: (8, 8)}[number]  # fmt: skip
    return max(first, (8, 0) if suffix == "a" else (8, 8) if suffix == "f" else first)


def has(form: Form, version: Version, target: str) -> bool:
    """Whether the table says so."""
    try:
        check_available(form, version, int(target.rstrip("af")), target.lstrip("0123456789"))
    except PtxError:
        return False
    return True


def condition(form: Form) -> object:
    """What the form shares with others of its row that ask for the same, for the same reasons."""
    bound = {name if value is True else value for name, value in form.modifiers.items()}
    reasons = tuple(words for words in form.row.available.requires if bound.issuperset(words.split()))
    shapes = tuple((slot.name, slot.role, slot.vector > 1) for slot in form.operands)
    return form.row.syntax, reasons, shapes


def points(form: Form, known: dict[str, Version]) -> Iterator[Point]:
    """The lowest target that has the form at its first version, and what lacks one version or one target of that."""
    versions = [version for version in VERSIONS if version <= ptxas_version()]
    lowest = {
        target: next((v for v in versions if v >= first and has(form, v, target)), None)
        for target, first in known.items()
    }
    having = [target for target, version in lowest.items() if version is not None]
    if not having:
        return
    for target in lowest if ALL_TARGETS else having[:1]:
        version = lowest[target]
        if version is not None:
            yield version, target
        elif known[target] <= versions[-1]:
            yield versions[-1], target
    lacking = [target for target in lowest if lowest[target] is None and order(target) < order(having[0])]
    for target in lacking[-1:]:
        yield versions[-1], target
    for target in having:
        version = lowest[target]
        assert version is not None
        if known[target] < version:
            yield versions[versions.index(version) - 1], target
            if not ALL_TARGETS:
                return


def asked() -> dict[str, Form]:
    """One instruction for each condition, or for each form."""
    found: dict[object, tuple[str, Form]] = {}
    for row in rows():
        if row.available.removed is None and row.accepts.texmode != "independent":
            for form in forms(row, 10_000 if ALL_SPELLINGS else 60):
                text = instruction_text(form)
                found.setdefault(text if ALL_SPELLINGS else condition(form), (text, form))
    return dict(found.values())


def test_conditions(tmp_path: Path) -> None:
    known = {target: first for target, first in targets().items() if first <= ptxas_version()}
    groups: dict[Point, list[str]] = defaultdict(list)
    for text, form in asked().items():
        if needs(form)[0] <= ptxas_version():
            for point in dict.fromkeys(points(form, known)):
                groups[point].append(text)
    letters = {"u32": "r", "u64": "l", "pred": "p"}
    for name, register in SPECIAL_REGISTERS.items():
        if register.since <= ptxas_version():
            text = f"mov.{register.type} {letters[register.type.name]}0, %{name};"
            exact = next(t for t in known if order(t)[0] >= register.target)
            version = max(register.since, known[exact])
            groups[version, exact].append(text)
            if version > known[exact]:
                groups[VERSIONS[VERSIONS.index(version) - 1], exact].append(text)
            for target in [t for t in known if order(t)[0] < register.target][-1:]:
                groups[ptxas_version(), target].append(text)
    different: list[str] = []
    counts = {True: 0, False: 0}
    for (version, target), group in groups.items():
        theirs = refused_by_ptxas(group, version, target, tmp_path)
        ours = refused_by_us(group, version, target)
        for text in group:
            counts[text in ours] += 1
            listed = departs(text) or (LAX.match(text) and order(target)[0] in (100, 103, 110))
            if (text in ours) != (text in theirs) and not listed:
                said = ours[text] if text in ours else theirs[text]
                who = "we refuse" if text in ours else "ptxas refuses"
                different.append(f"{version[0]}.{version[1]} sm_{target} {text} {who}: {said}")
    print(f"{counts[False]} accepted and {counts[True]} refused by both, {len(groups)} modules")
    assert different == []
    assert min(counts.values()) > 500


def test_targets(tmp_path: Path) -> None:
    """Each target begins with its version, as do ``.b128`` and directives of functions."""
    known = {target: first for target, first in targets().items() if first <= ptxas_version()}
    before = {version: earlier for earlier, version in itertools.pairwise(VERSIONS)}
    asked = [
        (version, target, "")
        for target, first in known.items()
        for version in (first, before.get(first))
        if version and target != "88"  # which ptxas has from 7.3 on, the manual from 9.0 on
    ]
    needing = {
        ".global .b128 q;": ((8, 3), "75"),
        ".func f(.param .b128 q) { ret; }": ((8, 3), "75"),
        ".func f { .reg .b128 q; ret; }": ((8, 3), "75"),
        ".func f .noreturn { trap; }": ((6, 4), "75"),
        ".func f .abi_preserve 4 { ret; }": ((9, 0), "80"),
        ".func f .abi_preserve_control 4 { ret; }": ((9, 0), "80"),
        ".entry f .reqnctapercluster 2 { ret; }": ((7, 8), "90"),
        ".entry f .maxclusterrank 2 { ret; }": ((7, 8), "90"),
        ".entry f .explicitcluster { ret; }": ((7, 8), "90"),
        ".entry f .reqntid 32 .reqnctapercluster 2 .blocksareclusters { ret; }": ((9, 0), "90"),
    }
    order_of = list(known)
    for line, (version, target) in needing.items():
        asked.append((version, target, line))
        if before[version] >= known[target]:
            asked.append((before[version], target, line))
        if target != order_of[0]:
            asked.append((ptxas_version(), order_of[order_of.index(target) - 1], line))
    verdicts = set()
    for version, target, line in asked:
        text = f".version {version[0]}.{version[1]}\n.target sm_{target}\n.address_size 64\n{line}\n"
        text += ".entry e { ret; }\n"  # of a module without one, ptxas says less
        (tmp_path / "k.ptx").write_text(text)
        done = subprocess.run(
            [str(PTXAS), f"-arch=compute_{target}", str(tmp_path / "k.ptx"), "-o", str(tmp_path / "k.cubin")],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        try:
            module = ge.parse(text, path="k.ptx")
            for name in module.functions:
                module.function(name)
            taken = True
        except PtxError:
            taken = False
        assert taken == (done.returncode == 0), (text, done.stderr)
        verdicts.add((taken, bool(line)))
    assert len(verdicts) == 4
