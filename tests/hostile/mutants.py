"""Real modules with random changes, and launches of them with real arguments. One seed is one mutant, the same everywhere.

The modules are those of the examples, with the launches of their catalogue, and those of the tests, with launches made to fit
their parameters. Most changes leave PTX that runs; a few only leave text.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gpuperf_engine.errors import PtxError
from gpuperf_engine.isa.table import lookup, rows
from tests.cuda import compiled
from tests.hostile.sandbox import ROOT, Job

__all__ = ["Mutant", "mutant"]

#: of more bytes parsing alone takes long
LARGEST = 300_000
FOLDERS = ("examples", "tests/cuda/kernels", "tests/files", "tests/ptx/data", "tests/symbolic/kernels")
#: warp instructions of one warp, looked at when its time slice ends; every launch of the catalogue ends within it
BUDGET = 3_000
#: one on a line of its own: space, guard, opcode, operands, the rest
STATEMENT = re.compile(r"(\s*)(?:@(!?)([%\w$]+)\s+)?([a-z][\w.:]*)(\s+[^;]*|);(.*)")
REGISTER = re.compile(r"((%[a-z]+)\d+)\b")
NUMBER = re.compile(r"(?<=[ +,\[])-?(?:0[xX][0-9a-fA-F]+|\d+)\b(?![.:])")
SPECIAL = re.compile(r"%(?:n?tid|n?ctaid|laneid|warpid)(?:\.[xyz])?\b")
SPECIALS = (
    "%tid.x", "%tid.y", "%tid.z", "%ntid.x", "%ntid.y", "%ctaid.x", "%ctaid.y", "%nctaid.x", "%laneid", "%warpid", "%lanemask_lt",
)  # fmt: skip
EXTREMES = (
    0, 1, -1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 33, 63, 64, 127, 255, 256, 1023, 4096, 65535, 2**20, 2**31 - 1, 2**31, 2**32 - 1,
    -(2**31), 2**32 - 16, 2**63, -5,
)  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """``changes`` says what was done to the module and its launch; ``job`` is to be run on both backends."""

    seed: int
    path: str
    changes: tuple[str, ...]
    job: Job


@dataclass(frozen=True)
class Source:
    """A module, and the launches of it that are known."""

    path: str
    text: str
    entries: tuple[str, ...]
    launches: tuple[Any, ...] = ()


@cache
def sources() -> tuple[Source, ...]:
    """All modules that are changed, in order of their paths; those with known launches come once more for each."""
    examples = str(ROOT / "examples")
    if examples not in sys.path:
        sys.path.append(examples)
    import cases

    known: dict[Path, list[Any]] = {}
    for case in cases.SMALL:
        known.setdefault(case.ptx, []).append(case)
    found = []
    for folder in FOLDERS:
        texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / folder).rglob("*.ptx")}
        texts |= {
            ROOT / f"tests/{unit}.ptx": compiled.ptx(unit)
            for unit in compiled.UNITS
            if f"tests/{unit}".startswith(f"{folder}/")
        }
        for path, text in sorted(texts.items()):
            if len(text) <= LARGEST:
                entries = tuple(re.findall(r"\.entry\s+([\w$]+)", text))
                made = Source(str(path.relative_to(ROOT)), text, entries, tuple(known.get(path, ())))
                found += [made] * max(1, len(made.launches))
    return tuple(found)


def mutant(seed: int) -> Mutant:
    """The mutant of a seed."""
    draw = random.Random(seed)
    source = draw.choice(sources())
    job = _launch(source, draw)
    changes: list[str] = []
    lines = source.text.split("\n")
    wanted = draw.choice((1, 1, 1, 2, 2, 3))
    while len(changes) < wanted:
        inside = _body(lines, job.entry) if draw.random() < 0.9 else range(len(lines))
        change = _rough if draw.random() < 0.04 else draw.choice(GENTLE)
        places = [place for place in inside if STATEMENT.fullmatch(lines[place])]
        place = draw.choice(places or [draw.randrange(len(lines))])
        before = list(lines)
        change(lines, place, draw)
        if lines != before:
            changes.append(f"{change.__name__.strip('_')} at line {place + 1}")
    job = replace(job, text="\n".join(lines))
    if draw.random() < 0.25:
        job, what = _other_launch(job, draw)
        changes.append(what)
    return Mutant(seed, source.path, tuple(changes), job)


def _body(lines: list[str], entry: str | None) -> range:
    """The lines of an entry, or all of them if it is not found."""
    first = next((n for n, line in enumerate(lines) if re.search(rf"\.entry\s+{entry}\b", line)), None)
    if first is None:
        return range(len(lines))
    last = next((n for n in range(first, len(lines)) if lines[n].startswith("}")), len(lines))
    return range(first, last)


# -- changes to the text ---------------------------------------------------------------------------------------------------


def _delete(lines: list[str], place: int, draw: random.Random) -> None:
    del lines[place]


def _repeat(lines: list[str], place: int, draw: random.Random) -> None:
    lines.insert(max(0, place + draw.randint(-6, 6)), lines[place])


def _exchange_lines(lines: list[str], place: int, draw: random.Random) -> None:
    other = min(max(0, place + draw.randint(-8, 8)), len(lines) - 1)
    if STATEMENT.fullmatch(lines[other]):
        lines[place], lines[other] = lines[other], lines[place]


def _other_register(lines: list[str], place: int, draw: random.Random) -> None:
    registers = REGISTER.findall(lines[place])
    if registers:
        old, prefix = draw.choice(registers)
        near = "\n".join(lines[max(0, place - 60) : place + 60])
        alike = sorted({name for name, its in REGISTER.findall(near) if its == prefix})
        spots = [found for found in re.finditer(rf"{re.escape(old)}\b", lines[place])]
        spot = draw.choice(spots)
        lines[place] = lines[place][: spot.start()] + draw.choice(alike) + lines[place][spot.end() :]


def _other_number(lines: list[str], place: int, draw: random.Random) -> None:
    spots = list(NUMBER.finditer(lines[place]))
    if spots:
        spot = draw.choice(spots)
        value = str(draw.choice(EXTREMES))
        lines[place] = lines[place][: spot.start()] + value + lines[place][spot.end() :]


def _number_for_register(lines: list[str], place: int, draw: random.Random) -> None:
    spots = list(REGISTER.finditer(lines[place]))[1:]
    if spots:
        spot = draw.choice(spots)
        value = str(draw.choice(EXTREMES))
        lines[place] = lines[place][: spot.start()] + value + lines[place][spot.end() :]


@cache
def _values(opcode: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The modifiers of an opcode that may be another, with what may stand in their places."""
    try:
        found = lookup(opcode)
    except PtxError:
        return ()
    slots: dict[str, set[str]] = {}
    for form in found:
        for name, value in form.modifiers.items():
            others = form.row.modifiers.get(name, ())
            if isinstance(value, str) and value in others:
                slots.setdefault(value, set()).update(others)
    return tuple((value, tuple(sorted(others - {value}))) for value, others in sorted(slots.items()))


@cache
def _absent(opcode: str) -> tuple[str, ...]:
    """Opcodes with one more modifier that a row of this name takes."""
    name = opcode.split(".")[0]
    words = sorted(
        {word for row in rows() if row.name == name for word in row.words} - set(opcode.split("."))
    )
    made = []
    for word in words[:80]:
        parts = opcode.split(".")
        for at in range(1, len(parts) + 1):
            longer = ".".join([*parts[:at], word, *parts[at:]])
            try:
                lookup(longer)
            except PtxError:
                continue
            made.append(longer)
    return tuple(made)


def _other_modifier(lines: list[str], place: int, draw: random.Random) -> None:
    found = STATEMENT.fullmatch(lines[place])
    slots = _values(found[4]) if found else ()
    slots = tuple(slot for slot in slots if slot[1])
    if found and slots:
        old, others = draw.choice(slots)
        opcode = (found[4] + ".").replace(f".{old}.", f".{draw.choice(others)}.", 1)[:-1]
        lines[place] = lines[place][: found.start(4)] + opcode + lines[place][found.end(4) :]


def _more_or_less(lines: list[str], place: int, draw: random.Random) -> None:
    found = STATEMENT.fullmatch(lines[place])
    if not found:
        return
    parts = found[4].split(".")
    longer = _absent(found[4]) if draw.random() < 0.7 else ()
    if longer:
        opcode = draw.choice(longer)
    elif len(parts) > 1:
        del parts[draw.randrange(1, len(parts))]
        opcode = ".".join(parts)
    else:
        return
    lines[place] = lines[place][: found.start(4)] + opcode + lines[place][found.end(4) :]


def _other_opcode(lines: list[str], place: int, draw: random.Random) -> None:
    """The opcode of an instruction that has operands of the same kinds."""
    found = STATEMENT.fullmatch(lines[place])
    if not found:
        return
    wanted = _kinds(found[5])
    others = {
        other[4]
        for line in lines[max(0, place - 400) : place + 400]
        if (other := STATEMENT.fullmatch(line)) and _kinds(other[5]) == wanted and other[4] != found[4]
    }
    if others:
        opcode = draw.choice(sorted(others))
        lines[place] = lines[place][: found.start(4)] + opcode + lines[place][found.end(4) :]


def _kinds(operands: str) -> tuple[str, ...]:
    """What each operand is: the letters of a register, an address, a number."""
    plain = re.sub(r"(%[a-z]+)\d+", r"\1", operands.strip())
    return tuple(NUMBER.sub("0", " " + part.strip()) for part in plain.split(","))


def _exchange_operands(lines: list[str], place: int, draw: random.Random) -> None:
    found = STATEMENT.fullmatch(lines[place])
    if found:
        parts = found[5].split(",")
        if len(parts) > 1:
            one, other = draw.sample(range(len(parts)), 2)
            parts[one], parts[other] = " " + parts[other].strip(), " " + parts[one].strip()
            lines[place] = lines[place][: found.start(5)] + ",".join(parts) + lines[place][found.end(5) :]


def _guard(lines: list[str], place: int, draw: random.Random) -> None:
    """A guard more, less, or the other way round."""
    found = STATEMENT.fullmatch(lines[place])
    if not found:
        return
    rest = lines[place][found.start(4) :]
    if found[3]:
        guard = draw.choice(("", f"@{found[3]} " if found[2] else f"@!{found[3]} "))
    else:
        near = "\n".join(lines[max(0, place - 40) : place + 40])
        predicates = sorted(set(re.findall(r"%p\d+\b", near)))
        if not predicates:
            return
        guard = f"@{draw.choice(('', '!'))}{draw.choice(predicates)} "
    lines[place] = f"{found[1]}{guard}{rest}"


def _other_special(lines: list[str], place: int, draw: random.Random) -> None:
    lines[place] = SPECIAL.sub(lambda _: draw.choice(SPECIALS), lines[place], count=1)


def _other_label(lines: list[str], place: int, draw: random.Random) -> None:
    labels = [line.strip()[:-1] for line in lines if re.fullmatch(r"\s*[\w$]+:\s*", line)]
    found = STATEMENT.fullmatch(lines[place])
    if found and labels:
        if found[4].startswith("bra"):
            lines[place] = f"{lines[place][: found.start(5)]} {draw.choice(labels)};"
        else:
            near = "\n".join(lines[max(0, place - 40) : place + 40])
            predicates = sorted(set(re.findall(r"%p\d+\b", near)))
            guard = f"@{draw.choice(predicates)} " if predicates else ""
            lines.insert(place, f"{guard}bra {draw.choice(labels)};")


def _other_address(lines: list[str], place: int, draw: random.Random) -> None:
    spots = list(re.finditer(r"\[([%\w$]+)(?:\+-?\d+)?\]", lines[place]))
    if spots:
        spot = draw.choice(spots)
        offset = draw.choice((1, 2, 4, 8, 16, 32, 64, 128, 256, -4, -8, -16, 1020, 4096, 65536))
        lines[place] = f"{lines[place][: spot.start()]}[{spot[1]}+{offset}]{lines[place][spot.end() :]}"


EXTRA = (
    "bar.sync 0;", "bar.warp.sync -1;", "bar.warp.sync 255;", "bar.arrive 1, 64;", "bar.sync 1, 64;", "exit;", "trap;", "ret;",
    "membar.gl;", "activemask.b32 {r};", "vote.sync.ballot.b32 {r}, {p}, -1;", "shfl.sync.bfly.b32 {r}, {r}, 1, 31, -1;",
    "shfl.sync.idx.b32 {r}, {r}, {r}, 31, -1;", "match.any.sync.b32 {r}, {r}, -1;", "redux.sync.add.u32 {r}, {r}, -1;",
    "atom.shared.add.u32 {r}, [{r}], 1;", "ld.shared.u32 {r}, [{r}];", "st.shared.u32 [{r}], {r};",
    "ld.volatile.shared.u32 {r}, [{r}];", "ld.global.u32 {r}, [{l}];", "st.global.u32 [{l}], {r};", "ld.u32 {r}, [{l}];",
    "st.u8 [{l}], {r};", "ld.volatile.global.u32 {r}, [{l}];", "atom.global.add.u32 {r}, [{l}], {r};",
    "red.global.max.u32 [{l}], {r};", "atom.cas.b32 {r}, [{l}], {r}, {r};", "setp.lt.and.s32 {p}|{p}, {r}, {r}, {p};",
    "selp.b32 {r}, {r}, {r}, {p};", "mov.b64 {{{r}, {r}}}, {l};", "mov.u32 {r}, %laneid;", "div.u32 {r}, {r}, {r};",
    "rem.s32 {r}, {r}, {r};", "bfe.s32 {r}, {r}, {r}, {r};", "prmt.b32 {r}, {r}, {r}, {r};", "cvt.rn.f32.s32 {f}, {r};",
    "cvt.rzi.s32.f32 {r}, {f};", "fma.rn.f32 {f}, {f}, {f}, {f};", "ex2.approx.f32 {f}, {f};", "div.rn.f32 {f}, {f}, {f};",
    "sqrt.rn.f32 {f}, {f};", "nanosleep.u32 20;", "elect.sync {r}|{p}, -1;",
)  # fmt: skip
LETTERS = {"r": "%r", "l": "%rd", "p": "%p", "f": "%f"}


def _insert(lines: list[str], place: int, draw: random.Random) -> None:
    """An instruction of a list, with registers from near by, perhaps guarded."""
    near = "\n".join(lines[max(0, place - 40) : place + 40])
    known = {letter: sorted(set(re.findall(rf"{stem}\d+\b", near))) for letter, stem in LETTERS.items()}
    text = draw.choice(EXTRA)
    try:
        made = re.sub(
            r"(?<!\{)\{([rlpf])\}(?!\})|\{\{|\}\}",
            lambda found: draw.choice(known[found[1]]) if found[1] else found[0][0],
            text.replace("{{{", "{{ {").replace("}}}", "} }}"),
        )
    except IndexError:
        return
    if known["p"] and draw.random() < 0.4:
        made = f"@{draw.choice(('', '!'))}{draw.choice(known['p'])} {made}"
    lines.insert(place, made)


def _exchange_tokens(lines: list[str], place: int, draw: random.Random) -> None:
    """A word of another line in the place of one of this."""
    spots = list(re.finditer(r"[%\w.$]+", lines[place]))
    others = re.findall(r"[%\w.$]+", draw.choice(lines[max(0, place - 20) : place + 20]))
    if spots and others:
        spot = draw.choice(spots)
        lines[place] = lines[place][: spot.start()] + draw.choice(others) + lines[place][spot.end() :]


def _rough(lines: list[str], place: int, draw: random.Random) -> None:
    """Changes that mostly leave no PTX."""
    line, kind = lines[place], draw.randrange(4)
    at = draw.randrange(max(len(line), 1))
    if kind == 0:
        lines[place] = line[:at] + chr(draw.randrange(32, 127)) + line[at + 1 :]
    elif kind == 1:
        lines[place] = line[:at] + line[at + 1 :]
    elif kind == 2:
        del lines[max(place, 3) :]
    else:
        lines[place] = re.sub(r"\d+", lambda _: str(draw.choice((0, 1, 33, 2**32, 2**63))), line)


GENTLE: tuple[Callable[[list[str], int, random.Random], None], ...] = (
    _delete, _repeat, _exchange_lines, _other_register, _other_register, _other_number, _other_number, _number_for_register,
    _other_modifier, _other_modifier, _other_modifier, _more_or_less, _other_opcode, _other_opcode, _exchange_operands, _guard, _guard,
    _other_special, _other_label, _other_address, _insert, _insert, _exchange_tokens,
)  # fmt: skip


# -- launches --------------------------------------------------------------------------------------------------------------


def _launch(source: Source, draw: random.Random) -> Job:
    """A launch of the catalogue, or one made to fit the parameters."""
    options = {"max_instructions": BUDGET}
    if source.launches and draw.random() < 0.9:
        known = draw.choice(draw.choice(source.launches).program().launches)
        # few blocks: what one does is what the others do
        sizes = known.grid if isinstance(known.grid, tuple) else (known.grid,)
        most = 8 if ".cluster" in source.text else draw.choice((1, 1, 2))
        return Job(
            source.text,
            known.entry,
            grid=tuple(min(size, most) for size in sizes),
            block=known.block,
            args=known.args,
            options={**options, "shared_bytes": known.shared_bytes},
            path="m.ptx",
        )
    entry = draw.choice(source.entries) if source.entries else "k"
    required = re.search(r"\.reqntid\s+(\d+)", source.text)
    blocks = [int(required.group(1))] * 9 if required else []
    return Job(
        source.text,
        entry,
        grid=draw.choice([1, 1, 2, (2, 2)]),
        block=draw.choice([1, 32, 33, 64, 64, 96, 128, (16, 8), (8, 4, 2), *blocks]),
        args=_arguments(source.text, entry, draw),
        options={**options, "shared_bytes": draw.choice([0, 1024, 16384])},
        path="m.ptx",
    )


def _arguments(text: str, entry: str, draw: random.Random) -> list[object]:
    """Something for each parameter that the text declares."""
    found = re.search(rf"\.entry\s+{re.escape(entry)}\s*\((.*?)\)\s*[.{{]", text, re.DOTALL)
    given: list[object] = []
    declared = found.group(1) if found else ""
    kinds = re.findall(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)[^,\[]*(?:\[(\d+)\])?", declared)
    for kind, size in kinds:
        if kind == "b8":
            given.append(bytes(draw.choice((0, 1, 4)) for _ in range(int(size or 1))))
        elif kind in ("u64", "b64"):
            given.append(_array(draw))
        elif kind.startswith("f"):
            given.append(draw.choice([0.0, 1.0, -2.0, 0.5]))
        else:
            given.append(draw.choice([0, 1, 8, 33, 64, 100]))
    return given


def _array(draw: random.Random) -> object:
    numbers = np.random.default_rng(draw.randrange(1 << 30))
    return draw.choice(
        (
            np.arange(4096, dtype=np.uint32),
            numbers.standard_normal(4096).astype(np.float32),
            numbers.integers(0, 64, 4096).astype(np.uint32),
            numbers.integers(0, 256, 8192).astype(np.uint8),
            numbers.standard_normal(4096).astype(np.float16),
            np.zeros(4096, np.float32),
        )
    )


def _other_launch(job: Job, draw: random.Random) -> tuple[Job, str]:
    """The launch with another shape or another argument."""
    kind = draw.randrange(4)
    if kind == 0:
        return replace(job, block=draw.choice([1, 16, 31, 32, 48, 128, 160, (4, 4, 4)])), "other block"
    if kind == 1:
        return replace(job, grid=draw.choice([1, 2, 3, (2, 2), (1, 2, 2)])), "other grid"
    if kind == 2:
        shared = draw.choice([0, 16, 512, 49152])
        return replace(job, options={**job.options, "shared_bytes": shared}), "other shared memory"
    args = list(job.args)
    if args:
        place = draw.randrange(len(args))
        old = args[place]
        if isinstance(old, np.ndarray):
            short = old.reshape(-1)[: draw.randrange(1, old.size + 1)].copy()
            args[place] = draw.choice((None, short, np.zeros_like(old)))
        elif isinstance(old, np.generic) and old.dtype.kind in "iu":
            limits = np.iinfo(old.dtype)
            args[place] = old.dtype.type(draw.choice((0, 1, 5, limits.max, limits.min, 100)))
        elif isinstance(old, int):
            args[place] = draw.choice((0, 1, 5, 2**31 - 1, 1000))
    return replace(job, args=args), "another argument"
