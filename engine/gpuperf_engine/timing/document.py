"""The machines as a page of documentation, made from their descriptions. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from .machine import Machine, Quantity, load_machine, machine_ids

__all__ = ["render"]

_HEAD = """# Machines

The GPUs that times can be predicted for. Every number has its source; `assumed` ones say why. A machine's revision is raised
whenever a number changes, and baselines hold it: a time predicted with another revision is `incomparable`, never a regression.
`gpuperf targets` prints this list.

## A machine of your own

On the GPU itself, [the collector](hardware.md) runs microbenchmarks (`--parts micro`, about a minute). From what it wrote,

```console
$ gpuperf calibrate build/hardware --base h100-sxm -o machines/my-h100.yaml
```

makes a machine description: what was measured has the source `measured` with GPU, driver and date, everything else keeps the number
and the source of `--base`, which must be of the same model (compute capability, SMs and limits as the driver states them). Measured
are the clock, the issue rate, what the register file gives (where the multiply-add unit is not slower), latencies by class of
instruction and by level of memory, lanes of each unit (the matrix units through `mma.sync`, on 9.0 through `wgmma`), bandwidths of
L1, L2 and DRAM, launch overhead, turnaround and rate of CTAs. Not measured are sizes and limits, and from compute capability 10.0 on
the rate of the matrix units. What was measured and no model uses stands in the file as remarks: barriers, mbarriers, copies in bulk,
warp groups and their commits, clusters, atomics, bank conflicts. No timed kernel takes part, so that predictions can be judged by
all of them.

Nothing is written where measurements contradict each other or what is possible; the message names the case and its line: times that
spread over more than 10 %, a clock that changed, caches out of order, more lanes or bandwidth than there are. No GPU has been
calibrated so far: the tests recover known machines from synthetic results, latencies and widths exactly, all else within 2 %.
"""


def render() -> str:
    """Markdown: one summary table, then all numbers of each machine with their sources."""
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
