"""One kernel's results on a GPU beside the emulator's: what is equal, what the manual allows, what differs and where."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.hardware import bounds, collect
from tests.hardware.expected import SIGNS, example_buffers, instruction_words, recorded_buffers
from tests.hardware.listing import Store, inputs_of, stores

Array = npt.NDArray[Any]
ROOT = Path(__file__).resolve().parents[2]
EQUAL, WITHIN, DIFFERENT = "equal", "within a bound", "different"
SHOWN = 20
#: error of a matrix instruction's sum as a part of the sum of the magnitudes of all that is added, by type of the sum, or of the
#: factors: the manual leaves order and precision of the sum open ("Matrix multiply-accumulate": "The order … unspecified")
MATRIX = {".f16.f16 ": 2.0**-8, ".e4m3": 2.0**-10, ".e5m2": 2.0**-10, "": 2.0**-18}
#: what makes the results of a whole kernel depend on more than the manual says
OPEN = (
    (re.compile(r"\b\w+(\.\w+)*\.(approx|full)\b"), "approximate functions"),
    (re.compile(r"\b(atom|red)\S*\.add\S*\.(f16|f32|f64|bf16)"), "the order of floating-point atomics"),
    (re.compile(r"\bw?g?mma\.\S*\.(f16|f32)\."), "the order of the sum in matrix instructions"),
)


@dataclass
class Verdict:
    """What the comparison of one kernel says. ``words`` were compared, of which ``equal`` are equal bit for bit, ``within`` not, but
    as near as the manual says, ``different`` neither; ``differences`` are lines for people."""

    part: str
    name: str
    verdict: str
    reason: str = ""
    words: int = 0
    equal: int = 0
    within: int = 0
    different: int = 0
    differences: list[str] = field(default_factory=list)
    lowered: str = ""

    @property
    def compared(self) -> bool:
        return self.verdict in (EQUAL, WITHIN, DIFFERENT)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{self.verdict}: {self.part} {self.name}" + (f": {self.reason}" if self.reason else "")]
        return "\n  ".join([*lines, *self.differences])


def not_compared(part: str, name: str, verdict: str, reason: str) -> Verdict:
    """A case of which there is nothing to compare."""
    return Verdict(part, name, verdict, reason)


def where(path: Path, line: int) -> str:
    """A position, relative to the repository where it lies there."""
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    return f"{shown}:{line}"


# -- single instructions ------------------------------------------------------------------------------------------------


def instruction_kernel(
    name: str, path: Path, count: int, source: Array, record: Mapping[str, Any]
) -> Verdict:
    """A kernel of ``ptx/instructions``: every word that an instruction left, thread by thread."""
    text = path.read_text(encoding="utf-8")
    found = collect.unpack(record["output"], np.uint64)
    if found.size != len(source) * count:
        raise ValueError(f"{found.size} words of {len(source) * count}")
    found = found.reshape(len(source), count)
    ours = instruction_words(path, text, count, source)
    magnitudes = None
    result = Verdict("instructions", name, EQUAL)
    reasons: dict[str, None] = {}
    for store in stores(text):
        one, other = ours[:, store.index] & store.mask, found[:, store.index] & store.mask
        unlike = np.flatnonzero(one != other)
        result.words += len(one)
        result.equal += len(one) - len(unlike)
        if not len(unlike):
            continue
        if store.opcode.startswith("mma.") and ".f64" not in store.opcode:
            if magnitudes is None:
                magnitudes = instruction_words(path, text, count, source & ~SIGNS)
            allowed = [_matrix(store, one[i], other[i], magnitudes[i, store.index]) for i in unlike]
        else:
            allowed = [_approximate(store, int(other[i]), source[i]) for i in unlike]
        reasons.update(dict.fromkeys(reason for reason in allowed if reason))
        wrong = [int(i) for i, reason in zip(unlike, allowed) if not reason]
        result.within += len(unlike) - len(wrong)
        result.different += len(wrong)
        if wrong:
            result.differences.append(_shown(path, store, wrong, one, other, source))
    del result.differences[SHOWN:]
    if result.different:
        result.verdict = DIFFERENT
        result.reason = f"{result.different:,} of {result.words:,} words"
    elif result.within:
        result.verdict, result.reason = WITHIN, "; ".join(reasons)
    return result


def _shown(path: Path, store: Store, wrong: list[int], one: Array, other: Array, source: Array) -> str:
    first = wrong[0]
    width = int(store.mask).bit_length() // 4
    values = {name: inputs_of(name) for name in store.sources}
    given = ", ".join(
        f"{name} {int(source[(first, *place)]):#x}" for name, place in values.items() if place is not None
    )
    return (
        f"{where(path, store.line)}: {store.instruction} {store.place} differs in {len(wrong)} of {len(one)} threads; "
        f"first in thread {first}: emulator 0x{int(one[first]):0{width}x}, GPU 0x{int(other[first]):0{width}x}"
        + (f", of {given}" if given else "")
    )


def _approximate(store: Store, found: int, words: Array) -> str:
    """Why the manual allows a result of an approximation; empty where it does not."""
    kind = store.opcode.rpartition(".")[2]
    form = bounds.FORMATS.get(kind.removesuffix("x2"))
    places = [inputs_of(name) for name in store.sources]
    if form is None or any(place is None for place in places):
        return ""
    given = [
        int(words[place]) & ((1 << (2 * form.bits if kind.endswith("x2") else form.bits)) - 1)
        for place in places
    ]
    reason = ""
    for half in range(2 if kind.endswith("x2") else 1):
        low = (1 << form.bits) - 1
        operands = tuple(value >> form.bits * half & low for value in given)
        row = bounds.within(store.opcode, form, found >> form.bits * half & low, operands)
        if row is None:
            return ""
        reason = str(row)
    return reason


def _matrix(store: Store, one: Any, other: Any, magnitude: Any) -> str:
    """Why a sum of products may differ: by a part of the sum of their magnitudes."""
    part = next(value for key, value in MATRIX.items() if key in store.opcode + " ")
    if store.kind == "f32":
        lanes = [np.array([word], np.uint32).view(np.float32) for word in (one, other, magnitude)]
    else:
        lanes = [np.array([word], np.uint32).view(np.float16) for word in (one, other, magnitude)]
    ours, theirs, sizes = (item.astype(np.float64) for item in lanes)
    with np.errstate(invalid="ignore"):
        near = np.abs(ours - theirs) <= 4 * part * sizes
        same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    if np.all(near | same | ~np.isfinite(sizes)):
        return f"the order of {store.opcode}'s sum is open: {4 * part:.2g} of the sum of magnitudes"
    return ""


# -- recorded launches --------------------------------------------------------------------------------------------------


def recorded(kernel: dict[str, Any], record: Mapping[str, Any]) -> Verdict:
    """A launch of ``ptx/kernels.jsonl``: all that its buffers hold afterwards, byte by byte."""
    result = Verdict("kernels", kernel["name"], EQUAL)
    before = [collect.unpack(text, np.uint8) for text in kernel["buffers"]]
    if record["inputs"] != [collect.digest(item) for item in before]:
        return not_compared("kernels", kernel["name"], "stale", "it was made from other inputs")
    for index, mine in enumerate(recorded_buffers(kernel)):
        kept = record["output"].get(str(index))
        other = before[index] if kept is None else collect.unpack(kept, np.uint8)
        if other.size != mine.size:
            raise ValueError(f"buffer {index} has {other.size} bytes of {mine.size}")
        result.words += mine.size
        unlike = np.flatnonzero(mine != other)
        result.equal += mine.size - len(unlike)
        if not len(unlike):
            continue
        reason = _sums(kernel["ptx"], mine, other)
        result.within += len(unlike) if reason else 0
        result.different += 0 if reason else len(unlike)
        result.reason = reason or result.reason
        first = int(unlike[0])
        word = slice(first & ~3, (first & ~3) + 4)
        if not reason:
            result.differences.append(
                f"{kernel['name']}: buffer {index} ({mine.size:,} bytes) differs in {len(unlike):,}; first in byte {first}: "
                f"emulator 0x{mine[word][::-1].tobytes().hex()}, GPU 0x{other[word][::-1].tobytes().hex()}"
            )
    if result.different:
        result.verdict, result.reason = DIFFERENT, f"{result.different:,} of {result.words:,} bytes"
    elif result.within:
        result.verdict = WITHIN
    return result


def _sums(text: str, mine: Array, other: Array) -> str:
    """Why results of floating-point matrix instructions may differ: the order of their sums is open. Which word belongs to which sum
    is not known here, so that the largest magnitude stands for that of what is added."""
    found = re.search(r"\b(w?g?mma)\.\S*?\.(f16|f32)\.", text)
    if found is None or mine.size % 4:
        return ""
    kind = np.float16 if found[2] == "f16" else np.float32
    one, two = mine.view(kind).astype(np.float64), other.view(kind).astype(np.float64)
    part = 4 * next(value for key, value in MATRIX.items() if key in text.replace(";", " ;"))
    finite = np.isfinite(one)
    with np.errstate(invalid="ignore"):
        near = np.abs(one - two) <= part * np.abs(one, where=finite, out=np.zeros_like(one)).max(initial=0.0)
    if np.all(near | (one == two) | (np.isnan(one) & np.isnan(two))):
        return f"the order of the sums of {found[1]} is open: {part:.2g} of the largest"
    return ""


# -- whole kernels ------------------------------------------------------------------------------------------------------


def open_reasons(case: Any) -> list[str]:
    """What makes the results of a case depend on more than the manual says."""
    found = [reason for pattern, reason in OPEN if pattern.search(case.text)]
    return found if case.fixed_schedule else [*found, "the order in which blocks and warps run"]


def example(part: str, case: Any, record: Mapping[str, Any]) -> Verdict:
    """A case of the catalogue: every buffer, element by element where they were kept, else by digest."""
    program = case.program()
    if part == "examples" and record["inputs"] != [collect.digest(item) for item in program.buffers]:
        return not_compared(part, case.name, "stale", "its inputs were others (another version of NumPy?)")
    ours = example_buffers(case, program)
    if len(record["digests"]) != len(ours):
        raise ValueError(f"{len(record['digests'])} buffers of {len(ours)}")
    reasons = open_reasons(case)
    result = Verdict(part, case.name, EQUAL)
    kept = record.get("outputs")
    theirs: list[Array] = []
    for index, mine in enumerate(ours):
        other = None if kept is None else collect.unpack(kept[index], mine.dtype)
        if other is not None and other.size != mine.size:
            raise ValueError(f"buffer {index} has {other.size} elements of {mine.size}")
        same = record["digests"][index] == collect.digest(mine)
        if other is not None:
            same = other.tobytes() == mine.tobytes()
            theirs.append(other.reshape(mine.shape))
        result.words += mine.size
        unlike = _unlike(mine, other) if other is not None and not same else []
        count = len(unlike) if other is not None else 0 if same else mine.size
        result.equal += mine.size - count
        result.different += count
        if not same:
            result.differences.append(_element(case, index, mine, other, unlike))
    if "wrong" in record:
        result.verdict = DIFFERENT
        result.reason = f"the GPU's result is wrong by NumPy: {str(record['wrong']).strip().splitlines()[0]}"
    elif result.different and reasons and _checks(program, theirs):
        checked = "each result is as near to NumPy's as the case asks"
        result.verdict, result.reason = WITHIN, f"{' and '.join(reasons)}; {checked}"
        result.within, result.different = result.different, 0
    elif result.different:
        result.verdict, result.reason = DIFFERENT, f"{result.different:,} of {result.words:,} elements"
    return result


def _unlike(mine: Array, other: Array) -> list[int]:
    size = mine.dtype.itemsize
    one = np.frombuffer(mine.tobytes(), np.uint8).reshape(-1, size)
    two = np.frombuffer(other.tobytes(), np.uint8).reshape(-1, size)
    return [int(i) for i in np.flatnonzero((one != two).any(axis=1))]


def _checks(program: Any, theirs: list[Array]) -> bool:
    """Whether kept results pass the case's own check; what was not kept was checked on the GPU's machine (``wrong``)."""
    if not theirs:
        return True
    try:
        program.check(theirs)
    except AssertionError:
        return False
    return True


def _element(case: Any, index: int, mine: Array, other: Array | None, unlike: list[int]) -> str:
    entry = re.search(r"(?m)^.*\.entry\s+\w+", case.text)
    line = case.text[: entry.end()].count("\n") + 1 if entry else 1
    start = f"{where(case.ptx, line)}: buffer {index} ({mine.dtype}, {mine.size:,} elements)"
    if other is None:
        return f"{start} differs; only its digest was kept"
    first = unlike[0]
    one, two = mine.reshape(-1)[first], other.reshape(-1)[first]
    return (
        f"{start} differs in {len(unlike):,}; first in element {first}: emulator {one!s} ({one.tobytes()[::-1].hex()}), "
        f"GPU {two!s} ({two.tobytes()[::-1].hex()})"
    )
