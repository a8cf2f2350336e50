"""Matrix products of a tile as machine code by hand: copies, mbarriers, and products of warpgroups or, elsewhere, of warps."""

from __future__ import annotations

from gpuperf_engine.sass.sm.numbers import SmNumbers

from .machines import access, arrives, asks, copied, expects, initial, moves, run_roles

__all__ = [
    "ARRIVE",
    "COPY",
    "EXPECT",
    "INIT",
    "PRODUCT",
    "READY",
    "TEST",
    "USE",
    "WAIT",
    "pipeline",
    "plain",
    "shared_b",
    "tiles",
]

READY, PRODUCT = "WARPGROUP.ARRIVE", "HGMMA.64x{}x16.F32.BF16 R24, gdesc[UR4], R24"
WAIT = "WARPGROUP.DEPBAR.LE gsb0, 0x0"
INIT, EXPECT = "SYNCS.EXCH.64 URZ, [UR4], UR6", "SYNCS.ARRIVE.TRANS64 RZ, [UR4], R6"
ARRIVE, TEST = "SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR4], RZ", "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R2"
COPY, USE = "UBLKCP.S.G [UR8], [UR6], UR10", "@P0 FADD R3, R4, R5"
#: clocks in front of the first stage, so that the barriers are there
HELD = ["FFMA R1, R1, R2, R1"] * 160


def pipeline(numbers: SmNumbers, stages: int, depth: int, size: int, products: int) -> float:
    """Clocks of a warp that copies ``stages`` times and a warpgroup that multiplies; depth: buffers."""
    producer, consumer = [INIT] * (2 * depth), list[str]()
    loads = [word for n in range(depth) for word in (*initial(n, 1), *initial(depth + n, 4))]
    maths: list[int] = []
    for stage in range(stages):
        buffer, turn = stage % depth, stage // depth
        producer += [TEST, "@P0 NOP", EXPECT, COPY]
        loads += [*asks(depth + buffer, turn & 1 ^ 1), *expects(buffer, size), *copied(0, buffer)]
        consumer += [TEST, "@P0 NOP", *multiplied(numbers, products), ARRIVE]
        maths += [*asks(buffer, turn & 1), *arrives(depth + buffer)]
    # warps 0 to 3 multiply; the barriers are there before they ask
    warps = [*[(1, maths)] * 4, (0, loads)]
    seen = run_roles([producer, [*HELD, *consumer]], warps, numbers=numbers, kinds=(moves(size),))
    return seen.ended - numbers.turnaround


def multiplied(numbers: SmNumbers, products: int) -> list[str]:
    """By a warp: its part of products of a warpgroup; elsewhere as many of its own as take 64 clocks for each of these."""
    if numbers.architecture >= 100:
        count = max(1, round(numbers.lanes["tensor"]) * products)
        registers = [24 + 4 * (n % 32) for n in range(count)]
        return [f"HMMA.16816.F32.BF16 R{n}, R4, R8, R{n}" for n in registers]
    return [READY, *[PRODUCT.format(256)] * (products - 1), PRODUCT.format(256) + ", gsb0", WAIT]


def plain(numbers: SmNumbers, stages: int, size: int, products: int) -> float:
    """The same by a warpgroup that copies for itself, waits, and multiplies: no warp runs ahead."""
    code, words, others = [*[INIT] * 2, *HELD], [*initial(0, 1), *initial(1, 4)], list[int]()
    for stage in range(stages):
        code += [TEST, "@P0 NOP", EXPECT, COPY, TEST, "@P0 NOP", *multiplied(numbers, products), ARRIVE]
        words += [*asks(1, stage & 1 ^ 1), *expects(0, size), *copied(0, 0), *asks(0, stage & 1), *arrives(1)]
        others += [*asks(1, stage & 1 ^ 1), *asks(0, stage & 1), *arrives(1)]
    other = [*HELD, *([TEST, "@P0 NOP", TEST, "@P0 NOP", *multiplied(numbers, products), ARRIVE] * stages)]
    warps = [(0, words), *[(1, others)] * 3]
    seen = run_roles([code, other], warps, numbers=numbers, kinds=(moves(size),))
    return seen.ended - numbers.turnaround


def shared_b(numbers: SmNumbers, multicast: bool) -> float:
    """Two CTAs that copy a tile of A each, and the same tile of B: once for both, or each for itself. L2 is what limits them."""
    stages, size, depth = 24, 32768, 4
    codes: list[list[str]] = []
    streams: list[list[int]] = []
    for rank in range(2):
        code, words = [INIT] * depth + ["UCGABAR_ARV", "UCGABAR_WAIT"], list[int]()
        for n in range(depth):
            words += initial(n, 1, rank)
        for stage in range(stages):
            n = stage % depth
            if stage >= depth:
                code += [TEST, "@P0 NOP"]
                words += asks(n, stage // depth - 1 & 1, rank)
            if multicast:
                # both have come so far before anything is copied
                code += ["UCGABAR_ARV", "UCGABAR_WAIT"]
            code += [EXPECT, COPY]
            words += [*expects(n, 2 * size, rank), *copied(0, n, rank=rank)]
            if not multicast or rank == 0:
                code += [COPY]
                words += copied(0, n, mask=3 if multicast else 0, rank=rank)
        codes.append(code)
        streams.append(words)
    seen = run_roles(
        codes, [(0, streams[0])], cluster=[[(1, streams[1])]], numbers=numbers, kinds=(moves(size),),
        l2_rate=numbers.l2_rate / numbers.sm_count,
    )  # fmt: skip
    return seen.cycles


def tiles(numbers: SmNumbers, persistent: bool) -> float:
    """Six tiles of eight stages, the results of each stored: by one CTA whose copies run ahead into the next tile, or by one
    CTA each."""
    count, stages, size, depth = 6, 8, 32768, 4
    each = stages * count if persistent else stages
    store = ["STS [R2], R3"] * 64 + ["FFMA R1, R1, R2, R1"] * 200
    producer, consumer = [INIT] * (2 * depth), list[str]()
    loads = [word for n in range(depth) for word in (*initial(n, 1), *initial(depth + n, 4))]
    maths: list[int] = []
    for stage in range(each):
        n, turn = stage % depth, stage // depth
        producer += [TEST, "@P0 NOP", EXPECT, COPY]
        loads += [*asks(depth + n, turn & 1 ^ 1), *expects(n, size), *copied(0, n)]
        consumer += [TEST, "@P0 NOP", *multiplied(numbers, 4), ARRIVE]
        maths += [*asks(n, turn & 1), *arrives(depth + n)]
        if stage % stages == stages - 1:
            consumer += store
            maths += access(1) * 64
    warps = [*[(1, maths)] * 4, (0, loads)]
    ctas = 1 if persistent else count
    seen = run_roles([producer, [*HELD, *consumer]], warps, numbers=numbers, kinds=(moves(size),), ctas=ctas)
    return seen.ended
