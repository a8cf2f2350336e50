"""Layout of the boxes, labels and lines of a graph: layers from top to bottom, with a slot for each label and for each line that
crosses a layer, so that nothing overlaps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from .graph import Edge, Node

__all__ = ["CHAR", "LABEL_CHAR", "LINE", "PAD", "Box", "Layout", "Route", "lay_out"]

#: pixels of a character and a line of text, of a character of a label, inside a box
CHAR, LINE, LABEL_CHAR, PAD = 7.3, 15, 6.7, 8
#: between neighbours, below and above a row of boxes, between lines beside each other
_GAP_X, _GAP_Y, _TRACK = 24, 16, 12
_LABEL_ROW = 20
_SWEEPS = 4


@dataclass
class Box:
    """A node, or the slot of a line in a layer that it crosses, with its label if it has one."""

    lines: list[str]
    width: float
    height: float
    x: float = 0.0
    y: float = 0.0

    @property
    def inside(self) -> float:
        """Distance of lines from the left edge; a label is to the right of its line."""
        return self.width / 2 if self.height else 3.0

    @property
    def middle(self) -> float:
        return self.x + self.inside


@dataclass
class Route:
    """The route of an edge: its points from the source box to the target box, and the position of its label. ``back`` edges consist of
    straight lines beside the graph."""

    edge: Edge
    points: list[tuple[float, float]] = field(default_factory=list)
    label: tuple[float, float] = (0.0, 0.0)


@dataclass
class Layout:
    """A complete layout, in pixels."""

    boxes: list[Box]
    routes: list[Route]
    width: float
    height: float


class _Rows:
    """Boxes by layer: even layers have nodes, odd ones labels; a line that crosses a layer has a box in it."""

    def __init__(self, nodes: Sequence[Node], edges: Sequence[Edge]) -> None:
        self.boxes = []
        for node in nodes:
            lines = node.shown()
            self.boxes.append(Box(lines, CHAR * max(map(len, lines)) + 2 * PAD, LINE * len(lines) + 2 * PAD))
        layer = _layers(len(nodes), edges)
        self.rows: dict[int, list[int]] = defaultdict(list)
        for number, row in enumerate(layer):
            self.rows[2 * row].append(number)
        #: by edge its boxes, including both ends
        self.ways: list[list[int]] = []
        for edge in edges:
            way = [edge.source]
            if not edge.back:
                for row in range(2 * layer[edge.source] + 1, 2 * layer[edge.target]):
                    label = edge.label if len(way) == 1 else ""
                    way.append(len(self.boxes))
                    self.boxes.append(Box([label] if label else [], LABEL_CHAR * len(label) + 14, 0))
                    self.rows[row].append(way[-1])
            self.ways.append([*way, edge.target])
        self.row_of = {box: row for row, boxes in self.rows.items() for box in boxes}

    def order(self) -> None:
        """Order the boxes of each layer by the mean position of their neighbours, to reduce crossings."""
        joined: dict[int, list[int]] = defaultdict(list)
        for way in self.ways:
            for upper, lower in pairwise(way):
                if self.row_of[upper] + 1 == self.row_of[lower]:
                    joined[upper].append(lower)
                    joined[lower].append(upper)
        self._spread()
        for sweep in range(_SWEEPS):
            for row in sorted(self.rows, reverse=bool(sweep % 2)):
                beyond = row - 1 if sweep % 2 == 0 else row + 1
                wanted = {}
                for box in self.rows[row]:
                    middles = [self.boxes[n].middle for n in joined[box] if self.row_of[n] == beyond]
                    wanted[box] = sum(middles) / len(middles) if middles else self.boxes[box].middle
                self.rows[row].sort(key=lambda box: (wanted[box], box))
                self._settle(row, wanted)
        least = min((box.x for box in self.boxes), default=0.0)
        for placed in self.boxes:
            placed.x += _GAP_X - least

    def _spread(self) -> None:
        for row, members in self.rows.items():
            self._settle(row, dict.fromkeys(members, 0.0))

    def _settle(self, row: int, wanted: dict[int, float]) -> None:
        """Place the boxes of a row without overlap, as close to the wanted positions as possible."""
        groups: list[tuple[float, float, list[int]]] = []  # start, width, members
        for number in self.rows[row]:
            box = self.boxes[number]
            start, width, members = wanted[number] - box.inside, box.width + _GAP_X, [number]
            while groups and groups[-1][0] + groups[-1][1] > start:
                before, size, others = groups.pop()
                share = len(others) / (len(others) + len(members))
                start = share * before + (1 - share) * (start - size)
                width, members = size + width, [*others, *members]
            groups.append((start, width, members))
        for start, _, members in groups:
            for number in members:
                self.boxes[number].x = start
                start += self.boxes[number].width + _GAP_X


def lay_out(nodes: Sequence[Node], edges: Sequence[Edge]) -> Layout:
    """Compute the layout."""
    rows = _Rows(nodes, edges)
    rows.order()
    leaving, coming = (_tracks(edges, rows, end) for end in ("source", "target"))
    heights = {row: max((rows.boxes[n].height for n in rows.rows[row]), default=0.0) for row in rows.rows}
    y = float(_GAP_Y)
    tops: dict[int, float] = {}
    for row in range(0, max(rows.rows, default=0) + 1, 2):
        y += _TRACK * len(coming.get(row, ()))
        tops[row] = y
        for number in rows.rows.get(row, ()):
            rows.boxes[number].y = y
        below = y + heights.get(row, 0.0) + _GAP_Y + _TRACK * len(leaving.get(row, ()))
        for number in rows.rows.get(row + 1, ()):
            rows.boxes[number].y = below + _LABEL_ROW / 2
        y = below + _LABEL_ROW + _GAP_Y
    right = max((box.x + box.width for box in rows.boxes), default=0.0) + _GAP_X
    routes = _routes(rows, edges, leaving, coming, tops, heights, right)
    backs = sum(edge.back for edge in edges)
    width = right + backs * 2 * _TRACK + (_GAP_X if backs else 0)
    return Layout(rows.boxes[: len(nodes)], routes, width, y - _LABEL_ROW)


def _tracks(edges: Sequence[Edge], rows: _Rows, end: str) -> dict[int, list[int]]:
    """Return by row the back edges with a horizontal line there."""
    tracks: dict[int, list[int]] = defaultdict(list)
    for number, edge in enumerate(edges):
        if edge.back:
            tracks[rows.row_of[getattr(edge, end)]].append(number)
    return tracks


def _routes(
    rows: _Rows,
    edges: Sequence[Edge],
    leaving: dict[int, list[int]],
    coming: dict[int, list[int]],
    tops: dict[int, float],
    heights: dict[int, float],
    right: float,
) -> list[Route]:
    starts = _ports(rows, edges, 0)
    ends = _ports(rows, edges, 1)
    routes = []
    lane = right
    for number, (edge, way) in enumerate(zip(edges, rows.ways)):
        source, target = rows.boxes[edge.source], rows.boxes[edge.target]
        first, last = (starts[number], source.y + source.height), (ends[number], target.y)
        if edge.back:
            row, other = rows.row_of[edge.source], rows.row_of[edge.target]
            low = tops[row] + heights[row] + _GAP_Y / 2 + _TRACK * (leaving[row].index(number) + 0.5)
            high = tops[other] - _GAP_Y / 2 - _TRACK * (coming[other].index(number) + 0.5)
            points = [first, (first[0], low), (lane, low), (lane, high), (last[0], high), last]
            routes.append(Route(edge, points, (lane + 12, (low + high) / 2)))
            lane += 2 * _TRACK
            continue
        passed = [rows.boxes[box] for box in way[1:-1]]
        points = [(first[0], tops[rows.row_of[edge.source]] + heights[rows.row_of[edge.source]])]
        for box, row in zip(passed, range(rows.row_of[edge.source] + 1, rows.row_of[edge.target])):
            # straight down beside a label and through a row of boxes
            upper = box.y - _LABEL_ROW / 2 if row % 2 else tops[row]
            lower = box.y + _LABEL_ROW / 2 if row % 2 else tops[row] + heights[row]
            points += [(box.middle, upper), (box.middle, lower)]
        begins = (
            (passed[0].middle + 6 + edge.width / 2, passed[0].y + 4)
            if passed
            else (first[0] + 8, (first[1] + last[1]) / 2)
        )
        routes.append(Route(edge, [first, *points, last], begins))
    return routes


def _ports(rows: _Rows, edges: Sequence[Edge], end: int) -> list[float]:
    """Return the ports at which edges leave (0) or enter (1) boxes, ordered by the position of the other end."""
    at: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for number, (edge, way) in enumerate(zip(edges, rows.ways)):
        box = (edge.source, edge.target)[end]
        # back edges leave to the right
        beyond = float("inf") if edge.back else rows.boxes[way[1] if end == 0 else way[-2]].middle
        at[box].append((beyond, number))
    ports = [0.0] * len(edges)
    for node, others in at.items():
        left, width = rows.boxes[node].x, rows.boxes[node].width
        for number, (_, which) in enumerate(sorted(others), 1):
            ports[which] = left + width * number / (len(others) + 1)
    return ports


def _layers(count: int, edges: Sequence[Edge]) -> list[int]:
    """The longest way from an entry, over edges that do not close loops. An order of the nodes in which all such edges go
    on exists wherever the back edges were found by dominance; in irreducible graphs the rest goes by index."""
    forward: dict[int, list[int]] = defaultdict(list)
    pending = [0] * count
    for edge in edges:
        if not edge.back and edge.source != edge.target:
            forward[edge.source].append(edge.target)
            pending[edge.target] += 1
    layer = [0] * count
    ready = [node for node in range(count) if pending[node] == 0]
    done: set[int] = set()
    while len(done) < count:
        node = ready.pop(0) if ready else min(set(range(count)) - done)
        if node in done:
            continue
        done.add(node)
        for target in forward[node]:
            if target in done:
                continue
            layer[target] = max(layer[target], layer[node] + 1)
            pending[target] -= 1
            if pending[target] == 0:
                ready.append(target)
    return layer
