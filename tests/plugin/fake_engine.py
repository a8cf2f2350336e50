"""An engine for tests of the plugin: it really parses, and "runs" a kernel by counting every instruction once per thread.

Numbers are thus plain products that a test can work out by hand; no kernel computes anything.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from gpuperf_engine.errors import *  # noqa: F403
from gpuperf_engine.errors import MachineError, Unsupported
from gpuperf_engine.profile.total import add_profiles
from gpuperf_engine.ptx.parse import parse
from gpuperf_engine.results import (
    Branches,
    Estimate,
    Explanation,
    Finding,
    LineProfile,
    Memory,
    Profile,
    Resources,
)

__all__ = [
    "PATTERNS",
    "Device",
    "add_profiles",
    "best_target",
    "estimate",
    "explain",
    "find_patterns",
    "machine_code",
    "machine_code_tools",
    "machine_counts",
    "machine_ids",
    "parse",
    "predictor",
]

REVISION = {"a100-sxm-80gb": 1, "h100-sxm": 3, "v100-sxm2": 1}
RUNS = {
    "a100-sxm-80gb": ["sm_70", "sm_80"],
    "h100-sxm": ["sm_70", "sm_80", "sm_90", "sm_90a"],
    "v100-sxm2": ["sm_70"],
}
NANOSECONDS = {"a100-sxm-80gb": 2.0, "h100-sxm": 1.0, "v100-sxm2": 4.0}


def machine_ids(search=()):
    return tuple(REVISION)


def best_target(targets, machine, search=()):
    return max((target for target in targets if target in RUNS[machine]), default=None)


def explain(profile, lines=10):
    return Explanation((), (), profile.by_line[:lines])


@dataclass(eq=False)
class Array:
    host: np.ndarray
    address: int
    name: str = ""

    def numpy(self):
        return self.host.copy()


class Device:
    def __init__(self, observe=("memory",), backend="llvm", printer=None, races="off"):
        self.observe = set(observe)
        self.next = 0x1000
        self.kernels = []
        self.events = []
        self.arrays = []

    def array(self, values, name=None):
        host = np.ascontiguousarray(values).copy()
        made = Array(host, self.next, name or "")
        self.next += host.nbytes + 256
        return made

    def zeros(self, shape, dtype=np.float32, name=None):
        return self.array(np.zeros(shape, dtype), name)

    def empty(self, shape, dtype=np.float32, name=None):
        return self.array(np.zeros(shape, dtype), name)

    def memset(self, array, value):
        array.host[...] = value

    def copy(self, target, source):
        target.host[...] = getattr(source, "host", source)

    @property
    def program(self):
        return self

    def program_without(self, events):
        return self

    def share_variables(self, kernels):
        pass

    def launch(
        self,
        kernel,
        grid,
        block,
        args=(),
        *,
        shared_bytes=0,
        cluster=None,
        cooperative=False,
        demand="values",
        max_instructions=None,
        keep=True,
    ):
        threads = int(np.prod(grid)) * int(np.prod(block))
        warps = -(-threads // 32)
        opcodes, lines, categories = {}, [], {}
        for instruction in kernel.instructions:
            opcodes[instruction.opcode] = opcodes.get(instruction.opcode, 0) + threads
            categories[instruction.form.category] = categories.get(instruction.form.category, 0) + threads
            lines.append(LineProfile(kernel.module.path, instruction.span.line, 1, warps, threads))
        self.kernels.append((kernel.name, [o for o in opcodes if o.startswith("st.")], "trap" in opcodes))
        count = len(kernel.instructions)
        self.events.append(SimpleNamespace(kind="launch", number=len(self.events)))
        return Profile(
            kernel=kernel.name, path=kernel.module.path, target=kernel.module.target, version=kernel.module.version,
            address_size=64, grid=(threads, 1, 1), block=(1, 1, 1), launches=1, demand=demand, share_executed=1.0,
            thread_instructions=count * threads, warp_instructions=count * warps,
            thread_instructions_predicated_on=count * threads, opcodes=opcodes, warp_opcodes={}, by_category=categories,
            units={}, flops={"sp": threads * sum(o.startswith("fma") for o in opcodes)}, nvprof={},
            branches=Branches(4 * warps, warps), resources=Resources(8, shared_bytes, 0), blocks=(), branch_sites=(),
            by_line=tuple(lines), by_source_line=(), static_instructions=count,
            observed_memory=Memory(global_load_sectors=sum(n for o, n in opcodes.items() if o.startswith("ld.") and ".global" in o)),
            notes=("k.ptx:8:1: ld.global.f32 reads uninitialised memory",) if "brkpt" in opcodes else (),
        )  # fmt: skip


def estimate(profile, machine, model="auto", **options):
    """The simulations, of which ``trap`` is no part, say half of the other model's, and three quarters without an assembler."""
    if profile.opcodes.get("membar.sys"):
        raise Unsupported("membar.sys has no time on this machine")
    if machine == "v100-sxm2" and profile.target not in ("sm_50", "sm_60", "sm_70"):
        raise MachineError(f"PTX for {profile.target} cannot run on v100-sxm2")
    time = profile.warp_instructions * NANOSECONDS[machine] / 1000.0
    named = "kleimenov-popova"
    for name, needed in (("simulation-expanded", "FAKE_EXPANDED"), ("simulation", "FAKE_PTXAS")):
        if model in ("auto", name) and needed in os.environ and "trap" not in profile.opcodes:
            named = name
    time *= {"simulation": 0.5, "simulation-expanded": 0.75}.get(named, 1.0)
    return Estimate(
        machine,
        REVISION[machine],
        named,
        time,
        0.0,
        time,
        "issue",
        {"issue": time, "dram": time / 2},
        0.75,
        2,
        "registers",
        1.5,
        assembler=f"ptxas {os.environ['FAKE_PTXAS']}" if named == "simulation" else "",
        model_revision=int(os.environ.get("FAKE_SIMULATION", "1")) if named.startswith("simulation") else 0,
    )


def machine_code_tools():
    if "FAKE_PTXAS" not in os.environ:
        raise MachineError("there is no ptxas")
    return f"ptxas {os.environ['FAKE_PTXAS']}", "nvdisasm 13.0"


def machine_counts(profile, machine, search=()):
    """An assembler that drops ``mov`` and ``ld.global.ca``, and spills at ``pmevent``; half of a kernel with ``vote`` is open."""
    assembler, disassembler = machine_code_tools()
    if "nanosleep.u32" in profile.opcodes:
        raise MachineError("ptxas 13.0 refuses 'scale' for sm_90")
    kept = {name: n for name, n in profile.opcodes.items() if not name.startswith(("mov", "ld.global.ca"))}
    spills = 2 * (profile.warp_instructions * kept.get("pmevent", 0) // profile.thread_instructions)
    threads = sum(kept.values())
    warps = profile.warp_instructions * threads // profile.thread_instructions + spills
    residue = 0.5 if any(name.startswith("vote") for name in kept) else 0.0
    from gpuperf_engine import MachineCounts  # with it come NumPy and all that reads machine code

    return MachineCounts(
        profile.kernel, machine, RUNS[machine][-1], assembler, disassembler, code=repr(kept), registers=16, shared_bytes=0,
        stack_bytes=8 if spills else 0, code_bytes=16 * len(kept), warp_instructions=warps, thread_instructions=threads,
        least=warps, greatest=warps, residue=residue, ways="flow", spill_bytes=4 if spills else 0, spill_loads=spills, spill_stores=0,
        shared_load_requests=0, shared_load_wavefronts=None,
        shared_wavefronts=None, global_load_requests=0, global_load_wavefronts=None,
        global_load_sectors=sum(n for o, n in kept.items() if o.startswith("ld.") and ".global" in o), global_store_sectors=0,
        global_atomic_sectors=0, by_opcode={"FFMA": warps}, by_pipe={"fma": warps}, notes=("open by a half",) if residue else (),
    )  # fmt: skip


def machine_code(profile, machine, search=(), *, running=True):
    """Instructions as those counts have them: a load at line 7 that half of the lanes take, and code of the assembler's own."""
    warps = machine_counts(profile, machine).warp_instructions
    made = [
        ("@!P0 LDG.E R2, [R2.64]", 8, warps, 16 * warps, True, 2, (0, 3)),
        ("<b>NOP</b>", 0, 1, 32, False, 1, ()),
    ]
    return SimpleNamespace(
        instructions=tuple(
            SimpleNamespace(
                address=16 * index, text=text, ptx_line=line, warps=warps, threads=threads, exact=exact, stall=stall, waits=waits
            )
            for index, (text, line, warps, threads, exact, stall, waits) in enumerate(made)
        )
    )  # fmt: skip


PATTERNS = ()


def predictor(machine, search=(), model="auto"):
    return SimpleNamespace(estimate=lambda profile, why=False: estimate(profile, machine, model=model))


def flow_graph(program):
    from gpuperf_engine import FlowGraph

    return FlowGraph((), ())


def find_patterns(device, patterns=PATTERNS):
    """Its own finding, and those of the patterns, which get the kernels for steps."""
    return (
        *_stores(device),
        *(finding for pattern in patterns for _, finding in pattern.find(device.kernels)),
    )


def _stores(device):
    return tuple(
        Finding(
            "redundant-values",
            "out",
            f"{store} of {kernel}",
            "writes what was there",
            kernel=kernel,
            line=3,
            evidence={"share": 0.5},
        )
        for kernel, stores, _ in device.kernels
        for store in stores
        if store.startswith("st.volatile")
    )


__all__ += [name for name in dir() if name.endswith("Error")]
