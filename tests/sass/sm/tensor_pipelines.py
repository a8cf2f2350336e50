"""Products on tensor memory as machine code by hand: a tile of 128 rows and 256 columns, or of two CTAs with 256 rows, in steps of 64
along k (four products), whose factors are copied first."""

from __future__ import annotations

from gpuperf_engine.sass.sm.numbers import SmNumbers

from .machines import arrives, asks, copied, expects, initial, moves, run_roles
from .pipelines import ARRIVE, COPY, EXPECT, HELD, INIT, TEST

__all__ = ["COMMIT", "commits", "idesc", "product", "steps"]

COMMIT = "UTCBAR{} [UR4], URZ"
_STAGES, _PRODUCTS = 16, 4
#: bytes of A and B that a CTA copies in a step
_A, _B = 128 * 128, 256 * 128
#: an accumulator is loaded, 32 columns at a time, and stored
_EPILOGUE = [*["LDTM.x32 R24, tmem[UR10]", "FADD R3, R24, R25", *["STS [R2], R3"] * 16] * 8]
_STORED = [1 | 32 << 16] * 128


def idesc(rows: int, columns: int) -> int:
    """An instruction descriptor: PTX manual, "Instruction descriptor"."""
    return rows >> 4 << 24 | columns >> 3 << 17


def product(a: str, words: str = "") -> str:
    return f"UTCHMMA{words} {a}, gdesc[UR14], tmem[UR10], tmem[UR4], idesc[UR5], UP0"


def commits(number: int, mask: int = 0, rank: int = 0) -> list[int]:
    """What a stream has of ``tcgen05.commit``."""
    return [1, number | rank << 8 | 1 << 16, mask]


def steps(numbers: SmNumbers) -> dict[str, float]:
    """Clocks of an SM for a tile of each version."""
    turns = 4
    return {
        "waits": _alone(numbers, 1, turns),
        "two buffers": _alone(numbers, 2, turns),
        "specialised": _roles(numbers, 4, turns, paired=False, persistent=False),
        "pairs": _roles(numbers, 4, turns, paired=True, persistent=False),
        "persistent": _roles(numbers, 4, turns, paired=True, persistent=True),
    }


def _alone(numbers: SmNumbers, depth: int, tiles: int) -> float:
    """One thread copies ahead, waits for a copy, multiplies, and waits for the products; then four warps store. Mbarriers: of each
    buffer, of the products, and of the end."""
    done, ended = depth, depth + 1
    code, words = [INIT] * (depth + 2), [w for n in range(depth + 2) for w in initial(n, 1)]
    copy = [EXPECT, COPY, COPY]
    for stage in range(depth - 1):
        code, words = code + copy, [*words, *expects(stage, _A + _B), *copied(0, stage), *copied(1, stage)]
    for stage in range(_STAGES):
        ahead = stage + depth - 1
        if ahead < _STAGES:
            code += copy
            words += [*expects(ahead % depth, _A + _B), *copied(0, ahead % depth), *copied(1, ahead % depth)]
        code += [TEST, "@P0 NOP", *[product("gdesc[UR12]")] * _PRODUCTS, COMMIT.format(""), TEST, "@P0 NOP"]
        words += [*asks(stage % depth, stage // depth & 1), *[idesc(128, 256)] * _PRODUCTS]
        words += [*commits(done), *asks(done, stage & 1)]
    code += [ARRIVE, *_EPILOGUE]
    words += [*arrives(ended), *_STORED]
    others = [*asks(ended, 0), *_STORED]
    roles = [code, [*HELD, TEST, "@P0 NOP", *_EPILOGUE]]
    warps = [(0, words), *[(1, others)] * 3]
    seen = run_roles(roles, warps, numbers=numbers, kinds=(moves(_A), moves(_B)), mbarriers=16, ctas=tiles)
    return (seen.ended - numbers.turnaround) / tiles


def _roles(numbers: SmNumbers, depth: int, tiles: int, paired: bool, persistent: bool) -> float:
    """A warp that copies, one that multiplies, and four that store; with ``persistent`` for all tiles, into two accumulators.
    Mbarriers: full and empty buffers, full and empty accumulators. In a pair, each CTA copies half of B, and the first multiplies."""
    each, inner = (tiles, 1) if persistent else (1, tiles)
    full, empty, whole, left = 0, depth, 2 * depth, 2 * depth + 2
    begin = [w for n in range(2 * depth) for w in initial(n, 1)]
    begin += [w for n in (0, 1) for w in initial(whole + n, 1)] + [
        w for n in (0, 1) for w in initial(left + n, 4)
    ]
    meet = ["UCGABAR_ARV", "UCGABAR_WAIT"] if paired else HELD
    size = _A + (_B // 2 if paired else _B)
    streams = []
    for rank in range(1 + paired):
        copies, products, stores = list[int](begin), list[int](), list[int]()
        copies = [word | rank << 8 if at % 3 == 1 else word for at, word in enumerate(copies)]
        for stage in range(each * _STAGES):
            n, turn = stage % depth, stage // depth & 1
            copies += [
                *asks(empty + n, turn ^ 1, rank),
                *expects(full + n, size * (1 + paired)) * (rank == 0),
            ]
            for kind in (0, 1):
                copies += [kind | full + n << 8 | rank << 16 | rank << 24, 0]
            if rank == 0:
                tile = stage // _STAGES
                if stage % _STAGES == 0:
                    products += asks(left + tile % 2, tile // 2 & 1 ^ 1)
                products += [*asks(full + n, turn), *[idesc(256 if paired else 128, 256)] * _PRODUCTS]
                products += commits(empty + n, 3)
                if stage % _STAGES == _STAGES - 1:
                    products += commits(whole + tile % 2, 3)
        for tile in range(each):
            stores += [*asks(whole + tile % 2, tile // 2 & 1, rank), *_STORED]
            stores += arrives(left + tile % 2) * (rank == 0 or not paired)
        streams.append((copies, products, stores))
    return _run(numbers, streams, meet, (each, inner, tiles), depth, paired)


def _run(
    numbers: SmNumbers,
    streams: list[tuple[list[int], list[int], list[int]]],
    meet: list[str],
    counts: tuple[int, int, int],
    depth: int,
    paired: bool,
) -> float:
    """Runs the roles of ``_roles``; the code of both CTAs of a pair is that of one role, whose parts are skipped by empty streams."""
    each, inner, tiles = counts
    last = _STAGES - 1
    words, commit = (".2CTA", ".2CTA.MULTICAST") if paired else ("", "")
    inits = [INIT] * (2 * depth + 4)
    leads = [TEST, "@P0 NOP", EXPECT, COPY, COPY]
    follows = [TEST, "@P0 NOP", COPY, COPY]
    multiply = list[str]()
    for stage in range(each * _STAGES):
        multiply += [TEST, "@P0 NOP"] * (stage % _STAGES == 0)
        multiply += [TEST, "@P0 NOP", *[product("gdesc[UR12]", words)] * _PRODUCTS, COMMIT.format(commit)]
        multiply += [COMMIT.format(commit)] * (stage % _STAGES == last)
    store = [TEST, "@P0 NOP", *_EPILOGUE]
    roles = [
        [*inits, *meet, *leads * each * _STAGES],
        [*meet, *multiply],
        [*meet, *[*store, ARRIVE] * each],
        [*inits, *meet, *follows * each * _STAGES],
        [*meet, *store * each],
        [*meet],
    ]
    warps = [(0, streams[0][0]), (1, streams[0][1]), *[(2, streams[0][2])] * 4]
    others = [[(3, streams[1][0]), (5, []), *[(4, streams[1][2])] * 4]] if paired else None
    kinds = (moves(_A), moves(_B // 2 if paired else _B))
    seen = run_roles(
        roles, warps, numbers=numbers, kinds=kinds, mbarriers=2 * depth + 4, cluster=others, ctas=inner
    )
    return (seen.ended - numbers.turnaround) / tiles
