"""Launches that choose among kernels: their time is that of a launch, and they store nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = '''
import gpuperf_engine as ge
from pytest_gpuperf.programs.device import ProgramDevice

module = ge.parse("""
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x) {
    .reg .b64 %rd<4>; .reg .b32 %r<8>; .reg .f32 %f<4>; .reg .pred %p;
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r1, %r2, %r3, %r1;
    mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;
    ld.global.f32 %f1, [%rd1]; mov.u32 %r4, 0;
    again: fma.rn.f32 %f1, %f1, 0f40000000, 0f3f800000; add.u32 %r4, %r4, 1; setp.lt.u32 %p, %r4, 10; @%p bra again;
    st.global.f32 [%rd1], %f1; ret; }
""")
device = ProgramDevice("a100-sxm-80gb")
device.timing = True
address = device.device.allocate(1024, written=True)
device.device.write_bytes(address, bytes(1024))
times = []
for results in (False, True):
    before = device.elapsed_us
    with device.trying_out(results=results):
        device.run(module["k"], (2, 1, 1), 128, address.to_bytes(8, "little"), [address])
    times.append(device.elapsed_us - before)
    print(set(device.device.read_bytes(address, 1024)) == {0})
assert times[0] == times[1] > 0
'''


def test_a_launch_without_results_takes_as_long_and_stores_nothing(tmp_path: Path) -> None:
    # a process has one mapped device
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stdout.split()) == (0, ["True", "False"]), done.stderr
