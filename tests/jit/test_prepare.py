"""LLVM gets ready in a thread while other things are done: with the same results, wherever there are threads or none."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

LAUNCH = """
import numpy as np, gpuperf_engine as ge
text = '''
.version 7.0
.target sm_70
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r1;
    ret;
}'''
def launch(device):
    out = device.zeros(32, np.uint32)
    device.launch(ge.parse(text)["k"], 1, 32, [out])
    return out.numpy().tolist() == list(range(32))
"""
NO_THREADS = """
import threading
def refuse(self):
    raise RuntimeError("can't start new thread")
threading.Thread.start = refuse
assert launch(ge.Device())
# the first kernel of an installation does not wait for functions that it does not need
from gpuperf_engine.jit import runtime_libraries
assert {*runtime_libraries._libraries} == {"script", "global_4"}
"""
FORKED = """
import os, signal
for _ in range(5):
    device = ge.Device()
    child = os.fork()
    if not child:
        signal.alarm(60)
        os._exit(0 if launch(device) else 1)
    assert os.waitpid(child, 0)[1] == 0
assert launch(device)
"""
MANY = """
import threading
from gpuperf_engine.jit import llvm as native_jit
native_jit.prepare()
found = []
linker = native_jit.on_thread(native_jit._linker)
threads = [threading.Thread(target=lambda: found.append((linker(), native_jit.host()))) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(found) == 8 and all(jit is found[0][0] and host is found[0][1] for jit, host in found)
"""
#: Ctrl-C at the worst moment: llvmlite has just taken its lock
INTERRUPTED = """
import signal, threading
import llvmlite.binding.ffi as ffi
from gpuperf_engine.jit import llvm
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
def interrupt():
    ffi.lib._lock.unregister(interrupt, nothing)
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
def nothing():
    pass
def compiled():
    return llvm.compile_object("define i64 @f() { ret i64 7 }", 0)
expected = compiled()
ffi.lib._lock.register(interrupt, nothing)
try:
    compiled()
except KeyboardInterrupt:
    pass
else:
    raise AssertionError("not interrupted")
results = []
thread = threading.Thread(target=lambda: results.append(compiled()), daemon=True)
thread.start()
thread.join(60)
assert results == [expected] == [compiled()]
"""


@pytest.mark.parametrize(
    "code",
    [
        NO_THREADS,
        INTERRUPTED,
        pytest.param(FORKED, marks=pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")),
        MANY,
    ],
    ids=["no threads", "interrupted", "forked", "many threads"],
)
def test_a_process_of_its_own_gets_ready(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LAUNCH + code],
        env={**os.environ, "GPUPERF_CACHE": "off"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
