"""Control-flow shapes with their counts worked out by hand: the yardstick of every emulator here.

In the comments a block is a letter with its number of instructions; lanes are counted per block execution.
"""

from __future__ import annotations

from dataclasses import dataclass

from .kernels import module


@dataclass(frozen=True)
class Shape:
    """A kernel ``k`` without parameters and what a launch of it counts.

    ``counts``: thread instructions, warp instructions, branches executed, branches divergent.
    """

    name: str
    body: str
    counts: tuple[int, int, int, int]
    block: int = 32
    grid: int = 1
    before: str = ""

    @property
    def ptx(self) -> str:
        return module(self.body, before=self.before)


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

EARLY_RETURN = """
    mov.u32 %r0, %tid.x;            // A 3
    setp.ge.u32 %p0, %r0, 20;
    @%p0 ret;
    add.u32 %r1, %r0, 1;            // B 2
    ret;
"""

FUNCTIONS = """
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

SHAPES = [
    # Warp: A 3 + C 1 + B 2 + D 1 = 7. Threads: A 32·3 + C 8·1 + B 24·2 + D 32·1 = 96 + 8 + 48 + 32 = 184.
    Shape("if-else", IF_ELSE, (184, 7, 1, 1)),
    # The second warp goes A B D together: 3 + 2 + 1 = 6, times 32 = 192 threads.
    Shape("if-else beside a uniform warp", IF_ELSE, (184 + 192, 7 + 6, 2, 1), block=64),
    # Three times the one before.
    Shape("if-else in three CTAs", IF_ELSE, (3 * 376, 3 * 13, 6, 3), block=64, grid=3),
    # Five lanes, all below 8: A C D, uniform: 3 + 1 + 1 = 5 per thread.
    Shape("if-else of a partial warp", IF_ELSE, (25, 5, 1, 0), block=5),
    # Warp: A 4 + C 3 + E 1 + D 2 + F 1 + B 2 + G 1 = 14.
    # Threads: 32·4 + 16·3 + 8·1 + 8·2 + 16·1 + 16·2 + 32·1 = 128 + 48 + 8 + 16 + 16 + 32 + 32 = 280.
    Shape(
        "nested divergence",
        """
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
""",
        (280, 14, 2, 2),
    ),
    # Warp: the loop runs as often as its longest lane, 32 times: A 2 + 32·3 + C 1 = 99. One lane leaves on
    # each trip; on the last nobody stays behind, so 31 of 32 branches diverge.
    # Threads: 32·2 + 3·(1 + … + 32 = 528) + 32 = 64 + 1584 + 32 = 1680.
    Shape(
        "loop with a trip count per lane",
        """
    mov.u32 %r0, %tid.x;            // A 2
    mov.u32 %r1, 0;
LOOP:
    add.u32 %r1, %r1, 1;            // B 3: lane t goes round t + 1 times
    setp.le.u32 %p0, %r1, %r0;
    @%p0 bra LOOP;
    ret;                            // C 1
""",
        (1680, 99, 32, 31),
    ),
    # Both branches join at OUT. Trips i = 0…3: lane i leaves in B (4 divergent of 4); C's branch is uniform
    # on all of them (all back on trips 0…2, all out on trip 3). Warp: 2 + 4·2 + 4·3 + 1 = 23.
    # Threads: B: lanes 0…3 1+2+3+4 = 10 times, 28 others 4 each = 112: 122. C: 0+1+2+3 + 112 = 118.
    # 64 + 2·122 + 3·118 + 32 = 64 + 244 + 354 + 32 = 694.
    Shape(
        "loop with break",
        """
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
""",
        (694, 23, 8, 4),
    ),
    # Per outer trip: B 1, C twice (first divergent, second uniform with 16 lanes), joined in D.
    # Warp: 3 + 3·(1 + 2·3 + 3) + 1 = 34. Branches: 3·(2 + 1) = 9, divergent 3.
    # Threads: 32·3 + 3·(32·1 + (32 + 16)·3 + 32·3) + 32 = 96 + 3·272 + 32 = 944.
    Shape(
        "nested loops",
        """
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
""",
        (944, 34, 9, 3),
    ),
    # A guarded return is a branch. Warp: 3 + 2. Threads: 32·3 + 20·2 = 136.
    Shape("guarded return", EARLY_RETURN, (136, 5, 1, 1)),
    # Lanes 32…39 of a second warp all return in A: 3 more, uniform.
    Shape("guarded return of whole warps", EARLY_RETURN, (136 + 24, 8, 2, 1), block=40),
    # B may leave, so what post-dominates A is the exit alone: E runs once per side.
    # Warp: A 3 + (D 1 + E 2) + (B 2 + C 2 + E 2) = 12; branches: two, both divergent.
    # Threads: 32·3 + 16·1 + 16·2 + 16·2 + 8·2 + 8·2 = 96 + 16 + 32 + 32 + 16 + 16 = 208.
    Shape(
        "an exit inside a branch moves the join to the end",
        """
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
""",
        (208, 12, 2, 2),
    ),
    # Four sides of 8 lanes; the lanes of T2 reach T3 by themselves, so E is issued twice.
    # Warp: 3 + 2 + 1 + (1 + 1) + 1 + 1 = 10. Threads: 96 + 16 + 8 + 8 + 16 + 32 = 176.
    Shape(
        "indexed branch is one divergence",
        """
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
""",
        (176, 10, 1, 1),
    ),
    # Warp: 6 + F 2 + G 1 + 1 = 10. Threads: 192 + 8·2 + 24·1 + 32 = 264.
    Shape(
        "indirect call runs each function once",
        """
    mov.u32 %r0, %tid.x;            // A 6
    setp.lt.u32 %p0, %r0, 8;
    mov.u64 %rd0, f;
    mov.u64 %rd1, g;
    selp.b64 %rd2, %rd0, %rd1, %p0;
proto: .callprototype _ ();
    call %rd2, proto;
    ret;                            // B 1
""",
        (264, 10, 0, 0),
        before=FUNCTIONS,
    ),
    # Warp: 3 + 1 + 2 + 2 + 2 = 10. Threads: 96 + 16·1 + 16·2 + 16·2 + 64 = 240.
    Shape(
        "where lanes join does not depend on traps",
        """
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
""",
        (240, 10, 2, 1),
    ),
    # mov and bra; falling off the end returns without an instruction.
    Shape(
        "declarations and labels count nothing",
        """
    .loc 1 2 3
    { .reg .b32 %inner; .shared .b32 s; mov.u32 %inner, 1; LABEL: }
    .pragma "nounroll";
    bra.uni END;
END:
""",
        (64, 2, 0, 0),
    ),
    # A and B both join at JOIN. X for lanes 0…7, then B for 8…31, X again for 24…31, C for 8…23, D.
    # Warp: 3 + 2 + 2 + 2 + 2 + 1 = 12. Threads: 96 + 8·2 + 24·2 + 8·2 + 16·2 + 32 = 240.
    Shape(
        "block shared by two branches",
        """
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
""",
        (240, 12, 2, 2),
    ),
    # A guarded call is not a branch. Warp: 3 + F 2 + 2 = 7. Threads: 96 + 8·2 + 32·2 = 176.
    Shape(
        "divergent call joins after the call",
        """
    mov.u32 %r0, %tid.x;            // A 3
    setp.lt.u32 %p0, %r0, 8;
    @%p0 call f, ();
    add.u32 %r1, %r0, 1;            // B 2
    ret;
""",
        (176, 7, 0, 0),
        before=FUNCTIONS,
    ),
    # Warp: call 1 + H 3 + I 2 + ret 1 = 7. Threads: 32 + 96 + 24·2 + 32 = 208.
    Shape(
        "divergence inside a function ends with it",
        """    call h, ();
    ret;""",
        (208, 7, 1, 1),
        before="""
.func h()
{
    .reg .pred %q; .reg .b32 %t;
    mov.u32 %t, %tid.x;             // H 3
    setp.lt.u32 %q, %t, 8;
    @%q ret;
    add.u32 %t, %t, 1;              // I 2
    ret;
}
""",
    ),
    # Lanes 0…7 never come back. Warp: 1 + 3 + 1 + (add, ret) 2 = 7. Threads: 32 + 96 + 24 + 24·2 = 200.
    Shape(
        "exit inside a function ends the thread",
        """    call h, ();
    add.u32 %r0, %r0, 1;
    ret;""",
        (200, 7, 1, 1),
        before="""
.func h()
{
    .reg .pred %q; .reg .b32 %t;
    mov.u32 %t, %tid.x;             // H 3
    setp.lt.u32 %q, %t, 8;
    @%q exit;
    ret;                            // I 1
}
""",
    ),
    # Depths 0…3, eight lanes each. F0 is entered by 32, 24, 16, 8 lanes = 80 in 4 warp executions (the last
    # uniform: 3 of 4 diverge); F1 and F2 by 24 + 16 + 8 = 48 in 3; F3 by 8 in each of 4; F4 like F0.
    # Warp: A 4 + 4·3 + 3·3 + 3·3 + 4·1 + 4·2 + B 1 + ret 1 = 48.
    # Threads: 32·4 + 80·3 + 48·3 + 48·3 + 32·1 + 80·2 + 32 + 32 = 912.
    Shape("recursion to a depth per lane", RECURSIVE_BODY + "    ret;", (912, 48, 4, 3), before=RECURSION),
    # Six instructions that all lanes get to; the branches are uniform.
    Shape(
        "guards that all fail",
        """
    setp.ne.u32 %p0, 0, 0;
    @%p0 add.u32 %r0, %r0, 1;
    @!%p0 add.u32 %r0, %r0, 1;
    @%p0 bra AWAY;
AWAY:
    @%p0 exit;
    ret;
""",
        (6 * 32, 6, 2, 0),
    ),
    # Taken or not, the lanes go on at the same place: no divergence.
    Shape(
        "branch to the next instruction",
        """
    mov.u32 %r0, %tid.x;
    setp.eq.u32 %p0, %r0, 0;
    @%p0 bra NEXT;
NEXT:
    ret;
""",
        (4 * 32, 4, 1, 0),
    ),
    # The first two entries of the list are one target. Warp: A 4 + B 1 + D 1.
    Shape(
        "indexed branch to one target",
        """
    mov.u32 %r0, %tid.x;            // A 4
    and.b32 %r1, %r0, 3;
    min.u32 %r1, %r1, 1;
TARGETS: .branchtargets SAME, SAME, OTHER;
    brx.idx %r1, TARGETS;
SAME:
    bra JOIN;                       // B 1
OTHER:
    add.u32 %r0, %r0, 1;            // C 1: indices 2 and 3, 16 lanes
JOIN:
    ret;                            // D 1
""",
        (128 + 32 + 32, 6, 1, 0),
    ),
    # Warp: A 4 + B 1 + C 1 + D 1. Threads: 128 + 16 + 16 + 32.
    Shape(
        "indexed branch to two targets of three entries",
        """
    mov.u32 %r0, %tid.x;            // A 4
    and.b32 %r1, %r0, 3;
    min.u32 %r1, %r1, 2;
TARGETS: .branchtargets SAME, SAME, OTHER;
    brx.idx %r1, TARGETS;
SAME:
    bra JOIN;                       // B 1
OTHER:
    add.u32 %r0, %r0, 1;            // C 1: indices 2 and 3, 16 lanes
JOIN:
    ret;                            // D 1
""",
        (128 + 16 + 16 + 32, 7, 1, 1),
    ),
]
