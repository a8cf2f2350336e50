"""Pictures of graphs: nothing covers anything else, whatever the graph."""

from __future__ import annotations

import random
from xml.etree import ElementTree

import pytest

from pytest_gpuperf.report.drawing import to_svg
from pytest_gpuperf.report.graph import Edge, Node
from pytest_gpuperf.report.layout import LABEL_CHAR, lay_out

Rectangle = tuple[float, float, float, float]


def graph(seed: int) -> tuple[list[Node], list[Edge]]:
    drawn = random.Random(seed)
    count = drawn.randint(1, 12)
    nodes = [Node(f"node {n}", ("x" * drawn.randint(1, 40),) * drawn.randint(0, 4)) for n in range(count)]
    edges = []
    for _ in range(drawn.randint(0, 2 * count)):
        source, target = drawn.randrange(count), drawn.randrange(count)
        edges.append(
            Edge(
                source,
                target,
                "label" * drawn.randint(0, 4),
                back=target <= source,
                width=drawn.uniform(1, 5),
            )
        )
    return nodes, edges


def apart(one: Rectangle, other: Rectangle) -> bool:
    return one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


@pytest.mark.parametrize("seed", range(40))
def test_boxes_labels_and_lines_do_not_cover_each_other(seed: int) -> None:
    nodes, edges = graph(seed)
    layout = lay_out(nodes, edges)
    boxes = [(box.x, box.y, box.x + box.width, box.y + box.height) for box in layout.boxes]
    labels: list[Rectangle] = []
    for route in layout.routes:
        (x, y), length = route.label, LABEL_CHAR * len(route.edge.label)
        if length and not route.edge.back:
            labels.append((x, y - 9, x + length, y + 2))
    things = [*boxes, *labels]
    assert all(apart(one, other) for n, one in enumerate(things) for other in things[:n])
    assert all(
        x1 >= 0 and y1 >= 0 and x2 <= layout.width and y2 <= layout.height for x1, y1, x2, y2 in things
    )
    for route in layout.routes:
        for (x1, y1), (x2, y2) in zip(route.points, route.points[1:]):
            # curves stay between the heights of their ends, and boxes are left and come to at their edges
            line = min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)
            assert all(apart(line, box) for box in boxes), route


def test_a_picture_needs_nothing_else() -> None:
    nodes, edges = graph(3)
    legend = [(Edge(0, 0, wasted=True), "wasted & more")]
    text = to_svg("k", nodes, edges, legend=legend)
    root = ElementTree.fromstring(text)
    assert "script" not in text and "http" not in text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "prefers-color-scheme:dark" in text and "wasted &amp; more" in text
    assert len(root.findall("{*}rect")) == len(nodes)
    assert [float(part) for part in root.get("viewBox", "").split()][2:] == [
        float(root.get("width", 0)), float(root.get("height", 0))
    ]  # fmt: skip
