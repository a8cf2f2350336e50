"""Renders the machine descriptions as a page in Markdown."""

from __future__ import annotations

from .machine import Machine, Quantity, load_machine, machine_ids

__all__ = ["render"]

_HEAD = """# Machines

The GPUs that times can be predicted for. Every number has its source; `assumed` ones say why. A machine's revision is raised
whenever a number changes, and baselines hold it: a time predicted with another revision is `incomparable`, never a regression.
"""


def render() -> str:
    """The page: a summary table, then all numbers of each machine with their sources."""
    machines = [load_machine(name) for name in machine_ids()]
    lines = [
        _HEAD,
        "| id | name | compute capability | SMs | clock, MHz | revision | numbers assumed |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for machine in machines:
        assumed = sum(quantity.source == "assumed" for quantity in machine.quantities.values())
        major, minor = machine.compute_capability
        lines.append(
            f"| [`{machine.id}`](#{machine.id}) | {machine.name} | {major}.{minor} | {machine.sm_count} | {machine.clock_mhz:g} "
            f"| {machine.revision} | {assumed} of {len(machine.quantities)} |"
        )
    for machine in machines:
        lines += _section(machine)
    return "\n".join(lines) + "\n"


def _section(machine: Machine) -> list[str]:
    lines = [
        "",
        f"## {machine.id}",
        "",
        f"{machine.name}.",
        "",
        "| number | value | unit | source |",
        "|---|---:|---|---|",
    ]
    return lines + [_row(name, quantity) for name, quantity in machine.quantities.items()]


def _row(name: str, quantity: Quantity) -> str:
    source = f"{quantity.source}: {quantity.note}" if quantity.note else quantity.source
    return f"| `{name}` | {quantity.value:,.10g} | {_cell(quantity.unit)} | {_cell(source)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
