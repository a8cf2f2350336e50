"""Programs whose compiled function has a larger frame than the stack of the thread that launches them."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: launches on a thread whose stack of 256 KiB is smaller than the frame of the program (some 350 KB: addresses of 2,500 loads, in 32
#: lanes each); threads that the engine starts without another size have such a stack too
LAUNCH = """
import threading
import numpy as np
import gpuperf_engine as ge
from gpuperf_engine.device import device as device_module

loads = 2500
steps = "".join(
    f"ld.u32 %v, [%rd1+{4 * (i % 97)}]; add.u32 %s, %s, %v; setp.eq.u32 %p, %s, {i}; @%p add.u32 %s, %s, 1;\\n"
    for i in range(loads)
)
text = f'''.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y) {{
.reg .b64 %rd<6>; .reg .b32 %v, %s, %t, %b; .reg .pred %p;
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
mov.u32 %t, %tid.x; mul.wide.u32 %rd3, %t, 4; add.u64 %rd1, %rd1, %rd3;
mov.u32 %b, %ctaid.x; mad.lo.u32 %t, %b, 32, %t; mul.wide.u32 %rd3, %t, 4; add.u64 %rd2, %rd2, %rd3;
mov.u32 %s, 0;
{steps}
st.u32 [%rd2], %s;
ret; }}'''

def launch():
    kernel = ge.parse(text, path="k.ptx")["k"]
    device = ge.Device()
    x = device.array(np.arange(128, dtype=np.uint32) + 5000)
    y = device.zeros(32 * blocks, np.uint32)
    device.launch(kernel, blocks, 32, [x, y])
    lanes = np.arange(32)
    # no partial sum equals the number of its step, as each summand is larger
    expected = sum(5000 + lanes + i % 97 for i in range(loads))
    assert (y.numpy().reshape(blocks, 32) == expected).all()
    short = device.array(np.zeros(32, np.uint32))
    try:
        device.launch(kernel, 1, 32, [short, y])
    except ge.MemoryFault as error:
        print(error.message)

blocks = BLOCKS
device_module.host_threads = lambda: 2
threading.stack_size(256 << 10)
thread = threading.Thread(target=launch)
thread.start()
thread.join()
"""


@pytest.mark.parametrize("blocks", [1, 400])
def test_the_stack_is_as_large_as_the_frame(blocks: int) -> None:
    """The second launch reads past the end of an array: its error is raised where it was launched."""
    text = LAUNCH.replace("BLOCKS", str(blocks))
    ran = subprocess.run([sys.executable, "-W", "error", "-c", text], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("out-of-bounds ld.u32: 4-byte load from ")
