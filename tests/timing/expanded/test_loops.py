"""Which loops are unrolled, against the machine code of an assembler."""

from __future__ import annotations

import pytest

import gpuperf_engine as ge
from gpuperf_engine.sass.assemble import assemble
from gpuperf_engine.sass.disassemble import disassemble
from gpuperf_engine.simt.program import program_of
from gpuperf_engine.timing.expanded.launch import rewritten
from gpuperf_engine.timing.expanded.unrolling import unrolled
from tests.support import head, needs_assembler

from .rewritten import kernel, looped

PRODUCT = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {sums}, {{%r10, %r11, %r12, %r13}}, {{%r14, %r15}}, {sums};"
LOADED = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r5];"


def of_kind(kind: str, count: int) -> str:
    """So many instructions of one kind, with what keeps them."""
    lines = {
        "products": [PRODUCT.format(sums=f"{{%f{4 * (at % 4)}, %f{4 * (at % 4) + 1}, %f{4 * (at % 4) + 2}, %f{4 * (at % 4) + 3}}}")
                     for at in range(count)],
        "loads of matrices": [LOADED + PRODUCT.format(sums="{%f0, %f1, %f2, %f3}") + "add.u32 %r5, %r5, 16;" for _ in range(count)],
        "exchanges": [f"shfl.sync.bfly.b32 %r10, %r9, {at % 5 + 1}, 31, -1; add.u32 %r9, %r9, %r10;" for at in range(count)],
        "waits of lanes": ["add.f32 %f0, %f0, %f1; bar.warp.sync -1;"] * count,
        "barriers": ["ld.shared.f32 %f1, [%r5]; bar.sync 0;", *["fma.rn.f32 %f0, %f0, %f1, %f2;"] * count,
                     "st.shared.f32 [%r5], %f0; bar.sync 0;"],
        "copies": [*[f"cp.async.ca.shared.global [%r5+{16 * at}], [%rd0+{16 * at}], 16;" for at in range(count)],
                   "cp.async.commit_group; add.u32 %r5, %r5, 16; add.s64 %rd0, %rd0, 512;"],
        "stores": [*[f"st.global.f32 [%rd0+{4 * at}], %f{at % 16};" for at in range(count)], "add.s64 %rd0, %rd0, 512;"],
        "atomics": [*[f"red.global.add.u32 [%rd0+{4 * at}], %r9;" for at in range(count)], "add.s64 %rd0, %rd0, 512;"],
    }  # fmt: skip
    return "\n".join(lines[kind])


OPCODES = {
    "products": "HMMA", "loads of matrices": "LDSM", "exchanges": "SHFL", "waits of lanes": "FADD", "barriers": "FFMA",
    "copies": "LDGSTS", "stores": "STG", "atomics": "RED",
}  # fmt: skip


@needs_assembler
@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("products", [(1, 64), (16, 8), (64, 2), (2, 0), (8, 0), (10, 0), (24, 0)]),
        ("loads of matrices", [(1, 16), (4, 64), (16, 8), (2, 0), (8, 0), (24, 0)]),
        ("exchanges", [(1, 2), (4, 16), (1, 0), (8, 0)]),
        ("waits of lanes", [(1, 2), (8, 16), (2, 0)]),
        ("barriers", [(2, 4), (1, 0), (6, 0), (32, 0)]),
        ("copies", [(1, 8), (8, 16), (2, 0), (4, 0), (6, 0), (8, 0)]),
        ("stores", [(1, 16), (8, 16), (1, 0), (8, 0), (10, 0), (24, 0)]),
        ("atomics", [(1, 8), (4, 8), (8, 8), (16, 4), (1, 0), (2, 0), (4, 0)]),
    ],
)
def test_loops_are_unrolled_as_by_the_assembler(kind: str, sizes: list[tuple[int, int]]) -> None:
    """Loops of instructions of one kind: their number and that of iterations, which 0 leaves open."""
    for count, trips in sizes:
        body = of_kind(kind, count) + "add.s32 %r2, %r2, 1;"
        test = f"setp.lt.s32 %p1, %r2, {trips or '%r1'};"
        before = "mov.u32 %r2, 0; mov.u32 %r5, tile; mov.u32 %r9, %r0; .reg .f32 %f<16>;"
        after = (
            "".join(f"st.global.f32 [%rd1+{128 * at}], %f{at};" for at in range(16))
            + "st.global.u32 [%rd1+4096], %r9;"
        )
        source = kernel(looped(body, test, before, after)).replace(".reg .f32 %f<8>;", "")
        entry = ge.parse(source, path="k.ptx")["k"]
        listing = disassemble(assemble(entry, "sm_86"))
        theirs = sum(item.base == OPCODES[kind] for item in listing.instructions)
        made = unrolled(program_of(entry), 86)
        if kind == "stores":
            theirs -= 17  # behind the loop
        assert (made is not None) == (theirs > count), (kind, count, trips, theirs)


def loaded(kind: str, loads: int, products: int) -> str:
    """``loads`` loads with an addition each, and multiply-adds."""
    kind = kind.partition(" ")[0]
    where = {"shared": "%r5", "const": "%rd5", "global": "%rd0"}[kind]
    step = f"add.{'u32' if kind == 'shared' else 's64'} {where}, {where}, 1024;"
    lines = [
        f"ld.{kind}.f32 %f{16 + at}, [{where}+{20 * at}]; add.f32 %f{at % 16}, %f{at % 16}, %f{16 + at};"
        for at in range(loads)
    ]
    lines += [
        f"fma.rn.f32 %f{at % 16}, %f{at % 16}, %f{(at + 1) % 16}, %f{(at + 2) % 16};"
        for at in range(products)
    ]
    return "\n".join([*lines, step])


#: Loads from memory of one kind in a loop, from constant addresses or by lane, → multiply-adds, iterations (0: any number), and how
#: many copies of these ptxas 13.0 makes for sm_86 and for sm_90, with the rest of an unknown number.
COPIES: dict[tuple[str, int], list[tuple[int, int, int, int]]] = {
    ("shared", 0): [
        (50, 8, 8, 8), (70, 8, 4, 4), (96, 4, 4, 4), (110, 4, 1, 1), (160, 2, 2, 2), (32, 16, 16, 16), (36, 16, 8, 8), (16, 0, 7, 7),
        (20, 0, 1, 1), (70, 256, 4, 4), (80, 256, 1, 1), (5, 400, 70, 70), (3, 512, 512, 512), (3, 1024, 106, 106),
    ],
    ("shared", 1): [
        (52, 8, 8, 8), (60, 8, 8, 4), (80, 8, 8, 1), (92, 4, 4, 4), (100, 4, 4, 1), (130, 4, 4, 1), (18, 32, 32, 32), (30, 32, 32, 8),
        (18, 0, 7, 7), (24, 0, 1, 1),
    ],
    ("shared", 8): [
        (30, 8, 8, 8), (40, 8, 8, 4), (190, 8, 8, 1), (8, 16, 16, 16), (20, 16, 16, 6), (130, 16, 16, 1), (32, 0, 7, 7), (38, 0, 1, 1),
    ],
    ("shared", 16): [
        (6, 8, 8, 8), (16, 8, 8, 4), (48, 8, 8, 1), (64, 8, 8, 1), (64, 16, 16, 1), (46, 0, 7, 7), (52, 0, 1, 1),
    ],
    ("shared by lane", 1): [(52, 8, 8, 8), (56, 8, 4, 4), (28, 16, 16, 16), (34, 16, 8, 8), (20, 0, 7, 7)],
    ("shared by lane", 8): [
        (30, 8, 8, 8), (36, 8, 4, 4), (90, 8, 1, 1), (8, 16, 16, 16), (12, 16, 8, 8), (64, 16, 1, 1), (32, 0, 7, 7), (38, 0, 1, 1),
    ],
    ("const", 1): [(80, 8, 8, 8), (92, 8, 1, 1), (52, 16, 16, 16), (60, 16, 4, 4), (14, 0, 7, 7), (18, 0, 1, 1)],
    ("const", 8): [
        (190, 8, 8, 8), (240, 8, 1, 1), (130, 16, 16, 16), (145, 16, 1, 1), (46, 256, 4, 4), (52, 256, 1, 1), (6, 0, 1, 1),
    ],
    ("const by lane", 8): [(30, 8, 8, 8), (36, 8, 4, 4), (8, 16, 16, 16), (12, 16, 8, 8)],
    ("shared by lane within a loop", 2): [(80, 8, 8, 1), (110, 8, 1, 1), (50, 16, 16, 6), (75, 16, 1, 1)],
    ("shared by lane within a loop", 8): [(140, 8, 8, 1), (170, 8, 1, 1), (90, 16, 16, 1), (115, 16, 1, 1)],
    ("shared by lane within a loop of branches", 2): [(80, 8, 1, 1), (50, 16, 6, 6)],
    ("shared within a loop", 8): [(140, 8, 8, 1), (170, 8, 1, 1)],
    ("shared within a loop of branches", 2): [(80, 8, 8, 1), (50, 16, 16, 6)],
    ("const within a loop of branches", 8): [(140, 8, 8, 8), (190, 8, 1, 1)],
    ("global", 1): [
        (52, 8, 8, 8), (60, 8, 4, 4), (92, 4, 4, 4), (100, 4, 1, 1), (18, 32, 32, 32), (40, 0, 7, 7), (46, 0, 1, 1),
    ],
    ("global", 8): [
        (30, 8, 8, 8), (40, 8, 4, 4), (8, 16, 16, 16), (14, 16, 8, 8), (20, 0, 7, 7), (26, 0, 1, 1), (46, 256, 4, 4), (52, 256, 1, 1),
    ],
}  # fmt: skip


def with_loads(kind: str, loads: int, products: int, trips: int, architecture: int) -> ge.Kernel:
    before = "mov.u32 %r6, tile; mov.u64 %rd6, words; mov.u32 %r9, %r0; .reg .f32 %f<64>;"
    if "by lane" in kind:
        before = (
            before.replace("%r6,", "%r8,").replace("%rd6,", "%rd8,")
            + "shl.b32 %r10, %r0, 2; add.u32 %r6, %r8, %r10;"
        )
        before += "cvt.u64.u32 %rd10, %r10; add.s64 %rd6, %rd8, %rd10;"
    after = "".join(f"st.global.f32 [%rd1+{128 * at}], %f{at};" for at in range(16))
    if "within" in kind:
        # Between barriers is a store, or two that some lanes leave out.
        stored = "st.shared.f32 [%r6+16], %f0;"
        if kind.endswith("branches"):
            stored = f"setp.gt.s32 %p3, %r0, %r1; @%p3 bra M; {stored} {stored} M:"
        before += f"mov.u32 %r7, 0; N: bar.sync 0; {stored} bar.sync 0;"
        after = "add.u32 %r7, %r7, 1; setp.lt.u32 %p2, %r7, %r1; @%p2 bra N;" + after
    before += "mov.u32 %r2, 0; mov.u32 %r5, %r6; mov.u64 %rd5, %rd6;"
    body = loaded(kind, loads, products) + "add.s32 %r2, %r2, 1;"
    looping = looped(body, f"setp.lt.s32 %p1, %r2, {trips or '%r1'};", before, after)
    text = kernel(looping, ".const .align 4 .b8 words[32768];\n")
    source = text.replace(".reg .f32 %f<8>;", "").replace("sm_80", f"sm_{architecture}")
    return ge.parse(source, path="k.ptx")["k"]


@pytest.mark.parametrize("architecture", [86, 90])
@pytest.mark.parametrize(("kind", "loads"), COPIES)
def test_how_often_a_loop_is_copied(kind: str, loads: int, architecture: int) -> None:
    """All iterations, some of them, or one. Loops with loads from constant addresses may be larger, from 9.0 on not with those of
    shared memory."""
    for products, trips, *copies in COPIES[kind, loads]:
        theirs, own = copies[architecture == 90], 1
        made = unrolled(program_of(with_loads(kind, loads, products, trips, architecture)), architecture)
        if made is not None:
            own = sum(item.opcode == "fma.rn.f32" for item in made.kernel.instructions) // products
        if theirs in (1, trips):
            assert own == theirs, (products, trips)
        elif trips == 0:
            assert own == 5, (products, "four and the rest, which ptxas unrolls again")
        else:
            assert theirs / 2 <= own <= theirs and trips % own == 0, (products, trips, own, theirs)


@needs_assembler
@pytest.mark.parametrize("architecture", [86, 90])
@pytest.mark.parametrize(("kind", "loads"), COPIES)
def test_the_assembler_copies_loops_as_often(kind: str, loads: int, architecture: int) -> None:
    for products, trips, *copies in COPIES[kind, loads]:
        entry = with_loads(kind, loads, products, trips, architecture)
        listing = disassemble(assemble(entry, f"sm_{architecture}"))
        made = sum(item.base == "FFMA" for item in listing.instructions)
        assert made == products * copies[architecture == 90], (products, trips)


#: Divisions and roots, → multiply-adds, and whether ptxas 13.0 makes 8 iterations with them straight code for sm_80 and sm_90. Loops
#: that call a routine for some operands stay.
DIVISIONS = {
    "div.rn.f32 %f0, %f0, %f1;": {0: False},
    "sqrt.rn.f32 %f0, %f0;": {0: False},
    "rcp.rn.f32 %f0, %f0;": {0: False},
    "ex2.approx.f32 %f0, %f0;": {36: True, 48: False},
    "rsqrt.approx.f32 %f0, %f0;": {36: True, 48: False},
    "div.approx.f32 %f0, %f0, %f1;": {36: True, 48: False},
    "div.full.f32 %f0, %f0, %f1;": {30: True, 42: False},
    "sqrt.approx.f32 %f0, %f0;": {36: True, 48: False},
    "cvt.f64.f32 %g0, %f0; div.rn.f64 %g0, %g0, %g1; cvt.rn.f32.f64 %f0, %g0;": {0: False},
    "cvt.u64.u32 %rd8, %r9; div.u64 %rd8, %rd8, %rd0; cvt.u32.u64 %r9, %rd8;": {0: False},
    "div.u32 %r9, %r9, %r1;": {0: True, 22: True, 34: False},
    "rem.u32 %r9, %r9, %r1;": {24: True, 38: False},
    "div.s32 %r9, %r9, %r1;": {16: True, 28: False},
    "rem.s32 %r9, %r9, %r1;": {18: True, 30: False},
}


def divided(division: str, products: int, architecture: int) -> ge.Kernel:
    before = "mov.u32 %r2, 0; mov.u32 %r9, %r1; .reg .f32 %f<8>; .reg .f64 %g<2>;" + "".join(
        f"ld.global.f32 %f{at}, [%rd0+{4 * at}];" for at in range(4)
    )
    before += "cvt.f64.f32 %g1, %f1;"
    body = (
        division
        + "fma.rn.f32 %f2, %f2, %f1, %f3; lg2.approx.f32 %f2, %f2; popc.b32 %r9, %r9; add.u32 %r9, %r9, 77;"
    )
    body += "fma.rn.f32 %f0, %f0, %f1, %f2;" * products + "add.s32 %r2, %r2, 1;"
    after = "st.global.f32 [%rd1], %f0; st.global.f32 [%rd1+128], %f2; st.global.u32 [%rd1+256], %r9;"
    text = kernel(looped(body, "setp.lt.s32 %p1, %r2, 8;", before, after))
    source = text.replace(".reg .f32 %f<8>;", "", 1).replace("sm_80", f"sm_{architecture}")
    return ge.parse(source, path="k.ptx")["k"]


@pytest.mark.parametrize("architecture", [80, 90])
@pytest.mark.parametrize("division", DIVISIONS)
def test_loops_with_divisions(division: str, architecture: int) -> None:
    for products, straight in DIVISIONS[division].items():
        made = unrolled(program_of(divided(division, products, architecture)), architecture)
        copies = (
            1 if made is None else sum(item.opcode == "lg2.approx.f32" for item in made.kernel.instructions)
        )
        assert (copies == 8) is straight, products
        assert straight or copies == 1 or products


@needs_assembler
@pytest.mark.parametrize("architecture", [80, 90])
@pytest.mark.parametrize("division", DIVISIONS)
def test_the_assembler_leaves_loops_with_calls(division: str, architecture: int) -> None:
    for products, straight in DIVISIONS[division].items():
        listing = disassemble(assemble(divided(division, products, architecture), f"sm_{architecture}"))
        copies = sum(item.opcode.startswith("MUFU.LG2") for item in listing.instructions)
        assert (copies == 8) is straight, (products, copies)


def test_an_address_may_depend_on_thousands_of_instructions() -> None:
    """Loads from it let the loop be larger if it is a constant, but not if it differs between lanes."""
    numbers = range(3000)
    chain = "".join(f"add.u32 %q{at + 1}, %q{at}, 4;" for at in numbers)
    for start, copies in (("mov.u32 %q0, tile;", 8), ("mov.u32 %q0, %tid.x;", 4)):
        before = f".reg .b32 %q<{len(numbers) + 2}>; .reg .f32 %f<64>; {start} {chain} mov.u32 %r2, 0;"
        before += f"mov.u32 %r5, %q{len(numbers)};"
        body = loaded("shared", 1, 60) + "add.s32 %r2, %r2, 1;"
        after = "".join(f"st.global.f32 [%rd1+{128 * at}], %f{at};" for at in range(16))
        text = kernel(looped(body, "setp.lt.s32 %p1, %r2, 8;", before, after)).replace(
            ".reg .f32 %f<8>;", "", 1
        )
        made = unrolled(program_of(ge.parse(text, path="k.ptx")["k"]), 86)
        assert made is not None
        assert sum(item.opcode == "fma.rn.f32" for item in made.kernel.instructions) == 60 * copies


#: Where ``.pragma "nounroll"`` forbids it: ptxas 13.0 heeds it in the whole block that the loop begins with, although the manual wants
#: it in front of all instructions.
PRAGMAS = (
    "at its beginning",
    "between instructions",
    "in front of its branch",
    "of the kernel",
    "of the module",
)


def forbidden(
    place: str, trips: str, *, called: bool = False, pragma: str = '.pragma "nounroll";'
) -> ge.Kernel:
    """A loop of two multiply-adds, in a function if it is ``called``."""
    at = {one: pragma if one == place else "" for one in PRAGMAS}
    loop = f"""
.reg .b32 %n, %i; .reg .f32 %f<2>; .reg .pred %p;
mov.u32 %n, n; mov.f32 %f0, 0f3F800000; mov.f32 %f1, 0f3F900000; mov.u32 %i, 0;
L:
{at["at its beginning"]}
fma.rn.f32 %f0, %f0, %f1, %f0;
{at["between instructions"]}
fma.rn.f32 %f1, %f1, %f0, %f0;
add.u32 %i, %i, 1; setp.lt.u32 %p, %i, {trips};
{at["in front of its branch"]}
@%p bra L;
"""
    function, inside = "", loop.replace("mov.u32 %n, n;", "ld.param.u32 %n, [n];")
    if called:
        function = f".func (.reg .f32 r) f (.reg .b32 n)\n{{\n{loop}\nmov.f32 r, %f1; ret;\n}}\n"
        inside = ".reg .b32 %n; .reg .f32 %f<2>; ld.param.u32 %n, [n];\ncall (%f1), f, (%n);"
    return ge.parse(
        f"{head('8.0', 'sm_80')}{at['of the module']}\n{function}"
        f".visible .entry k(.param .u64 a, .param .u32 n) {at['of the kernel']}\n"
        f"{{\n{inside}\n.reg .b64 %a; ld.param.u64 %a, [a]; st.global.f32 [%a], %f1; ret;\n}}\n",
        path="k.ptx",
    )["k"]


@pytest.mark.parametrize("trips", ["%n", "8", "64"])
@pytest.mark.parametrize("place", PRAGMAS)
def test_pragmas_forbid_it(place: str, trips: str) -> None:
    # that of a kernel is not one of the functions that it calls
    for called in (False, True) if place != "of the kernel" else (False,):
        # in the order in which all rewriting takes place
        made, _ = rewritten(program_of(forbidden(place, trips, called=called)), 86)
        assert sum(item.opcode == "fma.rn.f32" for item in made.kernel.instructions) == 2, called
    other = forbidden(place, trips, pragma='.pragma "other";')
    assert unrolled(program_of(other), 86) is not None


@needs_assembler
@pytest.mark.parametrize("trips", ["%n", "8", "64"])
@pytest.mark.parametrize("place", PRAGMAS)
def test_pragmas_forbid_it_to_the_assembler(place: str, trips: str) -> None:
    for called in (False, True) if place != "of the kernel" else (False,):
        listing = disassemble(assemble(forbidden(place, trips, called=called), "sm_86"))
        assert sum(item.base == "FFMA" for item in listing.instructions) == 2, called
