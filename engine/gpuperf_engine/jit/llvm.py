"""LLVM at work: from IR text to addresses of functions, through the cache of objects."""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from ..isa import mbarriers, tensor_memory
from ..isa.rules import Noted
from ..isa.tensor_maps import Problem
from ..memory import tensor_maps
from ..simt import atomic_targets, stack, stack_entries
from . import cache as store
from .codegen.combine import COMBINE_PREFIX, combine_function
from .codegen.images import IMAGE_IMPORTS, IMAGE_PREFIX, image_function
from .ir import abi, access_records, codes, copy_records, race_records, sm_records, tensor_records
from .ir.vectors import vector_function
from .runtime import compile_python
from .runtime.access import access_functions, access_names, is_access
from .runtime.matrix_functions import PREFIX, matrix_function
from .runtime.races_claims import claims_words
from .runtime.races_entries import INSTALL, entry_functions
from .runtime.races_pieces import pieces_words
from .runtime.races_renewed import renewed_words
from .runtime.tensor_products import TENSOR_PREFIX, tensor_function
from .runtime.values_function import IMPORTS as VALUES_IMPORTS
from .runtime.values_function import PREFIX as VALUES_PREFIX
from .runtime.values_function import RANGE_PREFIX, values_function
from .runtime.vector_intrinsics import race_words, vector_words
from .runtime.warpgroup_function import PREFIX as WARPGROUP_PREFIX
from .runtime.warpgroup_function import warpgroup_function

__all__ = [
    "Host",
    "Library",
    "compile_object",
    "host",
    "link",
    "load_races",
    "prepare",
    "runtime_addresses",
    "runtime_library",
]

_RUNTIME = Path(__file__).resolve().parent / "runtime"
_SCHEDULE = (
    "begin", "visit", "proceed", "run", "expire", "warpgroup_complete", "unsettled", "any_warp", "breach",
)  # fmt: skip
_MBARRIER = (
    "mbarrier_lanes", "mbarrier_multicast", "mbarrier_wait", "others_can_run", "bulk_lanes", "fill_lanes",
)  # fmt: skip
_MEMORY = (
    "cluster_cta", "reach", "reach_one", "load_lanes", "store_lanes", "mark_lanes", "seen_lanes", "copy_lanes", "sectors_of",
    "count_lanes", "count_atomic", "count_sectors", "count_local", "count_windows", "count_wavefronts", "wavefronts_of", "find",
    "move", "refill",
)  # fmt: skip
#: of the object of races, by way of entries in ``script``
_RACES = (
    "race_acquire_mbarrier", "race_alone", "race_anywhere", "race_arrive", "race_arrive_mbarrier", "race_arrive_relaxed", "race_at",
    "race_barrier", "race_begin", "race_begin_cluster", "race_bulk", "race_bulk_groups", "race_cluster", "race_commit_products",
    "race_complete_cluster", "race_complete_mbarrier", "race_copies", "race_fence", "race_flag", "race_groups", "race_lanes",
    "race_loose", "race_me", "race_pieces", "race_products", "race_proxy", "race_range", "race_renew", "race_row", "race_settle",
    "race_settle_words",    "race_source", "race_texels", "race_wait_products", "races_settle",
)  # fmt: skip
#: of the object of paths that wait, also by way of entries in ``script``
_PATHS = ("settle", "arrive_lanes", "release_lanes", "arrive_diverged")
#: what functions of ``copies`` and ``tensors`` call of ``script``, and those of ``tensors`` of ``copies``
_CALLED = (
    "bump", "cluster_cta", "count_words", "fault", "mark", "near", "note", "race_acquire_mbarrier", "race_arrive_mbarrier",
    "race_arrive_relaxed", "race_bulk", "race_complete_mbarrier", "race_range", "race_source", "reach",
)  # fmt: skip
_SIGNALLING = ("in_rank", "refuse_mbarrier", "signal_copied", "mbarrier_of_copy")
#: functions written in the subset of ``compile_python``: an object that every kernel needs, and others that are loaded where they are
#: needed: for races, paths that wait, clusters, matrices and pieces of words, recorded values, mbarriers and bulk copies, tensors,
#: the simulator, tensor memory
_SCRIPTS = {
    "script": tuple(dict.fromkeys((*_MEMORY, *_SCHEDULE, *_CALLED, *_RACES, INSTALL))),
    "races": _RACES,
    "paths": (*_PATHS, "settle_again", "force_yield"),
    "clusters": ("begin_cluster", "visit_cluster", "visited", "run_clusters"),
    "matrices": ("matrix_words", "store_parts"),
    "values": VALUES_IMPORTS,
    "copies": (*_MBARRIER, *_SIGNALLING),
    "tensors": ("tensor_lanes", "replace_lanes"),
    "simulator": ("sm_run", "sm_stream", "sm_copied"),
    "tensor_memory": ("tensor_place", "tensor_alloc", "tensor_free", "tensor_copy", "tensor_multiply"),
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
_FILES = {
    "script": tuple(
        _RUNTIME / f"{stem}.py"
        for stem in (
            "memory",
            "access_lanes",
            "count",
            "schedule",
            "cluster",
        )
    ),
    "paths": tuple(
        _RUNTIME / f"{stem}.py" for stem in ("stack_entries", "waiting_paths", "diverged_barriers")
    ),
    "clusters": (_RUNTIME / "cluster_sweeps.py",),
    "matrices": tuple(_RUNTIME / f"{stem}.py" for stem in ("parts", "matrix")),
    "values": tuple(_RUNTIME / f"{stem}.py" for stem in ("values", "values_dead")),
    "races": tuple(
        _RUNTIME / f"{stem}.py"
        for stem in (
            "races_clocks",
            "races_barriers",
            "races_flags",
            "races_blocks",
            "races_groups",
            "races_mbarriers",
            "races_reports",
            "races_shared",
            "races_lines",
            "races_warps",
            "races_words",
            "races_scattered",
            "races_global",
            "races_accesses",
            "races_settle",
        )
    ),
    "copies": tuple(_RUNTIME / f"{stem}.py" for stem in ("mbarrier", "bulk")),
    "tensors": tuple(_RUNTIME / f"{stem}.py" for stem in ("tensor", "tensor_checks", "tensor_copies")),
    "tensor_memory": (
        *(_RUNTIME / f"{stem}.py" for stem in ("tensor_memory", "tensor_matrices", "tensor_multiply")),
        _RUNTIME.parents[1] / "isa" / "tensor_layouts.py",
    ),
    "simulator": tuple(
        _RUNTIME / f"{stem}.py"
        for stem in (
            "sm_trace",
            "sm_copies",
            "sm_choice",
            "sm_stalls",
            "sm_mbarriers",
            "sm_memory",
            "sm_asynchronous",
            "sm_core",
        )
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
#: functions of certain instructions, which are compiled well only for programs that run for long
_PARTICULAR = (PREFIX, WARPGROUP_PREFIX, IMAGE_PREFIX)
#: seconds of launches after which they are: about what that takes LLVM
_LONG = 0.2
#: seconds to wait for another process that compiles the same, which takes one or two
_PATIENCE = 10.0
_numbers = itertools.count()
_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    # a child must not inherit a lock of a thread that it has not
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


@dataclass(frozen=True)
class Host:
    """The processor that code is generated for. ``wide``: AVX-512 with byte, word and 256-bit forms and conflicts."""

    triple: str
    cpu: str
    features: str
    wide: bool


def host() -> Host:
    """This machine, asked once."""
    with _lock:
        return _host()


@cache
def _host() -> Host:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    wide = all(
        features.get(name, False) for name in ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512cd")
    )
    return Host(llvm.get_process_triple(), llvm.get_host_cpu_name(), features.flatten(), wide)


@cache
def _target() -> Any:
    return llvm.Target.from_triple(host().triple)


@cache
def _machine(level: int) -> Any:
    here = host()
    return _target().create_target_machine(cpu=here.cpu, features=here.features, opt=level, reloc="pic")


def _jit() -> Any:
    with _lock:
        return _linker()


@cache
def _linker() -> Any:
    # it only links objects, so any processor of this family will do, and the plainest is made soonest
    linker = llvm.create_lljit_compiler(_target().create_target_machine(opt=0, reloc="pic"))
    # it must outlive all objects in it, which may be let go of at the very end of the process: so it is never disposed of
    linker._owned = True
    return linker


@cache
def prepare() -> None:
    """Get LLVM and the cache ready in a thread of its own, while the caller imports or parses; who needs them first waits."""
    try:
        threading.Thread(target=_prepare, name="gpuperf-prepare", daemon=True).start()
    except RuntimeError:
        return  # no threads here: then each is made when it is needed


def _prepare() -> None:
    with _lock:
        _jit()
    store.source_digest()


def fingerprint(level: int) -> str:
    """What of the host and the compiler decides an object."""
    here = host()
    compiler = f"{llvmlite.__version__} {llvm.llvm_version_info}"
    return f"{here.triple} {here.cpu} {here.features} {compiler} {level}"


def compile_object(text: str, level: int) -> bytes:
    """Machine code of an IR module. Level 0: no passes; 1: the runtime's; 2: all that pays for long runs."""
    module = llvm.parse_assembly(text)
    machine = _machine(min(level, 2) if level != 1 else 1)
    if level:
        _optimise(module, machine, level)
    emitted: bytes = machine.emit_object(module)
    return emitted


def _optimise(module: Any, machine: Any, level: int) -> None:
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    options.loop_interleaving = False
    builder = llvm.create_pass_builder(machine, options)
    if level >= 2:
        builder.getModulePassManager().run(module, builder)
        return
    passes = llvm.create_new_function_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)


class Library:
    """One object in memory; the addresses hold as long as this lives."""

    def __init__(self, tracker: Any, names: tuple[str, ...]) -> None:
        self.tracker = tracker
        self.addresses = {name: int(tracker[name]) for name in names}


def link(contents: Sequence[bytes], exports: tuple[str, ...], imports: dict[str, int]) -> Library:
    """Load objects, which find one another's functions. Raises ``RuntimeError`` if one is damaged."""
    with _lock:
        builder = llvm.JITLibraryBuilder()
        for content in contents:
            builder.add_object_img(content)
        for name in exports:
            builder.export_symbol(name)
        for name, address in imports.items():
            builder.import_symbol(name, address)
        return Library(builder.link(_jit(), f"gpuperf{next(_numbers)}"), exports)


def _level(name: str) -> int:
    """How well a runtime object is compiled: what looks for races are many small functions, of which few are called by others."""
    return 2 if name in ("races", "simulator") else 1


def _key(name: str, level: int) -> str:
    """Of a runtime object in the cache."""
    return store.key("object", name, fingerprint(level))


_libraries: dict[str, Library] = {}
#: libraries that were replaced stay: code that was linked to them may be running
_replaced: list[Library] = []
#: text of what was compiled in haste; empty where it came from the cache
_hasty: dict[str, str] = {}
#: seconds that launches of programs with a hasty function of ``_PARTICULAR`` took
_taken: Counter[str] = Counter()
_Install = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
#: entries in ``script`` for functions of other objects, in the order of their table
_ENTRIES = {"races": _RACES, "paths": _PATHS}
#: the objects of which the first has entries for the functions of the second
_installed: dict[str, tuple[Library, Library]] = {}
_generation = [0]


def generation() -> int:
    """Raised whenever runtime functions were replaced by better ones: code linked before may be linked again."""
    return _generation[0]


def _library(name: str) -> Library:
    library = _libraries.get(name)
    if library is None:
        with _lock:
            library = _libraries.get(name)
            if library is None:
                library = _libraries[name] = _load_runtime(name)
                _install_loaded()
    return library


def _runtime_text(name: str) -> str:
    if name == "script":
        others = [path for group in _ENTRIES for path in _FILES[group]]
        known = {item.name: item.parameters for item in compile_python.signatures(others)}
        entries = entry_functions({entry: known[entry] for group in _ENTRIES.values() for entry in group})
        text = compile_python.translate(_FILES[name], _CONSTANTS, others, declared=False)
        return text + vector_words(host().wide) + entries
    if name == "races":
        return (
            compile_python.translate(_FILES[name], _CONSTANTS, exported=_RACES)
            + pieces_words()
            + claims_words()
            + renewed_words()
            + race_words(host().wide)
        )
    if name == "simulator":
        return compile_python.translate(_FILES[name], vars(sm_records), exported=_SCRIPTS[name])
    if name in _SCRIPTS:
        groups = ("script", "races", *(("copies",) if name in ("tensors", "tensor_memory") else ()))
        called = [path for group in groups for path in _FILES[group]]
        return compile_python.translate(_FILES[name], _CONSTANTS, called)
    if is_access(name):
        return access_functions(name, host().wide)
    if name.startswith(WARPGROUP_PREFIX):
        return warpgroup_function(name)
    if name.startswith(TENSOR_PREFIX):
        return tensor_function(name)
    if name.startswith(IMAGE_PREFIX):
        return image_function(name)
    if name.startswith(VALUES_PREFIX):
        return values_function(name, host().wide)
    if name.startswith(COMBINE_PREFIX):
        return combine_function(name)
    return matrix_function(name) if name.startswith(PREFIX) else vector_function(name, host().wide)


def _links(name: str) -> tuple[tuple[str, ...], dict[str, int]]:
    """What a runtime object exports and imports."""
    imports = _imports(name)
    return _exports(name), runtime_addresses(imports) if imports else {}


def _imports(name: str) -> tuple[str, ...]:
    if name.startswith(VALUES_PREFIX):
        return VALUES_IMPORTS
    if name.startswith(IMAGE_PREFIX):
        return IMAGE_IMPORTS
    return _ACCESS if is_access(name) else _IMPORTS.get(name, ())


def _exports(name: str) -> tuple[str, ...]:
    if name in _SCRIPTS:
        return _SCRIPTS[name]
    if name.startswith(VALUES_PREFIX):
        return name, RANGE_PREFIX + name[len(VALUES_PREFIX) :]
    return access_names(name) if is_access(name) else (name,)


def _load_together(names: Iterable[str]) -> None:
    """Runtime objects that are in the cache, in one link: it takes hardly longer for several than for one."""
    names = tuple(names)
    wanted = dict.fromkeys(("script", *(name for name in names if name != "races")))
    if sum(name not in _libraries for name in wanted) < 2:
        return
    with _lock:
        # another thread may have loaded some meanwhile, which its code is linked to
        missing = [name for name in wanted if name not in _libraries]
        read = {name: _stored(name) for name in missing}
        contents = {name: content for name, content in read.items() if content is not None}
        if len(contents) < 2 or ("script" in missing and "script" not in contents):
            return
        exports = tuple(name for group in contents for name in _exports(group))
        called = {called for group in contents for called in _imports(group)}.difference(exports)
        imports = runtime_addresses(tuple(sorted(called)))
        if any(name in _libraries for name in contents):
            # what was not in the cache is compiled by now and linked to some of these, which must stay
            _load_together(names)
            return
        try:
            library = link([*contents.values()], exports, imports)
        except RuntimeError:
            return
        _libraries.update(dict.fromkeys(contents, library))
        _install_loaded()


def _stored(name: str) -> bytes | None:
    """A runtime object from the cache, the better one if there are two."""
    content = store.read(_key(name, _level(name)))
    if content is None and name.startswith(_PARTICULAR):
        content = store.read(_key(name, 0))
        if content is not None:
            _hasty[name] = ""
    return content


def _load_runtime(name: str) -> Library:
    """From the cache; else compiled in haste, to be compiled well by ``improve``."""
    exports, imports = _links(name)
    content = _stored(name)
    if content is not None:
        try:
            return link([content], exports, imports)
        except RuntimeError:
            pass
    particular = name.startswith(_PARTICULAR)
    if (name not in _SCRIPTS or name == "simulator") and not particular and not is_access(name):
        content = compile_object(_runtime_text(name), _level(name))
        store.keep(_key(name, _level(name)), content)
        return link([content], exports, imports)
    text = _hasty[name] = _runtime_text(name)
    content = compile_object(text, 0)
    if particular:
        store.keep(_key(name, 0), content)
    return link([content], exports, imports)


def improve(needs: Sequence[str], seconds: float) -> None:
    """Compile well what was compiled in haste, in a thread of its own: what all programs call, and what those call whose launches
    take long. Of several processes one compiles, and the others read. ``seconds`` is what a launch of a program with these ``needs``
    took.

    The texts are made before: two threads that build syntax trees at once upset CPython 3.11.
    """
    if not _hasty:
        return
    with _lock:
        _taken.update({name: seconds for name in needs if name in _hasty})
        due = [name for name in _hasty if not name.startswith(_PARTICULAR) or _taken[name] >= _LONG]
        waiting = {name: _hasty.pop(name) or _runtime_text(name) for name in due}
    if waiting:
        try:
            threading.Thread(target=_improve, args=(waiting,), name="gpuperf-compile").start()
        except RuntimeError:
            return  # no threads here: what was compiled in haste must do


def _improve(texts: dict[str, str]) -> None:
    for name, text in texts.items():
        key = _key(name, _level(name))
        with store.alone(key, _PATIENCE):
            content = store.read(key)
            if content is None:
                try:
                    content = compile_object(text, _level(name))
                except RuntimeError:
                    return
                store.keep(key, content)
        with _lock:
            better = link([content], *_links(name))
            _replaced.append(_libraries[name])
            _libraries[name] = better
            _install_loaded()
    _generation[0] += 1


def _group(name: str) -> str:
    for group, functions in _SCRIPTS.items():
        if name in functions:
            return group
    if is_access(name):
        space, _, form = name.split("_")
        return f"{space}_{form}"
    if name.startswith(RANGE_PREFIX):
        return VALUES_PREFIX + name[len(RANGE_PREFIX) :]
    return name


def runtime_library() -> Library:
    """The object with the functions that every kernel needs."""
    return _library("script")


def load_races() -> None:
    """Let code that runs from now on look for races."""
    runtime_library()
    _library("races")


def _install_loaded() -> None:
    """Let every script, also one that was replaced and to which running code is linked, call what is loaded for its entries."""
    script = _libraries.get("script")
    if script is None:
        return
    number = 0
    for group, names in _ENTRIES.items():
        library = _libraries.get(group)
        if library is not None and _installed.get(group) != (script, library):
            _installed[group] = script, library
            _install(number, [library.addresses[name] for name in names])
        elif library is None and group == "paths":
            _install(number, [script.addresses["unsettled"]] * 2)
        number += len(names)


def _install(first: int, addresses: Sequence[int]) -> None:
    for library in (_libraries["script"], *_replaced):
        if INSTALL in library.addresses:
            install = _Install(library.addresses[INSTALL])
            for number, address in enumerate(addresses, first):
                install(number, address)


def runtime_addresses(names: tuple[str, ...]) -> dict[str, int]:
    """Where runtime functions are; compiled or loaded at first use."""
    groups = {name: _group(name) for name in names}
    _load_together(groups.values())
    return {name: _library(group).addresses[name] for name, group in groups.items()}
