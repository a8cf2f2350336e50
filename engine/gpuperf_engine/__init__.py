"""Runs PTX kernels on the CPU and counts exactly what they do. No GPU, no network, no pytest.

>>> import gpuperf_engine as ge
>>> module = ge.parse(text, path="saxpy.ptx")
>>> device = ge.Device()
>>> profile = device.launch(module["saxpy"], grid=4096, block=256, args=[...])

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._gc import uncollected
from .errors import (
    ArgumentError,
    BudgetExceeded,
    Deadlock,
    EngineError,
    LaunchError,
    MachineError,
    MemoryFault,
    NotObserved,
    PtxError,
    PtxSyntaxError,
    RaceError,
    TrapError,
    UnknownName,
    Unsupported,
)

if TYPE_CHECKING:
    from .api import (
        PATTERNS,
        Device,
        FinePatterns,
        FlowEdge,
        FlowGraph,
        Kernel,
        Module,
        Pattern,
        Step,
        TensorMap,
        Thresholds,
        Vertex,
        add_profiles,
        best_target,
        csv_rows,
        csv_text,
        estimate,
        explain,
        find_patterns,
        flow_graph,
        machine_code,
        machine_code_tools,
        machine_counts,
        machine_ids,
        machine_instructions,
        parse,
        predictor,
        saving_us,
    )
    from .results import (
        Branches,
        Estimate,
        Explanation,
        Finding,
        KernelAttributes,
        Memory,
        Profile,
        ProvenValues,
        Race,
        RaceAccess,
        Resources,
        Traffic,
        ValueRecord,
    )
    from .sass.code import MachineCode, MachineCounts, MachineInstruction

__version__ = "0.1.0"

__all__ = [
    "PATTERNS",
    "ArgumentError",
    "Branches",
    "BudgetExceeded",
    "Deadlock",
    "Device",
    "EngineError",
    "Estimate",
    "Explanation",
    "Finding",
    "FinePatterns",
    "FlowEdge",
    "FlowGraph",
    "Kernel",
    "KernelAttributes",
    "LaunchError",
    "MachineCode",
    "MachineCounts",
    "MachineError",
    "MachineInstruction",
    "Memory",
    "MemoryFault",
    "Module",
    "NotObserved",
    "Pattern",
    "Profile",
    "ProvenValues",
    "PtxError",
    "PtxSyntaxError",
    "Race",
    "RaceAccess",
    "RaceError",
    "Resources",
    "Step",
    "TensorMap",
    "Thresholds",
    "Traffic",
    "TrapError",
    "UnknownName",
    "Unsupported",
    "ValueRecord",
    "Vertex",
    "__version__",
    "add_profiles",
    "best_target",
    "csv_rows",
    "csv_text",
    "estimate",
    "explain",
    "find_patterns",
    "flow_graph",
    "machine_code",
    "machine_code_tools",
    "machine_counts",
    "machine_ids",
    "machine_instructions",
    "parse",
    "predictor",
    "saving_us",
]

_RESULTS = (
    "Branches",
    "Estimate",
    "Explanation",
    "Finding",
    "KernelAttributes",
    "Traffic",
    "Memory",
    "Profile",
    "ProvenValues",
    "Race",
    "RaceAccess",
    "Resources",
    "ValueRecord",
)
_SASS = ("MachineCode", "MachineCounts", "MachineInstruction")


def __getattr__(name: str) -> Any:
    """Load the engine on first use: importing the package alone costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = _load(name)
    globals()[name] = value
    return value


@uncollected
def _load(name: str) -> Any:
    if name in _SASS:
        from .sass import code

        return getattr(code, name)
    from . import api, results

    return getattr(results if name in _RESULTS else api, name)
