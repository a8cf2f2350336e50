"""Random kernels with guards on half of what they compute and store, and volatile and relaxed accesses for plain ones: results and
counts are those of the one-thread-at-a-time interpreter, on both backends."""

from __future__ import annotations

import re

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.engine.random_kernels import ACCUMULATORS, INPUTS, LOCK, WORDS, Seeded, structured, tangled
from tests.engine.test_oracle_counts import compare_counts
from tests.engine.test_random_kernels import BLOCKS, outcome
from tests.oracle.scalar import Buffer, run

STATEMENT = re.compile(r"(\s*)([a-z][\w.:]*)(\s[^;]*);(.*)")
#: what all lanes of a warp must do together, and what has an own meaning under a guard
TOGETHER = re.compile(r"\b(bar|call|bra|brx|ret|exit|vote|shfl|match|redux|activemask|elect)\b|\.sync|param")
#: destinations that decide no address, and addresses that are the thread's own
OWN = re.compile(r"\s*(%[rdfh]\d|\[%(own|log)\b)")
#: behind it threads know where their memory is
BEGUN = "cvt.rn.f32.s32 %f0, %r4;"
PREDICATES = (
    ".reg .pred %qq<4>; .reg .b32 %qt<2>; mov.u32 %qt0, %tid.x; and.b32 %qt1, %qt0, 1; setp.eq.u32 %qq0|%qq1, %qt1, 0; "
    "and.b32 %qt1, %qt0, 5; setp.ne.and.u32 %qq2|%qq3, %qt1, 4, %qq0;"
)


def guarded(text: str, choices: Seeded) -> str:
    """The text with guards and strong accesses."""
    head, entry, body = text.rpartition(".visible .entry")
    lines = body.replace("{\n", "{\n" + PREDICATES + "\n", 1).split("\n")
    first = next(place for place, line in enumerate(lines) if BEGUN in line)
    last = lines.index("}")
    for place in range(first, last):
        found = STATEMENT.fullmatch(lines[place])
        if found is None or TOGETHER.search(lines[place]):
            continue
        opcode, guard = found[2], ""
        if opcode.split(".")[:2] in (["ld", "global"], ["ld", "shared"], ["st", "global"], ["st", "shared"]):
            kind, space, *rest = opcode.split(".")
            strong = ("volatile", "relaxed.gpu", "relaxed.sys", "volatile")[choices.number(0, 3)]
            plain = choices.number(0, 2) == 0 or set(rest) & {"ca", "cg", "cs", "cv", "lu", "wb", "wt", "nc"}
            opcode = opcode if plain else ".".join((kind, strong, space, *rest))
        if OWN.match(found[3]) and choices.number(0, 1):
            guard = f"@{('', '!')[choices.number(0, 1)]}%qq{choices.number(0, 3)} "
        lines[place] = f"{found[1]}{guard}{opcode}{found[3]};{found[4]}"
    return head + entry + "\n".join(lines)


@pytest.mark.parametrize("seed", range(8))
def test_guards_and_strong_accesses(seed: int) -> None:
    choices = Seeded(seed)
    block, grid = BLOCKS[choices.number(0, len(BLOCKS) - 1)], choices.number(1, 2)
    plain = (structured, tangled)[seed % 2](choices)
    text = guarded(plain, choices)
    assert len(re.findall(r"@!?%qq", text)) > 5
    threads = int(np.prod(block)) * grid
    inputs = np.random.default_rng(seed).integers(0, 2**32, INPUTS, dtype=np.uint64)
    totals = np.arange(ACCUMULATORS, dtype=np.uint32) * 0x1000_0001
    totals[LOCK] = 0
    start = [inputs.astype(np.uint32), np.zeros(threads * WORDS, np.uint32), totals]
    lanes, native = (outcome(backend, text, grid, block, start) for backend in ("reference", "llvm"))
    assert lanes == native
    profile, contents = native
    assert isinstance(profile, ge.Profile), profile
    expected = run(text, "k", grid, block, [Buffer(array) for array in start])
    for array, after in zip(contents, expected.memory, strict=True):
        assert array == after.tolist()
    compare_counts(profile, expected)
