"""Thread, warp and branch counts of control-flow shapes, worked out by hand.

In the comments a block is a letter with its number of instructions; lanes are counted per block execution.
"""

from __future__ import annotations

import random

import pytest

from .kernels import HEAD, launch, module
from .replay import EXIT, join_points
from .scalar import Result, run


def counts(result: Result) -> tuple[int, int, int, int]:
    """Thread instructions, warp instructions, branches executed, branches divergent."""
    return (result.thread_instructions, result.warp_instructions, result.branches_executed,
            result.branches_divergent)  # fmt: skip


IF_ELSE = """
    mov.u32 %r0, %tid.x;            // A 3
    setp.lt.u32 %p0, %r0, 8;
    @%p0 bra THEN;
    add.u32 %r1, %r0, 1;            // B 2
    bra JOIN;
THEN:
    add.u32 %r1, %r0, 2;            // C 1
JOIN:
    ret;                            // D 1
"""


def test_if_else_diverges_once() -> None:
    # Warp: A 3 + C 1 + B 2 + D 1 = 7. Threads: A 32·3 + C 8·1 + B 24·2 + D 32·1 = 96 + 8 + 48 + 32 = 184.
    assert counts(launch(IF_ELSE)) == (184, 7, 1, 1)


def test_a_uniform_warp_beside_a_divergent_one() -> None:
    # The second warp goes A B D together: 3 + 2 + 1 = 6, times 32 = 192 threads.
    assert counts(launch(IF_ELSE, block=64)) == (184 + 192, 7 + 6, 2, 1)
    # Three CTAs of it.
    assert counts(launch(IF_ELSE, block=64, grid=3)) == (3 * 376, 3 * 13, 6, 3)


def test_a_partial_warp_counts_its_lanes_only() -> None:
    # Five lanes, all below 8: A C D, uniform: 3 + 1 + 1 = 5 per thread.
    assert counts(launch(IF_ELSE, block=5)) == (25, 5, 1, 0)


def test_counts_per_opcode_line_and_block() -> None:
    result = launch(IF_ELSE)
    # add: 24 lanes in B and 8 in C, each issued once; bra: the guarded one by 32 lanes, the other by 24.
    assert result.opcodes == {"mov.u32": 32, "setp.lt.u32": 32, "bra": 56, "add.u32": 32, "ret": 32}
    assert result.warp_opcodes == {"mov.u32": 1, "setp.lt.u32": 1, "bra": 2, "add.u32": 2, "ret": 1}
    assert result.predicated_on == 184 - 24  # the guard of the branch holds for 8 of 32
    assert sorted(result.thread_blocks.values()) == [8, 24, 32, 32]
    assert sorted(result.warp_blocks.values()) == [1, 1, 1, 1]
    assert result.branch_efficiency == 0.0


def test_nested_divergence() -> None:
    body = """
    mov.u32 %r0, %tid.x;            // A 4
    and.b32 %r1, %r0, 1;
    setp.eq.u32 %p0, %r1, 0;
    @%p0 bra EVEN;
    add.u32 %r2, %r0, 1;            // B 2: 16 odd lanes
    bra JOIN;
EVEN:
    and.b32 %r1, %r0, 2;            // C 3: 16 even lanes
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra QUAD;
    add.u32 %r2, %r0, 2;            // D 2: 8 lanes
    bra INNER;
QUAD:
    add.u32 %r2, %r0, 3;            // E 1: 8 lanes
INNER:
    add.u32 %r2, %r2, 1;            // F 1: 16 lanes, joined
JOIN:
    ret;                            // G 1: 32 lanes
"""
    # Warp: A 4 + C 3 + E 1 + D 2 + F 1 + B 2 + G 1 = 14.
    # Threads: 32·4 + 16·3 + 8·1 + 8·2 + 16·1 + 16·2 + 32·1 = 128 + 48 + 8 + 16 + 16 + 32 + 32 = 280.
    assert counts(launch(body)) == (280, 14, 2, 2)


def test_loop_with_a_trip_count_per_lane() -> None:
    body = """
    mov.u32 %r0, %tid.x;            // A 2
    mov.u32 %r1, 0;
LOOP:
    add.u32 %r1, %r1, 1;            // B 3: lane t goes round t + 1 times
    setp.le.u32 %p0, %r1, %r0;
    @%p0 bra LOOP;
    ret;                            // C 1
"""
    # Warp: the loop runs as often as its longest lane, 32 times: A 2 + 32·3 + C 1 = 99. One lane leaves on
    # each trip; on the last nobody stays behind, so 31 of 32 branches diverge.
    # Threads: 32·2 + 3·(1 + … + 32 = 528) + 32 = 64 + 1584 + 32 = 1680.
    assert counts(launch(body)) == (1680, 99, 32, 31)


def test_loop_with_break() -> None:
    body = """
    mov.u32 %r0, %tid.x;            // A 2
    mov.u32 %r1, 0;
LOOP:
    setp.eq.u32 %p0, %r1, %r0;      // B 2: break when i equals the lane
    @%p0 bra OUT;
    add.u32 %r1, %r1, 1;            // C 3
    setp.lt.u32 %p1, %r1, 4;
    @%p1 bra LOOP;
OUT:
    ret;                            // D 1
"""
    # Both branches join at OUT. Trips i = 0…3: lane i leaves in B (4 divergent of 4); C's branch is uniform
    # on all of them (all back on trips 0…2, all out on trip 3). Warp: 2 + 4·2 + 4·3 + 1 = 23.
    # Threads: B: lanes 0…3 1+2+3+4 = 10 times, 28 others 4 each = 112: 122. C: 0+1+2+3 + 112 = 118.
    # 64 + 2·122 + 3·118 + 32 = 64 + 244 + 354 + 32 = 694.
    assert counts(launch(body)) == (694, 23, 8, 4)


def test_nested_loops() -> None:
    body = """
    mov.u32 %r0, %tid.x;            // A 3
    and.b32 %r0, %r0, 1;
    mov.u32 %r1, 0;
OUTER:
    mov.u32 %r2, 0;                 // B 1
INNER:
    add.u32 %r2, %r2, 1;            // C 3: inner trips = 1 for even lanes, 2 for odd ones
    setp.le.u32 %p0, %r2, %r0;
    @%p0 bra INNER;
    add.u32 %r1, %r1, 1;            // D 3: three outer trips for all
    setp.lt.u32 %p1, %r1, 3;
    @%p1 bra OUTER;
    ret;                            // E 1
"""
    # Per outer trip: B 1, C twice (first divergent, second uniform with 16 lanes), joined in D.
    # Warp: 3 + 3·(1 + 2·3 + 3) + 1 = 34. Branches: 3·(2 + 1) = 9, divergent 3.
    # Threads: 32·3 + 3·(32·1 + (32 + 16)·3 + 32·3) + 32 = 96 + 3·272 + 32 = 944.
    assert counts(launch(body)) == (944, 34, 9, 3)


EARLY_RETURN = """
    mov.u32 %r0, %tid.x;            // A 3
    setp.ge.u32 %p0, %r0, 20;
    @%p0 ret;
    add.u32 %r1, %r0, 1;            // B 2
    ret;
"""


def test_guarded_return_is_a_branch() -> None:
    # Warp: 3 + 2. Threads: 32·3 + 20·2 = 136.
    assert counts(launch(EARLY_RETURN)) == (136, 5, 1, 1)
    # Lanes 32…39 of a second warp all return in A: 3 more, uniform.
    assert counts(launch(EARLY_RETURN, block=40)) == (136 + 24, 8, 2, 1)


def test_an_exit_inside_a_branch_moves_the_join_to_the_end() -> None:
    body = """
    mov.u32 %r0, %tid.x;            // A 3
    setp.lt.u32 %p0, %r0, 16;
    @%p0 bra LOW;
    setp.ge.u32 %p1, %r0, 24;       // B 2: lanes 16..31
    @%p1 exit;
    add.u32 %r1, %r0, 1;            // C 2: lanes 16..23
    bra REST;
LOW:
    add.u32 %r1, %r0, 2;            // D 1: lanes 0..15
REST:
    add.u32 %r1, %r1, 3;            // E 2
    ret;
"""
    # B may leave, so what post-dominates A is the exit alone: E runs once per side.
    # Warp: A 3 + (D 1 + E 2) + (B 2 + C 2 + E 2) = 12; branches: two, both divergent.
    # Threads: 32·3 + 16·1 + 16·2 + 16·2 + 8·2 + 8·2 = 96 + 16 + 32 + 32 + 16 + 16 = 208.
    assert counts(launch(body)) == (208, 12, 2, 2)


def test_indexed_branch_is_one_divergence() -> None:
    body = """
    mov.u32 %r0, %tid.x;            // A 3
    and.b32 %r1, %r0, 3;
TARGETS: .branchtargets T0, T1, T2, T3;
    brx.idx %r1, TARGETS;
T0: add.u32 %r2, %r0, 1;            // B 2
    bra JOIN;
T1: bra JOIN;                       // C 1
T2: add.u32 %r2, %r0, 2;            // D 1, goes on into E
T3: add.u32 %r2, %r0, 3;            // E 1
JOIN:
    ret;                            // F 1
"""
    # Four sides of 8 lanes; the lanes of T2 reach T3 by themselves, so E is issued twice.
    # Warp: 3 + 2 + 1 + (1 + 1) + 1 + 1 = 10. Threads: 96 + 16 + 8 + 8 + 16 + 32 = 176.
    assert counts(launch(body)) == (176, 10, 1, 1)


def test_a_block_shared_by_two_branches_runs_once_per_side() -> None:
    body = """
    mov.u32 %r0, %tid.x;            // A 3     if (tid < 8 || tid >= 24) X else C
    setp.lt.u32 %p0, %r0, 8;
    @%p0 bra SHARED;
    setp.ge.u32 %p1, %r0, 24;       // B 2
    @%p1 bra SHARED;
    add.u32 %r1, %r0, 1;            // C 2
    bra JOIN;
SHARED:
    add.u32 %r1, %r0, 2;            // X 2
    add.u32 %r1, %r1, 2;
JOIN:
    ret;                            // D 1
"""
    # A and B both join at JOIN. X for lanes 0…7, then B for 8…31, X again for 24…31, C for 8…23, D.
    # Warp: 3 + 2 + 2 + 2 + 2 + 1 = 12. Threads: 96 + 8·2 + 24·2 + 8·2 + 16·2 + 32 = 240.
    result = launch(body)
    assert counts(result) == (240, 12, 2, 2)
    assert sorted(result.warp_blocks.values()) == [1, 1, 1, 1, 2]


FUNCTION = """
.func f()
{
    .reg .b32 %q<2>;
    add.u32 %q0, %q0, 1;            // F 2
    ret;
}
.func g()
{
    ret;                            // G 1
}
"""


def test_divergent_call_joins_after_the_call() -> None:
    body = """
    mov.u32 %r0, %tid.x;            // A 3
    setp.lt.u32 %p0, %r0, 8;
    @%p0 call f, ();
    add.u32 %r1, %r0, 1;            // B 2
    ret;
"""
    # A guarded call is no branch. Warp: 3 + F 2 + 2 = 7. Threads: 96 + 8·2 + 32·2 = 176.
    result = launch(body, before=FUNCTION)
    assert counts(result) == (176, 7, 0, 0)
    assert result.predicated_on == 176 - 24


def test_indirect_call_runs_each_function_once() -> None:
    body = """
    mov.u32 %r0, %tid.x;            // A 6
    setp.lt.u32 %p0, %r0, 8;
    mov.u64 %rd0, f;
    mov.u64 %rd1, g;
    selp.b64 %rd2, %rd0, %rd1, %p0;
proto: .callprototype _ ();
    call %rd2, proto;
    ret;                            // B 1
"""
    # Warp: 6 + F 2 + G 1 + 1 = 10. Threads: 192 + 8·2 + 24·1 + 32 = 264.
    assert counts(launch(body, before=FUNCTION)) == (264, 10, 0, 0)


def test_divergence_inside_a_function_ends_with_it() -> None:
    before = """
.func h()
{
    .reg .pred %q; .reg .b32 %t;
    mov.u32 %t, %tid.x;             // H 3
    setp.lt.u32 %q, %t, 8;
    @%q ret;
    add.u32 %t, %t, 1;              // I 2
    ret;
}
"""
    # Warp: call 1 + H 3 + I 2 + ret 1 = 7. Threads: 32 + 96 + 24·2 + 32 = 208.
    assert counts(launch("    call h, ();\n    ret;", before=before)) == (208, 7, 1, 1)


def test_exit_inside_a_function_ends_the_thread() -> None:
    before = """
.func h()
{
    .reg .pred %q; .reg .b32 %t;
    mov.u32 %t, %tid.x;             // H 3
    setp.lt.u32 %q, %t, 8;
    @%q exit;
    ret;                            // I 1
}
"""
    # Lanes 0…7 never come back. Warp: 1 + 3 + 1 + (add, ret) 2 = 7. Threads: 32 + 96 + 24 + 24·2 = 200.
    body = "    call h, ();\n    add.u32 %r0, %r0, 1;\n    ret;"
    assert counts(launch(body, before=before)) == (200, 7, 1, 1)


RECURSION = """
.func (.param .b32 result) total(.param .b32 number)
{
    .reg .pred %q; .reg .b32 %n<4>;
    ld.param.b32 %n0, [number];     // F0 3
    setp.eq.u32 %q, %n0, 0;
    @%q bra BASE;
    sub.u32 %n1, %n0, 1;            // F1 3
    {
    .param .b32 given; .param .b32 back;
    st.param.b32 [given], %n1;
    call.uni (back), total, (given);
    ld.param.b32 %n2, [back];       // F2 3
    }
    add.u32 %n3, %n2, %n0;
    bra.uni DONE;
BASE:
    mov.u32 %n3, 0;                 // F3 1
DONE:
    st.param.b32 [result], %n3;     // F4 2
    ret;
}
"""
RECURSIVE_BODY = """
    .param .b32 one; .param .b32 two;
    mov.u32 %r1, %tid.x;            // A 4
    and.b32 %r2, %r1, 3;
    st.param.b32 [one], %r2;
    call.uni (two), total, (one);
    ld.param.b32 %r0, [two];        // B 1
"""


def test_recursion_to_a_depth_per_lane() -> None:
    # Depths 0…3, eight lanes each. F0 is entered by 32, 24, 16, 8 lanes = 80 in 4 warp executions (the last
    # uniform: 3 of 4 diverge); F1 and F2 by 24 + 16 + 8 = 48 in 3; F3 by 8 in each of 4; F4 like F0.
    # Warp: A 4 + 4·3 + 3·3 + 3·3 + 4·1 + 4·2 + B 1 + ret 1 = 48.
    # Threads: 32·4 + 80·3 + 48·3 + 48·3 + 32·1 + 80·2 + 32 + 32 = 912.
    assert counts(launch(RECURSIVE_BODY + "    ret;", before=RECURSION)) == (912, 48, 4, 3)


def test_guards_that_all_fail_still_count() -> None:
    body = """
    setp.ne.u32 %p0, 0, 0;
    @%p0 add.u32 %r0, %r0, 1;
    @!%p0 add.u32 %r0, %r0, 1;
    @%p0 bra AWAY;
AWAY:
    @%p0 exit;
    ret;
"""
    result = launch(body)
    assert counts(result) == (6 * 32, 6, 2, 0)
    assert result.predicated_on == 3 * 32


def test_targets_that_are_the_same_do_not_diverge() -> None:
    # Taken or not, the lanes go on at the same place.
    body = "    mov.u32 %r0, %tid.x;\n    setp.eq.u32 %p0, %r0, 0;\n    @%p0 bra NEXT;\nNEXT:\n    ret;"
    assert counts(launch(body)) == (4 * 32, 4, 1, 0)
    # The first two entries of the list are one target.
    body = """
    mov.u32 %r0, %tid.x;            // A 4
    and.b32 %r1, %r0, 3;
    min.u32 %r1, %r1, LAST;
TARGETS: .branchtargets SAME, SAME, OTHER;
    brx.idx %r1, TARGETS;
SAME:
    bra JOIN;                       // B 1
OTHER:
    add.u32 %r0, %r0, 1;            // C 1: indices 2 and 3, 16 lanes
JOIN:
    ret;                            // D 1
"""
    assert counts(launch(body.replace("LAST", "1"))) == (128 + 32 + 32, 6, 1, 0)
    assert counts(launch(body.replace("LAST", "2"))) == (128 + 16 + 16 + 32, 7, 1, 1)


def test_where_lanes_join_does_not_depend_on_traps() -> None:
    body = """
    mov.u32 %r0, %tid.x;            // A 3
    setp.lt.u32 %p0, %r0, 16;
    @%p0 bra LOW;
    setp.lt.u32 %p1, %r0, 99;       // B 2
    @%p1 bra FINE;
    trap;                           // never reached
FINE:
    add.u32 %r0, %r0, 1;            // C 2
    bra JOIN;
LOW:
    add.u32 %r0, %r0, 2;            // D 1
JOIN:
    add.u32 %r0, %r0, 3;            // E 2: once, joined
    ret;
"""
    # Warp: 3 + 1 + 2 + 2 + 2 = 10. Threads: 96 + 16·1 + 16·2 + 16·2 + 64 = 240.
    assert counts(launch(body)) == (240, 10, 2, 1)


def test_declarations_and_labels_count_nothing() -> None:
    body = """
    .loc 1 2 3
    { .reg .b32 %inner; .shared .b32 s; mov.u32 %inner, 1; LABEL: }
    .pragma "nounroll";
    bra.uni END;
END:
"""
    # mov and bra; falling off the end returns without an instruction.
    assert counts(launch(body)) == (64, 2, 0, 0)


def test_a_loop_without_end_stops_at_the_budget() -> None:
    with pytest.raises(Exception, match="ran over 1000 instructions"):
        run(module("L: bra L;"), "k", 1, 1, [], max_instructions=1000)


def test_join_points_of_known_graphs() -> None:
    # Diamond 0 → 1, 2 → 3 → exit.
    assert join_points([[1, 2], [3], [3], [EXIT]]) == [3, 3, 3, EXIT]
    # Loop 0 → 1 → 0 or 2; an endless loop 3 → 3 joins nowhere.
    assert join_points([[1], [0, 2], [EXIT], [3]]) == [1, 2, EXIT, EXIT]
    # A side that leaves: 0 → 1, 2; 1 → exit; 2 → 3.
    assert join_points([[1, 2], [EXIT], [3], [EXIT]]) == [EXIT, EXIT, 3, EXIT]
    # A branch into an endless loop joins where the other side goes.
    assert join_points([[1, 2], [1], [EXIT]]) == [2, EXIT, EXIT]


def reachable(successors: list[list[int]], start: int, without: int) -> set[int]:
    """Nodes that can be reached from ``start`` on ways that do not lead through ``without``."""
    seen, stack = {start}, [start]
    while stack:
        node = stack.pop()
        for target in successors[node] if node != EXIT else []:
            if target not in seen and target != without:
                seen.add(target)
                stack.append(target)
    return seen


def test_join_points_of_random_graphs() -> None:
    """By the definition: a node post-dominates another if removing it cuts that off from the exit."""
    rng = random.Random(7)
    for _ in range(150):
        count = rng.randint(1, 9)
        graph = [[rng.randrange(-1, count) for _ in range(rng.randint(1, 2))] for _ in range(count)]
        for node, found in enumerate(join_points(graph)):
            if EXIT not in reachable(graph, node, -2):
                assert found == EXIT
                continue
            after = [d for d in range(count) if d != node and EXIT not in reachable(graph, node, d)]
            # The nearest one is the one from which all others still have to be passed.
            nearest = [d for d in after if all(EXIT not in reachable(graph, d, o) for o in after if o != d)]
            assert found == (nearest[0] if after else EXIT)


def test_two_entries_count_apart() -> None:
    text = HEAD + ".entry a() { ret; }\n.entry b() { .reg .b32 %r; mov.u32 %r, 1; ret; }"
    assert counts(run(text, "a", 1, 32, [])) == (32, 1, 0, 0)
    assert counts(run(text, "b", 1, 32, [])) == (64, 2, 0, 0)
