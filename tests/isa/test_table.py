"""The table itself: lookup, what it says about errors, availability, consistency of the rows."""

from __future__ import annotations

import copy
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import islice

import pytest

from gpuperf_engine.errors import PtxError, Unsupported
from gpuperf_engine.isa import special, table
from gpuperf_engine.isa.availability import Available
from gpuperf_engine.isa.effects import EFFECTS, LOAD, PURE, STACK, WARPGROUP
from gpuperf_engine.isa.evaluation import evaluate, extend
from gpuperf_engine.isa.images.image import ROW_WORDS, Image
from gpuperf_engine.isa.model import CATEGORIES, UNITS, Form, Row
from gpuperf_engine.isa.primitives import Value
from gpuperf_engine.isa.spaces import WINDOWS
from gpuperf_engine.isa.table import check_available, instruction, lookup, rows
from gpuperf_engine.isa.types import SCALAR_TYPES, ScalarType, scalar_type

from .assembler import before_sources, forms
from .reference import PRED, Exact, run


def test_binding() -> None:
    (form,) = lookup("fma.rn.ftz.f32")
    assert form.modifiers == {
        "rnd": "rn",
        "ftz": True,
        "sat": None,
        "f32": True,
        "type": "f32",
        "space": None,
    }
    assert [slot.name for slot in form.operands] == ["d", "a", "b", "c"]
    assert [slot.role for slot in form.operands] == ["destination", "source", "source", "source"]
    assert (form.category, form.unit, form.flops) == ("fp32", "fma", 2)
    assert form.type == scalar_type("f32")


@pytest.mark.parametrize("again", (copy.copy, copy.deepcopy, lambda type: pickle.loads(pickle.dumps(type))))
def test_there_is_one_object_for_each_type(again: Callable[[ScalarType], ScalarType]) -> None:
    """Types are compared by identity, between processes too."""
    assert all(again(type) is type for type in SCALAR_TYPES.values())


def test_types_of_operands() -> None:
    (wide,) = lookup("mad.wide.s16")
    assert [slot.type.name for slot in wide.operands if slot.type] == ["s32", "s16", "s16", "s32"]
    (load,) = lookup("ld.global.nc.L1::no_allocate.v4.f32")
    assert [(slot.name, slot.role, slot.vector) for slot in load.operands] == [
        ("d", "destination", 4),
        ("a", "address", 1),
    ]
    assert load.space == "global"
    assert load.effect is LOAD
    assert load.vector == 4
    (hinted,) = lookup("st.global.L2::cache_hint.b32")
    assert [slot.name for slot in hinted.operands] == ["a", "b", "policy"]
    (convert,) = lookup("cvt.rn.f16.f32")
    assert convert.type == scalar_type("f16")
    assert lookup("fma.rn.f16x2")[0].flops == 4


def test_several_forms() -> None:
    assert [len(form.operands) for form in lookup("bar.sync")] == [2, 1]
    assert [slot.vector for form in lookup("mov.b64") for slot in form.sources] == [1, 2, 1, 4, 1]
    with_predicate, plain = lookup("shfl.sync.idx.b32")
    assert [slot.pair for slot in with_predicate.operands] == [False, True, False, False, False, False]
    assert len(plain.operands) == 5


def test_order_of_modifiers() -> None:
    """As ptxas: any order, but types stay in theirs."""
    assert lookup("ld.v2.global.f32")[0].row is lookup("ld.global.v2.f32")[0].row
    assert lookup("cvt.f32.s32.rn")[0].modifiers["dtype"] == "f32"
    with pytest.raises(PtxError):
        lookup("cvt.rn.s32.f32")


@pytest.mark.parametrize(
    ("opcode", "message", "hint"),
    [
        ("ad.f32", "unknown instruction 'ad'", "did you mean"),
        ("fmaa.rn.f32", "unknown instruction 'fmaa'", "did you mean 'fma'?"),
        ("add.f99", "add has no modifier '.f99'", "accepted: add"),
        ("fma.f32", "lacks one", "fma.rnd{.ftz}{.sat}.f32"),
        ("fma.rp.relu.bf16", "fma does not combine", "fma.rnd{.relu}.type"),
        ("cvt.rz.satfinite.bf16x2.s2f6x2", "cvt does not combine", "bf16x2.s2f6x2"),
        ("setp.lt.b32", "bit-size types have no order", ""),
        ("cvt.f32.f64", "a rounding (.rn .rz .rm .rp) is needed", ""),
        ("ld.shared.v4.f64", "longer than 128 bits", ""),
        ("cvt.sat.u32.u8", "'.sat' has no use", ""),
        ("", "unknown instruction ''", ""),
        (".", "unknown instruction ''", ""),
        ("ld" + ".global" * 20000, "more than any instruction has", ""),
        ("ld." + "x" * 20000, "…", "accepted: ld"),
        ("x" * 20000, "unknown instruction", ""),
        ("add..f32", "add has no modifier '.'", ""),
    ],
)  # fmt: skip
def test_errors(opcode: str, message: str, hint: str) -> None:
    with pytest.raises(PtxError) as caught:
        lookup(opcode)
    text = str(caught.value)
    assert message in text
    assert hint in text
    assert 1 <= len(text.splitlines()) <= 5
    assert len(text) < 2000


def test_availability() -> None:
    (form,) = lookup("add.bf16")
    check_available(form, (7, 8), 90)
    with pytest.raises(PtxError, match=r"needs \.version 7\.8"):
        check_available(form, (7, 0), 90)
    with pytest.raises(PtxError, match=r"needs \.target sm_90"):
        check_available(form, (8, 0), 80)
    with pytest.raises(PtxError, match=r"not available on sm_70"):
        check_available(lookup("shfl.idx.b32")[0], (6, 4), 70)
    check_available(lookup("shfl.idx.b32")[0], (6, 3), 70)
    check_available(lookup("shfl.idx.b32")[0], (8, 0), 60)
    eight = lookup("cvt.rn.satfinite.e4m3x2.f32")[0]
    check_available(eight, (7, 8), 90)
    check_available(eight, (8, 1), 89)
    with pytest.raises(PtxError, match=r"\.version 8\.1"):
        check_available(eight, (8, 0), 89)
    with pytest.raises(PtxError, match=r"sm_90a"):
        check_available(lookup("setmaxnreg.inc.sync.aligned.u32")[0], (8, 0), 90)
    check_available(lookup("setmaxnreg.inc.sync.aligned.u32")[0], (8, 0), 90, "a")
    with pytest.raises(PtxError, match=r"sm_100"):
        check_available(lookup("ld.global.v4.f64")[0], (8, 8), 90)


def test_rows_that_contradict_themselves() -> None:
    for syntax, options in (
        ("foo.type d, a", {"type": "u32", "category": "integer", "unit": "alu", "mode": "lo"}),
        ("foo d", {"category": "numbers", "unit": "alu"}),
        ("foo d", {"category": "integer", "unit": "abacus"}),
        ("foo d", {"category": "integer", "unit": "alu", "effect": "magic"}),
        (
            "foo d",
            {"category": "integer", "unit": "alu", "since": (8, 0), "available": Available(target=90)},
        ),
        ("foo d-e", {"category": "integer", "unit": "alu"}),
        ("{foo d", {"category": "integer", "unit": "alu"}),
    ):
        with pytest.raises(ValueError, match=r"foo"):
            instruction(syntax, **options)(lambda a: a)  # type: ignore[arg-type]
            try:
                lookup("foo.u32" if "type" in options else "foo")
            finally:
                del table._ROWS["foo"]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.syntax)
def test_row(row: Row) -> None:
    """Every row has forms, and its semantics give results of the right types for any bits."""
    assert row.documentation
    assert "\n\n" not in row.documentation
    generator = random.Random(row.syntax)
    # the reference takes 50 ms for a texel that is interpolated; test_images.py tests what all these instructions read
    some = list(islice(forms(row, 12), 3 if row.syntax.startswith(("tex", "tld4")) else None))
    assert some
    for form in some:
        assert form.category in CATEGORIES
        assert form.unit in UNITS
        assert form.effect in EFFECTS
        assert all(slot.type is None or slot.type.name in SCALAR_TYPES for slot in form.operands)
        assert all(slot.type is not None for slot in (*form.sources, *form.destinations))
        if row.semantics is None:
            with pytest.raises(Unsupported, match="not implemented"):
                evaluate(form, [])
        else:
            _check_types(form, generator)


def _check_elements(form: Form, generator: random.Random) -> None:
    """Of a product of matrices in shared memory: numbers of one type from words, and the elements of D from those."""
    word = Exact(generator.getrandbits(32), scalar_type("b32"))
    a, b = (evaluate(form, [what, word]) for what in (0, 1))
    assert len({number.type for number in (*a, *b)}) == 1
    half = form.operands[0].type == scalar_type("b32")
    kind = scalar_type("f16") if half else form.operands[0].type
    assert kind is not None
    deep = 2 if any(slot.name == "metadata" for slot in form.operands) else 1
    c, scale = Exact(generator.getrandbits(kind.bits), kind), Exact(1, PRED)
    found = evaluate(form, [2, 1, 1, scale, c, *a * 8, *b * 8 * deep, *[word] * 2 * (deep - 1)])
    assert [result.type for result in found] == [kind]


def _check_types(form: Form, generator: random.Random) -> None:
    if form.effect is WARPGROUP:
        _check_elements(form, generator)
        return
    slots = [slot for slot in form.sources for _ in range(slot.vector)]
    first = before_sources(form)
    types = [*first, *(slot.type or PRED for slot in slots)] + [PRED] * form.reads_carry
    types += [scalar_type("u32")] * form.reads_rank
    constants = [False] * len(first) + [slot.constant for slot in slots]
    constants += [False] * (form.reads_carry + form.reads_rank)
    expected = [slot.type for slot in form.destinations for _ in range(slot.vector)]
    expected += [PRED] * (form.writes_carry or form.row.applied.checked is not None)
    moves = form.moves
    if moves is not None:
        moved = [scalar_type(f"b{8 * part.bytes}") for part in moves.parts for _ in range(part.count)]
        if form.destinations:
            types, constants = moved, [False] * len(moved)
        else:
            types, constants, expected = types[: slots[0].vector], constants[: slots[0].vector], moved
    elif form.effect is STACK:
        types, constants = [*types, form.type or PRED], [*constants, False]
        expected = [form.type]
    elif form.category == "texture":
        _check_image(form, types, generator)
        return
    elif form.effect is not PURE and not form.effect.whole_warp:
        kind = form.type or PRED
        types = (
            [scalar_type("u32")] * 3
            if form.row.name == "shfl"
            else [kind] * (3 if "cas" in form.opcode else 2)
        )
        constants = [False] * 3
        expected = [scalar_type("u32"), PRED] if form.row.name == "shfl" else [kind]
    sources = [
        generator.getrandbits(8) if constant else Exact(generator.getrandbits(type.bits), type)
        for type, constant in zip(types, constants)
    ]
    results = evaluate(form, sources)
    if (
        form.effect is not PURE
        and not form.effect.whole_warp
        and expected[0] is not None
        and expected[0].lanes > 1
    ):
        assert [result.type.bits for result in results] == [expected[0].bits]
    elif moves is not None:
        assert [result.type.bits for result in results] == [
            kind.bits for kind in expected if kind is not None
        ]
    else:
        assert [result.type for result in results] == expected


class AnyImage(Image):
    """An image of arbitrary properties and texels."""

    def __init__(self, generator: random.Random) -> None:
        self.generator = generator
        self.words = [generator.choice((0, 1, 2, 3, 4, generator.getrandbits(32))) for _ in range(ROW_WORDS)]

    def word(self, place: int) -> Exact:
        return Exact(self.words[place], scalar_type("u32"))

    def word_behind(self, place: int, rows: Value) -> Exact:
        assert rows.type.name == "u32"
        return Exact(self.generator.getrandbits(32), scalar_type("u32"))

    def word_of(self, handle: Value, place: int) -> Exact:
        assert handle.type.bits == 64
        return Exact(self.generator.getrandbits(32), scalar_type("u32"))

    def load(self, address: Value, where: Value) -> Exact:
        assert (address.type.name, where.type) == ("u64", PRED)
        return Exact(self.generator.getrandbits(32), scalar_type("b32"))

    def store(self, address: Value, value: Value, where: Value) -> None:
        assert (address.type.name, value.type.is_bits, where.type) == ("u64", True, PRED)

    def change(self, address: Value, value: Value, op: str, where: Value) -> None:
        assert (address.type.name, where.type) == ("u64", PRED)
        assert op in ("add", "min", "max", "and", "or")

    def either(
        self, condition: Value, yes: Callable[[], Sequence[Value]], no: Callable[[], Sequence[Value]]
    ) -> Sequence[Value]:
        assert condition.type == PRED
        both = [yes(), no()]
        assert [value.type for value in both[0]] == [value.type for value in both[1]]
        return both[isinstance(condition, Exact) and condition.pattern == 0]

    def refuse(self, where: Value) -> None:
        assert where.type == PRED


def _check_image(form: Form, types: list[ScalarType], generator: random.Random) -> None:
    """Of one image and one place: whatever they are, both sides of each of their conditions are evaluated."""
    given = types if any(slot.role == "address" for slot in form.operands) else types[1:]
    values = [Exact(generator.getrandbits(type.bits), type) for type in given]
    results = evaluate(form, [AnyImage(generator), *values])  # type: ignore[list-item]
    assert [value.type for value in results] == [
        slot.type for slot in form.destinations for _ in range(slot.vector)
    ]


def test_addresses() -> None:
    """Generic and global addresses are the same; shared and local ones are moved by their windows."""
    base, size = WINDOWS["shared"]
    assert run("cvta.shared.u64", 16) == (base + 16,)
    assert run("cvta.to.shared.u64", base + 16) == (16,)
    assert run("cvta.to.global.u64", 0x7000) == (0x7000,)
    assert run("isspacep.shared::cluster", base + size - 1, 0) == (1,)
    assert run("isspacep.shared::cluster", base + size, 0) == (0,)
    assert run("isspacep.global", 0x7000, 0) == (1,)
    assert run("isspacep.global", base, 0) == (0,)


def test_addresses_of_clusters() -> None:
    """The shared memory of rank r begins r · 2^24 above the window; a CTA's own window is a part of that of the cluster."""
    base, _ = WINDOWS["shared"]
    for space in ("shared", "shared::cta"):
        assert run(f"isspacep.{space}", base + 0xFFFFFF, 0) == (1,)
        assert run(f"isspacep.{space}", base + 0x1000000, 0) == (0,)
        assert run(f"isspacep.{space}", base + 0x5000010, 5) == (1,)
        assert run(f"isspacep.{space}", base + 0x5000010, 4) == (0,)
        assert run(f"isspacep.{space}", base + 0x5000010, 6) == (0,)
    assert run("mapa.shared::cluster.u32", 0x20, 3) == (0x03000020,)
    assert run("mapa.shared::cluster.u32", 0x07123456, 15) == (0x0F123456,)
    assert run("mapa.shared::cluster.u64", 0x07123456, 2) == (0x02123456,)
    assert run("mapa.u64", base + 0x07123456, 1) == (base + 0x01123456,)
    assert run("mapa.u64", base + 0x07123456, 0) == (base + 0x00123456,)
    # a rank that no cluster has must not become that of another CTA
    assert run("mapa.u64", base + 0x40, 256) == (base + 0xFF000040,)
    assert run("mapa.shared::cluster.u32", 0x40, 0xFFFFFFFF) == (0xFF000040,)
    assert run("getctarank.shared::cluster.u32", 0x0F123456) == (15,)
    assert run("getctarank.shared::cluster.u64", 0x00123456) == (0,)
    assert run("getctarank.u64", base + 0x05000000) == (5,)


def test_extension() -> None:
    """Registers wider than what was loaded: extended by the signedness of the instruction's type."""
    assert extend(Exact(0x80, scalar_type("s8")), scalar_type("b32")).pattern == 0xFFFFFF80
    assert extend(Exact(0x80, scalar_type("u8")), scalar_type("s32")).pattern == 0x80
    assert extend(Exact(0x80, scalar_type("b8")), scalar_type("b16")).pattern == 0x80
    assert extend(Exact(0x8000, scalar_type("f16")), scalar_type("b32")).pattern == 0x8000
    assert extend(Exact(0x3F800000, scalar_type("f32")), scalar_type("b32")).type == scalar_type("b32")


def test_special_registers() -> None:
    assert special.special_register("tid.x").scope == "thread"
    assert special.special_register("clock64").type == scalar_type("u64")
    with pytest.raises(PtxError, match="vector"):
        special.special_register("tid")
    with pytest.raises(PtxError, match="unknown special register %lanid"):
        special.special_register("lanid")
    special.check_register(special.special_register("laneid"), (2, 0), 20)
    with pytest.raises(PtxError, match="sm_90"):
        special.check_register(special.special_register("cluster_ctaid.x"), (8, 0), 80)


def test_loading_is_quick_and_light() -> None:
    """A fresh interpreter loads the table without numpy, lark or llvmlite, in well under a tenth of a second of its own."""
    code = (
        "import sys, time; start = time.process_time(); import gpuperf_engine.isa.table as table; table.rows();"
        "took = time.process_time() - start;"
        "heavy = [name for name in ('numpy', 'lark', 'llvmlite', 'networkx') if name in sys.modules];"
        "print(took); assert not heavy, heavy; assert took < 0.5, took"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
