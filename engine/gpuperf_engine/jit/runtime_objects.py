"""The objects of runtime functions that compiled kernels call: the functions and imports of each, and its IR."""

from __future__ import annotations

from pathlib import Path

from ..isa import mbarriers, tensor_memory
from ..isa.rules import Noted
from ..isa.tensor_maps import Problem
from ..memory import tensor_maps
from ..simt import atomic_targets, stack, stack_entries
from . import llvm
from .codegen.combine import COMBINE_PREFIX, combine_function
from .codegen.images import IMAGE_IMPORTS, IMAGE_PREFIX, image_function
from .codegen.shared_functions import SHARED_PREFIX, shared_function
from .ir import abi, access_records, codes, copy_records, race_records, sm_records, tensor_records
from .ir.vectors import vector_function
from .runtime import compile_python
from .runtime.access.functions import access_functions, access_group, access_names, is_access
from .runtime.earliest import earliest_words
from .runtime.functions import signatures
from .runtime.matrix_functions import PREFIX, matrix_function
from .runtime.races.batches import batch_words
from .runtime.races.claims import claims_words
from .runtime.races.entries import INSTALL, entry_functions
from .runtime.races.pieces import pieces_words
from .runtime.races.renewed import renewed_words
from .runtime.tensor.products import TENSOR_PREFIX, tensor_function
from .runtime.values.function import IMPORTS as VALUES_IMPORTS
from .runtime.values.function import PREFIX as VALUES_PREFIX
from .runtime.values.function import RANGE_PREFIX, values_function
from .runtime.vector_intrinsics import race_words, vector_words
from .runtime.warpgroup_function import PREFIX as WARPGROUP_PREFIX
from .runtime.warpgroup_function import warpgroup_function

__all__ = [
    "ENTRIES", "FILES", "INSTALL", "PARTICULAR", "SCRIPTS", "SHARED_PREFIX", "exports", "imports", "is_unoptimised_first", "level",
    "object_of", "object_text",
]  # fmt: skip

_SCHEDULE = (
    "begin", "visit", "proceed", "run", "expire", "warpgroup_complete", "unsettled", "any_warp", "breach",
)  # fmt: skip
_MBARRIER = (
    "mbarrier_lanes", "mbarrier_multicast", "mbarrier_wait", "others_can_run", "bulk_lanes", "fill_lanes",
)  # fmt: skip
_MEMORY = (
    "cluster_cta", "reach", "reach_one", "load_lanes", "store_lanes", "mark_lanes", "seen_lanes", "copy_lanes", "sectors_of",
    "count_lanes", "count_atomic", "count_sectors", "count_local", "count_windows", "count_wavefronts", "wavefronts_of", "find",
    "move", "put_back", "refill",
)  # fmt: skip
#: functions of the object ``races``, called through entries in ``script``
_RACES = (
    "race_acquire_mbarrier", "race_all_apart", "race_alone", "race_anywhere", "race_arrive", "race_arrive_mbarrier",
    "race_arrive_relaxed", "race_at", "race_atomics", "race_barrier", "race_begin", "race_begin_cluster", "race_bulk",
    "race_bulk_groups", "race_cluster", "race_commit_products", "race_complete_cluster", "race_complete_mbarrier", "race_copies",
    "race_fence", "race_flag", "race_groups", "race_lanes", "race_loose", "race_me", "race_pieces", "race_products", "race_proxy",
    "race_range", "race_renew", "race_row", "race_settle", "race_settle_words", "race_source", "race_texels", "race_wait_products",
    "races_settle",
)  # fmt: skip
#: functions of the object ``paths``, called in the same way
_PATHS = ("settle", "arrive_lanes", "release_lanes", "arrive_diverged")
#: functions of ``script`` that ``copies`` and ``tensors`` call, and those of ``copies`` that ``tensors`` calls
_CALLED = (
    "breach", "bump", "cluster_cta", "count_words", "fault", "mark", "near", "note", "race_acquire_mbarrier", "race_arrive_mbarrier",
    "race_arrive_relaxed", "race_bulk", "race_complete_mbarrier", "race_range", "race_source", "reach",
)  # fmt: skip
_SIGNALLING = ("in_rank", "refuse_mbarrier", "signal_copied", "mbarrier_of_copy")
#: functions written in the subset of ``compile_python``: an object that every kernel needs, and others that are loaded where they are
#: needed: for races, paths that wait, clusters, matrices and pieces of words, recorded values, mbarriers and bulk copies, tensors,
#: the simulator, tensor memory
SCRIPTS = {
    "script": tuple(dict.fromkeys((*_MEMORY, *_SCHEDULE, *_CALLED, *_RACES, INSTALL))),
    "races": _RACES,
    "paths": (*_PATHS, "settle_again", "force_yield"),
    "clusters": ("begin_cluster", "visit_cluster", "visited", "run_clusters"),
    "matrices": ("matrix_words", "store_parts"),
    "values": VALUES_IMPORTS,
    "copies": (*_MBARRIER, *_SIGNALLING),
    "tensors": ("tensor_lanes", "replace_lanes"),
    "simulator": ("sm_run", "sm_fits", "sm_stream", "sm_copied", "sm_blocks"),
    "tensor_memory": (
        "tensor_place",
        "tensor_alloc",
        "tensor_free",
        "tensor_copy",
        "tensor_shift",
        "tensor_multiply",
    ),
}
_IMPORTS = {
    "paths": ("breach", "race_cluster", "race_complete_cluster", "races_settle"),
    "clusters": ("any_warp", "begin", "visit", "race_begin_cluster", "race_renew"),
    "matrices": ("mark", "move", "note", "reach", "refill", "race_pieces", "race_products"),
    "values": ("find",),
    "copies": _CALLED,
    "tensors": (*_CALLED, *_SIGNALLING),
    "tensor_memory": ("reach", "refuse_mbarrier"),
}


def _in(folder: Path, *names: str) -> tuple[Path, ...]:
    return tuple(folder / f"{name}.py" for name in names)


_RUNTIME = Path(__file__).resolve().parent / "runtime"
_ISA = _RUNTIME.parents[1] / "isa"
FILES = {
    "script": _in(_RUNTIME, "memory", "access/lanes", "count", "schedule", "cluster"),
    "paths": _in(_RUNTIME, "stack_entries", "waiting_paths", "diverged_barriers"),
    "clusters": _in(_RUNTIME, "cluster_sweeps"),
    "matrices": _in(_RUNTIME, "parts", "matrix"),
    "values": _in(_RUNTIME / "values", "lanes", "dead"),
    "races": _in(
        _RUNTIME / "races",
        "clocks",
        "barriers",
        "flags",
        "blocks",
        "groups",
        "mbarriers",
        "reports",
        "shared_memory",
        "lines",
        "warps",
        "words",
        "batched",
        "scattered",
        "global_memory",
        "accesses",
        "settle",
    ),
    "copies": _in(_RUNTIME, "mbarrier", "bulk"),
    "tensors": _in(_RUNTIME / "tensor", "units", "checks", "copies"),
    "tensor_memory": (
        *_in(_RUNTIME / "tensor", "memory", "matrices", "multiply"),
        *_in(_ISA, "tensor_layouts"),
    ),
    "simulator": _in(
        _RUNTIME / "sm",
        "trace",
        "copies",
        "choice",
        "stalls",
        "mbarriers",
        "memory",
        "asynchronous",
        "tensor",
        "fetch",
        "limits",
        "images",
        "core",
    ),
}
_CONSTANTS = {
    **{name: getattr(stack_entries, name) for name in ("CALL_FRAME", "RECONVERGE", "PENDING", "WAIT")},
    **{name: getattr(stack, name) for name in ("SLICE_SHIFT", "YIELD_THRESHOLD")},
    **vars(abi),
    **vars(access_records),
    **vars(codes),
    **vars(copy_records),
    **vars(race_records),
    **vars(mbarriers),
    **vars(tensor_maps),
    **vars(tensor_memory),
    **vars(tensor_records),
    **vars(atomic_targets),
    "Problem": Problem,
    "Noted": Noted,
}
_ACCESS = (
    "cluster_cta",
    "load_lanes",
    "store_lanes",
    "mark_lanes",
    "seen_lanes",
    "sectors_of",
    "wavefronts_of",
    "count_sectors",
    "count_local",
    "count_windows",
    "count_wavefronts",
    "race_flag",
    "race_lanes",
    "race_row",
    "race_anywhere",
)
#: entries in ``script`` for functions of other objects, in the order of their table
ENTRIES = {"races": _RACES, "paths": _PATHS}
#: prefixes of functions for single instructions, which are optimised only for long-running programs
PARTICULAR = (PREFIX, WARPGROUP_PREFIX, IMAGE_PREFIX)


def level(name: str) -> int:
    """The optimisation level of an object: race detection consists of many small functions, few of which call each other. Functions
    that instructions share are for programs that run little."""
    if name.startswith(SHARED_PREFIX):
        return 0
    return 2 if name in ("races", "simulator") else 1


def is_unoptimised_first(name: str) -> bool:
    """Whether an object that is not in the cache is first compiled without passes, as that takes long with them."""
    return (name in SCRIPTS and name != "simulator") or name.startswith(PARTICULAR) or is_access(name)


def object_text(name: str) -> str:
    """IR of an object. Raises ``KeyError`` for a function of instructions that this process has not written."""
    if name.startswith(SHARED_PREFIX):
        return shared_function(name)
    if name == "script":
        others = [path for group in ENTRIES for path in FILES[group]]
        known = {item.name: item.parameters for item in signatures(others)}
        entries = entry_functions({entry: known[entry] for group in ENTRIES.values() for entry in group})
        text = compile_python.translate(FILES[name], _CONSTANTS, others, declared=False)
        return text + vector_words(llvm.host().wide) + entries
    if name == "races":
        return (
            compile_python.translate(FILES[name], _CONSTANTS, exported=_RACES)
            + pieces_words()
            + claims_words()
            + renewed_words()
            + batch_words()
            + race_words(llvm.host().wide)
        )
    if name == "simulator":
        text = compile_python.translate(FILES[name], vars(sm_records), exported=SCRIPTS[name])
        return text + earliest_words(llvm.host().wide)
    if name in SCRIPTS:
        groups = ("script", "races", *(("copies",) if name in ("tensors", "tensor_memory") else ()))
        called = [path for group in groups for path in FILES[group]]
        return compile_python.translate(FILES[name], _CONSTANTS, called)
    if is_access(name):
        return access_functions(name, llvm.host().wide)
    wide = llvm.host().wide
    if name.startswith(WARPGROUP_PREFIX):
        return warpgroup_function(name, wide)
    if name.startswith(TENSOR_PREFIX):
        return tensor_function(name, wide)
    if name.startswith(IMAGE_PREFIX):
        return image_function(name, wide)
    if name.startswith(VALUES_PREFIX):
        return values_function(name, wide)
    if name.startswith(COMBINE_PREFIX):
        return combine_function(name, wide)
    return matrix_function(name, wide) if name.startswith(PREFIX) else vector_function(name, wide)


def imports(name: str) -> tuple[str, ...]:
    """Functions of other objects that one calls."""
    if name.startswith(VALUES_PREFIX):
        return VALUES_IMPORTS
    if name.startswith(IMAGE_PREFIX):
        return IMAGE_IMPORTS
    return _ACCESS if is_access(name) else _IMPORTS.get(name, ())


def exports(name: str) -> tuple[str, ...]:
    """Functions of an object that others call."""
    if name in SCRIPTS:
        return SCRIPTS[name]
    if name.startswith(VALUES_PREFIX):
        return name, RANGE_PREFIX + name[len(VALUES_PREFIX) :]
    return access_names(name) if is_access(name) else (name,)


def object_of(name: str) -> str:
    """The object that has a function."""
    for group, functions in SCRIPTS.items():
        if name in functions:
            return group
    if is_access(name):
        return access_group(name)
    if name.startswith(RANGE_PREFIX):
        return VALUES_PREFIX + name[len(RANGE_PREFIX) :]
    return name
