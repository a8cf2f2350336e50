"""What the trace of a bulk or tensor copy reads, with and without a cache policy, whose descriptor ptxas 13.0.88 writes last."""

from __future__ import annotations

from typing import cast

import pytest

from gpuperf_engine.sass.listing import Decoded
from gpuperf_engine.sass.run.asynchronous import COORDINATES, FIELDS, MASK, copy_fields
from gpuperf_engine.sass.run.operands import Register
from gpuperf_engine.sass.run.writer import Writer

_, MBARRIER, _, LOW, HIGH, _ = FIELDS
SHARED = FIELDS[0]


class Registers:
    """Of a writer what is asked: the name of a register."""

    def word(self, operand: Register) -> str:
        return f"UR{operand.number}"


@pytest.mark.parametrize("policy", ["", ", desc[UR14]"])
@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("UTMALDG.2D [UR8], [UR4]", {SHARED: 8, MBARRIER: 9, LOW: 4, HIGH: 5, COORDINATES: 10, COORDINATES + 1: 11}),
        ("UTMALDG.1D.MULTICAST [UR8], [UR4], UR6", {SHARED: 8, MBARRIER: 9, LOW: 4, HIGH: 5, COORDINATES: 10, MASK: 6}),
        ("UTMASTG.1D [UR8], [UR4]", {SHARED: 8, LOW: 4, HIGH: 5, COORDINATES: 9}),
        ("UTMAREDG.1D.ADD [UR8], [UR4]", {SHARED: 8, LOW: 4, HIGH: 5, COORDINATES: 9}),
        ("UTMAPF.L2.1D [UR8], [UR4]", {LOW: 4, HIGH: 5, COORDINATES: 8}),
        ("UBLKCP.S.G [UR8], [UR4], UR6", {SHARED: 8, MBARRIER: 9, LOW: 4, HIGH: 5, MASK: 6}),
        ("UBLKCP.G.S [UR8], [UR4], UR6", {SHARED: 4, LOW: 8, HIGH: 9, MASK: 6}),
        ("UBLKRED.G.S.ADD [UR8], [UR4], UR6", {SHARED: 4, LOW: 8, HIGH: 9, MASK: 6}),
        ("UBLKPF.L2 [UR8], UR6", {LOW: 8, HIGH: 9, MASK: 6}),
    ],
)  # fmt: skip
def test_a_cache_policy_is_no_other_operand(text: str, fields: dict[int, int], policy: str) -> None:
    item = Decoded("", "", 0, text + policy, 0, 0)
    read = copy_fields(item, cast(Writer, Registers()))
    assert read == {field: f"UR{number}" for field, number in fields.items()}
