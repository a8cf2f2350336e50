"""Runtime functions in memory: loaded from the cache, or compiled without optimisation first and optimised beside the launches."""

from __future__ import annotations

import ctypes
import operator
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from . import cache as store
from .llvm import Library, compile_object, fingerprint, link, on_thread
from .runtime_objects import (
    ENTRIES,
    INSTALL,
    PARTICULAR,
    SHARED_PREFIX,
    exports,
    imports,
    is_unoptimised_first,
    level,
    object_of,
    object_text,
)

__all__ = [
    "generation", "improve", "kernel_in_preparation", "load_races", "runtime_addresses", "runtime_library",
]  # fmt: skip

#: seconds of launches after which functions of ``PARTICULAR`` are optimised: about the time that LLVM needs for it
_LONG = 0.2
#: seconds to wait for another process that compiles the same, which takes one or two
_LONGEST_WAIT = 10.0
#: seconds without a kernel in preparation before functions are optimised, of the process's CPU time and of the clock: LLVM works for
#: one thread at a time, and a new kernel would have to wait
_IDLE = 0.1, 1.0
#: seconds of the process's CPU time after which they are optimised in any case
_LONGEST_DELAY = 1.0
_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    # a forked process must not inherit a lock that another thread holds
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)

_libraries: dict[str, Library] = {}
#: replaced libraries, which are kept as running code may be linked to them
_replaced: list[Library] = []
#: IR of objects that all programs call, compiled without optimisation until the next launch
_due: dict[str, str] = {}
#: IR of objects of ``PARTICULAR`` that were compiled without optimisation; empty if they came from the cache
_unoptimised: dict[str, str] = {}
#: seconds that launches of programs with an unoptimised function of ``PARTICULAR`` took
_taken: defaultdict[str, float] = defaultdict(float)
_Install = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
#: pairs of objects, of which the first has entries for functions of the second
_installed: dict[str, tuple[Library, Library]] = {}
_generation = [0]
#: threads that prepare a kernel, and when the last of them ended, on the clocks of ``_now``
_preparing: set[int] = set()
_prepared = [(0.0, 0.0)]


def _key(name: str, level: int) -> str:
    """The cache key of a runtime object."""
    return store.key("object", name, fingerprint(level))


@contextmanager
def kernel_in_preparation() -> Iterator[None]:
    """Postpones the optimisation of runtime functions."""
    thread = threading.get_ident()
    _preparing.add(thread)
    try:
        yield
    finally:
        _preparing.discard(thread)
        _prepared[0] = _now()


def _now() -> tuple[float, float]:
    return time.process_time(), time.monotonic()


def _await_kernels() -> None:
    latest = time.process_time() + _LONGEST_DELAY
    while threading.main_thread().is_alive() and time.process_time() < latest:
        since = [now - then for now, then in zip(_now(), _prepared[0])]
        if not _preparing and any(map(operator.ge, since, _IDLE)):
            return
        time.sleep(0.01)


def generation() -> int:
    """Incremented whenever optimised runtime functions replace others, so that code can be linked again."""
    return _generation[0]


def _library(name: str) -> Library:
    library = _libraries.get(name)
    if library is None:
        with _lock:
            library = _libraries.get(name)
            if library is None:
                library = _load(name)
                _add({name: library})
    return library


def _load_together(names: Iterable[str]) -> None:
    """Load runtime objects from the cache in one link, which takes hardly longer than for one object. Functions that instructions
    share are compiled if they are not there."""
    names = tuple(names)
    wanted = dict.fromkeys(("script", *(name for name in names if name != "races")))
    if sum(name not in _libraries for name in wanted) < 2:
        return
    with _lock:
        # another thread may have loaded some meanwhile, and its code is linked to these
        missing = [name for name in wanted if name not in _libraries]
        shared = _shared_together([name for name in missing if name.startswith(SHARED_PREFIX)])
        read = {name: _stored(name) for name in missing if not name.startswith(SHARED_PREFIX)}
        contents = {name: content for name, content in read.items() if content is not None}
        found = [*contents, *(name for _, group in shared.values() for name in group)]
        if len(found) < 2 or ("script" in missing and "script" not in contents):
            return
        exported = tuple(name for group in found for name in exports(group))
        called = {called for group in contents for called in imports(group)}.difference(exported)
        addresses = runtime_addresses(tuple(sorted(called)))
        if any(name in _libraries for name in found):
            # objects that were not in the cache are compiled now and linked to some of these, which must be kept
            _load_together(names)
            return
        try:
            library = link(
                [*contents.values(), *(content for content, _ in shared.values())], exported, addresses
            )
        except RuntimeError:
            return
        _add(dict.fromkeys(found, library))


def _shared_together(names: Sequence[str]) -> dict[str, tuple[bytes, list[str]]]:
    """Objects with functions that instructions share, and which of these they are taken for, by cache key. An object is compiled for
    all that are missing, which takes a third of the time of one for each; under the key of each is the key of its object."""
    objects: dict[str, tuple[bytes, list[str]]] = {}
    missing = []
    for name in names:
        place = (store.read(_shared_key(name)) or b"").decode()
        content = objects[place][0] if place in objects else store.read(place) if place else None
        if content is None:
            missing.append(name)
        else:
            objects.setdefault(place, (content, []))[1].append(name)
    if missing:
        content = compile_object(_joined(map(object_text, missing)), 0)
        place = store.key("objects", fingerprint(0), *missing)
        store.keep(place, content)
        for name in missing:
            store.keep(_shared_key(name), place.encode())
        objects[place] = content, missing
    return objects


def _shared_key(name: str) -> str:
    return store.key("shared", name, fingerprint(0))


def _joined(texts: Iterable[str]) -> str:
    """One module of several, with each declaration once. Another object may define a function too."""
    declared: dict[str, None] = {}
    lines: list[str] = []
    for line in "".join(texts).splitlines():
        if line.startswith("declare "):
            declared[line] = None
        else:
            lines.append(line.replace("define ", "define weak ", 1) if line.startswith("define ") else line)
    return "\n".join([*declared, *lines, ""])


def _stored(name: str) -> bytes | None:
    """A runtime object from the cache, preferably the optimised one."""
    content = store.read(_key(name, level(name)))
    if content is None and name.startswith(PARTICULAR):
        content = store.read(_key(name, 0))
        if content is not None:
            _unoptimised[name] = ""
    return content


def _load(name: str) -> Library:
    """A runtime object from the cache; else compiled without optimisation, until ``improve`` optimises it."""
    if name.startswith(SHARED_PREFIX):
        ((shared, _),) = _shared_together([name]).values()
        return _linked(name, shared)
    content = _stored(name)
    if content is not None:
        try:
            return _linked(name, content)
        except RuntimeError:
            pass
    text = object_text(name)
    if not is_unoptimised_first(name):
        content = compile_object(text, level(name))
        store.keep(_key(name, level(name)), content)
        return _linked(name, content)
    content = compile_object(text, 0)
    if name.startswith(PARTICULAR):
        store.keep(_key(name, 0), content)
    library = _linked(name, content)
    (_unoptimised if name.startswith(PARTICULAR) else _due)[name] = text
    return library


def _linked(name: str, content: bytes) -> Library:
    called = imports(name)
    return link([content], exports(name), runtime_addresses(called) if called else {})


@on_thread
def _add(libraries: dict[str, Library]) -> None:
    """Make code that is compiled from now on call these functions instead of those of the same objects loaded before."""
    _replaced.extend(_libraries[name] for name in libraries if name in _libraries)
    _libraries.update(libraries)
    _install_loaded()


def improve(needs: Sequence[str], seconds: float) -> None:
    """Optimise unoptimised functions in a separate thread: those that all programs call, and those of programs with long launches. Of
    several processes one compiles, and the others read the result. Kernels in preparation have priority. ``seconds``: the time of a
    launch of a program with these ``needs``.

    The IR is generated beforehand, as CPython 3.11 fails if two threads build syntax trees at once.
    """
    # a launch must not cost more for functions that other programs need
    called = [name for name in needs if name in _unoptimised]
    if not called and not _due:
        return
    with _lock:
        for name in called:
            _taken[name] += seconds
            if _taken[name] >= _LONG and name in _unoptimised:
                _due[name] = _unoptimised.pop(name) or object_text(name)
        waiting = dict(_due)
        _due.clear()
    if waiting:
        try:
            threading.Thread(target=_improve, args=(waiting,), name="gpuperf-compile").start()
        except RuntimeError:
            return  # without threads, the unoptimised code is used


def _improve(texts: dict[str, str]) -> None:
    for name, text in texts.items():
        key = _key(name, level(name))
        _await_kernels()
        with store.alone(key, _LONGEST_WAIT):
            content = store.read(key)
            if content is None:
                try:
                    content = compile_object(text, level(name))
                except RuntimeError:
                    return
                store.keep(key, content)
        with _lock:
            _add({name: _linked(name, content)})
    _generation[0] += 1


def runtime_library() -> Library:
    """The object with the functions that every kernel needs."""
    return _library("script")


def load_races() -> None:
    """Enable race detection for code that runs from now on."""
    runtime_library()
    _library("races")


def _install_loaded() -> None:
    """Point the entries of every script object to the loaded functions, including replaced ones to which running code is linked."""
    script = _libraries.get("script")
    if script is None:
        return
    number = 0
    for group, names in ENTRIES.items():
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
    """Addresses of runtime functions, compiled or loaded on first use."""
    groups = {name: object_of(name) for name in names}
    _load_together(groups.values())
    return {name: _library(group).addresses[name] for name, group in groups.items()}
