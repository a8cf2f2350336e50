"""Value flow graphs: the published sizes, and a naive replay of random programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpuperf_engine as ge
from tests.engine.running import GLOBAL_THREAD, module

INDEX = f"{GLOBAL_THREAD}\n    mul.wide.u32 %rd9, %r19, 4;"


def elementwise(body: str, *arrays: str) -> ge.Kernel:
    """A kernel whose thread i of those below n finds the addresses of its elements in %rd0 …; names of arrays are parameters."""
    addresses = "".join(
        f"ld.param.u64 %rd{n}, [{name}];\n    add.u64 %rd{n}, %rd{n}, %rd9;\n    "
        for n, name in enumerate(arrays)
    )
    text = module(
        f"""
    {INDEX}
    ld.param.u32 %r18, [n];
    setp.ge.u32 %p1, %r19, %r18;
    @%p1 ret;
    {addresses}{body}
    ret;""",
        ", ".join([*(f".param .u64 {name}" for name in arrays), ".param .u32 n"]),
    )
    return ge.parse(text, path="k.ptx")["k"]


ADD = elementwise(
    "ld.global.u32 %r0, [%rd0];\n ld.global.u32 %r1, [%rd1];\n add.u32 %r2, %r0, %r1;\n st.global.u32 [%rd2], %r2;",
    "left", "right", "sum",
)  # fmt: skip
SAME = elementwise("ld.global.u32 %r0, [%rd1];\n st.global.u32 [%rd0], %r0;", "target", "source")
ADD_ODD = elementwise(
    """and.b32 %r3, %r19, 1;
    setp.eq.u32 %p2, %r3, 0;
    @%p2 ret;
    ld.global.u32 %r0, [%rd0];
    ld.global.u32 %r1, [%rd1];
    add.u32 %r2, %r0, %r1;
    st.global.u32 [%rd2], %r2;""",
    "left", "right", "sum",
)  # fmt: skip


@pytest.fixture
def device(backend: str) -> ge.Device:
    return ge.Device(observe={"memory", "values"}, backend=backend, memory_bytes=1 << 20)


def test_the_published_size_of_a_program_of_copies_and_three_kernels(device: ge.Device) -> None:
    """17 vertices and 20 edges: GVProf's expectation for its sample op_graph_simple, ``python/tests/data_flow_test.py`` of
    github.com/GVProf/GVProf, for a program of the same steps."""
    n = 1000
    host = np.arange(n, dtype=np.uint32)
    left = device.empty(n, np.uint32)
    right = device.empty(n, np.uint32)
    total = device.empty(n, np.uint32)
    left.copy_from(host)
    right.copy_from(host)
    left.copy_from(host)  # redundant
    left[: n // 2].copy_from(right[: n // 2])  # what is there already
    left[n // 2 :].copy_from(left[n // 2 :])
    device.launch(ADD, 4, 256, [left, right, total, n])
    device.launch(SAME, 4, 256, [total, total, n])
    device.launch(ADD_ODD, 4, 256, [left, right, total, n])
    total.numpy()
    graph = ge.flow_graph(device.program)
    assert (len(graph.vertices), len(graph.edges)) == (17, 20)
    writes = [edge for edge in graph.edges if edge.kind == "write"]
    by_launches = [edge for edge in writes if graph.vertices[edge.target].kind == "launch"]
    assert [edge.redundancy for edge in by_launches] == [0, 1, 1]
    kept = graph.drawn()
    assert (len(kept.vertices), len(kept.edges)) == (
        13,
        20,
    )  # without constant, shared, local and managed memory


EXPAND = elementwise(
    """ld.param.u64 %rd10, [mask];
    cvt.u64.u32 %rd11, %r19;
    add.u64 %rd10, %rd10, %rd11;
    ld.global.u8 %r0, [%rd10];
    setp.eq.u32 %p2, %r0, 0;
    @%p2 ret;
    mov.u32 %r1, 0;
    st.global.u8 [%rd10], %r1;
    ld.global.u32 %r2, [%rd0];
    ld.global.u32 %r3, [%rd0+4];
    ld.global.u32 %r4, [%rd1];
    add.u32 %r4, %r4, 1;
NEXT:
    setp.ge.u32 %p3, %r2, %r3;
    @%p3 ret;
    ld.param.u64 %rd2, [edges];
    mul.wide.u32 %rd3, %r2, 4;
    add.u64 %rd2, %rd2, %rd3;
    ld.global.u32 %r5, [%rd2];
    cvt.u64.u32 %rd4, %r5;
    ld.param.u64 %rd5, [visited];
    add.u64 %rd5, %rd5, %rd4;
    ld.global.u8 %r6, [%rd5];
    setp.ne.u32 %p4, %r6, 0;
    @%p4 bra SKIP;
    ld.param.u64 %rd6, [cost];
    mul.wide.u32 %rd7, %r5, 4;
    add.u64 %rd6, %rd6, %rd7;
    st.global.u32 [%rd6], %r4;
    mov.u32 %r7, 1;
    ld.param.u64 %rd8, [updating];
    add.u64 %rd8, %rd8, %rd4;
    st.global.u8 [%rd8], %r7;
SKIP:
    add.u32 %r2, %r2, 1;
    bra NEXT;""",
    "nodes", "cost", "edges", "mask", "updating", "visited",
)  # fmt: skip
COMMIT = elementwise(
    """cvt.u64.u32 %rd11, %r19;
    ld.param.u64 %rd10, [updating];
    add.u64 %rd10, %rd10, %rd11;
    ld.global.u8 %r0, [%rd10];
    setp.eq.u32 %p2, %r0, 0;
    @%p2 ret;
    mov.u32 %r1, 1;
    mov.u32 %r2, 0;
    ld.param.u64 %rd12, [mask];
    add.u64 %rd12, %rd12, %rd11;
    st.global.u8 [%rd12], %r1;
    ld.param.u64 %rd13, [visited];
    add.u64 %rd13, %rd13, %rd11;
    st.global.u8 [%rd13], %r1;
    ld.param.u64 %rd14, [over];
    st.global.u8 [%rd14], %r1;
    st.global.u8 [%rd10], %r2;""",
    "mask", "updating", "visited", "over",
)  # fmt: skip


def test_the_published_size_of_a_breadth_first_search(device: ge.Device) -> None:
    """23 vertices and 41 edges: GVProf's expectation for Rodinia's bfs (same file), for a search of the same steps: six copies
    to the device, then for each level a flag, two kernels, the flag back; at last the costs."""
    size = 60
    neighbours = [[(3 * v + 1) % size, (v + 7) % size] for v in range(size)]
    starts = np.cumsum([0, *map(len, neighbours)]).astype(np.uint32)

    def put(host: Any) -> ge.DeviceArray:
        array = device.empty(len(host), host.dtype)
        return array

    hosts = [
        starts,
        np.array(neighbours, np.uint32).reshape(-1),
        np.arange(size) == 0,
        np.zeros(size, np.bool_),
        np.arange(size) == 0,
        np.where(np.arange(size) == 0, 0, -1).astype(np.int32),
    ]
    nodes = put(hosts[0])
    edges = put(hosts[1])
    mask = put(hosts[2])
    updating = put(hosts[3])
    visited = put(hosts[4])
    cost = put(hosts[5])
    nodes.copy_from(hosts[0])
    edges.copy_from(hosts[1])
    mask.copy_from(hosts[2])
    updating.copy_from(hosts[3])
    visited.copy_from(hosts[4])
    cost.copy_from(hosts[5])
    over = device.empty(1, np.bool_)
    levels, more = 0, True
    while more:
        over.copy_from(np.zeros(1, np.bool_))
        device.launch(EXPAND, 1, 64, [nodes, cost, edges, mask, updating, visited, size])
        device.launch(COMMIT, 1, 64, [mask, updating, visited, over, size])
        more = bool(over.numpy()[0])
        levels += 1
    result = cost.numpy()
    expected = {0: 0}
    for vertex in (queue := [0]):
        for neighbour in neighbours[vertex]:
            if neighbour not in expected:
                expected[neighbour] = expected[vertex] + 1
                queue.append(neighbour)
    assert result.tolist() == [expected.get(v, -1) for v in range(size)] and levels > 3
    graph = ge.flow_graph(device.program)
    assert (len(graph.vertices), len(graph.edges)) == (23, 41)
    assert [vertex.calls for vertex in graph.vertices if vertex.kind == "launch"] == [levels, levels]


_program = st.lists(
    st.tuples(
        st.sampled_from(["copy-in", "copy", "fill", "same", "add", "read"]),
        st.integers(0, 2),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=30, deadline=None)
@given(steps=_program)
def test_against_a_naive_replay(steps: list[tuple[str, int, int]]) -> None:
    """Every call of a kind is made from one line, so vertices are kinds."""
    device = ge.Device(observe={"memory", "values"}, memory_bytes=1 << 20)
    a = device.empty(8, np.uint32, name="a")
    b = device.empty(8, np.uint32, name="b")
    c = device.empty(8, np.uint32, name="c")
    arrays = [a, b, c]
    calls: dict[str, Callable[[Any, Any], object]] = {
        "copy-in": lambda x, y: x.copy_from(np.arange(8, dtype=np.uint32)),
        "copy": lambda x, y: x.copy_from(y),
        "fill": lambda x, y: x.fill(1),
        "same": lambda x, y: device.launch(SAME, 1, 8, [x, y, 8]),
        "add": lambda x, y: device.launch(ADD, 1, 8, [x, y, x, 8]),
        "read": lambda x, y: x.numpy(),
    }
    last = ["made"] * 3
    expected: dict[tuple[str, str, str, str], int] = {}

    def edge(source: str, target: str, of: str, kind: str) -> None:
        key = (source, target, of, kind)
        expected[key] = expected.get(key, 0) + 32

    for kind, x, y in steps:
        if kind == "copy" and x == y:
            continue
        calls[kind](arrays[x], arrays[y])
        reads = {"same": {y}, "add": {x, y}, "copy": {y}, "read": {x}}.get(kind, set())
        for read in reads:
            edge(last[read], kind, "abc"[read], "read")
        if kind == "copy-in":
            edge("host", kind, "host", "read")
        if kind == "read":
            edge(kind, "host", "abc"[x], "sink")
        else:
            edge(last[x], kind, "abc"[x], "write")
            last[x] = kind
    graph = ge.flow_graph(device.program)
    names = {vertex.number: vertex.kind for vertex in graph.vertices}
    for vertex in graph.vertices:
        if vertex.path and vertex.kind != "allocation":
            names[vertex.number] = vertex.path[0].text.partition('"')[2].partition('"')[0]
    names = {number: "made" if name == "allocation" else name for number, name in names.items()}
    assert {
        (names[item.source], names[item.target], item.name, item.kind): item.bytes for item in graph.edges
    } == expected


def test_slices_and_what_is_important(device: ge.Device) -> None:
    a = device.array(np.arange(8, dtype=np.uint32), name="a")
    b = device.array(np.arange(8, dtype=np.uint32) * 7, name="b")
    c = device.empty(8, np.uint32, name="c")
    device.launch(SAME, 1, 8, [c, a, 8])
    b.numpy()
    c.numpy()
    graph = ge.flow_graph(device.program)
    (launch,) = (vertex for vertex in graph.vertices if vertex.kind == "launch")
    part = graph.slice(launch.number)
    assert {edge.name for edge in part.edges} == {"a", "c"}
    assert {vertex.label for vertex in part.vertices} >= {
        "k",
        "host",
        "copy from the host",
        "copy to the host",
    }
    assert part.slice(launch.number) == part
    big = graph.important(33)
    assert big.edges == () and big.vertices == ()
    assert graph.important(32).edges == graph.edges
    reads = graph.important(1, of_edge=lambda edge: edge.kind == "sink")
    assert [edge.name for edge in reads.edges] == ["b", "c"]
    often = graph.important(1e9, 1, of_vertex=lambda vertex: vertex.kind == "launch")
    assert [vertex.label for vertex in often.vertices] == ["k"]


def test_what_fails_comes_first_among_the_findings_of_a_call(device: ge.Device) -> None:
    values = np.arange(64, dtype=np.uint32) % 3
    device.array(values, name="a")
    device.array(values, name="b")
    first, second = ge.flow_graph(device.program).findings.values()
    assert first == ("frequent-values a", "heavy-type a")
    assert second == ("duplicate-values b", "frequent-values b", "heavy-type b")


def test_equal_call_paths_are_one_vertex(device: ge.Device) -> None:
    a, b = device.empty(8, np.uint32, name="a"), device.empty(8, np.uint32, name="b")

    def clear(array: ge.DeviceArray) -> None:
        array.fill(0)

    for _ in range(3):
        clear(a)
    clear(b)
    vertices = [vertex for vertex in ge.flow_graph(device.program).vertices if vertex.kind == "memset"]
    assert [vertex.calls for vertex in vertices] == [3, 1]
    assert [site.function.rpartition(".")[2] for site in vertices[0].path[:2]] == [
        "clear",
        "test_equal_call_paths_are_one_vertex",
    ]


def test_a_device_that_does_not_observe_values() -> None:
    with pytest.raises(ge.NotObserved, match="values"):
        ge.flow_graph(ge.Device().program)
