"""The instruction table as a page: accepted syntax, required versions and targets, units, and whether a row can be run."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from .model import Row
from .selectors import SELECTORS
from .table import rows

__all__ = ["render"]

_TITLES = {
    "integer": "Integer arithmetic",
    "fp16": "Half precision and bfloat16",
    "fp32": "Single precision",
    "fp64": "Double precision",
    "special_function": "Approximate functions",
    "compare_select": "Comparison and selection",
    "logic": "Logic and shifts",
    "bit_convert": "Conversion",
    "move": "Moves and addresses",
    "load_store": "Loads, stores and hints about memory",
    "atomic": "Atomic operations",
    "inter_thread": "Exchange within the warp",
    "barrier": "Barriers and memory order",
    "control": "Control flow",
    "matrix": "Matrices",
    "texture": "Textures and surfaces",
    "misc": "Miscellaneous",
}

_HEAD = """\
# Instructions

Each line is the PTX manual's, with the values of its modifiers and what
single modifiers and constants need beyond the line. *PTX* and *sm* are the version and target that introduced the line; `100a` is
that target alone, `100f` is it and the higher ones of its family. *Runs* says whether kernels with it can be run; all others are
parsed, checked and counted, and stop a run where a thread reaches them, with an error that names them.

Operands have the instruction's type unless another is named (`a:u32`; `wide` is twice its width, `imm` an integer constant);
`*vec` is a `{…}` operand of that many elements, `+` allows wider registers, `%` registers only, `?hint` stands for "only with that
modifier", `[a]:tmem` for an address in that space.

The table follows the manual of PTX 9.4 and was compared with the `ptxas` of CUDA 13.0 (PTX 9.0) to 13.5 (PTX 9.5): every line, in all
its forms, assembles at its version and target, and what is wrong by one modifier, type or operand is refused by both. Where these
versions of `ptxas` depart from the manual is listed in `tests/isa/ptxas_versions.py`.
"""


def render(names: Collection[str] = ()) -> str:
    """The page in Markdown: a table for each category, of all instructions or of those named. Same bytes for the same table."""
    groups: dict[str, list[Row]] = {}
    chosen = [row for row in rows() if not names or row.name in names]
    for row in chosen:
        groups.setdefault(row.category, []).append(row)
    runs = sum(row.runs for row in chosen)
    count = len({row.name for row in chosen})
    instructions = f"{count} instruction{'s' if count > 1 else ''}"
    parts = [_HEAD, f"{instructions}, {len(chosen)} lines, {runs} of them run.\n"]
    for name, title in _TITLES.items():
        if name not in groups:
            continue
        parts.append(f"## {title}\n")
        parts.append("\n".join(_table(groups[name])) + "\n")
    return "\n".join(parts)


def _table(group: list[Row]) -> Iterator[str]:
    yield "| syntax | modifiers | does | category | unit | PTX | sm | runs |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in group:
        cells = (
            f"`{row.syntax}`",
            "<br>".join(
                [
                    *(f"`.{name}` = {_values(values)}" for name, values in row.modifiers.items()),
                    *(f"`.{slot}` = {SELECTORS[name].text}" for slot, name in row.accepts.selectors.items()),
                    *_requirements(row),
                    *_constants(row),
                ]
            ),
            " ".join(row.documentation.split()),
            row.category,
            row.unit,
            f"{row.available.since[0]}.{row.available.since[1]}",
            " ".join(row.available.only)
            or (f"{row.available.target}{row.available.variant}" if row.available.target else ""),
            "yes" if row.runs else "counts only",
        )
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _requirements(row: Row) -> Iterator[str]:
    """Additional requirements of modifiers, grouped by requirement."""
    alike: dict[tuple[str, str], list[str]] = {}
    for words, (version, target) in row.available.requires.items():
        if not row.words.issuperset(words.split()):
            continue
        needs = (
            f"PTX {version[0]}.{version[1]}" if version > row.available.since else "",
            f"sm_{target}" if target > row.available.target else "",
        )
        if any(needs):
            alike.setdefault(needs, []).append(" with ".join(f"`.{word}`" for word in words.split()))
    for needs, names in alike.items():
        yield f"{' '.join(names)}: {', '.join(filter(None, needs))}"


def _constants(row: Row) -> Iterator[str]:
    """The constants that operands accept."""
    for words, (_, text) in row.accepts.constants.items():
        name, *only = words.split()
        yield f"{name}{''.join(f' with `.{word}`' for word in only)}: {text}"


def _values(values: tuple[str, ...]) -> str:
    return " ".join(f"`.{value}`" for value in values)
