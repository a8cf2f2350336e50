"""A tiled convolution with its filter in constant memory: PTX that does the work of the measured kernel, and its predicted time.

``data/convolution.csv`` says what was measured. The kernel is written here from what it does: a CTA loads its part of the image and
the border into shared memory, then every thread works on a tile of outputs, its threads' pixels a block apart, with the
loops over the filter unrolled, so that each value is loaded from shared memory once and goes into all sums that need it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path

import numpy as np

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import Machine, load_machine
from gpuperf_engine.timing.estimate import estimate
from gpuperf_engine.timing.launch.adapt import timing_input
from gpuperf_engine.timing.launch.inputs import MemoryTraffic, TimingInput
from gpuperf_engine.timing.models.simulation import simulated

DATA = Path(__file__).parent / "data" / "convolution.csv"
DEVELOPMENT = DATA.with_name("convolution_development.csv")
IMAGE = 4096
SMALL_GRID = (2, 2)


@dataclass(frozen=True)
class Row:
    """One measured configuration: block and tile of a thread (x, y), size of the filter, columns added to shared memory or not.
    ``clock``: of the card meanwhile, in MHz; ``None`` where nothing says."""

    machine_id: str
    block: tuple[int, int]
    tile: tuple[int, int]
    filter: int
    padded: bool
    microseconds: float
    clock: float | None

    @property
    def machine(self) -> Machine:
        found = load_machine(self.machine_id)
        return found if self.clock is None else replace(found, clock_mhz=self.clock)

    @property
    def width(self) -> int:
        """Columns of the array in shared memory."""
        border, columns = self.filter // 2 * 2, self.block[0] * self.tile[0]
        width = columns + border
        if self.padded and self.block[0] % 32 and (width - self.block[0]) % 32:
            width += -(width - self.block[0]) % 32
        return width

    @property
    def grid(self) -> tuple[int, int]:
        x, y = (-(-IMAGE // (block * tile)) for block, tile in zip(self.block, self.tile, strict=True))
        return x, y


def measured(path: Path = DATA) -> Iterator[Row]:
    """The rows that tests judge, or ``DEVELOPMENT``: all that the rules of the simulation were chosen on."""
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            number = {
                name: int(line[name])
                for name in ("block_x", "block_y", "tile_x", "tile_y", "filter", "padded")
            }
            yield Row(
                line["machine"],
                (number["block_x"], number["block_y"]),
                (number["tile_x"], number["tile_y"]),
                number["filter"],
                bool(number["padded"]),
                float(line["time_us"]),
                float(line["clock_mhz"]) if line["clock_mhz"] else None,
            )


def _filled(row: Row, pitch: int, rows: int, columns: int) -> list[str]:
    """The loops that fill shared memory, as nvcc writes them from loops that begin at the index of the thread: over rows, and over
    columns, of which one to three come first if their number is no multiple of four. Each load is followed by its store."""
    (block_x, block_y), step = row.block, 4 * row.block[0]

    def moved(count: int) -> list[str]:
        pairs = (
            (
                f"ld.global.nc.f32 %f{1 + n}, [%rd7+{n * step}];",
                f"st.shared.f32 [%r18+{n * step}], %f{1 + n};",
            )
            for n in range(count)
        )
        return [line for pair in pairs for line in pair]

    lines = [
        f"sub.u32 %r14, {columns - 1}, %r1; div.u32 %r14, %r14, {block_x}; add.u32 %r14, %r14, 1;",
        "and.b32 %r15, %r14, 3; shr.u32 %r16, %r14, 2; mul.lo.u32 %r19, %r15, " + f"{step};",
        "mov.u64 %rd6, %rd4; mov.u32 %r17, %r7; mov.u32 %r8, %r2;",
        f"setp.ge.u32 %p1, %r8, {rows}; @%p1 bra FILLED;",
        "ROW:",
        "mov.u64 %rd7, %rd6; mov.u32 %r18, %r17;",
    ]
    first = moved(3)
    for number in range(3):
        lines += [f"setp.le.u32 %p2, %r15, {number}; @%p2 bra GROUPS;", *first[2 * number : 2 * number + 2]]
    return [
        *lines,
        "GROUPS:",
        "cvt.u64.u32 %rd8, %r19; add.s64 %rd7, %rd7, %rd8; add.u32 %r18, %r18, %r19; mov.u32 %r9, %r16;",
        "setp.eq.u32 %p1, %r9, 0; @%p1 bra NEXT;",
        "FOUR:",
        *moved(4),
        f"add.s64 %rd7, %rd7, {4 * step}; add.u32 %r18, %r18, {4 * step}; sub.u32 %r9, %r9, 1;",
        "setp.ne.u32 %p2, %r9, 0; @%p2 bra FOUR;",
        "NEXT:",
        f"add.u32 %r8, %r8, {block_y}; add.s64 %rd6, %rd6, {4 * block_y * pitch};",
        f"add.u32 %r17, %r17, {4 * block_y * row.width}; setp.lt.u32 %p1, %r8, {rows}; @%p1 bra ROW;",
        "FILLED:",
    ]


def ptx(row: Row) -> str:
    """The kernel of one configuration; outputs beyond the image are written too, into room that the caller leaves."""
    (block_x, block_y), (tile_x, tile_y), size = row.block, row.tile, row.filter
    border = size // 2 * 2
    pitch = IMAGE + border
    rows, columns = block_y * tile_y + border, block_x * tile_x + border
    lines: list[str] = []
    add = lines.append
    lines += _filled(row, pitch, rows, columns)
    add("bar.sync 0;")
    sums = {(y, x): f"%s{y * tile_x + x}" for y in range(tile_y) for x in range(tile_x)}
    lines += [f"mov.f32 {name}, 0f00000000;" for name in sums.values()]
    used: dict[int, list[tuple[int, str]]] = {}
    for i in range(size):
        for j in range(size):
            for (y, x), name in sums.items():
                place = 4 * ((y * block_y + i) * row.width + x * block_x + j)
                used.setdefault(place, []).append((4 * (i * size + j), name))
    for number, place in enumerate(sorted(used)):
        add(f"ld.shared.f32 %v{number}, [%r7+{place}];")
        for weight, name in used[place]:
            add(f"ld.const.f32 %f2, [weights+{weight}];")
            add(f"fma.rn.f32 {name}, %v{number}, %f2, {name};")
    lines += [
        f"st.global.f32 [%rd5+{4 * (y * block_y * IMAGE + x * block_x)}], {name};"
        for (y, x), name in sums.items()
    ]
    body = "\n".join(lines)
    return f"""
.version 7.0
.target sm_75
.address_size 64
.const .align 4 .b8 weights[{4 * size * size}];
.visible .entry convolution(.param .u64 output, .param .u64 input)
{{
.shared .align 4 .b8 part[{4 * rows * row.width}];
.reg .pred %p<3>; .reg .b32 %r<20>; .reg .b64 %rd<9>; .reg .f32 %f<5>; .reg .f32 %s<{tile_x * tile_y}>; .reg .f32 %v<{len(used)}>;
ld.param.u64 %rd1, [output]; ld.param.u64 %rd2, [input];
mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ctaid.y;
mul.lo.s32 %r10, %r3, {block_x * tile_x}; add.s32 %r10, %r10, %r1;
mul.lo.s32 %r11, %r4, {block_y * tile_y}; add.s32 %r11, %r11, %r2;
mad.lo.s32 %r12, %r11, {pitch}, %r10; mul.wide.s32 %rd3, %r12, 4; add.s64 %rd4, %rd2, %rd3;
mad.lo.s32 %r13, %r11, {IMAGE}, %r10; mul.wide.s32 %rd3, %r13, 4; add.s64 %rd5, %rd1, %rd3;
mov.u32 %r5, part; mad.lo.s32 %r6, %r2, {row.width}, %r1; shl.b32 %r6, %r6, 2; add.s32 %r7, %r5, %r6;
{body}
ret;
}}
"""


@cache
def small_launch(row: Row) -> ge.Profile:
    """A launch of a few CTAs."""
    device = ge.Device()
    rows = SMALL_GRID[1] * row.block[1] * row.tile[1] + row.filter
    given = [device.zeros((rows, IMAGE + row.filter), np.float32) for _ in range(2)]
    kernel = ge.parse(ptx(row), path="convolution.ptx")["convolution"]
    return device.launch(kernel, grid=SMALL_GRID, block=row.block, args=given, demand="addresses")


def simulated_error(row: Row, *, assembled: bool = True) -> float:
    """``error`` of the simulation, on the code of ``ptxas`` or without an assembler; raises ``MachineError`` or ``NotRun`` where that
    is not possible."""
    small = small_launch(row)
    (record,) = small.records
    side = 4 * (IMAGE + row.filter // 2 * 2 + row.block[1] * row.tile[1]) ** 2
    # far enough apart that nothing of the whole image overlaps
    addresses = np.array([side + (1 << 20), 3 * side + (1 << 20)], np.uint64).tobytes()
    parameters = addresses + record.plan.parameters[len(addresses) :]
    plan = replace(record.plan, grid=(*row.grid, 1), parameters=parameters)
    expanded = None if assembled else replace(small.resources, shared_bytes=plan.shared_bytes)
    found = simulated(replace(record, plan=plan), row.machine, caches="warm", expanded=expanded)
    return found.time_us / row.microseconds - 1


@cache
def launch(row: Row) -> TimingInput:
    """The kernel on the whole image, from a launch of a few CTAs."""
    machine, profile = row.machine, small_launch(row)
    small = timing_input(profile.records[0], machine, profile.resources)
    factor = row.grid[0] * row.grid[1] / (SMALL_GRID[0] * SMALL_GRID[1])
    traffic = {
        item.name: getattr(small.memory, item.name) * factor
        for item in fields(MemoryTraffic)
        if getattr(small.memory, item.name) is not None
    }
    side = IMAGE + row.filter // 2 * 2
    traffic |= {"read_footprint": 4 * side * side, "write_footprint": 4 * IMAGE * IMAGE}
    return replace(
        small,
        grid=(*row.grid, 1),
        warp_instructions={unit: count * factor for unit, count in small.warp_instructions.items()},
        operand_reads=small.operand_reads * factor,
        memory=MemoryTraffic(**traffic),
    )


@cache
def error(row: Row, model: str = "kleimenov-popova") -> float:
    """Predicted over measured time, less one."""
    return estimate(launch(row), row.machine, model=model, caches="warm").time_us / row.microseconds - 1
