"""A program whose kernels wait for what the host writes while they run, for ``test_waiting``. The words printed are those of a GPU."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from ctypes import POINTER, byref, c_size_t, c_uint, c_uint64, c_void_p

#: ``spin`` and ``meet`` end when the first word is not 0; ``answer`` waits for 1 to n there, each time puts ten times that into the
#: second word; ``next`` doubles a word and adds n
PTX = b"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry spin(.param .u64 p, .param .u32 n) {
    .reg .b64 %a; .reg .b32 %v; .reg .pred %q;
    ld.param.u64 %a, [p];
L:  ld.volatile.global.u32 %v, [%a]; setp.eq.u32 %q, %v, 0; @%q bra L;
    ret; }
.visible .entry answer(.param .u64 p, .param .u32 n) {
    .reg .b64 %a; .reg .b32 %v, %i, %n; .reg .pred %q;
    ld.param.u64 %a, [p]; ld.param.u32 %n, [n]; mov.u32 %i, 0;
N:  add.u32 %i, %i, 1;
L:  ld.volatile.global.u32 %v, [%a]; setp.ne.u32 %q, %v, %i; @%q bra L;
    mul.lo.u32 %v, %i, 10; st.volatile.global.u32 [%a+4], %v;
    setp.lt.u32 %q, %i, %n; @%q bra N;
    ret; }
.visible .entry meet(.param .u64 p, .param .u32 n) {
    .reg .b64 %a; .reg .b32 %v; .reg .pred %q;
    ld.param.u64 %a, [p];
L:  ld.volatile.global.u32 %v, [%a]; bar.sync 0; setp.eq.u32 %q, %v, 0; @%q bra L;
    ret; }
.visible .entry next(.param .u64 p, .param .u32 n) {
    .reg .b64 %a; .reg .b32 %v, %n;
    ld.param.u64 %a, [p]; ld.param.u32 %n, [n];
    ld.global.u32 %v, [%a]; shl.b32 %v, %v, 1; add.u32 %v, %v, %n; st.global.u32 [%a], %v;
    ret; }
"""
NON_BLOCKING, NOT_READY, NOT_PERMITTED, TIMEOUT = 1, 600, 800, 702
cuda = ctypes.CDLL("libcuda.so.1")


def right(code: int) -> None:
    assert code == 0, code


module, context, one, other, event = c_void_p(), c_void_p(), c_void_p(), c_void_p(), c_void_p()
pinned, number = c_uint64(), c_uint64()
right(cuda.cuInit(0))
right(cuda.cuDevicePrimaryCtxRetain(byref(context), 0))
right(cuda.cuCtxSetCurrent(context))
right(cuda.cuModuleLoadData(byref(module), PTX))
right(cuda.cuMemHostAlloc(byref(pinned), c_size_t(8), 0))
right(cuda.cuMemAlloc_v2(byref(number), c_size_t(4)))
right(cuda.cuStreamCreate(byref(one), 0))
right(cuda.cuStreamCreate(byref(other), NON_BLOCKING))
right(cuda.cuEventCreate(byref(event), 0))
flag = ctypes.cast(pinned.value, POINTER(c_uint))


def launch(name: str, address: c_uint64, value: int = 0, stream: c_void_p | None = None) -> None:
    kernel, value_ = c_void_p(), c_uint(value)
    right(cuda.cuModuleGetFunction(byref(kernel), module, name.encode()))
    arguments = (c_void_p * 2)(ctypes.addressof(address), ctypes.addressof(value_))
    right(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, None))


def word() -> int:
    found = c_uint()
    right(cuda.cuMemcpyDtoH_v2(byref(found), number, c_size_t(4)))
    return found.value


def in_order() -> None:
    """What comes behind a kernel in its stream waits; another stream goes on."""
    launch("spin", pinned, stream=one)
    launch("next", number, 1, one)
    right(cuda.cuEventRecord(event, one))
    assert [cuda.cuStreamQuery(one), cuda.cuEventQuery(event)] == [NOT_READY, NOT_READY]
    launch("next", number, 5, other)
    right(cuda.cuStreamSynchronize(other))
    assert cuda.cuStreamQuery(other) == 0
    right(cuda.cuStreamWaitEvent(other, event, 0))
    launch("next", number, 7, other)
    assert cuda.cuStreamQuery(other) == NOT_READY
    flag[0] = 1
    right(cuda.cuEventSynchronize(event))
    right(cuda.cuStreamSynchronize(other))
    assert [cuda.cuStreamQuery(one), cuda.cuEventQuery(event)] == [0, 0]
    print(word())  # ((0 · 2 + 5) · 2 + 1) · 2 + 7


def default_stream() -> None:
    """The default stream waits for the others, but not for those that do not block; pageable memory is read when a copy is made."""
    launch("spin", pinned, stream=one)
    source = c_uint(20)
    right(cuda.cuMemcpyHtoDAsync_v2(number, byref(source), c_size_t(4), one))
    source.value = 99
    launch("next", number, 1)
    assert cuda.cuStreamQuery(None) == NOT_READY
    assert cuda.cuStreamQuery(other) == 0
    flag[0] = 1
    right(cuda.cuCtxSynchronize())
    print(word())  # 20 · 2 + 1


def answers() -> None:
    """Neither side calls CUDA while they talk."""
    seen = []
    launch("answer", pinned, 50, one)
    for value in range(1, 51):
        flag[0] = value
        while flag[1] != 10 * value:
            pass
        seen.append(flag[1])
    right(cuda.cuCtxSynchronize())
    print(sum(seen))  # 10 · 50 · 51 / 2


def query() -> None:
    """The host asks until the stream is ready, which it is when the host has written."""
    launch("spin", pinned, stream=one)
    asked = 0
    while cuda.cuStreamQuery(one) == NOT_READY:
        asked += 1
        flag[0] = asked == 3
    print(asked)


def thread() -> None:
    """Another thread writes while this one waits."""
    launch("spin", pinned, stream=one)

    def later() -> None:
        time.sleep(0.05)
        flag[0] = 1

    writer = threading.Thread(target=later)
    writer.start()
    right(cuda.cuStreamSynchronize(one))
    writer.join()
    print(flag[0])


def copied() -> None:
    """A flag in device memory is set by a copy in another stream."""
    launch("spin", number, stream=other)
    right(cuda.cuMemsetD32Async(number, 3, c_size_t(1), one))
    right(cuda.cuCtxSynchronize())
    print(word())


def called() -> None:
    """A function that a stream calls may not call CUDA."""
    codes = []
    function = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: codes.append(cuda.cuCtxSynchronize()))
    launch("spin", pinned, stream=one)
    right(cuda.cuLaunchHostFunc(one, function, None))
    flag[0] = 1
    right(cuda.cuStreamSynchronize(one))
    assert codes == [NOT_PERMITTED]
    print(len(codes))


def freed() -> None:
    """Memory that is allocated while a kernel waits is used behind it, and an allocation is freed when it has ended."""
    launch("spin", pinned, stream=one)
    fresh = c_uint64()
    right(cuda.cuMemAlloc_v2(byref(fresh), c_size_t(4)))
    right(cuda.cuMemsetD32Async(fresh, 8, c_size_t(1), one))
    launch("next", fresh, 4, one)
    right(cuda.cuMemcpyDtoDAsync_v2(number, fresh, c_size_t(4), one))
    flag[0] = 1
    right(cuda.cuMemFree_v2(fresh))
    print(word())  # 8 · 2 + 4


def barriers() -> None:
    """The threads of the block meet in each iteration, so that barriers complete while nothing changes."""
    launch("meet", pinned, stream=one)
    flag[0] = 1
    right(cuda.cuStreamSynchronize(one))
    print("met")


def left() -> None:
    """The program ends without waiting."""
    launch("spin", pinned, stream=one)
    print("ends")


def left_when_set() -> None:
    """The program ends without waiting for a kernel that can end."""
    launch("spin", pinned, stream=one)
    flag[0] = 1
    print("ends")


def waited() -> None:
    """The kernel waits as long as the environment says, in milliseconds."""
    launch("spin", pinned, stream=one)
    time.sleep(int(os.environ["MILLISECONDS"]) / 1000)
    flag[0] = 1
    right(cuda.cuCtxSynchronize())


for what in sys.argv[1:]:
    flag[0] = flag[1] = 0
    right(cuda.cuMemsetD32_v2(number, 0, c_size_t(1)))
    globals()[what]()
