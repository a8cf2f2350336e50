"""Dead stores within a launch, held against a replay of every access byte by byte; both backends."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.results import ValueRecord

from ..support import BACKENDS, head

_BLOCKS, _THREADS = 3, 96
_BYTES = 4096


@dataclass(frozen=True)
class _Step:
    """An access of threads whose number in the block has no bit of ``guard``: ``count`` elements of ``size`` bytes, ``inside`` the
    unit of ``stride`` bytes that has the number ``factor`` · thread + ``offset``, modulo those of the object. A ``pair`` of halves is
    two elements."""

    what: str
    size: int
    count: int
    array: int
    stride: int
    inside: int
    factor: int
    offset: int
    guard: int
    pair: bool

    @property
    def parts(self) -> tuple[int, int]:
        """Elements that are recorded, and bytes of each."""
        return (2 * self.count, self.size // 2) if self.pair else (self.count, self.size)

    @property
    def opcode(self) -> str:
        vector = f".v{self.count}" if self.count > 1 else ""
        if self.what == "red":
            return f"red.global.add.u{8 * self.size}"
        words = {
            "ld": "ld.global",
            "st": "st.global",
            "volatile": "st.volatile.global",
            "release": "st.release.gpu.global",
        }
        return f"{words[self.what]}{vector}.u{8 * self.size}"

    def start(self, thread: int) -> int:
        return (self.factor * thread + self.offset) % (_BYTES // self.stride) * self.stride + self.inside


def _drawn(rng: np.random.Generator) -> _Step:
    what = str(
        rng.choice(
            ["ld", "st", "st", "st", "volatile", "release", "red"], p=[0.12, 0.3, 0.3, 0.16, 0.04, 0.04, 0.04]
        )
    )
    size = int(rng.choice([4, 8] if what == "red" else [1, 2, 4, 4, 4, 8]))
    count = 1 if what in ("red", "release") else int(rng.choice([1, 1, 2]))
    width = size * count
    stride = int(rng.choice([width, 16]))
    inside = int(rng.integers(stride // width)) * width
    factor = int(rng.choice([1, 1, 1, 1, 3, 0]))
    # mostly where the thread has been
    offset = int(rng.choice([0, 0, 0, 0, 5, 32]))
    guard = int(rng.choice([0, 0, 1, 64]))
    pair = size == 4 and what in ("ld", "st", "volatile") and bool(rng.integers(2))
    return _Step(what, size, count, int(rng.integers(2)), stride, inside, factor, offset, guard, pair)


def _narrower(step: _Step, rng: np.random.Generator) -> _Step:
    """Mostly bytes or halves side by side, which often begin within a word."""
    if step.what == "red" or step.size > 4 or rng.random() < 0.3:
        return step
    size, count = [(1, step.count), (2, step.count), (1, 4)][
        int(rng.choice(3 if step.what != "release" else 2))
    ]
    offset = int(rng.choice([0, 0, 0, 1, 2, 3, 5, 32]))
    return replace(step, size=size, count=count, stride=size * count, inside=0, pair=False, offset=offset)


def _text(steps: list[_Step], barriers: set[int]) -> str:
    lines = []
    for number, step in enumerate(steps):
        lines.append(
            f"mad.lo.u32 %r2, %r1, {step.factor}, {step.offset}; and.b32 %r2, %r2, {_BYTES // step.stride - 1}; "
            f"mad.wide.u32 %rd3, %r2, {step.stride}, %rd{1 + step.array}; "
            f"and.b32 %r3, %r4, {step.guard}; setp.eq.u32 %p, %r3, 0;"
        )
        register = {1: "%h", 2: "%h", 4: "%q" if step.pair else "%r", 8: "%d"}[step.size] + "9"
        value = register if step.count == 1 else f"{{{', '.join([register] * step.count)}}}"
        operands = f"{value}, [%rd3+{step.inside}]" if step.what == "ld" else f"[%rd3+{step.inside}], {value}"
        lines.append(f"@%p {step.opcode} {operands}; // {number}")
        if step.pair:  # said of what is loaded, and of what is stored
            lines.append("add.f16x2 %q8, %q9, %q9;")
        if number in barriers:
            lines.append("bar.sync 0;")
    body = "\n    ".join(lines)
    return (
        head("7.8", "sm_80")
        + f""".visible .entry k(.param .u64 x, .param .u64 y) {{
    .reg .b64 %rd<4>; .reg .b32 %r<10>; .reg .b32 %q<10>; .reg .b16 %h<10>; .reg .b64 %d<10>; .reg .pred %p;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
    mov.u32 %r4, %tid.x; mov.u32 %r5, %ctaid.x; mad.lo.u32 %r1, %r5, {_THREADS}, %r4;
    mov.b16 %h9, 7; mov.u32 %r9, 7; add.f16x2 %q9, %r4, %r4; mov.b64 %d9, 7;
    {body}
    ret;
}}"""
    )


def _replayed(steps: list[_Step], barriers: set[int]) -> dict[tuple[int, int], Counter[tuple[int, int]]]:
    """By step and element, the steps and elements that overwrote its bytes unread, with how many: blocks in order, between barriers
    their warps in order, and what the lanes of a warp do at once."""
    last: dict[tuple[int, int], tuple[int, int, int]] = {}
    dead = defaultdict[tuple[int, int], Counter[tuple[int, int]]](Counter)
    phases = np.split(np.arange(len(steps)), [number + 1 for number in sorted(barriers)])
    for block in range(_BLOCKS):
        for phase in phases:
            for warp in range(_THREADS // 32):
                for number in phase.tolist():
                    _access(
                        steps[number], number, block * _THREADS, range(32 * warp, 32 * warp + 32), last, dead
                    )
    return dead


def _access(
    step: _Step,
    number: int,
    first: int,
    lanes: range,
    last: dict[tuple[int, int], tuple[int, int, int]],
    dead: defaultdict[tuple[int, int], Counter[tuple[int, int]]],
) -> None:
    threads = [first + lane for lane in lanes if lane & step.guard == 0]
    count, size = step.parts
    for element in range(count):
        own = [
            (thread, (step.array, step.start(thread) + element * size + byte))
            for thread in threads
            for byte in range(size)
        ]
        if step.what not in ("ld", "red"):
            for thread, byte in own:
                if byte in last and last[byte][0] == thread:
                    dead[last[byte][1:]][number, element] += 1
        for _, byte in own:
            last.pop(byte, None)
        if step.what == "st":
            last.update((byte, (thread, number, element)) for thread, byte in own)


def _run(text: str, backend: str, memory_bytes: int = 1 << 24) -> tuple[ValueRecord, ...]:
    device = ge.Device(backend=backend, observe={"accesses"}, memory_bytes=memory_bytes)
    arrays = [device.zeros(_BYTES, np.uint8, name=name) for name in "xy"]
    profile = device.launch(ge.parse(text, path="k.ptx")["k"], _BLOCKS, _THREADS, arrays)
    assert profile.remarks == ()
    return profile.values


@pytest.mark.parametrize("seed, narrow", [(0, False), (1, False), (105, False), (201, True), (203, True)])
def test_dead_bytes_are_those_of_a_replay(seed: int, narrow: bool) -> None:
    rng = np.random.default_rng(seed)
    steps = [_drawn(rng) for _ in range(24)]
    if narrow:
        steps = [_narrower(step, rng) for step in steps]
    barriers = set(rng.choice(24, 3, replace=False).tolist())
    text = _text(steps, barriers)
    numbers = {
        line: int(part.split("// ")[1]) for line, part in enumerate(text.split("\n"), 1) if "// " in part
    }
    seen = [_run(text, backend) for backend in BACKENDS]
    assert repr(seen[0]) == repr(seen[1])
    expected = _replayed(steps, barriers)
    assert expected
    for record in seen[0]:
        step = steps[numbers[record.line]]
        dead = expected.get((numbers[record.line], record.element), Counter[tuple[int, int]]())
        assert record.dead_bytes == (dead.total() if step.what == "st" else None), record.opcode
        most, count = max(dead.items(), key=lambda item: item[1], default=((0, 0), 0))
        if 2 * count > dead.total():
            assert record.overwriter is not None and numbers[record.overwriter[0]] == most[0]
        assert (record.overwriter is None) == (not dead)
