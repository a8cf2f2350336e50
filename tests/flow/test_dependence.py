"""Which writes may reach which reads: what can be told apart, and what must not be."""

from __future__ import annotations

import pytest

import gpuperf_engine as ge
from gpuperf_engine.flow.dependence import Aliases, Dependence
from gpuperf_engine.ptx.syntax import Instruction
from gpuperf_engine.simt.program import program_of
from tests.support import head

HEAD = head("8.0", "sm_80")
BEFORE = """.global .align 4 .b8 table[64]; .global .align 4 .b8 others[64]; .const .align 4 .b8 fixed[64];
.shared .align 16 .b8 tile[1024]; .shared .align 16 .b8 sums[64]; .extern .shared .align 16 .b8 more[];
.extern .shared .align 4 .b8 again[];
"""
START = """
    ld.param.u64 %rd0, [a];
    ld.param.u64 %rd1, [b];
    ld.param.u32 %r9, [n];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd2, %r0, 4;
    add.u64 %rd3, %rd0, %rd2;
    add.u64 %rd4, %rd1, %rd2;
    mul.wide.u32 %rd5, %r0, 16;
    add.u64 %rd6, %rd0, %rd5;
    shl.b32 %r1, %r0, 3;
    mov.u32 %r2, tile;
    add.u32 %r3, %r2, %r1;
    mov.u32 %r4, sums;
    cvta.shared.u64 %rd7, %rd8;
"""


def reached(store: str, load: str, aliases: Aliases | None = None, between: str = "") -> bool:
    """Whether a store may reach a load; the load stands first, as another thread or trip may be ahead."""
    text = f"""{HEAD}{BEFORE}.visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n)
{{ .local .align 16 .b8 own[64]; .local .align 16 .b8 stack[64];
   .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<30>; .reg .f32 %f<4>;
{START}{between}
{load}
{store}
ret; }}
"""
    graph = Dependence(program_of(ge.parse(text, path="k.ptx")["k"]))
    (reader, writer) = graph.kernel.instructions[-3:-1]
    assert (reader.opcode, writer.opcode) == (load.split()[0], store.split()[0])
    return writer in set(graph.writers_of(reader, aliases))


@pytest.mark.parametrize(
    ("store", "load", "expected"),
    [
        # state spaces
        ("st.shared.u32 [%r3], %r0;", "ld.global.u32 %r5, [%rd3];", False),
        ("st.shared.u32 [%r3], %r0;", "ld.local.u32 %r5, [own];", False),
        ("st.shared.u32 [%r3], %r0;", "ld.const.u32 %r5, [fixed];", False),
        ("st.shared.u32 [%r3], %r0;", "ld.param.u32 %r5, [n];", False),
        ("st.u32 [%rd9], %r0;", "ld.shared.u32 %r5, [%r3];", True),
        ("st.u32 [%rd9], %r0;", "ld.local.u32 %r5, [own];", True),
        ("st.u32 [%rd9], %r0;", "ld.global.u32 %r5, [%rd3];", True),
        ("st.u32 [%rd3], %r0;", "ld.shared.u32 %r5, [%r3];", False),
        # variables
        ("st.shared.u32 [%r4], %r0;", "ld.shared.u32 %r5, [%r3];", False),
        ("st.shared.u32 [more], %r0;", "ld.shared.u32 %r5, [again];", True),
        ("st.shared.u32 [more], %r0;", "ld.shared.u32 %r5, [tile];", False),
        ("st.local.u32 [stack], %r0;", "ld.local.u32 %r5, [own];", False),
        ("st.global.u32 [table], %r0;", "ld.global.u32 %r5, [others];", True),  # nothing is known of the launch
        ("st.shared.u32 [%r8], %r0;", "ld.shared.u32 %r5, [tile];", True),  # an absolute address
        # offsets
        ("st.local.u32 [own+4], %r0;", "ld.local.u32 %r5, [own];", False),
        ("st.local.u32 [own+4], %r0;", "ld.local.u64 %rd9, [own];", True),
        ("st.local.u8 [own+7], %r0;", "ld.local.u64 %rd9, [own];", True),
        ("st.local.u8 [own+8], %r0;", "ld.local.u64 %rd9, [own];", False),
        ("st.local.v2.u32 [own+8], {%r0, %r1};", "ld.local.u32 %r5, [own+12];", True),
        ("st.global.u32 [%rd0+8], %r0;", "ld.global.u32 %r5, [%rd0+12];", False),
        ("st.global.u32 [%rd0+8], %r0;", "ld.global.u32 %r5, [%rd1+12];", True),
        ("st.global.u32 [%rd3], %r0;", "ld.global.u32 %r5, [%rd0];", True),
        ("st.global.u8 [%rd3+1], %r0;", "ld.global.u8 %r5, [%rd0];", False),
        # members of structures of 8 and 16 bytes, of whatever elements
        ("st.shared.u32 [%r3+4], %r0;", "ld.shared.u32 %r5, [%r3];", False),
        ("st.shared.u32 [%r3+8], %r0;", "ld.shared.u32 %r5, [%r3];", True),
        ("st.shared.u64 [%r3], %rd0;", "ld.shared.u32 %r5, [%r3+4];", True),
        ("st.global.u32 [%rd6+4], %r0;", "ld.global.u32 %r5, [%rd6+8];", False),
        ("st.global.u32 [%rd6+4], %r0;", "ld.global.u32 %r5, [%rd6+-12];", True),
        ("st.global.v2.u32 [%rd6+8], {%r0, %r1};", "ld.global.u32 %r5, [%rd6+12];", True),
        # atomics read and write, copies write shared memory
        ("red.shared.add.u32 [%r3], 1;", "ld.shared.u32 %r5, [tile];", True),
        ("atom.shared.add.u32 %r6, [%r4], 1;", "ld.shared.u32 %r5, [tile];", False),
        ("st.shared.u32 [%r3], %r0;", "atom.shared.add.u32 %r6, [%r2], 1;", True),
        ("cp.async.ca.shared.global [%r3], [%rd3], 8;", "ld.shared.u32 %r5, [%r2];", True),
        ("cp.async.ca.shared.global [%r3], [%rd3], 4;", "ld.shared.u32 %r5, [%r2+4];", False),
        ("cp.async.ca.shared.global [%r3], [%rd3], 8;", "ld.global.u32 %r5, [%rd3];", False),
        ("st.global.u32 [%rd3], %r0;", "cp.async.ca.shared.global [%r3], [%rd3], 8;", True),
        ("st.shared.u32 [%r3], %r0;", "cp.async.ca.shared.global [%r3], [%rd3], 8;", False),
        # not written while the kernel runs
        ("st.global.u32 [%rd3], %r0;", "ld.global.nc.u32 %r5, [%rd3];", False),
    ],
)  # fmt: skip
def test_a_store_and_a_load(store: str, load: str, expected: bool) -> None:
    assert reached(store, load) is expected


@pytest.mark.parametrize(
    ("between", "pointer", "expected"),
    [
        ("", "%rd3", True),
        ("", "%rd4", False),
        ("mov.b64 {%r5, %r6}, %rd1; mov.b64 %rd10, {%r5, %r6};", "%rd10", False),
        ("setp.eq.u32 %p0, %r0, 0; selp.b64 %rd10, %rd0, %rd1, %p0;", "%rd10", True),
        ("mov.u64 %rd10, %rd1; setp.eq.u32 %p0, %r0, 0; @%p0 mov.u64 %rd10, %rd0;", "%rd10", True),
        ("sub.u64 %rd10, %rd0, %rd1; add.u64 %rd10, %rd10, %rd1;", "%rd10", True),
        ("ld.global.u64 %rd10, [%rd1];", "%rd10", True),  # a pointer out of memory
        ("ld.global.u32 %r5, [%rd4]; mul.wide.s32 %rd10, %r5, 4; add.u64 %rd10, %rd1, %rd10;", "%rd10", False),
        ("ld.global.u64 %rd10, [%rd4]; shl.b64 %rd10, %rd10, 2; add.u64 %rd10, %rd1, %rd10;", "%rd10", False),
        ("cvt.u64.u32 %rd10, %r9; add.u64 %rd10, %rd1, %rd10;", "%rd10", False),
        ("shr.u64 %rd10, %rd0, 32; shl.b64 %rd10, %rd10, 32;", "%rd10", True),
        ("shfl.sync.idx.b32 %r5, %r9, 0, 31, -1; cvt.u64.u32 %rd10, %r5; add.u64 %rd10, %rd1, %rd10;", "%rd10", False),
    ],
)  # fmt: skip
def test_parameters_that_point_into_different_arrays(between: str, pointer: str, expected: bool) -> None:
    """The store goes through parameter a; the load through something made of a and b."""
    found = reached("st.global.u32 [%rd3], %r0;", f"ld.global.u32 %r7, [{pointer}];", {0: 0, 8: 1}, between)
    assert found is expected
    same = reached("st.global.u32 [%rd3], %r0;", f"ld.global.u32 %r7, [{pointer}];", {0: 0, 8: 0}, between)
    assert same is True


def test_null_and_integers_are_no_pointers() -> None:
    """A launch without b: an address based on it alone may be anything, as a part of another it is an index."""
    alone = reached("st.global.u32 [%rd3], %r0;", "ld.global.u32 %r7, [%rd4];", {0: 0})
    index = "add.u64 %rd10, %rd0, %rd1;"
    both = reached("st.global.u32 [table], %r0;", "ld.global.u32 %r7, [%rd10];", {0: 0}, index)
    assert (alone, both) == (True, True)


def sliced(text: str, entry: str = "k") -> tuple[Dependence, dict[int, Instruction]]:
    program = program_of(ge.parse(text, path="k.ptx")[entry])
    graph = Dependence(program)
    return graph, {item.span.line: item for function in program.functions for item in function.instructions}


def test_calls_carry_arguments_and_results() -> None:
    text = f"""{HEAD}.func (.param .b32 r) f(.param .b32 p, .reg .b32 %q)
{{ .reg .b32 %a; ld.param.b32 %a, [p];
add.u32 %a, %a, %q;
st.param.b32 [r], %a;
ret; }}
.visible .entry k() {{ .reg .b32 %r<8>; .param .b32 p0; .param .b32 r0;
mov.u32 %r0, %tid.x;
mov.u32 %r1, %tid.y;
st.param.b32 [p0], %r0;
call (r0), f, (p0, %r1);
ld.param.b32 %r2, [r0];
ret; }}
"""
    graph, at = sliced(text)
    found: set[object] = set()
    stack: list[object] = [at[14]]
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += graph.sources(node)  # type: ignore[arg-type]
    assert {at[line] for line in (5, 6, 7, 10, 11, 12)} <= found
    assert at[13] not in found  # the call is not a value: its arguments are


def test_a_carry_flag_that_a_function_finds() -> None:
    """Read before it is written: it is that of the function's last activation."""
    text = f"""{HEAD}.func (.reg .b32 %v) f(.reg .b32 %q)
{{ addc.u32 %v, %q, 0;
add.cc.u32 %q, %q, %q;
ret; }}
.visible .entry k() {{ .reg .b32 %r<4>;
call (%r0), f, (%r1);
ret; }}
"""
    graph, at = sliced(text)
    merges = [node for node in graph.uses[at[5]]]
    assert any(at[6] in getattr(node, "sources", ()) for node in merges)
