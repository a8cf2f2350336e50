"""Groups of opcodes as the metrics of nvprof, against counts worked out by hand and the instruction table itself."""

from __future__ import annotations

from itertools import product

import pytest

import gpuperf_engine as ge
from gpuperf_engine.errors import PtxError
from gpuperf_engine.isa.table import lookup, rows
from gpuperf_engine.profile.groups import CLASSES, METRICS, metrics_of
from tests.engine.running import launch

NAMES = [metric.name for metric in METRICS]


def groups_of(backend: str, body: str, **options: object) -> dict[str, int]:
    profile = launch(backend, body, **options)
    found = profile.groups("nvprof")
    assert list(found) == NAMES
    assert sum(found[name] for name in CLASSES) == profile.thread_instructions_predicated_on
    return {name: count for name, count in found.items() if count}


ARITHMETIC = """
    mov.u32 %r0, %tid.x;            // misc
    setp.lt.u32 %p0, %r0, 20;       // integer: compares integers
    cvt.rn.f32.u32 %f0, %r0;        // bit_convert
    add.f32 %f1, %f0, %f0;
@%p0 sub.f32 %f1, %f1, %f0;         // 20 of 32 lanes
    mul.f32 %f2, %f0, %f1;
@!%p0 fma.rn.f32 %f3, %f0, %f1, %f2; // 12 lanes, 2 operations each
    rcp.approx.f32 %f4, %f3;        // special, in no sum
    div.rn.f32 %f4, %f3, %f2;       // special
    max.f32 %f5, %f4, %f3;          // no operation that nvprof counts
    setp.lt.f32 %p1, %f5, %f4;      // fp_32: compares f32
    selp.f64 %fd0, %fd1, %fd2, %p1; // fp_64
    fma.rn.f64 %fd3, %fd0, %fd0, %fd0;
    mov.b32 %r1, 0;
    add.f16x2 %r2, %r1, %r1;        // two lanes of a word
    fma.rn.f16 %h0, %h1, %h1, %h1;
    and.b32 %r3, %r0, 7;
    mul.lo.u32 %r4, %r0, 3;
    ret;
"""


def test_arithmetic_worked_out_by_hand(backend: str) -> None:
    assert groups_of(backend, ARITHMETIC) == {
        "flop_count_sp": 32 + 20 + 32 + 2 * 12,
        "flop_count_sp_add": 32 + 20,
        "flop_count_sp_mul": 32,
        "flop_count_sp_fma": 12,
        "flop_count_sp_special": 2 * 32,
        "flop_count_dp": 2 * 32,
        "flop_count_dp_fma": 32,
        "flop_count_hp": 2 * 32 + 2 * 32,
        "flop_count_hp_add": 2 * 32,
        "flop_count_hp_fma": 32,
        "inst_integer": 3 * 32,
        "inst_fp_16": 2 * 32,
        "inst_fp_32": 32 + 20 + 32 + 12 + 4 * 32,
        "inst_fp_64": 2 * 32,
        "inst_bit_convert": 32,
        "inst_control": 32,
        "inst_misc": 2 * 32,
        "inst_executed": 19,
    }


MEMORY = """
    .shared .align 8 .b8 area[256];
    ld.param.u64 %rd0, [data];      // ld_st, of no space that is counted
    mov.u32 %r0, %tid.x;
    setp.lt.u32 %p0, %r0, 4;
    ld.global.u32 %r1, [%rd0];
    ld.global.v2.u32 {%r2, %r3}, [%rd0];
    ld.u32 %r4, [%rd0];             // generic
    st.global.u32 [%rd0+8], %r1;
@%p0 st.shared.u32 [area], %r1;     // one instruction of the warp, 4 threads
    bar.sync 0;
    ld.shared.u32 %r5, [area];
    atom.shared.add.u32 %r6, [area], 1;
    red.shared.add.u32 [area], 1;
    atom.global.add.u32 %r7, [%rd0], 1;
    atom.global.add.f32 %f0, [%rd0], 0f00000000; // atomics are no floating-point operations of nvprof
    red.global.add.u32 [%rd0], 1;
    atom.add.u32 %r8, [%rd0], 1;
    red.add.u32 [%rd0], 1;
    shfl.sync.idx.b32 %r9, %r8, 0, 31, -1;
    membar.gl;
@%p0 bra END;
    ret;
END:
    exit;
"""


def test_accesses_worked_out_by_hand(backend: str) -> None:
    """Two warps. All lanes run the same way but for the last branch, at which 4 of the first warp part."""
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    data = device.zeros(4, "uint32")
    found = groups_of(backend, MEMORY, parameters=".param .u64 data", args=[data], block=64, device=device)
    assert found == {
        "inst_integer": 64,
        "inst_control": 4 + 60 + 4,  # the taken lanes of the branch, then ret and exit
        "inst_compute_ld_st": 13 * 64 + 4,
        "inst_inter_thread_communication": 64,
        "inst_misc": 3 * 64,
        "inst_executed": 2 * 20 + 2 + 1,
        "inst_executed_global_loads": 4,
        "inst_executed_global_stores": 2,
        "inst_executed_shared_loads": 2,
        "inst_executed_shared_stores": 2,
        "inst_executed_generic_loads": 2,
        "inst_executed_global_atomics": 4,
        "inst_executed_global_reductions": 2,
        "inst_executed_shared_atomics": 4,
        "inst_executed_generic_atomics": 2,
        "inst_executed_generic_reductions": 2,
    }


def test_local_accesses(backend: str) -> None:
    body = (
        ".local .b8 own[8];\nst.local.u32 [own], 1;\nld.local.u32 %r0, [own];\nld.local.u32 %r0, [own];\nret;"
    )
    found = groups_of(backend, body)
    assert (found["inst_executed_local_loads"], found["inst_executed_local_stores"]) == (2, 1)


def test_sums_of_launches_add_groups() -> None:
    profile = launch("llvm", ARITHMETIC)
    total = ge.add_profiles([profile, profile])
    assert total.groups() == {name: 2 * count for name, count in profile.groups().items()}
    assert total.groups("categories") == total.by_category
    with pytest.raises(ge.UnknownName, match="did you mean 'nvprof'"):
        profile.groups("nvprofs")


def test_every_row_is_in_one_class_and_in_metrics_that_exist() -> None:
    seen = set()
    for row in rows():
        # every combination of what may decide: types and state spaces
        slots = [values for name, values in row.modifiers.items() if name in ("type", "dtype", "space")]
        for choice in product(*slots):
            for form in forms(row.name, row, choice):
                threads, warps = metrics_of(form)
                assert {*threads, *warps} <= set(NAMES)
                assert [threads[name] for name in CLASSES if name in threads] == [1]
                seen.update(threads)
    assert set(CLASSES) <= seen


def forms(mnemonic: str, row: object, choice: tuple[str, ...]) -> list[object]:
    from gpuperf_engine.isa.table import Row

    assert isinstance(row, Row)

    def words(items: object) -> list[str]:
        found: list[str] = []
        for item in items:  # type: ignore[attr-defined]
            if item.group:
                found += words(item.group) if any(value in choice for value in _values(item)) else []
            elif item.values:
                found.append(next((value for value in item.values if value in choice), item.values[0]))
            else:
                found.append(item.name)
        return found

    try:
        return [form for form in lookup(".".join([mnemonic, *words(row.pattern)])) if form.row is row]
    except PtxError:
        return []


def _values(item: object) -> list[str]:
    return [value for inner in item.group for value in (inner.values or _values(inner))]  # type: ignore[attr-defined]
