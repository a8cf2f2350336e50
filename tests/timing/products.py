"""Products of single-precision matrices in eleven stages: PTX that does the work of the measured kernels, and its simulated time.

``data/products.csv`` says what was measured. The kernels are written here from what each does: C = alpha · A · B + beta · C of square
matrices, row major; from one product a thread on, through tiles in shared memory and in registers, to tiles of warps.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import Machine, load_machine
from gpuperf_engine.timing.models.simulation import simulated

DATA = Path(__file__).parent / "data" / "products.csv"
_HEAD = """.version 7.0
.target sm_80
.address_size 64
.visible .entry sgemm(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 size, .param .f32 alpha, .param .f32 beta)
{
"""
_BEGIN = """ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; ld.param.u64 %c, [c];
ld.param.u32 %n, [size]; ld.param.f32 %alpha, [alpha]; ld.param.f32 %beta, [beta];
mov.u32 %t, %tid.x; mov.u32 %bx, %ctaid.x; mov.u32 %by, %ctaid.y; mul.wide.u32 %row, %n, 4; mov.u32 %k, 0;
"""


@dataclass(frozen=True)
class Row:
    """A measured stage."""

    machine_id: str
    stage: int
    size: int
    microseconds: float

    @property
    def machine(self) -> Machine:
        return load_machine(self.machine_id)


@dataclass(frozen=True)
class Tiles:
    """A CTA of so many ``threads`` computes ``rows`` × ``columns`` of C in steps of ``depth``; a thread pieces of ``high`` × ``wide``.

    With ``warp`` (rows, columns) a warp has a part of the tile, in which the pieces of a thread are ``apart`` (rows, columns).
    ``vectors``: four words are loaded at once, and A's tile is stored by columns. ``pad``: words by which rows of B's tile are
    longer; -1: B's tile is stored so that the threads of a warp read words side by side. ``turns``: there are two tiles of
    each, and halves of the CTA load while the others multiply.
    """

    rows: int
    columns: int
    depth: int
    high: int
    wide: int
    threads: int
    vectors: bool = True
    pad: int = 0
    warp: tuple[int, int] = (0, 0)
    apart: tuple[int, int] = (0, 0)
    turns: bool = False

    @property
    def loading(self) -> int:
        """Threads that load at once."""
        return self.threads // (1 + self.turns)

    @property
    def down(self) -> list[int]:
        """The rows of a thread behind its first."""
        starts = range(0, self.warp[0], self.apart[0]) if self.warp[0] else [0]
        return [start + n for start in starts for n in range(self.high)]

    @property
    def across(self) -> list[int]:
        starts = range(0, self.warp[1], self.apart[1]) if self.warp[1] else [0]
        return [start + n for start in starts for n in range(self.wide)]

    @property
    def pitch(self) -> int:
        """Words of a row of B's tile."""
        return self.columns + max(0, self.pad)

    @property
    def bytes_of_tiles(self) -> tuple[int, int]:
        return 4 * self.rows * self.depth, 4 * self.pitch * self.depth


STAGES = {
    4: Tiles(64, 64, 8, 8, 1, 512, vectors=False),
    5: Tiles(128, 128, 8, 8, 8, 256, vectors=False),
    6: Tiles(128, 128, 8, 8, 8, 256),
    7: Tiles(128, 128, 8, 8, 8, 256, pad=-1),
    8: Tiles(128, 128, 8, 8, 8, 256, pad=5),
    9: Tiles(128, 128, 16, 8, 8, 256),
    10: Tiles(128, 128, 16, 8, 4, 128, warp=(64, 64), apart=(64, 16)),
    11: Tiles(64, 128, 16, 4, 4, 256, warp=(32, 32), apart=(32, 16), turns=True),
}


def measured() -> Iterator[Row]:
    with DATA.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            yield Row(line["machine"], int(line["stage"]), int(line["size"]), float(line["time_us"]))


def shape(stage: int, size: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Grid and block."""
    if stage == 1:
        return (size // 32, size // 32), (32, 32)
    if stage in (2, 3):
        return (size // 32, size // 32), (1024, 1)
    tiles = STAGES[stage]
    return (size // tiles.columns, size // tiles.rows), (tiles.threads, 1)


def ptx(stage: int) -> str:
    """The kernel of a stage; the size of the matrices is a multiple of its tile."""
    if stage < 4:
        return _of_single_results(stage)
    return _of_tiles(STAGES[stage])


def _of_single_results(stage: int) -> str:
    """A thread computes one result: neighbours take rows (1), columns (2), or tiles of 32 × 32 in shared memory too (3)."""
    place = "mov.u32 %y, %tid.y; mad.lo.u32 %i, %bx, 32, %t; mad.lo.u32 %j, %by, 32, %y;"
    if stage > 1:
        place = "shr.u32 %y, %t, 5; and.b32 %x, %t, 31;"
        rows, columns = ("%bx", "%by") if stage == 2 else ("%by", "%bx")
        place += f"mad.lo.u32 %i, {rows}, 32, %y; mad.lo.u32 %j, {columns}, 32, %x;"
    lines = [
        ".reg .b64 %a, %b, %c, %row, %q<4>; .reg .b32 %n, %t, %bx, %by, %k, %i, %j, %x, %y, %s<4>; .reg .pred %p;",
        ".reg .f32 %alpha, %beta, %sum, %f<3>, %m<4>; .shared .align 16 .b8 tiles[8192];",
        _BEGIN,
        place,
        "mov.f32 %sum, 0f00000000;",
    ]
    if stage < 3:
        lines += [
            "mul.lo.u32 %s0, %i, %n; mul.wide.u32 %q0, %s0, 4; add.s64 %q0, %a, %q0;",
            "mul.wide.u32 %q1, %j, 4; add.s64 %q1, %b, %q1;",
            "L:",
        ]
        for n in range(4):
            lines += [
                f"ld.global.nc.f32 %f0, [%q0+{4 * n}]; ld.global.nc.f32 %f1, [%q1]; add.s64 %q1, %q1, %row;",
                "fma.rn.f32 %sum, %f0, %f1, %sum;",
            ]
        lines.append("add.s64 %q0, %q0, 16; add.u32 %k, %k, 4; setp.lt.u32 %p, %k, %n; @%p bra L;")
    else:
        lines += [
            "mad.lo.u32 %s0, %i, %n, %x; mul.wide.u32 %q0, %s0, 4; add.s64 %q0, %a, %q0;",
            "mad.lo.u32 %s0, %y, %n, %j; mul.wide.u32 %q1, %s0, 4; add.s64 %q1, %b, %q1; shl.b64 %q2, %row, 5;",
            "mov.u32 %s0, tiles; shl.b32 %s1, %t, 2; add.u32 %s1, %s0, %s1;",
            "shl.b32 %s2, %y, 7; add.u32 %s2, %s0, %s2; shl.b32 %s3, %x, 2; add.u32 %s3, %s0, %s3;",
            "L:",
            "ld.global.nc.f32 %f0, [%q0]; ld.global.nc.f32 %f1, [%q1];",
            "st.shared.f32 [%s1], %f0; st.shared.f32 [%s1+4096], %f1; bar.sync 0;",
        ]
        for n in range(32):
            if n % 4 == 0:
                lines.append(f"ld.shared.v4.f32 {{%m0, %m1, %m2, %m3}}, [%s2+{4 * n}];")
            lines.append(f"ld.shared.f32 %f1, [%s3+{4096 + 128 * n}]; fma.rn.f32 %sum, %m{n % 4}, %f1, %sum;")
        lines.append("bar.sync 0; add.s64 %q0, %q0, 128; add.s64 %q1, %q1, %q2;")
        lines.append("add.u32 %k, %k, 32; setp.lt.u32 %p, %k, %n; @%p bra L;")
    lines += [
        "mad.lo.u32 %s0, %i, %n, %j; mul.wide.u32 %q0, %s0, 4; add.s64 %q0, %c, %q0;",
        "ld.global.f32 %f0, [%q0]; mul.rn.f32 %f0, %f0, %beta; fma.rn.f32 %f0, %alpha, %sum, %f0;",
        "st.global.f32 [%q0], %f0; ret;",
    ]
    return _HEAD + "\n".join(lines) + "\n}\n"


def _of_tiles(tiles: Tiles) -> str:
    a, b = tiles.bytes_of_tiles
    count = len(tiles.down) * len(tiles.across)
    lines = [
        ".reg .b64 %a, %b, %c, %row, %ga, %gb, %sa, %sb, %deep, %q<3>; .reg .pred %p, %half;",
        ".reg .b32 %n, %t, %bx, %by, %k, %l, %i, %j, %x, %y, %u, %d, %wa, %wb, %ra, %rb, %pa, %pb, %s<3>;",
        f".reg .f32 %alpha, %beta, %f<4>, %c<{count}>, %m<{4 * len(tiles.down)}>, %v<{len(tiles.across)}>;",
        f".shared .align 16 .b8 tiles[{(1 + tiles.turns) * (a + b)}];",
        _BEGIN,
        f"and.b32 %l, %t, {tiles.loading - 1}; mov.u32 %u, tiles;",
        *_placed(tiles),
        *(f"mov.f32 %c{n}, 0f00000000;" for n in range(count)),
        f"mul.lo.s64 %deep, %row, {tiles.depth};",
        *(_in_turns(tiles) if tiles.turns else _in_steps(tiles)),
        *_written(tiles),
        "ret;",
    ]
    return _HEAD + "\n".join(lines) + "\n}\n"


def _placed(tiles: Tiles) -> Iterator[str]:
    """Where a thread loads and stores, and where its results are."""
    width = 4 if tiles.vectors else 1
    for name, block, extent, each, first in (
        ("a", "%by", tiles.rows, tiles.depth, True),
        ("b", "%bx", tiles.columns, tiles.columns, False),
    ):
        # %i: row, %j: column of the tile
        yield f"div.u32 %i, %l, {each // width}; rem.u32 %j, %l, {each // width}; mul.lo.u32 %j, %j, {width};"
        if first:
            yield f"mad.lo.u32 %x, {block}, {extent}, %i; mad.lo.u32 %x, %x, %n, %j;"
            stored = (tiles.rows, "%j", "%i") if tiles.vectors else (tiles.depth, "%i", "%j")
            yield f"mad.lo.u32 %y, {stored[1]}, {stored[0]}, {stored[2]};"
        else:
            yield f"mad.lo.u32 %x, {block}, {extent}, %j; mad.lo.u32 %x, %i, %n, %x;"
            if tiles.pad < 0:
                yield f"rem.u32 %y, %j, {tiles.wide}; mad.lo.u32 %y, %i, {tiles.wide}, %y; div.u32 %j, %j, {tiles.wide};"
                yield f"mad.lo.u32 %y, %y, {tiles.columns // tiles.wide}, %j;"
            else:
                yield f"mad.lo.u32 %y, %i, {tiles.pitch}, %j;"
        yield f"mul.wide.u32 %q0, %x, 4; add.s64 %g{name}, %{name}, %q0; shl.b32 %y, %y, 2; add.u32 %w{name}, %u, %y;"
        yield f"mul.lo.s64 %s{name}, %row, {tiles.loading * width // each};"
    # %i: first row, %j: first column of the results
    if tiles.warp[0]:
        each, around = tiles.apart[1] // tiles.wide, tiles.columns // tiles.warp[1]
        yield f"shr.u32 %x, %t, 5; and.b32 %y, %t, 31; div.u32 %i, %x, {around}; rem.u32 %j, %x, {around};"
        yield f"mul.lo.u32 %i, %i, {tiles.warp[0]}; mul.lo.u32 %j, %j, {tiles.warp[1]};"
        yield f"div.u32 %x, %y, {each}; rem.u32 %y, %y, {each};"
        yield f"mad.lo.u32 %i, %x, {tiles.high}, %i; mad.lo.u32 %j, %y, {tiles.wide}, %j;"
    else:
        each = tiles.columns // tiles.wide
        yield f"div.u32 %i, %t, {each}; rem.u32 %j, %t, {each};"
        yield f"mul.lo.u32 %i, %i, {tiles.high}; mul.lo.u32 %j, %j, {tiles.wide};"
    a = tiles.bytes_of_tiles[0] * (1 + tiles.turns)
    yield f"mad.lo.u32 %ra, %i, {4 if tiles.vectors else 4 * tiles.depth}, %u;"
    yield f"div.u32 %x, %j, {tiles.wide}; mad.lo.u32 %rb, {'%x' if tiles.pad < 0 else '%j'}, 4, %u;"
    yield f"add.u32 %rb, %rb, {a}; add.u32 %wb, %wb, {a};"


def _loaded(tiles: Tiles, buffer: int, ahead: int) -> Iterator[str]:
    """The next tiles of A and B, or those so many steps ahead, through registers."""
    width, starts = (4 if tiles.vectors else 1), [size * buffer for size in tiles.bytes_of_tiles]
    names = [f"%f{n}" for n in range(width)]
    load = f"ld.global.v4.f32 {{{', '.join(names)}}}" if width == 4 else "ld.global.f32 %f0"
    yield f"add.s64 %q0, %ga, {4 * tiles.depth * ahead};"
    step = tiles.loading * width // tiles.depth
    for start in range(0, tiles.rows, step):
        yield f"{load}, [%q0]; add.s64 %q0, %q0, %sa;"
        for n, name in enumerate(names):
            place = n * tiles.rows + start if tiles.vectors else start * tiles.depth
            yield f"st.shared.f32 [%wa+{4 * place + starts[0]}], {name};"
    yield f"mul.lo.s64 %q0, %deep, {ahead}; add.s64 %q0, %gb, %q0;"
    step = tiles.loading * width // tiles.columns
    for start in range(0, tiles.depth, step):
        yield f"{load}, [%q0]; add.s64 %q0, %q0, %sb;"
        if tiles.vectors and not tiles.pad:
            yield f"st.shared.v4.f32 [%wb+{4 * start * tiles.pitch + starts[1]}], {{{', '.join(names)}}};"
            continue
        for n, name in enumerate(names):
            place = start * tiles.pitch + n
            if tiles.pad < 0:
                place = (start * tiles.wide + n) * (tiles.columns // tiles.wide)
            yield f"st.shared.f32 [%wb+{4 * place + starts[1]}], {name};"


def _multiplied(tiles: Tiles, buffer: int) -> Iterator[str]:
    """Sums of one step; of tiles that are loaded in turns in a loop."""
    starts = [size * buffer for size in tiles.bytes_of_tiles]
    yield f"add.u32 %pa, %ra, {starts[0]}; add.u32 %pb, %rb, {starts[1]};"
    if not tiles.turns:
        for k in range(tiles.depth):
            yield from _summed(tiles, k)
        return
    yield f"mov.u32 %d, 0;\nD{buffer}_%%:"
    yield from _summed(tiles, 0)
    yield f"add.u32 %pa, %pa, {4 * tiles.rows}; add.u32 %pb, %pb, {4 * tiles.pitch};"
    yield f"add.u32 %d, %d, 1; setp.lt.u32 %p, %d, {tiles.depth}; @%p bra D{buffer}_%%;"


def _summed(tiles: Tiles, k: int) -> Iterator[str]:
    down, across = tiles.down, tiles.across
    if tiles.vectors:
        for n in range(0, len(down), 4):
            names = ", ".join(f"%m{4 * (n + at)}" for at in range(4))
            yield f"ld.shared.v4.f32 {{{names}}}, [%pa+{4 * (k * tiles.rows + down[n])}];"
    elif k % 4 == 0:
        for n, row in enumerate(down):
            names = ", ".join(f"%m{4 * n + at}" for at in range(4))
            yield f"ld.shared.v4.f32 {{{names}}}, [%pa+{4 * (row * tiles.depth + k)}];"
    if tiles.wide % 4 == 0 and not tiles.pad:
        for n in range(0, len(across), 4):
            names = ", ".join(f"%v{n + at}" for at in range(4))
            yield f"ld.shared.v4.f32 {{{names}}}, [%pb+{4 * (k * tiles.pitch + across[n])}];"
    else:
        for n, column in enumerate(across):
            place = k * tiles.pitch + column
            if tiles.pad < 0:
                place = (k * tiles.wide + n) * (tiles.columns // tiles.wide)
            yield f"ld.shared.f32 %v{n}, [%pb+{4 * place}];"
    for i, j in product(range(len(down)), range(len(across))):
        left, result = 4 * i + (0 if tiles.vectors else k % 4), f"%c{i * len(across) + j}"
        yield f"fma.rn.f32 {result}, %m{left}, %v{j}, {result};"


def _in_steps(tiles: Tiles) -> Iterator[str]:
    yield "L:"
    yield from _loaded(tiles, 0, 0)
    yield f"bar.sync 0; add.s64 %ga, %ga, {4 * tiles.depth}; add.s64 %gb, %gb, %deep;"
    yield from _multiplied(tiles, 0)
    yield f"bar.sync 0; add.u32 %k, %k, {tiles.depth}; setp.lt.u32 %p, %k, %n; @%p bra L;"


def _in_turns(tiles: Tiles) -> Iterator[str]:
    """The first half loads the first of two tiles, the second half the second one; both multiply both."""

    def multiplied(buffer: int, half: int) -> Iterator[str]:
        return (line.replace("%%", str(half)) for line in _multiplied(tiles, buffer))

    yield f"setp.ge.u32 %half, %t, {tiles.loading}; @%half bra READY;"
    yield from _loaded(tiles, 0, 0)
    yield "READY:\nbar.sync 0;\nL:\n@%half bra SECOND;"
    yield from multiplied(0, 0)
    yield "bar.sync 0;"
    yield from multiplied(1, 0)
    yield f"bar.sync 0; add.u32 %x, %k, {2 * tiles.depth}; setp.ge.u32 %p, %x, %n; @%p bra BOTH;"
    yield from _loaded(tiles, 0, 2)
    yield "bra BOTH;\nSECOND:"
    yield from _loaded(tiles, 1, 1)
    yield "bar.sync 0;"
    yield from multiplied(0, 1)
    yield "bar.sync 0;"
    yield from multiplied(1, 1)
    yield f"BOTH:\nadd.s64 %ga, %ga, {8 * tiles.depth}; add.s64 %gb, %gb, %deep; add.s64 %gb, %gb, %deep; bar.sync 0;"
    yield f"add.u32 %k, %k, {2 * tiles.depth}; setp.lt.u32 %p, %k, %n; @%p bra L;"


def _written(tiles: Tiles) -> Iterator[str]:
    yield f"mad.lo.u32 %x, %by, {tiles.rows}, %i; mad.lo.u32 %y, %bx, {tiles.columns}, %j; mad.lo.u32 %x, %x, %n, %y;"
    yield "mul.wide.u32 %q0, %x, 4; add.s64 %q0, %c, %q0;"
    across = tiles.across
    width = 4 if tiles.vectors else 1
    for i, row in enumerate(tiles.down):
        yield f"mul.lo.s64 %q1, %row, {row}; add.s64 %q1, %q0, %q1;"
        for start in range(0, len(across), width):
            names = [f"%f{n}" for n in range(width)]
            listed = f".v4.f32 {{{', '.join(names)}}}" if width == 4 else ".f32 %f0"
            yield f"ld.global{listed}, [%q1+{4 * across[start]}];"
            for n, name in enumerate(names):
                result = f"%c{i * len(across) + start + n}"
                yield f"mul.rn.f32 {name}, {name}, %beta; fma.rn.f32 {name}, %alpha, {result}, {name};"
            kind, values = listed.split(" ", 1)
            yield f"st.global{kind} [%q1+{4 * across[start]}], {values};"


@cache
def kernel(stage: int) -> ge.Kernel:
    return ge.parse(ptx(stage), path=f"products_{stage}.ptx")["sgemm"]


def small_launch(stage: int) -> ge.Profile:
    """The addresses of a launch on small matrices."""
    device, size = ge.Device(), max(64, 128 * (stage > 4))
    a, b, c = (device.zeros((size, size), np.float32) for _ in range(3))
    grid, block = shape(stage, size)
    given = [a, b, c, np.uint32(size), np.float32(1), np.float32(0)]
    return device.launch(kernel(stage), grid=grid, block=block, args=given, demand="addresses")


def simulated_time(row: Row, *, assembled: bool = True) -> float:
    """Predicted µs, on the code of ``ptxas`` or without an assembler; raises ``MachineError`` or ``NotRun`` where that is not
    possible."""
    small = small_launch(row.stage)
    (record,) = small.records
    # far enough apart that nothing overlaps
    room = 4 * row.size**2 + (1 << 20)
    addresses = np.array([room, 2 * room, 3 * room], np.uint64).tobytes()
    parameters = addresses + np.uint32(row.size).tobytes() + record.plan.parameters[len(addresses) + 4 :]
    grid, _ = shape(row.stage, row.size)
    plan = replace(record.plan, grid=(*grid, 1), parameters=parameters)
    expanded = None if assembled else replace(small.resources, shared_bytes=plan.shared_bytes)
    return simulated(replace(record, plan=plan), row.machine, expanded=expanded).time_us
