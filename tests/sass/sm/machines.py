"""An SM of round numbers, and code for it that is written by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gpuperf_engine.jit.ir.sm_records import END
from gpuperf_engine.sass.graph import Graph, build_graph
from gpuperf_engine.sass.listing import Decoded, Listing
from gpuperf_engine.sass.sm.asynchronous import Copies, Moved
from gpuperf_engine.sass.sm.classes import Classes
from gpuperf_engine.sass.sm.numbers import SmNumbers
from gpuperf_engine.sass.sm.operations import Operations
from gpuperf_engine.sass.sm.sharing import Group
from gpuperf_engine.sass.sm.simulate import Memory, Simulated, simulate
from gpuperf_engine.sass.sm.streams import Class
from gpuperf_engine.sass.sm.waits import waits_of

__all__ = [
    "NO_IMAGES",
    "TOY",
    "Images",
    "access",
    "arrives",
    "asks",
    "copied",
    "decoded",
    "expects",
    "initial",
    "moves",
    "run",
    "run_roles",
    "waited",
]

TOY = SmNumbers(
    architecture=86,
    sm_count=1,
    parts=4,
    issue_rate=1.0,
    lanes={"fma": 32, "alu": 16, "imad": 16, "xu": 4, "lsu": 4, "adu": 4, "cbu": 16, "fp64": 1, "tensor": 16},
    pipes={"imad": "fma"},
    latencies={"fma": 4, "alu": 4, "imad": 4, "xu": 20, "shuffle": 25, "shared": 25, "barrier": 20, "l1": 30, "l2": 200, "dram": 500,
               "tensor": 30, "tma_l2": 300, "tma_dram": 600, "cluster": 180},
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
    fully_mixed=0.25,
    turnaround=100,
    cta_rate=1.0,
)  # fmt: skip
_REUSE = 105 + 17


@dataclass(frozen=True)
class Images:
    """Fields of ``Memory`` of the same names."""

    texel: int = 4
    fetched: float = 0.0
    stored: float = 0.0
    image_share: float = 1.0


NO_IMAGES = Images()


def decoded(texts: list[str]) -> Listing:
    """Instructions one after the other; ``.reuse`` sets the bit of the operand's slot, and one after ``~`` yields. A number and a
    colon before an instruction are its stall count, else 1."""
    items = []
    for position, given in enumerate(texts):
        stall, _, text = given.rpartition(": ")
        operands = text.split(None, 1)[1].split(", ")[1:] if " " in text else []
        bits = sum(1 << _REUSE + slot for slot, operand in enumerate(operands) if operand.endswith(".reuse"))
        bits |= (int(stall or 1) | (0 if text.startswith("~") else 1 << 4)) << 105
        items.append(Decoded(".text.k", "k", 16 * position, text.removeprefix("~"), 0, bits))
    return Listing(tuple(items), {"k": 0}, frozenset())


@lru_cache(maxsize=64)
def _graph_of(texts: tuple[str, ...]) -> Graph:
    """The same code often runs on one machine after the other."""
    return build_graph(decoded(list(texts)), "k")


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
    changed: dict[int, int] | None = None,
    window: tuple[int, int] | None = None,
    mixed: float = 1.0,
    behind: float = 0.0,
    row_rate: float = 0.0,
    apart: int = 1,
    partial_rate: float = 0.0,
    filled: int = 0,
    drawn: bool = False,
    together: bool = False,
    images: Images = NO_IMAGES,
    l2_kept: float = math.inf,
    l2_lost: float = math.inf,
) -> Simulated:
    """CTAs of so many ``warps``, each of which executes the text once with these accesses; ``changed``: ``Change`` by position;
    ``window``: clocks whose events are kept; ``apart``: lines from one to the next in memory; ``filled``: sectors (bits) of each line
    that are written in part; ``drawn``, ``together``, ``l2_kept`` and ``l2_lost``: as in ``Memory``, and so are ``images``."""
    graph = _graph_of(tuple(texts))
    assert len(graph.blocks) == 1
    parts = [np.array([0, *words, END], np.uint32) for words in warps]
    stream = np.concatenate(parts)
    firsts = np.cumsum([0, *map(len, parts[:-1])])
    starts = (int(stream.ctypes.data) + 4 * firsts).astype(np.int64)
    every = np.full(lines, 15, np.uint8)
    full = np.full(lines, END, np.uint32)
    only = Class(
        stream, starts, np.zeros(lines, np.uint8), apart * np.arange(lines, dtype=np.int64), every, full
    )
    classes = Classes((only,), (Group("global", False, (0, 0, 0)),), {}, (ctas, 1, 1))
    memory = Memory(
        l1_lines, l2_rate, dram_rate, (share,), mixed=mixed, behind=(behind,), row_rate=row_rate, rows=(1.0,),
        partial_rate=partial_rate, filled=(np.full(max(1, lines), filled, np.uint8),),
        drawn=drawn, together=together, l2_kept=l2_kept, l2_lost=l2_lost, texel=images.texel,
        fetched=images.fetched, stored=images.stored,
        image_share=images.image_share,
    )  # fmt: skip
    operations = Operations(graph, numbers)
    operations.change(changed or {})
    return simulate(operations, classes, Copies(), numbers, memory, [0] * ctas, resident, len(warps), window)


def waited(texts: list[str], seen: Simulated, numbers: SmNumbers = TOY) -> dict[tuple[int, str, int], float]:
    """Clocks that warps which ran this text waited, by where, why and for what, but for those in which they issued."""
    operations = Operations(build_graph(decoded(texts), "k"), numbers)
    return {
        (wait.at, wait.cause, wait.on): wait.clocks
        for wait in waits_of(operations, seen)
        if wait.cause != "selected"
    }


def initial(number: int, count: int, rank: int = 0) -> list[int]:
    """What a stream has of ``mbarrier.init`` in the CTA of a rank: the state that ``ptxas`` writes."""
    return [1, number | rank << 8 | 1 << 16, 2 * (2**20 - count)]


def arrives(number: int, lanes: int = 1, rank: int = 0) -> list[int]:
    return [1, number | rank << 8 | lanes << 16, 0]


def expects(number: int, size: int, rank: int = 0) -> list[int]:
    """An arrival that expects bytes."""
    return [1, number | rank << 8 | 1 << 16, size]


def asks(number: int, parity: int, rank: int = 0) -> list[int]:
    return [1, number | rank << 8 | 1 << 16, parity << 31]


def copied(kind: int, number: int = 255, mask: int = 0, rank: int = 0) -> list[int]:
    """A copy of a kind that an mbarrier is told of, to the CTAs of the mask."""
    return [kind | number << 8 | rank << 16, mask]


def moves(size: int, way: int = 0, share: float = 0.0) -> Moved:
    """A kind of copies, of so many bytes."""
    return Moved(size, size // 32, -(-size // 128), way, 0, 0, 1.0, share)


def run_roles(
    roles: list[list[str]],
    warps: list[tuple[int, list[int]]],
    *,
    numbers: SmNumbers = TOY,
    kinds: tuple[Moved, ...] = (),
    mbarriers: int = 8,
    cluster: list[list[tuple[int, list[int]]]] | None = None,
    beside: list[list[tuple[int, list[int]]]] | None = None,
    grid_wait: str = "",
    ctas: int = 1,
    resident: int = 1,
    dram_rate: float = 8.0,
    l2_rate: float = 64.0,
) -> Simulated:
    """CTAs of ``warps``, each of which executes the code of one of the roles once; ``cluster``: the warps of further CTAs of a
    cluster; ``beside``: of further CTAs of the SM, which all run at once; ``grid_wait``: the instruction at which warps wait for the
    grid."""
    every = [*roles, []] if len(roles) == 1 else roles
    texts = [f"@P0 BRA `(.L_{number})" for number in range(1, len(every))]
    places = list[int]()
    for role in every:
        places.append(len(texts))
        texts += [*role, "EXIT"]
    labels = {f".L_{number}": place for number, place in enumerate(places) if number}
    listing = Listing(decoded(texts).instructions, {"k": 0, **labels}, frozenset())
    graph = build_graph(listing, "k")
    graph.grid_waits = frozenset(number for number, text in enumerate(texts) if text == grid_wait)
    blocks = {block.start: block.index for block in graph.blocks}
    first = [blocks[place] for place in places]
    classes = []
    for own in (warps, *(cluster or beside or [])):
        parts = [np.array([0, first[role], *words, END], np.uint32) for role, words in own]
        stream = np.concatenate(parts)
        starts = int(stream.ctypes.data) + 4 * np.cumsum([0, *map(len, parts[:-1])])
        none = np.zeros(0, np.uint8)
        classes.append(
            Class(stream, starts.astype(np.int64), none, np.zeros(0, np.int64), none, none.astype(np.uint32))
        )
    if beside:
        order, resident = list(range(len(classes))), len(classes)
    else:
        order = [0] * ctas
    all_of = Classes(tuple(classes), (), {}, (len(order), 1, 1), cluster=1 if beside else len(classes))
    memory = Memory(1, l2_rate, dram_rate, (), tuple(kind.distinct for kind in kinds))
    copies = Copies(kinds, mbarriers)
    return simulate(Operations(graph, numbers), all_of, copies, numbers, memory, order, resident, len(warps))
