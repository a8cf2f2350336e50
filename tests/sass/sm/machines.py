"""An SM of round numbers, and code for it that is written by hand."""

from __future__ import annotations

import numpy as np

from gpuperf_engine.jit.ir.sm_records import END
from gpuperf_engine.sass.graph import build_graph
from gpuperf_engine.sass.listing import Decoded, Listing
from gpuperf_engine.sass.sm.numbers import SmNumbers
from gpuperf_engine.sass.sm.operations import Operations
from gpuperf_engine.sass.sm.sharing import Group
from gpuperf_engine.sass.sm.simulate import Memory, Simulated, simulate
from gpuperf_engine.sass.sm.streams import Class, Classes

__all__ = ["TOY", "access", "decoded", "run"]

TOY = SmNumbers(
    architecture=86,
    sm_count=1,
    parts=4,
    issue_rate=1.0,
    lanes={"fma": 32, "alu": 16, "imad": 16, "xu": 4, "lsu": 4, "adu": 4, "cbu": 16, "fp64": 1},
    pipes={"imad": "fma"},
    latencies={"fma": 4, "alu": 4, "imad": 4, "xu": 20, "shuffle": 25, "shared": 25, "barrier": 20, "l1": 30, "l2": 200, "dram": 500},
    queue=5,
    address_clocks=4,
    lsu_clocks=2,
    wavefront_clocks=1,
    tag_rate=4,
    l1_bytes=128 << 10,
    l2_kept=1 << 20,
    l2_lost=1 << 21,
    port_rate=64.0,
    l2_rate=64.0,
    one_way=8.0,
    mixed=8.0,
    turnaround=100,
    cta_rate=1.0,
)  # fmt: skip
_REUSE = 105 + 17


def decoded(texts: list[str]) -> Listing:
    """Instructions one after the other; ``.reuse`` sets the bit of the operand's slot."""
    items = []
    for position, text in enumerate(texts):
        operands = text.split(None, 1)[1].split(", ")[1:] if " " in text else []
        bits = sum(1 << _REUSE + slot for slot, operand in enumerate(operands) if operand.endswith(".reuse"))
        items.append(Decoded(".text.k", "k", 16 * position, text, 0, bits | 1 << 105))
    return Listing(tuple(items), {"k": 0}, frozenset())


def access(wavefronts: int, lines: dict[int, int] | None = None, lanes: int = 32) -> list[int]:
    """What a stream has of an access: ``lines``: sectors (bits) by number."""
    lines = lines or {}
    return [
        wavefronts | len(lines) << 8 | lanes << 16,
        *(number << 4 | sectors for number, sectors in lines.items()),
    ]


def run(
    texts: list[str],
    warps: list[list[int]],
    *,
    numbers: SmNumbers = TOY,
    ctas: int = 1,
    resident: int = 1,
    lines: int = 0,
    share: float = 1.0,
    l1_lines: int = 1 << 10,
    dram_rate: float = 8.0,
    l2_rate: float = 64.0,
) -> Simulated:
    """CTAs of so many ``warps``, each of which executes the text once with these accesses."""
    graph = build_graph(decoded(texts), "k")
    assert len(graph.blocks) == 1
    parts = [np.array([0, *words, END], np.uint32) for words in warps]
    stream = np.concatenate(parts)
    firsts = np.cumsum([0, *map(len, parts[:-1])])
    starts = (int(stream.ctypes.data) + 4 * firsts).astype(np.int64)
    only = Class(stream, starts, np.zeros(lines, np.uint8), np.arange(lines, dtype=np.int64))
    classes = Classes((only,), (Group("global", False, (0, 0, 0)),), {}, (ctas, 1, 1))
    memory = Memory(l1_lines, l2_rate, dram_rate, (share,))
    return simulate(Operations(graph, numbers), classes, numbers, memory, [0] * ctas, resident, len(warps))
