"""Compilation and linking by LLVM: from IR text to addresses of functions."""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ParamSpec, TypeVar

import llvmlite
import llvmlite.binding as llvm

from . import cache as store

__all__ = ["Host", "Library", "compile_object", "fingerprint", "host", "link", "on_thread", "prepare"]

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_numbers = itertools.count()
#: held during calls of llvmlite, whose own lock a forked process might inherit in a locked state, without the thread that holds it
_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
#: characters of IR after whose compilation memory freed by LLVM is returned to the system
_GIVEN_BACK_AFTER = 1 << 20
_compiled = [0]
#: trackers of unused libraries, to be disposed of by a thread that signals do not interrupt
_disposed: list[Any] = []


def on_thread(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """``function``, run by one thread at a time and never by the main thread, which starts another one and waits for it.

    Python runs signal handlers in the main thread, and their exceptions (``KeyboardInterrupt``) may occur between any two steps:
    within llvmlite while it holds its lock, which then stays locked, so that all other threads wait forever, even at exit. If the
    main thread is interrupted here, ``function`` still completes.
    """

    def alone(*args: _Parameters.args, **keywords: _Parameters.kwargs) -> _Result:
        with _lock:
            _disposed.clear()
            return function(*args, **keywords)

    @functools.wraps(function)
    def call(*args: _Parameters.args, **keywords: _Parameters.kwargs) -> _Result:
        if threading.current_thread() is not threading.main_thread():
            return alone(*args, **keywords)
        results: list[_Result] = []
        errors: list[BaseException] = []
        done = threading.Lock()
        done.acquire()

        def work() -> None:
            try:
                results.append(alone(*args, **keywords))
            except BaseException as error:
                errors.append(error)
            finally:
                done.release()

        try:
            threading.Thread(target=work, name="gpuperf-llvm").start()
        except RuntimeError:
            return alone(*args, **keywords)  # the host has no threads
        done.acquire()
        if errors:
            raise errors.pop()
        return results[0]

    return call


@dataclass(frozen=True)
class Host:
    """The processor that code is generated for. ``wide``: AVX-512 with byte, word and 256-bit forms and conflicts."""

    triple: str
    cpu: str
    features: str
    wide: bool


@cache
def host() -> Host:
    """This machine, detected once."""
    return _host()


@on_thread
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


@cache
def _linker() -> Any:
    # it only links objects, so the generic processor suffices and is created fastest
    linker = llvm.create_lljit_compiler(_target().create_target_machine(opt=0, reloc="pic"))
    # never disposed of, as it must outlive all its objects, which may exist until the process exits
    linker._owned = True
    return linker


@cache
def prepare() -> None:
    """Initialise LLVM and the cache in a separate thread, while the caller imports or parses; the first use waits for it."""
    try:
        threading.Thread(target=_prepare, name="gpuperf-prepare", daemon=True).start()
    except RuntimeError:
        return  # without threads, they are initialised on first use


def _prepare() -> None:
    _get_ready()
    store.source_digest()


@on_thread
def _get_ready() -> None:
    _linker()


def fingerprint(level: int) -> str:
    """The properties of host and compiler on which an object depends."""
    here = host()
    compiler = f"{llvmlite.__version__} {llvm.llvm_version_info}"
    return f"{here.triple} {here.cpu} {here.features} {compiler} {level}"


@on_thread
def compile_object(text: str, level: int) -> bytes:
    """Machine code of an IR module. Level 0: no passes; 1: those for the runtime; 2: all that are worthwhile for long runs."""
    emitted = _emitted(text, level)
    _compiled[0] += len(text)
    if _compiled[0] >= _GIVEN_BACK_AFTER:
        _compiled[0] = 0
        _give_back()
    return emitted


def _emitted(text: str, level: int) -> bytes:
    # types and constants live as long as their context: those of a module in the common one would stay for ever
    module = llvm.parse_assembly(text, llvm.create_context())
    machine = _machine(min(level, 2) if level != 1 else 1)
    if level:
        _optimise(module, machine, level)
    emitted: bytes = machine.emit_object(module)
    return emitted


def _give_back() -> None:
    """Return freed memory to the system. glibc gives threads heaps of their own, and in those of the threads that compile, of which
    there are several in the life of a process, most of what a module took would stay: 70 MB after the kernels of ``examples/``."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


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
    """One object in memory; its addresses are valid as long as this exists."""

    def __init__(self, tracker: Any, names: tuple[str, ...]) -> None:
        self._tracker = tracker
        self.addresses = {name: int(tracker[name]) for name in names}

    def __del__(self, dispose: Callable[[Any], None] = _disposed.append) -> None:
        dispose(self._tracker)


@on_thread
def link(contents: Sequence[bytes], exports: tuple[str, ...], imports: dict[str, int]) -> Library:
    """Load objects and link them with each other. Raises ``RuntimeError`` if one is damaged."""
    builder = llvm.JITLibraryBuilder()
    for content in contents:
        builder.add_object_img(content)
    for name in exports:
        builder.export_symbol(name)
    for name, address in imports.items():
        builder.import_symbol(name, address)
    return Library(builder.link(_linker(), f"gpuperf{next(_numbers)}"), exports)
