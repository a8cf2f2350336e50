"""Listings of ``nvdisasm`` as instructions and blocks: one of a kernel of ours as it was printed, and small ones by hand."""

from __future__ import annotations

import pytest

import gpuperf_engine as ge
from gpuperf_engine.sass.encoding import control_of
from gpuperf_engine.sass.graph import build_graph
from gpuperf_engine.sass.listing import Listing, read_listing
from gpuperf_engine.sass.pipes import pipe_of
from tests.sass.listings import WALK, written


@pytest.fixture(scope="module")
def walk() -> Listing:
    return read_listing(WALK.read_text(encoding="utf-8"))


def test_control_fields_are_where_the_paper_has_them() -> None:
    """Stall 3, no yield, write scoreboard 2, none for reading, waits for 0 and 5, second operand reused."""
    control = control_of((3 | 1 << 4 | 2 << 5 | 7 << 8 | 0b100001 << 11 | 0b0010 << 17) << 105)
    assert (control.stall, control.yields) == (3, False)
    assert (control.write_scoreboard, control.read_scoreboard) == (2, None)
    assert (control.waits, control.reuse) == ((0, 5), (1,))


def test_who_waits_for_a_load_is_who_uses_it(walk: Listing) -> None:
    """The load of R4 holds a scoreboard; the first instruction behind it that reads R4 waits for that."""
    (load,) = (item for item in walk.instructions if item.base == "LDG")
    assert load.opcode == "LDG.E" and load.operands == ("R4", "[R2.64]")
    users = [item for item in walk.instructions if "R4" in item.operands[1:] and item.address > load.address]
    assert load.control.write_scoreboard in users[0].control.waits
    assert users[0].predicate == "@P2"


def test_reuse_flags_are_those_of_the_text(walk: Listing) -> None:
    """Flag n is that of the nth register that is read; of what is no register there is none."""
    marked = [item for item in walk.instructions if ".reuse" in item.text]
    assert len(marked) > 3
    assert all(len(item.control.reuse) == item.text.count(".reuse") for item in walk.instructions)


def test_every_instruction_has_its_ptx_and_padding_is_gone(walk: Listing) -> None:
    assert {item.ptx for item in walk.instructions} <= set(range(1, 18))
    assert [item.address for item in walk.instructions] == list(range(0, 16 * len(walk.instructions), 16))
    assert walk.instructions[-1].text == "EXIT" and walk.instructions[-1].ptx == 17
    assert [item.ptx for item in walk.instructions if item.base in ("LDG", "STG")] == [8, 16]


def test_the_loop_is_found(walk: Listing) -> None:
    graph = build_graph(walk, "walk")
    ((head, body),) = graph.loops
    latch = graph.blocks[max(body)]
    assert body == {head} and graph.reached == set(range(len(graph.blocks)))
    assert graph.instructions(latch)[-1].text.startswith("@!P1 BRA")
    # four of the loop's multiplications are in one turn of it: ptxas unrolled it
    assert [(item.ptx, item.opcode) for item in graph.instructions(latch)].count((11, "IMAD")) == 4
    assert [block.kind for block in graph.blocks if graph.instructions(block)[-1].base == "BSYNC"] == [
        "join"
    ] * 2


def test_ends_of_blocks() -> None:
    listing = written(
        """
        .function k
        @P0 EXIT # 1
        BRX R4 -0x280 (*"BRANCH_TARGETS .L_1,.L_2,.L_1"*)
        .L_1:
        @!P1 BRA !P2, `(.L_3)
        CALL.REL.NOINC `($slow)
        BRA.U !UP0, `(.L_1)
        .L_2:
        WARPSYNC.ALL
        CALL.REL.NOINC `(.L_1)
        .L_3:
        UISETP.NE.AND UP0, UPT, UR6, 0x5, UPT
        BRA.DIV UR4, `(.L_3)
        EXIT
        .function $slow
        @P0 RET.REL.NODEC R4 `(k)
        RET.REL.NODEC R4 `(k)
        .L_4:
        BRA `(.L_4)
        """
    )
    graph = build_graph(listing, "k")
    ends = [(graph.instructions(block)[-1].opcode, block.kind, block.successors) for block in graph.blocks]
    assert ends[:10] == [
        ("EXIT", "exit", (1,)),
        ("BRX", "branch", (2, 5)),
        ("BRA", "branch", (7, 3)),
        ("CALL.REL.NOINC", "call", (4,)),
        ("BRA.U", "branch", (2, 5)),
        ("WARPSYNC.ALL", "join", (6,)),
        ("CALL.REL.NOINC", "jump", (2,)),
        ("BRA.DIV", "branch", (7, 8)),
        ("EXIT", "exit", ()),
        ("RET.REL.NODEC", "return", (10,)),
    ]
    assert graph.blocks[3].callee == 9 and graph.entries == [0, 9]
    assert [graph.blocks[index].function for index in (0, 8, 9, 10)] == [0, 0, 1, 1]
    assert [head for head, _ in graph.loops] == [2, 7]
    assert listing.instructions[-2].ptx == 0 and listing.instructions[0].ptx == 1


def test_a_call_by_a_register_is_of_any_function() -> None:
    """``nvdisasm`` names the beginning of the code, from where on the register counts."""
    listing = written(
        ".function k\nCALL.REL.NOINC R2 `(k)\nCALL.ABS.NOINC `(one)\nEXIT\n.function one\nRET.REL.NODEC R20 `(k)"
    )
    assert [block.callee for block in build_graph(listing, "k").blocks] == [-1, 3, None, None]


def test_operands_and_predicates() -> None:
    listing = written(
        """
        @PT LDG.E.64 R2, desc[UR4][R4.64+0x10], !PT
        @!UP0 IMAD.WIDE R2, R2.reuse, -R3, c[0x0][0x160]
        STL [R1+0x27c], R4           (*"SpillRefill"*)
        EXIT
        """
    )
    load, multiply, spill, leave = listing.instructions
    assert spill.operands == ("[R1+0x27c]", "R4")
    assert (load.predicate, load.operands) == ("", ("R2", "desc[UR4][R4.64+0x10]", "!PT"))
    assert (multiply.predicate, multiply.opcode, multiply.base) == ("@!UP0", "IMAD.WIDE", "IMAD")
    assert multiply.operands == ("R2", "R2.reuse", "-R3", "c[0x0][0x160]") and leave.operands == ()


def test_a_listing_of_an_older_architecture_is_refused() -> None:
    with pytest.raises(ge.MachineError, match="without its second half"):
        read_listing(
            "\t.section\t.text.k\n        /*0008*/  MOV R1, c[0x0][0x20] ;  /* 0x4c98078000870001 */\n"
        )


def test_pipes_are_those_of_the_profiling_guide() -> None:
    expected = {
        "IMAD.WIDE.U32": "fma", "FFMA": "fma", "IADD3.X": "alu", "MUFU.RCP": "xu", "LDS.128": "lsu", "BSYNC": "cbu", "DFMA": "fp64",
        "HMMA.16816.F32": "tensor", "UIADD3": "uniform", "UTMALDG.2D": "tma", "BAR.SYNC.DEFER_BLOCKING": "adu", "S2R": "other",
    }  # fmt: skip
    assert {opcode: pipe_of(opcode, 80) for opcode in expected} == expected
    assert [pipe_of("HFMA2.MMA", architecture) for architecture in (75, 80, 86, 90)] == [
        "fp16",
        "fp16",
        "fma",
        "fma",
    ]
