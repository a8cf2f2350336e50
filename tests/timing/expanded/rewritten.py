"""Kernels, run as they are and rewritten: with unrolled loops, or short bodies under predicates; and rewritten with their blocks in
another order."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import gpuperf_engine as ge
from gpuperf_engine.profile.build import LaunchRecord
from gpuperf_engine.simt.counters import SITE_COLUMNS
from gpuperf_engine.simt.program import BasicBlock, Program, program_of
from gpuperf_engine.timing.expanded.rewriting import Rewriter, Rewritten
from gpuperf_engine.timing.expanded.unrolling import unrolled
from tests.support import head

__all__ = ["LANES", "LOOPS", "WORDS", "Both", "kernel", "looped", "run"]

LANES = np.arange(32, dtype=np.int64)
LOOPS = int(os.environ.get("GPUPERF_RANDOM_LOOPS", "1"))
"""How many times as many random loops are tested as suffice for each kind to come."""
WORDS = 4096
"""32-bit words of the array that kernels read."""
#: %r0: the lane, %r1: the parameter, %rd0: the array that is read, %rd1: the lane's place in the other one.
PROLOGUE = """
.reg .pred %p<8>; .reg .b16 %h<4>; .reg .b32 %r<32>; .reg .f32 %f<8>; .reg .b64 %rd<16>;
.shared .align 16 .b8 tile[8192];
ld.param.u64 %rd0, [given]; ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [n];
mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 4; add.s64 %rd1, %rd1, %rd2;
"""


@dataclass(frozen=True)
class Both:
    """The results of a kernel, [word, lane], and its record, as it is and rewritten; ``made``: ``None`` if nothing was."""

    results: NDArray[np.uint32]
    record: LaunchRecord
    made: Rewritten | None
    rewritten_results: NDArray[np.uint32]
    rewritten_record: LaunchRecord | None

    def check(self, expected: Sequence[NDArray[np.int64]] | None = None) -> None:
        """Results against NumPy's (modulo 2^32) and those of the rewritten kernel, and lanes and transactions of each access."""
        if expected is not None:
            wanted = np.array([np.broadcast_to(one, 32) & 0xFFFFFFFF for one in expected]).astype(np.uint32)
            np.testing.assert_array_equal(self.results[: len(wanted)], wanted)
        if self.made is None:
            return
        np.testing.assert_array_equal(self.rewritten_results, self.results)
        assert self.rewritten_record is not None
        origins = dict(zip(self.made.kernel.instructions, self.made.origins))
        first, second = self.record, self.rewritten_record
        counted = first.observation.sites
        again = second.observation.sites
        assert counted is not None and again is not None
        summed = np.zeros_like(counted)
        for number, site in enumerate(second.program.sites):
            origin = origins[site.instruction]
            assert origin is not None
            summed[first.program.site_of[origin]] += again[number]
        lanes = SITE_COLUMNS.index("lanes")
        np.testing.assert_array_equal(summed[:, lanes], counted[:, lanes])


def kernel(body: str, functions: str = "") -> str:
    return (
        head("8.0", "sm_80")
        + functions
        + f".visible .entry k(.param .u64 given, .param .u64 out, .param .u32 n)\n{{{PROLOGUE}{body}\nret;\n}}\n"
    )


def looped(body: str, test: str, before: str = "", after: str = "", guard: str = "@%p1") -> str:
    """A loop ``L`` that goes on while %p1 says so."""
    return f"{before}\nL:\n{body}\n{test}\n{guard} bra L;\n{after}\n"


class _Elsewhere(Rewriter):
    """A kernel with its blocks in another order, and jumps where one followed another."""

    program: Program

    def body(self) -> None:
        groups: list[list[BasicBlock]] = []
        for block in self.program.blocks:
            if groups and groups[-1][-1].kind == "branch":  # what follows a branch stays behind it
                groups[-1].append(block)
            else:
                groups.append([block])
        order = [0, *(1 + np.random.default_rng(len(groups)).permutation(len(groups) - 1))]
        for group in (groups[at] for at in order):
            for block in group:
                self.lines.append(f"$at{block.index}:")
                for item in block.instructions:
                    self.labels(item.index)
                    self.add(item)
            if block.kind in ("fall", "barrier"):
                self.line(f"bra $at{block.successors[0]};", None)
            elif block.kind == "return" and block.terminator is None:
                self.labels(len(self.kernel.instructions))
                self.line("ret;", None)


def elsewhere(kernel: ge.Kernel) -> ge.Kernel:
    """The same with its blocks in another order."""
    writer = _Elsewhere(kernel)
    writer.program = program_of(kernel)
    return writer.written().kernel


def unrolled_for_86(program: Program) -> Rewritten | None:
    return unrolled(program, 86)


def run(
    body: str,
    n: int = 0,
    words: int = 1,
    given: NDArray[np.uint32] | None = None,
    rewrite: Callable[[Program], Rewritten | None] = unrolled_for_86,
    functions: str = "",
) -> Both:
    """Runs a body, which stores to ``[%rd1 + 128 * word]``, on one warp. ``functions``: those that it calls."""
    data = np.arange(WORDS, dtype=np.uint32) * np.uint32(2654435761) if given is None else given
    parsed = ge.parse(kernel(body, functions), path="k.ptx")["k"]

    def launched(one: ge.Kernel) -> tuple[NDArray[np.uint32], LaunchRecord]:
        device = ge.Device({"memory"}, backend="llvm", memory_bytes=1 << 20)
        out = device.zeros(32 * words, np.uint32)
        profile = device.launch(one, 1, 32, [device.array(data), out, n & 0xFFFFFFFF])
        return out.numpy().reshape(words, 32), profile.records[0]

    results, record = launched(parsed)
    made = rewrite(program_of(parsed))
    if made is None:
        return Both(results, record, None, results, None)
    again, longer = launched(made.kernel)
    moved = rewrite(program_of(elsewhere(parsed))) if not functions else None
    if moved is not None:
        np.testing.assert_array_equal(launched(moved.kernel)[0], results)
    return Both(results, record, made, again, longer)
