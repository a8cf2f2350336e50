"""Machine code from PTX, against what ``ptxas`` makes of it and what the PTX manual says about it. Code for sm_86."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.timing.expanded.launch import ExpandedCode, register_levels
from tests.support import head

from .machine_code import code, lines_of, opcodes, roots, text

THREAD = "mov.u32 %r4, %tid.x; mul.wide.u32 %rd4, %r4, 4; add.s64 %rd5, %rd1, %rd4;\n"
#: %r6: a place in ``tile`` for each lane, a multiple of 16 bytes; %rd5: one in the array
SHARED = f"{THREAD}mov.u32 %r5, tile; mad.lo.u32 %r6, %r4, 16, %r5;\n"
TWO = "ld.global.u32 %r6, [%rd5]; ld.global.u32 %r7, [%rd5+4];\n"
TABLE = ".const .align 4 .b32 table[64] = {1, 2, 3};\n"
SAXPY = """mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.s32 %r5, %r2, %r3, %r4;
setp.ge.s32 %p1, %r5, %r1; @%p1 bra E;
mul.wide.s32 %rd4, %r5, 4; add.s64 %rd5, %rd1, %rd4; add.s64 %rd6, %rd2, %rd4;
ld.global.f32 %f1, [%rd5]; ld.global.f32 %f2, [%rd6]; fma.rn.f32 %f3, %f1, 0f40000000, %f2; st.global.f32 [%rd6], %f3;
E:"""


def test_saxpy() -> None:
    """No instructions for parameters and ``%ntid``, an exit instead of the branch, and one product for each address."""
    made = code(SAXPY)
    assert sorted(roots(made)[:5]) == sorted(["S2R", "S2R", "IMAD", "ISETP", "EXIT"])
    assert roots(made)[3:] == ["ISETP", "EXIT", "IMAD", "IMAD", "LDG", "LDG", "FFMA", "STG", "EXIT"]
    assert opcodes(made)[5:7] == ["IMAD.WIDE", "IMAD.WIDE"]
    assert lines_of(made, SAXPY)[3:] == [
        "setp.ge.s32", "bra", "add.s64", "add.s64", "ld.global.f32", "ld.global.f32", "fma.rn.f32", "st.global.f32", "ret",
    ]  # fmt: skip
    assert made.graph.listing.instructions[4].text.startswith("@P")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("shl.b32 %r8, %r6, 3; add.s32 %r9, %r8, %r4;", ["LEA"]),
        ("add.s32 %r8, %r6, %r7; add.s32 %r9, %r8, %r4;", ["IADD3"]),
        ("add.s32 %r8, %r6, %r7; add.s32 %r10, %r8, %r4; sub.s32 %r9, %r10, %r8;", ["IADD3", "IADD3"]),
        ("and.b32 %r8, %r6, %r7; xor.b32 %r9, %r8, %r4;", ["LOP3"]),
        ("and.b32 %r8, %r6, %r7; xor.b32 %r10, %r8, %r4; or.b32 %r9, %r10, %r6;", ["LOP3"]),
        ("mov.b64 %rd8, {%r6, %r7}; and.b64 %rd9, %rd8, %rd5; xor.b64 %rd10, %rd9, %rd1; mov.b64 {%r8, %r10}, %rd10;"
         "add.s32 %r9, %r8, %r10;", ["LOP3", "LOP3", "IMAD"]),
        ("mul.lo.s32 %r8, %r6, %r7; add.s32 %r9, %r8, %r4;", ["IMAD"]),
        ("mad.lo.s32 %r9, %r6, %r7, %r4;", ["IMAD"]),
        ("setp.lt.s32 %p1, %r6, 5; setp.gt.s32 %p2, %r7, %r4; and.pred %p3, %p1, %p2; selp.b32 %r9, %r6, %r7, %p3;",
         ["ISETP", "ISETP", "SEL"]),
        ("mov.b64 %rd8, {%r6, %r7}; setp.lt.u64 %p1, %rd8, %rd5; and.pred %p3, %p1, %p2; selp.b32 %r9, %r6, %r7, %p3;",
         ["ISETP", "ISETP", "SEL"]),
        ("mov.b64 %fd1, {%r6, %r7}; setp.lt.f64 %p1, %fd1, 0d0000000000000000; and.pred %p3, %p1, %p2; selp.b32 %r9, %r6, %r7, %p3;",
         ["DSETP", "SEL"]),
        ("mov.b32 %f1, %r6; setp.lt.f32 %p1, %f1, 0f00000000; or.pred %p3, %p1, %p2; selp.b32 %r9, %r6, %r7, %p3;", ["FSETP", "SEL"]),
        ("mov.u32 %r8, %r6; mov.u32 %r9, %r8;", []),
        ("mov.u32 %r8, 12; add.u32 %r9, %r6, %r8;", ["IADD3"]),
        ("add.u32 %r9, %r6, %r1;", ["IADD3"]),
        ("mov.u32 %r8, %nctaid.x; add.u32 %r9, %r6, %r8;", ["IADD3"]),
        ("popc.b32 %r9, %r6;", ["POPC"]),
    ],
)  # fmt: skip
def test_what_becomes_one_instruction(body: str, expected: list[str]) -> None:
    made = code(f"{THREAD}{TWO}{body}\nst.global.u32 [%rd5], %r9;")
    assert sorted(roots(made)) == sorted(["S2R", "IMAD", "LDG", "LDG", *expected, "STG", "EXIT"])


def test_many_additions_are_shared_with_the_multipliers() -> None:
    """From Volta on, ``ptxas`` writes IMAD.IADD and IMAD.SHL for as many additions and shifts as balances the two units."""
    body = "\n".join(
        f"add.s32 %r{number}, %r6, {number}; st.global.u32 [%rd5+{4 * number}], %r{number};"
        for number in range(10, 34)
    )
    made = opcodes(code(f"{THREAD}{TWO}{body}"))
    counts = {name: made.count(name) for name in ("IADD3", "IMAD.IADD", "IMAD.WIDE")}
    assert counts["IADD3"] + counts["IMAD.IADD"] == 24
    assert abs(counts["IADD3"] - counts["IMAD.IADD"] - counts["IMAD.WIDE"]) <= 1


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        ("ld.const.u32 %r6, [table+4]; add.u32 %r9, %r4, %r6;", []),
        (
            "mov.u32 %r7, table; add.u32 %r8, %r7, %r4; ld.const.u32 %r6, [%r8]; add.u32 %r9, %r4, %r6;",
            ["LDC"],
        ),
        # the same for all lanes, but another one in each iteration
        (
            "mov.u32 %r7, table; mov.u32 %r9, %r4; mov.u32 %r10, 0; L: ld.const.u32 %r6, [%r7]; add.u32 %r9, %r9, %r6;"
            "add.u32 %r7, %r7, 4; add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, %r1; @%p1 bra L;",
            ["LDC"],
        ),
        # known when the CTA begins
        (
            "mov.u32 %r7, %ctaid.x; mov.u32 %r8, table; add.u32 %r10, %r8, %r7; ld.const.u32 %r6, [%r10]; add.u32 %r9, %r4, %r6;",
            ["ULDC"],
        ),
    ],
)
def test_loads_from_constant_banks_are_operands(load: str, expected: list[str]) -> None:
    """If their address is known when the kernel is assembled; else loads from the constant cache."""
    made = roots(code(f"{THREAD}{load} st.global.u32 [%rd5], %r9;", before=TABLE))
    assert [root for root in made if root.startswith(("LD", "ULD"))] == expected


def test_an_array_in_constant_memory_is_part_of_the_address() -> None:
    """And what is added to it is computed though it is folded nowhere else."""
    body = "shl.b32 %r7, %r4, 2; mov.u32 %r8, table; add.u32 %r10, %r8, %r7; ld.const.u32 %r6, [%r10]; add.u32 %r9, %r4, %r6;"
    made = opcodes(code(f"{THREAD}{body} st.global.u32 [%rd5], %r9;", before=TABLE))
    assert sorted(made) == ["EXIT", "IADD3", "IMAD.WIDE", "LDC", "S2R", "SHF.L.U32", "STG.E"]


def branch(loads: int) -> str:
    """A body of ``loads`` loads and additions, and a store, that lanes leave out by a value from memory."""
    numbers = range(8, 8 + loads)
    inside = "\n".join(f"ld.global.f32 %f{number}, [%rd5+{4 * number}];" for number in numbers)
    inside += "mov.f32 %f1, 0f00000000;\n" + "\n".join(f"add.f32 %f1, %f1, %f{number};" for number in numbers)
    return (
        f"{THREAD}ld.global.u32 %r6, [%rd5]; setp.eq.u32 %p1, %r6, 0; @%p1 bra M;\n{inside}\nst.global.f32 [%rd5], %f1;\n"
        "M: st.global.u32 [%rd5+4096], %r6;"
    )


@pytest.mark.parametrize(("loads", "predicated"), [(1, True), (7, True), (8, False), (20, False)])
def test_short_bodies_are_predicated_and_long_ones_are_regions(loads: int, predicated: bool) -> None:
    """Of 2 · 7 + 1 and of 2 · 8 + 1 instructions; 16 are predicated."""
    made = roots(code(branch(loads)))
    assert ("BRA" in made, "BSSY" in made, "BSYNC" in made) == (not predicated,) * 3
    if not predicated:
        assert made.index("BSSY") < made.index("BRA") < made.index("BSYNC")
        assert made[made.index("BSYNC") + 1 :] == ["STG", "EXIT"]


def test_uniform_branches_need_no_region() -> None:
    made = roots(code(branch(20).replace("setp.eq.u32 %p1, %r6, 0", "setp.eq.u32 %p1, %r1, 0")))
    assert "BRA" in made and "BSSY" not in made


def loads(offsets: list[int], between: str = "", base: str = "%r6") -> str:
    lines = [f"ld.shared.f32 %f{number}, [{base}+{offset}];" for number, offset in enumerate(offsets, 8)]
    middle = len(lines) // 2
    sums = "".join(f"add.f32 %f1, %f1, %f{number};" for number in range(8, 8 + len(offsets)))
    return "\n".join(
        [
            *lines[:middle],
            between,
            *lines[middle:],
            "mov.f32 %f1, 0f00000000;",
            sums,
            "st.global.f32 [%rd5], %f1;",
        ]
    )


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ([0, 4, 8, 12], ["LDS.128"]), ([12, 8, 4, 0], ["LDS.128"]), ([0, 4], ["LDS.64"]), ([8, 12], ["LDS.64"]),
        ([4, 8], ["LDS", "LDS"]), ([0, 8], ["LDS", "LDS"]), ([0, 4, 8], ["LDS.64", "LDS"]), ([4, 8, 12], ["LDS", "LDS.64"]),
        ([0, 4, 8, 12, 16, 20, 24, 28], ["LDS.128", "LDS.128"]), ([2, 6], ["LDS", "LDS"]),
    ],
)  # fmt: skip
def test_neighbouring_loads_from_shared_memory(offsets: list[int], expected: list[str]) -> None:
    assert sorted(one for one in opcodes(code(SHARED + loads(offsets))) if one.startswith("LDS")) == sorted(
        expected
    )


@pytest.mark.parametrize(
    ("between", "before"),
    [("st.shared.f32 [%r6+64], %f30;", 2), ("st.shared.f32 [%r5+64], %f30;", 1), ("bar.sync 0;", 1)],
)
def test_loads_are_not_merged_across_stores_and_barriers(between: str, before: int) -> None:
    """But those at other offsets from the same base pass stores, as in the code of ``ptxas``."""
    made = opcodes(code(SHARED + loads([0, 4, 8, 12], between)))
    assert [one for one in made if one.startswith("LDS")] == ["LDS.64", "LDS.64"]
    stop = next(at for at, one in enumerate(made) if one.startswith(("STS", "BAR")))
    assert [one.startswith("LDS") for one in made[:stop]].count(True) == before


@pytest.mark.parametrize(("multiple", "expected"), [(4, 4), (8, 2), (16, 1), (32, 1), (12, 4), (24, 2)])
def test_alignment_of_an_address_decides(multiple: int, expected: int) -> None:
    """A multiple of 4 bytes permits no wide load of 4 words, one of 8 two of 64 bits, one of 16 one of 128."""
    body = SHARED.replace("%r4, 16,", f"%r4, {multiple},") + loads([0, 4, 8, 12])
    assert sum(one.startswith("LDS") for one in opcodes(code(body))) == expected


def test_volatile_loads_stay_apart() -> None:
    body = (SHARED + loads([0, 4, 8, 12])).replace("ld.shared", "ld.volatile.shared")
    assert sum(one.startswith("LDS") for one in opcodes(code(body))) == 4


def test_stores_are_merged() -> None:
    body = (
        SHARED
        + "".join(f"st.shared.u32 [%r6+{4 * at}], %r4;" for at in (3, 2, 1, 0, 5, 4, 7))
        + "bar.sync 0;"
    )
    made = code(body)
    assert [one for one in opcodes(made) if one.startswith("STS")] == ["STS.128", "STS.64", "STS"]
    # one access for each, of the address of the first word
    recorded = [site for site in made.sites if site.space == "shared"]
    assert len(recorded) == 3


@pytest.mark.parametrize(("width", "name"), [(4, "LDGSTS.E"), (8, "LDGSTS.E.64"), (16, "LDGSTS.E.128")])
def test_groups_of_asynchronous_copies(width: int, name: str) -> None:
    """Commits and waits stay behind the copies and in front of what reads them."""
    body = SHARED + (
        f"cp.async.ca.shared.global [%r6], [%rd5], {width}; cp.async.commit_group;"
        f"cp.async.ca.shared.global [%r6+1024], [%rd5+1024], {width}; cp.async.commit_group; cp.async.wait_group 1;"
        "ld.shared.f32 %f1, [%r6]; cp.async.wait_all; ld.shared.f32 %f2, [%r6+1024]; add.f32 %f3, %f1, %f2; st.global.f32 [%rd5], %f3;"
    )  # fmt: skip
    made = code(body)
    order = [one for one in opcodes(made) if one.startswith(("LDGSTS", "LDGDEPBAR", "DEPBAR", "LDS"))]
    assert order == [
        name,
        "LDGDEPBAR",
        name,
        "LDGDEPBAR",
        "DEPBAR.LE",
        "LDS",
        "LDGDEPBAR",
        "DEPBAR.LE",
        "LDS",
    ]
    texts = [item.text for item in made.graph.listing.instructions if item.text.startswith("DEPBAR")]
    assert texts == ["DEPBAR.LE SB0, 0x1", "DEPBAR.LE SB0, 0x0"]
    assert [site.space for site in made.sites].count("shared") == 4


def test_atomics_whose_results_nothing_uses() -> None:
    body = THREAD + (
        "atom.global.add.u32 %r6, [%rd5], 1; atom.global.add.u32 %r7, [%rd5+4], 1; atom.global.exch.b32 %r8, [%rd5+8], 1;"
        "red.global.max.u32 [%rd5+12], 3; mov.u32 %r5, tile; atom.shared.add.u32 %r9, [%r5], 1; st.global.u32 [%rd5+16], %r7;"
    )
    made = code(body)
    found = [
        item.text.split()[0]
        for item in made.graph.listing.instructions
        if item.text.startswith(("RED", "ATOM"))
    ]
    # in order, but for that of shared memory, which may be anywhere
    assert [one for one in found if one != "ATOMS.POPC.INC.32"] == [
        "RED.E.ADD.STRONG.GPU", "ATOMG.E.ADD.STRONG.GPU", "ATOMG.E.EXCH.STRONG.GPU", "RED.E.MAX.STRONG.GPU",
    ]  # fmt: skip
    assert found.count("ATOMS.POPC.INC.32") == 1
    written = [
        item.accesses.writes
        for item in made.graph.listing.instructions
        if item.text.startswith(("RED", "ATOM"))
    ]
    assert [name for name, one in zip(found, written) if one] == ["ATOMG.E.ADD.STRONG.GPU"]


LOOP = """mov.u32 %r2, 0; mov.f32 %f1, 0f00000000;
L:
ld.global.f32 %f2, [%rd5];
fma.rn.f32 %f1, %f2, %f2, %f1;
add.s64 %rd5, %rd5, 128;
add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, BOUND;
@%p1 bra L;
st.global.f32 [%rd5], %f1;"""


@pytest.mark.parametrize(("bound", "copies"), [("%r1", 5), ("4", 4)])
def test_unrolled_instructions_name_their_lines(bound: str, copies: int) -> None:
    body = THREAD + LOOP.replace("BOUND", bound)
    made = code(body, unroll=True)
    lines = lines_of(made, body)
    for root, line in (("LDG", "ld.global.f32"), ("FFMA", "fma.rn.f32"), ("STG", "st.global.f32")):
        found = [lines[at] for at, one in enumerate(roots(made)) if one == root]
        assert found == [line] * (copies if root != "STG" else 1)
    kernel = ge.parse(text(body), path="k.ptx")["k"]
    # what is made for the test whether four iterations are left names no line, all else one of the body
    numbers = [item.ptx for item in made.graph.listing.instructions]
    assert all(0 <= number <= len(kernel.instructions) for number in numbers)
    assert all(number for number in numbers) == (bound == "4")


def test_every_instruction_of_the_body_is_at_its_line() -> None:
    made = code(SAXPY)
    names = {"LDG": "ld.", "STG": "st.", "FFMA": "fma.", "ISETP": "setp.", "S2R": "mov."}
    for root, line in zip(roots(made), lines_of(made, SAXPY)):
        assert line.startswith(names.get(root, "")), (root, line)


@pytest.mark.parametrize(("limit", "spilled"), [(24, True), (0, False)])
def test_registers_are_spilled_where_the_kernel_limits_them(limit: int, spilled: bool) -> None:
    """40 values that are live together do not fit in 24 registers: each that does not is stored and loaded again."""
    numbers = range(8, 48)
    body = THREAD + "\n".join(f"ld.global.f32 %f{number}, [%rd5+{128 * number}];" for number in numbers)
    # loads stay in front of the barrier, and nothing can be added before what is loaded behind it
    body += "\nbar.sync 0;\nld.shared.f32 %f1, [tile];\n" + "\n".join(
        f"fma.rn.f32 %f1, %f1, %f{number}, %f1;" for number in numbers
    )
    module = text(body + "\nst.global.f32 [%rd5], %f1;")
    if limit:
        module = module.replace(".param .u32 n)\n", f".param .u32 n)\n.maxnreg {limit}\n")
    device = ge.Device({"memory"})
    arrays = [device.zeros(8192, np.float32) for _ in "ab"]
    profile = device.launch(ge.parse(module, path="k.ptx")["k"], 1, 32, [*arrays, 1])
    record = profile.records[0]
    source = ExpandedCode(record, "sm_86", load_machine("rtx-a6000"), profile.resources)
    made, registers = source._built()
    names = roots(made)
    assert (names.count("STL") > 0, names.count("LDL") > 0) == (spilled, spilled)
    if spilled:
        assert registers == limit
        assert names.count("LDL") >= (40 - limit) // 4  # up to four words each
        assert [site.instruction for site in made.sites if site.space == "local"] == [None] * (
            names.count("STL") + names.count("LDL")
        )
    else:
        assert 40 < registers < 60


@pytest.mark.parametrize(
    ("sums", "most"), [(20, 38), (36, 43 + 8), (44, 62), (48, 62), (52, 70), (58, 70), (60, 78)]
)
def test_from_64_registers_on_as_many_are_used_as_cost_no_warp(sums: int, most: int) -> None:
    """Loads of four words, each with twelve multiply-adds, for so many sums: seven registers more are live at least. Below, those of
    an SM full of warps are used, 38, or eight more than needed."""
    body = "".join(f"mov.f32 %f{at}, 0f00000000;" for at in range(sums)) + "mov.u32 %r2, 0;\nL:\n"
    for group in range(12):
        body += f"ld.global.v4.f32 {{%f60, %f61, %f62, %f63}}, [%rd1+{16 * group}];"
        for at in range(12):
            total = (5 * group + at) % sums
            body += f"fma.rn.f32 %f{total}, %f{60 + at % 4}, %f{60 + (at + 1) % 4}, %f{total};"
    body += "add.s64 %rd1, %rd1, 1024; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %r1; @%p1 bra L;\n"
    made = code(body + "".join(f"st.global.f32 [%rd2+{4 * at}], %f{at};" for at in range(sums)))
    assert most - 1 <= made.registers <= most


def test_levels_are_those_of_the_register_file() -> None:
    """65,536 registers for n groups of four warps, in units of eight for a thread, of which two are kept aside."""
    for machine, warps in (("a100-sxm-80gb", 64), ("rtx-a6000", 48), ("rtx-2080-ti", 32)):
        each = (min(255, 65536 // (128 * n) // 8 * 8) - 2 for n in range(1, warps // 4 + 1))
        assert register_levels(load_machine(machine)) == tuple(sorted(set(each)))


def test_a_kernel_without_instructions_has_code() -> None:
    module = ge.parse(head("8.0", "sm_80") + ".visible .entry k() { }", path="k.ptx")
    profile = ge.Device({"memory"}).launch(module["k"], 1, 32, [])
    assert ge.estimate(profile, "a100-sxm-80gb", model="simulation-expanded").time_us > 0


def test_registers_are_as_many_as_fit_with_the_ctas_of_the_launch() -> None:
    """80 registers that are live together, in CTAs of 1024 threads, of which 64 registers each fit on an SM; 256 have more."""
    floats, pairs = range(8, 56), range(8, 24)
    body = THREAD + "\n".join(f"ld.global.f32 %f{at}, [%rd5+{128 * at}];" for at in floats)
    body += "\n".join(f"ld.global.u64 %rd{at}, [%rd1+{128 * at}];" for at in pairs)
    body += "\nbar.sync 0; ld.shared.f32 %f1, [tile]; ld.shared.u64 %rd6, [tile+8];\n"
    body += "\n".join(f"fma.rn.f32 %f1, %f1, %f{at}, %f1;" for at in floats)
    body += "\n".join(f"xor.b64 %rd6, %rd6, %rd{at};" for at in pairs)
    kernel = ge.parse(
        text(body + "\nst.global.f32 [%rd5], %f1; st.global.u64 [%rd1+8], %rd6;"), path="k.ptx"
    )["k"]
    found = {}
    for threads in (256, 1024):
        device = ge.Device({"memory"})
        arrays = [device.zeros(1 << 14, np.float32) for _ in "ab"]
        profile = device.launch(kernel, 1, threads, [*arrays, 1])
        source = ExpandedCode(profile.records[0], "sm_86", load_machine("rtx-a6000"), profile.resources)
        made, found[threads] = source._built()
        assert ("STL" in roots(made)) == (threads == 1024)
        assert source.used().registers == found[threads]
    assert found[256] > 80 and found[1024] == 64


#: An element in memory is changed four times over: what is between the elements, the base of the last one, and whether loads pass.
SUMS = {
    "neighbours": ("%rd5", 4, "", True),
    "the same element": ("%rd5", 0, "", False),
    "overlapping elements": ("%rd5", 2, "", False),
    "another array": ("%rd6", 4, "", False),
    "a base that moves": ("%rd5", 4, "add.s64 %rd5, %rd5, %rd4;", False),
    "volatile": ("%rd5", 4, "", False),
}


@pytest.mark.parametrize("name", SUMS)
def test_loads_pass_stores_of_the_same_base_at_other_offsets(name: str) -> None:
    """Not those of another base, which may be the same address."""
    base, apart, between, passes = SUMS[name]
    lines = []
    for at in range(4):
        register = base if at == 3 else "%rd5"
        place = f"[{register}+{apart * at}]"
        lines.append(
            f"ld.global.f32 %f{at}, {place}; fma.rn.f32 %f1{at}, %f{at}, %f{at}, %f{at}; st.global.f32 {place}, %f1{at}; {between}"
        )
    body = f"{THREAD} add.s64 %rd6, %rd2, %rd4; {' '.join(lines)}"
    if name == "volatile":
        body = body.replace(".global", ".volatile.global")
    order = [one for one in roots(code(body)) if one in ("LDG", "STG")]
    last = len(order) - 1 - order[::-1].index("LDG")
    assert (last < order.index("STG")) == passes
