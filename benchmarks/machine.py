"""What this machine can do at best: the yardstick that stands beside every figure."""

from __future__ import annotations

import ctypes
import platform
import time
from pathlib import Path

import llvmlite.binding as llvm

__all__ = ["add_rate", "cpu_name"]

_LOOP = """
define void @adds(ptr %data, i64 %count) {
entry:
  %a0 = load <32 x float>, ptr %data, align 64
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %a = phi <32 x float> [ %a0, %entry ], [ %a1, %loop ]
  %b = phi <32 x float> [ %a0, %entry ], [ %b1, %loop ]
  %a1 = fadd <32 x float> %a, %a0
  %b1 = fadd <32 x float> %b, %a0
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  %sum = fadd <32 x float> %a1, %b1
  store <32 x float> %sum, ptr %data, align 64
  ret void
}
"""


def cpu_name() -> str:
    """The processor as the system or LLVM names it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return f"{line.split(':', 1)[1].strip()} ({llvm.get_host_cpu_name()})"
    except OSError:
        pass
    return platform.processor() or llvm.get_host_cpu_name()


def add_rate() -> float:
    """Lane additions per second of a compiled loop of 32-lane ``fadd`` on one core, best of five."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    engine = llvm.create_mcjit_compiler(
        llvm.parse_assembly(_LOOP),
        target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=2),
    )
    engine.finalize_object()
    adds = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(engine.get_function_address("adds"))
    buffer = ctypes.create_string_buffer(256)
    address = -(-ctypes.addressof(buffer) // 64) * 64
    count, best = 2_000_000, 0.0
    for _ in range(5):
        start = time.perf_counter()
        adds(address, count)
        best = max(best, 2 * 32 * count / (time.perf_counter() - start))
    return best
