"""Arrays that neighbouring threads go through by columns: 64 bytes of each row of DRAM at a time, on real machine code."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.timing.models.simulation import simulated
from tests.support import needs_assembler

pytestmark = needs_assembler
#: C = A + B of 8192 × 8192 words in CTAs of 16 × 16 threads, whose x is the row, or the column
ADD = """.version 7.0
.target sm_52
.address_size 64
.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c)
{
.reg .b32 %r<9>; .reg .b64 %q<5>;
ld.param.u64 %q1, [a]; ld.param.u64 %q2, [b]; ld.param.u64 %q3, [c];
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r1, %r2, 16, %r1;
mov.u32 %r3, %tid.y; mov.u32 %r4, %ctaid.y; mad.lo.u32 %r3, %r4, 16, %r3;
mad.lo.u32 %r5, ROW, 8192, COLUMN; mul.wide.u32 %q4, %r5, 4;
add.u64 %q1, %q1, %q4; add.u64 %q2, %q2, %q4; add.u64 %q3, %q3, %q4;
ld.global.u32 %r6, [%q1]; ld.global.u32 %r7, [%q2]; add.u32 %r8, %r6, %r7; st.global.u32 [%q3], %r8;
ret;
}
"""


def added(row: str, column: str) -> ge.Estimate:
    device = ge.Device()
    kernel = ge.parse(ADD.replace("ROW", row).replace("COLUMN", column), path="add.ptx")["add"]
    arrays = [device.zeros(16 * 8192, np.int32) for _ in range(3)]
    (record,) = device.launch(kernel, 1, (16, 16), arrays, demand="addresses").records
    addresses = np.array([1 << 32, 2 << 32, 3 << 32], np.uint64).tobytes()
    parameters = addresses + record.plan.parameters[len(addresses) :]
    plan = replace(record.plan, grid=(512, 512, 1), parameters=parameters)
    return simulated(replace(record, plan=plan), load_machine("rtx-3080"))


def test_columns_take_as_long_as_measured_more_than_rows() -> None:
    """RTX 3080, R100001/Programming-Massively-Parallel-Processors a972fb5: 2128 and 1152 µs (RTX 3070 Ti: 2343 and 1452)."""
    columns, rows = added("%r1", "%r3"), added("%r3", "%r1")
    assert columns.limiter == rows.limiter == "dram"
    assert 0.85 < columns.time_us / 2128 < 1.15
    assert 0.85 < rows.time_us / 1152 < 1.15
