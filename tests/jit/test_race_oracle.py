"""Races of random kernels in global memory, held against a comparison of every two accesses (``race_oracle``)."""

from __future__ import annotations

import pytest

import gpuperf_engine as ge
from tests.jit.race_oracle import Finding, Kernel, Pairs, pairs_of

#: kernels that once showed a defect
WHOLE, ANY = (6, 8, 12, 256, 290), (1, 107, 275)
#: kernels of places whose numbers are loaded: with and without races
INDEXED = (1014, 1032, 1034, 1000, 60201, 60396)
#: the same of single bytes, or two, that are words
NARROW = (62004, 62042, 62046, 62053)
KINDS = ("RAW", "WAR", "WAW")


def found_by(kernel: Kernel) -> list[Finding]:
    device = ge.Device(observe=set(), memory_bytes=1 << 24)
    to, index = device.zeros(1 << 21, "uint32", name="to"), device.array(kernel.table.astype("uint32"))
    profile = device.launch(ge.parse(kernel.text, path="k.ptx")["k"], kernel.grid, kernel.block, [to, index])
    return [
        Finding(
            race.kind,
            (race.first.block[0], race.second.block[0]),
            tuple(int(item.location.split(":")[1]) for item in (race.first, race.second)),  # type: ignore[arg-type]
            (race.first.thread[0] // 32, race.second.thread[0] // 32),
            int(race.object.partition(" + ")[2] or 0),
        )
        for race in profile.races
    ]


def found_on_any_threads(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    """What one thread and what four find, which is the same."""
    found = []
    for threads in (1, 4):
        monkeypatch.setattr("gpuperf_engine.device.device.host_threads", lambda threads=threads: threads)
        found.append(found_by(kernel))
    assert found[0] == found[1]
    return found[0]


def check(found: list[Finding], pairs: Pairs, exact: bool) -> None:
    """``exact``: words are looked at, so instructions and warps are known, and the first blocks of each kind."""
    assert [item for item in found if not pairs.has(item, exact)] == []
    for within in (True, False):
        kinds = {item.kind for item in found if (item.blocks[0] == item.blocks[1]) == within}
        assert pairs.kinds_of(within, pairs.first_of_word if exact else pairs.first_of_line) <= kinds
    for kind in KINDS if exact else ():
        among = [item.blocks for item in found if item.kind == kind and item.blocks[0] != item.blocks[1]]
        assert min(among, default=None) == pairs.first_blocks(kind)


@pytest.mark.parametrize(
    ("seed", "words", "indexed", "computed"),
    [(seed, words, False, not words and seed > 8) for seed in WHOLE for words in (False, True)]
    + [(seed, None, False, True) for seed in ANY]
    + [(seed, True, True, 1020 < seed < 60000) for seed in INDEXED]
    + [(seed, True, True, False) for seed in NARROW],
)
def test_every_finding_is_a_race_and_no_kind_is_missing(
    seed: int, words: bool | None, indexed: bool, computed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``words``: whether objects are looked at word by word; ``None``: as decided by their addresses. ``computed``: whether addresses
    are computed before the launch."""
    monkeypatch.setattr("gpuperf_engine.jit.races.places._COMPUTED", int(computed))
    monkeypatch.setattr("gpuperf_engine.jit.races.checks._WORTH_FORMS", 1)
    monkeypatch.setattr("gpuperf_engine.jit.dispatch.WORTH_IT", 0.0)
    monkeypatch.setattr("gpuperf_engine.jit.dispatch.LOCKED", 0.0)
    if words is not None:
        monkeypatch.setattr("gpuperf_engine.jit.races.places._depends_on_data", lambda *given: words)
        monkeypatch.setattr(
            "gpuperf_engine.jit.addresses.grid_values.GridValues.are_scattered", lambda *given: words
        )
    kernel = Kernel(seed, whole=seed in WHOLE + INDEXED, indexed=indexed)
    check(found_on_any_threads(kernel, monkeypatch), pairs_of(kernel), bool(words))


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("seed", [61004, 61010, 61072])
def test_races_of_few_warps_at_places_that_are_loaded(
    seed: int, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words are looked at, though nothing is worked out about the launch. ``alone``: of one block."""
    monkeypatch.setattr("gpuperf_engine.jit.dispatch.WORTH_IT", 0.0)
    monkeypatch.setattr("gpuperf_engine.jit.dispatch.LOCKED", 0.0)
    monkeypatch.setattr("gpuperf_engine.jit.races.places._depends_on_data", lambda *given: True)
    monkeypatch.setattr("gpuperf_engine.jit.races.checks.places", None)
    kernel = Kernel(seed, whole=True, indexed=True, alone=alone)
    found = found_on_any_threads(kernel, monkeypatch)
    assert found
    check(found, pairs_of(kernel), True)
