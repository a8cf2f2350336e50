"""What looking for races costs: the same launches with and without, in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import case_programs as programs
import numpy as np
from cases import cuda

import gpuperf_engine as ge

__all__ = ["CASES", "SMALL", "launches", "rows", "small"]

CASES = (
    cuda("saxpy", "saxpy, 1 M", programs.saxpy, 1 << 20),
    cuda("saxpy", "saxpy_grid_stride, 1 M", programs.saxpy_grid_stride, 1 << 20, 128),
    cuda("sgemm", "sgemm_tiled 256³", programs.sgemm, "sgemm_tiled", 256, 256, 256),
    cuda("reduce", "reduce_shared, 1 M", programs.reduce_shared, 1 << 20, 1),
    cuda("transpose", "transpose_padded 1,024²", programs.transpose, "transpose_padded", 1024, 1024),
    cuda("histogram", "histogram_shared, 256 K", programs.histogram, "histogram_shared", 1 << 18, 64),
    cuda("cluster", "cluster_histogram, 100 K", programs.cluster_histogram, 100_000, 8),
    cuda("scan", "scan, 256 K", programs.scan, 1 << 18),
    cuda("bitonic", "bitonic, 32 K", programs.bitonic, 1 << 15),
    cuda("softmax", "softmax 256 × 1,024", programs.softmax, 256, 1024),
    cuda("fft512", "fft512 × 512", programs.fft512, 512),
    cuda("matmul.sm_80", "Triton matmul 256³, sm_80", programs.triton_matmul, 16384, 256, 256, 256, folder="triton"),
    cuda("matmul.sm_90", "Triton matmul 256³, sm_90", programs.triton_matmul, 24576, 256, 256, 256, folder="triton"),
    cuda("tensor_gemm", "hgemm_mma 256³", programs.tensor_gemm, "hgemm_mma", 256, 256, 256),
    cuda("warpgroup_gemm", "hgemm_specialised 128 × 256 × 512", programs.tensor_gemm, "hgemm_specialised", 128, 256, 512),
)  # fmt: skip


def launches(case: Any, **options: Any) -> Callable[[], float]:
    """CPU seconds of all launches of a case, on a device with these options. Raises ``RaceError`` for a race."""
    device, program = ge.Device(**options), case.program()
    module = ge.parse(case.ptx.read_text(), path=case.ptx.name)
    arrays = {id(buffer): device.array(buffer) for buffer in program.buffers}

    def run() -> float:
        total = 0.0
        for launch in program.launches:
            given = [
                arrays.get(id(item), item) if isinstance(item, np.ndarray) else item for item in launch.args
            ]
            start = time.process_time()
            device.launch(
                module[launch.entry], launch.grid, launch.block, given, shared_bytes=launch.shared_bytes
            )
            total += time.process_time() - start
        return total

    return run


_HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 to, .param .u64 from) {
.reg .b32 %r<12>; .reg .b64 %rd<6>;
ld.param.u64 %rd0, [to]; ld.param.u64 %rd1, [from];
mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0;
mov.u32 %r4, 1; and.b32 %r5, %r3, 1023; shr.u32 %r6, %r3, 10; shl.b32 %r7, %r5, 2; shl.b32 %r8, %r5, 4;
"""
_INDEX = """mul.wide.u32 %rd2, %r3, 4; add.u64 %rd2, %rd1, %rd2; ld.global.u32 %r9, [%rd2];
mul.wide.u32 %rd2, %r9, 4; add.u64 %rd2, %rd0, %rd2;"""
_ROW = """mul.wide.u32 %rd2, %r1, 4; add.u64 %rd2, %rd1, %rd2; ld.global.u32 %r9, [%rd2]; mad.lo.u32 %r9, %r9, %r2, %r0;
mul.wide.u32 %rd2, %r9, 4; add.u64 %rd2, %rd0, %rd2;"""
#: a permutation, too, but that what is loaded is one does not tell
_COMPUTED = _INDEX.replace("mul.wide.u32 %rd2, %r9", "xor.b32 %r9, %r9, 5; mul.wide.u32 %rd2, %r9")
_AT = "mul.wide.u32 %rd2, %r9, 4; add.u64 %rd2, %rd0, %rd2;"
_QUOTIENTS = f"div.u32 %r9, %r3, 512; rem.u32 %r10, %r3, 512; mad.lo.u32 %r9, %r10, 1024, %r9; {_AT}"
_TURNED = f"brev.b32 %r9, %r3; shr.u32 %r9, %r9, 13; {_AT}"
#: places that follow from the order of threads
_COUNTED = f"atom.global.add.u32 %r9, [%rd1], 1; and.b32 %r9, %r9, 524287; {_AT}"
_SUM = "ld.global.u32 %r10, [%rd2]; add.u32 %r10, %r10, %r3; st.global.u32 [%rd2], %r10;"
_BYTE = f"{_COMPUTED.partition('mul.wide.u32 %rd2, %r9')[0]} cvt.u64.u32 %rd2, %r9; add.u64 %rd2, %rd0, %rd2;"
_HALF = _COMPUTED.replace("%r9, 4", "%r9, 2")
_ADD = "red.global.add.u32 [%rd2], %r4;"
_BIN = _COMPUTED.replace("xor.b32 %r9, %r9, 5;", "and.b32 %r9, %r9, 255;")
#: 128 places of each thread
_LOOP = f"""mov.u32 %r11, %nctaid.x; mul.lo.u32 %r4, %r11, %r2; mov.u32 %r11, 0;
NEXT: {_COMPUTED} st.global.u32 [%rd2], %r3;
add.u32 %r3, %r3, %r4; add.u32 %r11, %r11, 1; setp.lt.u32 %p0, %r11, 128; @%p0 bra NEXT;"""
#: the block that takes the last ticket of all stores once more
_LAST = """membar.gl; bar.sync 0; setp.ne.u32 %p0, %r0, 0; @%p0 bra DONE; atom.global.add.u32 %r9, [%rd0+2097152], 1;
setp.ne.u32 %p1, %r9, 2047; @%p1 bra DONE; membar.gl; st.global.u32 [%rd0+2097156], %r9; DONE:"""
_SUST = "sust.b.2d.b32.trap [%rd0, {%r7, %r6}]"
#: what 2,048 blocks of 256 threads do and nothing else: name, what they are given (arrays, of which the second one numbers threads or
#: blocks; surfaces of so many channels; a texture and a surface; or arrays, and so many blocks of so many threads), and the body
SMALL = (
    ("a flag that all threads set", "arrays", "st.global.u32 [%rd0], %r4;"),
    ("a flag that one thread of each block sets", "arrays", "setp.eq.u32 %p0, %r0, 0; @%p0 st.global.u32 [%rd0], %r4;"),
    ("64 flags", "arrays", "and.b32 %r5, %r0, 63; mul.wide.u32 %rd2, %r5, 4; add.u64 %rd2, %rd0, %rd2; st.global.u32 [%rd2], %r4;"),
    ("four flags", "arrays", " ".join(f"st.global.u32 [%rd0+{4 * place}], %r4;" for place in range(4))),
    ("a flag that is loaded, too", "arrays", "ld.global.u32 %r9, [%rd0+256]; or.b32 %r9, %r9, 1; st.global.u32 [%rd0], %r9;"),
    ("a word to which all threads store their number", "arrays", "st.global.u32 [%rd0], %r3;"),
    ("a flag beside a counter", "arrays", "red.global.add.u32 [%rd0], %r4; st.global.u32 [%rd0+4], %r4;"),
    ("scatter by a permutation", "arrays", f"{_INDEX} st.global.u32 [%rd2], %r3;"),
    ("sums by a permutation", "arrays", f"{_INDEX} {_SUM}"),
    ("sums by a permutation, four times between barriers", "arrays", f"{_INDEX} {f'{_SUM} bar.sync 0; ' * 4}"),
    ("scatter by computed indices", "arrays", f"{_COMPUTED} st.global.u32 [%rd2], %r3;"),
    ("sums by computed indices", "arrays", f"{_COMPUTED} {_SUM}"),
    ("sums by computed indices, four times between barriers", "arrays", f"{_COMPUTED} {f'{_SUM} bar.sync 0; ' * 4}"),
    ("scatter by quotients and remainders", "arrays", f"{_QUOTIENTS} st.global.u32 [%rd2], %r3;"),
    ("scatter by reversed bits", "arrays", f"{_TURNED} st.global.u32 [%rd2], %r3;"),
    ("scatter by numbers from an atomic", "counter", f"{_COUNTED} st.global.u32 [%rd2], %r3;"),
    ("rows by a permutation", "rows", f"{_ROW} st.global.u32 [%rd2], %r3;"),
    ("sums of rows by a permutation", "rows", f"{_ROW} {_SUM}"),
    ("rows by computed numbers", "rows", f"{_ROW.replace('mad', 'xor.b32 %r9, %r9, 5; mad')} st.global.u32 [%rd2], %r3;"),
    ("bytes by computed indices", "arrays", f"{_BYTE} st.global.u8 [%rd2], %r3;"),
    ("halves by computed indices", "arrays", f"{_HALF} st.global.u16 [%rd2], %r3;"),
    ("scatter by computed indices, 1 × 1,024 × 128 times", (1, 1024), _LOOP),
    ("scatter by computed indices, 7 × 256 × 128 times", (7, 256), _LOOP),
    ("atomics by computed indices and a load", "arrays", f"{_COMPUTED} {_ADD} ld.global.u32 %r9, [%rd0+2097152];"),
    ("256 bins by atomics and a load", "arrays", f"{_BIN} {_ADD} ld.global.u32 %r9, [%rd0+2048];"),
    ("a store, then the last block", "arrays", f"mov.u32 %r9, %r3; {_AT} st.global.u32 [%rd2], %r3; {_LAST}"),
    ("scatter by computed indices, then the last block", "arrays", f"{_COMPUTED} st.global.u32 [%rd2], %r3; {_LAST}"),
    ("a surface to a surface", 1, f"suld.b.2d.b32.trap %r9, [%rd1, {{%r7, %r6}}]; {_SUST}, %r9;"),
    ("a surface to itself", 1, f"suld.b.2d.b32.trap %r9, [%rd0, {{%r7, %r6}}]; {_SUST}, %r9;"),
    ("a surface of four channels", 4, "sust.b.2d.v4.b32.trap [%rd0, {%r8, %r6}], {%r0, %r1, %r2, %r3};"),
    ("a texture to a surface", "texture", f"tex.2d.v4.u32.s32 {{%r8, %r9, %r10, %r11}}, [%rd1, {{%r5, %r6}}]; {_SUST}, %r8;"),
)  # fmt: skip


def small(given: str | int | tuple[int, int], body: str, races: str) -> Callable[[], float]:
    """CPU seconds of a launch of one of ``SMALL``."""
    device = ge.Device(races=races)
    kernel = ge.parse(f"{_HEAD}.reg .pred %p<2>; {body}\nret; }}\n", path="small.ptx")["k"]
    blocks, block = given if isinstance(given, tuple) else (2048, 256)
    given = "arrays" if isinstance(given, tuple) else given
    if given in ("arrays", "rows", "counter"):
        elements = 2048 * 256
        count = {"arrays": elements, "rows": blocks, "counter": 1}[given]
        index = np.random.default_rng(1).permutation(count).astype(np.uint32)
        args: list[Any] = [device.zeros(elements + 2, np.uint32), device.array(index)]
    else:
        channels = given if isinstance(given, int) else 1
        shape = (blocks * block // 1024, 1024, channels)[: 2 + (channels > 1)]
        arrays = [device.zeros(shape, np.uint32) for _ in range(2)]
        source = device.texture if given == "texture" else device.surface
        args = [device.surface(arrays[0], channels=channels), source(arrays[1], channels=channels)]

    def run() -> float:
        start = time.process_time()
        device.launch(kernel, blocks, block, args)
        return time.process_time() - start

    return run


def rows(runs: int) -> list[str]:
    """A Markdown table: medians of the time without and of the ratios of pairs: first launches of a kernel that has been compiled, and
    later ones."""
    lines = ["| launch | plain, CPU ms | with `races` | first launch |", "|---|---:|---:|---:|"]
    makers: list[tuple[str, Callable[[str], Callable[[], float]]]] = [
        (case.name, lambda races, case=case: launches(case, races="error" if races == "note" else races))
        for case in CASES
    ]
    makers += [
        (name, lambda races, given=given, body=body: small(given, body, races)) for name, given, body in SMALL
    ]
    for name, make in makers:
        plain, checked = make("off"), make("note")
        deadline = time.perf_counter() + 3.0
        while time.perf_counter() < deadline:  # until code that was compiled in haste has been replaced
            plain()
            checked()
        pairs = [(plain(), checked()) for _ in range(runs)]
        first = [(make("off")(), make("note")()) for _ in range(max(runs // 3, 1))]
        once, again = (statistics.median(after / before for before, after in some) for some in (first, pairs))
        alone = statistics.median(before for before, _ in pairs) * 1e3
        lines.append(f"| {name} | {alone:.1f} | {again:.2f} × | {once:.2f} × |")
    return lines
