"""The slice of control flow and addresses through registers that the assembler keeps in local memory."""

from __future__ import annotations

import pytest

from gpuperf_engine.sass.graph import build_graph
from gpuperf_engine.sass.run.needed import Needed, needed_of
from gpuperf_engine.sass.run.paths import nodes_of
from tests.sass.listings import written

SPILL = ' (*"SpillRefill"*)'


def sliced(body: str) -> tuple[Needed, set[str]]:
    """The slice, and the text of its instructions without remarks."""
    graph = build_graph(written(f".function k\n{body}"), "k")
    found = needed_of(graph, nodes_of(graph))
    items = graph.listing.instructions
    return found, {items[at].text.removesuffix(SPILL) for at in found.positions}


def spilled(remark: str = "", between: str = "", place: str = "[R1+0x4]") -> str:
    """A loaded value and an address are kept in two words of the stack."""
    return f"""
IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28]
IADD3 R1, R1, -0x8, RZ
S2R R2, SR_TID.X
IMAD.WIDE.U32 R4, R2, 0x4, R6
LDG.E R8, [R4]
STL {place}, R8{remark}
STL [R1], R4{remark}
{between}
LDL R10, [R1]{remark}
MOV R11, R5
LDL R12, {place}{remark}
STG.E [R10], R12
EXIT
"""


def test_words_of_the_stack_are_kept_apart() -> None:
    found, texts = sliced(spilled())
    assert found.spaces == set()
    assert {"STL [R1], R4", "LDL R10, [R1]", "IMAD.WIDE.U32 R4, R2, 0x4, R6"} <= texts
    assert not {"STL [R1+0x4], R8", "LDL R12, [R1+0x4]", "LDG.E R8, [R4]"} & texts


@pytest.mark.parametrize("between", ["IADD3 R1, R1, -0x8, RZ", "IADD3 R20, R1, 0x4, RZ", "LDL.U8 R20, [R1]"])
def test_any_word_may_be_meant_if_the_stack_is_accessed_otherwise(between: str) -> None:
    """A stack pointer that changes, an address of the stack in another register, and an access to a part of a word."""
    found, texts = sliced(spilled(between=between))
    assert found.spaces == {"local", "global"}
    assert {"STL [R1+0x4], R8", "LDG.E R8, [R4]"} <= texts


def test_the_assembler_says_which_words_hold_registers() -> None:
    """Not so if the stack pointer changes."""
    found, _ = sliced(spilled(SPILL, "IADD3 R20, R1, 0x10, RZ"))
    assert found.spaces == set()
    found, _ = sliced(spilled(SPILL, "IADD3 R1, R1, -0x8, RZ"))
    assert found.spaces == {"local", "global"}


def test_an_address_that_depends_on_the_place() -> None:
    found, _ = sliced(spilled(place="[R9]"))
    assert found.spaces == {"local", "global"}


def test_a_guarded_store_leaves_the_earlier_one() -> None:
    """Wide accesses have two words, each of which is needed."""
    found, texts = sliced("""
S2R R4, SR_TID.X
STL.64 [R1+0x8], R4
STL.64 [R1+0x10], R14
@P0 STL [R1+0x8], R6
LDL.64 R10, [R1+0x8]
STG.E [R10], R12
EXIT
""")
    assert found.spaces == set()
    assert {"STL.64 [R1+0x8], R4", "@P0 STL [R1+0x8], R6", "LDL.64 R10, [R1+0x8]"} <= texts
    assert "STL.64 [R1+0x10], R14" not in texts


LOADED = """
S2R R2, SR_TID.X
IMAD.WIDE.U32 R4, R2, 0x4, R6
LDG.E R8, [R4.64]
"""


@pytest.mark.parametrize(
    ("packed", "spaces"),
    [
        # bit 4 of a register that held a loaded value: cleared, and set by a comparison
        (
            "LOP3.LUT R8, R8, 0xffffffef, RZ, 0xc0, !PT\n@P2 LOP3.LUT R8, R8, 0x10, RZ, 0xfc, !PT\n"
            "LOP3.LUT P0, RZ, R8.reuse, 0x10, RZ, 0xc0, !PT",
            set(),
        ),
        # bit 3 was not cleared
        (
            "LOP3.LUT R8, R8, 0xffffffef, RZ, 0xc0, !PT\n@P2 LOP3.LUT R8, R8, 0x10, RZ, 0xfc, !PT\n"
            "LOP3.LUT P0, RZ, R8, 0x18, RZ, 0xc0, !PT",
            {"global"},
        ),
        # byte 0 from another register, of which the branch reads its sign
        ("PRMT R9, R8, 0x3214, R2\nPRMT R10, R9, 0x8880, RZ\nISETP.GT.AND P0, PT, R10, -0x1, PT", set()),
        ("PRMT R9, R8, 0x3210, R2\nPRMT R10, R9, 0x8880, RZ\nISETP.GT.AND P0, PT, R10, -0x1, PT", {"global"}),
        # predicates replace the lowest seven bits
        ("P2R R9, PR, R8, 0x7f\nR2P PR, R9, 0x1", set()),
        ("P2R R9, PR, R8, 0x7e\nR2P PR, R9, 0x1", {"global"}),
        # a choice between bits of two registers: all of both matter, and the lower-numbered one does too
        ("LOP3.LUT R9, R12, 0x8, R8, 0xe2, !PT\nISETP.NE.AND P0, PT, R9, RZ, PT", {"global"}),
        ("SEL R9, R12, R8, P3\nLOP3.LUT P0, RZ, R9, 0x1, RZ, 0xc0, !PT", {"global"}),
    ],
)
def test_bits_that_decide(packed: str, spaces: set[str]) -> None:
    found, _ = sliced(f"{LOADED}{packed}\n@P0 EXIT\nSTG.E [R4.64], R2\nEXIT\n")
    assert found.spaces == spaces


def test_a_choice_needs_both_registers() -> None:
    """The lower-numbered one too."""
    _, texts = sliced("""
S2R R2, SR_TID.X
IADD3 R4, R2, 0x1, RZ
IADD3 R12, R2, 0x2, RZ
SEL R9, R12, R4, P3
LOP3.LUT P0, RZ, R9, 0x1, RZ, 0xc0, !PT
@P0 EXIT
EXIT
""")
    assert {"IADD3 R4, R2, 0x1, RZ", "IADD3 R12, R2, 0x2, RZ"} <= texts


@pytest.mark.parametrize(
    ("behind", "spaces"),
    [
        ("@P1 LDG.E R10, [R8.64]", set()),
        # kept in a register, and in P3 again
        ("P2R R20, PR, RZ, 0x2; ISETP.NE.AND P1, PT, R2, RZ, PT; ISETP.NE.AND P3, PT, R20, RZ, PT; @P3 LDG.E R10, [R8.64]", set()),
        # computed again, beyond a branch
        ("ISETP.NE.AND P1, PT, R2, RZ, PT; @P1 BRA `(.L_x); MOV R11, R2; .L_x:; "
         "LOP3.LUT P5, RZ, R2, 0x4, RZ, 0xc0, !PT; @P5 LDG.E R10, [R8.64]", set()),
        # in a bit of a register
        ("LOP3.LUT R20, R20, 0xffffffef, RZ, 0xc0, !PT; @P1 LOP3.LUT R20, R20, 0x10, RZ, 0xfc, !PT; "
         "LOP3.LUT R20, R20, 0xfffffffe, RZ, 0xc0, !PT; ISETP.NE.AND P1, PT, R2, RZ, PT; @P1 LOP3.LUT R20, R20, 0x1, RZ, 0xfc, !PT; "
         "LOP3.LUT P3, RZ, R20, 0x10, RZ, 0xc0, !PT; @P3 LDG.E R10, [R8.64]", set()),
        # that says where it does not hold
        ("LOP3.LUT R20, R20, 0xffffffef, RZ, 0xc0, !PT; @!P1 LOP3.LUT R20, R20, 0x10, RZ, 0xfc, !PT; "
         "LOP3.LUT P3, RZ, R20, 0x10, RZ, 0xc0, !PT; @!P3 LDG.E R10, [R8.64]", set()),
        # in a copy
        ("MOV R12, R8; MOV R13, R9; @P1 LDG.E R10, [R12.64]", set()),
        # on the stack
        ("STL.64 [R1], R8 (*\"SpillRefill\"*); LDL.64 R12, [R1] (*\"SpillRefill\"*); @P1 LDG.E R10, [R12.64]", set()),
        # part of it also under another guard
        ("@P1 IADD3 R12, R8, 0x8, RZ; @P1 MOV R13, R9; @P4 IADD3 R12, R8, 0x10, RZ; @P1 LDG.E R10, [R12.64]", set()),
        # another bit, and one that was not cleared
        ("LOP3.LUT R20, R20, 0xffffffcf, RZ, 0xc0, !PT; @P1 LOP3.LUT R20, R20, 0x10, RZ, 0xfc, !PT; "
         "LOP3.LUT P3, RZ, R20, 0x20, RZ, 0xc0, !PT; @P3 LDG.E R10, [R8.64]", {"global"}),
        ("@P1 LOP3.LUT R20, R20, 0x10, RZ, 0xfc, !PT; LOP3.LUT P3, RZ, R20, 0x10, RZ, 0xc0, !PT; @P3 LDG.E R10, [R8.64]", {"global"}),
        # another predicate; the opposite one; what it is made of has changed
        ("@P2 LDG.E R10, [R8.64]", {"global"}),
        ("@!P1 LDG.E R10, [R8.64]", {"global"}),
        ("IADD3 R2, R2, 0x1, RZ; LOP3.LUT P5, RZ, R2, 0x4, RZ, 0xc0, !PT; @P5 LDG.E R10, [R8.64]", {"global"}),
    ],
)  # fmt: skip
def test_an_address_computed_under_a_guard(behind: str, spaces: set[str]) -> None:
    """Used where an equal guard holds; R8 and R9 hold loaded values before."""
    found, _ = sliced(f"""
S2R R2, SR_TID.X
LDG.E.64 R8, [R6.64]
LOP3.LUT P1, RZ, R2, 0x4, RZ, 0xc0, !PT
@P1 IMAD.WIDE.U32 R8, R2, 0x4, R14
{behind.replace("; ", chr(10))}
EXIT
""")
    assert found.spaces == spaces


@pytest.mark.parametrize(
    ("chosen", "used", "spaces"),
    [
        ("R2, R8, P1", "@P1", set()),
        ("R8, R2, P1", "@!P1", set()),
        ("R8, R2, !P1", "@P1", set()),
        ("R2, R8, P1", "@!P1", {"global"}),
        ("R8, R2, P1", "@P1", {"global"}),
        ("R2, R8, P2", "@P1", {"global"}),
        ("R2, R8, P1", "", {"global"}),
    ],
)
def test_a_choice_that_only_one_side_of_a_guard_uses(chosen: str, used: str, spaces: set[str]) -> None:
    """As in attention by products of warpgroups, where the address of an mbarrier shares a register with a sum of products."""
    found, texts = sliced(f"""
S2R R2, SR_TID.X
LDG.E R8, [R6.64]
LOP3.LUT P1, RZ, R2, 0x4, RZ, 0xc0, !PT
SEL R8, {chosen}
{used} LDS R10, [R8]
EXIT
""")
    assert found.spaces == spaces
    assert f"SEL R8, {chosen}" in texts and "LOP3.LUT P1, RZ, R2, 0x4, RZ, 0xc0, !PT" in texts


def test_both_sides_of_a_guard() -> None:
    found, _ = sliced("""
S2R R2, SR_TID.X
LDG.E.64 R8, [R6.64]
@P1 IMAD.WIDE.U32 R8, R2, 0x4, R14
@!P1 IMAD.WIDE.U32 R8, R2, 0x8, R14
LDG.E R10, [R8.64]
EXIT
""")
    assert found.spaces == set()


def test_a_guard_of_another_iteration() -> None:
    """The predicate of the last iteration is not that of this one, although the same instruction computes both."""
    found, _ = sliced("""
S2R R2, SR_TID.X
LDG.E.64 R8, [R6.64]
.L_x:
LOP3.LUT P1, RZ, R2, 0x4, RZ, 0xc0, !PT
@P1 LDG.E R10, [R8.64]
@P1 IMAD.WIDE.U32 R8, R2, 0x4, R14
IADD3 R2, R2, -0x1, RZ
ISETP.NE.AND P0, PT, R2, RZ, PT
@P0 BRA `(.L_x)
EXIT
""")
    assert found.spaces == {"global"}
