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
