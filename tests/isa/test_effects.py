"""Effects of instructions, and who carries them out."""

from __future__ import annotations

import pytest

from gpuperf_engine.interp import blocks as interp_blocks
from gpuperf_engine.interp import handlers as interp
from gpuperf_engine.isa.effects import (
    ASYNC_COPY,
    ATOMIC,
    BULK_COPY,
    CONVERGENCE,
    EFFECTS,
    IMAGE_QUERY,
    LOAD,
    MATRIX,
    MATRIX_LOAD,
    MATRIX_STORE,
    MBARRIER,
    MBARRIER_WAIT,
    STACK,
    STORE,
    SURFACE,
    TENSOR,
    TENSOR_ALLOC,
    TENSOR_COPY,
    TENSOR_FREE,
    TENSOR_LOAD,
    TENSOR_MAP,
    TENSOR_PRODUCT,
    TENSOR_SHIFT,
    TENSOR_STORE,
    TEXTURE,
    WARPGROUP,
    Handlers,
)
from gpuperf_engine.isa.table import lookup, rows
from gpuperf_engine.jit.codegen import block as jit_block
from gpuperf_engine.jit.codegen import handlers as jit
from gpuperf_engine.symbolic import backend as symbolic_backend
from gpuperf_engine.symbolic import handlers as symbolic

#: the modules whose import registers all handlers of a backend
assert interp_blocks and jit_block and symbolic_backend

RUN = {row.effect for row in rows() if row.runs} | {CONVERGENCE}


@pytest.mark.parametrize("backend", [interp, jit], ids=["interp", "jit"])
def test_every_effect_that_runs_has_one_handler(backend: object) -> None:
    """What ends a block is an end, all else a step."""
    steps, ends = set(backend.handles), set(backend.ends)  # type: ignore[attr-defined]
    assert ends == {effect for effect in RUN if effect.ends_block}
    assert steps == {effect for effect in RUN if not effect.ends_block}


def test_effects_that_warp_classes_refuse() -> None:
    """All others are carried out, or change nothing that they could see."""
    assert set(symbolic.ends) == {effect for effect in RUN if effect.ends_block}
    assert RUN - set(symbolic.ends) - set(symbolic.handles) == {
        *(
            BULK_COPY,
            TENSOR_MAP,
            MBARRIER,
            MBARRIER_WAIT,
            MATRIX,
            MATRIX_LOAD,
            MATRIX_STORE,
            CONVERGENCE,
            WARPGROUP,
            TENSOR_ALLOC,
            TENSOR_FREE,
            TENSOR_LOAD,
            TENSOR_STORE,
            TENSOR_COPY,
            TENSOR_PRODUCT,
            TENSOR_SHIFT,
        ),
        *(STACK, TEXTURE, SURFACE, IMAGE_QUERY),
    }


def test_every_effect_is_of_some_row() -> None:
    assert {row.effect for row in rows()} == set(EFFECTS) - {CONVERGENCE}
    assert set(EFFECTS) - RUN == {TENSOR}
    assert len({effect.name for effect in EFFECTS}) == len(EFFECTS)


def test_a_second_handler_is_an_error() -> None:
    handles: Handlers[object] = Handlers()  # type: ignore[type-var]
    handles(LOAD)(max)
    with pytest.raises(ValueError, match="load has a handler already: max"):
        handles(STORE, LOAD)(min)


def test_properties_agree() -> None:
    """What follows from the words of the manual for one property follows from another."""
    for effect in EFFECTS:
        assert effect.reads or effect.writes or not (effect.site or effect.per_lane or effect.copies), effect
        assert effect.atomic <= (effect.reads and effect.writes and effect.per_lane), effect
        assert effect.exchanges <= (effect.collective == "warp"), effect
        assert effect.whole_warp <= effect.joins_lanes, effect
        assert effect.is_barrier <= effect.ends_block, effect
        assert effect.description


@pytest.mark.parametrize(
    ("opcode", "effect"),
    [
        ("ld.global.u32", LOAD),
        ("ldu.global.u32", LOAD),
        ("st.shared.u32", STORE),
        ("atom.global.add.u32", ATOMIC),
        ("cp.async.ca.shared.global", ASYNC_COPY),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16", MATRIX_LOAD),
        ("stmatrix.sync.aligned.m8n8.x1.shared.b16", MATRIX_STORE),
        ("wmma.load.a.sync.aligned.row.m16n16k16.global.f16", MATRIX_LOAD),
        ("wmma.store.d.sync.aligned.row.m16n16k16.global.f32", MATRIX_STORE),
        ("movmatrix.sync.aligned.m8n8.trans.b16", MATRIX),
    ],
)
def test_effect_of_an_opcode(opcode: str, effect: object) -> None:
    assert {form.effect for form in lookup(opcode)} == {effect}


@pytest.mark.parametrize(
    "opcode",
    ["shfl.sync.idx.b32", "vote.sync.any.pred", "match.any.sync.b32", "redux.sync.add.u32", "elect.sync"],
)
def test_exchanges(opcode: str) -> None:
    """Each kind has an effect of its own, by its name."""
    (effect,) = {form.effect for form in lookup(opcode)}
    assert effect.exchanges
    assert effect.name == opcode.split(".")[0]


def test_matrices_in_memory_are_told_by_their_effect() -> None:
    for row in rows():
        assert (row.applied.moves is not None) == (row.effect in (MATRIX_LOAD, MATRIX_STORE)), row.syntax
