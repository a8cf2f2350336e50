"""What instructions of whole warps cost: matrix products, and values passed between lanes."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import gpuperf_engine as ge

__all__ = ["rows"]

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
sys.path.insert(0, str(EXAMPLES))

_MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#: seconds after which code that was compiled in haste has been replaced
_SETTLED = 2.0
#: one of each kind that passes values between lanes
_EXCHANGES = {
    "shfl.sync.bfly.b32": "shfl.sync.bfly.b32 %r1, %r1, 5, 31, -1;",
    "shfl.sync.idx.b32": "shfl.sync.idx.b32 %r1, %r1, %r2, 31, -1;",
    "vote.sync.ballot.b32": "vote.sync.ballot.b32 %r3, %p1, -1;",
    "match.any.sync.b32": "match.any.sync.b32 %r3, %r1, -1;",
    "redux.sync.add.s32": "redux.sync.add.s32 %r3, %r1, -1;",
}


def _kernel(body: str, trips: int) -> ge.Kernel:
    """A loop over 16 copies of ``body``; of the results something is stored."""
    text = f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{{
    .reg .pred %p<3>;
    .reg .b32 %r<20>;
    .reg .f32 %f<8>;
    .reg .b64 %rd<4>;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %laneid;
    setp.gt.u32 %p1, %r1, 7;
    mov.u32 %r10, 0;
loop:
{body * 16}
    add.u32 %r10, %r10, 1;
    setp.lt.u32 %p2, %r10, {trips};
    @%p2 bra loop;
    ld.param.u64 %rd1, [out];
    mov.u32 %r4, %tid.x;
    mul.wide.u32 %rd2, %r4, 4;
    add.s64 %rd3, %rd1, %rd2;
    xor.b32 %r1, %r1, %r3;
    st.global.u32 [%rd3], %r1;
    ret;
}}
"""
    return ge.parse(text)["k"]


def _median(action: Callable[[], float], runs: int) -> float:
    action()
    return statistics.median(action() for _ in range(runs))


def _rate(opcode: str, body: str, runs: int) -> float:
    """Warp instructions of that opcode per second, on all cores."""
    kernel, device = _kernel(body, 400), ge.Device(observe=set(), races="off")
    out = device.zeros(128, np.uint32)
    seen = 0

    def run() -> float:
        nonlocal seen
        start = time.perf_counter()
        profile = device.launch(kernel, 64, 128, [out])
        seconds = time.perf_counter() - start
        seen = profile.warp_opcodes[opcode]
        return seconds

    seconds = _median(run, runs)
    if seen != 64 * 4 * 400 * 16:
        raise AssertionError(f"{opcode}: {seen} counted")
    return seen / seconds


def _triton_matmul(size: int, runs: int) -> float:
    """Seconds of the Triton matrix product of that size, warm."""
    path = EXAMPLES / "triton" / "matmul.sm_80.ptx"
    kernel = ge.parse(path.read_text(encoding="utf-8"), path=path.name)["matmul_kernel"]
    rng = np.random.default_rng(1)
    host = [rng.integers(-8, 9, (size, size)).astype(np.float16) for _ in range(2)]
    device = ge.Device(races="off")
    a, b = (device.array(item) for item in host)
    c = device.zeros((size, size), np.float32)

    def run() -> float:
        start = time.perf_counter()
        device.launch(
            kernel,
            (size // 64) ** 2,
            128,
            [a, b, c, np.int32(size), np.int32(size), np.int32(size), None, None],
            shared_bytes=16384,
        )
        return time.perf_counter() - start

    seconds = _median(run, runs)
    np.testing.assert_array_equal(c.numpy(), host[0].astype(np.float32) @ host[1].astype(np.float32))
    return seconds


def _specialised_matmul(size: int, runs: int) -> float:
    """Seconds of the warp-specialised product of that size, warm."""
    path = EXAMPLES / "kernels" / "warpgroup_gemm_tma.ptx"
    kernel = ge.parse(path.read_text(encoding="utf-8"), path=path.name)["hgemm_tma"]
    rng = np.random.default_rng(2)
    host = [rng.integers(-8, 9, (size, size)).astype(np.float16) for _ in range(2)]
    device = ge.Device(races="off")
    a, b = (ge.TensorMap(device.array(item), (128, 64), swizzle="128B") for item in host)
    c = device.zeros((size, size), np.float32)

    def run() -> float:
        start = time.perf_counter()
        args = [np.int32(size), np.int32(size), a, b, c]
        device.launch(kernel, (size // 128, size // 128), 384, args, shared_bytes=98304)
        return time.perf_counter() - start

    deadline = time.perf_counter() + _SETTLED
    while time.perf_counter() < deadline:
        run()
    seconds = _median(run, runs)
    np.testing.assert_array_equal(c.numpy(), host[0].astype(np.float32) @ host[1].astype(np.float32).T)
    return seconds


def rows(runs: int) -> list[str]:
    """Rows of the table of other figures."""
    registers = "{%r11, %r12, %r13, %r14}", "{%r15, %r16}"
    sums = "{%f1, %f2, %f3, %f4}"
    product = _rate(_MMA, f"{_MMA} {sums}, {registers[0]}, {registers[1]}, {sums};", runs)
    exchanges = {name: _rate(name, body, runs) * 32 / 1e6 for name, body in _EXCHANGES.items()}
    slowest = min(exchanges, key=lambda name: exchanges[name])
    return [
        f"| `mma.m16n8k16` f16 to f32 | {product / 1e6:.1f} M warp instructions/s |",
        f"| passing values between lanes, the slowest of {len(exchanges)} (`{slowest}`) "
        f"| {exchanges[slowest]:,.0f} M thread instructions/s |",
        f"| Triton's matrix product, 512³, warm | {_triton_matmul(512, runs) * 1e3:.0f} ms |",
        f"| warp-specialised product with `wgmma` and tensor maps, 512³, warm | {_specialised_matmul(512, runs) * 1e3:.0f} ms |",
    ]
