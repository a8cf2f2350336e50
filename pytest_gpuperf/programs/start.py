"""The environment of CUDA programs: our libraries, and variables that describe the machine.

``gpuperf run`` only starts a process, so this module imports nothing that runs kernels.
"""

from __future__ import annotations

import json
import os
import re
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuperf_engine.cudart.build import PRELOAD, build_libraries
from gpuperf_engine.errors import MachineError
from gpuperf_engine.jit import cache

if TYPE_CHECKING:
    from gpuperf_engine.device.options import DeviceOptions

__all__ = [
    "OFF",
    "VALUES",
    "environment",
    "observing",
    "say_nothing_ran",
    "say_races_not_sought",
    "variables",
]

OFF = "off"
VALUES: Mapping[str, tuple[str, ...]] = {
    OFF: (),
    "objects": ("memory", "values"),
    "accesses": ("memory", "values", "accesses"),
}
"""Observed properties of a program, by the name of the choice."""
#: search paths of compilers and CMake for the driver, as a toolkit may have no stub of it
_LINKING = ("LIBRARY_PATH", "CMAKE_LIBRARY_PATH")


def observing(values: str) -> DeviceOptions:
    """Options of the engine's device for a choice of ``VALUES``."""
    return {"observe": list(VALUES[values])} if VALUES[values] else {}


def environment(
    machine: str,
    *,
    search: Sequence[str] = (),
    device: Mapping[str, object] | None = None,
    output: str | None = None,
    folder: str = "",
    budget: Mapping[str, object] | None = None,
    inputs: bool = False,
    telling: bool = False,
    uninitialized: str = OFF,
    of_python: bool = False,
) -> dict[str, str]:
    """Variables of the environment of a CUDA program that finds this machine. ``device``: options of the engine's; ``output``: the
    file for counts by kernel; ``folder``: that for its launches, which may cost the ``budget``; ``inputs``: with what they find in
    memory; ``telling``: what they are noted for goes to stderr; ``uninitialized``: what reads of uninitialised memory cause,
    ``off``, ``note`` or ``error``; ``of_python``: programs of Python are among them, which need no shared library of it. Raises
    ``MachineError``."""
    libraries = build_libraries()
    return {
        **{
            name: _joined(os.pathsep, str(libraries), os.environ.get(name))
            for name in ("LD_LIBRARY_PATH", *_LINKING)
        },
        "LD_PRELOAD": _joined(" ", str(libraries / PRELOAD), os.environ.get("LD_PRELOAD")),
        **variables(),
        "GPUPERF_RUN_PATH": os.pathsep.join(filter(None, sys.path)),
        "GPUPERF_RUN_PYTHON": sys.executable,
        "GPUPERF_RUN_LIBPYTHON": str(_python_library(of_python)),
        "GPUPERF_RUN_TARGET": machine,
        "GPUPERF_RUN_TARGET_FILES": os.pathsep.join(search),
        "GPUPERF_RUN_DEVICE": json.dumps(device or {}),
        "GPUPERF_RUN_OUTPUT": os.path.abspath(output) if output else "",
        "GPUPERF_RUN_LAUNCHES": folder,
        "GPUPERF_RUN_BUDGET": json.dumps(budget or {}),
        "GPUPERF_RUN_INPUTS": "yes" if inputs else "",
        "GPUPERF_RUN_TELL": "yes" if telling else "",
        "GPUPERF_RUN_UNINITIALIZED": uninitialized,
    }


def variables() -> dict[str, str]:
    """Return environment variables for libraries with a compilation cache; existing values stay."""
    folder = cache.folder()
    # the cached result of our NVRTC is PTX, which must not be loaded as machine code on a GPU, nor vice versa
    wanted = {} if folder is None else {"CUPY_CACHE_DIR": str(folder / "cupy")}
    return {name: os.environ.get(name, value) for name, value in wanted.items()}


def _joined(separator: str, first: str, others: str | None) -> str:
    """Prepend a path; one that is present already, as in a test's environment, is not repeated."""
    rest = [part for part in (others or "").split(separator) if part and part != first]
    return separator.join([first, *rest])


def say_nothing_ran(program: str, has_cuda: bool) -> None:
    """On stderr; ``has_cuda``: the program could have called CUDA, and ended before it did."""
    print(
        f"gpuperf: {program} called no CUDA function: nothing was run on the emulator",
        *(
            ()
            if has_cuda
            else ["  Triton programs need --triton; others need CUDA 12 or 13 and must not be stripped"]
        ),
        sep="\n",
        file=sys.stderr,
    )


def say_races_not_sought(program: str, code: int) -> None:
    """On stderr, of a program that has ended with this exit code."""
    print(
        f"gpuperf: {program} has ended with {code}, and races were not checked; --races note checks them",
        "  the result of a race here may differ from that on a GPU",
        sep="\n",
        file=sys.stderr,
    )


def _python_library(missing: bool) -> Path:
    """The shared library of this Python. Where it was built without one, the name that it would have if it may be ``missing``; else
    raises ``MachineError``."""
    version = sysconfig.get_config_var("LDVERSION") or "{}.{}".format(*sys.version_info[:2])
    name = sysconfig.get_config_var("INSTSONAME") or f"libpython{version}.so.1.0"
    folders = [
        sysconfig.get_config_var("LIBDIR"),
        os.path.join(sys.base_prefix, "lib"),
        sysconfig.get_config_var("LIBPL"),
    ]
    names = [name, f"libpython{version}.so.1.0", f"libpython{version}.so"]
    for folder in filter(None, folders):
        for candidate in names:
            path = Path(folder) / candidate
            if path.is_file() and re.search(r"\.so(\.|$)", candidate):
                return path
    if missing:
        return Path(names[1])
    raise MachineError(
        f"there is no {names[1]}: this Python was built without a shared library",
        details=[f"looked in {', '.join(filter(None, folders))}"],
        hint=f"apt-get install libpython{version} (Debian, Ubuntu), or use a Python built with --enable-shared",
    )
