"""The groups of nvprof as a page: every metric, its definition, and the PTX instructions that count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import product

from ..errors import PtxError
from ..isa.model import Form, Row
from ..isa.notation import Item
from ..isa.table import lookup, rows
from ..isa.types import SCALAR_TYPES
from .groups import CLASSES, METRICS, metrics_of, worked_on

__all__ = ["forms", "members", "render"]

_HEAD = """\
# Groups of nvprof

This page lists the metrics of `profile.groups("nvprof")` and `gpuperf profile --groups nvprof` ([profiles](profiles.md#groups)).
Names, levels and definitions are those of NVIDIA's Profiler User's Guide, section "Metrics Reference", capability 7.x. *Thread*
metrics count executions by threads whose guard holds ("non-predicated threads"), *warp* metrics executions by warps. Metrics in
*italics* are not nvprof's but defined by analogy. An instruction's groups follow from its row in the table that
`gpuperf instructions` prints: category, effect, kind of floating-point operation, type, state space.

The metrics {classes}
partition all instructions: they add up to `thread_instructions_predicated_on`.

| metric | level | counts | PTX |
|---|---|---|---|
"""


def render() -> str:
    """The page in Markdown. Same bytes for the same table."""
    listing = members()
    lines = [_HEAD.format(classes=", ".join(f"`{name}`" for name in CLASSES))]
    for metric in METRICS:
        name = f"*{metric.name}*" if metric.own else f"`{metric.name}`"
        listed = ", ".join(f"`{text}`" for text in listing.get(metric.name, ())) or "–"
        if metric.name == "inst_executed":
            listed = "all"
        lines.append(f"| {name} | {metric.level} | {metric.meaning} | {listed} |\n")
    return "".join(lines)


def members() -> dict[str, list[str]]:
    """The instructions of each metric: a name alone if all its forms count, else the name with the types that do."""
    counted: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    everything: dict[str, set[str]] = defaultdict(set)
    for row in rows():
        for form in forms(row):
            label = _label(form)
            everything[row.name].add(label)
            threads, warps = metrics_of(form)
            for metric in (*threads, *warps):
                counted[metric][row.name].add(label)
    return {
        metric: [
            name if labels == everything[name] else f"{name}.{_shown(labels)}"
            for name, labels in sorted(labelled.items())
        ]
        for metric, labelled in counted.items()
    }


def _shown(labels: set[str]) -> str:
    listed = " ".join(sorted(labels))
    return listed if len(labels) == 1 else f"{{{listed}}}"


def _label(form: Form) -> str:
    """What distinguishes forms of one name: the next word of a matrix instruction, the state space of an access, else the kind of
    type that is worked on; arithmetic by the type of its result."""
    if form.category == "matrix":
        return form.opcode.split(".")[1]
    if form.space is not None:
        return form.space
    worked = form.type if form.row.flop else worked_on(form)
    if worked is None:
        return ""
    return worked.name if worked.is_float else "pred" if worked.is_predicate else "integer"


def forms(row: Row) -> Iterator[Form]:
    """Forms of a row in all its types and state spaces, with as few other modifiers as possible."""
    slots = {
        name: values for name, values in row.modifiers.items() if name == "space" or values[0] in SCALAR_TYPES
    }
    for choice in product(*slots.values()):
        for spaced in (True, False):
            opcode = ".".join([row.name, *_words(row.pattern, dict(zip(slots, choice)), spaced)])
            try:
                yield from (form for form in lookup(opcode) if form.row is row)
            except PtxError:
                continue


def _words(pattern: tuple[Item, ...], chosen: dict[str, str], spaced: bool) -> Iterator[str]:
    for item in pattern:
        if item.group:
            # of optional modifiers only the state space matters
            if spaced and any(inner.name == "space" for inner in item.group):
                yield from _words(item.group, chosen, spaced)
        else:
            yield chosen.get(item.name) or (item.values[0] if item.values else item.name)
