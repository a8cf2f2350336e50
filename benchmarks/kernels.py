"""The kernels of the benchmark, run through the public interface only."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))

from cases import BENCH  # noqa: E402

import gpuperf_engine as ge  # noqa: E402

__all__ = ["PUBLISHED", "Bench", "parse_seconds", "print_first_run", "print_large"]

#: our case → what gpuocelot's JIT needs for the same kernel, ms, without counting or checking, on a 2-core machine
PUBLISHED = {"saxpy": "20", "sgemm": "50", "collatz": "10", "reduce": "250"}

#: touches what the kernels of the table touch, so that the runtime functions, compiled once per installation, are there
WARM_UP = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry warm_up(.param .u64 out)
{
    .shared .align 4 .b8 tile[128];
    .reg .b32 %r<6>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r2, [%rd3];
    shl.b32 %r4, %r1, 2;
    mov.u32 %r5, tile;
    add.s32 %r4, %r4, %r5;
    st.shared.u32 [%r4], %r2;
    bar.sync 0;
    ld.shared.u32 %r2, [%r4];
    add.s32 %r3, %r2, 1;
    st.global.u32 [%rd3], %r3;
    ret;
}
"""


class Bench:
    """One kernel of the catalogue at its bench size: device memory is filled once, ``run`` launches."""

    def __init__(self, name: str) -> None:
        case = next(item for item in BENCH if item.name.startswith(name))
        self.title = case.name
        self.thread_instructions = 0
        self._program = case.program()
        self._module = ge.parse(case.text, path=case.ptx.name)
        self._device = ge.Device(races="off")
        self._arrays = {id(buffer): self._device.array(buffer) for buffer in self._program.buffers}

    def _arguments(self, launch: Any) -> list[object]:
        return [
            self._arrays.get(id(item), item) if isinstance(item, np.ndarray) else item for item in launch.args
        ]

    def run(self) -> float:
        """Seconds of all launches, counting included."""
        total, count = 0.0, 0
        for launch in self._program.launches:
            kernel, arguments = self._module[launch.entry], self._arguments(launch)
            start = time.perf_counter()
            profile = self._device.launch(
                kernel, launch.grid, launch.block, arguments, shared_bytes=launch.shared_bytes
            )
            total += time.perf_counter() - start
            count += profile.thread_instructions
        self.thread_instructions = count
        return total

    def settle(self, seconds: float = 3.0) -> None:
        """Launch until the runtime functions that were compiled in haste have been replaced by better ones."""
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            self.run()

    def check(self) -> None:
        """Raise unless the results are right (after exactly one run)."""
        self._program.check([self._arrays[id(buffer)].numpy() for buffer in self._program.buffers])


def _import_everything() -> None:
    """What the first use of the engine would import; LLVM is made ready in a thread meanwhile."""
    import lark  # noqa: F401
    import llvmlite.binding  # noqa: F401

    import gpuperf_engine.api
    import gpuperf_engine.isa.rows  # noqa: F401

    ge.Device(races="off")


def print_first_run(name: str) -> None:
    """Milliseconds from PTX text to the results of one launch, imports done before, as one JSON object."""
    _import_everything()
    if name == "warm-up":
        device = ge.Device(races="off")
        device.launch(ge.parse(WARM_UP)["warm_up"], 1, 32, [device.zeros(32, np.uint32)])
        print(json.dumps({"ms": 0.0}))
        return
    case = next(item for item in BENCH if item.name.startswith(name))
    program = case.program()
    start = time.perf_counter()
    device = ge.Device(races="off")
    module = ge.parse(case.text, path=case.ptx.name)
    arrays = {id(buffer): device.array(buffer) for buffer in program.buffers}
    for launch in program.launches:
        arguments = [
            arrays.get(id(item), item) if isinstance(item, np.ndarray) else item for item in launch.args
        ]
        device.launch(
            module[launch.entry], launch.grid, launch.block, arguments, shared_bytes=launch.shared_bytes
        )
    seconds = time.perf_counter() - start
    program.check([arrays[id(buffer)].numpy() for buffer in program.buffers])
    print(json.dumps({"ms": seconds * 1e3}))


def _synthetic(instructions: int, blocks: int) -> str:
    """A kernel of straight blocks with branches between them: arithmetic on 48 registers, some memory."""
    body, per_block = [], max(8, instructions // blocks)
    for block in range(blocks):
        body.append(f"$L{block}:")
        for index in range(per_block - 2):
            a, b, c = (index * 7 + block) % 48 + 1, (index * 5) % 48 + 1, (index * 3 + 1) % 48 + 1
            kind = index % 6
            if kind < 2:
                body.append(f"    add.s32 %r{a}, %r{b}, %r{c};")
            elif kind < 4:
                body.append(f"    fma.rn.f32 %f{a}, %f{b}, %f{c}, %f{a};")
            elif kind == 4:
                body.append(f"    xor.b32 %r{a}, %r{b}, {index};")
            else:
                body.append(f"    mul.lo.s32 %r{a}, %r{b}, %r{c};")
        body.append(f"    setp.gt.s32 %p1, %r{block % 48 + 1}, {block};")
        body.append(f"    @%p1 bra $L{block + 1};")
    return (
        ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry large(.param .u64 out)\n{\n"
        "    .reg .pred %p<2>;\n    .reg .b32 %r<50>;\n    .reg .f32 %f<50>;\n    .reg .b64 %rd<4>;\n"
        "    mov.u32 %r1, %tid.x;\n" + "\n".join(body) + f"\n$L{blocks}:\n    ld.param.u64 %rd1, [out];\n"
        "    mov.u32 %r2, %tid.x;\n    mul.wide.u32 %rd2, %r2, 4;\n    add.s64 %rd3, %rd1, %rd2;\n"
        "    st.global.u32 [%rd3], %r3;\n    ret;\n}\n"
    )


def print_large(instructions: int) -> None:
    """Milliseconds to parse, compile and run a kernel of about that many instructions."""
    _import_everything()
    device = ge.Device(races="off")
    device.launch(ge.parse(WARM_UP)["warm_up"], 1, 32, [device.zeros(32, np.uint32)])
    text = _synthetic(instructions, instructions // 40)
    start = time.perf_counter()
    device.launch(ge.parse(text)["large"], 4, 64, [device.zeros(64, np.uint32)])
    print(json.dumps({"ms": (time.perf_counter() - start) * 1e3}))


def parse_seconds(instructions: int) -> float:
    """Seconds to parse and resolve a module of about that many instructions."""
    text = _synthetic(instructions, instructions // 40)
    start = time.perf_counter()
    module = ge.parse(text)
    count = len(module["large"].instructions)
    seconds = time.perf_counter() - start
    if count < instructions * 0.95:
        raise AssertionError(f"only {count} instructions")
    return seconds
